//! The Python package in a process that the agent tracks: it reads the agent's figures, and its own reports do not count.
//! Needs `cargo xtask python`, which CI runs before.

use crate::{Puppet, expect_no_drift, held, lab, process, python, snapshot, tracked_command};
use std::path::PathBuf;
use ttmem_testkit::memory_folder;

/// Folder of the installed package, which works with every Python.
pub(crate) fn package() -> PathBuf {
    let libraries = lab().join("../python/environment/lib");
    let of = std::fs::read_dir(&libraries).expect("run `cargo xtask python` first").flatten();
    let found = of.map(|it| it.path().join("site-packages")).find(|it| it.join("ttmem").exists());
    found.expect("run `cargo xtask python` first")
}

#[test]
fn manual_reports_and_the_agent_never_count_twice() {
    let folder = memory_folder();
    let script = crate::here().join("puppet.py");
    let python = python(crate::TTNN);
    let mut command =
        tracked_command("n150", folder.path(), &[python.to_str().unwrap(), script.to_str().unwrap()]);
    command.env("PYTHONPATH", package());
    let mut puppet = Puppet::start(command);

    // Before the runtime is loaded, the package reports.
    puppet.run("import ttmem");
    puppet.run("hand = ttmem.Tracker(0)");
    puppet.run("hand.alloc('dram', 0x123000, 7 << 20)");
    puppet.run("l1 = ttmem.L1Tracker()");
    puppet.run("l1.track_cb(1024, 2048)");
    assert_eq!(puppet.number("ttmem.memory_allocated(0)"), 7 << 20);
    let before = snapshot(folder.path());
    assert_eq!(process(&before, puppet.pid()).usage[0].usage.dram.as_ref().unwrap().used_bytes, 7 << 20);

    // From the runtime's first call on the agent reports, and the package's reports are ignored.
    puppet.run("import ttnn");
    puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
    assert_eq!(puppet.run("ttmem.is_enabled()"), false);
    assert_eq!(puppet.run("ttmem.status().reason"), "agent already tracks this process");
    puppet.run("x = tiles(d, 100)");
    puppet.run("hand.alloc('dram', 0x999000, 1 << 20)");
    puppet.run("l1.cb_alloc(1024, 2048)");
    assert_eq!(puppet.number("l1.cb"), 4 << 20, "its own figures still count");
    let seen = snapshot(folder.path());
    let (dram, _) = held(process(&seen, puppet.pid()));
    assert_eq!(dram, puppet.number("view(d, 'DRAM')"), "as the runtime's own call says");
    let usage = &process(&seen, puppet.pid()).usage;
    assert_eq!((usage.len(), usage[0].usage.dram.as_ref().unwrap().used_bytes), (1, dram));
    assert_eq!(puppet.number("ttmem.memory_allocated(d)"), dram);
    assert_eq!(puppet.number("ttmem.memory_allocated(0)"), dram);
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_file())
            .count(),
        1,
        "one segment, the agent's"
    );
    expect_no_drift(folder.path());

    // Peaks are the agent's, too, and can be reset.
    puppet.run("y = tiles(d, 1000)");
    let both = puppet.number("ttmem.memory_allocated(d)");
    puppet.run("ttnn.deallocate(y)");
    assert_eq!(puppet.number("ttmem.peak(d)"), both);
    puppet.run("ttmem.reset_peak()");
    assert_eq!(puppet.number("ttmem.peak(d)"), dram);
    puppet.run("b = ttmem.track('block')");
    puppet.run("b.__enter__()");
    puppet.run("y = tiles(d, 1000)");
    puppet.run("b.__exit__(None, None, None)");
    assert_eq!(puppet.number("b.peak_bytes['dram']"), both);
    assert_eq!(puppet.number("b.allocated_bytes['dram']"), both - dram);
    let tracks = crate::ttmem(folder.path(), &["dump", "--json"]);
    let tracks: ttmem_core::snapshot::Dump = serde_json::from_slice(&tracks.stdout).unwrap();
    let tracks: Vec<_> = tracks.allocations.iter().map(|it| it.origin.track.as_deref()).collect();
    assert_eq!(tracks.iter().filter(|it| **it == Some("block")).count(), 1, "{tracks:?}");
    assert_eq!(tracks.iter().flatten().count(), 1, "others are in no block: {tracks:?}");
    // Blocks and marks are the agent's, too.
    puppet.run("ttmem.mark('step', 12)");
    let mark = process(&snapshot(folder.path()), puppet.pid()).last_mark.clone().unwrap();
    assert_eq!((mark.name.as_deref(), mark.number), (Some("step"), Some(12)));
    let writers = format!(
        "[p.tracker.writer.split()[0] for p in ttmem.snapshot(local=True).processes if p.pid == {}]",
        puppet.pid()
    );
    assert_eq!(puppet.run(&writers), serde_json::json!(["ttmem-agent"]));
    assert!(puppet.quit().success());
}

