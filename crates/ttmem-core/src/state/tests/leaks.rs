//! Leaks without marks, among buffers that are none: late survivors, and growth between replays of a trace.
//!
//! Each pattern runs on simulated time, with random sizes, lives and phases. `TTMEM_LONG` runs many seeds.

use super::*;
use crate::input::{Free, Mark};
use crate::snapshot::{Leak, LeakBasis, Severity};
use std::collections::BTreeMap;

const MS: u64 = Mono::SECOND / 1000;
/// How long each program runs, in steps of [`Program::step_ms`].
const SECONDS: u64 = 240;

/// Pseudo-random numbers, the same for each seed on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A program that allocates at one line, and at a second one.
struct Program {
    state: State,
    random: Random,
    now: u64,
    step: u64,
    step_ms: u64,
    /// When buffers are freed: by time, then address.
    to_free: BTreeMap<(u64, u64), Space>,
    next: u64,
    bytes: u64,
    /// A number of the pattern: one in so many, or a size.
    n: u64,
    kept: Vec<(u64, Space)>,
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut state = machine();
        register(&mut state, events(1));
        state.apply(Mono(2), events(1), mesh(1, &[0]));
        for line in 1..=3 {
            state.apply(Mono(2), events(1), named_site(line, &format!("line {line}")));
        }
        let kernels =
            Site { text: "kernels".to_owned(), purpose: ttmem_types::Purpose::Kernels, ..Site::default() };
        state.apply(Mono(2), events(1), Input::Site(Box::new(SiteDefinition::Site(4, kernels))));
        let (step_ms, bytes, n) =
            (random.between(20, 200), random.between(1, 64) * 1024, random.between(2, 6));
        let (to_free, kept) = (BTreeMap::new(), Vec::new());
        Self { state, random, now: Mono::SECOND, step: 0, step_ms, to_free, next: 0, bytes, n, kept }
    }

    fn allocate(&mut self, line: u32, space: Space) -> u64 {
        self.next += 1;
        let (address, at) = (self.next * 0x1_0000, Some(Mono(self.now)));
        let extent = Some(Extent { occupied: self.bytes, bytes_per_bank: self.bytes, banks: 1 });
        let buffer =
            Alloc { site: line, at, extent, ..alloc(Scope::Allocator(1), space, address, self.bytes) };
        self.state.apply(Mono(self.now), events(1), Input::Alloc(buffer));
        address
    }

    fn free(&mut self, address: u64, space: Space) {
        let free = Free {
            scope: Scope::Allocator(1),
            space: Some(space),
            id: address,
            program: 0,
            size: None,
            cores: 0,
        };
        self.state.apply(Mono(self.now), events(1), Input::Free(free));
    }

    /// Allocates a buffer that is freed after so many milliseconds.
    fn temporary_in(&mut self, line: u32, space: Space, ms: u64) {
        let address = self.allocate(line, space);
        self.to_free.insert((self.now + ms * MS, address), space);
    }

    fn temporary(&mut self, ms: u64) {
        self.temporary_in(1, Space::Dram, ms);
    }

    /// A buffer that lives for a part of the step.
    fn brief(&mut self) {
        let ms = self.random.between(1, self.step_ms);
        self.temporary(ms);
    }

    fn keep(&mut self) {
        let address = self.allocate(1, Space::Dram);
        self.kept.push((address, Space::Dram));
    }

    /// Frees the oldest buffers that are kept, but so many.
    fn shorten(&mut self, length: usize) {
        let surplus = self.kept.len().saturating_sub(length);
        for (address, space) in self.kept.drain(..surplus).collect::<Vec<_>>() {
            self.free(address, space);
        }
    }

    /// Time passes until the next step. The reader polls twice a second.
    fn wait(&mut self) {
        let end = self.now + self.step_ms * MS;
        while let Some((&(at, address), &space)) = self.to_free.first_key_value().filter(|it| it.0.0 <= end) {
            self.to_free.pop_first();
            self.now = self.now.max(at);
            self.free(address, space);
        }
        if end / (500 * MS) > (end - self.step_ms * MS) / (500 * MS) {
            self.state.tick(Mono(end));
        }
        self.now = end;
    }

    fn run(&mut self, step: impl Fn(&mut Self)) {
        while self.now < SECONDS * Mono::SECOND {
            self.step += 1;
            step(self);
            self.wait();
        }
    }

    fn leaks(&self) -> Vec<Leak> {
        self.state.snapshot(Timestamp::UNIX_EPOCH, &Detail { leaks: true, ..Detail::NONE }).leaks.unwrap()
    }
}

