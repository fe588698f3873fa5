//! Leaks that are planted, and growth that is none.

use super::*;
use proptest::prelude::*;

const STEPS: u64 = 40;

fn site(number: u32) -> SiteInSpace {
    (Vec::new(), Space::Dram, number)
}

fn mark(name: u32, at: u64) -> Mark {
    Mark { name, number: Some(at), at: Mono(at) }
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
        growth.add(&mark(1, step), &sites(&[(7, count(step))]));
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
        assert_eq!((leaks[0].site, leaks[0].mark), (&site(7), 1), "{what}");
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
        growth.add(&mark(1, step), &BTreeMap::from([(site(7), larger)]));
    }
    assert_eq!(growth.leaks(), []);
}

#[test]
fn rarer_marks_decide() {
    let (token, request) = (1, 2);
    let mut growth = Growth::default();
    let mut at = 0;
    for number in 1..=12 {
        // The cache of a request grows with each token, and ends with it. Another site leaks with each request.
        for cached in 1..=30 {
            at += 1;
            growth.add(&mark(token, at), &sites(&[(7, cached), (8, number)]));
        }
        at += 1;
        growth.add(&mark(request, at), &sites(&[(8, number)]));
    }
    let leaks = growth.leaks();
    assert_eq!(leaks.iter().map(|leak| (leak.site.2, leak.mark)).collect::<Vec<_>>(), [(8, request)]);
}

#[test]
fn largest_leaks_are_first_and_few_marks_are_none() {
    let mut growth = Growth::default();
    for step in 1..=STEPS {
        assert_eq!(growth.leaks(), [], "{step}");
        growth.add(&mark(1, step), &sites(&[(7, step), (8, 3 * step), (9, 5)]));
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
        assert!(growth.wants(&mark(name, 1)));
        growth.add(&mark(name, 1), &BTreeMap::new());
    }
    assert!(!growth.wants(&mark(99, 2)) && !growth.wants(&mark(1, 1)) && growth.wants(&mark(1, 2)));
    for step in 0..1000u64 {
        let at = 2 + step * Mono::SECOND / 1000;
        if growth.wants(&mark(1, at)) {
            growth.add(&mark(1, at), &sites(&[(step as u32 + 1, 1)]));
        }
    }
    // 256 at once, and then 20 a second.
    assert_eq!(growth.marks(), 256 + (1000 - 256) / 50);
    let many: Vec<(u32, u64)> = (0..5000).map(|number| (number, 1)).collect();
    growth.add(&mark(1, Mono::SECOND * 9), &sites(&many));
    assert!(growth.series[&1].sites.len() <= MAX_SITES);
}

proptest! {
    /// What a keyframe stores is all there is.
    #[test]
    fn restored_growth_goes_on(counts in prop::collection::vec(0u64..20, 1..60), cut in 0usize..60) {
        let (mut all, mut restored) = (Growth::default(), Growth::default());
        for (step, &count) in (1..).zip(&counts) {
            let now = sites(&[(7, count), (8, step)]);
            all.add(&mark(1, step), &now);
            restored.add(&mark(1, step), &now);
            if step as usize == cut {
                let text = serde_json::to_string(&restored).unwrap();
                restored = serde_json::from_str(&text).unwrap();
            }
        }
        prop_assert_eq!(all.leaks(), restored.leaks());
    }
}
