//! `ttmem -s`: a snapshot with the keys that readers of `tt-smi -s` expect.

use serde_json::{Value, json};
use ttmem_core::Snapshot;

pub(crate) fn render(snapshot: &Snapshot) -> Value {
    json!({ "time": snapshot.at.to_string() })
}
