//! The settings file: `ttmem/config.toml` below the person's folder for settings, and the machine's below `/etc`.

use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table};
use ttmem_tui::Settings;

/// The machine's own, below the person's.
const OF_ALL: &str = "/etc/ttmem/config.toml";
/// The part of the file that is the dashboard's.
const PART: &str = "top";

/// The person's own file; `None` without a home.
fn own() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    // What is not absolute is to be ignored.
    let folder = set("XDG_CONFIG_HOME").filter(|it| it.is_absolute());
    let folder = folder.or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("ttmem/config.toml"))
}

/// The settings: the person's over the machine's over our own.
pub(crate) fn read() -> anyhow::Result<Settings> {
    let mut all = DocumentMut::new();
    for path in [Some(PathBuf::from(OF_ALL)), own()].into_iter().flatten() {
        let Some(text) = text_of(&path)? else { continue };
        let within = || format!("in the settings {}", path.display());
        let document: DocumentMut = text.parse().with_context(within)?;
        // By itself first, so that what is wrong is said of the file it is in, with its line.
        let _: File = toml_edit::de::from_str(&text).with_context(within)?;
        if let Some(part) = document.get(PART).and_then(Item::as_table_like) {
            let into = all.entry(PART).or_insert_with(toml_edit::table);
            for (key, value) in part.iter() {
                into[key] = value.clone();
            }
        }
        let so_far: File = toml_edit::de::from_document(all.clone()).with_context(within)?;
        if let Some(fault) = so_far.top.fault() {
            let line = line_of(&text, &fault).map_or_else(String::new, |it| format!(", line {it}"));
            anyhow::bail!("{}{line}: {PART}.{fault}", within());
        }
    }
    let file: File = toml_edit::de::from_document(all).context("cannot read the settings")?;
    Ok(file.top)
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    top: Settings,
}

/// The line of the key that a fault begins with.
fn line_of(text: &str, fault: &str) -> Option<usize> {
    let document = toml_edit::Document::parse(text).ok()?;
    let key = fault.split(' ').next()?;
    let item = key.split('.').try_fold(document.get(PART)?, |item, key| item.get(key))?;
    Some(text.get(..item.span()?.start)?.matches('\n').count() + 1)
}

fn text_of(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read the settings {}", path.display())),
    }
}

/// Keeps settings in the person's file, whole or not at all; what else is in it stays as it is. Returns where that is.
pub(crate) fn write(settings: &Settings) -> anyhow::Result<PathBuf> {
    let path = own().context("cannot save settings: neither XDG_CONFIG_HOME nor HOME is set")?;
    let within = || format!("cannot write the settings {}", path.display());
    let text = text_of(&path)?.unwrap_or_default();
    let mut document: DocumentMut = text.parse().with_context(within)?;
    let new = toml_edit::ser::to_document(settings).with_context(within)?;
    let part = document.entry(PART).or_insert_with(|| Item::Table(Table::new()));
    let part =
        part.as_table_like_mut().with_context(|| format!("{PART} is no table")).with_context(within)?;
    for (key, value) in new.iter() {
        // What is as it was keeps the comment beside it.
        let same = part.get(key).is_some_and(|it| it.to_string().trim() == value.to_string().trim());
        if !same {
            part.insert(key, value.clone());
        }
    }
    if !new.contains_key("sort") {
        part.remove("sort");
    }
    let folder = path.parent().context("the settings have no folder")?;
    fs::create_dir_all(folder).with_context(within)?;
    // A link is followed, so that settings kept elsewhere stay there.
    let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let folder = target.parent().unwrap_or(folder);
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(within)?;
    file.write_all(document.to_string().as_bytes()).with_context(within)?;
    file.persist(&target).with_context(within)?;
    Ok(path)
}
