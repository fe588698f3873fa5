//! `cargo xtask prefix`: installs everything into an empty folder, hides the source tree, and uses all of it: the program, its
//! manual, the old names, the agent, and the library in programs of both compilers.

mod programs;

use crate::install::{self, OLD_NAMES, Request};
use crate::packages::has;
use crate::{root, succeed, target};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Hides folders, and runs the rest of its arguments: `$1` is the source tree, `$2` cargo's target folder, which may be
/// elsewhere.
const HIDE: &str = r#"
mount -t tmpfs none "$1"
if [ -d "$2" ]; then mount -t tmpfs none "$2"; fi
shift 2
exec "$@""#;

/// Variables that could affect the installed programs.
const VARIABLES: [&str; 9] = [
    "TTMEM",
    "TTMEM_AGENT",
    "TTMEM_SHM_DIR",
    "TTMEM_TRANSPORT",
    "TTMEM_LOG",
    "TT_ALLOC_TRACKING_ENABLED",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CMAKE_PREFIX_PATH",
];

/// Highest exposure of the service by systemd's rating, in tenths: it sees other users' processes, and little else.
const MAX_EXPOSURE: u32 = 20;

/// Installs everything, hides the source tree, and runs the checks there.
pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root can hide the source tree from its own programs");
    let folder = tempfile::Builder::new().prefix("ttmem-prefix.").tempdir()?;
    ensure!(!folder.path().starts_with(root()), "{} is in the source tree", folder.path().display());
    let (prefix, work) = (folder.path().join("prefix"), folder.path().join("work"));
    let mut request = Request { prefix: prefix.clone(), destination: None, build: true, quiet: true };
    install::install(&request)?;
    request.build = false;
    check_again(&request)?;

    fs::create_dir(&work)?;
    for file in fs::read_dir(root().join("packaging/tests"))? {
        let file = file?;
        fs::copy(file.path(), work.join(file.file_name()))?;
    }
    programs::extract_examples(&root(), &work)?;
    let xtask = work.join("xtask");
    fs::copy(std::env::current_exe()?, &xtask)?;
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-eu", "-c", HIDE, "sh"]);
    inside.arg(root()).arg(target()).arg(&xtask).arg("prefix-inside").arg(&prefix).arg(&work);
    for name in VARIABLES {
        inside.env_remove(name);
    }
    succeed(inside.current_dir("/"))
}

/// Checks that a second installation has the same files, and that the list of files is complete.
fn check_again(request: &Request) -> anyhow::Result<()> {
    let prefix = &request.prefix;
    let before = install::files_below(prefix)?;
    install::install(request)?;
    ensure!(install::files_below(prefix)? == before, "installing again adds or removes files");
    let list = fs::read_to_string(prefix.join(install::LIST))?;
    let mut listed: Vec<PathBuf> = list.lines().map(|name| prefix.join(name)).collect();
    listed.sort();
    ensure!(listed == before, "the list of files is not what is there");
    Ok(())
}

