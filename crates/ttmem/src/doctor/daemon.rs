//! The daemon and its sockets. ttmem works without one.

use super::{Check, Inputs, MAX_ITEMS, join_first};
use crate::cli::Sockets;
use serde::Deserialize;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ttmem_core::machine::Host;
use ttmem_core::snapshot::FindingKind;
use ttmem_daemon::{Peer, server_at};
use ttmem_reader::protocol::{Request, ask_within};
use ttmem_reader::{host, paths};
use ttmem_sources::process::Processes;

/// How long a daemon may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets of daemons in the order in which `ttmem` queries them, with the outcome of each; empty if none was queried.
pub(super) struct Daemon(Vec<(PathBuf, Outcome)>);

enum Outcome {
    Answer(Peer, Answer),
    Absent,
    /// The socket is left from a server that has exited.
    Stale,
    Denied,
    /// A server answers, but does not speak the protocol.
    Invalid(String),
}

/// The parts of a snapshot that checks need. Only these are parsed, so that later versions are understood.
#[derive(Deserialize)]
struct Answer {
    host: Host,
    simulated: bool,
    #[serde(default)]
    findings: Vec<FoundProblem>,
}

/// The parts of a finding that checks need.
#[derive(Deserialize)]
struct FoundProblem {
    kind: FindingKind,
    #[serde(default)]
    text: String,
}

impl Daemon {
    pub(super) fn query(sockets: &Sockets) -> Self {
        let mut queried = Vec::new();
        if sockets.is_local() {
            return Self(queried);
        }
        for path in sockets.query_socket.clone().map_or_else(paths::query_sockets_to_ask, |path| vec![path]) {
            let outcome = Outcome::query(&path);
            let tries_next = matches!(outcome, Outcome::Absent | Outcome::Stale);
            queried.push((path, outcome));
            if !tries_next {
                break;
            }
        }
        Self(queried)
    }

    /// The process that answered.
    fn peer(&self) -> Option<Peer> {
        self.0
            .iter()
            .find_map(|(_, outcome)| if let Outcome::Answer(peer, _) = outcome { Some(*peer) } else { None })
    }

    /// Why the daemon that answered does not listen for old clients.
    fn legacy_error(&self) -> Option<&str> {
        let answers = self.0.iter().filter_map(|(_, outcome)| match outcome {
            Outcome::Answer(_, answer) => Some(&answer.findings),
            _ => None,
        });
        let found = answers.flatten().find(|it| it.kind == FindingKind::LegacySocket);
        found.map(|finding| finding.text.as_str())
    }

    /// Whether a daemon of root answered, which can read everything.
    pub(super) fn runs_as_root(&self) -> bool {
        self.peer().is_some_and(|peer| peer.uid == 0)
    }
}

impl Outcome {
    fn query(path: &Path) -> Self {
        let peer = match server_at(path) {
            Ok(peer) => peer,
            Err(e) => {
                return match e.kind() {
                    io::ErrorKind::NotFound => Self::Absent,
                    io::ErrorKind::ConnectionRefused => Self::Stale,
                    io::ErrorKind::PermissionDenied => Self::Denied,
                    io::ErrorKind::WouldBlock => Self::Invalid("accepts no connections".to_owned()),
                    _ => Self::Invalid(format!("cannot be connected to: {e}")),
                };
            }
        };
        let answer = match ask_within(path, &Request::SNAPSHOT, ANSWER_TIMEOUT) {
            Ok(answer) => answer,
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Self::Invalid(format!("does not answer within {} s", ANSWER_TIMEOUT.as_secs()));
            }
            Err(e) => return Self::Invalid(format!("does not speak the query protocol: {e}")),
        };
        match serde_json::from_slice(&answer) {
            Ok(answer) => Self::Answer(peer, answer),
            Err(e) => Self::Invalid(format!("does not speak the query protocol: {e}")),
        }
    }
}

pub(super) fn check_query_socket(inputs: &Inputs<'_>) -> Vec<Check> {
    const NAME: &str = "daemon";
    let all = &inputs.daemon.0;
    if all.is_empty() {
        return vec![Check::ok(NAME, "not used: --local, --root or --topology was given")];
    }
    let mut checks = Vec::new();
    for (path, outcome) in all {
        let path = path.display();
        match outcome {
            Outcome::Answer(peer, answer) => {
                checks.extend(check_answer(&describe_peer(*peer), &path.to_string(), answer));
            }
            Outcome::Absent => {}
            Outcome::Stale => {
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
    if all.iter().all(|(_, outcome)| matches!(outcome, Outcome::Absent | Outcome::Stale)) {
        let tried: Vec<String> = all.iter().map(|(path, _)| path.display().to_string()).collect();
        let found = format!("not running: no answer at {}", join_first(&tried, MAX_ITEMS));
        checks.push(if inputs.sockets.query_socket.is_some() {
            Check::warning(NAME, format!("{found}: `ttmem` fails"))
                .remedy("`ttmem serve`; or leave out --query-socket and TTMEM_QUERY_SOCKET")
        } else {
            Check::note(NAME, format!("{found}; not required"))
                .remedy("run `ttmem serve` for history and for other users' processes")
        });
    }
    checks
}

fn check_answer(peer: &str, path: &str, answer: &Answer) -> Vec<Check> {
    const NAME: &str = "daemon";
    let (theirs, ours) = (&answer.host.ttmem, host().ttmem);
    let mut checks = vec![if *theirs == ours {
        Check::ok(NAME, format!("{peer} answers at {path}"))
    } else {
        Check::warning(NAME, format!("{peer} answers at {path} with version {theirs}; this is ttmem {ours}"))
            .remedy("restart it with the same version")
    }];
    if answer.simulated {
        checks.push(Check::note(NAME, "its devices are simulated; `ttmem --local` shows this machine's"));
    }
    checks
}

/// Checks the socket of old clients.
pub(super) fn check_legacy_socket(inputs: &Inputs<'_>) -> Vec<Check> {
    const NAME: &str = "old clients";
    if inputs.daemon.0.is_empty() {
        return Vec::new();
    }
    if let Some(why) = inputs.daemon.legacy_error() {
        let remedy = "remove what is in its place, or pass the sockets from systemd: `systemctl enable --now ttmem.socket`";
        return vec![Check::warning(NAME, why.to_owned()).remedy(remedy)];
    }
    let path = &inputs.sockets.legacy_socket;
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
        Ok(peer) if peer.pid != 0 && inputs.daemon.peer() == Some(peer) => {
            Check::ok(NAME, format!("the daemon serves {shown}"))
        }
        Ok(peer) => Check::note(
            NAME,
            format!(
                "{shown} is served by {}: ttmem does not see what old clients report there",
                describe_peer(peer)
            ),
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

/// A server by pid, name and user.
fn describe_peer(peer: Peer) -> String {
    let mut processes = Processes::default();
    let user = processes.user_name(peer.uid);
    match processes.name(peer.pid).filter(|_| peer.pid != 0) {
        Some(name) => format!("pid {} ({name}, {user})", peer.pid),
        None => format!("a process of {user} that is not visible"),
    }
}
