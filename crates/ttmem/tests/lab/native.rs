//! Native stacks, compared with what `backtrace()` sees in a C++ program, and among the lines of Python.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::snapshot::{Allocation, Dump};
use ttmem_testkit::memory_folder;
use ttmem_wire::segment::definition::{Definition, parse};
use ttmem_wire::segment::{Header, Layout};
use zerocopy::FromBytes;

/// The only segment in a folder.
fn segment(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("ttmem.");
    files.find(is_segment).unwrap()
}

/// The stacks that a segment defines, as names of libraries with offsets, innermost first.
fn defined_stacks(segment: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(segment).unwrap();
    let (header, _) = Header::read_from_prefix(&bytes).unwrap();
    let (offset, _) = Layout::of(&header, bytes.len() as u64).unwrap().definitions;
    let (mut paths, mut frames, mut stacks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for definition in parse(&bytes[offset as usize..]).map_while(|it| it) {
        match definition {
            Definition::Library(number, build_id, path) => {
                assert!(!build_id.is_empty() || path.starts_with("linux-vdso"), "{path}");
                paths.insert(number, path.rsplit('/').next().unwrap().to_owned());
            }
            Definition::Frame(number, frame, _) => {
                frames.insert(number, (frame.file.get(), frame.offset.get()));
            }
            Definition::Stack(number, parent, inner) => {
                stacks.insert(number, (parent, inner.iter().map(|it| it.get()).collect::<Vec<_>>()));
            }
            _ => {}
        }
    }
    let frame = |number: &u32| -> Option<String> {
        let (file, offset) = frames.get(number)?;
        Some(format!("{}+{offset}", paths.get(file)?))
    };
    let whole = |mut number: u32| -> Option<String> {
        let mut all = Vec::new();
        while let Some((parent, inner)) = stacks.get(&number) {
            all.extend(inner.iter().map(frame));
            number = *parent;
        }
        Some(all.into_iter().collect::<Option<Vec<_>>>()?.join(" "))
    };
    stacks.keys().filter_map(|&number| whole(number)).collect()
}

/// Buffers of a dump.
fn buffers(output: &Output) -> Vec<Allocation> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump: Dump = serde_json::from_slice(&output.stdout).unwrap();
    dump.allocations.into_iter().filter(|it| !it.space.is_program()).collect()
}

#[test]
fn native_frames_equal_those_of_backtrace() {
    for flags in [&["-O2", "-g"][..], &["-O0", "-g"]] {
        let folder = memory_folder();
        let mut command = linked_command(folder.path(), "native.cpp", flags);
        command.env("TTMEM_STACKS", "native,64");
        let mut puppet = Puppet::start(command);
        puppet.run("open");
        let mut compared = 0;
        for what in ["0", "1", "3", "7", "12", "20", "30", "5 thread", "20 thread"] {
            let seen = puppet.run(what);
            let defined = defined_stacks(&segment(folder.path()));
            let seen: Vec<&str> = seen.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            let equal = seen.iter().find(|stack| defined.contains(**stack));
            let equal = equal.unwrap_or_else(|| panic!("{what}: none of {seen:#?} is in {defined:#?}"));
            compared += equal.split(' ').count();
        }
        println!("{compared} frames of 9 stacks are equal");
        assert!(compared > 150, "{compared}");
        let live = buffers(&ttmem(folder.path(), &["dump", "--json"]));
        let text = std::fs::read_to_string(here().join("native.cpp")).unwrap();
        let line = text.lines().position(|line| line.ends_with("// allocates")).unwrap() + 1;
        let named = live.iter().filter(|it| it.origin.line == Some(line as u32)).count();
        assert_eq!(named, 9, "{live:#?}");
        // A process that is killed leaves a crash segment that says the same.
        let segment = segment(folder.path());
        puppet.kill();
        let output = Command::new(exe()).args(["dump", "--json", "--segment"]).arg(segment).output().unwrap();
        let stacks = |buffers: &[Allocation]| -> Vec<Vec<String>> {
            buffers.iter().map(|it| it.origin.stack.clone()).collect()
        };
        assert_eq!(stacks(&buffers(&output)), stacks(&live));
    }
}

/// Positions of the frames that contain these texts, in this order.
fn positions(stack: &[String], wanted: &[&str]) -> Vec<usize> {
    let mut from = 0;
    let mut find = |text: &&str| {
        let at = stack[from..].iter().position(|frame| frame.contains(*text));
        from += at.unwrap_or_else(|| panic!("{text} is not behind {from} in {stack:#?}")) + 1;
        from - 1
    };
    wanted.iter().map(&mut find).collect()
}

#[test]
fn lines_of_python_are_among_native_frames() {
    let folder = memory_folder();
    let script = here().join("puppet.py");
    let mut command =
        tracked_command("n150", folder.path(), &[python(TTNN).to_str().unwrap(), script.to_str().unwrap()]);
    command.env("TTMEM_STACKS", "native");
    let mut puppet = Puppet::start(command);
    puppet.run("import ctypes, ttnn");
    puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
    puppet.run(
        "def inner(): return ttnn.zeros((32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d)\n\
         kept = []\n\
         def key(_): kept.append(inner()); return 0\n\
         def sorting(): sorted([1], key=key)\n\
         def called(): kept.append(inner()); return 0\n\
         back = ctypes.CFUNCTYPE(ctypes.c_int)(called)\n\
         def calling(): back()\n\
         class Maker:\n def __init__(self): kept.append(inner())\n\
         def making(): Maker()",
    );
    let mut seen = BTreeSet::new();
    for (call, wanted) in [
        ("sorting()", &["(inner)", "(key)", "(sorting)"][..]),
        ("making()", &["(inner)", "__init__)", "(making)"]),
        // The callback comes through two libraries that are not the interpreter's.
        ("calling()", &["(inner)", "(called)", "libffi", "_ctypes", "(calling)"]),
    ] {
        puppet.run(call);
        let all = buffers(&ttmem(folder.path(), &["dump", "--json"]));
        let new = all.iter().find(|it| it.origin.tensor.is_some() && seen.insert(it.id.clone())).unwrap();
        let stack = &new.origin.stack;
        let at = positions(stack, wanted);
        println!("{call}: {stack:#?}");
        // The operation's own frames are further inside, and there are no frames of the interpreter.
        assert!(at[0] >= 5, "{stack:#?}");
        assert!(stack[..at[0]].iter().any(|it| it.contains("libtt_metal.so (")), "{stack:#?}");
        assert!(stack[..at[0]].iter().any(|it| it.contains("_ttnncpp.so (ttnn::")), "{stack:#?}");
        assert!(
            !stack.iter().any(|it| it.contains("_PyEval") || it.contains("libttmem_agent")),
            "{stack:#?}"
        );
        assert_eq!(new.origin.op.as_deref(), Some("ttnn.zeros"));
        assert_eq!(new.origin.function.as_deref(), Some("inner"));
    }
    expect_no_drift(folder.path());
    assert!(puppet.quit().success());
}
