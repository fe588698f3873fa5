//! A copy of the daemon that computes one answer: a forked child, which writes it into a file in memory and exits.
//!
//! The daemon does not wait for it. The child has only the thread that forked; it never touches a socket, a thread or a lock of
//! the daemon: it computes, writes to its file and exits. It dies with the daemon, and its processor time is limited.
#![allow(unsafe_code)]

use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::time::Duration;
use ttmem_core::words::Mono;
use ttmem_reader::protocol::error_answer;

/// Processor time that a copy may take.
const MAX_CPU: Duration = Duration::from_secs(10);
/// Time that a copy may take: it has a low priority.
const MAX_NS: u64 = 60 * Mono::SECOND;
/// Bytes of the longest answer.
const MAX_ANSWER: u64 = 128 << 20;

/// A child that computes an answer.
#[derive(Debug)]
pub(crate) struct StateCopy {
    /// The user it computes for.
    pub(crate) uid: u32,
    pid: libc::pid_t,
    pidfd: OwnedFd,
    /// Where its answer is written to.
    answer: File,
    started: Mono,
}

/// How a copy ended.
pub(crate) struct Finished {
    /// Its answer, one line of JSON, or why there is none.
    pub(crate) answer: Result<File, &'static str>,
    /// Processor time that it took.
    pub(crate) cpu: Duration,
}

impl StateCopy {
    /// Starts a child that writes an answer with `write`.
    pub(crate) fn start(
        uid: u32,
        now: Mono,
        write: impl FnOnce(&mut dyn Write) -> Result<(), serde_json::Error>,
    ) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("ttmem answer", rustix::fs::MemfdFlags::CLOEXEC)?;
        let parent = rustix::process::getpid();
        // SAFETY: the child is of one thread, and another thread may hold a lock. It takes none: it calls `write`, which only
        // computes, and leaves with `_exit`. The C library makes its allocator usable in a child.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let status = catch_unwind(AssertUnwindSafe(|| run(parent, File::from(file), write)));
                // SAFETY: this is always safe, and runs nothing that belongs to the parent.
                unsafe { libc::_exit(i32::from(!matches!(status, Ok(Ok(()))))) }
            }
            pid => {
                // The child is not reaped before `finish`, so its pid is not reused.
                let opened =
                    Pid::from_raw(pid).map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
                match opened {
                    Some(Ok(pidfd)) => Ok(Self { uid, pid, pidfd, answer: file.into(), started: now }),
                    failed => {
                        end(pid);
                        Err(failed.and_then(Result::err).map_or(io::ErrorKind::Other.into(), Into::into))
                    }
                }
            }
        }
    }

    /// Readable when the child has exited.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether the child takes too long.
    pub(crate) fn is_slow(&self, now: Mono) -> bool {
        now.since(self.started) > MAX_NS
    }

    /// Kills the child, without waiting for its end.
    pub(crate) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Takes the answer of a child that has exited.
    pub(crate) fn finish(mut self) -> Finished {
        let (status, cpu) = end(std::mem::take(&mut self.pid));
        let answer = match status {
            0 => self.answer.try_clone().map_err(|_| "no descriptor is left for the answer"),
            status if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGPROF => {
                Err("the answer took more than 10 s of processor time: request a page of it, or filter it")
            }
            _ => Err("the answer took too much memory or time: request a page of it, or filter it"),
        };
        Finished { answer, cpu }
    }
}

impl Drop for StateCopy {
    fn drop(&mut self) {
        if self.pid != 0 {
            end(self.pid);
        }
    }
}

