//! However the workload is started, split and ended.

use super::{Puppet, TTNN, checked, exe, held, here, lab, process, python, snapshot, tracked, ttmem};
use std::path::Path;
use std::process::{Command, Output};
use ttmem_core::Detail;
use ttmem_core::snapshot::EventKind;
use ttmem_reader::Session;
use ttmem_sources::SourceConfig;
use ttmem_testkit::{eventually, memory_folder};

const TILE: u64 = 12 * 2048;

/// Runs something to its end, with a look at what it holds from inside: `sys.argv[1]` is what asks ttmem.
fn run(board: &str, folder: &Path, program: &[&str]) -> Output {
    let output = tracked(board, folder, program).env("PYTHONPATH", here()).output().unwrap();
    let text = || String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}", text());
    output
}

/// Lines of what it printed that are ours.
fn told(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| Some(line.split_once("told: ")?.1.to_owned())).collect()
}

/// Python that prints what each process with a segment holds in DRAM, in tiles: pid, then tiles.
fn look(folder: &Path) -> String {
    format!(
        "def look():\n    import subprocess, json, os\n    \
         env = {{k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}}\n    \
         out = subprocess.run([{exe:?}, '--json', '--local', '--shm-dir', {folder:?}], env=env, capture_output=True).stdout\n    \
         of = lambda p: sum(s['allocated_bytes'] for a in p.get('allocators', []) for s in a['spaces'] if s['space'] == 'dram')\n    \
         return {{p['pid']: of(p) // {TILE} for p in json.loads(out)['processes']}}\n",
        exe = exe().to_str().unwrap(),
        folder = folder.to_str().unwrap(),
    )
}

