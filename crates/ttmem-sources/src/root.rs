//! Where a machine's files are: below `/`, or below a folder that shows another machine.

use std::path::{Path, PathBuf};

/// The folder that everything is looked up below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// Below this folder.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Whether it is this machine's own, so that the kernel can be asked about what is found there.
    pub fn is_own(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where something is that the machine itself calls by this absolute path.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.0.join(absolute.trim_start_matches('/'))
    }

    /// What the machine itself calls a path of ours.
    pub(crate) fn name_of(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.0).map_or_else(|_| path.to_owned(), |below| Path::new("/").join(below))
    }

    /// Whether its processes are a kernel's, so that links of theirs lead where they say. In a copy they lead out of it,
    /// into this machine.
    pub(crate) fn has_processes(&self) -> bool {
        const PROCFS: i64 = 0x9fa0;
        self.is_own() || rustix::fs::statfs(self.path("/proc")).is_ok_and(|it| it.f_type == PROCFS)
    }

    /// A file of a process.
    pub fn of_process(&self, pid: u32, name: &str) -> PathBuf {
        self.path(&format!("/proc/{pid}/{name}"))
    }
}
