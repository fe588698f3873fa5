//! Identity of this process, as a reader in another process needs it.
#![allow(unsafe_code)]

use crate::text::Text;
use core::ffi::{c_int, c_ulong};
use rustix::fs::{Mode, OFlags};
use rustix::time::ClockId;
use ttmem_wire::segment::{Header, RUN_PREFIX, RUN_VARIABLE, parse_run, set_text};
use zerocopy::FromZeros;

const _: () = assert!(cfg!(target_pointer_width = "64"), "a time is two words of 64 bits");

unsafe extern "C" {
    // The C library's, not rustix's: that one searches the kernel's vDSO itself, and crashes in Valgrind, which hides it.
    fn clock_gettime(clock: c_int, now: *mut [u64; 2]) -> c_int;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Returns the nanoseconds of a clock.
pub(crate) fn now(clock: ClockId) -> u64 {
    let mut now = [0; 2];
    // SAFETY: the function writes seconds and nanoseconds. It takes no lock, so a signal handler or a forked child may call it.
    unsafe { clock_gettime(clock as c_int, &raw mut now) };
    now[0].wrapping_mul(1_000_000_000).wrapping_add(now[1])
}

pub(crate) fn pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Returns a header that identifies this process, without the offsets of a plan.
pub(crate) fn make_header(writer: &str, runtime: &str) -> Header {
    let mut header = Header::new_zeroed();
    let mut nonce = [0; 8];
    // An old kernel or a strict sandbox has no randomness; the name must only be new.
    let random = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::NONBLOCK);
    let nonce = match random {
        Ok(8) => u64::from_ne_bytes(nonce),
        _ => now(ClockId::Monotonic).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    header.pid = pid().into();
    header.uid = rustix::process::geteuid().as_raw().into();
    header.start_ticks = start_ticks("/proc/self/stat").unwrap_or(0).into();
    header.pid_namespace = pid_namespace().unwrap_or(0).into();
    header.nonce = nonce.into();
    header.wall_ns = now(ClockId::Realtime).into();
    header.mono_ns = now(ClockId::Monotonic).into();
    let mut buffer = [0; 64];
    if let Some(name) = read_file("/proc/self/comm", &mut buffer) {
        set_text(&mut header.program, core::str::from_utf8(name).unwrap_or_default().trim_end());
    }
    set_text(&mut header.writer, writer);
    set_text(&mut header.runtime, runtime);
    header
}

/// Returns the number of the run that this process belongs to, or 0.
pub(crate) fn run() -> u64 {
    variable(RUN_VARIABLE).and_then(|number| parse_run(&number)).unwrap_or(0)
}

/// Returns the value of an environment variable that is set and not empty. In a process that has more rights than the user who started
/// it, there is none: with `TTMEM_LOG` that user could write any file.
pub(crate) fn variable(name: &str) -> Option<String> {
    const AT_SECURE: c_ulong = 23;
    // SAFETY: the function reads what the kernel passed to the process.
    let is_privileged = unsafe { getauxval(AT_SECURE) } != 0;
    std::env::var(name).ok().filter(|value| !value.is_empty() && !is_privileged)
}

/// Returns whether a reader of this user follows all processes of a run. One of another user could not remove our files.
pub(crate) fn is_followed(folder: &str, run: u64) -> bool {
    if run == 0 {
        return false;
    }
    let mut path = Text::<240>::new();
    path.push(format_args!("{folder}/{RUN_PREFIX}{run:016x}"));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path.as_str(), flags, Mode::empty()) else { return false };
    let is_own = |stat: rustix::fs::Stat| stat.st_uid == rustix::process::geteuid().as_raw();
    if !rustix::fs::fstat(&file).is_ok_and(is_own) {
        return false;
    }
    let lock = rustix::process::Flock::from(rustix::process::FlockType::WriteLock);
    matches!(rustix::process::fcntl_getlk(&file, &lock), Ok(Some(_)))
}

/// Reads the beginning of a small file.
pub(crate) fn read_file<'a>(path: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let len = rustix::io::read(&file, &mut buffer[..]).ok()?;
    buffer.get(..len)
}

/// Returns the start time of a process, from its `stat` file.
pub(crate) fn start_ticks(path: &str) -> Option<u64> {
    let mut buffer = [0; 1024];
    let stat = core::str::from_utf8(read_file(path, &mut buffer)?).ok()?;
    // The name, in parentheses, may itself contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn pid_namespace() -> Option<u64> {
    Some(rustix::fs::stat("/proc/self/ns/pid").ok()?.st_ino)
}

/// Returns whether a process of our own pid namespace is gone: no process has its pid, or another one has it now.
pub(crate) fn is_gone(pid: u32, start: u64) -> bool {
    let Some(raw) = rustix::process::Pid::from_raw(pid as i32) else { return false };
    if rustix::process::test_kill_process(raw) == Err(rustix::io::Errno::SRCH) {
        return true;
    }
    let mut path = Text::<32>::new();
    path.push(format_args!("/proc/{pid}/stat"));
    start != 0 && start_ticks(path.as_str()).is_some_and(|now| now != start)
}

/// Returns whether the pid in a header is of our own pid namespace.
pub(crate) fn is_own_namespace(header: &Header) -> bool {
    header.pid_namespace.get() != 0 && pid_namespace() == Some(header.pid_namespace.get())
}
