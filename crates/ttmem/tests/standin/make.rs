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

/// A variant of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vintage {
    New,
    /// Without the functions that runtimes before 0.80 do not export.
    Old,
    /// Like `Old`, and with other offsets of the fields that have no function.
    Moved,
    /// Without a function that the agent requires.
    Broken,
    /// With a private C++ library inside.
    Sealed,
    /// Without a package that has its version.
    Unknown,
}

const FLAGS: [&str; 7] =
    ["-std=c++20", "-g1", "-fPIC", "-Wall", "-Wextra", "-Wno-invalid-offsetof", "-Wno-unused-parameter"];
const SEALED: [&str; 2] = ["-static-libstdc++", "-Wl,--exclude-libs,ALL"];
const SOURCES: [&str; 8] = [
    include_str!("runtime.hpp"),
    include_str!("runtime.cpp"),
    include_str!("tensors.hpp"),
    include_str!("tensors.cpp"),
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

    /// The library that must be preloaded first.
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

    /// The folder that pip would leave beside the library.
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

/// Calls a function while no other process does so for the same thing.
fn with_lock<T>(what: &str, make: impl FnOnce() -> T) -> T {
    fs::create_dir_all(folder()).unwrap();
    let lock = File::create(folder().join(format!("{what}.lock"))).unwrap();
    lock.lock().unwrap();
    make()
}

/// Runs the compiler, unless there is a result of the same arguments and sources.
fn compile(to: &Path, arguments: &[&str]) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let stamp = to.with_extension("stamp");
    let wanted = format!("{arguments:?}{SOURCES:?}");
    if to.exists() && fs::read_to_string(&stamp).is_ok_and(|it| it == wanted) {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin");
    let output = Command::new("g++").current_dir(here).args(arguments).arg("-o").arg(to).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    fs::write(stamp, wanted).unwrap();
}

/// The library, in a folder of its own, since the agent recognises it by its name.
pub(crate) fn library(build: Build, vintage: Vintage) -> &'static Path {
    static DONE: [OnceLock<PathBuf>; 18] = [const { OnceLock::new() }; 18];
    DONE[build as usize * 6 + vintage as usize].get_or_init(|| {
        let name = format!("{build:?}-{vintage:?}");
        let arguments = [&FLAGS, build.flags(), vintage.flags()].concat();
        with_lock(&name, || {
            let objects = ["runtime", "programs", "tensors"].map(|source| {
                let object = folder().join(&name).join(source).with_extension("o");
                compile(&object, &[&arguments[..], &["-c", &format!("{source}.cpp")]].concat());
                object.to_str().unwrap().to_owned()
            });
            link(
                &name,
                vintage,
                &[&arguments[..], &["-shared", &objects[0], &objects[1], &objects[2]]].concat(),
            )
        })
    })
}

fn link(name: &str, vintage: Vintage, arguments: &[&str]) -> PathBuf {
    let path = folder().join(name).join("libtt_metal.so");
    compile(&path, arguments);
    if let Some(package) = vintage.package() {
        fs::create_dir_all(folder().join(name).join(package)).unwrap();
    }
    path
}

/// The library without some of its exported symbols.
pub(crate) fn library_without(build: Build, what: &str, names: &[&str]) -> PathBuf {
    let whole = library(build, Vintage::New).parent().unwrap();
    let name = format!("{build:?}-without-{what}");
    with_lock(&name, || {
        fs::create_dir_all(folder().join(&name)).unwrap();
        let script = folder().join(&name).join("names");
        fs::write(&script, format!("{{ local: {}; }};\n", names.join("; "))).unwrap();
        let script = format!("-Wl,--version-script={}", script.display());
        let objects =
            ["runtime.o", "programs.o", "tensors.o"].map(|it| whole.join(it).to_str().unwrap().to_owned());
        let arguments =
            [build.flags(), &["-shared", &objects[0], &objects[1], &objects[2], &script]].concat();
        link(&name, Vintage::New, &arguments)
    })
}

/// How the program uses the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    Linked,
    /// With `dlopen`, as Python does.
    Loaded,
    /// With `dlopen`, and with a private C++ library inside the program.
    Sealed,
}

/// The test program.
pub(crate) fn program(build: Build, linkage: Linkage) -> &'static Path {
    static DONE: [OnceLock<PathBuf>; 9] = [const { OnceLock::new() }; 9];
    let library = library(build, Vintage::New).to_str().unwrap();
    DONE[build as usize * 3 + linkage as usize].get_or_init(|| {
        let name = format!("program-{build:?}");
        let object = folder().join(format!("{name}.o"));
        let path = folder().join(format!("{name}-{linkage:?}"));
        let beside = format!("-Wl,-rpath,{}", Path::new(library).parent().unwrap().display());
        with_lock(&name, || {
            compile(&object, &[&FLAGS, build.flags(), &["-c", "program.cpp"]].concat());
            // The program's operators replace those of the C++ library for all libraries.
            let mut arguments = [build.flags(), &["-rdynamic", object.to_str().unwrap()]].concat();
            match linkage {
                Linkage::Linked => arguments.extend(["-Wl,--no-as-needed", library, &beside]),
                Linkage::Loaded => {}
                Linkage::Sealed => arguments.extend(SEALED),
            }
            compile(&path, &arguments);
        });
        path
    })
}

/// A copy of the client library, which reports by hand; each copy has a tracker of its own.
pub(crate) fn client_library(copy: u32) -> PathBuf {
    let to = folder().join(format!("client-{copy}.so"));
    with_lock("client", || {
        let mut link = Command::new("gcc");
        link.args(["-shared", "-Wl,--whole-archive"])
            .arg(ttmem_testkit::c_library())
            .arg("-Wl,--no-whole-archive");
        let output = link.args(["-Wl,--gc-sections", "-o"]).arg(&to).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    to
}
