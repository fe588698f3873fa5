//! The Python package in a process that the agent tracks: it reads the agent's figures, and its own reports do not count.
//! Needs `cargo xtask python`, which CI runs before.

use crate::{Puppet, expect_no_drift, held, lab, process, python, snapshot, tracked_command};
use std::path::PathBuf;
use ttmem_testkit::memory_folder;

/// Folder of the installed package, which works with every Python.
fn package() -> PathBuf {
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
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "one segment, the agent's");
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
    let writers = format!(
        "[p.tracker.writer.split()[0] for p in ttmem.snapshot(local=True).processes if p.pid == {}]",
        puppet.pid()
    );
    assert_eq!(puppet.run(&writers), serde_json::json!(["ttmem-agent"]));
    assert!(puppet.quit().success());
}