type Pattern = (&'static str, fn(&mut Program));

/// What leaks. Each function is one step.
const PLANTED: [Pattern; 20] = [
    ("one of several that are freed", |p| {
        (0..p.n).for_each(|_| p.brief());
        p.keep();
    }),
    ("every second", |p| if p.step % 2 == 0 { p.keep() } else { p.brief() }),
    ("every fourth", |p| if p.step % 4 == 0 { p.keep() } else { p.brief() }),
    ("every so many", |p| if p.step % p.n == 0 { p.keep() } else { p.brief() }),
    ("at random", |p| if p.random.one_in(p.n) { p.keep() } else { p.brief() }),
    ("one in twenty", |p| if p.random.one_in(20) { p.keep() } else { p.brief() }),
    ("two sites", |p| {
        for line in [1, 2] {
            p.temporary_in(line, Space::Dram, 5);
            if p.step % 3 == u64::from(line) {
                p.allocate(line, Space::Dram);
            }
        }
    }),
    ("in L1", |p| {
        p.temporary_in(1, Space::L1, 7);
        if p.step % 3 == 0 {
            p.allocate(1, Space::L1);
        }
    }),
    ("in DRAM and L1", |p| {
        for space in [Space::Dram, Space::L1] {
            p.temporary_in(1, space, 9);
            p.allocate(1, space);
        }
    }),
    ("cycles that are never collected", |p| {
        p.brief();
        if p.step % p.n == 0 {
            p.keep();
        }
    }),
    ("kept tracebacks of rare failures", |p| {
        p.brief();
        if p.random.one_in(30) {
            p.keep();
        }
    }),
    ("dictionary with growing keys", |p| {
        p.brief();
        p.brief();
        if p.random.one_in(2) {
            p.keep();
        }
    }),
    ("cache without a limit, with hits", |p| {
        p.brief();
        if p.random.below(p.step) < p.step / 4 + 2 {
            p.keep();
        }
        p.brief();
        p.brief();
    }),
    ("generators that never finish", |p| {
        p.temporary(p.step_ms * 2);
        if p.step % 5 == 0 {
            p.keep();
        }
    }),
    ("beside weights", |p| {
        if p.step == 1 {
            (0..24).for_each(|_| p.keep());
        }
        p.brief();
        if p.step % 3 == 0 {
            p.keep();
        }
    }),
    ("beside a ring", |p| {
        p.temporary(p.step_ms * 4);
        if p.step % 4 == 0 {
            p.allocate(1, Space::Dram);
        }
    }),
    ("after half a minute", |p| {
        p.brief();
        if p.now > 30 * Mono::SECOND && p.step % 2 == 0 {
            p.keep();
        }
    }),
    ("after warm-up was freed", |p| {
        p.brief();
        match p.now / Mono::SECOND {
            0..15 if p.step % 8 == 0 => p.keep(),
            15..16 => p.shorten(0),
            16.. if p.step % 2 == 0 => p.keep(),
            _ => {}
        }
    }),
    ("in bursts", |p| {
        p.brief();
        if (p.now / Mono::SECOND).is_multiple_of(15) {
            p.keep();
        }
    }),
    ("with lives of all lengths", |p| {
        let ms = 1 << p.random.below(9);
        p.temporary(ms);
        if p.step % p.n == 0 {
            p.keep();
        }
    }),
];

/// What does not leak, however p allocates.
const INNOCENT: [Pattern; 20] = [
    ("weights, loaded for minutes", |p| {
        p.allocate(1, Space::Dram);
        p.temporary_in(2, Space::Dram, 3);
    }),
    ("weights when they are first used", |p| {
        if p.step <= 10 {
            p.keep();
        }
        p.brief();
    }),
    ("weights at step ten", |p| {
        if p.step == 10 {
            (0..12).for_each(|_| p.keep());
        }
        p.brief();
    }),
    ("KV cache in place", |p| {
        if p.step == 1 {
            (0..12).for_each(|_| p.keep());
        }
        p.temporary_in(2, Space::Dram, 4);
    }),
    ("KV cache that is replaced by a larger one", |p| {
        p.bytes += 32;
        p.keep();
        p.shorten(1);
    }),
    ("KV cache of a request", |p| {
        let length = 20 + p.n * 7;
        p.keep();
        if p.step % length == 0 {
            p.shorten(0);
        }
    }),
    ("program cache", |p| {
        p.temporary_in(4, Space::Dram, 3);
        p.allocate(4, Space::Dram);
    }),
    ("program cache of three shapes", |p| {
        if p.step < 4 {
            p.keep();
        }
        p.brief();
    }),
    ("ring of four", |p| {
        p.keep();
        p.shorten(4);
    }),
    ("ring of many", |p| {
        p.keep();
        p.shorten(16 * p.n as usize);
    }),
    ("bounded LRU", |p| {
        p.keep();
        if p.kept.len() > 10 {
            let oldest = p.random.below(5) as usize;
            let (address, space) = p.kept.remove(oldest);
            p.free(address, space);
        }
    }),
    ("bounded LRU with a part that stays", |p| {
        if p.step <= 40 {
            p.keep();
        }
        p.temporary(p.step_ms * 3);
    }),
    ("double buffering", |p| {
        p.keep();
        p.shorten(2);
    }),
    ("cycles that are collected", |p| {
        p.keep();
        if p.random.one_in(40) {
            p.shorten(0);
        }
    }),
    ("cycles that are collected at times, beside brief buffers", |p| {
        p.brief();
        if p.step % 3 == 0 {
            p.keep();
        }
        if (p.now / Mono::SECOND).is_multiple_of(23) {
            p.shorten(0);
        }
    }),
    ("checkpoint that is freed", |p| {
        p.brief();
        let at = p.now / Mono::SECOND % 40;
        if at == 20 && p.kept.is_empty() {
            (0..8).for_each(|_| p.keep());
        } else if at == 0 {
            p.shorten(0);
        }
    }),
    ("warm-up that ends", |p| {
        p.brief();
        if p.now < 60 * Mono::SECOND && p.step % 4 == 0 {
            p.keep();
        }
    }),
    ("tensors that move between spaces", |p| {
        p.temporary_in(1, Space::Dram, 3);
        p.temporary_in(1, Space::L1, p.step_ms * p.n);
    }),
    ("lives of all lengths", |p| {
        let ms = 1 << p.random.below(14);
        p.temporary(ms);
    }),
    ("requests of all lengths", |p| {
        p.keep();
        if p.random.one_in(25) {
            p.shorten(0);
        }
        p.brief();
    }),
];

fn seeds() -> std::ops::RangeInclusive<u64> {
    let last = if std::env::var_os("TTMEM_LONG").is_some() { 100 } else { 3 };
    println!("seeds 1 to {last}");
    1..=last
}

#[test]
fn late_survivors_that_are_planted_are_found() {
    for seed in seeds() {
        for (what, step) in PLANTED {
            let mut program = Program::new(seed);
            program.run(step);
            let leaks = program.leaks();
            let expected = match what {
                "two sites" | "in DRAM and L1" => 2,
                _ => 1,
            };
            assert_eq!(leaks.len(), expected, "{what}, seed {seed}: {leaks:#?}");
            for leak in &leaks {
                assert_eq!(
                    (leak.basis, leak.mark.as_deref(), leak.trace),
                    (LeakBasis::LateSurvivors, None, None)
                );
                assert!(
                    leak.grown_count >= 3 && leak.late_after_ns.is_some(),
                    "{what}, seed {seed}: {leak:#?}"
                );
            }
        }
    }
}

#[test]
fn buffers_that_are_freed_in_time_are_no_leaks() {
    for seed in seeds() {
        for (what, step) in INNOCENT {
            let mut program = Program::new(seed);
            program.run(step);
            assert_eq!(program.leaks(), [], "{what}, seed {seed}");
        }
    }
}

#[test]
fn late_survivors_are_a_finding_without_marks() {
    let mut program = Program::new(1);
    (program.step_ms, program.bytes) = (100, 4096);
    program.run(|it| {
        it.temporary(8);
        if it.step % 50 == 0 {
            it.keep();
        }
    });
    let at = Timestamp::from_second(1_000_000).unwrap();
    let found = |it: &Program| {
        let findings = it.state.snapshot(at, &Detail::NONE).findings;
        findings.into_iter().filter(|it| it.kind == FindingKind::Leak).collect::<Vec<_>>()
    };
    let findings = found(&program);
    assert_eq!((findings.len(), findings[0].severity), (1, Severity::Warning), "{findings:#?}");
    let text = &findings[0].text;
    assert!(
        text.contains("leak of DRAM on device 0: line 1 kept ")
            && text.ends_with(" s, by age, without marks"),
        "{text}"
    );
    let leak = &program.leaks()[0];
    assert_eq!(leak.grown_bytes, leak.grown_count * 4096);
    let median = leak.late_after_ns.unwrap() / 10;
    assert!((7 * MS..9 * MS).contains(&median), "{median}");
    // A state that is restored finds the same.
    let before = program.leaks();
    program.state.restore();
    assert_eq!(program.leaks(), before);
    // With marks, these decide.
    for number in 0..10 {
        let mark = Mark { name: 3, number: None, at: Mono(program.now + number) };
        program.state.apply(Mono(program.now + number), events(1), Input::Mark(mark));
    }
    assert_eq!((found(&program), program.leaks()), (vec![], vec![]));
}

#[test]
fn replays_of_a_trace_are_marks() {
    let mut program = Program::new(1);
    let trace = |replays| {
        Input::Trace(Trace { scope: Scope::Allocator(1), id: 7, dispatches: 4, replays, captured: Mono(5) })
    };
    for replays in 0..=20 {
        // The reader reads many at the same time, and sometimes one again.
        program.state.apply(Mono(program.now), events(1), trace(replays));
        program.state.apply(Mono(program.now), events(1), trace(replays));
        program.allocate(1, Space::Dram);
        let brief = program.allocate(2, Space::Dram);
        program.free(brief, Space::Dram);
        if replays % 4 == 0 {
            program.allocate(3, Space::L1);
        }
    }
    let leaks = program.leaks();
    let found: Vec<_> =
        leaks.iter().map(|it| (it.site_name.as_deref(), it.basis, it.trace, it.intervals)).collect();
    let by_replays = |line| (Some(line), LeakBasis::Replays, Some(7), 18);
    assert_eq!(found, [by_replays("line 1"), by_replays("line 3")]);
    let findings = shot(&program.state).findings;
    assert!(findings.iter().any(|it| it.text.ends_with("since 18 replays of trace 7 ago")), "{findings:#?}");
    program.state.apply(Mono(program.now), events(1), Input::TraceEnded(Scope::Allocator(1), 7));
    assert_eq!(program.leaks(), []);
}
