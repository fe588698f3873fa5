//! The daemon and its sockets. ttmem works without one.

use super::{Check, MOST, Patient, some};
use crate::cli::Sockets;
use serde::Deserialize;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ttmem_core::machine::Host;
use ttmem_daemon::{Peer, server_at};
use ttmem_reader::protocol::{Request, ask_within};
use ttmem_reader::{host, paths};
use ttmem_sources::process::Processes;

/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The answers of the daemons, in the order in which `ttmem` queries them; empty if none was queried.
pub(super) struct Daemon(Vec<(PathBuf, Outcome)>);

enum Outcome {
    Answer(Peer, Answer),
    Absent,
    /// Its server has exited.
    LeftBehind,
    Denied,
    /// A server answers, but not as a daemon does.
    Invalid(String),
}

/// As much of a snapshot as matters: a later version's must be understood, too.
#[derive(Deserialize)]
struct Answer {
    host: Host,
    simulated: bool,
}

impl Daemon {
    pub(super) fn ask(sockets: &Sockets) -> Self {
        let mut asked = Vec::new();
        if sockets.is_local() {
            return Self(asked);
        }
        for path in sockets.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]) {
            let outcome = Outcome::from(&path);
            let goes_on = matches!(outcome, Outcome::Absent | Outcome::LeftBehind);
            asked.push((path, outcome));
            if !goes_on {
                break;
            }
        }
        Self(asked)
    }

    fn answers(&self) -> Option<Peer> {
        self.0
            .iter()
            .find_map(|(_, outcome)| if let Outcome::Answer(peer, _) = outcome { Some(*peer) } else { None })
    }

    /// Whether one answers that may read everything.
    pub(super) fn is_roots(&self) -> bool {
        self.answers().is_some_and(|peer| peer.uid == 0)
    }
}

impl Outcome {
    fn from(path: &Path) -> Self {
        let peer = match server_at(path) {
            Ok(peer) => peer,
            Err(e) => {
                return match e.kind() {
                    io::ErrorKind::NotFound => Self::Absent,
                    io::ErrorKind::ConnectionRefused => Self::LeftBehind,
                    io::ErrorKind::PermissionDenied => Self::Denied,
                    io::ErrorKind::WouldBlock => Self::Invalid("accepts no connections".to_owned()),
                    _ => Self::Invalid(format!("cannot be connected to: {e}")),
                };
            }
        };
        let answer = match ask_within(path, &Request::SNAPSHOT, PATIENCE) {
            Ok(answer) => answer,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Self::Invalid(format!("does not answer within {} s", PATIENCE.as_secs()));
            }
            Err(e) => return Self::Invalid(format!("does not speak the query protocol: {e}")),
        };
        match serde_json::from_slice(&answer) {
            Ok(answer) => Self::Answer(peer, answer),
            Err(e) => Self::Invalid(format!("does not speak the query protocol: {e}")),
        }
    }
}

pub(super) fn query(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "daemon";
    let all = &patient.daemon.0;
    if all.is_empty() {
        return vec![Check::ok(NAME, "not used: --local, --root or --topology was given")];
    }
    let mut checks = Vec::new();
    for (path, outcome) in all {
        let path = path.display();
        match outcome {
            Outcome::Answer(peer, answer) => checks.extend(answered(&who(*peer), &path.to_string(), answer)),
            Outcome::Absent => {}
            Outcome::LeftBehind => {
                checks.push(
                    Check::note(NAME, format!("{path} is left from a daemon that has exited"))
                        .remedy("`ttmem serve`"),
                );
            }
            Outcome::Denied => {
                let found = format!("{path} is not accessible to this user: `ttmem` fails");
                checks.push(
                    Check::warning(NAME, found)
                        .remedy("start the daemon with another --socket-mode, or use --local"),
                );
            }
            Outcome::Invalid(how) => {
                let found = format!("the server at {path} {how}: `ttmem` fails");
                checks.push(Check::broken(NAME, found).remedy("restart the daemon, or use --local"));
            }
        }
    }
    if all.iter().all(|(_, outcome)| matches!(outcome, Outcome::Absent | Outcome::LeftBehind)) {
        let tried: Vec<String> = all.iter().map(|(path, _)| path.display().to_string()).collect();
        let found = format!("not running: no answer at {}", some(&tried, MOST));
        checks.push(if patient.sockets.query_socket.is_some() {
            Check::warning(NAME, format!("{found}: `ttmem` fails"))
                .remedy("`ttmem serve`; or leave out --query-socket and TTMEM_QUERY_SOCKET")
        } else {
            Check::note(NAME, format!("{found}; not required"))
                .remedy("run `ttmem serve` for history and for other users' processes")
        });
    }
    checks
}

fn answered(who: &str, path: &str, answer: &Answer) -> Vec<Check> {
    const NAME: &str = "daemon";
    let (theirs, ours) = (&answer.host.ttmem, host().ttmem);
    let mut checks = vec![if *theirs == ours {
        Check::ok(NAME, format!("{who} answers at {path}"))
    } else {
        Check::warning(NAME, format!("{who} answers at {path} with version {theirs}; this is ttmem {ours}"))
            .remedy("restart it with the same version")
    }];
    if answer.simulated {
        checks.push(Check::note(NAME, "its devices are simulated; `ttmem --local` shows this machine's"));
    }
    checks
}

/// The socket of old clients.
pub(super) fn legacy(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "old clients";
    if patient.daemon.0.is_empty() {
        return Vec::new();
    }
    let path = &patient.sockets.legacy_socket;
    let shown = path.display();
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return vec![Check::ok(NAME, format!("no server at {shown}; only old clients need one"))];
        }
        Err(e) => {
            let found = format!("{shown} cannot be read: {e}");
            return vec![Check::warning(NAME, found).remedy("use another path: --legacy-socket")];
        }
    };
    if !found.file_type().is_socket() {
        return vec![
            Check::warning(NAME, format!("{shown} is not a socket: `ttmem serve` cannot use it"))
                .remedy("remove it"),
        ];
    }
    vec![match server_at(path) {
        Ok(peer) if peer.pid != 0 && patient.daemon.answers() == Some(peer) => {
            Check::ok(NAME, format!("the daemon serves {shown}"))
        }
        Ok(peer) => Check::note(
            NAME,
            format!("{shown} is served by {}: ttmem does not see what old clients report there", who(peer)),
        )
        .remedy("to see it, stop that server and run `ttmem serve`"),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            Check::note(NAME, format!("{shown} is left from a server that has exited"))
                .remedy("`ttmem serve` replaces it")
        }
        Err(e) => Check::warning(NAME, format!("{shown} is not accessible to this user: {e}"))
            .remedy("restart its server with another --socket-mode"),
    }]
}

/// A server with pid, name and user.
fn who(peer: Peer) -> String {
    let mut processes = Processes::default();
    let user = processes.user_name(peer.uid);
    match processes.name(peer.pid).filter(|_| peer.pid != 0) {
        Some(name) => format!("pid {} ({name}, {user})", peer.pid),
        None => format!("a process of {user} that is not visible"),
    }
}
