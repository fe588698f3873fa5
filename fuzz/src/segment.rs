//! Reads a segment with any bytes in its areas. The plan in its header is valid, since otherwise nothing else is read;
//! everything else is from the input.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use std::os::fd::AsRawFd;
use ttmem_core::input::Input;
use ttmem_core::words::{Basis, Mono, Origin, ProcessId};
use ttmem_core::{Analysis, Detail, Limits, State};
use ttmem_sources::{EventSink, ProcessIdentity, SegmentFile, emit_segment};
use ttmem_wire::segment::{MAGIC, Plan, word};
use zerocopy::IntoBytes;

const PLAN: Plan = Plan { rows: 4, definition_blocks: 24, ring_records: 16, slots: 16 };
const PROCESS: ProcessId = ProcessId { pid: 1, start: 1 };

struct Sink(State, Analysis);

impl EventSink for Sink {
    fn register(&mut self, _: &ProcessIdentity, _: Basis) -> ProcessId {
        PROCESS
    }

    fn emit(&mut self, process: ProcessId, basis: Basis, input: Input) {
        self.0.apply(&mut self.1, Mono(1_000_000_000), Origin::Process(process, basis), input);
    }

    fn emit_machine(&mut self, input: Input) {
        self.0.apply(&mut self.1, Mono(1_000_000_000), Origin::Machine, input);
    }
}

/// Reads the bytes as the areas of a segment with a valid header.
pub fn segment(input: &[u8]) {
    let Some((words, areas)) = input.split_at_checked(64) else { return };
    let file = memfd_create("segment", MemfdFlags::CLOEXEC).unwrap();
    let bytes = PLAN.bytes(PLAN.slots);
    ftruncate(&file, bytes as u64).unwrap();
    pwrite(&file, &vec![0; bytes], 0).unwrap();
    let mut header = PLAN.header();
    header.magic = MAGIC.into();
    pwrite(&file, header.as_bytes(), 0).unwrap();
    // Small numbers, unless the input marks a large one.
    let word = |n: usize| {
        let value = u64::from_le_bytes(words[n * 8..n * 8 + 8].try_into().unwrap());
        if value >> 56 == 0xff { value } else { value % 64 }
    };
    for (n, at) in
        [word::BEGUN, word::APPLIED, word::BLOCKS_USED, word::ROWS_USED, word::FAULTS].into_iter().enumerate()
    {
        pwrite(&file, &word(n).to_le_bytes(), at as u64).unwrap();
    }
    let slots = if word(5) == 0 { 16 } else { word(5) };
    pwrite(&file, &slots.to_le_bytes(), word::SLOTS as u64).unwrap();
    let room = bytes - PLAN.rows_offset();
    pwrite(&file, &areas[..areas.len().min(room)], PLAN.rows_offset() as u64).unwrap();

    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(segment) = SegmentFile::open_path(path.as_ref()) else { panic!("the header is valid") };
    let limits = Limits { records: 1000, definitions: 100, ..Limits::default() };
    let mut sink = Sink(State::new(limits, 7), Analysis::default());
    sink.emit(PROCESS, Basis::Exact, Input::Registered(Box::default()));
    let _ = segment.contents();
    let _ = emit_segment(&segment, PROCESS, &mut sink);
    sink.0.tick(&mut sink.1, Mono(2_000_000_000));
    let detail = Detail { cores: true, programs: true, ..Detail::default() };
    let snapshot = sink.1.snapshot(&sink.0, jiff::Timestamp::UNIX_EPOCH, &detail);
    assert_eq!(snapshot.processes.len(), 1);
    assert!(snapshot.health.live_records <= 1000);
}
