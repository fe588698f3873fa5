//! `cargo xtask python`: builds the wheel, and tests it in a new environment.

use crate::{build_release, lab, root, succeed, target};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages that build the wheel and check its types, also those of the plugin for pytest.
const TOOLS: [&str; 3] = ["maturin==1.16.0", "mypy==2.4.1", "pytest==9.2.0"];

pub(crate) fn run() -> anyhow::Result<()> {
    let package = root().join("python");
    let tools = tools()?;
    succeed(Command::new(tools.join("bin/mypy")).current_dir(&package))?;
    let (wheel, python) = install()?;
    // Checks that the stubs match the native module.
    let mut stubs = Command::new(tools.join("bin/stubtest"));
    succeed(stubs.arg("ttmem._ttmem").env("PYTHONPATH", packages(&python)?))?;
    build_release()?;
    let mut tests = Command::new(&python);
    tests.current_dir(&package).args(["-m", "unittest", "discover", "--top-level-directory", "."]);
    tests.env("TTMEM_PROGRAM", target().join("release/ttmem")).env("PYTHONDONTWRITEBYTECODE", "1");
    succeed(&mut tests)?;
    let size = fs::metadata(&wheel)?.len();
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    println!("{name} ({} kB): types checked, installed, tested, docs/python.md run", size / 1000);
    Ok(())
}

/// Builds the wheel and installs it into a new environment; returns the wheel and that environment's Python.
pub(crate) fn install() -> anyhow::Result<(PathBuf, PathBuf)> {
    let tools = tools()?;
    let wheels = folder().join("wheels");
    remove(&wheels)?;
    let mut build = Command::new(tools.join("bin/maturin"));
    build.current_dir(root().join("python")).args(["build", "--release", "--locked", "--quiet", "--out"]);
    // maturin need not search for other Pythons: they make no difference to the wheel.
    build.stdout(Stdio::null());
    succeed(build.arg(&wheels).arg("--interpreter").arg(tools.join("bin/python")))?;
    let built: Vec<PathBuf> = fs::read_dir(&wheels)?.flatten().map(|it| it.path()).collect();
    ensure!(built.len() == 1, "{} wheels were built", built.len());
    let wheel = built.into_iter().next().context("no wheel was built")?;
    let name = wheel.to_string_lossy();
    ensure!(name.contains("-cp310-abi3-"), "{name} is not for every Python from 3.10 on");
    let environment = folder().join("environment");
    remove(&environment)?;
    let python = new_environment(&environment)?;
    succeed(pip(&python).args(["--no-index", "--no-deps"]).arg(&wheel))
        .context("cannot install the wheel")?;
    Ok((wheel, python))
}

/// The environment of tools, which is created if it is missing or has other versions.
fn tools() -> anyhow::Result<PathBuf> {
    let tools = folder().join("tools");
    let has = tools.join("has.txt");
    let wanted = TOOLS.join("\n");
    if fs::read_to_string(&has).is_ok_and(|it| it == wanted) && tools.join("bin/mypy").exists() {
        return Ok(tools);
    }
    println!("installing {} into target/python", TOOLS.join(", "));
    remove(&tools)?;
    let python = new_environment(&tools)?;
    succeed(pip(&python).args(TOOLS)).context("cannot install what builds wheels")?;
    fs::write(has, wanted)?;
    Ok(tools)
}

fn new_environment(folder: &Path) -> anyhow::Result<PathBuf> {
    succeed(Command::new(lab::python::any()?).args(["-m", "venv"]).arg(folder))?;
    Ok(folder.join("bin/python"))
}

/// Folder of an environment's packages.
fn packages(python: &Path) -> anyhow::Result<PathBuf> {
    let script = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"];
    let output = Command::new(python).args(script).output().context("cannot run Python")?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
    pip
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn folder() -> PathBuf {
    target().join("python")
}
