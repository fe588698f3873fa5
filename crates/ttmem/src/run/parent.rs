//! The parent of a tracked program: it waits for the program, and behaves to its own parent, the terminal and senders of signals as
//! the program would.
//!
//! Parent and program are in one process group, so the terminal's signals reach both. The program does not depend on its parent: when
//! the parent is killed, the program continues.

use anyhow::Context as _;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

/// Signals that the parent does not obey itself.
const SIGNALS: [i32; 10] =
    [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT];

/// A program that was started.
pub(super) struct Program {
    pid: Pid,
}

/// Starts a program. `None`: the error is of the program itself, as for a shell.
pub(super) fn start(command: &mut Command) -> anyhow::Result<io::Result<Program>> {
    // Handlers are reset to the default when the program starts, ignored signals stay ignored: as for a program that is started directly.
    let ignored = ignored_signals();
    let taken = SIGNALS.iter().copied().filter(|signal| ignored & 1 << (signal - 1) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(taken).context("cannot handle signals")?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    let pid = Pid::from_child(&child);
    // A thread that ends with this process.
    std::thread::spawn(move || {
        for origin in &mut signals {
            // The terminal sends its signals to the program, too.
            if !matches!(origin.cause, Cause::Kernel)
                && let Some(signal) = Signal::from_named_raw(origin.signal)
            {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
    close_standard_streams();
    Ok(Ok(Program { pid }))
}

impl Program {
    /// Waits until the program ends. Stops and continues with it.
    pub(super) fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => self.stop(status),
                Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stops, so that the shell gets the terminal back. Returns when it is continued.
    fn stop(&self, status: WaitStatus) {
        // The sender of a SIGSTOP to the program continues the program alone: its parent would stay stopped.
        if let Some(signal) =
            status.stopping_signal().filter(|signal| [SIGTSTP, SIGTTIN, SIGTTOU].contains(signal))
        {
            obey(signal);
            let _ = rustix::process::kill_process(self.pid, Signal::CONT);
        }
    }
}

/// Raises a signal with its default action, and keeps its handler.
#[allow(unsafe_code)]
fn obey(signal: i32) {
    // SAFETY: both actions are initialised: zeros are the default action with an empty mask. No other thread changes actions.
    unsafe {
        let (default, mut handler) = (std::mem::zeroed(), std::mem::zeroed());
        if libc::sigaction(signal, &raw const default, &raw mut handler) == 0 {
            libc::raise(signal);
            libc::sigaction(signal, &raw const handler, std::ptr::null_mut());
        }
    }
}

/// Ends this process as the program ended. Returns the exit code if that is not possible.
pub(super) fn end_as(status: ExitStatus) -> u8 {
    let Some(signal) = status.signal() else { return status.code().unwrap_or(1) as u8 };
    // The program has left its core file already.
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    // A signal that ends no process by default, or a handler that could not be reset. Shells report a signal so.
    128u8.wrapping_add(signal as u8)
}

/// Signals that are ignored, a bit each.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Gives the ends of pipes to the program alone: who reads its output waits for its end only, not for ours.
fn close_standard_streams() {
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