#[test]
fn pytest_is_followed() {
    let folder = memory_folder();
    let tests = tempfile::tempdir().unwrap();
    let file = tests.path().join("test_model.py");
    let text = look(folder.path())
        + "import os\nimport ttnn\nfrom puppet import tiles\nimport puppet\npuppet.ttnn = ttnn\n\n\
           def test_model():\n    \
               d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))\n    \
               held = tiles(d, 3)\n    \
               assert look()[os.getpid()] == 1, 'three tiles lie in one place of each of twelve banks'\n    \
               more = tiles(d, 13)\n    \
               assert look()[os.getpid()] == 3\n    \
               ttnn.deallocate(held)\n    \
               assert look()[os.getpid()] == 2\n    \
               ttnn.close_mesh_device(d)\n    \
               assert look()[os.getpid()] == 0\n";
    std::fs::write(&file, text).unwrap();
    let python = python(TTNN);
    let output = run(
        "n150",
        folder.path(),
        &[python.to_str().unwrap(), "-m", "pytest", "-q", "-p", "no:cacheprovider", file.to_str().unwrap()],
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    assert_eq!(snapshot(folder.path()).processes.len(), 0, "it ended");
}

#[test]
fn a_shell_and_what_it_starts_are_followed() {
    let folder = memory_folder();
    let script = look(folder.path())
        + "import os, sys\nimport ttnn, puppet\npuppet.ttnn = ttnn\n\
           d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))\nheld = puppet.tiles(d, 1)\n\
           print('told:', look() == {os.getpid(): 1})\nttnn.close_mesh_device(d)\n";
    let file = folder.path().join("model.py");
    std::fs::write(&file, script).unwrap();
    // The shell, its cat and its wc have nothing to say.
    let line = format!("echo begin | cat && {} {} && ls / | wc -l", python(TTNN).display(), file.display());
    let output = run("n150", folder.path(), &["bash", "-c", &line]);
    assert_eq!(told(&output), ["True"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("begin\n"));
}

#[test]
fn processes_that_python_forks_or_spawns_are_their_own() {
    for method in ["fork", "spawn"] {
        let folder = memory_folder();
        let script = look(folder.path())
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
                     print('told:', look() == {{os.getpid(): 1}} | {{pid: 5 for pid in pids}})\n    \
                     [end.send(0) for end, _ in ends]; [worker.join() for worker in workers]\n    \
                     print('told:', look() == {{os.getpid(): 1}})\n"
            );
        let file = folder.path().join("model.py");
        std::fs::write(&file, script).unwrap();
        let output = run("n150", folder.path(), &[python(TTNN).to_str().unwrap(), file.to_str().unwrap()]);
        assert_eq!(told(&output), ["True", "True"], "{method}");
    }
}

#[test]
fn a_fork_with_a_device_open_leaves_the_parents_figures_alone() {
    let folder = memory_folder();
    let mut puppet = Puppet::with_device("n150", folder.path(), "1, 1");
    puppet.does("a = [tiles(d, 1) for _ in range(4)]");
    // The child frees two of its parent's, and takes one for itself.
    puppet.does(
        "child = os.fork()\n\
         if child == 0:\n    ttnn.deallocate(a[0]); ttnn.deallocate(a[1]); b = tiles(d, 1)\n    import time; time.sleep(600)\n",
    );
    let child = puppet.number("child") as u32;
    let seen = eventually("the child has taken one", || {
        let seen = snapshot(folder.path());
        seen.processes.iter().any(|it| it.pid == Some(child) && held(it).0 == TILE).then_some(seen)
    });
    assert_eq!(held(process(&seen, puppet.pid())).0, 4 * TILE);
    // The child's allocator counts what it inherited: that is no drift.
    let output = ttmem(folder.path(), &["check", "--fresh", "--wait", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    puppet.does("os.kill(child, 9); os.waitpid(child, 0)");
    checked(folder.path());
    assert_eq!(held(process(&snapshot(folder.path()), puppet.pid())).0, 4 * TILE);
}

#[test]
fn a_process_killed_in_the_middle_leaves_nothing_but_its_black_box() {
    let folder = memory_folder();
    let mut puppet = Puppet::with_device("t3k", folder.path(), "2, 4");
    puppet.does(
        "import threading\n\
         def work():\n    \
             while True:\n        keep = [tiles(d, 1) for _ in range(50)]\n        del keep\n\
         [threading.Thread(target=work, daemon=True).start() for _ in range(3)]\n",
    );
    eventually("it is at work", || {
        let seen = snapshot(folder.path());
        seen.processes.first().filter(|it| it.sequence > Some(5000)).map(|_| ())
    });
    let pid = puppet.pid();
    puppet.killed();
    let seen = snapshot(folder.path());
    assert!(seen.processes.is_empty() && seen.health.crash_segments == 1);
    let name = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let output = Command::new(exe()).args(["dump", "--json", "--segment"]).arg(&name).output().unwrap();
    let dump: serde_json::Value = ttmem_testkit::schema::dump(&output.stdout);
    let listed = dump["allocations"].as_array().unwrap();
    assert!(listed.iter().all(|it| it["pid"] == pid && it["devices"].as_array().unwrap().len() == 8));
}

#[test]
fn two_processes_on_one_chip_are_both_right() {
    let folder = memory_folder();
    let mut one = Puppet::with_device("n150", folder.path(), "1, 1");
    let mut other = Puppet::with_device("n150", folder.path(), "1, 1");
    one.does("a = [tiles(d, 1) for _ in range(3)]");
    other.does("a = [tiles(d, 1) for _ in range(2)]");
    let seen = snapshot(folder.path());
    assert_eq!(held(process(&seen, one.pid())).0, 3 * TILE);
    assert_eq!(held(process(&seen, other.pid())).0, 2 * TILE);
    assert_eq!(seen.devices.len(), 1, "it is one chip: {:#?}", seen.devices);
    // On a real chip only one could have it; here both were given the same addresses, and ttmem says so.
    assert_eq!(seen.devices[0].usage.dram.as_ref().unwrap().allocated_bytes, Some(3 * TILE));
    checked(folder.path());
    assert!(one.quits().success());
    assert_eq!(snapshot(folder.path()).processes.len(), 1);
}

#[test]
fn a_cpp_program_linked_with_the_runtime_is_followed() {
    let folder = memory_folder();
    let versions = std::fs::read_dir(lab().join(TTNN).join("lib")).unwrap();
    let site = versions.flatten().map(|it| it.path().join("site-packages")).find(|it| it.is_dir()).unwrap();
    let libraries = site.join("ttnn/build/lib");
    let program = folder.path().join("program");
    let built = Command::new("g++")
        .args(["-std=c++20", "-O1", "-o"])
        .arg(&program)
        .arg(here().join("program.cpp"))
        .arg(libraries.join("libtt_metal.so"))
        .arg(format!("-Wl,-rpath,{0}:{1}", libraries.display(), site.join("ttnn.libs").display()))
        .arg(format!("-Wl,-rpath-link,{0}:{1}", libraries.display(), site.join("ttnn.libs").display()))
        .arg("-Wl,--allow-shlib-undefined")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = tracked("n150", folder.path(), &[program.to_str().unwrap()]);
    command.env("TT_METAL_RUNTIME_ROOT", site.join("ttnn")).env("TT_METAL_HOME", site.join("ttnn"));
    command.env("TT_METAL_CACHE", lab().join(TTNN).join("kernels/0"));
    // It leaves files wherever it is started.
    command.current_dir(folder.path());
    let mut puppet = Puppet::start(command);
    // It answers as the puppet does; what it is told does not matter.
    puppet.does("open");
    let own = puppet.number("take");
    let seen = snapshot(folder.path());
    let it = process(&seen, puppet.pid());
    assert_eq!(held(it).1, own, "what its allocator says is allocated in L1");
    assert!(own > 0);
    checked(folder.path());
    assert!(puppet.quits().success());
}

#[test]
fn device_opened_and_closed_once_is_reported_once() {
    let folder = memory_folder();
    let mut puppet = Puppet::tracked("n150", folder.path());
    let mut session = Session::local(SourceConfig::segments(folder.path()));
    puppet.does("import ttnn");
    for open in
        ["ttnn.open_mesh_device(ttnn.MeshShape(1, 1))", "ttnn.open_device(device_id=0, l1_small_size=8192)"]
    {
        puppet.does(&format!("d = {open}"));
        puppet.does("a = tiles(d, 1)");
        session.refresh();
        puppet.does("del a; ttnn.close_device(d)");
        session.refresh();
    }
    let snapshot = session.snapshot(&Detail { events: true, ..Detail::NONE });
    let events = snapshot.events.unwrap();
    let count =
        |kind| events.iter().filter(|it| it.kind == kind).map(|it| it.text.as_str()).collect::<Vec<_>>();
    let who = format!("pid {} (python puppet.py)", puppet.pid());
    // Twice each: once by either way.
    assert_eq!(count(EventKind::AllocatorOpened), [format!("{who} opened device 0 x2")]);
    assert_eq!(count(EventKind::AllocatorClosed), [format!("{who} closed device 0 x2")]);
}