/// The checks, with the source tree hidden.
pub(crate) fn inside(prefix: &Path, work: &Path) -> anyhow::Result<()> {
    ensure!(!root().join("Cargo.toml").exists(), "the source tree is still there");
    let passed = |what: &str| println!("ok: {what}");
    check_program(prefix)?;
    passed("program, old names, manual, completions");
    check_agent(prefix)?;
    passed("ttmem run finds the agent");
    check_service(prefix)?;
    passed("the service starts what is installed");
    let count = programs::check(prefix, work)?;
    passed(&format!("{count} programs built; those that hold memory were read while they did"));

    // The files do not contain the prefix, and a blank in its path is harmless.
    let moved = prefix.with_file_name("moved elsewhere");
    fs::rename(prefix, &moved)?;
    let count = programs::check_moved(&moved, work)?;
    passed(&format!("{count} programs after the prefix was moved"));
    // Except for the dynamic linker, which cannot preload such a path.
    let (blank, moved) = (moved, prefix.with_file_name("moved"));
    fs::rename(blank, &moved)?;
    check_agent(&moved)?;

    // As docs/install.md says.
    shell(&moved, &format!(r#"cd "$0" && xargs rm -f < {}"#, install::LIST))?;
    let left = install::files_below(&moved)?;
    ensure!(left.is_empty(), "uninstalling leaves {left:?}");
    passed("uninstalling leaves nothing");
    Ok(())
}

fn check_program(prefix: &Path) -> anyhow::Result<()> {
    let program = prefix.join("bin/ttmem");
    let version = text(&run_installed(&program, &["--version"])?)?;
    ensure!(version.trim() == concat!("ttmem ", env!("CARGO_PKG_VERSION")), "--version says {version}");

    let [server, monitor] = OLD_NAMES.map(|name| prefix.join("bin").join(name));
    let help = text(&run_installed(&server, &["--help"])?)?;
    ensure!(help.contains("--socket-mode"), "the old server's name is no server:\n{help}");
    let help = text(&run_installed(&monitor, &["--help"])?)?;
    ensure!(
        help.contains("Usage: tt_smi_umd") && help.contains("--sysfs"),
        "the old monitor's name is no monitor:\n{help}"
    );
    // Exit code 3 without a device and tracked processes, otherwise 0.
    let shown = run_installed(&monitor, &["--local", "--json", "--sysfs"])?;
    ensure!(matches!(shown.status.code(), Some(0 | 3)), "{shown:?}");

    let pages = prefix.join("share/man/man1");
    for command in std::iter::once(String::new())
        .chain(install::subcommands(&program)?.into_iter().map(|it| format!("-{it}")))
    {
        let page = pages.join(format!("ttmem{command}.1"));
        let output = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-P-cbou"]).arg(&page).output()?;
        let (shown, errors) = (text(&output)?, String::from_utf8_lossy(&output.stderr));
        let name = format!("ttmem{command}");
        ensure!(shown.contains("SYNOPSIS") && shown.contains(&name), "{}: {shown}", page.display());
        ensure!(errors.trim().is_empty(), "{}: {errors}", page.display());
    }

    // Completions of `ttmem du` in bash.
    let offered = shell(
        prefix,
        r#"bash -euc 'source "$0/share/bash-completion/completions/ttmem"; COMP_WORDS=(ttmem du); COMP_CWORD=1
        _ttmem ttmem du ttmem; printf "%s\n" "${COMPREPLY[@]}"' "$0""#,
    )?;
    ensure!(offered.trim() == "dump", "bash offers {offered:?} behind `ttmem du`");
    for (file, part) in [
        ("zsh/site-functions/_ttmem", "#compdef ttmem"),
        ("fish/vendor_completions.d/ttmem.fish", "complete -c ttmem"),
    ] {
        let script = fs::read_to_string(prefix.join("share").join(file))?;
        ensure!(script.contains(part), "share/{file} is no such script");
    }
    Ok(())
}

fn check_agent(prefix: &Path) -> anyhow::Result<()> {
    let program = prefix.join("bin/ttmem");
    let seen = text(&run_installed(
        &program,
        &["run", "--", "sh", "-c", "echo $LD_PRELOAD; grep -c libttmem_agent /proc/self/maps"],
    )?)?;
    let agent = prefix.join("lib/ttmem/libttmem_agent.so").canonicalize()?;
    let (preload, loaded) = seen.split_once('\n').context("it prints two lines")?;
    ensure!(Path::new(preload) == agent && loaded.trim() != "0", "ttmem run gave {seen:?}");
    Ok(())
}

/// Checks that the program that systemd would start exists, and accepts the arguments.
fn check_service(prefix: &Path) -> anyhow::Result<()> {
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/ttmem.service"))?;
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("it starts nothing")?;
    let mut words = line.split(' ');
    let program = words.next().context("it starts nothing")?;
    ensure!(Path::new(program) == prefix.join("bin/ttmem"), "the service starts {program}");
    let args: Vec<&str> = words.chain(["--help"]).collect();
    text(&run_installed(Path::new(program), &args)?)?;
    ensure!(unit.contains("\nType=notify\n"), "the service does not say when it is ready");
    if !has("systemd-analyze") {
        println!("systemd-analyze is not here: the unit is not verified");
        return Ok(());
    }
    let path = prefix.join("lib/systemd/system/ttmem.service");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(&path).arg(path.with_extension("socket"));
    let verified = verify.output()?;
    let errors = String::from_utf8_lossy(&verified.stderr);
    // Messages about other units of this machine do not matter.
    let ours = errors.lines().find(|line| line.contains("ttmem"));
    ensure!(ours.is_none(), "systemd says: {errors}");
    let exposure = format!("--threshold={MAX_EXPOSURE}");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager", &exposure]).arg(&path);
    let rating = text(&analyze.output()?).context("the service is more exposed than it was")?;
    println!("{}", rating.lines().last().unwrap_or_default().trim());
    Ok(())
}

fn run_installed(program: &Path, args: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.output().with_context(|| format!("cannot run {}", program.display()))
}

/// The output of a program that must have succeeded.
fn text(output: &Output) -> anyhow::Result<String> {
    if !output.status.success() {
        bail!("ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout.clone())?)
}

/// What a line for the shell prints; `$0` is the prefix.
fn shell(prefix: &Path, line: &str) -> anyhow::Result<String> {
    let output = Command::new("sh").args(["-euc", line]).arg(prefix).output()?;
    text(&output).with_context(|| line.to_owned())
}
