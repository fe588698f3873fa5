//! Compiles the stand-in and the program that uses it, in every variant.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// How the program and the library are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Plain,
    /// With the sanitizers for addresses, leaks and undefined behaviour.
    Address,
    /// With the sanitizer for threads.
    Thread,
}

/// Which runtime the library is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vintage {
    New,
    /// Half of what the agent knows is not there.
    Old,
    /// The same, and what has no function lies elsewhere.
    Moved,
    /// Without something that the agent cannot do without.
    Broken,
    /// With a C++ library inside that nobody else sees.
    Sealed,
    /// Nothing says which one it is.
    Unknown,
}

const FLAGS: [&str; 7] =
    ["-std=c++20", "-g1", "-fPIC", "-Wall", "-Wextra", "-Wno-invalid-offsetof", "-Wno-unused-parameter"];
const SEALED: [&str; 2] = ["-static-libstdc++", "-Wl,--exclude-libs,ALL"];
const SOURCES: [&str; 6] = [
    include_str!("runtime.hpp"),
    include_str!("runtime.cpp"),
    include_str!("programs.hpp"),
    include_str!("programs.cpp"),
    include_str!("trials.hpp"),
    include_str!("program.cpp"),
];

impl Build {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Address => &[
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=undefined",
                "-fno-omit-frame-pointer",
            ],
            Self::Thread => &["-fsanitize=thread"],
        }
    }

    /// What must be preloaded before anything else.
    pub(crate) fn sanitizer(self) -> Option<PathBuf> {
        let name = match self {
            Self::Plain => return None,
            Self::Address => "libasan.so",
            Self::Thread => "libtsan.so",
        };
        let output = Command::new("g++").arg(format!("-print-file-name={name}")).output().unwrap();
        let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Some(path.canonicalize().unwrap_or_else(|_| panic!("g++ has no {name}")))
    }
}

impl Vintage {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::New | Self::Unknown => &[],
            Self::Old => &["-DOLD"],
            Self::Moved => &["-DOLD", "-DMOVED"],
            Self::Broken => &["-DBROKEN"],
            Self::Sealed => &SEALED,
        }
    }

    /// What pip would leave beside it.
    fn package(self) -> Option<&'static str> {
        match self {
            Self::New => Some("ttnn-0.81.1.dist-info"),
            Self::Old | Self::Moved => Some("ttnn-0.76.0.dist-info"),
            Self::Broken | Self::Sealed | Self::Unknown => None,
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("standin")
}

/// Makes something while no other process makes it.
fn alone<T>(what: &str, make: impl FnOnce() -> T) -> T {
    fs::create_dir_all(folder()).unwrap();
    let lock = File::create(folder().join(format!("{what}.lock"))).unwrap();
    lock.lock().unwrap();
    make()
}

/// Runs the compiler, unless it has been with the same words and sources.
fn compile(to: &Path, words: &[&str]) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let stamp = to.with_extension("stamp");
    let wanted = format!("{words:?}{SOURCES:?}");
    if to.exists() && fs::read_to_string(&stamp).is_ok_and(|it| it == wanted) {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin");
    let output = Command::new("g++").current_dir(here).args(words).arg("-o").arg(to).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    fs::write(stamp, wanted).unwrap();
}

/// The library, in a folder of its own: its name is what the agent knows it by.
pub(crate) fn library(build: Build, vintage: Vintage) -> &'static Path {
    static DONE: [OnceLock<PathBuf>; 18] = [const { OnceLock::new() }; 18];
    DONE[build as usize * 6 + vintage as usize].get_or_init(|| {
        let name = format!("{build:?}-{vintage:?}");
        let words = [&FLAGS, build.flags(), vintage.flags()].concat();
        alone(&name, || {
            let objects = ["runtime", "programs"].map(|source| {
                let object = folder().join(&name).join(source).with_extension("o");
                compile(&object, &[&words[..], &["-c", &format!("{source}.cpp")]].concat());
                object.to_str().unwrap().to_owned()
            });
            link(&name, vintage, &[&words[..], &["-shared", &objects[0], &objects[1]]].concat())
        })
    })
}

fn link(name: &str, vintage: Vintage, words: &[&str]) -> PathBuf {
    let path = folder().join(name).join("libtt_metal.so");
    compile(&path, words);
    if let Some(package) = vintage.package() {
        fs::create_dir_all(folder().join(name).join(package)).unwrap();
    }
    path
}

/// The same without some of its names: nobody else sees them.
pub(crate) fn library_without(build: Build, what: &str, names: &[&str]) -> PathBuf {
    let whole = library(build, Vintage::New).parent().unwrap();
    let name = format!("{build:?}-without-{what}");
    alone(&name, || {
        fs::create_dir_all(folder().join(&name)).unwrap();
        let script = folder().join(&name).join("names");
        fs::write(&script, format!("{{ local: {}; }};\n", names.join("; "))).unwrap();
        let script = format!("-Wl,--version-script={}", script.display());
        let objects = ["runtime.o", "programs.o"].map(|it| whole.join(it).to_str().unwrap().to_owned());
        let words = [build.flags(), &["-shared", &objects[0], &objects[1], &script]].concat();
        link(&name, Vintage::New, &words)
    })
}

/// How the program has the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Linked,
    /// Knowing nothing of it until it loads it.
    Loading,
    /// The same, with a C++ library inside that nobody else sees.
    Sealed,
}

/// The program.
pub(crate) fn program(build: Build, way: Way) -> &'static Path {
    static DONE: [OnceLock<PathBuf>; 9] = [const { OnceLock::new() }; 9];
    let library = library(build, Vintage::New).to_str().unwrap();
    DONE[build as usize * 3 + way as usize].get_or_init(|| {
        let name = format!("program-{build:?}");
        let object = folder().join(format!("{name}.o"));
        let path = folder().join(format!("{name}-{way:?}"));
        let beside = format!("-Wl,-rpath,{}", Path::new(library).parent().unwrap().display());
        alone(&name, || {
            compile(&object, &[&FLAGS, build.flags(), &["-c", "program.cpp"]].concat());
            // What it replaces in the C++ library, it replaces for everybody.
            let mut words = [build.flags(), &["-rdynamic", object.to_str().unwrap()]].concat();
            match way {
                Way::Linked => words.extend(["-Wl,--no-as-needed", library, &beside]),
                Way::Loading => {}
                Way::Sealed => words.extend(SEALED),
            }
            compile(&path, &words);
        });
        path
    })
}

/// A copy of the library that is told by hand: each has a tracker of its own.
pub(crate) fn by_hand(copy: u32) -> PathBuf {
    let to = folder().join(format!("by-hand-{copy}.so"));
    alone("by-hand", || {
        let mut link = Command::new("gcc");
        link.args(["-shared", "-Wl,--whole-archive"])
            .arg(ttmem_testkit::c_library())
            .arg("-Wl,--no-whole-archive");
        let output = link.args(["-Wl,--gc-sections", "-Wl,-z,nodelete", "-o"]).arg(&to).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    to
}
