//! A hostile user against a daemon, and what other users notice of it.
//!
//! Each attack runs as an unprivileged user for some seconds, and then all of them together. Meanwhile another user runs
//! `ttmem`, an old client of a third one reports and compares its level, and a service manager measures the time between two
//! signs of life. `cargo test` runs a short form, which checks that every figure is exact and that the daemon survives;
//! `cargo xtask siege` runs the long one, optimised, and also compares times and memory with their limits.
#![allow(clippy::unwrap_used, missing_docs)]

mod attacks;
mod probes;

use attacks::{ATTACKS, Target};
use probes::{Figures, ServiceManager};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use ttmem_testkit::Server;

/// The attacker. Others have the next numbers.
const ATTACKER: u32 = 65534;
const READER: u32 = 60001;
const CLIENT: u32 = 60002;
const HOLDER: u32 = 60003;
/// Processes that hold the buffers of honest users.
const HOLDERS: u32 = 4;

/// Variable with the role of a process of [`Siege::start`], one argument a line.
const ROLE: &str = "TTMEM_SIEGE_ROLE";

/// The process that [`Siege::start`] starts, which is this binary again; as a test it does nothing.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let arguments: Vec<&str> = role.lines().collect();
    let [name, query, legacy, amount] = arguments[..] else { panic!("unknown role: {role:?}") };
    ttmem_reader::raise_descriptor_limit();
    let target = Target { query: query.into(), legacy: legacy.into() };
    let amount: u64 = amount.parse().unwrap();
    match name {
        "client" => probes::report_and_compare(&target, Duration::from_millis(amount)),
        "holder" => probes::hold(&target, amount),
        attack => attacks::run(attack, &target, Duration::from_millis(amount)),
    }
}

/// A daemon under siege.
struct Siege {
    server: Server,
    program: PathBuf,
    roles: PathBuf,
}

impl Siege {
    /// Starts a process as a user.
    fn start(&self, uid: u32, role: &str, amount: u64) -> Child {
        let (query, legacy) = (self.server.query.display(), self.server.legacy.display());
        let mut command = Command::new(&self.roles);
        command.args(["--exact", "role", "--nocapture", "--test-threads=1", "--quiet"]);
        command.env(ROLE, format!("{role}\n{query}\n{legacy}\n{amount}")).uid(uid).gid(uid);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Measures for a time while attacks run.
    fn measure(&self, attacks: &[&str], time: Duration, manager: &ServiceManager) -> Figures {
        let ms = time.as_millis() as u64;
        let mut attackers: Vec<Child> = attacks.iter().map(|name| self.start(ATTACKER, name, ms)).collect();
        let client = self.start(CLIENT, "client", ms);
        manager.restart();
        let mut figures = probes::watch(self, time, manager);
        figures.add_client(client);
        for attacker in &mut attackers {
            assert!(attacker.wait().unwrap().success());
        }
        figures
    }
}

/// Copies a program to a folder that other users can enter.
fn copy(program: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(program.file_name().unwrap());
    assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
    copy
}

#[test]
fn hostile_user_harms_no_other_user() {
    // Seconds of each attack.
    let long: Option<u64> = std::env::var("TTMEM_SIEGE").ok().and_then(|text| text.parse().ok());
    let (time, buffers) = match long {
        Some(seconds) => (Duration::from_secs(seconds), if seconds >= 30 { 2_000_000 } else { 250_000 }),
        None => (Duration::from_secs(1), 20_000),
    };
    let manager = ServiceManager::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ttmem"));
    manager.configure(&mut command);
    let server = Server::start_by(command, &["--sim", "t3k", "--quiet"]);
    let folder = server.folder.path();
    let program = copy(Path::new(env!("CARGO_BIN_EXE_ttmem")), folder);
    let roles = copy(&std::env::current_exe().unwrap(), folder);
    let siege = Siege { server, program, roles };
    let mut holders: Vec<Child> = (0..HOLDERS).map(|n| siege.start(HOLDER + n, "holder", buffers)).collect();
    for holder in &mut holders {
        let mut lines = BufReader::new(holder.stderr.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
    }
    let live = buffers * u64::from(HOLDERS);
    println!("{live} buffers of {HOLDERS} users, {} s of each attack", time.as_secs());
    println!("{}", Figures::HEADER);
    let mut failures = Vec::new();
    let all: Vec<&str> = ATTACKS.iter().map(|(name, _)| *name).collect();
    let single = ATTACKS.iter().map(|(name, _)| vec![*name]);
    for attacks in [Vec::new()].into_iter().chain(single).chain([all]) {
        let figures = siege.measure(&attacks, time, &manager);
        let name = match attacks[..] {
            [] => "none",
            [name] => name,
            _ => "all",
        };
        println!("{}", figures.row(name));
        assert_eq!(figures.wrong, 0, "{name}: levels of an honest client");
        assert!(figures.answers > 0 && figures.runs > 0, "{name}");
        if long.is_some() {
            failures.extend(figures.failures(live).into_iter().map(|why| format!("{name}: {why}")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