/// Ends and reaps a child. Returns its status and the processor time that it took.
fn end(pid: libc::pid_t) -> (libc::c_int, Duration) {
    // A failure, unless the kernel says otherwise.
    let mut status = 1 << 8;
    // SAFETY: the child was not reaped yet, so the pid is its own. The kernel fills in both structs, for which zero is valid.
    let usage = unsafe {
        libc::kill(pid, libc::SIGKILL);
        let mut usage: libc::rusage = std::mem::zeroed();
        while libc::wait4(pid, &raw mut status, 0, &raw mut usage) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        usage
    };
    let time = |it: libc::timeval| {
        Duration::from_secs(it.tv_sec.unsigned_abs()) + Duration::from_micros(it.tv_usec.unsigned_abs())
    };
    (status, time(usage.ru_utime) + time(usage.ru_stime))
}

/// The child: writes the answer, or why there is none.
fn run(
    parent: Pid,
    file: File,
    write: impl FnOnce(&mut dyn Write) -> Result<(), serde_json::Error>,
) -> io::Result<()> {
    isolate(parent, &file);
    let mut answer = BufWriter::with_capacity(256 << 10, Limited { file, room: MAX_ANSWER });
    let written = write(&mut answer).map_err(io::Error::from).and_then(|()| answer.flush());
    let (limited, _) = answer.into_parts();
    let mut file = limited.file;
    if let Err(e) = written {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&error_answer(&e.to_string()))?;
    }
    file.write_all(b"\n")
}

/// Leaves the child with nothing of the parent but its memory. What fails is a limit less, and does not change the answer.
fn isolate(parent: Pid, keep: &File) {
    let keep = keep.as_raw_fd().unsigned_abs();
    // SAFETY: no descriptor of these ranges is used or closed again: the child leaves without dropping anything.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_DFL);
        }
        // Without this, a client that the parent hangs up on would not notice, and a lock file would stay locked.
        libc::syscall(libc::SYS_close_range, 3, keep.saturating_sub(1), 0);
        libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0);
        let limit = libc::timeval { tv_sec: MAX_CPU.as_secs() as libc::time_t, tv_usec: 0 };
        let timer = libc::itimerval { it_interval: limit, it_value: limit };
        libc::setitimer(libc::ITIMER_PROF, &raw const timer, null_mut());
    }
    let _ = rustix::process::setpriority_process(None, 10);
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        // SAFETY: as in `start`. The parent ended before its end could be noticed.
        unsafe { libc::_exit(1) };
    }
    // If memory runs out, this child is killed and not the daemon.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// A file that takes only so many bytes.
struct Limited {
    file: File,
    room: u64,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.room {
            return Err(io::Error::other(
                "the answer is longer than 128 MiB: request a page of it, or filter it",
            ));
        }
        let len = self.file.write(bytes)?;
        self.room -= len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Read;

    fn finish(copy: StateCopy) -> Result<String, &'static str> {
        poll(&mut [PollFd::from_borrowed_fd(copy.fd(), PollFlags::IN)], None).unwrap();
        copy.finish().answer.map(|mut file| {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        })
    }

    fn start(write: impl FnOnce(&mut dyn Write) -> Result<(), serde_json::Error>) -> StateCopy {
        StateCopy::start(7, Mono(0), write).unwrap()
    }

    #[test]
    fn copy_writes_its_answer_or_why_there_is_none() {
        let mut state = vec![1, 2];
        let answered = start(|answer| {
            state.push(3);
            serde_json::to_writer(answer, &state)
        });
        assert_eq!(finish(answered).unwrap(), "[1,2,3]\n");
        assert_eq!(state, [1, 2], "only the child's copy has changed");
        let long = start(|answer| {
            let part = "x".repeat(1 << 20);
            (0..200).try_for_each(|_| serde_json::to_writer(&mut *answer, &part))
        });
        assert!(finish(long).unwrap().starts_with(r#"{"error":"the answer is longer than 128 MiB"#));
    }

    #[test]
    fn killed_copy_has_no_answer() {
        let endless = start(|_| {
            loop {
                std::hint::spin_loop();
            }
        });
        assert!(!endless.is_slow(Mono(MAX_NS)) && endless.is_slow(Mono(MAX_NS + 1)));
        endless.kill();
        assert!(finish(endless).unwrap_err().starts_with("the answer took too much memory or time"));
    }
}
