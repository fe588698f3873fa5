//! Builds programs in C and C++ against the C library, as users do against the installed one.

#![allow(clippy::unwrap_used)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

/// A compiler and a language standard.
pub(crate) struct Compiler {
    program: &'static str,
    standard: &'static str,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.program, self.standard)
    }
}

impl Compiler {
    /// GCC and Clang, as far as they are installed; in CI both must be.
    pub(crate) fn all(standard: &'static str) -> Vec<Self> {
        let both = if standard.starts_with("c++") { ["g++", "clang++"] } else { ["gcc", "clang"] };
        let is_installed = |program: &&str| {
            Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        let found: Vec<Self> =
            both.into_iter().filter(is_installed).map(|program| Self { program, standard }).collect();
        assert!(!found.is_empty(), "there is no compiler");
        assert!(std::env::var_os("CI").is_none() || found.len() == both.len(), "{both:?} must both be there");
        found
    }

    /// Builds a program, with warnings as errors. `more` may have options for the compiler and for the linker.
    pub(crate) fn build(&self, source: &Path, more: &[&str]) -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = source.file_stem().unwrap().to_string_lossy();
        let to =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let mut command = Command::new(self.program);
        command.arg(format!("-std={}", self.standard));
        command.args(["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]);
        command.arg("-I").arg(include).args(more).arg(source).arg(ttmem_testkit::c_library());
        command.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&to);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{self}: {}", String::from_utf8_lossy(&output.stderr));
        to
    }
}

/// Runs a program without other variables of ttmem in its environment; returns its status, output and errors.
pub(crate) fn run(
    program: &Path,
    arguments: &[&str],
    env: &[(&str, &str)],
    folder: &Path,
) -> (ExitStatus, String, String) {
    let mut command = Command::new(program);
    for name in ["TTMEM", "TT_ALLOC_TRACKING_ENABLED", "TTMEM_TRANSPORT", "TTMEM_LOG"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(env.iter().copied()).env("TTMEM_SHM_DIR", folder);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status, text(&output.stdout), text(&output.stderr))
}
