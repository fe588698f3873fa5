//! The cases in which tt-metal's own counters are wrong: the region's figure, the allocator's and ours side by side.

use super::{Puppet, exe, held, here, on, process, python, snapshot};
use std::process::Command;
use ttmem_testkit::memory_folder;

/// What the three say of DRAM and L1, over what they said before.
struct Three {
    puppet: Puppet,
    folder: std::sync::Arc<tempfile::TempDir>,
    before: [[u64; 3]; 2],
}

impl Three {
    /// A machine whose counters are seen by nobody else: with a `/dev/shm` of its own.
    fn new() -> Self {
        let folder = memory_folder();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]);
        // What we read is kept in view.
        command
            .arg("mount --bind \"$0\" /mnt && mount -t tmpfs none /dev/shm && exec \"$@\"")
            .arg(folder.path());
        command.arg(exe()).args(["run", "--shm-dir", "/mnt", "--"]);
        command.arg(python(super::TTNN)).arg(here().join("puppet.py"));
        let (name, value) = on("n150");
        command.env(name, value).env_remove("LD_PRELOAD").env("TT_METAL_LOGGER_LEVEL", "FATAL");
        let mut puppet = Puppet::start(command);
        puppet.does("import ttnn");
        puppet.does("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
        let mut three = Self { puppet, folder, before: [[0; 3]; 2] };
        three.before = three.now();
        three
    }

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

    /// By how much each has grown: region, allocator, ttmem.
    fn after(&mut self, code: &str) -> [[u64; 3]; 2] {
        self.puppet.does(code);
        let now = self.now();
        let grown = [0, 1].map(|space| [0, 1, 2].map(|who| now[space][who] - self.before[space][who]));
        self.before = now;
        println!("{code}\n  DRAM, L1; each region, allocator, ttmem: {grown:?}");
        grown
    }
}

#[test]
fn a_tensor_of_another_thread_is_lost_to_the_region_and_not_to_us() {
    let mut three = Three::new();
    let [dram, _] = three.after("a = on_another_thread(lambda: tiles(d, 1024))");
    assert_eq!(dram, [0, 86 * 12 * 2048, 86 * 12 * 2048]);
    // By the thread that opened the device it does count, though not what the allocator takes for it.
    let [dram, _] = three.after("b = tiles(d, 1024)");
    assert_eq!(dram, [1024 * 2048, 86 * 12 * 2048, 86 * 12 * 2048]);
}

#[test]
fn a_sharded_tensor_takes_the_same_place_on_every_core() {
    let mut three = Three::new();
    let [_, l1] = three.after(
        "a = ttnn.empty((32, 128), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d, memory_config=across(4))",
    );
    assert_eq!(l1, [8192, 131_072, 131_072], "16 times more than the region says");
}

#[test]
fn one_tile_takes_a_place_in_every_bank() {
    let mut three = Three::new();
    let [dram, _] = three.after("a = tiles(d, 1)");
    assert_eq!(dram, [2048, 24_576, 24_576], "12 times more than the region says");
    // Freed, all three agree again.
    three.puppet.does("ttnn.deallocate(a)");
    assert_eq!(three.now()[0], [0, 0, 0]);
}

#[test]
fn a_killed_process_leaves_a_ghost_in_the_region_and_nothing_with_us() {
    let mut three = Three::new();
    let code = "import subprocess, sys\n\
                child = subprocess.Popen([sys.executable, sys.argv[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n\
                def ask(code):\n    \
                    child.stdin.write(json.dumps(code) + '\\n'); child.stdin.flush()\n    \
                    while not (line := child.stdout.readline()).startswith(ANSWER): assert line\n";
    three.puppet.does(code);
    three.puppet.does("ask('import ttnn'); ask('d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))'); ask('a = tiles(d, 1024)')");
    let child = three.puppet.number("child.pid") as u32;
    assert_eq!(held(process(&snapshot(three.folder.path()), child)).0, 86 * 12 * 2048);
    three.puppet.does("child.kill(); child.wait()");
    assert!(three.puppet.number("region('dram')") >= 1024 * 2048, "the region keeps what the dead had");
    let seen = snapshot(three.folder.path());
    assert!(seen.processes.iter().all(|it| it.pid != Some(child)), "we do not");
    assert_eq!(seen.devices[0].usage.dram.as_ref().unwrap().allocated_bytes, Some(0));
    // What it held when it died can still be read.
    assert_eq!(seen.health.crash_segments, 1);
}