/// A Python with the package and without the agent.
fn untracked_puppet() -> Puppet {
    let mut command = std::process::Command::new(python(crate::TTNN));
    command.arg(crate::here().join("puppet.py")).env("PYTHONPATH", package()).env_remove("LD_PRELOAD");
    let (name, value) = crate::board_variable("n150");
    command.env(name, value).env("TT_METAL_LOGGER_LEVEL", "FATAL");
    Puppet::start(command)
}

#[test]
fn enable_loads_the_agent_before_ttnn() {
    let folder = memory_folder();
    let mut puppet = untracked_puppet();
    puppet.run("import ttmem");
    let path = folder.path().to_str().unwrap();
    puppet.run(&format!("ttmem.enable(folder={path:?}, agent=True, stacks=8)"));
    puppet.run("import ttnn");
    puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
    puppet.run("x = tiles(d, 100)");
    puppet.run("y = [ttnn.add(x, x) for _ in range(3)]");
    let seen = snapshot(folder.path());
    let (dram, l1) = held(process(&seen, puppet.pid()));
    assert_eq!((dram, l1), (puppet.number("view(d, 'DRAM')"), puppet.number("view(d, 'L1')")));
    expect_no_drift(folder.path());
    let dump = crate::ttmem(folder.path(), &["dump", "--json"]);
    let dump: ttmem_core::snapshot::Dump = serde_json::from_slice(&dump.stdout).unwrap();
    let sums = dump.allocations.iter().filter(|it| it.origin.op.as_deref() == Some("ttnn.add"));
    let stacks: Vec<usize> = sums.map(|it| it.origin.stack.len()).collect();
    assert_eq!(stacks.len(), 3, "{stacks:?}");
    assert!(stacks.iter().all(|&frames| (2..=8).contains(&frames)), "{stacks:?}");
    assert!(puppet.quit().success());
}

/// Names, space, bytes, site and tensor of a buffer.
type Named = (Vec<String>, String, u64, Option<String>, Option<String>);

