//! Where a machine's files are: below `/`, or below a folder with the files of another machine.

use std::path::{Path, PathBuf};

/// The folder below which all files of a machine are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// The machine whose files are below `folder`.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Whether it is this machine, so that its kernel can be queried about its processes.
    pub fn is_this_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where a file with this absolute path on the machine is here.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.0.join(absolute.trim_start_matches('/'))
    }

    /// The absolute path on the machine of a file here.
    pub(crate) fn path_on_machine(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.0).map_or_else(|_| path.to_owned(), |below| Path::new("/").join(below))
    }

    /// Whether its `/proc` is a kernel's, so that links in it can be followed. In a copy they would lead into this machine.
    pub(crate) fn has_live_procfs(&self) -> bool {
        const PROCFS: i64 = 0x9fa0;
        self.is_this_machine() || rustix::fs::statfs(self.path("/proc")).is_ok_and(|it| it.f_type == PROCFS)
    }

    /// Where a file of `/proc/PID` is.
    pub fn process_file(&self, pid: u32, name: &str) -> PathBuf {
        self.path(&format!("/proc/{pid}/{name}"))
    }
}
