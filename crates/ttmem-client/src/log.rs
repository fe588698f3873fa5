//! Messages to the log that `TTMEM_LOG` names. Without it, nothing is written.

use crate::text::Text;
use rustix::fs::{Mode, OFlags};
use std::sync::OnceLock;

/// `stderr`, or the path of a file. The file is opened for each line: the workload may close a descriptor that is kept, and
/// open its own under the same number.
static TARGET: OnceLock<String> = OnceLock::new();

/// Starts logging to standard error if `target` is `stderr`, else to the file of that name.
pub(crate) fn start(target: &str) {
    let _ = TARGET.set(target.to_owned());
}

/// Writes one line, if there is a log. Errors are ignored.
#[cold]
pub(crate) fn write(message: &str) {
    let Some(target) = TARGET.get() else { return };
    let mut line = Text::<256>::new();
    line.push(format_args!("ttmem: pid {}: {message}\n", crate::identity::pid()));
    if target == "stderr" {
        let _ = rustix::io::write(std::io::stderr(), line.as_str().as_bytes());
        return;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if let Ok(file) = rustix::fs::open(target.as_str(), flags, Mode::RUSR | Mode::WUSR) {
        let _ = rustix::io::write(&file, line.as_str().as_bytes());
    }
}
