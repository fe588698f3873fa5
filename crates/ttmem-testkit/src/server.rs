//! Private servers for tests.

use crate::schema;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ttmem_core::snapshot::{Device, Event, Process, Usage};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::protocol::{Request, ask};

/// Polls until a condition holds, and returns its value. The limit only ends a test that would never end.
pub fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder in memory that all users may write to, like `/dev/shm`.
pub fn memory_folder() -> std::sync::Arc<TempDir> {
    let folder = tempfile::Builder::new().prefix("ttmem-test.").tempdir_in("/dev/shm").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    std::sync::Arc::new(folder)
}

/// A running `ttmem serve`.
#[derive(Debug)]
pub struct Server {
    /// The legacy socket.
    pub legacy: PathBuf,
    /// The query socket.
    pub query: PathBuf,
    /// The server's folder, with its sockets and outputs.
    pub folder: TempDir,
    /// The folder of segments, in memory; private, so that tests do not see each other.
    pub segments: std::sync::Arc<TempDir>,
    /// The server's first answer.
    pub first: Snapshot,
    child: Child,
}

impl Server {
    /// Starts `exe serve` with further arguments, and waits until it answers.
    pub fn start(exe: &Path, args: &[&str]) -> Self {
        Self::start_by(Command::new(exe), args)
    }

    /// Starts a server with a command that ends in the program's name, such as `unshare -pf ttmem`.
    pub fn start_by(command: Command, args: &[&str]) -> Self {
        Self::start_logging(command, args, None)
    }

    /// Starts a server whose standard output may be redirected elsewhere than to a file.
    pub fn start_logging(command: Command, args: &[&str], log: Option<Stdio>) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), command, args, log)
    }

    /// Starts a server in an existing folder.
    pub fn start_in(folder: TempDir, command: Command, args: &[&str], log: Option<Stdio>) -> Self {
        Self::start_reading(folder, memory_folder(), command, args, log)
    }

    /// Starts a server in an existing folder, with an existing folder of segments.
    pub fn start_reading(
        folder: TempDir,
        segments: std::sync::Arc<TempDir>,
        mut command: Command,
        args: &[&str],
        log: Option<Stdio>,
    ) -> Self {
        // Other users connect, too, so they must be able to enter the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (legacy, query) = (folder.path().join("legacy.sock"), folder.path().join("query.sock"));
        let file = |name| Stdio::from(File::create(folder.path().join(name)).unwrap());
        let child = command
            .arg("serve")
            .arg("--legacy-socket")
            .arg(&legacy)
            .arg("--query-socket")
            .arg(&query)
            .env("TTMEM_SHM_DIR", segments.path())
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.unwrap_or_else(|| file("out")))
            .stderr(file("err"))
            .spawn()
            .unwrap();
        let first = Snapshot::default();
        let mut server = Self { legacy, query, folder, segments, first, child };
        let first = eventually("the server answers", || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended: {status}: {}", server.warnings());
            }
            ask(&server.query, &Request::SNAPSHOT).ok()
        });
        server.first = schema::snapshot(&first);
        server
    }

    /// Pid of the server, or of the wrapper that started it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Snapshot {
        let answer = ask(&self.query, &Request::SNAPSHOT).unwrap();
        schema::snapshot(&answer)
    }

    /// Recent events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let detail = Detail { events: true, ..Detail::NONE };
        let answer = ask(&self.query, &Request::Snapshot(detail)).unwrap();
        schema::snapshot::<Snapshot>(&answer).events.unwrap()
    }

    /// One device of the current snapshot.
    pub fn device(&self, index: u32) -> Device {
        let found = self.snapshot().devices.into_iter().find(|device| device.index == index);
        found.unwrap_or_else(|| panic!("no device {index}"))
    }

    /// Usage of one device.
    pub fn usage(&self, index: u32) -> Usage {
        self.device(index).usage
    }

    /// A tracked process.
    pub fn process(&self, pid: u32) -> Option<Process> {
        self.snapshot().processes.into_iter().find(|process| process.pid == Some(pid))
    }

    /// Every live allocation, as JSON.
    pub fn allocations(&self) -> Vec<serde_json::Value> {
        let answer = ask(&self.query, &Request::Allocations).unwrap();
        let mut dump: serde_json::Value = schema::dump(&answer);
        serde_json::from_value(dump["allocations"].take()).unwrap()
    }

    /// The event log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("out")).unwrap()
    }

    /// The warnings so far.
    pub fn warnings(&self) -> String {
        fs::read_to_string(self.folder.path().join("err")).unwrap()
    }

    /// Waits for a line in the event log.
    pub fn wait_for_log(&self, part: &str) {
        eventually(part, || self.log().contains(part).then_some(()));
    }

    /// Waits for a warning.
    pub fn wait_for_warning(&self, part: &str) {
        eventually(part, || self.warnings().contains(part).then_some(()));
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the server exits.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the server ends", || self.child.try_wait().unwrap())
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The server's resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
    }

    /// Processor time of the server.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        Duration::from_nanos(stat.split_ascii_whitespace().next().unwrap().parse().unwrap())
    }

    /// Number of the server's open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