#[test]
fn variables_that_hold_tensors_are_named() {
    let folder = memory_folder();
    let mut puppet = untracked_puppet();
    puppet.run("import ttmem, gc");
    let path = folder.path().to_str().unwrap();
    puppet.run(&format!("ttmem.enable(folder={path:?}, agent=True)"));
    puppet.run("import ttnn, six_layers");
    puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
    puppet.run("m = six_layers.Model(d)");
    puppet.run("m.step()");
    puppet.run("errors = []");
    puppet.run(
        "def fail():\n    lost = tiles(d, 3)\n    try:\n        raise ValueError\n    except ValueError as e: errors.append(e)",
    );
    puppet.run("fail()");
    puppet.run("def generate():\n    held = tiles(d, 5)\n    yield");
    puppet.run("g = generate(); next(g)");
    puppet.run("def close_over():\n    inner = tiles(d, 7)\n    return lambda: inner");
    puppet.run("f = close_over()");
    let all = puppet.run("[[list(it.names), it.space, it.bytes, it.site, it.tensor] for it in ttmem.who()]");
    let all: Vec<Named> = serde_json::from_value(all).unwrap();
    let names: Vec<&str> = all.iter().flat_map(|it| &it.0).map(String::as_str).collect();
    for (name, count) in [
        ("Attention.qkv", 6),
        ("Attention.keys", 6),
        ("FeedForward.activation", 6),
        ("Model.token", 1),
        ("Model.leaked[0]", 1),
        ("lost in fail (kept traceback of ValueError, __main__.errors[0])", 1),
        ("held in generate (generator)", 1),
        ("inner in close_over.<locals>.<lambda> (closure)", 1),
    ] {
        assert_eq!(names.iter().filter(|it| **it == name).count(), count, "{name}: {all:#?}");
    }
    // Every buffer is there, with a name or without.
    let dram: u64 = all.iter().filter(|it| it.1 == "dram").map(|it| it.2).sum();
    assert_eq!(dram, puppet.number("view(d, 'DRAM')"));
    let key = all.iter().find(|it| it.0 == ["Attention.keys"]).unwrap();
    assert!(key.3.as_deref().unwrap().starts_with("six_layers.py:18"), "{key:?}");
    assert!(puppet.quit().success());
}

#[test]
fn leaks_name_cycles_and_kept_tracebacks() {
    let folder = memory_folder();
    let mut puppet = untracked_puppet();
    puppet.run("import ttmem, gc; gc.disable()");
    let path = folder.path().to_str().unwrap();
    puppet.run(&format!("ttmem.enable(folder={path:?}, agent=True)"));
    puppet.run("import ttnn");
    puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1)); weights = tiles(d, 2)");
    puppet.run("errors = []");
    puppet.run(
        "def fail():\n    lost = tiles(d, 3)\n    try:\n        raise ValueError\n    except ValueError as e: errors.append(e)",
    );
    puppet.run("def tie():\n    knot = [ttnn.relu(weights)]\n    knot.append(knot)");
    puppet.run("fail(); fail(); tie(); tie(); tie()");
    let texts = puppet.run("[str(it) for it in ttmem.leaks()]");
    let texts: Vec<String> = serde_json::from_value(texts).unwrap();
    let [by_line, by_op] = &texts[..] else { panic!("{texts:#?}") };
    // The weights are allocated by the line of `tiles`, too.
    assert!(by_line.contains("in 3 buffers of ttnn.empty, puppet.py:"), "{by_line}");
    assert!(by_line.contains(": 2 held only by kept tracebacks; held by __main__.weights, "), "{by_line}");
    assert!(by_line.contains("lost in fail (kept traceback of ValueError, __main__.errors[0])"), "{by_line}");
    assert!(
        by_op.contains("in 3 buffers of ttnn.relu, <request>:2 (tie): 3 held only by reference cycles"),
        "{by_op}"
    );
    // The cycles are collected now, and the tracebacks end with their exceptions.
    puppet.run("errors.clear()");
    assert_eq!(puppet.run("[str(it) for it in ttmem.leaks()]"), serde_json::json!([]));
    assert!(puppet.quit().success());
}

#[test]
fn enable_after_ttnn_says_what_to_do() {
    let mut puppet = untracked_puppet();
    puppet.run("import ttnn, ttmem");
    puppet.run("def attempt():\n try: ttmem.enable()\n except RuntimeError as e: return str(e)");
    let error = puppet.run("attempt()");
    let error = error.as_str().unwrap();
    assert!(error.contains("before `import ttnn`") && error.contains("ttmem run"), "{error}");
    assert_eq!(puppet.run("ttmem.enable(agent=False)"), true);
    puppet.run("ttmem.close()");
    assert!(puppet.quit().success());
}
