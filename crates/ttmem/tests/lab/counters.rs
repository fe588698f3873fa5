//! Stock ttnn without the agent: tt-metal's counters as ttmem shows them, compared with the files.

use super::{Puppet, TTNN, board_variable, exe, here, process, python};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use ttmem_core::Snapshot;
use ttmem_core::snapshot::{FindingKind, Usage};
use ttmem_core::words::{Basis, Space};
use ttmem_testkit::eventually;

const SPACES: [Space; 5] = [Space::Dram, Space::L1, Space::L1Small, Space::Trace, Space::Cb];

/// A mount namespace with a private `/dev/shm`, which is also mounted on a folder with a unique name.
struct Machine {
    holder: Child,
    name: TempDir,
    board: &'static str,
}

impl Machine {
    fn new(board: &'static str) -> Self {
        let name = tempfile::Builder::new().prefix("ttmem-lab.").tempdir().unwrap();
        let script = "mount -t tmpfs -o mode=1777 none /dev/shm && mount --bind /dev/shm \"$0\" && touch /dev/shm/ready && exec sleep 3600";
        let holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(name.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let machine = Self { holder, name, board };
        eventually("the private /dev/shm is mounted", || {
            machine.memory().join("ready").exists().then_some(())
        });
        machine
    }

    /// The private `/dev/shm`, seen from outside.
    fn memory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.holder.id(), self.name.path().display()))
    }

    /// A command that runs in the namespace.
    fn command(&self, through: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m"]).args(through);
        command.env_remove("LD_PRELOAD");
        command
    }

    /// Starts a ttnn with a device open as `d`, through another program if `through` names one.
    fn ttnn(&self, version: &str, shape: &str, through: &[&str]) -> Puppet {
        let mut puppet = self.python(version, through);
        puppet.run("import ttnn");
        puppet.run(&format!("d = ttnn.open_mesh_device(ttnn.MeshShape({shape}))"));
        puppet
    }

    fn python(&self, version: &str, through: &[&str]) -> Puppet {
        let mut command = self.command(through);
        command.arg(python(version)).arg(here().join("puppet.py"));
        let (name, value) = board_variable(self.board);
        command.env(name, value).env("TT_METAL_LOGGER_LEVEL", "FATAL");
        Puppet::start(command)
    }

    fn snapshot(&self, through: &[&str], args: &[&str]) -> Snapshot {
        let mut command = self.command(through);
        command.arg(exe()).args(["--json", "--local", "--shm-dir"]).arg(self.name.path()).args(args);
        let output = command.output().unwrap();
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        ttmem_testkit::schema::snapshot(&output.stdout)
    }

    /// The files' counters, by chip and pid, read by offset.
    fn file_counters(&self) -> BTreeMap<(String, i32), [u64; 5]> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(self.memory()).unwrap() {
            let path = entry.unwrap().path();
            let Some(id) = id_of(&path) else { continue };
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len(), 8576);
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            for slot in (0..64).map(|n| 856 + 120 * n) {
                let pid = i32::from_le_bytes(bytes[slot..slot + 4].try_into().unwrap());
                if pid != 0 {
                    all.insert((id.clone(), pid), [0, 1, 2, 3, 4].map(|n| word(slot + 8 + 8 * n)));
                }
            }
        }
        all
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn id_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_prefix("tt_device_")?.strip_suffix("_memory")?;
    Some(format!("0x{:016x}", name.parse::<u64>().unwrap()))
}

fn figures(usage: &Usage) -> [u64; 5] {
    SPACES.map(|space| {
        usage.used(space).map_or(0, |(bytes, basis)| {
            assert_eq!(basis, Basis::Counters);
            bytes
        })
    })
}

