//! Generates Python's dataclasses from the JSON Schema of snapshots.
//!
//! No existing generator is used, so that `gen --check` installs no Python tools, and because the package's conventions are a
//! few lines each: frozen keyword-only dataclasses, tuples, `str` for vocabularies that grow, a docstring for each field.
//! `_record.py` reads JSON into the classes by their annotations.

use anyhow::{Context, bail, ensure};
use indexmap::IndexMap;
use serde::Deserialize;
use std::fmt::Write;

const BEGINNING: &str = r#""""Everything that is known of the machine's device memory, as objects: begin with :class:`Snapshot`.

The classes are those of the JSON that ``ttmem --json`` prints, by the names of PROTOCOL.md: what is not known is ``None``, lists
are tuples, times are :class:`datetime.datetime`, and ``class`` is ``class_``. What a later version says besides is in each object's
``raw``.

Made from docs/snapshot.schema.json by ``cargo xtask gen``; changes belong in crates/ttmem-core.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ._record import Record, Word
"#;

/// Vocabularies that become an enum, because callers pass them. All others are only read, as `str`.
const ENUMS: [&str; 1] = ["Space"];

/// Added to the docstring of each enum.
const ANY_STRING: &str = "Its name as a plain string is accepted, too.";

/// Python keywords that could be a key; their field ends in an underscore.
const KEYWORDS: [&str; 14] = [
    "as", "class", "def", "del", "for", "from", "global", "if", "import", "in", "is", "lambda", "pass",
    "with",
];

/// Longest line, in columns.
const WIDTH: usize = 110;

/// The part of JSON Schema that `schemars` generates for the types of a snapshot.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Schema {
    title: Option<String>,
    description: Option<String>,
    #[serde(rename = "type")]
    kind: Option<Kind>,
    format: Option<String>,
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "const")]
    constant: Option<serde_json::Value>,
    properties: IndexMap<String, Schema>,
    additional_properties: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    any_of: Vec<Schema>,
    all_of: Vec<Schema>,
    one_of: Vec<Schema>,
    #[serde(rename = "$defs")]
    definitions: IndexMap<String, Schema>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Kind {
    One(String),
    Either(Vec<String>),
}

impl Schema {
    fn is_object(&self) -> bool {
        !self.properties.is_empty()
    }

    /// The JSON type, and whether `null` is allowed as well.
    fn kind(&self) -> anyhow::Result<(&str, bool)> {
        match &self.kind {
            Some(Kind::One(kind)) => Ok((kind, false)),
            Some(Kind::Either(kinds)) => match &kinds[..] {
                [kind, null] if null == "null" => Ok((kind, true)),
                _ => bail!("{kinds:?}: several types"),
            },
            None => bail!("no type"),
        }
    }

    fn comment(&self) -> anyhow::Result<&str> {
        self.description.as_deref().context("no comment")
    }

    fn is_null(&self) -> bool {
        matches!(&self.kind, Some(Kind::One(kind)) if kind == "null")
    }
}

/// Returns the module: a class for every object that is part of a snapshot.
pub(crate) fn module(schema: &str) -> anyhow::Result<String> {
    let root: Schema = serde_json::from_str(schema).context("cannot read the schema")?;
    let mut module =
        Module { definitions: &root.definitions, text: BEGINNING.to_owned(), written: Vec::new() };
    for name in ENUMS {
        let words = root.definitions.get(name).with_context(|| format!("there is no {name}"))?;
        module.write_enum(name, words).with_context(|| format!("cannot write {name}"))?;
    }
    let name = root.title.as_deref().context("the schema has no title")?;
    module.write_class(name, &root)?;
    Ok(module.text)
}

struct Module<'a> {
    definitions: &'a IndexMap<String, Schema>,
    text: String,
    /// Classes that are in the text already.
    written: Vec<&'a str>,
}

impl<'a> Module<'a> {
    fn write_enum(&mut self, name: &str, words: &Schema) -> anyhow::Result<()> {
        let _ = write!(self.text, "\n\nclass {name}(Word):\n");
        self.write_comment(&format!("{} {ANY_STRING}", words.comment()?))?;
        self.text.push('\n');
        for word in &words.one_of {
            let value = word.constant.as_ref().and_then(|it| it.as_str()).context("not a list of words")?;
            let _ = writeln!(self.text, "    {} = \"{value}\"", value.to_uppercase());
            self.write_comment(word.comment()?)?;
        }
        Ok(())
    }

    /// Writes a class, after the classes that it refers to.
    fn write_class(&mut self, name: &'a str, class: &'a Schema) -> anyhow::Result<()> {
        if self.written.contains(&name) {
            return Ok(());
        }
        self.written.push(name);
        let mut fields = Vec::new();
        for (key, value) in &class.properties {
            ensure!(key != "raw", "{name} cannot have a key called raw: Record has that");
            let which = || format!("cannot write {name}.{key}");
            let hint = self.hint(value).with_context(which)?;
            let suffix = if KEYWORDS.contains(&&**key) { "_" } else { "" };
            fields.push((format!("    {key}{suffix}: {hint}\n"), value.comment().with_context(which)?));
        }
        let bases: Vec<String> = class.all_of.iter().map(|it| self.hint(it)).collect::<Result<_, _>>()?;
        let base = match &bases[..] {
            [] => "Record",
            [base] => base,
            [..] => bail!("{name} has several bases"),
        };
        let _ = write!(self.text, "\n\n@dataclass(frozen=True, kw_only=True)\nclass {name}({base}):\n");
        self.write_comment(class.comment().with_context(|| format!("cannot write {name}"))?)?;
        self.text.push('\n');
        for (line, comment) in fields {
            self.text.push_str(&line);
            self.write_comment(comment)?;
        }
        Ok(())
    }

