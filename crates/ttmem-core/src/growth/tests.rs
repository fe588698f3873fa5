//! Leaks that are planted, and growth that is none.

use super::*;
use proptest::prelude::*;

const STEPS: u64 = 40;

fn site(number: u32) -> SiteInSpace {
    (Vec::new(), Space::Dram, number)
}

fn held(count: u64) -> Held {
    Held { count, requested: count * 1000, allocated: count * 1024 }
}

/// What sites have at a mark, with at least one buffer each.
fn sites(counts: &[(u32, u64)]) -> BTreeMap<SiteInSpace, Held> {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    some.map(|&(number, count)| (site(number), held(count))).collect()
}

/// Follows one site, of which `count` says how many buffers it has after each step.
fn follow(count: impl Fn(u64) -> u64) -> Growth {
    let mut growth = Growth::default();
    for step in 1..=STEPS {
        growth.add(Phase::Mark(1), Mono(step), &sites(&[(7, count(step))]));
    }
    growth
}

/// Pseudo-random numbers, the same in every run.
fn random(step: u64, end: u64) -> u64 {
    (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % end
}

#[test]
fn planted_leaks_are_found() {
    type Count = fn(u64) -> u64;
    let planted: [(&str, Count); 20] = [
        ("one in every step", |step| step),
        ("seven in every step", |step| step * 7),
        ("every second step", |step| step / 2),
        ("every third step", |step| step / 3),
        ("every fourth step", |step| step / 4),
        ("every fifth step", |step| step / 5),
        ("beside weights", |step| 100 + step),
        ("beside a ring of four", |step| step.min(4) + step / 2),
        ("from the tenth step on", |step| step.saturating_sub(10)),
        ("from the twentieth step on", |step| step.saturating_sub(20)),
        ("two at once, every fourth step", |step| step / 4 * 2),
        ("more and more", |step| step * step),
        ("three of every four steps", |step| step - step / 4),
        ("half of the steps, at random", |step| (1..=step).filter(|it| random(*it, 2) == 0).count() as u64),
        ("a third of the steps, at random", |step| {
            (1..=step).filter(|it| random(*it, 3) == 0).count() as u64
        }),
        ("in bursts of three", |step| step / 6 * 3 + (step % 6).min(3)),
        ("after the caches were emptied", |step| if step < 6 { 10 } else { step - 6 }),
        ("after a long request", |step| if step < 12 { step } else { step - 12 }),
        ("not in the first steps", |step| step.saturating_sub(4) / 2),
        ("one in every step, of thousands", |step| 5000 + step),
    ];
    for (what, count) in planted {
        let growth = follow(count);
        let leaks = growth.leaks();
        assert_eq!(leaks.len(), 1, "{what}: {growth:?}");
        assert_eq!((leaks[0].site, leaks[0].phase), (&site(7), Phase::Mark(1)), "{what}");
        assert_eq!(leaks[0].held, held(count(STEPS)), "{what}");
        let before = if leaks[0].since.0 == 0 { 0 } else { count(leaks[0].since.0) };
        assert_eq!(leaks[0].more, held(count(STEPS) - before), "{what}");
    }
}

#[test]
fn innocent_growth_is_no_leak() {
    type Count = fn(u64) -> u64;
    let innocent: [(&str, Count); 20] = [
        ("nothing", |_| 0),
        ("weights", |_| 48),
        ("weights that are made when they are first used", |step| (step * 6).min(36)),
        ("a ring of four", |step| step.min(4)),
        ("a ring of sixteen", |step| step.min(16)),
        ("a cache of ten, filled every second step", |step| (step / 2).min(10)),
        ("two buffers in turn", |step| 1 + step % 2),
        ("a cache that is emptied every ten steps", |step| step % 10),
        ("a cache that is emptied every thirteen steps", |step| step % 13),
        ("shapes in turn", |step| [3, 5, 4][(step % 3) as usize]),
        ("at random", |step| random(step, 6)),
        ("collected from time to time", |step| step % 4 + random(step / 4, 3)),
        ("only in the fifth step", |step| u64::from(step == 5)),
        ("from the twentieth step on", |step| u64::from(step >= 20) * 8),
        ("less and less", |step| 100 - step),
        ("two phases", |step| if step < 20 { 4 } else { 9 }),
        ("three phases", |step| [2, 6, 7, 7][(step / 12) as usize]),
        ("requests of growing length", |step| {
            [step % 5, step % 8, step % 10, step % 12][(step / 10 % 4) as usize]
        }),
        ("grows twice", |step| 4 + u64::from(step > 9) + u64::from(step > 30)),
        ("grows until the half", |step| step.min(STEPS / 2)),
    ];
    for (what, count) in innocent {
        let growth = follow(count);
        assert!(growth.is_followed() && growth.marks() == STEPS as u32);
        assert_eq!(growth.leaks(), [], "{what}");
    }
}

#[test]
fn larger_tensors_are_no_leak() {
    let mut growth = Growth::default();
    for step in 1..=STEPS {
        let larger = Held { count: 2, requested: step * 4096, allocated: step * 4096 };
        growth.add(Phase::Mark(1), Mono(step), &BTreeMap::from([(site(7), larger)]));
    }
    assert_eq!(growth.leaks(), []);
}

#[test]
fn rarer_marks_decide() {
    let (token, request) = (Phase::Mark(1), Phase::Mark(2));
    let mut growth = Growth::default();
    let mut at = 0;
    for number in 1..=12 {
        // The cache of a request grows with each token, and ends with it. Another site leaks with each request.
        for cached in 1..=30 {
            at += 1;
            growth.add(token, Mono(at), &sites(&[(7, cached), (8, number)]));
        }
        at += 1;
        growth.add(request, Mono(at), &sites(&[(8, number)]));
    }
    let leaks = growth.leaks();
    assert_eq!(leaks.iter().map(|leak| (leak.site.2, leak.phase)).collect::<Vec<_>>(), [(8, request)]);
}

#[test]
fn rarer_marks_that_have_ended_do_not_decide() {
    let (warm_up, step) = (Phase::Mark(1), Phase::Mark(2));
    let mut growth = Growth::default();
    for at in 1..=6 {
        growth.add(warm_up, Mono(at), &BTreeMap::new());
    }
    for at in 7..=40 {
        growth.add(step, Mono(at), &sites(&[(7, at)]));
    }
    assert_eq!(growth.leaks().iter().map(|leak| leak.phase).collect::<Vec<_>>(), [step]);
}

#[test]
fn rounds_count_only_without_marks_and_replays() {
    let replay = Phase::Replay(Scope::Allocator(1), 4);
    let mut growth = Growth::default();
    let mut phases = |phase, times: std::ops::RangeInclusive<u64>| {
        for at in times {
            growth.add(phase, Mono(at), &sites(&[(7, at)]));
        }
        growth.leaks().iter().map(|leak| leak.phase).collect::<Vec<_>>()
    };
    assert_eq!(phases(Phase::Round, 1..=20), [Phase::Round]);
    assert_eq!(phases(replay, 1..=9), [Phase::Round], "there are too few");
    assert_eq!(phases(replay, 10..=10), [replay]);
    growth.forget_trace(Scope::Allocator(1), 4);
    assert_eq!(growth.leaks().iter().map(|leak| leak.phase).collect::<Vec<_>>(), [Phase::Round]);
    assert_eq!((growth.marks(), growth.is_followed()), (0, false));
}

#[test]
fn largest_leaks_are_first_and_few_marks_are_none() {
    let mut growth = Growth::default();
    for step in 1..=STEPS {
        assert_eq!(growth.leaks(), [], "{step}");
        growth.add(Phase::Mark(1), Mono(step), &sites(&[(7, step), (8, 3 * step), (9, 5)]));
        if step >= u64::from(WARM + LEAST_INTERVALS) {
            let order: Vec<u32> = growth.leaks().iter().map(|leak| leak.site.2).collect();
            assert_eq!(order, [8, 7]);
            return;
        }
    }
}

#[test]
fn marks_are_bounded_and_never_taken_twice() {
    let mut growth = Growth::default();
    for name in 1..=MAX_SERIES as u32 {
        assert!(growth.wants(Phase::Mark(name), Mono(1)));
        growth.add(Phase::Mark(name), Mono(1), &BTreeMap::new());
    }
    let one = Phase::Mark(1);
    assert!(!growth.wants(Phase::Mark(99), Mono(2)) && !growth.wants(one, Mono(1)));
    assert!(growth.wants(one, Mono(2)) && growth.wants(Phase::Round, Mono(1)));
    for step in 0..1000u64 {
        let at = Mono(2 + step * Mono::SECOND / 1000);
        if growth.wants(one, at) {
            growth.add(one, at, &sites(&[(step as u32 + 1, 1)]));
        }
    }
    // 256 at once, and then 20 a second.
    assert_eq!(growth.marks(), 256 + (1000 - 256) / 50);
    let many: Vec<(u32, u64)> = (0..5000).map(|number| (number, 1)).collect();
    growth.add(one, Mono(Mono::SECOND * 9), &sites(&many));
    assert!(growth.series[&one].sites.len() <= MAX_SITES);
}

proptest! {
    /// What a keyframe stores is all there is.
    #[test]
    fn restored_growth_goes_on(counts in prop::collection::vec(0u64..20, 1..60), cut in 0usize..60) {
        let (mut all, mut restored) = (Growth::default(), Growth::default());
        for (step, &count) in (1..).zip(&counts) {
            let now = sites(&[(7, count), (8, step)]);
            all.add(Phase::Mark(1), Mono(step), &now);
            restored.add(Phase::Mark(1), Mono(step), &now);
            if step as usize == cut {
                let text = serde_json::to_string(&restored).unwrap();
                restored = serde_json::from_str(&text).unwrap();
            }
        }
        prop_assert_eq!(all.leaks(), restored.leaks());
    }
}