/// Checks that a snapshot has the files' counters of every chip and process, and no others. Returns their number.
fn compare(machine: &Machine, snapshot: &Snapshot, pids: &[u32]) -> usize {
    let files = machine.file_counters();
    let mut sums: BTreeMap<&str, [u64; 5]> = BTreeMap::new();
    for ((chip, pid), held) in &files {
        assert!(pids.contains(&(*pid as u32)), "{pid}");
        let usage = &process(snapshot, *pid as u32).usage;
        let of = usage.iter().find(|it| it.device == *chip).unwrap_or_else(|| panic!("{pid} on {chip}"));
        assert_eq!(figures(&of.usage), *held, "pid {pid} on {chip}");
        let sum = sums.entry(chip).or_default();
        *sum = std::array::from_fn(|n| sum[n] + held[n]);
    }
    assert_eq!(snapshot.processes.len(), pids.len());
    assert_eq!(snapshot.devices.len(), sums.len());
    for device in &snapshot.devices {
        assert_eq!(figures(&device.usage), sums[device.id.as_str()], "device {}", device.index);
    }
    files.len()
}

const WORK: &str = "a = tiles(d, 1024); b = tiles(d, 96, ttnn.L1_MEMORY_CONFIG); c = ttnn.add(a, a)";

#[test]
fn counters_of_every_board_match_the_files() {
    for (board, version, shape, chips) in [
        ("n150", TTNN, "1, 1", 1),
        ("n300", TTNN, "1, 2", 2),
        ("t3k", TTNN, "2, 4", 8),
        ("p150", TTNN, "1, 1", 1),
        ("galaxy", TTNN, "8, 4", 32),
        ("n150", "0.76.0", "1, 1", 1),
        ("n300", "0.76.0", "1, 2", 2),
        ("t3k", "0.76.0", "2, 4", 8),
        ("p150", "0.76.0", "1, 1", 1),
        ("galaxy", "0.76.0", "8, 4", 32),
    ] {
        let machine = Machine::new(board);
        let mut puppet = machine.ttnn(version, shape, &[]);
        puppet.run(WORK);
        let pid = puppet.pid();
        let snapshot = machine.snapshot(&[], &[]);
        assert_eq!(compare(&machine, &snapshot, &[pid]), chips, "{board} {version}");
        assert_eq!(snapshot.health.counter_files as usize, chips);
        let sum = figures(&snapshot.devices[0].usage);
        assert!(sum[0] >= 2 << 20 && sum[1] >= 96 * 2048, "{board} {version}: {sum:?}");
        // With the cluster descriptor, boards, remote chips and capacities are known.
        let (_, descriptor) = board_variable(board);
        let described = machine.snapshot(&[], &["--topology", descriptor.to_str().unwrap()]);
        compare(&machine, &described, &[pid]);
        let remote = described.devices.iter().filter(|it| it.remote).count();
        assert_eq!(
            remote,
            match board {
                "n300" => 1,
                "t3k" => 4,
                _ => 0,
            }
        );
        let cores = described.devices[0].capacity.unwrap().cores;
        assert_eq!(
            cores,
            match board {
                "n150" => 72,
                "n300" | "t3k" => 64,
                "galaxy" => 80,
                _ => 120,
            }
        );
        // A killed process leaves its entries in the files, and nothing in the snapshot.
        puppet.kill();
        assert_eq!(machine.file_counters().len(), chips, "the files keep entries of exited processes");
        let snapshot = machine.snapshot(&[], &["--topology", descriptor.to_str().unwrap()]);
        assert!(snapshot.processes.is_empty());
        assert!(snapshot.devices.iter().all(|it| it.usage == Usage::default()));
        let ghosts = snapshot.findings.iter().filter(|it| it.kind == FindingKind::GhostBytes);
        assert_eq!(ghosts.map(|it| (it.pid, it.count)).collect::<Vec<_>>(), [(Some(pid), chips as u64)]);
    }
}

#[test]
fn processes_on_one_chip_have_separate_counters() {
    let machine = Machine::new("n300");
    let mut one = machine.ttnn(TTNN, "1, 2", &[]);
    let mut other = machine.ttnn(TTNN, "1, 1", &[]);
    one.run(WORK);
    other.run("a = tiles(d, 7)");
    let pids = [one.pid(), other.pid()];
    compare(&machine, &machine.snapshot(&[], &[]), &pids);
    one.run("ttnn.deallocate(a)");
    compare(&machine, &machine.snapshot(&[], &[]), &pids);
    other.run("ttnn.close_mesh_device(d)");
    let snapshot = machine.snapshot(&[], &[]);
    compare(&machine, &snapshot, &pids[..1]);
    assert_eq!(snapshot.findings, []);
}