    /// Returns the annotation for a value, and writes the classes in it.
    fn hint(&mut self, value: &'a Schema) -> anyhow::Result<String> {
        if let Some(name) = value.reference.as_deref() {
            let name = name.strip_prefix("#/$defs/").with_context(|| format!("{name} is elsewhere"))?;
            let (name, referred) =
                self.definitions.get_key_value(name).with_context(|| format!("there is no {name}"))?;
            if !referred.is_object() {
                return self.hint(referred);
            }
            self.write_class(name, referred)?;
            return Ok(name.clone());
        }
        if let [value, null] = &value.any_of[..] {
            ensure!(null.is_null(), "several types");
            return Ok(format!("{} | None", self.hint(value)?));
        }
        if !value.one_of.is_empty() {
            return Ok("str".to_owned());
        }
        let (kind, nullable) = value.kind()?;
        let hint = match (kind, &value.items, &value.additional_properties) {
            ("string", ..) if value.format.as_deref() == Some("date-time") => "datetime".to_owned(),
            ("string", ..) => "str".to_owned(),
            ("integer", ..) => "int".to_owned(),
            ("number", ..) => "float".to_owned(),
            ("boolean", ..) => "bool".to_owned(),
            ("array", Some(items), _) => {
                let item = self.hint(items)?;
                match (value.min_items, value.max_items) {
                    (Some(least), Some(most)) if least == most => {
                        format!("tuple[{}]", vec![item; most].join(", "))
                    }
                    _ => format!("tuple[{item}, ...]"),
                }
            }
            ("object", _, Some(values)) => format!("dict[str, {}]", self.hint(values)?),
            _ => bail!("no Python type for {kind}"),
        };
        Ok(if nullable { hint + " | None" } else { hint })
    }

    /// Writes a docstring.
    fn write_comment(&mut self, description: &str) -> anyhow::Result<()> {
        const INDENT: &str = "    ";
        ensure!(!description.contains(['"', '\\']), "{description:?} cannot be written in a string");
        let text = description.replace("`null`", "`None`").replace('`', "``");
        if INDENT.len() + text.len() + 6 <= WIDTH {
            let _ = writeln!(self.text, r#"{INDENT}"""{text}""""#);
            return Ok(());
        }
        let mut line = format!(r#"{INDENT}""""#);
        for word in text.split(' ') {
            if line.len() + 1 + word.len() > WIDTH {
                let _ = writeln!(self.text, "{}", line.trim_end());
                INDENT.clone_into(&mut line);
            }
            line.push_str(word);
            line.push(' ');
        }
        let _ = writeln!(self.text, "{}\n{INDENT}\"\"\"", line.trim_end());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python_of(properties: &str) -> anyhow::Result<String> {
        let definitions = r##""Space": {"description": "Memory.", "oneOf": [
            {"const": "l1_small", "description": "The top of `L1`.", "type": "string"}]},
            "Base": {"description": "A base.", "type": "object", "properties": {
            "class": {"$ref": "#/$defs/Space", "description": "Which."}}}"##;
        let schema = format!(
            r##"{{"title": "Root", "description": "All.", "type": "object", "allOf": [{{"$ref": "#/$defs/Base"}}],
            "properties": {{{properties}}}, "$defs": {{{definitions}}}}}"##
        );
        let module = module(&schema)?;
        Ok(module.strip_prefix(BEGINNING).unwrap_or_default().to_owned())
    }

    #[test]
    fn classes_follow_their_bases_in_order_of_keys() {
        let properties = r##"
            "z": {"type": ["integer", "null"], "description": "`null` if unknown."},
            "a": {"anyOf": [{"$ref": "#/$defs/Base"}, {"type": "null"}], "description": "One."},
            "t": {"type": "string", "format": "date-time", "description": "When."},
            "r": {"type": "array", "description": "Where.", "items":
                {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
            "d": {"type": "object", "additionalProperties": {"type": "number"}, "description": "Rates."}"##;
        let expected = r#"

class Space(Word):
    """Memory. Its name as a plain string is accepted, too."""

    L1_SMALL = "l1_small"
    """The top of ``L1``."""


@dataclass(frozen=True, kw_only=True)
class Base(Record):
    """A base."""

    class_: str
    """Which."""


@dataclass(frozen=True, kw_only=True)
class Root(Base):
    """All."""

    z: int | None
    """``None`` if unknown."""
    a: Base | None
    """One."""
    t: datetime
    """When."""
    r: tuple[tuple[int, int], ...]
    """Where."""
    d: dict[str, float]
    """Rates."""
"#;
        assert_eq!(python_of(properties).unwrap(), expected);
    }

    #[test]
    fn schemas_without_python_counterpart_are_refused() {
        for (wrong, why) in [
            (r#""a": {"type": "integer"}"#, "no comment"),
            (r#""a": {"type": "integer", "description": "\"One\"."}"#, "in a string"),
            (r#""raw": {"type": "integer", "description": "One."}"#, "called raw"),
            (r#""a": {"type": ["integer", "string"], "description": "One."}"#, "several types"),
            (r##""a": {"$ref": "#/$defs/Gone", "description": "One."}"##, "no Gone"),
        ] {
            let error = format!("{:#}", python_of(wrong).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn long_comments_are_wrapped() {
        let text = "word ".repeat(50);
        let module =
            python_of(&format!(r#""a": {{"type": "integer", "description": "{}"}}"#, text.trim())).unwrap();
        assert!(module.lines().all(|line| line.len() <= WIDTH), "{module}");
        assert_eq!(module.matches("word").count(), 50);
        assert!(module.ends_with("word\n    \"\"\"\n"), "{module}");
    }
}
