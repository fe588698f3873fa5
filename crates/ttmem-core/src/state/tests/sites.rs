//! Usage by call site, now and at the peak, against a naive model.

use super::*;
use crate::snapshot::SiteUsage;
use std::collections::BTreeMap;

const BANKS: u16 = 12;

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        at: u64,
        site: u32,
        bytes: u64,
    },
    Free {
        at: u64,
    },
    /// Everything is freed at once.
    Clear,
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u64..20, 0u32..6, 1u64..50).prop_map(|(at, site, bytes)| Step::Alloc { at, site, bytes }),
        8 => (0u64..20).prop_map(|at| Step::Free { at }),
        1 => Just(Step::Clear),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 1..120)
}

type BySite = BTreeMap<u32, (u64, u64)>;

/// Number and bytes of buffers by site.
fn by_site(live: &BTreeMap<u64, (u32, u64)>) -> BySite {
    let mut sums = BySite::new();
    for &(site, bytes) in live.values() {
        let sum = sums.entry(site).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes * u64::from(BANKS));
    }
    sums
}

fn site_of(usage: &SiteUsage) -> u32 {
    usage.site_name.as_deref().map_or(0, |name| name.trim_start_matches("line ").parse().unwrap())
}

fn tracked() -> State {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, &[0]));
    for site in 1..6 {
        state.apply(Mono(2), events(1), named_site(site, &format!("line {site}")));
    }
    state
}

fn usages(state: &State) -> Vec<SiteUsage> {
    let detail = Detail { sites: true, ..Detail::NONE };
    state.snapshot(Timestamp::UNIX_EPOCH, &detail).sites.unwrap()
}

proptest! {
    #[test]
    fn sites_are_those_of_a_model_now_and_at_the_peak(steps in steps()) {
        let mut state = tracked();
        let mut live: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        let (mut most, mut at_peak) = (0, BySite::new());
        for (n, step) in steps.iter().enumerate() {
            let now = Mono(n as u64 + 3);
            match *step {
                Step::Alloc { at, site, bytes } if !live.contains_key(&at) => {
                    let Input::Alloc(held) = banked(1, at * 100, bytes) else { unreachable!() };
                    state.apply(now, events(1), Input::Alloc(Alloc { site, ..held }));
                    live.insert(at, (site, bytes));
                }
                Step::Free { at } if live.contains_key(&at) => {
                    let scope = Scope::Allocator(1);
                    state.apply(now, events(1), free(scope, Some(Space::Dram), at * 100));
                    live.remove(&at);
                }
                Step::Clear => {
                    state.apply(now, events(1), Input::AllocatorCleared(1));
                    live.clear();
                }
                Step::Restore => state.restore(),
                _ => {}
            }
            let bytes: u64 = live.values().map(|(_, bytes)| bytes).sum();
            if bytes > most {
                (most, at_peak) = (bytes, by_site(&live));
            }
        }
        let found = usages(&state);
        let part = |of: fn(&SiteUsage) -> (u64, u64)| -> BySite {
            found.iter().map(|it| (site_of(it), of(it))).filter(|(_, sum)| sum.0 > 0).collect()
        };
        prop_assert_eq!(part(|it| (it.count, it.used_bytes)), by_site(&live));
        prop_assert_eq!(part(|it| (it.peak_count.unwrap(), it.peak_bytes.unwrap())), at_peak);
    }
}

#[test]
fn sites_of_a_peak_that_was_missed_are_unknown() {
    let mut state = tracked();
    state.apply(Mono(3), events(1), banked(1, 1000, 100));
    assert_eq!(usages(&state)[0].peak_bytes, Some(1200));
    let peak = |bytes| Input::Peak { scope: Scope::Allocator(1), space: Space::Dram, bytes };
    state.apply(Mono(4), events(1), peak(Some(5000)));
    assert_eq!(usages(&state)[0].peak_bytes, None, "a reader that came later knows only its size");
    state.apply(Mono(5), events(1), banked(1, 2000, 900));
    assert_eq!(usages(&state)[0].peak_bytes, Some(12_000), "a later peak was followed");
    state.apply(Mono(6), events(1), free(Scope::Allocator(1), Some(Space::Dram), 2000));
    state.apply(Mono(7), events(1), peak(None));
    assert_eq!(usages(&state)[0].peak_bytes, Some(1200), "peaks were reset");
}
