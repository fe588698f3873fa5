//! The tracker against a naive model, read back through the real reader.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, Chip, CoreRange, CoresNumber, Fault, Kernel, Layout, Options, Placement,
    Program, Space, Statistics, Tracker, agent,
};
use ttmem_sources::{Contents, SegmentFile};
use ttmem_testkit::Reader;
use ttmem_wire::record::Kind;

struct Fixture {
    folder: tempfile::TempDir,
    tracker: Tracker,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        Self { tracker: Tracker::new(&Options::default().folder(path)), folder }
    }

    fn allocator(&self, chips: u64) -> AllocatorNumber {
        let chip = |n| Chip::default().unique_id(n + 1).index(n as u32);
        let chips: Vec<_> = (0..chips).map(|n| self.tracker.define_chip(&chip(n)).unwrap()).collect();
        let banks = [Banks::new(Space::Dram, 12, 0, 1 << 30), Banks::new(Space::L1, 64, 0, 1 << 20)];
        self.tracker.define_allocator(&chips, &banks).unwrap()
    }

    fn contents(&self) -> Contents {
        let folder = std::fs::File::open(self.folder.path()).unwrap();
        let name = self.tracker.status().segment.expect("segment exists");
        let contents = SegmentFile::open(folder.as_fd(), &name).unwrap().contents().unwrap();
        assert!(contents.exact);
        contents
    }
}

/// Live records: kind, space, allocator, id, program, bytes, cores; and how many of each there are.
type Live = BTreeMap<(u8, u8, u16, u64, u32, u64, u16), u32>;

fn live(contents: &Contents) -> Live {
    let mut live = Live::new();
    for slot in contents.slots.iter().filter(|slot| slot.sequence.get() != 0) {
        let (id, bytes) = match Kind::from_byte(slot.kind) {
            Some(Kind::Alloc) => (slot.id.get(), slot.requested.get()),
            // The number of dispatches, or of replays.
            Some(Kind::ProgramBegin | Kind::Dispatch) => (0, slot.requested.get()),
            Some(Kind::Trace) => (slot.id.get(), u64::from(slot.padding.get())),
            _ => (0, 0),
        };
        let kind = if slot.kind == Kind::Dispatch as u8 { Kind::ProgramBegin as u8 } else { slot.kind };
        let key = (kind, slot.space, slot.allocator.get(), id, slot.program.get(), bytes, slot.cores.get());
        *live.entry(key).or_default() += 1;
    }
    live
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(Space, u64, u64),
    /// A mirror of another allocator's L1 buffer.
    Mirror(u64, u64),
    /// A buffer on some cores only.
    AllocOnCores(u64, u64, u8),
    FreeOnCores(u64, u64, u8),
    Free(Space, u64),
    /// A program on some cores, built or rebuilt.
    Build(u32, u8),
    Place(u32, u64, u64, u8),
    /// A view of a buffer, which is not counted.
    View(u32, u64, u64, u8),
    Displace(u32, u64, u64, u8),
    Kernel(u32, u64, u64),
    Dispatch(u32),
    End(u32),
    /// A trace that is captured, or replayed if it exists.
    Trace(u32),
    ReleaseTrace(u32),
    Audit(Space),
    ResetPeak(Space),
    Clear,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let space = || prop_oneof![Just(Space::Dram), Just(Space::L1)];
    let at = || (0..20u64).prop_map(|n| n * 64);
    let bytes = || prop_oneof![Just(64u64), Just(128), 1..5000u64];
    let program = || 1..5u32;
    // Few values, so that what is removed often exists.
    let placed = || (program(), (0..4u64).prop_map(|n| n * 64), prop_oneof![Just(64u64), Just(128)], 0..2u8);
    let step = prop_oneof![
        8 => (space(), at(), bytes()).prop_map(|(space, at, bytes)| Step::Alloc(space, at, bytes)),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Step::Mirror(at, bytes)),
        2 => (at(), bytes(), 0..2u8).prop_map(|(at, bytes, cores)| Step::AllocOnCores(at, bytes, cores)),
        2 => (at(), bytes(), 0..2u8).prop_map(|(at, bytes, cores)| Step::FreeOnCores(at, bytes, cores)),
        8 => (space(), at()).prop_map(|(space, at)| Step::Free(space, at)),
        6 => placed().prop_map(|(p, at, bytes, cores)| Step::Place(p, at, bytes, cores)),
        3 => placed().prop_map(|(p, at, bytes, cores)| Step::Displace(p, at, bytes, cores)),
        2 => (program(), 0..6u64, bytes()).prop_map(|(p, id, bytes)| Step::Kernel(p, id, bytes)),
        2 => (program(), 0..2u8).prop_map(|(p, cores)| Step::Build(p, cores)),
        2 => placed().prop_map(|(p, at, bytes, cores)| Step::View(p, at, bytes, cores)),
        2 => (0..3u32).prop_map(Step::Trace),
        1 => (0..3u32).prop_map(Step::ReleaseTrace),
        4 => program().prop_map(Step::Dispatch),
        2 => program().prop_map(Step::End),
        1 => space().prop_map(Step::Audit),
        1 => space().prop_map(Step::ResetPeak),
        1 => Just(Step::Clear),
        1 => Just(Step::Close),
    ];
    prop::collection::vec((0..3usize, step), 0..200)
}

