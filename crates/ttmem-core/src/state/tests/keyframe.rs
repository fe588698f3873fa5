//! A state that was restored from a keyframe behaves as the original, and a damaged keyframe is an error.

use super::analysis::{all, apply, changes};
use super::*;
use crate::State as Facts;
use serde_json::Value;

fn everything() -> Detail {
    Detail { events: true, ..all() }
}

proptest! {
    #[test]
    fn a_restored_state_behaves_as_the_original(changes in changes(), at in 0usize..120, each in 1usize..9) {
        let mut original = machine();
        let mut restored = machine();
        for (n, change) in changes.iter().enumerate() {
            let now = Mono(n as u64 * Mono::SECOND / 8);
            apply(&mut original, now, change);
            apply(&mut restored, now, change);
            if n == at.min(changes.len() - 1) {
                restored.restore();
            }
            if n % each == 0 || n + 1 == changes.len() {
                let detail = everything();
                let [one, other] = [&original, &restored].map(|it| it.snapshot(Timestamp::UNIX_EPOCH, &detail));
                prop_assert_eq!(one, other);
                let listed = |it: &State| it.allocations(0, usize::MAX, it.now());
                prop_assert_eq!(listed(&original), listed(&restored));
            }
        }
        let keyframes = [&original, &restored].map(|it| serde_json::to_string(&it.state).unwrap());
        prop_assert_eq!(&keyframes[0], &keyframes[1]);
    }

    #[test]
    fn a_damaged_keyframe_is_an_error_or_a_working_state(
        changes in changes(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u32>>()), 1..4),
        more in changes(),
    ) {
        let mut state = machine();
        for (n, change) in changes.iter().enumerate() {
            apply(&mut state, Mono(n as u64), change);
        }
        let mut keyframe = serde_json::to_value(&state.state).unwrap();
        for (place, number) in damage {
            let mut numbers = Vec::new();
            numbers_in(&mut keyframe, &mut numbers);
            let place = place.index(numbers.len());
            // Another number of the keyframe is more likely to be taken for a right one.
            let other = numbers[place / 2].clone();
            *numbers[place] = number.map_or(other, Value::from);
        }
        let Ok(facts) = serde_json::from_value::<Facts>(keyframe) else { return Ok(()) };
        let mut state = State::from(facts);
        state.snapshot(Timestamp::UNIX_EPOCH, &everything());
        for (n, change) in more.iter().enumerate() {
            apply(&mut state, Mono(n as u64), change);
        }
        state.tick(Mono(100 * Mono::SECOND));
        state.snapshot(Timestamp::UNIX_EPOCH, &everything());
    }
}

/// Every number of a JSON value.
fn numbers_in<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(list) => list.iter_mut().for_each(|it| numbers_in(it, found)),
        Value::Object(map) => map.values_mut().for_each(|it| numbers_in(it, found)),
        _ => {}
    }
}
