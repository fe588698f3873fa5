//! `cargo xtask lab`: stock ttnn on simulated devices.
//!
//! The wheel that Tenstorrent publishes has a mock: given a cluster descriptor, it replaces the driver and keeps the rest,
//! above all the allocators. It lacks the kernel compiler, for which a stand-in is installed. So tests can compare ttmem's
//! figures with the real runtime's, without hardware.

pub(crate) mod board;
pub(crate) mod compiler;
mod descriptor;
pub(crate) mod python;
mod topology;

use crate::{AGENT_PROFILE, cargo, root, succeed, target};
use anyhow::{Context, bail, ensure};
use board::Board;
use descriptor::Descriptor;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wheel that all tests use.
pub(crate) const TTNN: &str = "0.81.1";
/// The wheel before, in which programs are compared by `cargo xtask programs`.
pub(crate) const BEFORE: &str = "0.80.0";
/// The older wheel that is tracked in full.
pub(crate) const OLDER: &str = "0.76.0";
/// The oldest wheel that opens a simulated device.
pub(crate) const OLDEST: &str = "0.67.4";

/// Variable with the path of the cluster descriptor for the mock.
const CLUSTER_VARIABLE: &str = "TT_METAL_MOCK_CLUSTER_DESC_PATH";

/// File that is written last, so that an incomplete environment is detected.
const STAMP: &str = "ttmem-lab";

/// A Python environment with stock ttnn.
pub(crate) struct Lab {
    /// Version of the wheel.
    pub(crate) version: String,
    /// The environment's interpreter. Compiled kernels are kept in the environment, separately for each
    /// `TTMEM_LAB_KERNEL_NOPS`.
    pub(crate) python: PathBuf,
    /// The wheel's `libtt_metal.so`.
    pub(crate) library: PathBuf,
}

