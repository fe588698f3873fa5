//! Workloads that are started, forked and ended in every way.

use super::{
    Puppet, TTNN, exe, expect_no_drift, held, here, linked_command, process, python, snapshot,
    tracked_command, ttmem,
};
use std::path::Path;
use std::process::{Command, Output};
use ttmem_core::Detail;
use ttmem_core::snapshot::EventKind;
use ttmem_reader::Session;
use ttmem_sources::SourceConfig;
use ttmem_testkit::{eventually, memory_folder};

const TILE: u64 = 12 * 2048;

/// Runs a program to its end, which must succeed.
fn run(board: &str, folder: &Path, program: &[&str]) -> Output {
    let output = tracked_command(board, folder, program).env("PYTHONPATH", here()).output().unwrap();
    let text = || String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}", text());
    output
}

/// The results that a script printed.
fn results(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| Some(line.split_once("result: ")?.1.to_owned())).collect()
}

/// Python code of `held_tiles`, a function that returns the DRAM of each process with a segment, in tiles, by pid.
fn python_helper(folder: &Path) -> String {
    format!(
        "def held_tiles():\n    import subprocess, json, os\n    \
         env = {{k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}}\n    \
         out = subprocess.run([{exe:?}, '--json', '--local', '--shm-dir', {folder:?}], env=env, capture_output=True).stdout\n    \
         of = lambda p: sum(s['allocated_bytes'] for a in p.get('allocators', []) for s in a['spaces'] if s['space'] == 'dram')\n    \
         return {{p['pid']: of(p) // {TILE} for p in json.loads(out)['processes']}}\n",
        exe = exe().to_str().unwrap(),
        folder = folder.to_str().unwrap(),
    )
}

