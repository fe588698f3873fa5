//! Messages to the log that `TTMEM_LOG` names. Without it, nothing is ever written.

use crate::text::Text;
use rustix::fs::{Mode, OFlags};
use std::sync::OnceLock;

/// `stderr`, or the path of a file. The file is opened for each line: the workload may close a descriptor that is kept, and
/// open its own under the same number.
static TO: OnceLock<String> = OnceLock::new();

/// Starts logging to standard error if `to` is `stderr`, else to the file of that name.
pub(crate) fn start(to: &str) {
    let _ = TO.set(to.to_owned());
}

/// Writes one line, if there is a log. Errors are ignored.
#[cold]
pub(crate) fn write(what: &str) {
    let Some(to) = TO.get() else { return };
    let mut line = Text::<256>::new();
    line.push(format_args!("ttmem: pid {}: {what}\n", crate::identity::pid()));
    if to == "stderr" {
        let _ = rustix::io::write(std::io::stderr(), line.as_str().as_bytes());
        return;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if let Ok(file) = rustix::fs::open(to.as_str(), flags, Mode::RUSR | Mode::WUSR) {
        let _ = rustix::io::write(&file, line.as_str().as_bytes());
    }
}
