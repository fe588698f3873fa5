//! `cargo xtask lab`: stock ttnn on simulated devices.
//!
//! The wheel that Tenstorrent publishes has a mock: given a description of a machine, it replaces the driver and keeps
//! the rest, above all the allocators. What it lacks is the kernel compiler, for which a stand-in is installed. So tests
//! can compare what we say with what the real runtime says, without hardware.

pub(crate) mod board;
pub(crate) mod compiler;
mod descriptor;
pub(crate) mod python;
mod topology;

use crate::{cargo, root, succeed, target};
use anyhow::{Context, bail, ensure};
use board::Board;
use descriptor::Descriptor;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wheel that everything is tested with first.
pub(crate) const TTNN: &str = "0.81.1";
/// The older wheel that is tracked in full.
pub(crate) const OLDER: &str = "0.76.0";
/// The oldest wheel that opens a simulated device.
pub(crate) const OLDEST: &str = "0.67.4";

/// Names the file from which the mock takes its chips.
const CLUSTER_VARIABLE: &str = "TT_METAL_MOCK_CLUSTER_DESC_PATH";

/// Written last, so that an environment whose making was interrupted is noticed.
const STAMP: &str = "ttmem-lab";

/// A Python environment with stock ttnn.
pub(crate) struct Lab {
    /// Version of the wheel.
    pub(crate) version: String,
    /// Its interpreter. It keeps compiled kernels in the environment itself, apart for each
    /// `TTMEM_LAB_KERNEL_NOPS`.
    pub(crate) python: PathBuf,
    /// The wheel's `libtt_metal.so`.
    pub(crate) library: PathBuf,
}

impl Lab {
    /// Its interpreter, told to pretend that there is such a machine.
    pub(crate) fn on(&self, board: Board) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.python);
        command.env(CLUSTER_VARIABLE, cluster(board)?);
        Ok(command)
    }

    fn at(folder: &Path, version: &str) -> anyhow::Result<Self> {
        let library = python::packages(folder)?.join("ttnn/build/lib/libtt_metal.so");
        ensure!(library.exists(), "ttnn {version} has no {}", library.display());
        Ok(Self { version: version.to_owned(), python: folder.join("bin/python"), library })
    }
}

/// A number that is the same for the same text on every machine (FNV-1a).
fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn home() -> PathBuf {
    root().join("target/lab")
}

/// What the stamp says of an environment: its own line, and that of the stand-in. Environments know their own path, so
/// one that was moved must be made again.
fn stamp(folder: &Path, version: &str) -> [String; 2] {
    [format!("ttnn {version} in {}", folder.display()), format!("stand-in {:016x}", compiler::fingerprint())]
}

/// The lines of the stamp that are as they should be.
fn stamped(folder: &Path, version: &str) -> [bool; 2] {
    let found = fs::read_to_string(folder.join(STAMP)).unwrap_or_default();
    let usable = folder.join("bin/python").exists();
    stamp(folder, version).map(|line| usable && found.lines().any(|it| it == line))
}

/// The environment, if it is made already.
pub(crate) fn ready(version: &str) -> Option<Lab> {
    let folder = home().join(version);
    (stamped(&folder, version) == [true; 2]).then(|| Lab::at(&folder, version).ok()).flatten()
}

/// Makes an environment, or what is missing of it.
pub(crate) fn prepare(version: &str) -> anyhow::Result<Lab> {
    let plausible = version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    ensure!(plausible, "{version} is no version of ttnn");
    fs::create_dir_all(home())?;
    // Tests may ask for it at the same time.
    let lock = File::create(home().join("lock")).context("cannot lock target/lab")?;
    lock.lock().context("cannot lock target/lab")?;
    compiler::prerequisites()?;
    if let Some(lab) = ready(version) {
        return Ok(lab);
    }
    let folder = home().join(version);
    let [environment, _] = stamped(&folder, version);
    if !environment {
        if folder.exists() {
            println!("target/lab/{version} is not complete or was moved: making it again");
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        python::environment(&folder, version).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
    }
    let lab = Lab::at(&folder, version)?;
    compiler::install(&folder)?;
    fs::write(folder.join(STAMP), stamp(&folder, version).join("\n") + "\n")?;
    Ok(lab)
}

/// The descriptor of a machine, written if it is not there.
pub(crate) fn cluster(board: Board) -> anyhow::Result<PathBuf> {
    let folder = home().join("clusters");
    let path = folder.join(format!("{}.yaml", board.name()));
    let text = Descriptor::of(board).yaml();
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    fs::create_dir_all(&folder)?;
    // Renamed into place, as somebody may be reading the old one.
    let fresh = tempfile::NamedTempFile::new_in(&folder)?;
    fs::write(&fresh, text)?;
    fresh.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The descriptors of all machines, where tests look for them.
pub(crate) fn write_clusters() -> anyhow::Result<()> {
    Board::ALL.into_iter().try_for_each(|board| cluster(board).map(drop))
}

/// Builds the release agent with what drift and the benchmarks ask of it besides (`probe.rs` there), apart from the one
/// that is installed.
pub(crate) fn build_probe_agent() -> anyhow::Result<PathBuf> {
    let folder = target().join("probe");
    let args = ["build", "--release", "--locked", "--quiet", "-p", "ttmem-agent", "--features", "probe"];
    succeed(cargo(&args).arg("--target-dir").arg(&folder))?;
    Ok(folder.join("release/libttmem_agent.so"))
}

/// `ttmem run -- …` with the release program and this agent, in a folder of its own.
pub(crate) fn tracked(agent: &Path, folder: &Path, command: &Command) -> Command {
    let mut run = Command::new(target().join("release/ttmem"));
    run.args(["run", "--shm-dir"]).arg(folder).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => run.env(name, value),
            None => run.env_remove(name),
        };
    }
    // So that nothing else of the caller's gets in.
    run.env_remove("LD_PRELOAD").env_remove("TTMEM_LOG").env("TTMEM_AGENT", agent);
    run
}

