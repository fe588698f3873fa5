//! `ttmem demo`: the real daemon and real client processes with simulated devices.

pub(crate) mod client;

use crate::cli::DemoArgs;
use crate::sim::Machine;
use crate::{Exit, print, show, top};
use anyhow::Context;
use client::Role;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ttmem_core::{Detail, Snapshot};
use ttmem_reader::protocol::{Request, ask};
use ttmem_sources::SourceConfig;

/// Time after which the victim is killed, and after which it is started again.
const VICTIM_LIFETIME: Duration = Duration::from_secs(12);

/// A child process that is killed when this is dropped.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    let folder = tempfile::tempdir().context("cannot create a folder for the sockets of the demo")?;
    let (legacy, query) = (folder.path().join("legacy.sock"), folder.path().join("query.sock"));
    // A folder of its own on the tmpfs keeps these segments apart from those of real processes.
    let prefix = folder_prefix(std::process::id());
    let memory = tempfile::Builder::new().prefix(&prefix).tempdir_in("/dev/shm");
    let memory = memory.context("cannot create a folder for the segments of the demo in /dev/shm")?;
    let segments = memory.path().to_owned();
    let mut server = OwnedChild(
        this_program()?
            .args(["serve", "--quiet", "--sim", &args.sim.to_string(), "--parent", &own_pid()])
            .arg("--legacy-socket")
            .arg(&legacy)
            .arg("--query-socket")
            .arg(&query)
            .arg("--shm-dir")
            .arg(&segments)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the daemon")?,
    );
    wait_for_daemon(&query, &mut server)?;
    let mut notes = io::stderr();
    let _ = writeln!(
        notes,
        "ttmem demo: simulated {}; the daemon (pid {}) and its clients are real processes.\n\
         In another terminal:  ttmem --query-socket {q}\n\
                         or:  ttmem dump --query-socket {q}",
        args.sim,
        server.0.id(),
        q = query.display()
    );

    let sim = args.sim;
    let failures = SourceConfig::segments(&segments);
    let spawn = move |role: Role| {
        let place = if role.is_legacy() { &legacy } else { &segments };
        spawn_client(role, place, sim)
    };
    let mut clients = vec![spawn(Role::Llm)?, spawn(Role::Vision)?, spawn(Role::Leaky)?];
    if sim.chips().len() >= 4 {
        clients.push(spawn(Role::Diffusion)?);
    }
    // The victim is killed and started again when snapshots are fetched. It is killed with the demo.
    let victim = Arc::new(Mutex::new(Some(spawn(Role::Victim)?)));
    let _guard = VictimGuard(Arc::clone(&victim));
    let begin = Instant::now();
    let mut changed = begin;
    let mut fetch = move |detail: &Detail| -> anyhow::Result<Snapshot> {
        if changed.elapsed() >= VICTIM_LIFETIME {
            changed = Instant::now();
            let mut victim = victim.lock().unwrap_or_else(PoisonError::into_inner);
            // Dropping the child kills it, without a chance to clean up.
            *victim = if victim.is_some() { None } else { Some(spawn(Role::Victim)?) };
        }
        let answer =
            ask(&query, &Request::Snapshot(detail.clone())).context("the demo daemon does not answer")?;
        Ok(serde_json::from_slice(&answer)?)
    };
    let until = args.seconds.map(|seconds| begin + Duration::from_secs(seconds));
    if top::has_terminal() {
        let fetch = move |detail: &Detail| match fetch(detail) {
            Ok(snapshot) => Ok((snapshot, "via demo daemon".to_owned())),
            Err(e) => Err(format!("{e:#}")),
        };
        let post_mortem = top::read_post_mortem(failures);
        return top::show_dashboard(Box::new(fetch), &args.text, &args.refresh, false, until, post_mortem);
    }
    let stop = show::stop_on_signals()?;
    let printer = show::Printer::tables(&args.text);
    let print_one = || {
        print(&printer.format(&fetch(&Detail::NONE)?, false)?)?;
        Ok(Some(Exit::Done))
    };
    show::watch(print_one, args.refresh.refresh_ms(), None, until, &stop)
}

/// Kills the victim when the demo ends.
struct VictimGuard(Arc<Mutex<Option<OwnedChild>>>);

impl Drop for VictimGuard {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn folder_prefix(demo: u32) -> String {
    format!("ttmem-demo.{demo}.")
}

/// Removes the folder of a demo's segments, and no other folder. Its clients may need a moment to exit.
pub(crate) fn remove_segments(demo: u32, folder: &Path) {
    let named = folder.file_name().and_then(|name| name.to_str());
    if !named.is_some_and(|name| name.starts_with(&folder_prefix(demo))) {
        return;
    }
    for _ in 0..40 {
        let _ = std::fs::remove_dir_all(folder);
        if !folder.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
}

fn own_pid() -> String {
    std::process::id().to_string()
}

/// Requests SIGTERM for this process when its parent exits for any reason.
pub(crate) fn exit_with_parent(parent: u32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // The parent may have exited before the request.
    let now = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
    anyhow::ensure!(now == Some(parent as i32), "the demo has exited");
    Ok(())
}

fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program")?))
}

fn spawn_client(role: Role, place: &Path, sim: Machine) -> anyhow::Result<OwnedChild> {
    let child = this_program()?
        .args(["demo-client", role.name(), &own_pid()])
        .arg(place)
        .arg(sim.to_string())
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start the {} client of the demo", role.name()))?;
    Ok(OwnedChild(child))
}

fn wait_for_daemon(query: &Path, server: &mut OwnedChild) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let answer = ask(query, &Request::SNAPSHOT);
        match answer {
            Ok(_) => return Ok(()),
            Err(e) if begin.elapsed() > Duration::from_secs(10) => {
                return Err(e).context("the demo daemon did not start");
            }
            Err(_) => {}
        }
        if let Some(status) = server.0.try_wait()? {
            anyhow::bail!("the demo daemon exited: {status}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
