//! `cargo xtask dependencies`: licences and sources of all dependencies, and which of the workspace's crates depend on which.
//!
//! This replaces cargo-deny, of which only these rules were used: it takes minutes to build, and `cargo metadata` has all that
//! they need. Licence expressions are evaluated by the library that cargo-deny itself uses.

use crate::cargo;
use anyhow::{Context, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};
use std::collections::{BTreeMap, BTreeSet};

const ALLOWED: [&str; 4] = ["Apache-2.0", "MIT", "Zlib", "Unicode-3.0"];

/// Further licences, each for one package only.
const EXCEPTIONS: [(&str, &str); 4] = [
    // A dependency of the validator of JSON schemas, for tests.
    ("borrow-or-share", "MIT-0"),
    // A tool that generates a header; it is not linked into what is installed.
    ("cbindgen", "MPL-2.0"),
    // Linked into fuzz targets only.
    ("libfuzzer-sys", "NCSA"),
    // Used by PyO3 at build time.
    ("target-lexicon", "Apache-2.0 WITH LLVM-exception"),
];

/// The workspace's crates, and those that each may depend on, apart from tests. Arrows point one way; the Python package reads
/// without the daemon.
const ARROWS: [(&str, &[&str]); 12] = [
    ("ttmem-types", &[]),
    ("ttmem-wire", &["ttmem-types"]),
    ("ttmem-client", &["ttmem-types", "ttmem-wire"]),
    ("ttmem-c", &["ttmem-client"]),
    ("ttmem-agent", &["ttmem-types", "ttmem-wire", "ttmem-client"]),
    ("ttmem-core", &["ttmem-types"]),
    ("ttmem-sources", &["ttmem-types", "ttmem-wire", "ttmem-core"]),
    ("ttmem-reader", &["ttmem-types", "ttmem-wire", "ttmem-core", "ttmem-sources"]),
    ("ttmem-daemon", &["ttmem-types", "ttmem-wire", "ttmem-core", "ttmem-sources", "ttmem-reader"]),
    ("ttmem-render", &["ttmem-types", "ttmem-core"]),
    ("ttmem-tui", &["ttmem-types", "ttmem-core", "ttmem-render"]),
    ("ttmem-python", &["ttmem-types", "ttmem-wire", "ttmem-client", "ttmem-core", "ttmem-reader"]),
];

/// Crates that run in workloads, and so never depend on `TOO_LARGE`.
const IN_WORKLOADS: [&str; 4] = ["ttmem-wire", "ttmem-client", "ttmem-c", "ttmem-agent"];
const TOO_LARGE: [&str; 4] = ["serde", "serde_json", "tokio", "tracing"];

pub(crate) fn run() -> anyhow::Result<()> {
    let target = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let mut command = cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let output = command.args(target).output().context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let report = check(&metadata);
    for name in &report.duplicates {
        println!("several versions of {name}");
    }
    for problem in &report.problems {
        println!("{problem}");
    }
    ensure!(report.problems.is_empty(), "{} dependencies break a rule", report.problems.len());
    println!("{} packages: licences, sources and directions are as they should be", report.packages);
    Ok(())
}

/// Result of checking a dependency graph.
#[derive(Debug, Default)]
struct Report {
    packages: usize,
    /// Names with several versions, which is not an error.
    duplicates: Vec<String>,
    problems: Vec<String>,
}