/// `cargo xtask lab --test [NAME…]`: tests of the agent in stock ttnn, all or those whose name contains NAME. `drift` is
/// apart: it uses the release program.
pub(crate) fn test(versions: &[&str], options: &[&str]) -> anyhow::Result<()> {
    for version in versions {
        prepare(version)?;
    }
    write_clusters()?;
    // One test has the Python package beside the agent.
    if !target().join("python/environment").exists() {
        crate::python::install()?;
    }
    // With the whole workspace selected, features and so artifacts are those of the other tests.
    let mut test = cargo(&["test", "--workspace", "--locked", "--test", "lab", "--", "--skip", "drift::"]);
    succeed(test.args(options))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// `cargo xtask lab --clusters`
pub(crate) fn list_clusters() -> anyhow::Result<()> {
    println!("board      arch         chips  mesh  cores  banks of L1, DRAM  descriptor");
    for board in Board::ALL {
        let (rows, columns) = board.mesh();
        println!(
            "{:<10} {:<12} {:>5} {:>5} {:>6} {:>12} {:>5}  {}",
            board.name(),
            board.arch().name(),
            board.chips(),
            format!("{rows}x{columns}"),
            board.workers(),
            board.l1_banks(),
            board.dram_banks(),
            shown(&cluster(board)?),
        );
    }
    Ok(())
}

/// `cargo xtask lab [VERSION]`
pub(crate) fn run(version: &str) -> anyhow::Result<()> {
    let lab = prepare(version)?;
    list_clusters()?;
    let python = shown(&lab.python);
    println!(
        "\nttnn {version} is ready. To run a program on one of these machines:\n\n  \
         {CLUSTER_VARIABLE}=target/lab/clusters/t3k.yaml {python} xtask/lab/smoke.py 2x4\n\n\
         TTMEM_LAB_KERNEL_NOPS=N in the environment makes kernels N instructions longer."
    );
    Ok(())
}

/// `cargo xtask lab [VERSION] --smoke`: every machine is opened, used and closed, and has the banks that it should have.
pub(crate) fn smoke(version: &str) -> anyhow::Result<()> {
    let lab = prepare(version)?;
    let mut failed = 0;
    for board in Board::ALL {
        match smoke_on(&lab, board) {
            Ok(told) => println!("{:<10} ok      {told}", board.name()),
            Err(e) => {
                failed += 1;
                println!("{:<10} FAILED  {e:#}", board.name());
            }
        }
    }
    ensure!(failed == 0, "ttnn {}: {failed} of {} boards failed", lab.version, Board::ALL.len());
    Ok(())
}

fn smoke_on(lab: &Lab, board: Board) -> anyhow::Result<String> {
    let (rows, columns) = board.mesh();
    let script = root().join("xtask/lab/smoke.py");
    let output = lab.on(board)?.arg(script).arg(format!("{rows}x{columns}")).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let told: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("not one line of JSON: {text}"))?;
    ensure!(told["chips"] == board.chips(), "{} chips, not {}", told["chips"], board.chips());
    for (space, banks) in [("DRAM", board.dram_banks()), ("L1", board.l1_banks())] {
        for opened in [&told["opened"], &told["one_chip"]] {
            let it = &opened[space];
            ensure!(it["banks"] == banks, "{} banks of {space}, not {banks}", it["banks"]);
        }
        let (held, freed) = (&told["held"][space], &told["freed"][space]);
        ensure!(held["allocated_per_bank"].as_u64() > Some(0), "nothing was allocated in {space}");
        ensure!(freed["allocated_per_bank"] == 0, "{space} is not free again: {freed}");
    }
    let bytes = |space: &str| told["opened"][space]["bytes_per_bank"].clone();
    Ok(format!(
        "{rows}x{columns}, {} banks x {} B of L1, {} x {} B of DRAM",
        board.l1_banks(),
        bytes("L1"),
        board.dram_banks(),
        bytes("DRAM")
    ))
}
