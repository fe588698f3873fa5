//! The test programs, in every variant.

use crate::build::Compiler;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// How a program is compiled.
pub(crate) struct Build {
    compiler: Compiler,
    /// With the sanitizers for addresses, leaks and undefined behaviour.
    sanitized: bool,
}

const SANITIZED: [&str; 6] = [
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    // With sanitizers, g++ 12 sees uninitialized memory in every `std::variant` that is a temporary. clang++ has no such option.
    "-Wno-unknown-warning-option",
    "-Wno-maybe-uninitialized",
];

/// Every variant that this machine has a compiler for.
pub(crate) fn builds() -> Vec<Build> {
    let of = |(standard, sanitized)| {
        Compiler::all(standard).into_iter().map(move |compiler| Build { compiler, sanitized })
    };
    [("c++17", false), ("c++17", true), ("c++20", false)].into_iter().flat_map(of).collect()
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp").join(name)
}

/// The program `ttmem`, by the same profile.
pub(crate) fn ttmem() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let output = test.parent().and_then(Path::parent).unwrap();
        let profile = output.file_name().unwrap().to_str().unwrap();
        let profile = if profile == "debug" { "dev" } else { profile };
        let made = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--package", "ttmem", "--profile", profile])
            .arg("--target-dir")
            .arg(output.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(made.unwrap().success());
        output.join("ttmem")
    })
}

impl Build {
    /// Compiles a program of one file or several.
    pub(crate) fn program(&self, source: &str, others: &[&str]) -> PathBuf {
        let old = here("../../../../include/ttmem/old");
        let others: Vec<_> = others.iter().map(|name| here(name)).collect();
        let mut more = vec!["-pthread", "-I", old.to_str().unwrap()];
        more.extend(others.iter().map(|path| path.to_str().unwrap()));
        more.extend(if self.sanitized { &SANITIZED[..] } else { &[] });
        self.compiler.build(&here(source), &more)
    }

    /// Compiles a program that is somebody else's: a file elsewhere.
    pub(crate) fn foreign(&self, source: &Path) -> PathBuf {
        self.compiler.build(source, if self.sanitized { &SANITIZED } else { &[] })
    }

    /// Runs a program as this variant must be.
    pub(crate) fn start(&self, program: &Path) -> Command {
        if !self.sanitized {
            return Command::new(program);
        }
        // Its memory must lie where the sanitizer expects it.
        let mut command = Command::new("setarch");
        command.arg("-R").arg(program);
        command.env("ASAN_OPTIONS", "detect_leaks=1:exitcode=86").env("UBSAN_OPTIONS", "print_stacktrace=1");
        command
    }
}
