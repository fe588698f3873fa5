//! The daemon as a service: what it tells the manager that started it.

use crate::segments::dram;
use crate::*;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use ttmem_testkit::producer::Producer;
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::Vintage;

/// A service manager, as far as the daemon can tell.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
    lines: VecDeque<String>,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        // Only so that a test that fails ends.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { folder, socket, lines: VecDeque::new() }
    }

    /// The daemon, as this manager starts it.
    fn command(&self) -> Command {
        let mut command = Command::new(exe());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        command
    }

    /// The next line it hears.
    fn line(&mut self) -> String {
        if self.lines.is_empty() {
            let mut bytes = [0; 4096];
            let len = self.socket.recv(&mut bytes).expect("the daemon says something");
            let message = std::str::from_utf8(&bytes[..len]).unwrap();
            assert!(message.ends_with('\n'), "{message:?}");
            self.lines.extend(message.lines().map(str::to_owned));
        }
        self.lines.pop_front().unwrap()
    }

    /// Every line up to and with this one.
    fn lines_to(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            lines.push(self.line());
        }
        lines
    }
}

#[test]
fn a_service_is_ready_when_it_can_be_asked_and_says_when_it_ends() {
    let mut manager = Manager::new();
    let (legacy, query) = (manager.folder.path().join("legacy"), manager.folder.path().join("query"));
    let mut command = manager.command();
    command.args(["serve", "--quiet", "--sim", "t3k", "--legacy-socket"]).arg(&legacy);
    command.arg("--query-socket").arg(&query).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = Ended(command.spawn().unwrap());
    assert_eq!(manager.line(), "READY=1");
    // Not eventually: now.
    UnixStream::connect(&legacy).unwrap();
    let answer = snapshot_from(&query);
    assert_eq!(answer["devices"].as_array().unwrap().len(), 8);
    assert_eq!(manager.line(), "STATUS=devices: 8 (simulated), tracked processes: 0");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child.0), Signal::TERM).unwrap();
    let rest = manager.lines_to("STOPPING=1");
    assert!(rest.iter().all(|line| !line.starts_with("READY") && !line.starts_with("WATCHDOG")), "{rest:?}");
    assert!(child.0.wait().unwrap().success());
    assert!(!legacy.exists() && !query.exists());
}

#[test]
fn a_service_says_how_it_stands_when_that_changes() {
    let mut manager = Manager::new();
    let server = Server::start_by(manager.command(), &["--sim", "n300"]);
    let idle = "STATUS=devices: 2 (simulated), tracked processes: 0";
    let busy = "STATUS=devices: 2 (simulated), tracked processes: 1";
    assert_eq!(manager.lines_to(idle), ["READY=1", idle]);
    let mut puppet = ttmem_testkit::puppet::Puppet::new(&server.legacy);
    puppet.send(ttmem_wire::legacy::Type::Alloc, 0, DRAM, 5, 100);
    assert_eq!(manager.lines_to(busy), [busy]);
    drop(puppet);
    assert_eq!(manager.lines_to(idle), [idle]);
}

#[test]
fn a_service_that_is_watched_says_that_it_lives() {
    let mut manager = Manager::new();
    let mut command = manager.command();
    command.env("WATCHDOG_USEC", "1000000");
    let _server = Server::start_by(command, &["--sim", "n150"]);
    manager.lines_to("READY=1");
    for _ in 0..3 {
        manager.lines_to("WATCHDOG=1");
    }
}