/// What is allocated, without any optimisation. The first number of each key is the allocator's.
#[derive(Default)]
struct Model {
    buffers: BTreeMap<(usize, u8, u64), u64>,
    mirrors: BTreeSet<(usize, u64)>,
    on_cores: BTreeSet<(usize, u64, u64, u8)>,
    /// Value: whether it is a view.
    placed: BTreeMap<(usize, u32, u64, u64, u8), bool>,
    kernels: BTreeMap<(usize, u64), (u32, u64)>,
    /// Values: cores, and the number of dispatches.
    programs: BTreeMap<(usize, u32), (u16, u64)>,
    /// Value: the number of replays.
    traces: BTreeMap<(usize, u32), u64>,
    audits: BTreeSet<(usize, u8)>,
    peaks: BTreeMap<(usize, u8), u64>,
    closed: [bool; 3],
}

impl Model {
    fn charged_bytes(&self, n: usize, space: u8) -> u64 {
        let banks = if space == Space::Dram as u8 { 12 } else { 64 };
        let mirrored = |at: u64| space == Space::L1 as u8 && self.mirrors.contains(&(n, at));
        let of = self.buffers.range((n, space, 0)..=(n, space, u64::MAX)).filter(|(key, _)| !mirrored(key.2));
        of.map(|(_, bytes)| bytes.div_ceil(64) * 64 * banks).sum()
    }

    /// Returns the bytes charged on cores; a set has 64 or 5 of them.
    fn charged_on_cores(&self, n: usize) -> u64 {
        let own = self.placed.iter().filter(|((a, ..), view)| *a == n && !**view);
        own.map(|(&(_, _, _, bytes, cores), _)| bytes * if cores == 0 { 64 } else { 5 }).sum()
    }

    /// Returns the bytes requested on each core, without views.
    fn requested_on_cores(&self, n: usize) -> u64 {
        let own = self.placed.iter().filter(|((a, ..), view)| *a == n && !**view);
        own.map(|(&(_, _, _, bytes, _), _)| bytes).sum()
    }

    fn live(&self, allocators: &[AllocatorNumber]) -> Live {
        let a = |n: usize| allocators[n].get();
        let alloc = Kind::Alloc as u8;
        let mut live = Live::new();
        for (&(n, space, at), &bytes) in &self.buffers {
            live.insert((alloc, space, a(n), at, 0, bytes, 0), 1);
        }
        for &(n, at, bytes, cores) in &self.on_cores {
            live.insert((alloc, Space::L1Core as u8, a(n), at, 0, bytes, u16::from(cores) + 1), 1);
        }
        for &(n, program, at, bytes, cores) in self.placed.keys() {
            live.insert((alloc, Space::Cb as u8, a(n), at, program, bytes, u16::from(cores) + 1), 1);
        }
        for (&(n, id), &(program, bytes)) in &self.kernels {
            live.insert((alloc, Space::Kernel as u8, a(n), id, program, bytes, 0), 1);
        }
        for (&(n, program), &(cores, dispatches)) in &self.programs {
            live.insert((Kind::ProgramBegin as u8, 0, a(n), 0, program, dispatches, cores), 1);
        }
        for (&(n, trace), &replays) in &self.traces {
            live.insert((Kind::Trace as u8, Space::Trace as u8, a(n), u64::from(trace), 0, replays, 0), 1);
        }
        for &(n, space) in &self.audits {
            live.insert((Kind::Audit as u8, space, a(n), 0, 0, 0, 0), 1);
        }
        live
    }

