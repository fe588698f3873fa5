//! Generates the C header from the code that it declares.

use crate::root;
use anyhow::Context;
use cbindgen::{Config, EnumConfig, ExportConfig, Language, RenameRule, Style};
use ttmem_types::{Arch, BufferType, Fault, KernelClass, Layout, Purpose, Space};

const BEGINNING: &str = "\
/* ttmem: publishes the device memory that a process uses, for the program `ttmem` to show.
 *
 * Generated from crates/ttmem-c by `cargo xtask gen`; edit it there.
 *
 * There is one tracker per process and no handle: devices, allocators, core sets and call sites are numbers. Every
 * function may be called at any time, from any thread, in any forked child. A negative result is a ttmem_error; other
 * results are 0 or a number. While tracking is off, every function returns 0, and numbers that are 0 or errors may be
 * passed on. Structs may be zero-initialised: zero means unknown. No function prints or blocks.
 *
 * Tracking is on with TTMEM=1 (or TT_ALLOC_TRACKING_ENABLED=1) in the environment, or after ttmem_enable.
 */";

/// The functions that the library exports, from its header.
pub(crate) fn functions() -> anyhow::Result<Vec<String>> {
    let header = header()?;
    let mut names: Vec<String> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '}']))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("ttmem_"))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The whole header.
pub(crate) fn header() -> anyhow::Result<String> {
    let [major, minor, patch] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    let version = format!(
        "\n#define TTMEM_VERSION_MAJOR {major}\n#define TTMEM_VERSION_MINOR {minor}\n#define TTMEM_VERSION_PATCH {patch}"
    );
    let config = Config {
        language: Language::C,
        header: Some(BEGINNING.to_owned()),
        include_guard: Some("TTMEM_H".to_owned()),
        after_includes: Some(version + &enums()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: vec!["stdbool.h".to_owned(), "stddef.h".to_owned(), "stdint.h".to_owned()],
        usize_is_size_t: true,
        style: Style::Both,
        line_length: 110,
        documentation_style: cbindgen::DocumentationStyle::C99,
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        export: ExportConfig { include: vec!["ttmem_flag".to_owned()], ..ExportConfig::default() },
        ..Config::default()
    };
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_crate(root().join("crates/ttmem-c"))
        .generate()
        .context("cannot read crates/ttmem-c")?;
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    Ok(without_rust(&String::from_utf8(bytes)?))
}

/// The enums of the vocabulary. Functions take plain numbers instead of them.
fn enums() -> String {
    macro_rules! c_enum {
        ($enum:ident, $name:literal, $doc:literal, $is_in_c:expr) => {{
            let all = $enum::ALL.into_iter().filter($is_in_c);
            c_enum($name, $doc, all.map(|it| (it.name(), it as i64, it.description())))
        }};
        ($enum:ident, $name:literal, $doc:literal) => {
            c_enum!($enum, $name, $doc, |_| true)
        };
    }
    [
        c_enum!(
            Fault,
            "ttmem_error",
            "Errors: the negative results. `ttmem_error_text` returns their texts.",
            |fault| fault.is_returned()
        ),
        c_enum!(Space, "ttmem_space", "Memory spaces."),
        c_enum!(Arch, "ttmem_arch", "Device architectures; 0: unknown."),
        // Mirrors have a flag, and views belong to placements.
        c_enum!(
            Layout,
            "ttmem_layout",
            "Memory layout of a buffer in its banks or on its cores.",
            |layout| !layout.is_alias()
        ),
        c_enum!(KernelClass, "ttmem_kernel_class", "Classes of kernels."),
        c_enum!(Purpose, "ttmem_purpose", "What a buffer is for."),
        c_enum!(BufferType, "ttmem_buffer_type", "Buffer types, numbered as by tt-metal and the old client."),
    ]
    .concat()
}

fn c_enum<'a>(name: &str, doc: &str, rows: impl Iterator<Item = (&'a str, i64, &'a str)>) -> String {
    let row = |(row, number, doc): (&str, i64, &str)| {
        let constant = format!("{name}_{row}").to_uppercase();
        format!("  // {doc}\n  {constant} = {number},\n")
    };
    let rows = rows.map(row).collect::<Vec<_>>().concat();
    format!("\n\n// {doc}\ntypedef enum {name} {{\n{rows}}} {name};")
}

/// Removes comment lines that make sense in Rust only.
fn without_rust(header: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in header.lines() {
        if line.trim() == "// # Safety" {
            // The text of the section applies to C, too; its heading and the empty lines around it do not.
            kept.pop();
        } else if line.trim() != "//" || kept.last().is_some_and(|line| line.starts_with("//")) {
            kept.push(line);
        }
    }
    let mut text = kept.join("\n") + "\n";
    while text.contains("\n//\n//\n") {
        text = text.replace("\n//\n//\n", "\n//\n");
    }
    text
}
