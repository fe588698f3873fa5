//! Buffers by stack, live, at the peak and since the last mark, against a naive model.

use super::*;
use crate::input::{Frame, Holding, Mark};
use crate::snapshot::{Flame, FlameGap, FlameMoment, FlamePool};
use std::collections::BTreeMap;

const BANKS: u64 = 12;

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
    Mark,
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u64..20, 0u32..6, 1u64..50).prop_map(|(at, site, bytes)| Step::Alloc { at, site, bytes }),
        8 => (0u64..20).prop_map(|at| Step::Free { at }),
        1 => Just(Step::Clear),
        2 => Just(Step::Mark),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 1..120)
}

/// Number and bytes per device of the buffers of each stack.
type ByStack = BTreeMap<String, (u64, u64)>;

/// Buffers of the model: address, site, bytes on all banks.
type Live = BTreeMap<u64, (u32, u64)>;

fn by_stack(live: &Live, is_counted: impl Fn(u64) -> bool) -> ByStack {
    let mut sums = ByStack::new();
    for (_, &(site, bytes)) in live.iter().filter(|(at, _)| is_counted(**at)) {
        let name = if site == 0 { "unknown".to_owned() } else { format!("line {site}") };
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    sums
}

fn flame(state: &State, moment: FlameMoment) -> Flame {
    let detail = Detail { flame: Some(moment), ..Detail::NONE };
    state.snapshot(Timestamp::UNIX_EPOCH, &detail).flame.unwrap()
}

/// The stacks of all pools with the names of their frames.
fn stacks(flame: &Flame) -> ByStack {
    let mut sums = ByStack::new();
    for stack in flame.pools.iter().flat_map(|pool| &pool.stacks) {
        let names = stack.frames.iter().map(|&frame| flame.frames[frame as usize].name.as_str());
        let sum = sums.entry(names.collect::<Vec<_>>().join(";")).or_default();
        *sum = (sum.0 + stack.count.unwrap(), sum.1 + stack.bytes);
    }
    sums
}

fn sum_of(pool: &FlamePool) -> u64 {
    pool.stacks.iter().map(|stack| stack.bytes).sum()
}

fn tracked(chips: &[u32]) -> State {
    let mut state = machine();
    register(&mut state, events(1));
    state.apply(Mono(2), events(1), mesh(1, chips));
    for site in 1..6 {
        state.apply(Mono(2), events(1), named_site(site, &format!("line {site}")));
    }
    state
}

/// An allocation at a time that the process recorded.
fn allocated(at: u64, site: u32, bytes: u64, when: Mono) -> Input {
    let Input::Alloc(held) = banked(1, at * 100, bytes) else { unreachable!() };
    Input::Alloc(Alloc { site, at: Some(when), ..held })
}

fn mark(at: Mono) -> Input {
    Input::Mark(Mark { name: 0, number: None, at })
}

proptest! {
    #[test]
    fn flames_are_those_of_a_model_at_every_moment(steps in steps()) {
        let mut state = tracked(&[0, 1]);
        let mut live = Live::new();
        let (mut most, mut at_peak) = (0, ByStack::new());
        let mut before_mark: Option<Vec<u64>> = None;
        for (n, step) in steps.iter().enumerate() {
            let now = Mono(n as u64 + 3);
            match *step {
                Step::Alloc { at, site, bytes } if !live.contains_key(&at) => {
                    state.apply(now, events(1), allocated(at, site, bytes, now));
                    live.insert(at, (site, bytes * BANKS));
                }
                Step::Free { at } if live.contains_key(&at) => {
                    state.apply(now, events(1), free(Scope::Allocator(1), Some(Space::Dram), at * 100));
                    live.remove(&at);
                    if let Some(old) = &mut before_mark {
                        old.retain(|&it| it != at);
                    }
                }
                Step::Clear => {
                    state.apply(now, events(1), Input::AllocatorCleared(1));
                    live.clear();
                    before_mark = before_mark.map(|_| Vec::new());
                }
                Step::Mark => {
                    state.apply(now, events(1), mark(now));
                    before_mark = Some(live.keys().copied().collect());
                }
                Step::Restore => state.restore(),
                _ => {}
            }
            let bytes: u64 = live.values().map(|(_, bytes)| bytes).sum();
            if bytes > most {
                (most, at_peak) = (bytes, by_stack(&live, |_| true));
            }
        }
        let now = flame(&state, FlameMoment::Live);
        prop_assert_eq!(stacks(&now), by_stack(&live, |_| true));
        // To the byte: what each device has.
        for index in 0..2 {
            let here = now.pools.iter().filter(|pool| pool.indexes.contains(&index));
            prop_assert_eq!(here.map(sum_of).sum::<u64>(), used(&state, index, Space::Dram));
        }
        let peak = flame(&state, FlameMoment::Peak);
        prop_assert_eq!(stacks(&peak), at_peak);
        prop_assert_eq!(peak.pools.iter().map(sum_of).sum::<u64>(), most);
        let since = flame(&state, FlameMoment::Mark);
        match before_mark {
            Some(old) => {
                prop_assert_eq!(stacks(&since), by_stack(&live, |at| !old.contains(&at)));
                prop_assert!(since.pools.iter().all(|it| it.gap.is_none()));
            }
            None => prop_assert!(since.pools.iter().all(|it| it.gap == Some(FlameGap::NoMark))),
        }
        for pool in [now, peak, since].iter().flat_map(|flame| &flame.pools) {
            prop_assert!(pool.bytes.is_none_or(|bytes| bytes == sum_of(pool)), "{pool:?}");
        }
    }
}

#[test]
fn stacks_have_calls_operation_and_tensor() {
    let mut state = tracked(&[0]);
    let mut define = |definition| state.apply(Mono(2), events(1), Input::Site(Box::new(definition)));
    define(SiteDefinition::File(1, "/home/me/model.py".to_owned()));
    for (number, line, function) in [(1, 42, "forward"), (2, 7, "main")] {
        let frame = Frame { file: 1, line, offset: 0, function: function.to_owned() };
        define(SiteDefinition::Frame(number, frame));
    }
    define(SiteDefinition::Op(1, "ttnn.add".to_owned()));
    define(SiteDefinition::Stack { number: 1, parent: 0, frames: vec![1, 2] });
    let purpose = crate::words::Purpose::Semaphore;
    define(SiteDefinition::Site(10, Site { frame: 1, op: 1, stack: 1, purpose, ..Site::default() }));
    define(SiteDefinition::Site(11, Site { frame: 1, op: 1, ..Site::default() }));
    define(SiteDefinition::Site(12, Site { op: 1, ..Site::default() }));
    for (at, site) in [(1, 10), (2, 11), (3, 12), (4, 99)] {
        state.apply(Mono(3), events(1), allocated(at, site, 1, Mono(3)));
    }
    let found = flame(&state, FlameMoment::Live);
    let names: Vec<String> = stacks(&found).into_keys().collect();
    let expected = [
        "model.py:42 (forward);ttnn.add",
        "model.py:7 (main);model.py:42 (forward);ttnn.add;semaphore",
        "ttnn.add",
        "unknown",
    ];
    assert_eq!(names, expected);
    let place = |name: &str| {
        let frame = found.frames.iter().find(|frame| frame.name == name).unwrap();
        (frame.file.as_deref(), frame.line)
    };
    assert_eq!(place("model.py:7 (main)"), (Some("/home/me/model.py"), Some(7)));
    assert_eq!(place("ttnn.add"), (None, None));
}

#[test]
fn unknown_stacks_are_shown_as_unknown() {
    let mut state = tracked(&[0]);
    let scope = Scope::Allocator(1);
    state.apply(Mono(3), events(1), allocated(1, 1, 10, Mono(3)));
    let holding = Holding { requested: 500, allocated: 600, count: 5 };
    state.apply(Mono(4), events(1), Input::Unlisted { scope, space: Space::Dram, holding });
    let live = flame(&state, FlameMoment::Live);
    assert_eq!(live.pools[0].bytes, Some(used(&state, 0, Space::Dram)));
    assert_eq!(stacks(&live)["unknown"], (5, 600), "those without a record");
    state.apply(Mono(5), events(1), mark(Mono(5)));
    let since = flame(&state, FlameMoment::Mark);
    assert_eq!((since.pools[0].bytes, since.pools[0].gap), (None, Some(FlameGap::NotListed)));
    // A reader that starts later reads only the size of the peak.
    state.apply(Mono(6), events(1), Input::Peak { scope, space: Space::Dram, bytes: Some(5000) });
    let peak = flame(&state, FlameMoment::Peak);
    let pool = &peak.pools[0];
    assert_eq!((pool.bytes, pool.gap), (Some(5000), Some(FlameGap::NotFollowed)));
    assert_eq!((pool.stacks.len(), pool.stacks[0].bytes, pool.stacks[0].count), (1, 5000, None));
}

#[test]
fn only_the_best_basis_is_in_a_flame() {
    let mut state = tracked(&[0]);
    state.apply(Mono(3), events(1), allocated(1, 1, 10, Mono(3)));
    let by_socket = alloc(on(0), Space::Dram, 100, 10);
    state.apply(Mono(3), legacy(1), Input::Alloc(by_socket));
    let found = flame(&state, FlameMoment::Live);
    assert_eq!(found.pools.iter().map(sum_of).sum::<u64>(), used(&state, 0, Space::Dram));
}
