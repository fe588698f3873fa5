//! A running test program, and what readers see of it.

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

/// A test program that stops at named points and waits for the test.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: Arc<TempDir>,
}

/// An allocation in a form to compare: space, devices, bytes, cores, program, and what is unknown.
pub(crate) type Held = (Space, Vec<u32>, u64, Vec<[u8; 4]>, Option<u32>, &'static str);

impl Program {
    /// Starts a program with tracking enabled.
    pub(crate) fn start(build: &Build, program: &Path) -> Self {
        Self::start_with(build, program, &[("TTMEM", "1")])
    }

    /// Starts a program with the given variables.
    pub(crate) fn start_with(build: &Build, program: &Path, env: &[(&str, &str)]) -> Self {
        let folder = memory_folder();
        let mut command = build.command(program);
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

    /// Waits until the program is at a stop.
    pub(crate) fn wait_at(&mut self, stop: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(
            line.trim_end() == stop,
            "{stop}: the program is at {line:?}; {}",
            self.errors(line.is_empty())
        );
    }

    /// Makes the program continue.
    pub(crate) fn resume(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits until the program is at a stop, reads its allocations, and makes it continue.
    pub(crate) fn held_at(&mut self, stop: &str) -> Vec<Held> {
        self.wait_at(stop);
        let held = self.allocations();
        self.resume();
        held
    }

    /// Waits until the program exits, which must be with success and without output.
    pub(crate) fn expect_exit(mut self) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let errors = self.errors(true);
        let status = self.child.wait().unwrap();
        assert!(status.success() && rest.is_empty() && errors.is_empty(), "{status} {rest}{errors}");
    }

    fn errors(&mut self, ended: bool) -> String {
        let mut errors = String::new();
        if let Some(stderr) = self.child.stderr.as_mut().filter(|_| ended) {
            stderr.read_to_string(&mut errors).unwrap();
        }
        errors
    }

    /// Allocations of all processes in the program's folder, sorted.
    pub(crate) fn allocations(&self) -> Vec<Held> {
        let mut held: Vec<Held> = self.list().into_iter().map(comparable).collect();
        held.sort();
        held
    }

    /// Everything that is known of its live allocations.
    pub(crate) fn list(&self) -> Vec<Allocation> {
        let mut reader = Reader::new(self.folder.path());
        reader.poll();
        let (list, rest) = reader.state.allocations(0, usize::MAX, reader.state.now());
        assert_eq!(rest, None);
        list
    }

    /// A snapshot with programs.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut reader = Reader::new(self.folder.path());
        reader.poll();
        let detail = Detail { programs: true, ..Detail::NONE };
        reader.snapshot(&detail)
    }

    /// The program's process in the snapshot.
    pub(crate) fn process(&self) -> Process {
        let pid = self.pid();
        self.snapshot().processes.into_iter().find(|it| it.pid == Some(pid)).unwrap()
    }

    /// The program's usage of a device.
    pub(crate) fn usage(&self, device: u32) -> Usage {
        let id = format!("ordinal-{device}");
        self.process().usage.into_iter().find(|it| it.device == id).unwrap().usage
    }

    /// All placements of its device programs.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        self.process().programs.unwrap().into_iter().flat_map(|it| it.placements).collect()
    }
}

fn comparable(allocation: Allocation) -> Held {
    assert_eq!(allocation.references, 1);
    let unknown = match (allocation.estimated, allocation.unplaced) {
        (false, false) => "",
        (true, false) => "estimated",
        (false, true) => "unplaced",
        (true, true) => "estimated, unplaced",
    };
    let Allocation { space, indexes, cores, program, .. } = allocation;
    let bytes = if cores.is_some() { allocation.bytes_per_bank.unwrap() } else { allocation.requested_bytes };
    (space, indexes, bytes, cores.unwrap_or_default(), program, unknown)
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
