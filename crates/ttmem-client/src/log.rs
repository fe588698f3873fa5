//! A word to whoever asked for it, with `TTMEM_LOG`: the workload's own output is never written to otherwise.

use crate::text::Text;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::{Mode, OFlags};
use std::sync::OnceLock;

static ON: AtomicBool = AtomicBool::new(false);
/// `None`: standard error.
static FILE: OnceLock<Option<rustix::fd::OwnedFd>> = OnceLock::new();

/// Logs from now on: to standard error if `to` is `stderr`, else to the file of that name.
pub(crate) fn begin(to: &str) {
    let file = if to == "stderr" {
        None
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::open(to, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Some(file),
            Err(_) => return,
        }
    };
    let _ = FILE.set(file);
    ON.store(true, Ordering::Release);
}

#[cold]
pub(crate) fn say(what: &str) {
    if !ON.load(Ordering::Acquire) {
        return;
    }
    let mut line = Text::<256>::new();
    line.push(format_args!("ttmem: pid {}: {what}\n", crate::identity::pid()));
    // What cannot be written is not.
    let _ = match FILE.get() {
        Some(Some(file)) => rustix::io::write(file, line.as_str().as_bytes()),
        _ => rustix::io::write(std::io::stderr(), line.as_str().as_bytes()),
    };
}