impl Lab {
    /// A command of its interpreter, on a simulated machine.
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

/// A hash of a text that is the same on every machine (FNV-1a).
fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn home() -> PathBuf {
    root().join("target/lab")
}

/// Lines of an environment's stamp: its own, that of packages besides ttnn, and that of the stand-in. Environments contain
/// their own path, so one that was moved must be created again.
fn stamp(folder: &Path, version: &str) -> [String; 3] {
    [
        format!("ttnn {version} in {}", folder.display()),
        format!("with {}", python::EXTRAS.join(" ")),
        format!("stand-in {:016x}", compiler::fingerprint()),
    ]
}

/// Whether each line of the stamp is up to date.
fn stamped(folder: &Path, version: &str) -> [bool; 3] {
    let found = fs::read_to_string(folder.join(STAMP)).unwrap_or_default();
    let usable = folder.join("bin/python").exists();
    stamp(folder, version).map(|line| usable && found.lines().any(|it| it == line))
}

/// The environment, if it exists and is up to date.
pub(crate) fn ready(version: &str) -> Option<Lab> {
    let folder = home().join(version);
    (stamped(&folder, version) == [true; 3]).then(|| Lab::at(&folder, version).ok()).flatten()
}

/// Creates an environment, or what is missing of it.
pub(crate) fn prepare(version: &str) -> anyhow::Result<Lab> {
    let plausible = version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    ensure!(plausible, "{version} is no version of ttnn");
    fs::create_dir_all(home())?;
    // Tests may prepare it at the same time.
    let lock = File::create(home().join("lock")).context("cannot lock target/lab")?;
    lock.lock().context("cannot lock target/lab")?;
    compiler::prerequisites()?;
    if let Some(lab) = ready(version) {
        return Ok(lab);
    }
    let folder = home().join(version);
    let [environment, has_extras, _] = stamped(&folder, version);
    if !environment {
        if folder.exists() {
            println!("target/lab/{version} is not complete or was moved: creating it again");
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        python::create_environment(&folder, version).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
    } else if !has_extras {
        python::install_extras(&folder)?;
    }
    let lab = Lab::at(&folder, version)?;
    compiler::install(&folder)?;
    fs::write(folder.join(STAMP), stamp(&folder, version).join("\n") + "\n")?;
    Ok(lab)
}

/// Path of a machine's cluster descriptor, which is written if it is out of date.
pub(crate) fn cluster(board: Board) -> anyhow::Result<PathBuf> {
    let folder = home().join("clusters");
    let path = folder.join(format!("{}.yaml", board.name()));
    let text = Descriptor::of(board).yaml();
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    fs::create_dir_all(&folder)?;
    // Renamed into place, since another process may be reading the old one.
    let fresh = tempfile::NamedTempFile::new_in(&folder)?;
    fs::write(&fresh, text)?;
    fresh.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Writes the descriptors of all machines, for tests.
pub(crate) fn write_clusters() -> anyhow::Result<()> {
    Board::ALL.into_iter().try_for_each(|board| cluster(board).map(drop))
}

/// Builds the agent as it is installed, with the functions that drift and the benchmarks need (`probe.rs` there), in another folder than
/// the one that is installed.
pub(crate) fn build_probe_agent() -> anyhow::Result<PathBuf> {
    let folder = target().join("probe");
    let args = ["build", "--profile", AGENT_PROFILE, "--locked", "--quiet", "-p", "ttmem-agent"];
    succeed(cargo(&args).args(["--features", "probe", "--target-dir"]).arg(&folder))?;
    Ok(folder.join(AGENT_PROFILE).join("libttmem_agent.so"))
}

/// The command `ttmem run -- COMMAND` with the release program and an agent, with a folder for segments.
pub(crate) fn tracked(agent: &Path, folder: &Path, command: &Command) -> Command {
    let mut run = Command::new(target().join("release/ttmem"));
    run.args(["run", "--exec", "--shm-dir"])
        .arg(folder)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => run.env(name, value),
            None => run.env_remove(name),
        };
    }
    // The caller's settings must not interfere.
    run.env_remove("LD_PRELOAD").env_remove("TTMEM_LOG").env("TTMEM_AGENT", agent);
    run
}

/// `cargo xtask lab --test [NAME…]`: tests of the agent in stock ttnn, all or those whose name contains NAME. `drift` is left
/// out, since it uses the release program.
pub(crate) fn test(versions: &[&str], options: &[&str]) -> anyhow::Result<()> {
    for version in versions {
        prepare(version)?;
    }
    write_clusters()?;
    // One test uses the Python package beside the agent.
    if !target().join("python/environment").exists() {
        crate::python::install()?;
    }
    // With the whole workspace selected, features and artifacts are those of the other tests.
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

/// `cargo xtask lab [VERSION] --smoke`: opens, uses and closes every machine, and checks its banks.
pub(crate) fn smoke(version: &str) -> anyhow::Result<()> {
    let lab = prepare(version)?;
    let mut failed = 0;
    for board in Board::ALL {
        match smoke_on(&lab, board) {
            Ok(summary) => println!("{:<10} ok      {summary}", board.name()),
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
    let report: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("not one line of JSON: {text}"))?;
    ensure!(report["chips"] == board.chips(), "{} chips, not {}", report["chips"], board.chips());
    for (space, banks) in [("DRAM", board.dram_banks()), ("L1", board.l1_banks())] {
        for opened in [&report["opened"], &report["one_chip"]] {
            let found = &opened[space]["banks"];
            ensure!(*found == banks, "{found} banks of {space}, not {banks}");
        }
        let (held, freed) = (&report["held"][space], &report["freed"][space]);
        ensure!(held["allocated_per_bank"].as_u64() > Some(0), "nothing was allocated in {space}");
        ensure!(freed["allocated_per_bank"] == 0, "{space} is not free again: {freed}");
    }
    let bytes = |space: &str| report["opened"][space]["bytes_per_bank"].clone();
    Ok(format!(
        "{rows}x{columns}, {} banks x {} B of L1, {} x {} B of DRAM",
        board.l1_banks(),
        bytes("L1"),
        board.dram_banks(),
        bytes("DRAM")
    ))
}
