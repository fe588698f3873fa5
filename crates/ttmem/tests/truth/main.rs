//! Readers see exactly what writers did: real processes, real kills, no tolerance.
//!
//! * `threads`: eight threads write at full speed, then at a fixed rate, while a reader samples; every sample marked exact
//!   must equal the model at its sequence number.
//! * `kills`: a writer is killed at random moments; its crash segment must equal the model at its last published event.
//! * `restarts`: the daemon is killed and started again under load; its first answer must equal the model.
//!
//! `cargo test` runs a short form; `cargo xtask truth` the long one (`TTMEM_LONG=1`), optimised.
#![allow(clippy::unwrap_used, missing_docs)]

mod script;
mod threads;

use anyhow::{Context, ensure};
use script::{Random, Script, published};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ttmem_client::{Options, Tracker};
use ttmem_sources::SegmentFile;
use ttmem_testkit::{Server, eventually, memory_folder};

/// `short`, or `long` if the long form is requested.
fn amount(short: u64, long: u64) -> u64 {
    if std::env::var_os("TTMEM_LONG").is_some() { long } else { short }
}

/// A lock for tests that need the processors for themselves.
fn lock_processors() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn threads_at_full_speed_match_the_model() -> anyhow::Result<()> {
    let _lock = lock_processors();
    threads::run("8 threads at full speed", amount(100_000, 1_000_000), None)
}

#[test]
fn threads_at_a_fixed_rate_match_the_model() -> anyhow::Result<()> {
    let _lock = lock_processors();
    threads::run("8 threads at 100 k events/s", amount(40_000, 1_000_000), Some(100_000))
}

/// Variable with the arguments of a [`writer`], one a line.
const WRITER: &str = "TTMEM_TRUTH_WRITER";

/// The process that [`spawn`] starts, which is this binary again; as a test it does nothing.
#[test]
fn writer() -> anyhow::Result<()> {
    let Ok(arguments) = std::env::var(WRITER) else { return Ok(()) };
    let arguments: Vec<&str> = arguments.lines().collect();
    match arguments[..] {
        ["script", folder, seed, rate] => write_script(folder, seed.parse()?, rate.parse()?),
        ["threads", folder, events, rate, log] => threads::write(folder, events.parse()?, rate.parse()?, log),
        _ => anyhow::bail!("unknown writer: {arguments:?}"),
    }
}

/// A writer's process; killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(arguments: &[&str]) -> anyhow::Result<Process> {
    let exe = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(exe);
    command.args(["--exact", "writer", "--nocapture", "--test-threads=1"]).env(WRITER, arguments.join("\n"));
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    Ok(Process(command.spawn().context("cannot start a writer")?))
}

fn tracker(folder: &str) -> Tracker {
    Tracker::new(&Options::default().folder(folder))
}

/// The only segment in a folder, once there is one.
fn only_segment(folder: &Path) -> PathBuf {
    eventually("the writer has a segment", || {
        let mut files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.find(|file| SegmentFile::open_path(file).is_ok())
    })
}

/// Steps that are generated in one batch.
const AHEAD: usize = 50_000;

/// A writer that follows the script of a seed until it is killed, at `rate` events a second; 0: at full speed.
fn write_script(folder: &str, seed: u64, rate: u64) -> anyhow::Result<()> {
    let tracker = tracker(folder);
    let mut script = Script::new(seed);
    // Exits when the parent does.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    // Generated in advance, so that nearly all time is spent in the tracker, where the kill should happen.
    let generate = |script: &mut Script| -> Vec<_> {
        let one = |_| {
            let step = script.next_step();
            (step, script.apply(step))
        };
        (0..AHEAD).map(one).collect()
    };
    let mut steps = generate(&mut script);
    script.define(&tracker)?;
    let begin = Instant::now();
    let mut written = 0;
    loop {
        for (n, &(step, events)) in steps.iter().enumerate() {
            script.write(&tracker, step)?;
            written += events;
            if rate > 0 && n % 100 == 0 {
                let due = Duration::from_nanos(written * 1_000_000_000 / rate);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
        }
        steps = generate(&mut script);
    }
}

#[test]
fn crash_segments_match_the_model() -> anyhow::Result<()> {
    let _lock = lock_processors();
    let count = amount(100, 1000);
    let (mut half_done, mut finished, mut events) = (0, 0, 0);
    let mut random = Random::new(count);
    for seed in 0..count {
        let folder = memory_folder();
        let path = folder.path().to_str().context("the folder's name is not UTF-8")?;
        let writer = spawn(&["script", path, &seed.to_string(), "0"])?;
        let file = only_segment(folder.path());
        std::thread::sleep(Duration::from_nanos(random.below(4_000_000)));
        drop(writer);
        let segment = SegmentFile::open_path(&file).map_err(|e| anyhow::anyhow!("{e}"))?;
        let applied = segment.applied().map_err(|e| anyhow::anyhow!("{e}"))?;
        let contents = segment.contents().map_err(|e| anyhow::anyhow!("{e}"))?;
        ensure!(contents.exact, "kill {seed}: what is left is not exact");
        let sequence = contents.sequence;
        ensure!(sequence == applied || sequence == applied + 1, "kill {seed}: {applied} became {sequence}");
        let mut script = Script::new(seed);
        script.run_to(sequence);
        ensure!(
            published(&contents) == script.held(),
            "kill {seed}: event {sequence} differs from the model"
        );
        let mut begun = [0; 8];
        std::fs::File::open(&file)?.read_exact_at(&mut begun, ttmem_wire::segment::word::BEGUN as u64)?;
        half_done += u64::from(u64::from_le_bytes(begun) > applied);
        finished += u64::from(sequence > applied);
        events += sequence;
    }
    println!(
        "kills: {count} crash segments read, all equal to the model; {half_done} writers were killed inside an event, \
         which was whole in {finished} segments and absent in the others; {events} events in all"
    );
    Ok(())
}

#[test]
fn restarted_daemon_matches_the_model() -> anyhow::Result<()> {
    let _lock = lock_processors();
    let count = amount(5, 20);
    let segments = memory_folder();
    let path = segments.path().to_str().context("the folder's name is not UTF-8")?;
    let writer = spawn(&["script", path, "7", "100000"])?;
    let pid = writer.0.id();
    only_segment(segments.path());
    let mut script = Script::new(7);
    for n in 0..count {
        std::thread::sleep(Duration::from_millis(150));
        let server = Server::start_reading(
            tempfile::tempdir()?,
            Arc::clone(&segments),
            Command::new(env!("CARGO_BIN_EXE_ttmem")),
            &["--quiet"],
            None,
        );
        let first = server.first.processes.iter().find(|process| process.pid == Some(pid));
        let first = first.context("the first answer does not know the writer")?;
        script.check(first, &format!("restart {n}, first answer"))?;
        for poll in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            let later = server.process(pid).context("the writer is gone")?;
            script.check(&later, &format!("restart {n}, poll {poll}"))?;
        }
        // Dropping the server kills it with SIGKILL.
        drop(server);
    }
    println!(
        "restarts: {count} times the first answer after a kill -9, and 20 more each, equal the model (event {} at the end)",
        script.sequence()
    );
    Ok(())
}
