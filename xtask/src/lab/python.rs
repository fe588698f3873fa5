//! Finds a Python that ttnn has wheels for, and creates an environment with it.

use crate::succeed;
use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Minor versions with wheels, the preferred one first.
const MINORS: [&str; 2] = ["10", "12"];

/// Packages besides ttnn and its dependencies.
pub(super) const EXTRAS: [&str; 3] = ["pytest", "pytest-xdist", "numpy"];

/// Prints the minor version of a Python, if it can create environments.
const PROBE: &str =
    "import sys, venv, ensurepip; assert sys.version_info[0] == 3; print(sys.version_info[1])";

/// Paths of Pythons. pyenv's programs on the path work only for enabled versions, so its own folders are searched, too.
fn candidates() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["python3".to_owned()].into_iter().chain(MINORS.map(|minor| format!("python3.{minor}")));
    let names: Vec<String> = names.collect();
    let mut found: Vec<PathBuf> = std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .collect();
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    if let Some(root) = pyenv.or_else(|| std::env::home_dir().map(|home| home.join(".pyenv"))) {
        let versions = std::fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
        found.extend(versions.map(|version| version.path().join("bin/python")));
    }
    found.retain(|python| python.exists());
    found
}

/// Pythons that run and can create environments, with their minor versions.
fn running() -> Vec<(PathBuf, String)> {
    let minor = |python: &Path| {
        let output = Command::new(python).args(["-c", PROBE]).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    candidates().into_iter().filter_map(|python| minor(&python).map(|minor| (python, minor))).collect()
}

/// Any Python from 3.10 on, for uses without ttnn.
pub(crate) fn any() -> anyhow::Result<PathBuf> {
    let recent = |minor: &str| minor.parse::<u32>().is_ok_and(|minor| minor >= 10);
    let found = running().into_iter().find(|(_, minor)| recent(minor));
    found.map(|(python, _)| python).context("no Python 3.10 or later, with its venv module, on the path")
}

/// A Python of one of these versions that runs.
fn find() -> anyhow::Result<PathBuf> {
    let running = running();
    let found = MINORS.iter().find_map(|wanted| running.iter().find(|(_, minor)| minor == wanted));
    match found {
        Some((python, _)) => Ok(python.clone()),
        None => bail!(
            "ttnn has wheels for Python 3.10 and 3.12 only, and neither was found, with its venv module, on the path or \
             among pyenv's versions ({} others were): install one, for example with `pyenv install 3.10`",
            running.len()
        ),
    }
}

/// Creates an environment with a version of ttnn.
pub(super) fn create_environment(folder: &Path, version: &str) -> anyhow::Result<()> {
    let python = find()?;
    println!("installing ttnn {version} (0.7 GB) into target/lab/{version} with {}", python.display());
    succeed(Command::new(&python).args(["-m", "venv"]).arg(folder))?;
    succeed(pip(folder).arg(format!("ttnn=={version}")).args(EXTRAS))
        .with_context(|| format!("cannot install ttnn {version}"))
}

/// Installs the packages besides ttnn into an environment that an earlier version of this program created.
pub(super) fn install_extras(folder: &Path) -> anyhow::Result<()> {
    succeed(pip(folder).args(EXTRAS)).with_context(|| format!("cannot install {}", EXTRAS.join(", ")))
}

fn pip(folder: &Path) -> Command {
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
    pip
}

/// Folder of an environment's packages.
pub(super) fn packages(folder: &Path) -> anyhow::Result<PathBuf> {
    let library = folder.join("lib");
    let python = std::fs::read_dir(&library)
        .with_context(|| format!("cannot read {}", library.display()))?
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir());
    let packages = python.with_context(|| format!("no packages in {}", library.display()))?;
    ensure!(packages.join("ttnn").is_dir(), "no ttnn in {}", packages.display());
    Ok(packages)
}
