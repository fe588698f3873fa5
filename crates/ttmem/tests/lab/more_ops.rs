//! Programs of many more ops than `programs` has (more_ops.py), compared with what stock ttnn itself says of them. CI compares
//! some of them, `cargo xtask programs` all.

use super::compare::expect_no_differences;
use super::stage::Stage;
use super::*;

/// A release that exports fewer functions, and lays out dataflow buffers in another way. Only the long form needs it.
const BEFORE: &str = "0.80.0";
/// The page that says what was tested.
const PAGE: &str = include_str!("../../../../docs/programs-tested.md");
/// Ops that must run in the long form.
const ENOUGH: usize = 100;

#[test]
fn programs_of_more_ops_match() {
    let long = std::env::var_os("TTMEM_LONG").is_some();
    let cases: &[_] = if long {
        &[("n150", TTNN), ("p150", TTNN), ("n150", BEFORE), ("p150", BEFORE)]
    } else {
        &[("n150", TTNN), ("p150", TTNN)]
    };
    let wanted = std::env::var("TTMEM_OPS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split_whitespace().collect();
    let mut differences = Vec::new();
    for &(board, version) in cases {
        let mut stage = Stage::new(board, version, "1, 1");
        let [all, some]: [Vec<String>; 2] =
            ["MORE_OPS", "SHORT"].map(|list| stage.query(&format!("list(p.more_ops.{list})")));
        for expected in [format!("{} more", all.len()), format!("CI compares {}", some.len())] {
            assert!(PAGE.contains(&expected), "docs/programs-tested.md does not say: {expected}");
        }
        let mut ops = if long { all } else { some };
        ops.retain(|op| wanted.is_empty() || wanted.iter().any(|it| op.contains(it)));
        let done = stage.run_and_compare(&ops);
        println!(
            "ttnn {version} on {board}: {} ops ran, {} programs, {} parts, {} views, {} differences; {} refused",
            done.ops,
            done.programs,
            done.parts,
            done.views,
            done.differences.len(),
            done.refused.len()
        );
        for (op, why) in &done.refused {
            println!("  refused: {op}: {why}");
        }
        for difference in &done.differences {
            println!("  {difference}");
        }
        let enough = if long && wanted.is_empty() { ENOUGH } else { ops.len() - done.refused.len() };
        assert!(done.ops >= enough, "{board}, {version}: {} ops ran", done.ops);
        assert!(long || done.refused.is_empty(), "{board}, {version}: {:?}", done.refused);
        differences.extend(done.differences.iter().map(|it| format!("{board}, {version}: {it}")));
    }
    expect_no_differences(&differences);
}
