//! Reads printed JSON and validates it against `docs/snapshot.schema.json`.

use serde::de::DeserializeOwned;

/// Reads a snapshot as it was printed, into [`ttmem_core::Snapshot`] or into plain JSON, and validates it.
#[track_caller]
pub fn snapshot<T: DeserializeOwned>(printed: &[u8]) -> T {
    read(printed, "")
}

/// Reads a list of allocations as it was printed, and validates it.
#[track_caller]
pub fn dump<T: DeserializeOwned>(printed: &[u8]) -> T {
    read(printed, "#/$defs/Dump")
}

/// Reads a post-mortem as it was printed, and validates it.
#[track_caller]
pub fn post_mortem<T: DeserializeOwned>(printed: &[u8]) -> T {
    read(printed, "#/$defs/PostMortem")
}

/// Reads the report of a run as it was written, and validates it.
#[track_caller]
pub fn run_report<T: DeserializeOwned>(written: &[u8]) -> T {
    read(written, "#/$defs/RunReport")
}

#[track_caller]
#[cfg_attr(not(feature = "validate"), expect(unused_variables, reason = "only the validator needs it"))]
fn read<T: DeserializeOwned>(printed: &[u8], definition: &str) -> T {
    // Benchmarks and models do not enable the feature: they must not spend time on this.
    #[cfg(feature = "validate")]
    if let Err(why) = validate(&parse(printed), definition) {
        panic!("printed JSON does not match the schema: {why}");
    }
    parse(printed)
}

#[track_caller]
fn parse<T: DeserializeOwned>(printed: &[u8]) -> T {
    serde_json::from_slice(printed).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(printed)))
}

/// Validates a value against the whole schema or one definition; the error names the keys that do not match.
#[cfg(feature = "validate")]
fn validate(value: &serde_json::Value, definition: &str) -> Result<(), String> {
    use boon::{Compiler, SchemaIndex, Schemas};
    use std::sync::LazyLock;

    static SCHEMA: &str = include_str!("../../../docs/snapshot.schema.json");
    /// The compiled schema: the root, and the definitions that are printed as documents.
    static COMPILED: LazyLock<(Schemas, [(&str, SchemaIndex); 4])> = LazyLock::new(|| {
        let name = "ttmem://docs/snapshot.schema.json";
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.enable_format_assertions();
        compiler.add_resource(name, serde_json::from_str(SCHEMA).unwrap()).unwrap();
        let parts = ["", "#/$defs/Dump", "#/$defs/PostMortem", "#/$defs/RunReport"].map(|definition| {
            let part = compiler.compile(&format!("{name}{definition}"), &mut schemas);
            (definition, part.unwrap_or_else(|e| panic!("{e:#}")))
        });
        (schemas, parts)
    });

    let (schemas, parts) = &*COMPILED;
    let (_, part) =
        parts.iter().find(|(name, _)| *name == definition).expect("every definition in use is compiled");
    schemas.validate(value, *part).map_err(|e| format!("{e:#}"))
}

#[cfg(all(test, feature = "validate"))]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use ttmem_core::Snapshot;
    use ttmem_core::snapshot::SCHEMA;

    fn valid() -> Value {
        serde_json::to_value(Snapshot { schema: SCHEMA, ..Snapshot::default() }).unwrap()
    }

    #[test]
    fn wrong_snapshots_are_refused() {
        assert_eq!(validate(&valid(), ""), Ok(()));
        for (key, wrong) in [
            ("schema", json!(2)),
            ("at", json!("yesterday")),
            ("devices", Value::Null),
            ("host", json!({"name": null, "ttmem": 7, "driver": null})),
            ("findings", json!([{"kind": "unheard_of"}])),
            ("buffers", json!({})),
        ] {
            let mut snapshot = valid();
            snapshot[key] = wrong;
            let why = validate(&snapshot, "").expect_err(key);
            assert!(why.contains(&format!("/{key}")), "{why}");
        }
    }

    #[test]
    fn required_keys_must_exist_and_others_may() {
        let required = ["schema", "at", "simulated", "host", "devices", "processes", "findings", "health"];
        for key in required {
            let mut snapshot = valid();
            snapshot.as_object_mut().unwrap().remove(key);
            assert!(validate(&snapshot, "").is_err_and(|why| why.contains(key)), "{key}");
        }
        let mut snapshot = valid();
        assert_eq!(snapshot.as_object().unwrap().len(), required.len(), "{snapshot}");
        snapshot["novelty"] = json!([1]);
        snapshot["health"]["novelty"] = json!({});
        assert_eq!(validate(&snapshot, ""), Ok(()));
    }

    #[test]
    fn flattened_keys_are_checked() {
        let usage = |more: Value| {
            let mut usage = json!({"device": "0x1", "dram_total": {"used_bytes": 1, "capacity_bytes": null, "basis": "exact"}});
            usage.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let process = json!({"pid": 1, "reported_pid": null, "start": null, "name": null, "command": null, "user": null, "uid": null,
                "container": null, "open_devices": [], "tracking": "agent", "basis": "exact", "complete": true, "sequence": null, "audit": [], "usage": [usage],
                "summary": {"indexes": [], "dram_bytes": 1, "l1_bytes": null, "program_bytes": null, "kernel_bytes": null}});
            let mut snapshot = valid();
            snapshot["processes"] = json!([process]);
            validate(&snapshot, "")
        };
        assert_eq!(usage(json!({})), Ok(()));
        assert!(
            usage(json!({"dram_total": {"used_bytes": -1, "capacity_bytes": null, "basis": "exact"}}))
                .is_err()
        );
        assert!(usage(json!({"device": 0})).is_err());
    }

    #[test]
    fn lists_of_allocations_are_checked() {
        let dump =
            json!({"schema": 1, "at": "2026-11-15T04:00:00.123Z", "simulated": false, "allocations": []});
        let printed = dump.to_string();
        assert_eq!(super::dump::<Value>(printed.as_bytes()), dump);
        let mut wrong = dump;
        wrong["allocations"] = json!([{"pid": 1}]);
        let why = std::panic::catch_unwind(|| super::dump::<Value>(wrong.to_string().as_bytes()));
        assert!(why.unwrap_err().downcast_ref::<String>().unwrap().contains("/allocations/0"));
    }
}
