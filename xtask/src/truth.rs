//! `cargo xtask truth`: is what readers see what writers did? Real processes, real kills, no tolerance.
//!
//! * `threads`: eight threads write as fast as they can, then at a pace, while a reader samples; every sample that calls
//!   itself exact must equal the model at its sequence number.
//! * `kills`: a writer is killed at random moments; what it left must equal the model at the last event it tells of.
//! * `restarts`: the daemon is killed and started again under load; its first answer must equal the model.

mod script;
mod threads;

use crate::{cargo, root, succeed};
use anyhow::{Context, ensure};
use script::{Script, published};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ttmem_client::{Options, Tracker};
use ttmem_sources::SegmentFile;
use ttmem_testkit::{Server, eventually, memory_folder};

pub(crate) use threads::write as write_from_threads;

/// Everything, as often as is said in the design; or a little of it, for CI.
pub(crate) fn run(which: &[&str], little: bool) -> anyhow::Result<()> {
    succeed(&mut cargo(&["build", "--release", "--locked", "--quiet"]))?;
    // A writer built without optimisation would hardly trouble a reader.
    if cfg!(debug_assertions) {
        let mut again =
            cargo(&["run", "--release", "--locked", "--quiet", "--package", "xtask", "--", "truth"]);
        again.args(which);
        return succeed(again.args(little.then_some("--little")));
    }
    let wanted = |name: &str| which.is_empty() || which.contains(&name);
    if wanted("threads") {
        let (events, paced) = if little { (100_000, 40_000) } else { (1_000_000, 1_000_000) };
        threads::run("8 threads as fast as they can", events, None)?;
        threads::run("8 threads at 100 k events/s", paced, Some(100_000))?;
    }
    if wanted("kills") {
        kills(if little { 100 } else { 1000 })?;
    }
    if wanted("restarts") {
        restarts(if little { 5 } else { 20 })?;
    }
    Ok(())
}

/// A writer in a process of its own; killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(args: &[&str]) -> anyhow::Result<Process> {
    let exe = std::env::current_exe().context("cannot find this program")?;
    let child =
        Command::new(exe).args(args).stdin(Stdio::piped()).spawn().context("cannot start a writer")?;
    Ok(Process(child))
}

fn tracker(folder: &str) -> Tracker {
    Tracker::new(&Options { folder: folder.to_owned(), ..Options::default() })
}

/// The only segment in a folder, once there is one.
fn only_segment(folder: &Path) -> PathBuf {
    eventually("the writer has a segment", || {
        let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.last().filter(|file| SegmentFile::open_path(file).is_ok())
    })
}

/// Steps that are decided at once.
const AHEAD: usize = 50_000;

/// A writer that follows the script of a seed for ever, at so many events a second.
pub(crate) fn write_script(folder: &str, seed: &str, rate: &str) -> anyhow::Result<()> {
    let (seed, rate): (u64, u64) = (seed.parse()?, rate.parse()?);
    let tracker = tracker(folder);
    let mut script = Script::new(seed);
    // The end of the parent is the end of this.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    // Decided in advance, so that nearly all of the time is spent in the tracker, which is where it is to be killed.
    let decide = |script: &mut Script| -> Vec<_> {
        let one = |_| {
            let step = script.step();
            (step, script.apply(step))
        };
        (0..AHEAD).map(one).collect()
    };
    let mut steps = decide(&mut script);
    script.define(&tracker)?;
    let begin = Instant::now();
    let mut told = 0;
    loop {
        for (n, &(step, events)) in steps.iter().enumerate() {
            script.tell(&tracker, step)?;
            told += events;
            if rate > 0 && n % 100 == 0 {
                let due = Duration::from_nanos(told * 1_000_000_000 / rate);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
        }
        steps = decide(&mut script);
    }
}

fn kills(count: u64) -> anyhow::Result<()> {
    let (mut half_done, mut finished, mut events) = (0, 0, 0);
    let mut random = script::Random::new(count);
    for seed in 0..count {
        let folder = memory_folder();
        let path = folder.path().to_str().context("a strange folder")?;
        let writer = spawn(&["truth-script", path, &seed.to_string(), "0"])?;
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
        "kills: {count} black boxes opened, all equal to the model; {half_done} were killed inside an event, \
         which was told to its end in {finished} and had not begun to tell in the others; {events} events in all"
    );
    Ok(())
}

fn restarts(count: usize) -> anyhow::Result<()> {
    let segments = memory_folder();
    let path = segments.path().to_str().context("a strange folder")?;
    let writer = spawn(&["truth-script", path, "7", "100000"])?;
    let pid = writer.0.id();
    only_segment(segments.path());
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let exe = target.join("release/ttmem");
    let mut script = Script::new(7);
    for n in 0..count {
        std::thread::sleep(Duration::from_millis(150));
        let server = Server::start_reading(
            tempfile::tempdir()?,
            std::sync::Arc::clone(&segments),
            Command::new(&exe),
            &["--quiet"],
            None,
        );
        let first = server.first.processes.iter().find(|process| process.pid == Some(pid));
        let first = first.context("the first answer does not know the writer")?;
        script.check(first, &format!("restart {n}, first answer"))?;
        for look in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            let later = server.process(pid).context("the writer is gone")?;
            script.check(&later, &format!("restart {n}, look {look}"))?;
        }
        // kill -9, as dropping does.
        drop(server);
    }
    println!(
        "restarts: {count} times the first answer after a kill -9, and 20 more each, equal the model (event {} at the end)",
        script.sequence()
    );
    Ok(())
}
