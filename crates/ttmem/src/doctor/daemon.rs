//! The daemon and its sockets. None is needed, so that none runs is no fault.

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

/// What came of asking for daemons, in the order in which `ttmem` asks. Empty: nobody was asked.
pub(super) struct Daemon(Vec<(PathBuf, Heard)>);

enum Heard {
    Answer(Peer, Answer),
    Nobody,
    /// Its server is dead.
    LeftBehind,
    Denied,
    /// Somebody is there, but does not answer as it should.
    Strange(String),
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
            let heard = Heard::from(&path);
            let goes_on = matches!(heard, Heard::Nobody | Heard::LeftBehind);
            asked.push((path, heard));
            if !goes_on {
                break;
            }
        }
        Self(asked)
    }

    fn answers(&self) -> Option<Peer> {
        self.0
            .iter()
            .find_map(|(_, heard)| if let Heard::Answer(peer, _) = heard { Some(*peer) } else { None })
    }

    /// Whether one answers that may read everything.
    pub(super) fn is_roots(&self) -> bool {
        self.answers().is_some_and(|peer| peer.uid == 0)
    }
}

impl Heard {
    fn from(path: &Path) -> Self {
        let peer = match server_at(path) {
            Ok(peer) => peer,
            Err(e) => {
                return match e.kind() {
                    io::ErrorKind::NotFound => Self::Nobody,
                    io::ErrorKind::ConnectionRefused => Self::LeftBehind,
                    io::ErrorKind::PermissionDenied => Self::Denied,
                    io::ErrorKind::WouldBlock => Self::Strange("takes no connections".to_owned()),
                    _ => Self::Strange(format!("cannot be connected to: {e}")),
                };
            }
        };
        let answer = match ask_within(path, &Request::SNAPSHOT, PATIENCE) {
            Ok(answer) => answer,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Self::Strange(format!("does not answer within {} s", PATIENCE.as_secs()));
            }
            Err(e) => return Self::Strange(format!("does not answer as a ttmem does: {e}")),
        };
        match serde_json::from_slice(&answer) {
            Ok(answer) => Self::Answer(peer, answer),
            Err(e) => Self::Strange(format!("does not answer as a ttmem does: {e}")),
        }
    }
}

pub(super) fn query(patient: &Patient<'_>) -> Vec<Check> {
    const NAME: &str = "daemon";
    let all = &patient.daemon.0;
    if all.is_empty() {
        return vec![Check::ok(NAME, "not asked, since --local, --root or --topology was given")];
    }
    let mut checks = Vec::new();
    for (path, heard) in all {
        let path = path.display();
        match heard {
            Heard::Answer(peer, answer) => checks.extend(answered(&who(*peer), &path.to_string(), answer)),
            Heard::Nobody => {}
            Heard::LeftBehind => {
                checks.push(
                    Check::note(NAME, format!("{path} was left behind by a daemon that is dead"))
                        .remedy("`ttmem serve`"),
                );
            }
            Heard::Denied => {
                let found = format!("{path} may not be used by this user, so `ttmem` fails");
                checks.push(
                    Check::warning(NAME, found)
                        .remedy("start the daemon with another --socket-mode, or use --local"),
                );
            }
            Heard::Strange(how) => {
                let found = format!("whoever listens at {path} {how}, so `ttmem` fails");
                checks.push(Check::broken(NAME, found).remedy("restart the daemon, or use --local"));
            }
        }
    }
    if all.iter().all(|(_, heard)| matches!(heard, Heard::Nobody | Heard::LeftBehind)) {
        let tried: Vec<String> = all.iter().map(|(path, _)| path.display().to_string()).collect();
        let found = format!("none answers at {}", some(&tried, MOST));
        checks.push(if patient.sockets.query_socket.is_some() {
            Check::warning(NAME, format!("{found}, where it was said to be, so `ttmem` fails"))
                .remedy("`ttmem serve`; or leave out --query-socket and TTMEM_QUERY_SOCKET")
        } else {
            Check::note(NAME, format!("{found}; none is needed"))
                .remedy("for history, and for what only root may read: `ttmem serve`")
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
        Check::warning(NAME, format!("{who} answers at {path}, but is ttmem {theirs}; this is {ours}"))
            .remedy("restart it with the same version")
    }];
    if answer.simulated {
        checks.push(Check::note(NAME, "it shows simulated chips; `ttmem --local` shows this machine's"));
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
            return vec![Check::ok(
                NAME,
                format!("nobody serves {shown}, and only clients of the old protocol need it"),
            )];
        }
        Err(e) => {
            let found = format!("{shown} cannot be looked at: {e}");
            return vec![Check::warning(NAME, found).remedy("name another place: --legacy-socket")];
        }
    };
    if !found.file_type().is_socket() {
        return vec![
            Check::warning(NAME, format!("{shown} is no socket, so `ttmem serve` cannot serve there"))
                .remedy("remove it"),
        ];
    }
    vec![match server_at(path) {
        Ok(peer) if peer.pid != 0 && patient.daemon.answers() == Some(peer) => {
            Check::ok(NAME, format!("the daemon serves {shown}"))
        }
        Ok(peer) => Check::note(
            NAME,
            format!("{shown} is served by {}: what is said there is known to it alone", who(peer)),
        )
        .remedy("if ttmem is to know it: end that server, then `ttmem serve`"),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            Check::note(NAME, format!("{shown} was left behind by a server that is dead"))
                .remedy("`ttmem serve` takes it over")
        }
        Err(e) => Check::warning(NAME, format!("{shown} cannot be used by this user: {e}"))
            .remedy("restart its server with another --socket-mode"),
    }]
}

/// A server, for people.
fn who(peer: Peer) -> String {
    let mut processes = Processes::default();
    let user = processes.user(peer.uid);
    match processes.name(peer.pid).filter(|_| peer.pid != 0) {
        Some(name) => format!("pid {} ({name}, {user})", peer.pid),
        None => format!("a process that cannot be seen, of {user}"),
    }
}