    /// Applies a step, and returns the expected result of the tracker.
    fn apply(&mut self, n: usize, step: Step) -> Result<(), Fault> {
        if self.closed[n] && !matches!(step, Step::Dispatch(_) | Step::End(_) | Step::ReleaseTrace(_)) {
            return Err(Fault::UnknownAllocator);
        }
        let again = |old: Option<u64>, bytes: u64| match old {
            None => Ok(()),
            Some(old) if old == bytes => Err(Fault::StillHeld),
            Some(_) => Err(Fault::Replaced),
        };
        match step {
            Step::Mirror(at, bytes) => {
                self.mirrors.insert((n, at));
                again(self.buffers.insert((n, Space::L1 as u8, at), bytes), bytes)
            }
            Step::AllocOnCores(at, bytes, cores) => {
                let new = self.on_cores.insert((n, at, bytes, cores));
                again((!new).then_some(bytes), bytes)
            }
            Step::FreeOnCores(at, bytes, cores) => {
                self.on_cores.remove(&(n, at, bytes, cores)).then_some(()).ok_or(Fault::UnknownFree)
            }
            Step::Alloc(space, at, bytes) => {
                if space == Space::L1 {
                    self.mirrors.remove(&(n, at));
                }
                let old = self.buffers.insert((n, space as u8, at), bytes);
                let now = self.charged_bytes(n, space as u8);
                let peak = self.peaks.entry((n, space as u8)).or_default();
                *peak = now.max(*peak);
                again(old, bytes)
            }
            Step::Free(space, at) => {
                self.buffers.remove(&(n, space as u8, at)).map(|_| ()).ok_or(Fault::UnknownFree)
            }
            Step::Build(program, cores) => {
                let dispatches = self.programs.get(&(n, program)).map_or(0, |known| known.1);
                let _ = self.apply(n, Step::End(program));
                self.programs.insert((n, program), (u16::from(cores) + 1, dispatches));
                Ok(())
            }
            Step::Place(program, at, bytes, cores) | Step::View(program, at, bytes, cores) => {
                self.programs.entry((n, program)).or_default();
                let view = matches!(step, Step::View(..));
                let old = self.placed.insert((n, program, at, bytes, cores), view);
                again(old.map(|_| bytes), bytes)
            }
            Step::Displace(program, at, bytes, cores) => {
                let known = self.placed.remove(&(n, program, at, bytes, cores));
                known.map(|_| ()).ok_or(Fault::UnknownFree)
            }
            Step::Kernel(program, id, bytes) => {
                self.programs.entry((n, program)).or_default();
                again(self.kernels.insert((n, id), (program, bytes)).map(|(_, old)| old), bytes)
            }
            Step::Dispatch(program) => {
                let known = self.programs.get_mut(&(n, program)).map(|known| known.1 += 1);
                known.ok_or(Fault::UnknownProgram)
            }
            Step::End(program) => {
                self.placed.retain(|&(a, p, ..), _| (a, p) != (n, program));
                self.kernels.retain(|&(a, _), &mut (p, _)| (a, p) != (n, program));
                self.programs.remove(&(n, program)).map(|_| ()).ok_or(Fault::UnknownProgram)
            }
            Step::Trace(trace) => {
                self.traces.entry((n, trace)).and_modify(|replays| *replays += 1).or_default();
                Ok(())
            }
            Step::ReleaseTrace(trace) => {
                self.traces.remove(&(n, trace)).map(|_| ()).ok_or(Fault::UnknownProgram)
            }
            Step::Audit(space) => {
                self.audits.insert((n, space as u8));
                Ok(())
            }
            Step::ResetPeak(space) => {
                self.peaks.insert((n, space as u8), self.charged_bytes(n, space as u8));
                Ok(())
            }
            Step::Clear | Step::Close => {
                self.closed[n] = matches!(step, Step::Close);
                self.buffers.retain(|&(a, ..), _| a != n);
                self.on_cores.retain(|&(a, ..)| a != n);
                self.placed.retain(|&(a, ..), _| a != n);
                self.kernels.retain(|&(a, _), _| a != n);
                self.programs.retain(|&(a, _), _| a != n);
                self.traces.retain(|&(a, _), _| a != n);
                self.audits.retain(|&(a, _)| a != n);
                Ok(())
            }
        }
    }
}