#[test]
fn pytest_is_tracked() {
    let folder = memory_folder();
    let tests = tempfile::tempdir().unwrap();
    let file = tests.path().join("test_model.py");
    let text = python_helper(folder.path())
        + "import os\nimport ttnn\nfrom puppet import tiles\nimport puppet\npuppet.ttnn = ttnn\n\n\
           def test_model():\n    \
               d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))\n    \
               held = tiles(d, 3)\n    \
               assert held_tiles()[os.getpid()] == 1, 'three tiles occupy one slot of each of twelve banks'\n    \
               more = tiles(d, 13)\n    \
               assert held_tiles()[os.getpid()] == 3\n    \
               ttnn.deallocate(held)\n    \
               assert held_tiles()[os.getpid()] == 2\n    \
               ttnn.close_mesh_device(d)\n    \
               assert held_tiles()[os.getpid()] == 0\n";
    std::fs::write(&file, text).unwrap();
    let python = python(TTNN);
    let output = run(
        "n150",
        folder.path(),
        &[python.to_str().unwrap(), "-m", "pytest", "-q", "-p", "no:cacheprovider", file.to_str().unwrap()],
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    assert_eq!(snapshot(folder.path()).processes.len(), 0, "it exited");
}

#[test]
fn shell_and_its_children_are_tracked() {
    let folder = memory_folder();
    let script = python_helper(folder.path())
        + "import os, sys\nimport ttnn, puppet\npuppet.ttnn = ttnn\n\
           d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))\nheld = puppet.tiles(d, 1)\n\
           print('result:', held_tiles() == {os.getpid(): 1})\nttnn.close_mesh_device(d)\n";
    let file = folder.path().join("model.py");
    std::fs::write(&file, script).unwrap();
    // The shell, cat and wc have no segments.
    let line = format!("echo begin | cat && {} {} && ls / | wc -l", python(TTNN).display(), file.display());
    let output = run("n150", folder.path(), &["bash", "-c", &line]);
    assert_eq!(results(&output), ["True"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("begin\n"));
}

#[test]
fn multiprocessing_workers_are_tracked_separately() {
    for method in ["fork", "spawn"] {
        let folder = memory_folder();
        let script = python_helper(folder.path())
            + &format!(
                "import multiprocessing, os\nimport ttnn, puppet\npuppet.ttnn = ttnn\n\n\
                 def work(pipe):\n    \
                     d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))\n    \
                     held = [puppet.tiles(d, 1) for _ in range(5)]\n    \
                     pipe.send(os.getpid()); pipe.recv()\n    \
                     ttnn.close_mesh_device(d)\n\n\
                 if __name__ == '__main__':\n    \
                     context = multiprocessing.get_context('{method}')\n    \
                     ends = [context.Pipe() for _ in range(3)]\n    \
                     workers = [context.Process(target=work, args=(end,)) for _, end in ends]\n    \
                     [worker.start() for worker in workers]\n    \
                     pids = [end.recv() for end, _ in ends]\n    \
                     d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1)); held = puppet.tiles(d, 1)\n    \
                     print('result:', held_tiles() == {{os.getpid(): 1}} | {{pid: 5 for pid in pids}})\n    \
                     [end.send(0) for end, _ in ends]; [worker.join() for worker in workers]\n    \
                     print('result:', held_tiles() == {{os.getpid(): 1}})\n"
            );
        let file = folder.path().join("model.py");
        std::fs::write(&file, script).unwrap();
        let output = run("n150", folder.path(), &[python(TTNN).to_str().unwrap(), file.to_str().unwrap()]);
        assert_eq!(results(&output), ["True", "True"], "{method}");
    }
}

#[test]
fn fork_with_an_open_device_keeps_the_parents_figures() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("n150", folder.path(), "1, 1");
    puppet.run("a = [tiles(d, 1) for _ in range(4)]");
    // The child frees two of its parent's tensors, and allocates one.
    puppet.run(
        "child = os.fork()\n\
         if child == 0:\n    ttnn.deallocate(a[0]); ttnn.deallocate(a[1]); b = tiles(d, 1)\n    import time; time.sleep(600)\n",
    );
    let child = puppet.number("child") as u32;
    let seen = eventually("the child has allocated one", || {
        let seen = snapshot(folder.path());
        seen.processes.iter().any(|it| it.pid == Some(child) && held(it).0 == TILE).then_some(seen)
    });
    assert_eq!(held(process(&seen, puppet.pid())).0, 4 * TILE);
    // The child's allocator counts inherited buffers, which is no drift.
    let output = ttmem(folder.path(), &["check", "--fresh", "--wait", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    puppet.run("os.kill(child, 9); os.waitpid(child, 0)");
    expect_no_drift(folder.path());
    assert_eq!(held(process(&snapshot(folder.path()), puppet.pid())).0, 4 * TILE);
}

#[test]
fn killed_process_leaves_only_a_crash_segment() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("t3k", folder.path(), "2, 4");
    puppet.run(
        "import threading\n\
         def work():\n    \
             while True:\n        keep = [tiles(d, 1) for _ in range(50)]\n        del keep\n\
         [threading.Thread(target=work, daemon=True).start() for _ in range(3)]\n",
    );
    eventually("the threads allocate", || {
        let seen = snapshot(folder.path());
        seen.processes.first().filter(|it| it.sequence > Some(5000)).map(|_| ())
    });
    let pid = puppet.pid();
    puppet.kill();
    let seen = snapshot(folder.path());
    assert!(seen.processes.is_empty() && seen.health.crash_segments == 1);
    let mut files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let name = files.find(|path| path.is_file()).unwrap();
    let output = Command::new(exe()).args(["dump", "--json", "--segment"]).arg(&name).output().unwrap();
    let dump: serde_json::Value = ttmem_testkit::schema::dump(&output.stdout);
    let listed = dump["allocations"].as_array().unwrap();
    assert!(listed.iter().all(|it| it["pid"] == pid && it["devices"].as_array().unwrap().len() == 8));
}

#[test]
fn processes_on_one_chip_are_tracked_separately() {
    let folder = memory_folder();
    let mut one = Puppet::start_with_device("n150", folder.path(), "1, 1");
    let mut other = Puppet::start_with_device("n150", folder.path(), "1, 1");
    one.run("a = [tiles(d, 1) for _ in range(3)]");
    other.run("a = [tiles(d, 1) for _ in range(2)]");
    let seen = snapshot(folder.path());
    assert_eq!(held(process(&seen, one.pid())).0, 3 * TILE);
    assert_eq!(held(process(&seen, other.pid())).0, 2 * TILE);
    assert_eq!(seen.devices.len(), 1, "it is one chip: {:#?}", seen.devices);
    // On a real chip only one could have it open; here both have the same addresses, which count once.
    assert_eq!(seen.devices[0].usage.dram.as_ref().unwrap().allocated_bytes, Some(3 * TILE));
    expect_no_drift(folder.path());
    assert!(one.quit().success());
    assert_eq!(snapshot(folder.path()).processes.len(), 1);
}

#[test]
fn cpp_program_linked_with_the_runtime_is_tracked() {
    let folder = memory_folder();
    let mut puppet = Puppet::start(linked_command(folder.path(), "program.cpp", &["-O1"]));
    // It answers as the puppet does, whatever the request is.
    puppet.run("open");
    let own = puppet.number("take");
    let seen = snapshot(folder.path());
    let process = process(&seen, puppet.pid());
    assert_eq!(held(process).1, own, "allocated in L1 by its allocator's own statistics");
    assert!(own > 0);
    expect_no_drift(folder.path());
    assert!(puppet.quit().success());
}

#[test]
fn device_opened_and_closed_once_is_reported_once() {
    let folder = memory_folder();
    let mut puppet = Puppet::start_tracked("n150", folder.path());
    let mut session = Session::local(SourceConfig::segments(folder.path()));
    puppet.run("import ttnn");
    for open in
        ["ttnn.open_mesh_device(ttnn.MeshShape(1, 1))", "ttnn.open_device(device_id=0, l1_small_size=8192)"]
    {
        puppet.run(&format!("d = {open}"));
        puppet.run("a = tiles(d, 1)");
        session.refresh();
        puppet.run("del a; ttnn.close_device(d)");
        session.refresh();
    }
    let snapshot = session.snapshot(&Detail { events: true, ..Detail::NONE });
    let events = snapshot.events.unwrap();
    let count =
        |kind| events.iter().filter(|it| it.kind == kind).map(|it| it.text.as_str()).collect::<Vec<_>>();
    let who = format!("pid {} (python puppet.py)", puppet.pid());
    // Twice each: once for either function.
    assert_eq!(count(EventKind::AllocatorOpened), [format!("{who} opened device 0 x2")]);
    assert_eq!(count(EventKind::AllocatorClosed), [format!("{who} closed device 0 x2")]);
}