#[test]
fn process_in_another_pid_namespace_is_found() {
    let machine = Machine::new("n150");
    let mut inner =
        machine.ttnn(TTNN, "1, 1", &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    inner.run("a = tiles(d, 1024)");
    let own = inner.number("os.getpid()");
    let files = machine.file_counters();
    assert!(
        files.keys().all(|(_, pid)| i64::from(*pid) == own as i64),
        "the file has the pid of the process's own namespace"
    );
    let snapshot = machine.snapshot(&[], &[]);
    let [process] = &snapshot.processes[..] else { panic!("{:#?}", snapshot.processes) };
    assert_ne!(process.pid, Some(own as u32));
    assert_eq!(process.reported_pid, Some(own as i64));
    assert_eq!(process.name.as_deref(), Some("python"));
    assert_eq!(figures(&process.usage[0].usage), *files.values().next().unwrap());
    assert_eq!(snapshot.findings, [], "it is no ghost");
    // From inside such a namespace, a process outside is not visible: it is neither counted nor reported as exited.
    let mut outer = machine.ttnn(TTNN, "1, 1", &[]);
    outer.run("a = tiles(d, 5)");
    let snapshot = machine.snapshot(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"], &[]);
    let pid = outer.pid();
    let finding = snapshot.findings.iter().find(|it| it.pid == Some(pid)).unwrap();
    assert!(finding.text.contains("exited or is not visible"), "{}", finding.text);
}

#[test]
fn other_users_process_is_shown_to_root_and_named_to_others() {
    let machine = Machine::new("n150");
    let mut theirs = machine.python(TTNN, &[]);
    theirs.run("import ttnn");
    theirs.run("become(65534)");
    theirs.run("d = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))");
    theirs.run("a = tiles(d, 1024)");
    let pid = theirs.pid();
    let snapshot = machine.snapshot(&[], &[]);
    compare(&machine, &snapshot, &[pid]);
    assert_eq!(process(&snapshot, pid).user.as_deref(), Some("nobody"));
    // Its user sees it; a third user sees whose it is, and what to do.
    let owner = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    compare(&machine, &machine.snapshot(&owner, &[]), &[pid]);
    let third = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"];
    let snapshot = machine.snapshot(&third, &[]);
    assert!(snapshot.processes.is_empty());
    let [skipped] = &snapshot.health.skipped[..] else { panic!("{:?}", snapshot.health.skipped) };
    assert!(skipped.reason.contains("belongs to nobody"), "{skipped:?}");
}

#[test]
fn processes_with_and_without_agent_are_counted_once() {
    let machine = Machine::new("n150");
    let exe = exe().to_str().unwrap();
    let name = machine.name.path().to_str().unwrap();
    let mut tracked = machine.ttnn(TTNN, "1, 1", &[exe, "run", "--exec", "--shm-dir", name, "--"]);
    let mut plain = machine.ttnn(TTNN, "1, 1", &[]);
    tracked.run("a = tiles(d, 1)");
    plain.run("a = tiles(d, 1)");
    let snapshot = machine.snapshot(&[], &[]);
    assert_eq!((snapshot.devices.len(), snapshot.processes.len()), (1, 2));
    let of = |pid: u32| {
        let process = process(&snapshot, pid);
        let dram = process.usage[0].usage.dram.as_ref().unwrap();
        (process.basis, dram.basis, dram.used_bytes)
    };
    // One by events, with allocated bytes; the other by counters, with requested bytes.
    assert_eq!(of(tracked.pid()), (Basis::Exact, Basis::Exact, 24_576));
    assert_eq!(of(plain.pid()), (Basis::Counters, Basis::Counters, 2048));
    let dram = snapshot.devices[0].usage.dram.as_ref().unwrap();
    assert_eq!((dram.used_bytes, dram.requested_bytes, dram.basis), (24_576 + 2048, 4096, Basis::Counters));
    assert_eq!(snapshot.devices[0].capacity.unwrap().cores, 72, "known from the agent");
    plain.kill();
    let snapshot = machine.snapshot(&[], &[]);
    assert_eq!(snapshot.devices[0].usage.dram.as_ref().unwrap().used_bytes, 24_576);
}
