//! Long tests of the workspace: `cargo xtask truth`, `siege`, `drift`, `fit`, `programs` and `loom`.

use crate::{build_release, cargo, lab, succeed, target};
use anyhow::{Context, ensure};

/// `cargo xtask loom`: models of publication, in every order in which another processor may see the writer's stores.
pub(crate) fn loom() -> anyhow::Result<()> {
    succeed(&mut cargo(&["test", "--locked", "--package", "ttmem-loom"]))
}

/// `cargo xtask truth [NAME…]`: the long form of `crates/ttmem/tests/truth`. In release, since an unoptimised writer would be
/// too slow to race with a reader.
pub(crate) fn truth(names: &[&str]) -> anyhow::Result<()> {
    let mut test = cargo(&["test", "--release", "--locked", "--package", "ttmem", "--test", "truth", "--"]);
    succeed(test.arg("--nocapture").args(names).env("TTMEM_LONG", "1"))
}

/// `cargo xtask siege [SECONDS]`: the long form of `crates/ttmem/tests/siege`. In release, since its times are limited.
pub(crate) fn siege(seconds: &str) -> anyhow::Result<()> {
    seconds.parse::<u64>().context("SECONDS is a number")?;
    let mut test = cargo(&["test", "--release", "--locked", "--package", "ttmem", "--test", "siege", "--"]);
    succeed(test.args(["--nocapture", "hostile"]).env("TTMEM_SIEGE", seconds))
}

/// `cargo xtask programs [OP…]`: the long form of `more_ops` of `crates/ttmem/tests/lab`, with all operations or those whose
/// name contains one of `ops`.
pub(crate) fn programs(ops: &[&str]) -> anyhow::Result<()> {
    for version in [lab::TTNN, lab::BEFORE] {
        lab::prepare(version)?;
    }
    lab::write_clusters()?;
    let mut test =
        cargo(&["test", "--workspace", "--locked", "--test", "lab", "--", "--nocapture", "more_ops::"]);
    succeed(test.env("TTMEM_LONG", "1").env("TTMEM_OPS", ops.join(" ")))
}

/// `cargo xtask drift [STEPS] [--seed N] [CASE…]`
pub(crate) fn drift(args: &[&str]) -> anyhow::Result<()> {
    let LongArgs { number, seed, cases } = LongArgs::parse(args, 5000)?;
    run_drift(number, seed, &cases)
}

/// `drift` of `crates/ttmem/tests/lab`: `steps` steps in total, over all cases or those whose name contains one of `cases`,
/// with the release program and agent.
pub(crate) fn run_drift(steps: u64, seed: u64, cases: &[&str]) -> anyhow::Result<()> {
    build_release()?;
    let agent = lab::build_probe_agent()?;
    for version in [lab::TTNN, lab::OLDER] {
        lab::prepare(version)?;
    }
    lab::write_clusters()?;
    let test = || cargo(&["test", "--workspace", "--locked", "--quiet", "--test", "lab", "--"]);
    let list = test().arg("--list").output().context("cannot list the cases")?;
    ensure!(list.status.success(), "cannot list the cases: {}", String::from_utf8_lossy(&list.stderr));
    let list = String::from_utf8_lossy(&list.stdout);
    let names = list.lines().filter_map(|line| line.strip_suffix(": test")?.strip_prefix("drift::"));
    let wanted = |name: &&str| cases.is_empty() || cases.iter().any(|case| name.contains(case));
    let names: Vec<String> = names.filter(wanted).map(|name| format!("drift::{name}")).collect();
    ensure!(!names.is_empty(), "no case is called {}", cases.join(" "));
    let mut test = test();
    // One case at a time, so that their threads race with each other only.
    test.args(["--nocapture", "--test-threads=1", "--exact"])
        .args(&names)
        .env("TTMEM_PROGRAM", target().join("release/ttmem"))
        .env("TTMEM_AGENT", agent);
    test.env("TTMEM_DRIFT_STEPS", steps.to_string()).env("TTMEM_DRIFT_SEED", seed.to_string());
    succeed(&mut test)?;
    println!("{} cases: drift 0", names.len());
    Ok(())
}

/// `cargo xtask fit [STATES] [--seed N] [CASE…]`: the long form of `fit` of `crates/ttmem/tests/lab`.
pub(crate) fn fit(args: &[&str]) -> anyhow::Result<()> {
    let LongArgs { number, seed, cases } = LongArgs::parse(args, 2000)?;
    build_release()?;
    let agent = lab::build_probe_agent()?;
    lab::prepare(lab::TTNN)?;
    lab::write_clusters()?;
    let all = ["n150", "p150", "t3k", "n300_hybrid", "p150_hybrid"];
    let wanted: Vec<&str> = all.into_iter().filter(|it| cases.is_empty() || cases.contains(it)).collect();
    ensure!(!wanted.is_empty(), "no case is called {}; there are {}", cases.join(" "), all.join(", "));
    let mut test = cargo(&["test", "--workspace", "--locked", "--quiet", "--test", "lab", "--"]);
    test.args(["--nocapture", "--test-threads=1", "--exact"]);
    test.args(wanted.iter().map(|case| format!("fit::{case}")));
    test.env("TTMEM_PROGRAM", target().join("release/ttmem")).env("TTMEM_AGENT", agent);
    succeed(test.env("TTMEM_FIT_STATES", number.to_string()).env("TTMEM_FIT_SEED", seed.to_string()))
}

/// Arguments of a long test: `[NUMBER] [--seed N] [CASE…]`.
struct LongArgs<'a> {
    number: u64,
    seed: u64,
    cases: Vec<&'a str>,
}

impl<'a> LongArgs<'a> {
    fn parse(args: &[&'a str], default: u64) -> anyhow::Result<Self> {
        let (mut number, mut seed, mut cases) = (default, 1, Vec::new());
        let mut args = args.iter().peekable();
        if let Some(first) = args.peek().and_then(|first| first.parse().ok()) {
            number = first;
            args.next();
        }
        while let Some(arg) = args.next() {
            match *arg {
                "--seed" => {
                    seed = args.next().and_then(|it| it.parse().ok()).context("--seed needs a number")?;
                }
                case => cases.push(case),
            }
        }
        Ok(Self { number, seed, cases })
    }
}
