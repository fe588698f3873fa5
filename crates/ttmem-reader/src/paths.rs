//! Default paths of the query socket.

use crate::{Error, Result};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

const SYSTEM: &str = "/run/ttmem/query.sock";

/// Where a daemon serves: the system's path for root, otherwise one of the user.
pub fn query_socket_to_serve() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM));
    }
    let folder = user_folder();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|source| Error::Folder { path: folder.clone(), source })?;
    if is_own(&folder) { Ok(folder.join("query.sock")) } else { Err(Error::NotOurs(folder)) }
}

/// Where to ask: the system's daemon, then the user's. A folder that belongs to another user is not used: that user could
/// answer.
pub fn query_sockets_to_ask() -> Vec<PathBuf> {
    let folder = user_folder();
    let users = is_own(&folder).then(|| folder.join("query.sock"));
    [PathBuf::from(SYSTEM)].into_iter().chain(users).collect()
}

fn user_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("ttmem"),
        None => PathBuf::from(format!("/tmp/ttmem-{}", rustix::process::geteuid().as_raw())),
    }
}

fn is_own(folder: &PathBuf) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}
