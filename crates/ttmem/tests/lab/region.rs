//! Cases in which tt-metal's own counters are wrong: their figure, the allocator's and ttmem's side by side.

use super::{Puppet, board_variable, exe, held, here, process, python, snapshot};
use std::process::Command;
use ttmem_testkit::memory_folder;

/// A process, and the three figures of its DRAM and L1.
struct Comparison {
    puppet: Puppet,
    folder: std::sync::Arc<tempfile::TempDir>,
    before: [[u64; 3]; 2],
}

impl Comparison {
    /// Starts a process with a private `/dev/shm`, so that the counters are its own.
    fn new() -> Self {
        let folder = memory_folder();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]);
        // The folder of segments stays visible.
        command
            .arg("mount --bind \"$0\" /mnt && mount -t tmpfs none /dev/shm && exec \"$@\"")
            .arg(folder.path());
        command.arg(exe()).args(["run", "--exec", "--shm-dir", "/mnt", "--"]);
        command.arg(python(super::TTNN)).arg(here().join("puppet.py"));
        let (name, value) = board_variable("n150");
        command.env(name, value).env_remove("LD_PRELOAD").env("TT_METAL_LOGGER_LEVEL", "FATAL");
        let mut puppet = Puppet::start(command);
        puppet.run("import ttnn");
        puppet.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
        let mut comparison = Self { puppet, folder, before: [[0; 3]; 2] };
        comparison.before = comparison.now();
        comparison
    }

    /// Current bytes of DRAM and L1: counters, allocator, ttmem.
    fn now(&mut self) -> [[u64; 3]; 2] {
        let seen = snapshot(self.folder.path());
        let ours = held(process(&seen, self.puppet.pid()));
        let mut of = |region: &str, view: &str, ours: u64| {
            let region = self.puppet.number(&format!("region('{region}')"));
            let allocator = self.puppet.number(&format!("view(d, '{view}')"));
            [region, allocator, ours]
        };
        [of("dram", "DRAM", ours.0), of("l1", "L1", ours.1)]
    }

    /// Runs code, and returns by how much each figure has grown: counters, allocator, ttmem.
    fn growth_after(&mut self, code: &str) -> [[u64; 3]; 2] {
        self.puppet.run(code);
        let now = self.now();
        let grown = [0, 1].map(|space| [0, 1, 2].map(|who| now[space][who] - self.before[space][who]));
        self.before = now;
        println!("{code}\n  DRAM, L1; each counters, allocator, ttmem: {grown:?}");
        grown
    }
}

#[test]
fn tensors_of_other_threads_are_tracked() {
    let mut comparison = Comparison::new();
    let [dram, _] = comparison.growth_after("a = on_another_thread(lambda: tiles(d, 1024))");
    assert_eq!(dram, [0, 86 * 12 * 2048, 86 * 12 * 2048]);
    // The counters see the thread that opened the device, but requested bytes instead of allocated ones.
    let [dram, _] = comparison.growth_after("b = tiles(d, 1024)");
    assert_eq!(dram, [1024 * 2048, 86 * 12 * 2048, 86 * 12 * 2048]);
}

#[test]
fn sharded_tensor_occupies_its_range_on_every_core() {
    let mut comparison = Comparison::new();
    let [_, l1] = comparison.growth_after(
        "a = ttnn.empty((32, 128), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d, memory_config=across(4))",
    );
    assert_eq!(l1, [8192, 131_072, 131_072], "16 times more than the counters");
}

#[test]
fn one_tile_occupies_a_page_of_every_bank() {
    let mut comparison = Comparison::new();
    let [dram, _] = comparison.growth_after("a = tiles(d, 1)");
    assert_eq!(dram, [2048, 24_576, 24_576], "12 times more than the counters");
    // After the free, all three agree again.
    comparison.puppet.run("ttnn.deallocate(a)");
    assert_eq!(comparison.now()[0], [0, 0, 0]);
}

#[test]
fn killed_process_leaves_an_entry_in_the_counters_only() {
    let mut comparison = Comparison::new();
    let code = "import subprocess, sys\n\
                child = subprocess.Popen([sys.executable, sys.argv[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n\
                def ask(code):\n    \
                    child.stdin.write(json.dumps(code) + '\\n'); child.stdin.flush()\n    \
                    while not (line := child.stdout.readline()).startswith(ANSWER): assert line\n";
    comparison.puppet.run(code);
    comparison.puppet.run("ask('import ttnn'); ask('d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))'); ask('a = tiles(d, 1024)')");
    let child = comparison.puppet.number("child.pid") as u32;
    assert_eq!(held(process(&snapshot(comparison.folder.path()), child)).0, 86 * 12 * 2048);
    comparison.puppet.run("child.kill(); child.wait()");
    let counted = comparison.puppet.number("region('dram')");
    assert!(counted >= 1024 * 2048, "the counters keep entries of exited processes");
    let seen = snapshot(comparison.folder.path());
    assert!(seen.processes.iter().all(|it| it.pid != Some(child)), "ttmem does not");
    assert_eq!(seen.devices[0].usage.dram.as_ref().unwrap().allocated_bytes, Some(0));
    // The crash segment still has what it held.
    assert_eq!(seen.health.crash_segments, 1);
}
