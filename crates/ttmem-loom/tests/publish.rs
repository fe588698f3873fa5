//! Checks every order in which another processor may see the writer's stores.
//!
//! The model is a small segment (one slot, a ring of two records, one row), the writer's real functions, and a reader that copies
//! words in any order. The functions are the source file of `ttmem-client` itself, compiled here with loom's atomics.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../ttmem-client/src/publish.rs"]
mod publish;

/// Replaces the processor's atomics, which `ttmem-client` has under this name.
mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

use atomic::{AtomicU64, Ordering, fence};
use loom::sync::Arc;
use publish::{begin, clear, fence_record, finish, put, replace};

const RING: u64 = 2;
/// Words of a line: sequence and value.
const N: usize = 2;

struct Segment {
    begun: AtomicU64,
    applied: AtomicU64,
    ring: [[AtomicU64; N]; RING as usize],
    slot: [AtomicU64; N],
    row: [[AtomicU64; N]; 2],
}

fn line() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

/// The events: a value is stored (`Some`) or removed.
const EVENTS: [Option<u64>; 3] = [Some(10), None, Some(30)];

/// Returns the value after so many events, and how many values were stored so far.
fn model(sequence: u64) -> (Option<u64>, u64) {
    let done = &EVENTS[..sequence as usize];
    (done.last().copied().flatten(), done.iter().flatten().count() as u64)
}

impl Segment {
    fn new() -> Self {
        let (begun, applied) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { begun, applied, ring: [line(), line()], slot: line(), row: [line(), line()] }
    }

    /// Writes one event, up to the given number of steps: a writer may be killed after any of them.
    fn write(&self, sequence: u64, steps: usize) {
        let event = EVENTS[sequence as usize - 1];
        let held = model(sequence).1;
        let all: [&dyn Fn(); 5] = [
            &|| begin(&self.begun, sequence),
            &|| put(&self.ring[(sequence % RING) as usize], &[sequence, event.unwrap_or(0)]),
            &|| {
                fence_record();
                match event {
                    Some(value) => put(&self.slot, &[sequence, value]),
                    None => clear(&self.slot),
                }
            },
            &|| put(&self.row[(sequence % 2) as usize], &[sequence, held]),
            &|| finish(&self.applied, sequence),
        ];
        for step in &all[..steps] {
            step();
        }
    }

    fn copy(line: &[AtomicU64; N], backwards: bool) -> [u64; N] {
        let load = |n: usize| line[n].load(Ordering::Relaxed);
        if backwards {
            let second = load(1);
            [load(0), second]
        } else {
            let first = load(0);
            [first, load(1)]
        }
    }

    /// Reads as `SegmentFile::copy` does; `None` if the ring was overtaken.
    fn read(&self, backwards: bool) -> Option<(u64, Option<u64>)> {
        let before = self.applied.load(Ordering::Acquire);
        let mut slot = Self::copy(&self.slot, backwards);
        fence(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        // The last event is finished, or its record is complete.
        let whole = self.applied.load(Ordering::Acquire) >= begun
            || self.ring[(begun % RING) as usize][0].load(Ordering::Acquire) == begun;
        let last = if whole { begun } else { begun - 1 };
        if last - before >= RING {
            return None;
        }
        let mut records = Vec::new();
        for sequence in before + 1..=last {
            records.push((sequence, Self::copy(&self.ring[(sequence % RING) as usize], backwards)));
        }
        fence(Ordering::Acquire);
        if self.begun.load(Ordering::Acquire) > before + RING {
            return None;
        }
        for (sequence, record) in records {
            assert_eq!(record[0], sequence, "a finished or complete record is missing");
            slot = if EVENTS[sequence as usize - 1].is_some() { record } else { [0, 0] };
        }
        Some((last, (slot[0] != 0).then_some(slot[1])))
    }
}

fn try_all(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// Runs three events against one reader.
fn run(backwards: bool, first: u64, last_steps: usize) {
    try_all(move || {
        let segment = Arc::new(Segment::new());
        for sequence in 1..first {
            segment.write(sequence, 5);
        }
        let writer = {
            let segment = Arc::clone(&segment);
            loom::thread::spawn(move || {
                for sequence in first..3 {
                    segment.write(sequence, 5);
                }
                segment.write(3, last_steps);
            })
        };
        if let Some((sequence, held)) = segment.read(backwards) {
            assert_eq!(held, model(sequence).0, "as of event {sequence}");
        }
        writer.join().unwrap();
        // A reader after the writer's end finds the interrupted event either complete or not begun.
        let (sequence, held) = segment.read(backwards).expect("the writer has ended");
        assert!(sequence == 3 || (sequence == 2 && last_steps < 2), "{sequence}");
        assert_eq!(held, model(sequence).0);
        let rows = [0, 1].map(|n| Segment::copy(&segment.row[n], backwards));
        let newest = rows.into_iter().max().unwrap();
        assert_eq!(newest[1], model(newest[0]).1, "the newer copy of a row is complete");
    });
}

#[test]
fn reader_sees_the_state_after_some_event() {
    for backwards in [false, true] {
        for first in [1, 2, 3] {
            run(backwards, first, 5);
        }
    }
}

#[test]
fn killed_writer_leaves_a_complete_event_or_none() {
    for steps in 0..=5 {
        run(false, 3, steps);
        run(true, 3, steps);
    }
}

#[test]
fn same_sequence_read_twice_has_its_own_words() {
    for backwards in [false, true] {
        try_all(move || {
            let place = Arc::new(line());
            replace(&place, &[1, 10]);
            let writer = {
                let place = Arc::clone(&place);
                loom::thread::spawn(move || replace(&place, &[2, 20]))
            };
            let first = Segment::copy(&place, backwards);
            fence(Ordering::Acquire);
            let second = Segment::copy(&place, backwards);
            if first == second && first[0] != 0 {
                assert_eq!(first[1], first[0] * 10);
            }
            writer.join().unwrap();
            assert_eq!(Segment::copy(&place, backwards), [2, 20]);
        });
    }
}
