//! The settings files: `ttmem/config.toml` in the user's configuration folder, and `/etc/ttmem/config.toml`.

use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Table};
use ttmem_tui::Settings;

/// The settings of the machine; the user's file overrides them.
const MACHINE_FILE: &str = "/etc/ttmem/config.toml";
/// The table of the dashboard in the files.
const TABLE: &str = "top";

/// The path of the user's file; `None` without a home.
fn user_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    // The XDG specification ignores relative paths.
    let folder = set("XDG_CONFIG_HOME").filter(|it| it.is_absolute());
    let folder = folder.or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("ttmem/config.toml"))
}

/// Reads the settings: the user's override the machine's, which override the defaults.
pub(crate) fn read() -> anyhow::Result<Settings> {
    let mut merged = DocumentMut::new();
    for path in [Some(PathBuf::from(MACHINE_FILE)), user_file()].into_iter().flatten() {
        let Some(text) = read_if_present(&path)? else { continue };
        let within = || format!("in the settings {}", path.display());
        let document: DocumentMut = text.parse().with_context(within)?;
        // Each file is parsed by itself first, so that an error names the file and line.
        let _: File = toml_edit::de::from_str(&text).with_context(within)?;
        if let Some(table) = document.get(TABLE).and_then(Item::as_table_like) {
            let into = merged.entry(TABLE).or_insert_with(toml_edit::table);
            for (key, value) in table.iter() {
                into[key] = value.clone();
            }
        }
        let so_far: File = toml_edit::de::from_document(merged.clone()).with_context(within)?;
        if let Some(error) = so_far.top.find_error() {
            let line = find_line(&text, &error).map_or_else(String::new, |n| format!(", line {n}"));
            anyhow::bail!("{}{line}: {TABLE}.{error}", within());
        }
    }
    let file: File = toml_edit::de::from_document(merged).context("cannot read the settings")?;
    Ok(file.top)
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    top: Settings,
}

/// The line of the key that an error begins with.
fn find_line(text: &str, error: &str) -> Option<usize> {
    let document = toml_edit::Document::parse(text).ok()?;
    let key = error.split(' ').next()?;
    let item = key.split('.').try_fold(document.get(TABLE)?, |item, key| item.get(key))?;
    Some(text.get(..item.span()?.start)?.matches('\n').count() + 1)
}

fn read_if_present(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read the settings {}", path.display())),
    }
}

/// Writes settings to the user's file, atomically; the rest of the file is unchanged. Returns its path.
pub(crate) fn write(settings: &Settings) -> anyhow::Result<PathBuf> {
    let path = user_file().context("cannot save settings: neither XDG_CONFIG_HOME nor HOME is set")?;
    let within = || format!("cannot write the settings {}", path.display());
    let text = read_if_present(&path)?.unwrap_or_default();
    let mut document: DocumentMut = text.parse().with_context(within)?;
    let new = toml_edit::ser::to_document(settings).with_context(within)?;
    let table = document.entry(TABLE).or_insert_with(|| Item::Table(Table::new()));
    let table =
        table.as_table_like_mut().with_context(|| format!("{TABLE} is no table")).with_context(within)?;
    for (key, value) in new.iter() {
        // Unchanged keys keep their comments.
        let is_same = table.get(key).is_some_and(|it| it.to_string().trim() == value.to_string().trim());
        if !is_same {
            table.insert(key, value.clone());
        }
    }
    if !new.contains_key("sort") {
        table.remove("sort");
    }
    let folder = path.parent().context("the settings have no folder")?;
    fs::create_dir_all(folder).with_context(within)?;
    // Symbolic links are followed, so that a file elsewhere stays there.
    let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let folder = target.parent().unwrap_or(folder);
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(within)?;
    file.write_all(document.to_string().as_bytes()).with_context(within)?;
    file.persist(&target).with_context(within)?;
    Ok(path)
}
