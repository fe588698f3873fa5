//! Compiles the test programs, in every variant.

use crate::build::Compiler;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A variant in which programs are compiled.
pub(crate) struct Build {
    compiler: Compiler,
    sanitizer: Option<Sanitizer>,
}

/// A sanitizer that programs are compiled with.
#[derive(Clone, Copy)]
enum Sanitizer {
    /// Finds invalid addresses, leaks and undefined behaviour.
    Address,
    /// Finds data races.
    Thread,
}

impl Sanitizer {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Address => &ADDRESS,
            Self::Thread => &["-g1", "-fsanitize=thread"],
        }
    }
}

const ADDRESS: [&str; 6] = [
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    // With sanitizers, g++ 12 warns of uninitialized memory for every temporary `std::variant`. clang++ lacks this option.
    "-Wno-unknown-warning-option",
    "-Wno-maybe-uninitialized",
];

/// All variants whose compiler is installed.
pub(crate) fn builds() -> Vec<Build> {
    let of = |(standard, sanitizer)| {
        Compiler::all(standard).into_iter().map(move |compiler| Build { compiler, sanitizer })
    };
    let address = Some(Sanitizer::Address);
    [("c++17", None), ("c++17", address), ("c++20", None)].into_iter().flat_map(of).collect()
}

/// All variants for programs with threads: these are also checked for data races.
pub(crate) fn builds_with_threads() -> Vec<Build> {
    let mut all = builds();
    let threads = Compiler::all("c++17").into_iter();
    all.extend(threads.map(|compiler| Build { compiler, sanitizer: Some(Sanitizer::Thread) }));
    all
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp").join(name)
}

impl Build {
    /// Compiles a program of one file or several.
    pub(crate) fn program(&self, source: &str, others: &[&str]) -> PathBuf {
        self.program_with(source, others, &[])
    }

    /// Compiles a program with more options.
    pub(crate) fn program_with(&self, source: &str, others: &[&str], options: &[&str]) -> PathBuf {
        let old = here("../../../../include/ttmem/old");
        let others: Vec<_> = others.iter().map(|name| here(name)).collect();
        let mut more = vec!["-pthread", "-I", old.to_str().unwrap()];
        more.extend(others.iter().map(|path| path.to_str().unwrap()));
        more.extend(self.flags());
        more.extend(options);
        self.compiler.build(&here(source), &more)
    }

    /// Compiles a program outside of this folder, with the public headers only.
    pub(crate) fn external(&self, source: &Path) -> PathBuf {
        self.compiler.build(source, self.flags())
    }

    fn flags(&self) -> &'static [&'static str] {
        self.sanitizer.map_or(&[], Sanitizer::flags)
    }

    /// A command that runs a program of this variant.
    pub(crate) fn command(&self, program: &Path) -> Command {
        if self.sanitizer.is_none() {
            return Command::new(program);
        }
        // Sanitizers need memory at fixed addresses.
        let mut command = Command::new("setarch");
        command.arg("-R").arg(program);
        command.env("ASAN_OPTIONS", "detect_leaks=1:exitcode=86").env("UBSAN_OPTIONS", "print_stacktrace=1");
        // A forked child has no other threads.
        command.env("TSAN_OPTIONS", "exitcode=66:die_after_fork=0:report_thread_leaks=0");
        command
    }
}