fn check(metadata: &Value) -> Report {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members: BTreeSet<String> =
        list(&metadata["workspace_members"]).iter().map(|id| text(id).to_owned()).collect();
    let packages = list(&metadata["packages"]);
    let mut report = Report { packages: packages.len(), ..Report::default() };
    let mut problem = |name: &str, what: &str| report.problems.push(format!("{name}: {what}"));
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // The default registry: a dependency without `registry` refers to it.
    let mut registries = BTreeSet::new();
    for package in &packages {
        let name = text(&package["name"]);
        versions.entry(name.to_owned()).or_default().insert(text(&package["version"]).to_owned());
        if let Err(what) = check_licence(name, package["license"].as_str()) {
            problem(name, &what);
        }
        for dependency in list(&package["dependencies"]) {
            let to = text(&dependency["name"]);
            // Not for tests and build scripts.
            if dependency["kind"].is_null() && !may_depend(name, to) {
                problem(name, &format!("must not depend on {to}"));
            }
            if let Some(source) = dependency["source"].as_str() {
                if dependency["req"] == "*" {
                    problem(name, &format!("depends on any version of {to}"));
                }
                if dependency["registry"].is_null() && source.starts_with("registry+") {
                    registries.insert(source.to_owned());
                }
            }
        }
    }
    for package in &packages {
        let name = text(&package["name"]);
        match package["source"].as_str() {
            None if members.contains(text(&package["id"])) => {}
            None => problem(name, "comes from a folder that is not part of the workspace"),
            Some(source) if registries.contains(source) => {}
            Some(source) => problem(name, &format!("comes from {source}, not from the default registry")),
        }
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    report.duplicates = several
        .map(|(name, versions)| format!("{name}: {}", versions.into_iter().collect::<Vec<_>>().join(", ")))
        .collect();
    report
}

/// Whether the direction of dependencies allows this one.
fn may_depend(name: &str, to: &str) -> bool {
    let arrows = ARROWS.into_iter().find(|(from, _)| *from == name);
    let backwards = arrows.is_some_and(|(_, allowed)| to.starts_with("ttmem") && !allowed.contains(&to));
    let heavy = IN_WORKLOADS.contains(&name) && TOO_LARGE.contains(&to);
    !backwards && !heavy
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Checks that a package may be used under one of the licences that it offers.
fn check_licence(name: &str, licence: Option<&str>) -> Result<(), String> {
    let licence = licence.ok_or("names no licence")?;
    // Old packages write `MIT/Apache-2.0`.
    let expression =
        Expression::parse_mode(licence, ParseMode::LAX).map_err(|e| format!("{licence}: {}", e.reason))?;
    let exceptions =
        EXCEPTIONS.into_iter().filter(|(package, _)| *package == name).map(|(_, licence)| licence);
    let allowed: Vec<&str> = ALLOWED.into_iter().chain(exceptions).collect();
    let fits = expression.evaluate(|requirement| allowed.contains(&requirement.to_string().as_str()));
    if fits { Ok(()) } else { Err(format!("{licence} is not among the licences that are allowed")) }
}

#[cfg(test)]
mod tests {
    use super::{check, check_licence};
    use serde_json::{Value, json};

    const REGISTRY: &str = "registry+https://registry.example/index";

    fn package(name: &str, source: Option<&str>, dependencies: &[Value]) -> Value {
        json!({
            "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source,
            "dependencies": dependencies,
        })
    }

    fn dependency(name: &str, source: Option<&str>, req: &str) -> Value {
        json!({ "name": name, "source": source, "registry": null, "req": req })
    }

    fn problems(packages: &[Value]) -> Vec<String> {
        check(&json!({ "workspace_members": ["ours"], "packages": packages })).problems
    }

    #[test]
    fn licence_choices_and_exceptions_are_evaluated() {
        for fits in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert_eq!(check_licence("any", Some(fits)), Ok(()), "{fits}");
        }
        assert_eq!(check_licence("cbindgen", Some("MPL-2.0")), Ok(()));
        assert_eq!(check_licence("target-lexicon", Some("Apache-2.0 WITH LLVM-exception")), Ok(()));
        for breaks in
            ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MPL-2.0", "Apache-2.0 WITH LLVM-exception", "mine"]
        {
            assert!(check_licence("any", Some(breaks)).is_err(), "{breaks}");
        }
        assert!(check_licence("any", None).is_err());
    }

    #[test]
    fn sources_other_than_the_default_registry_are_refused() {
        let ours = |to: Value| package("ours", None, &[to]);
        let good = dependency("dep", Some(REGISTRY), "^1");
        assert_eq!(problems(&[ours(good.clone()), package("dep", Some(REGISTRY), &[])]), [""; 0]);
        let git = "git+https://example.com/dep#0123";
        let refused = problems(&[ours(dependency("dep", Some(git), "*")), package("dep", Some(git), &[])]);
        assert_eq!(refused.len(), 2, "a wildcard and a source: {refused:?}");
        // A patched dependency: only the package itself has the other source.
        let patched = problems(&[ours(good.clone()), package("dep", Some(git), &[])]);
        assert!(patched.len() == 1 && patched[0].contains("default registry"), "{patched:?}");
        let mut other = dependency("dep", Some("registry+https://other.example/index"), "^1");
        other["registry"] = "https://other.example/index".into();
        let from_other = package("dep", Some("registry+https://other.example/index"), &[]);
        assert_eq!(problems(&[ours(other), from_other]).len(), 1);
        assert_eq!(problems(&[ours(good), package("dep", None, &[])]).len(), 1, "a folder outside");
    }

    #[test]
    fn arrows_point_one_way() {
        let depends = |name: &str, to: &str, kind: Value| {
            let mut dependency = dependency(to, None, "*");
            dependency["kind"] = kind;
            check(&json!({ "workspace_members": [name], "packages": [package(name, None, &[dependency])] }))
                .problems
        };
        assert_eq!(depends("ttmem-daemon", "ttmem-reader", Value::Null), [""; 0]);
        for (name, to) in
            [("ttmem-reader", "ttmem-daemon"), ("ttmem-python", "ttmem-daemon"), ("ttmem-client", "serde")]
        {
            assert_eq!(depends(name, to, Value::Null), [format!("{name}: must not depend on {to}")]);
            assert_eq!(depends(name, to, "dev".into()), [""; 0]);
        }
    }

    #[test]
    fn wildcards_are_refused_except_for_paths() {
        let any = |source| package("ours", None, &[dependency("dep", source, "*")]);
        assert_eq!(problems(&[any(None)]), [""; 0]);
        let refused = problems(&[any(Some(REGISTRY))]);
        assert!(refused.len() == 1 && refused[0].contains("any version of dep"), "{refused:?}");
    }

    #[test]
    fn duplicate_versions_are_listed_without_failing() {
        let mut second = package("dep", Some(REGISTRY), &[]);
        second["version"] = "2.0.0".into();
        let dep = package("dep", Some(REGISTRY), &[]);
        let ours = package("ours", None, &[dependency("dep", Some(REGISTRY), "^1")]);
        let report = check(&json!({ "workspace_members": ["ours"], "packages": [ours, dep, second] }));
        assert_eq!((report.duplicates, report.problems), (vec!["dep: 1.0.0, 2.0.0".to_owned()], vec![]));
    }
}
