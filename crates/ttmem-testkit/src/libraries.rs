//! Paths of this workspace's libraries that tests preload or link, as Cargo has just built them.
//!
//! The test's package has them as dev-dependencies, so that Cargo builds them with the test and no test runs Cargo.

use std::fs::{self, DirEntry};
use std::path::PathBuf;
use std::time::SystemTime;

/// Path of the agent, a shared library.
pub fn agent() -> PathBuf {
    find_built("libttmem_agent", "so")
}

/// Path of the C library, a static one.
pub fn c_library() -> PathBuf {
    find_built("libttmem_c", "a")
}

/// Finds a dependency beside the test binary. There may be several, with other features: the newest is this build's.
fn find_built(name: &str, extension: &str) -> PathBuf {
    let of = |entry: DirEntry| -> Option<(SystemTime, PathBuf)> {
        let path = entry.path();
        let (stem, found) = (path.file_stem()?.to_str()?, path.extension()?);
        // Cargo adds a hash to the names of some kinds of libraries.
        let fits = found == extension && stem.split('-').next() == Some(name);
        Some((entry.metadata().ok()?.modified().ok()?, path)).filter(|_| fits)
    };
    let test = std::env::current_exe().unwrap();
    let files = fs::read_dir(test.parent().unwrap()).unwrap();
    let newest = files.flatten().filter_map(of).max();
    newest.unwrap_or_else(|| panic!("{name} is not a dev-dependency of this test's package")).1
}