#[test]
fn a_watch_that_is_meant_for_another_process_is_left_to_it() {
    let mut manager = Manager::new();
    let mut command = manager.command();
    command.env("WATCHDOG_USEC", "1").env("WATCHDOG_PID", "1");
    let server = Server::start_by(command, &["--sim", "n150"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 64);
    // At least one tick has passed by then.
    let mut lines = manager.lines_to("STATUS=devices: 1 (simulated), tracked processes: 1");
    server.signal(Signal::TERM);
    lines.extend(manager.lines_to("STOPPING=1"));
    assert!(!lines.iter().any(|line| line.starts_with("WATCHDOG")), "{lines:?}");
    // The same variable, with the pid that it has.
    let mut manager = Manager::new();
    let mut shell = Command::new("sh");
    shell.env("NOTIFY_SOCKET", manager.folder.path().join("notify")).env("WATCHDOG_USEC", "1");
    shell.args(["-c", r#"WATCHDOG_PID=$$ exec "$0" "$@""#]).arg(exe());
    let _server = Server::start_by(shell, &["--sim", "n150"]);
    manager.lines_to("WATCHDOG=1");
}

#[test]
fn a_manager_that_does_not_read_holds_nobody_up() {
    let mut manager = Manager::new();
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    let place = manager.folder.path().join("notify");
    while other.send_to(b"X=1\n", &place).is_ok() {}
    let mut command = manager.command();
    command.env("WATCHDOG_USEC", "1000");
    // It starts and answers, though it cannot say so.
    let server = Server::start_by(command, &["--sim", "n150"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 64);
    client.sync();
    assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 64);
    // Nothing of importance is lost.
    manager.lines_to("READY=1");
    manager.lines_to("STATUS=devices: 1 (simulated), tracked processes: 1");
}

#[test]
fn a_manager_may_have_no_file_or_not_be_there() {
    let name = format!("ttmem-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut manager = Manager { socket: UnixDatagram::bind_addr(&address).unwrap(), ..Manager::new() };
    manager.socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = manager.command();
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let server = Server::start_by(command, &["--sim", "n150"]);
    manager.lines_to("READY=1");
    drop(server);
    let mut command = manager.command();
    command.env("NOTIFY_SOCKET", "/no/such/socket");
    let mut server = Server::start_by(command, &["--sim", "n150"]);
    assert_eq!(server.warnings(), "");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}

/// A machine as the unit leaves it to the daemon: nothing to write but the sockets' folder (`$1`), no devices, no network. Then
/// it becomes the rest, with the capabilities in `$2`.
const SANDBOX: &str = r#"
mount --bind "$1" "$1"
mount -t tmpfs none /mnt
for name in null zero full random urandom tty; do touch /mnt/$name; mount --bind /dev/$name /mnt/$name; done
mkdir /mnt/shm
mount --bind /dev/shm /mnt/shm
mount --move /mnt /dev
mount -n -o remount,bind,ro /
[ ! -w / ]
capabilities=$2
shift 2
exec setpriv --no-new-privs --inh-caps=-all --bounding-set="-all,$capabilities" "$@"
"#;

#[test]
fn what_the_unit_leaves_to_the_daemon_is_enough() {
    let unit = include_str!("../../../../packaging/ttmem.service.in");
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let names = line.split(' ').map(|name| format!("+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()));
    let capabilities: Vec<String> = names.collect();
    // systemd answers openat2 with ENOSYS then, which cannot be had here.
    assert!(!unit.lines().any(|line| line.starts_with("RestrictSUIDSGID=")));
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--ipc", "--uts", "sh", "-euc", SANDBOX, "sh"]);
    command.arg(folder.path()).arg(capabilities.join(",")).arg(exe());
    let server = Server::start_in(folder, command, &["--quiet", "--shm-dir", "/dev/shm"], None);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");

    // Another user's segment, which nobody else may read.
    let test = copied(&std::env::current_exe().unwrap(), &server);
    let mut theirs = Producer::start_copy(&test, &NOBODY, &[]);
    theirs.define(1);
    theirs.alloc(4096, 9101);
    let held = |pid| server.process(pid).map(|it| dram(&it));
    eventually("another user's process", || (held(theirs.pid) == Some(9101)).then_some(()));
    // It is known by more than its segment, so nothing was read twice through its root.
    assert_eq!(server.process(theirs.pid).unwrap().user.as_deref(), Some("nobody"));
    assert_eq!(server.snapshot().processes.iter().filter(|it| it.pid == Some(theirs.pid)).count(), 1);

    // A container's, in a folder of its own.
    let script = r#"mount -t tmpfs none /dev/shm && exec "$0" "$@""#;
    let through = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script];
    let mut inside = Producer::start_through(&through, &[]);
    inside.define(1);
    inside.alloc(4096, 9102);
    eventually("a container's process", || {
        server.snapshot().processes.iter().any(|it| dram(it) == 9102).then_some(())
    });

    // An old client, over a socket.
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 9103);
    client.sync();
    assert_eq!(held(std::process::id()), Some(9103));
    assert_eq!(server.warnings(), "");
}

fn snapshot_from(query: &Path) -> serde_json::Value {
    let output = Command::new(exe()).args(["--json", "--query-socket"]).arg(query).output().unwrap();
    ttmem_testkit::schema::snapshot(&output.stdout)
}

/// A child that does not outlive its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
