//! Where the query socket is, if nobody says.

use std::path::PathBuf;

const SYSTEM: &str = "/run/ttmem/query.sock";

/// Where to serve: the system's place for root, else the user's own.
pub(crate) fn query_socket_to_serve() -> PathBuf {
    if rustix::process::geteuid().is_root() { PathBuf::from(SYSTEM) } else { users() }
}

/// Where to ask: the system's daemon, else the user's own.
pub(crate) fn query_sockets_to_ask() -> Vec<PathBuf> {
    vec![PathBuf::from(SYSTEM), users()]
}

fn users() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("ttmem/query.sock"),
        None => PathBuf::from(format!("/tmp/ttmem-{}/query.sock", rustix::process::geteuid().as_raw())),
    }
}