/// Reports a step to the tracker.
fn report(
    t: &Tracker,
    allocator: AllocatorNumber,
    sets: [CoresNumber; 2],
    step: Step,
) -> ttmem_client::Result {
    let placement = |program, address, bytes, cores: u8| {
        Placement::new(allocator, program, Space::Cb, address, bytes).cores(sets[usize::from(cores)])
    };
    let on_cores = |address, bytes, cores: u8| {
        let buffer = Buffer::new(allocator, Space::L1Core, address, bytes);
        buffer.bytes_per_bank(bytes).cores(sets[usize::from(cores)])
    };
    match step {
        Step::Alloc(space, at, bytes) => {
            let bytes_per_bank = bytes.div_ceil(64) * 64;
            t.alloc(&Buffer::new(allocator, space, at, bytes).bytes_per_bank(bytes_per_bank))
        }
        Step::Mirror(at, bytes) => {
            let buffer = Buffer::new(allocator, Space::L1, at, bytes);
            t.alloc(&buffer.bytes_per_bank(bytes).layout(Layout::Mirror))
        }
        Step::AllocOnCores(at, bytes, cores) => t.alloc(&on_cores(at, bytes, cores)),
        Step::FreeOnCores(at, bytes, cores) => t.free_on_cores(&on_cores(at, bytes, cores)),
        Step::Free(space, at) => t.free(allocator, space, at),
        Step::Build(program, cores) => {
            let cores = sets[usize::from(cores)];
            t.build_program(&Program::new(allocator, program).cores(cores))
        }
        Step::Place(program, at, bytes, cores) => t.place(&placement(program, at, bytes, cores)),
        Step::View(program, at, bytes, cores) => t.place(&placement(program, at, bytes, cores).view(true)),
        Step::Trace(trace) => t.capture_trace(allocator, trace, 3),
        Step::ReleaseTrace(trace) => t.release_trace(allocator, trace),
        Step::Displace(program, at, bytes, cores) => t.displace(&placement(program, at, bytes, cores)),
        Step::Kernel(program, id, bytes) => t.load_kernel(&Kernel::new(allocator, program, id, bytes)),
        Step::Dispatch(program) => t.dispatch(allocator, program),
        Step::End(program) => t.end_program(allocator, program),
        Step::Audit(space) => {
            let statistics = Statistics::default().free(1).largest_free_per_bank(1);
            t.audit(Some(t.begin_audit()?), allocator, space, statistics)
        }
        Step::ResetPeak(space) => t.reset_peak(allocator, space),
        Step::Clear => agent::clear_allocator(t, allocator),
        Step::Close => t.close_allocator(allocator),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn segment_matches_the_model(steps in steps()) {
        let fixture = Fixture::new();
        let t = &fixture.tracker;
        let allocators = [fixture.allocator(1), fixture.allocator(2), fixture.allocator(32)];
        let sets = [
            t.define_cores(&[CoreRange::new((0, 0), (7, 7))]).unwrap(),
            t.define_cores(&[CoreRange::new((0, 0), (0, 0)), CoreRange::new((3, 3), (4, 4))]).unwrap(),
        ];
        let mut model = Model::default();
        let mut sequence = 0;
        for (n, step) in steps {
            let result = report(t, allocators[n], sets, step);
            let expected = model.apply(n, step);
            // Whether a refused free is a double free depends on how long ago the first one was.
            let plain = result.map(|_| ()).map_err(|e| if e == Fault::DoubleFree { Fault::UnknownFree } else { e });
            prop_assert_eq!(plain, expected, "{:?}", step);
            if let Ok(now) = result {
                prop_assert!(now > sequence);
                sequence = now;
            }
            let contents = fixture.contents();
            prop_assert_eq!(live(&contents), model.live(&allocators));
            for row in contents.rows.iter().filter(|row| row.space <= Space::L1 as u8) {
                let n = allocators.iter().position(|known| known.get() == row.allocator.get()).unwrap();
                prop_assert_eq!(row.allocated.get(), model.charged_bytes(n, row.space));
                prop_assert_eq!(row.unlisted.get(), 0);
                let peak = model.peaks.get(&(n, row.space)).copied().unwrap_or(0);
                prop_assert_eq!(row.peak.get(), peak);
            }
            for row in contents.rows.iter().filter(|row| row.space == Space::Cb as u8) {
                let n = allocators.iter().position(|known| known.get() == row.allocator.get()).unwrap();
                prop_assert_eq!(row.allocated.get(), model.charged_on_cores(n));
                prop_assert_eq!(row.requested.get(), model.requested_on_cores(n));
            }
        }
        t.close();
        prop_assert_eq!(std::fs::read_dir(fixture.folder.path()).unwrap().count(), 0);
    }
}

/// Polls a reader, and returns what does not depend on the time of the poll.
fn poll(reader: &mut Reader) -> (serde_json::Value, Vec<String>) {
    let mut snapshot = reader.poll();
    // A reader that saw an earlier audit keeps its verdict; a later reader cannot derive it.
    for process in &mut snapshot.processes {
        process.audit.clear();
    }
    let mut listed = reader.state.allocations(0, usize::MAX, reader.state.now()).0;
    for allocation in &mut listed {
        allocation.age_seconds = 0.0;
    }
    let mut listed: Vec<String> = listed.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
    listed.sort();
    let mut processes = serde_json::to_value(&snapshot.processes).unwrap();
    for process in processes.as_array_mut().unwrap() {
        // Each reader has a clock of its own.
        for trace in process["traces"].as_array_mut().into_iter().flatten() {
            trace["captured"].take();
        }
    }
    (processes, listed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The table has the effect of records that a reader missed.
    #[test]
    fn infrequent_polling_matches_continuous(
        steps in steps(), polls in prop::collection::vec(any::<bool>(), 200), flood in 0..200usize,
    ) {
        let fixture = Fixture::new();
        let t = &fixture.tracker;
        let allocators = [fixture.allocator(1), fixture.allocator(2), fixture.allocator(3)];
        let sets = [
            t.define_cores(&[CoreRange::new((0, 0), (7, 7))]).unwrap(),
            t.define_cores(&[CoreRange::new((1, 1), (2, 3))]).unwrap(),
        ];
        let (mut continuous, mut infrequent) = (Reader::new(fixture.folder.path()), Reader::new(fixture.folder.path()));
        poll(&mut continuous);
        for (n, &(which, step)) in steps.iter().enumerate() {
            let _ = report(t, allocators[which], sets, step);
            if n == flood {
                // More than any ring holds.
                for round in 0..9000 {
                    let _ = report(t, allocators[0], sets, Step::Alloc(Space::L1, 1 << 19, 64 + round % 2));
                    let _ = report(t, allocators[0], sets, Step::Free(Space::L1, 1 << 19));
                }
            }
            poll(&mut continuous);
            if polls[n] && n % 7 == 0 {
                poll(&mut infrequent);
            }
        }
        let last = poll(&mut Reader::new(fixture.folder.path()));
        prop_assert_eq!(&poll(&mut continuous), &last);
        prop_assert_eq!(&poll(&mut infrequent), &last);
    }
}

/// Rows of a closed allocator are reused. A reader that the ring has overtaken finds none of them.
#[test]
fn overtaken_reader_sees_a_closed_allocator() {
    let fixture = Fixture::new();
    let t = &fixture.tracker;
    let other = fixture.allocator(3);
    let cores = t.define_cores(&[CoreRange::new((0, 0), (7, 7))]).unwrap();
    report(t, other, [cores; 2], Step::Place(1, 0, 64, 0)).unwrap();
    let mut reader = Reader::new(fixture.folder.path());
    poll(&mut reader);
    t.close_allocator(other).unwrap();
    let one = fixture.allocator(1);
    for _ in 0..9000 {
        report(t, one, [cores; 2], Step::Place(1, 1 << 19, 64, 0)).unwrap();
        t.end_program(one, 1).unwrap();
    }
    let found = poll(&mut reader);
    assert_eq!(found, poll(&mut Reader::new(fixture.folder.path())));
    let usage = found.0[0]["usage"].as_array().unwrap();
    assert_eq!(usage.len(), 1, "only the chip of the open allocator: {usage:#?}");
}
