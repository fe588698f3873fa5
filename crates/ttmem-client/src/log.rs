//! A word to whoever asked for it, with `TTMEM_LOG`: the workload's own output is never written to otherwise.

use crate::text::Text;
use rustix::fs::{Mode, OFlags};
use std::sync::OnceLock;

/// Where to say it: `stderr`, or a file. Opened for each line: a descriptor that is kept may be the workload's own by the
/// time it is used.
static TO: OnceLock<String> = OnceLock::new();

/// Logs from now on: to standard error if `to` is `stderr`, else to the file of that name.
pub(crate) fn begin(to: &str) {
    let _ = TO.set(to.to_owned());
}

#[cold]
pub(crate) fn say(what: &str) {
    let Some(to) = TO.get() else { return };
    let mut line = Text::<256>::new();
    line.push(format_args!("ttmem: pid {}: {what}\n", crate::identity::pid()));
    // What cannot be written is not.
    if to == "stderr" {
        let _ = rustix::io::write(std::io::stderr(), line.as_str().as_bytes());
        return;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if let Ok(file) = rustix::fs::open(to.as_str(), flags, Mode::RUSR | Mode::WUSR) {
        let _ = rustix::io::write(&file, line.as_str().as_bytes());
    }
}
