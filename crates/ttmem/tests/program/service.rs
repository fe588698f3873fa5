//! The daemon as a service: its notifications to the service manager.

use crate::segments::dram;
use crate::*;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use ttmem_testkit::producer::Producer;
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::Vintage;

/// The notification socket of a service manager.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
    lines: VecDeque<String>,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        // So that a failing test ends.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { folder, socket, lines: VecDeque::new() }
    }

    /// The command of the daemon with the variables of this manager.
    fn command(&self) -> Command {
        let mut command = Command::new(exe());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
        command
    }

    /// Receives the next line.
    fn line(&mut self) -> String {
        if self.lines.is_empty() {
            let mut bytes = [0; 4096];
            let len = self.socket.recv(&mut bytes).expect("the daemon sends a notification");
            let message = std::str::from_utf8(&bytes[..len]).unwrap();
            assert!(message.ends_with('\n'), "{message:?}");
            self.lines.extend(message.lines().map(str::to_owned));
        }
        self.lines.pop_front().unwrap()
    }

    /// Receives lines up to and including this one.
    fn lines_to(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            lines.push(self.line());
        }
        lines
    }
}

#[test]
fn service_notifies_when_it_is_ready_and_stops() {
    let mut manager = Manager::new();
    let (legacy, query) = (manager.folder.path().join("legacy"), manager.folder.path().join("query"));
    let mut command = manager.command();
    command.args(["serve", "--quiet", "--sim", "t3k", "--legacy-socket"]).arg(&legacy);
    command.arg("--query-socket").arg(&query).stdin(Stdio::null()).stderr(Stdio::null());
    // Without the segments of other tests.
    command.arg("--shm-dir").arg(manager.folder.path());
    let mut child = OwnedChild(command.spawn().unwrap());
    assert_eq!(manager.line(), "READY=1");
    // Without waiting.
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
fn service_sends_changes_of_its_status() {
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
fn service_sends_watchdog_notifications() {
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
fn watchdog_of_another_process_is_ignored() {
    let mut manager = Manager::new();
    let mut command = manager.command();
    command.env("WATCHDOG_USEC", "1").env("WATCHDOG_PID", "1");
    let server = Server::start_by(command, &["--sim", "n150"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 64);
    // This takes at least one tick.
    let mut lines = manager.lines_to("STATUS=devices: 1 (simulated), tracked processes: 1");
    server.signal(Signal::TERM);
    lines.extend(manager.lines_to("STOPPING=1"));
    assert!(!lines.iter().any(|line| line.starts_with("WATCHDOG")), "{lines:?}");
    // With its own pid.
    let mut manager = Manager::new();
    let mut shell = Command::new("sh");
    shell.env("NOTIFY_SOCKET", manager.folder.path().join("notify")).env("WATCHDOG_USEC", "1");
    shell.args(["-c", r#"WATCHDOG_PID=$$ exec "$0" "$@""#]).arg(exe());
    let _server = Server::start_by(shell, &["--sim", "n150"]);
    manager.lines_to("WATCHDOG=1");
}

#[test]
fn manager_that_does_not_read_blocks_nothing() {
    let mut manager = Manager::new();
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    let path = manager.folder.path().join("notify");
    while other.send_to(b"X=1\n", &path).is_ok() {}
    let mut command = manager.command();
    command.env("WATCHDOG_USEC", "1000");
    // It starts and answers, although it cannot notify.
    let server = Server::start_by(command, &["--sim", "n150"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 64);
    client.sync();
    assert_eq!(server.usage(0).dram.unwrap().requested_bytes, 64);
    // No important notification is lost.
    manager.lines_to("READY=1");
    manager.lines_to("STATUS=devices: 1 (simulated), tracked processes: 1");
}

#[test]
fn manager_may_use_an_abstract_socket_or_be_absent() {
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

/// The sandbox of the unit: only the folder of the sockets (`$1`) is writable, without devices and network. It runs the
/// remaining arguments with the capabilities in `$2`.
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
fn sandbox_of_the_unit_is_sufficient() {
    let unit = include_str!("../../../../packaging/ttmem.service.in");
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let names = line.split(' ').map(|name| format!("+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()));
    let capabilities: Vec<String> = names.collect();
    // With it, systemd makes openat2 fail with ENOSYS, which cannot be tested here.
    assert!(!unit.lines().any(|line| line.starts_with("RestrictSUIDSGID=")));
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--ipc", "--uts", "sh", "-euc", SANDBOX, "sh"]);
    command.arg(folder.path()).arg(capabilities.join(",")).arg(exe());
    let server = Server::start_in(folder, command, &["--quiet", "--shm-dir", "/dev/shm"], None);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");

    // A segment that only its user may read.
    let test = copy_program(&std::env::current_exe().unwrap(), &server);
    let mut theirs = Producer::start_copy(&test, &AS_OTHER_USER, &[]);
    theirs.define(1);
    theirs.alloc(4096, 9101);
    let held = |pid| server.process(pid).map(|it| dram(&it));
    eventually("another user's process", || (held(theirs.pid) == Some(9101)).then_some(()));
    // It is listed once, although its folder is visible through its root, too.
    assert_eq!(server.process(theirs.pid).unwrap().user.as_deref(), Some("nobody"));
    assert_eq!(server.snapshot().processes.iter().filter(|it| it.pid == Some(theirs.pid)).count(), 1);

    // A container with a folder of its own.
    let script = r#"mount -t tmpfs none /dev/shm && exec "$0" "$@""#;
    let through = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script];
    let mut inside = Producer::start_through(&through, &[]);
    inside.define(1);
    inside.alloc(4096, 9102);
    eventually("a container's process", || {
        server.snapshot().processes.iter().any(|it| dram(it) == 9102).then_some(())
    });

    // An old client on the socket.
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 1, 9103);
    client.sync();
    assert_eq!(held(std::process::id()), Some(9103));
    assert_eq!(server.warnings(), "");
}

/// What other users can put in the place of old clients' socket, and what the finding says.
#[test]
fn legacy_socket_of_others_does_not_stop_the_daemon() {
    type Block = fn(&Path) -> Box<dyn std::any::Any>;
    let blocks: [(Block, &str); 4] = [
        (
            |path| {
                std::fs::create_dir(path).unwrap();
                Box::new(())
            },
            "exists and is not a socket",
        ),
        (
            |path| {
                std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
                Box::new(())
            },
            "exists and is not a socket",
        ),
        (
            |path| {
                let lock = std::fs::File::create(path.with_extension("sock.lock")).unwrap();
                lock.lock().unwrap();
                Box::new(lock)
            },
            "another server is listening on",
        ),
        (|path| Box::new(UnixListener::bind(path).unwrap()), "another server is listening on"),
    ];
    for (block, why) in blocks {
        let folder = tempfile::tempdir().unwrap();
        let (legacy, query) = (folder.path().join("legacy.sock"), folder.path().join("query.sock"));
        let blocked = block(&legacy);
        let mut command = Command::new(exe());
        command.args(["serve", "--quiet", "--sim", "n150", "--legacy-socket"]).arg(&legacy);
        command.arg("--query-socket").arg(&query).arg("--shm-dir").arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _daemon = OwnedChild(command.spawn().unwrap());
        eventually("the query socket", || query.exists().then_some(()));
        let found = || {
            let findings = snapshot_from(&query)["findings"].as_array().unwrap().clone();
            findings.into_iter().find(|it| it["kind"] == "legacy_socket")
        };
        let finding = found().unwrap_or_else(|| panic!("no finding: {why}"));
        let text = finding["text"].as_str().unwrap();
        assert!(text.starts_with("old clients are not tracked: ") && text.contains(why), "{text}");
        let doctor = Command::new(exe()).args(["doctor", "--query-socket"]).arg(&query).output().unwrap();
        let printed = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(printed.split_whitespace().collect::<Vec<_>>().join(" ").contains(why), "{printed}");
        // Once the place is free, the daemon takes it.
        drop(blocked);
        let _ = std::fs::remove_dir(&legacy);
        let _ = std::fs::remove_file(&legacy);
        eventually("the legacy socket", || UnixStream::connect(&legacy).ok());
        eventually("no finding", || found().is_none().then_some(()));
    }
}

#[test]
fn sockets_of_the_service_manager_are_used_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (legacy, query) = (folder.path().join("legacy.sock"), folder.path().join("query.sock"));
    let sockets = [&query, &legacy].map(|path| UnixListener::bind(path).unwrap());
    // A client that connects first waits until the daemon runs, and is known by its credentials.
    let mut early = UnixStream::connect(&query).unwrap();
    std::io::Write::write_all(&mut early, b"{\"get\":\"snapshot\"}\n").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", r#"LISTEN_FDS=2 LISTEN_PID=$$ exec "$0" "$@" 3<&0 4<&1 0</dev/null 1>/dev/null"#]);
    command.arg(exe()).args(["serve", "--quiet", "--sim", "n150", "--legacy-socket"]).arg(&legacy);
    command.arg("--query-socket").arg(&query).arg("--shm-dir").arg(folder.path());
    let [first, second] = sockets.each_ref().map(|it| OwnedFd::from(it.try_clone().unwrap()));
    command.stdin(first).stdout(second).stderr(Stdio::null());
    let mut daemon = OwnedChild(command.spawn().unwrap());
    let mut answer = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(&early), &mut answer).unwrap();
    assert!(answer.starts_with("{\"schema\":1"), "{answer}");
    UnixStream::connect(&legacy).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon.0), Signal::TERM).unwrap();
    assert!(daemon.0.wait().unwrap().success());
    assert!(legacy.exists() && query.exists(), "they are the manager's");
    UnixStream::connect(&query).expect("the manager still listens");
}

fn snapshot_from(query: &Path) -> serde_json::Value {
    let output = Command::new(exe()).args(["--json", "--query-socket"]).arg(query).output().unwrap();
    ttmem_testkit::schema::snapshot(&output.stdout)
}

/// A child that is killed at the end of its test.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
