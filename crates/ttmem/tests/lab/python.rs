//! The Python package in the process that the agent tracks: it asks the agent's figures, and what it is told by hand counts nowhere.
//! Needs `cargo xtask python`; CI makes it.

use crate::{Puppet, checked, held, lab, process, python, snapshot, tracked};
use std::path::PathBuf;
use ttmem_testkit::memory_folder;

/// Where the wheel was installed. It is for every Python, so it does not matter for which one.
fn package() -> PathBuf {
    let libraries = lab().join("../python/environment/lib");
    let of = std::fs::read_dir(&libraries).expect("run `cargo xtask python` first").flatten();
    let found = of.map(|it| it.path().join("site-packages")).find(|it| it.join("ttmem").exists());
    found.expect("run `cargo xtask python` first")
}

#[test]
fn what_is_told_by_hand_and_what_the_agent_sees_never_count_twice() {
    let folder = memory_folder();
    let script = crate::here().join("puppet.py");
    let python = python(crate::TTNN);
    let mut command = tracked("n150", folder.path(), &[python.to_str().unwrap(), script.to_str().unwrap()]);
    command.env("PYTHONPATH", package());
    let mut puppet = Puppet::start(command);

    // Before the runtime is there, nobody else tells.
    puppet.does("import ttmem");
    puppet.does("hand = ttmem.Tracker(0)");
    puppet.does("hand.alloc('dram', 0x123000, 7 << 20)");
    puppet.does("l1 = ttmem.L1Tracker()");
    puppet.does("l1.track_cb(1024, 2048)");
    assert_eq!(puppet.number("ttmem.memory_allocated(0)"), 7 << 20);
    let before = snapshot(folder.path());
    assert_eq!(process(&before, puppet.pid()).usage[0].usage.dram.as_ref().unwrap().used_bytes, 7 << 20);

    // From its first call on the agent tells, and the package is told in vain.
    puppet.does("import ttnn");
    puppet.does("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
    assert_eq!(puppet.does("ttmem.is_enabled()"), false);
    assert_eq!(puppet.does("ttmem.status().reason"), "agent already tracks this process");
    puppet.does("x = tiles(d, 100)");
    puppet.does("hand.alloc('dram', 0x999000, 1 << 20)");
    puppet.does("l1.cb_alloc(1024, 2048)");
    assert_eq!(puppet.number("l1.cb"), 4 << 20, "it counts on for its owner");
    let seen = snapshot(folder.path());
    let (dram, _) = held(process(&seen, puppet.pid()));
    assert_eq!(dram, puppet.number("view(d, 'DRAM')"), "as the runtime says itself");
    let usage = &process(&seen, puppet.pid()).usage;
    assert_eq!((usage.len(), usage[0].usage.dram.as_ref().unwrap().used_bytes), (1, dram));
    assert_eq!(puppet.number("ttmem.memory_allocated(d)"), dram);
    assert_eq!(puppet.number("ttmem.memory_allocated(0)"), dram);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "one segment, the agent's");
    checked(folder.path());

    // Peaks are the agent's, too, and begin anew when they are told to.
    puppet.does("y = tiles(d, 1000)");
    let both = puppet.number("ttmem.memory_allocated(d)");
    puppet.does("ttnn.deallocate(y)");
    assert_eq!(puppet.number("ttmem.peak(d)"), both);
    puppet.does("ttmem.reset_peak()");
    assert_eq!(puppet.number("ttmem.peak(d)"), dram);
    puppet.does("b = ttmem.track('block')");
    puppet.does("b.__enter__()");
    puppet.does("y = tiles(d, 1000)");
    puppet.does("b.__exit__(None, None, None)");
    assert_eq!(puppet.number("b.peak_bytes['dram']"), both);
    assert_eq!(puppet.number("b.allocated_bytes['dram']"), both - dram);
    let me = format!(
        "[p.tracker.writer.split()[0] for p in ttmem.snapshot(local=True).processes if p.pid == {}]",
        puppet.pid()
    );
    assert_eq!(puppet.does(&me), serde_json::json!(["ttmem-agent"]));
    assert!(puppet.quits().success());
}
