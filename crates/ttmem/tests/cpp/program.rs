//! A test program that runs, and what is seen of it from outside.

use crate::make::Build;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use ttmem_core::Detail;
use ttmem_core::snapshot::{Allocation, Placement, Process, Snapshot, Usage};
use ttmem_core::words::Space;
use ttmem_testkit::{Reader, memory_folder};

/// A program that stops where the test wants to look.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: Arc<TempDir>,
}

/// Something that is held, as short as can be compared: what, on which devices, how large, on which cores, of which program,
/// and what is not known of it.
pub(crate) type Held = (Space, Vec<u32>, u64, Vec<[u8; 4]>, Option<u32>, &'static str);

impl Program {
    /// Starts a program that is tracked.
    pub(crate) fn start(build: &Build, program: &Path) -> Self {
        Self::start_with(build, program, &[("TTMEM", "1")])
    }

    /// Starts it with other variables instead.
    pub(crate) fn start_with(build: &Build, program: &Path, env: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let mut command = build.start(program);
        for name in ["TTMEM", "TTMEM_TRANSPORT", "TTMEM_LEGACY_SOCKET", "TT_ALLOC_TRACKING_ENABLED"] {
            command.env_remove(name);
        }
        command.env("TTMEM_SHM_DIR", folder.path()).envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, folder }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is at a stop.
    pub(crate) fn at(&mut self, stop: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.trim_end() == stop, "{stop}: it is at {line:?}; {}", self.complaints(line.is_empty()));
    }

    /// Lets it go on.
    pub(crate) fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits until it is at a stop, looks at all that is held, and lets it go on.
    pub(crate) fn held(&mut self, stop: &str) -> Vec<Held> {
        self.at(stop);
        let held = self.look();
        self.go();
        held
    }

    /// Waits for its end, which must be a good and silent one.
    pub(crate) fn ends(mut self) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let complaints = self.complaints(true);
        let status = self.child.wait().unwrap();
        assert!(status.success() && rest.is_empty() && complaints.is_empty(), "{status} {rest}{complaints}");
    }

    fn complaints(&mut self, ended: bool) -> String {
        let mut complaints = String::new();
        if let Some(stderr) = self.child.stderr.as_mut().filter(|_| ended) {
            stderr.read_to_string(&mut complaints).unwrap();
        }
        complaints
    }

    /// What is held, of all processes in its folder, in order.
    pub(crate) fn look(&self) -> Vec<Held> {
        let mut reader = Reader::new(self.folder.path());
        reader.poll();
        let (list, rest) = reader.state.allocations(0, usize::MAX, reader.state.now());
        assert_eq!(rest, None);
        let mut held: Vec<Held> = list.into_iter().map(held).collect();
        held.sort();
        held
    }

    /// The whole of what a reader sees, with its programs.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut reader = Reader::new(self.folder.path());
        reader.poll();
        let detail = Detail { programs: true, ..Detail::NONE };
        reader.state.snapshot(jiff::Timestamp::UNIX_EPOCH, &detail)
    }

    /// Its process, as a reader sees it.
    pub(crate) fn process(&self) -> Process {
        let pid = self.pid();
        self.snapshot().processes.into_iter().find(|it| it.pid == Some(pid)).unwrap()
    }

    /// What it holds on a device.
    pub(crate) fn usage(&self, device: u32) -> Usage {
        let id = format!("ordinal-{device}");
        self.process().usage.into_iter().find(|it| it.device == id).unwrap().usage
    }

    /// Everything that its programs keep.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        self.process().programs.unwrap().into_iter().flat_map(|it| it.placements).collect()
    }
}

fn held(it: Allocation) -> Held {
    assert_eq!(it.references, 1);
    let unknown = match (it.estimated, it.unplaced) {
        (false, false) => "",
        (true, false) => "estimated",
        (false, true) => "unplaced",
        (true, true) => "estimated, unplaced",
    };
    let bytes = if it.cores.is_some() { it.bytes_per_bank.unwrap() } else { it.requested_bytes };
    (it.space, it.indexes, bytes, it.cores.unwrap_or_default(), it.program, unknown)
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
