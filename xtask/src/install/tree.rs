//! Putting files where they belong: each appears whole, with its mode, in place of the one before.

use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// For everybody to read.
pub(super) const DATA: u32 = 0o644;
/// For everybody to run.
pub(super) const PROGRAM: u32 = 0o755;

/// The list of what was installed, in a prefix: one name a line, as seen from the prefix.
pub(crate) const LIST: &str = "share/ttmem/files";

/// A prefix that is being filled.
pub(super) struct Tree {
    /// Where files go: the prefix below the folder that packages are put together in.
    base: PathBuf,
    quiet: bool,
    names: BTreeSet<String>,
}

impl Tree {
    pub(super) fn new(base: PathBuf, quiet: bool) -> Self {
        Self { base, quiet, names: BTreeSet::new() }
    }

    /// A file with these contents.
    pub(super) fn put(&mut self, name: &str, mode: u32, contents: &[u8]) -> anyhow::Result<()> {
        self.replace(name, |new| {
            fs::write(new, contents)?;
            // Whatever the umask is.
            fs::set_permissions(new, fs::Permissions::from_mode(mode))
        })
    }

    /// A copy of a file.
    pub(super) fn copy(&mut self, name: &str, mode: u32, from: &Path) -> anyhow::Result<()> {
        let contents = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.put(name, mode, &contents)
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) -> anyhow::Result<()> {
        self.replace(name, |new| symlink(target, new))
    }

    /// Makes something beside its place, and moves it there: who has the old one open or mapped keeps it, and nobody ever
    /// finds half of the new one.
    fn replace(&mut self, name: &str, make: impl Fn(&Path) -> std::io::Result<()>) -> anyhow::Result<()> {
        let path = self.base.join(name);
        let folder = path.parent().context("every file lies in some folder")?;
        make_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let new = folder.join(format!(".ttmem-install.{}", std::process::id()));
        let done = make(&new).and_then(|()| fs::rename(&new, &path));
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done.with_context(|| format!("cannot put {} in place", path.display()))?;
        if !self.quiet {
            println!("{}", path.display());
        }
        self.names.insert(name.to_owned());
        Ok(())
    }

    /// Writes down what was installed, and takes away what an earlier version left that this one has not.
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

/// Whether a name cannot lead out of the prefix.
fn is_below(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// A folder for everybody to read, if it is not there; one that is stays as it is.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    fs::DirBuilder::new().mode(0o755).create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// The prefix, and where it lies for now.
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
    fn a_newer_version_replaces_an_older_one_whole_and_takes_its_leavings_along() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("deep/prefix");
        install(&base, &["bin/one", "bin/two"], "old");
        fs::write(base.join("bin/stranger"), "not ours").unwrap();
        // Somebody runs the old one.
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
    fn a_list_cannot_have_strangers_files_removed() {
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
    fn a_prefix_is_absolute_and_may_lie_elsewhere_for_now() {
        assert!(base(Path::new("usr"), None).is_err());
        assert!(base(Path::new("/usr/../etc"), None).is_err());
        assert!(base(Path::new("/usr"), Some(Path::new("here"))).is_err());
        assert_eq!(base(Path::new("/usr"), None).unwrap(), Path::new("/usr"));
        assert_eq!(base(Path::new("/usr"), Some(Path::new("/tmp/d"))).unwrap(), Path::new("/tmp/d/usr"));
    }
}
