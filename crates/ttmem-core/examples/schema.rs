//! Prints the JSON Schema of what `ttmem --json`, `ttmem dump --json` and `ttmem postmortem --json` print; `cargo xtask gen` keeps it in `docs`.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, RestrictFormats};
use serde_json::Value;
use ttmem_core::snapshot::{Dump, PostMortem, RunReport, Snapshot};

fn main() -> serde_json::Result<()> {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RestrictFormats::default())
        .with_transform(RecursiveTransform(simplify));
    let mut generator = settings.into_generator();
    // Not parts of a snapshot, so they are added explicitly.
    generator.subschema_for::<Dump>();
    generator.subschema_for::<PostMortem>();
    generator.subschema_for::<RunReport>();
    let mut schema = generator.into_root_schema_for::<Snapshot>();
    let comment = "Made from crates/ttmem-core by `cargo xtask gen`; changes belong there.";
    schema.ensure_object().shift_insert(1, "$comment".to_owned(), comment.into());
    println!("{}", serde_json::to_string_pretty(&schema)?);
    Ok(())
}

/// Removes what describes the Rust types rather than the JSON.
fn simplify(schema: &mut Schema) {
    // The value assumed if an older daemon omits the key; this version always writes it.
    schema.remove("default");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = without_links(text);
    }
}

/// Joins the lines of each paragraph of a comment and turns links such as [`super::Device::id`] into `Device.id`.
fn without_links(comment: &str) -> String {
    let plain = comment.replace("[`", "`").replace("`]", "`").replace("super::", "").replace("::", ".");
    let paragraphs: Vec<String> = plain.split("\n\n").map(|lines| lines.replace('\n', " ")).collect();
    paragraphs.join("\n\n")
}
