//! Messages to the log that `TTMEM_LOG` names. Without it, nothing is written.

use crate::text::Text;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::SendFlags;
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

/// `stderr`, or the path of a file. The file is opened for each line: the workload may close a descriptor that is kept, and
/// open its own under the same number.
static TARGET: OnceLock<String> = OnceLock::new();

const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

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
    let line = line.as_str().as_bytes();
    if target == "stderr" {
        write_without_waiting(std::io::stderr().as_fd(), line);
    } else if let Ok(file) =
        rustix::fs::open(target.as_str(), APPEND | OFlags::CREATE, Mode::RUSR | Mode::WUSR)
    {
        let _ = rustix::io::write(&file, line);
    }
}

/// Writes a line to a stream of the program, unless its reader is behind: the workload would wait for that one.
fn write_without_waiting(stream: BorrowedFd<'_>, line: &[u8]) {
    let Ok(stat) = rustix::fs::fstat(stream) else { return };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let _ = rustix::io::write(stream, line);
        }
        FileType::Socket => {
            let _ = rustix::net::send(stream, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        // Opened once more: whether a write waits is then our own choice, and not the program's. The terminal of another user cannot be
        // opened; there is space for a line in what can be written to.
        _ => match rustix::fs::open("/proc/self/fd/2", APPEND | OFlags::NOCTTY, Mode::empty()) {
            Ok(again) => {
                let _ = rustix::io::write(&again, line);
            }
            Err(_) => {
                let mut fds = [PollFd::new(&stream, PollFlags::OUT)];
                let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
                if ready == Ok(1) && fds[0].revents() == PollFlags::OUT {
                    let _ = rustix::io::write(stream, line);
                }
            }
        },
    }
}
