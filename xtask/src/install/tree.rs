//! Installs files: each replaces the one before atomically, with its mode.

use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// Mode of files that all users may read.
pub(super) const DATA: u32 = 0o644;
/// Mode of files that all users may run.
pub(super) const PROGRAM: u32 = 0o755;

/// The list of installed files, in a prefix: one name a line, relative to the prefix.
pub(crate) const LIST: &str = "share/ttmem/files";

/// An installation into a prefix.
pub(super) struct Tree {
    /// The folder of the files: the prefix, below the destination if there is one.
    base: PathBuf,
    quiet: bool,
    names: BTreeSet<String>,
}

impl Tree {
    pub(super) fn new(base: PathBuf, quiet: bool) -> Self {
        Self { base, quiet, names: BTreeSet::new() }
    }

    /// Installs a file with these contents.
    pub(super) fn put(&mut self, name: &str, mode: u32, contents: &[u8]) -> anyhow::Result<()> {
        self.replace(name, |new| {
            fs::write(new, contents)?;
            // Independent of the umask.
            fs::set_permissions(new, fs::Permissions::from_mode(mode))
        })
    }

    /// Installs a copy of a file.
    pub(super) fn copy(&mut self, name: &str, mode: u32, from: &Path) -> anyhow::Result<()> {
        let contents = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.put(name, mode, &contents)
    }

    /// Installs a symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) -> anyhow::Result<()> {
        self.replace(name, |new| symlink(target, new))
    }

    /// Creates a file under a temporary name, and renames it: processes that have the old one open or mapped keep it, and no
    /// process ever sees a part of the new one.
    fn replace(&mut self, name: &str, make: impl Fn(&Path) -> std::io::Result<()>) -> anyhow::Result<()> {
        let path = self.base.join(name);
        let folder = path.parent().context("every file is in a folder")?;
        create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let new = folder.join(format!(".ttmem-install.{}", std::process::id()));
        let done = make(&new).and_then(|()| fs::rename(&new, &path));
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done.with_context(|| format!("cannot install {}", path.display()))?;
        if !self.quiet {
            println!("{}", path.display());
        }
        self.names.insert(name.to_owned());
        Ok(())
    }

    /// Writes the list of installed files, and removes files of an earlier version that this one lacks.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let before = fs::read_to_string(self.base.join(LIST)).unwrap_or_default();
        self.names.insert(LIST.to_owned());
        let list = self.names.iter().fold(String::new(), |text, name| text + name + "\n");
        self.put(LIST, DATA, list.as_bytes())?;
        for old in before.lines().filter(|name| !self.names.contains(*name) && is_below(name)) {
            let path = self.base.join(old);
            if fs::remove_file(&path).is_ok() {
                println!("{} is no longer there", path.display());
            }
        }
        Ok(())
    }
}

/// Whether a name stays in the prefix.
fn is_below(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Creates a folder that all users may read. An existing one is not changed.
fn create_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_folder(above)?;
    }
    fs::DirBuilder::new().mode(0o755).create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// The folder of the files: the prefix, below the destination if there is one.
pub(super) fn base(prefix: &Path, destination: Option<&Path>) -> anyhow::Result<PathBuf> {
    ensure!(
        prefix.is_absolute(),
        "--prefix needs an absolute path, as /usr/local; {} is none",
        prefix.display()
    );
    let plain = prefix.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    ensure!(plain, "--prefix must not go up again: {}", prefix.display());
    let Some(destination) = destination else { return Ok(prefix.to_owned()) };
    ensure!(destination.is_absolute(), "--destdir needs an absolute path; {} is none", destination.display());
    Ok(destination.join(prefix.strip_prefix("/")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    fn install(base: &Path, files: &[&str], contents: &str) {
        let mut tree = Tree::new(base.to_owned(), true);
        for name in files {
            tree.put(name, PROGRAM, contents.as_bytes()).unwrap();
        }
        tree.link("bin/old-name", "one").unwrap();
        tree.finish().unwrap();
    }

    #[test]
    fn newer_version_replaces_and_removes_old_files() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("deep/prefix");
        install(&base, &["bin/one", "bin/two"], "old");
        fs::write(base.join("bin/stranger"), "not ours").unwrap();
        // A process has the old one open.
        let mut running = fs::File::open(base.join("bin/one")).unwrap();
        install(&base, &["bin/one"], "new");
        let mut text = String::new();
        running.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
        assert_eq!(fs::read(base.join("bin/one")).unwrap(), b"new");
        assert_eq!(fs::read(base.join("bin/old-name")).unwrap(), b"new");
        assert!(!base.join("bin/two").exists() && base.join("bin/stranger").exists());
        assert_eq!(fs::metadata(base.join("bin/one")).unwrap().mode() & 0o7777, 0o755);
        assert_eq!(fs::metadata(base.join(LIST)).unwrap().mode() & 0o7777, 0o644);
        let names: Vec<_> =
            fs::read_dir(base.join("bin")).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "nothing half-made is left: {names:?}");
    }

    #[test]
    fn list_cannot_remove_files_outside_the_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("prefix");
        install(&base, &["bin/one"], "x");
        let precious = folder.path().join("precious");
        fs::write(&precious, "").unwrap();
        fs::write(base.join(LIST), format!("../precious\n{}\n", precious.display())).unwrap();
        install(&base, &["bin/one"], "x");
        assert!(precious.exists());
    }

    #[test]
    fn prefix_is_absolute_and_may_be_below_a_destination() {
        assert!(base(Path::new("usr"), None).is_err());
        assert!(base(Path::new("/usr/../etc"), None).is_err());
        assert!(base(Path::new("/usr"), Some(Path::new("here"))).is_err());
        assert_eq!(base(Path::new("/usr"), None).unwrap(), Path::new("/usr"));
        assert_eq!(base(Path::new("/usr"), Some(Path::new("/tmp/d"))).unwrap(), Path::new("/tmp/d/usr"));
    }
}
