//! `cargo xtask install`: installs everything below a prefix, where it works without the source tree.

mod library;
mod tree;

use crate::{build_release, installed_agent, root, succeed, target};
use anyhow::{Context, bail, ensure};
use library::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
pub(crate) use tree::LIST;
use tree::{DATA, PROGRAM, Tree};

const USAGE: &str = "usage: cargo xtask install --prefix DIR [--destdir DIR] [--no-build]";

/// Paths in which shells search for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/ttmem"),
    ("zsh", "share/zsh/site-functions/_ttmem"),
    ("fish", "share/fish/vendor_completions.d/ttmem.fish"),
];

/// Pages that are installed besides `docs`.
const PAGES: [&str; 6] =
    ["README.md", "CHANGELOG.md", "LICENSE", "PROTOCOL.md", "ARCHITECTURE.md", "SECURITY.md"];

/// Names of the old tools; under these the program behaves as they did.
pub(crate) const OLD_NAMES: [&str; 2] = ["allocation_server_poc", "tt_smi_umd"];

/// An installation.
pub(crate) struct Request {
    /// The folder from which everything will be used.
    pub(crate) prefix: PathBuf,
    /// The folder in which a package is assembled, with the prefix below it.
    pub(crate) destination: Option<PathBuf>,
    /// Whether to build first.
    pub(crate) build: bool,
    /// Whether to print no file names.
    pub(crate) quiet: bool,
}

fn parse(args: &[&str]) -> anyhow::Result<Request> {
    let (mut prefix, mut destination, mut build) = (None, None, true);
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        let (name, value) = arg.split_once('=').map_or((arg, None), |(name, value)| (name, Some(value)));
        let mut value = || {
            let value = value.or_else(|| rest.next().copied()).filter(|value| !value.is_empty());
            value.map(PathBuf::from).with_context(|| format!("{name} needs a folder\n{USAGE}"))
        };
        match name {
            "--prefix" => prefix = Some(value()?),
            "--destdir" => destination = Some(value()?),
            "--no-build" if arg == name => build = false,
            _ => bail!("unknown argument: {arg}\n{USAGE}"),
        }
    }
    let prefix = prefix.with_context(|| format!("where to? --prefix is missing\n{USAGE}"))?;
    Ok(Request { prefix, destination, build, quiet: false })
}

/// Runs the command.
pub(crate) fn command(args: &[&str]) -> anyhow::Result<()> {
    let request = parse(args)?;
    install(&request)?;
    let Request { prefix, destination, .. } = request;
    eprintln!("installed; to take it away again: cd {} && xargs rm -f < {LIST}", for_shell(&prefix));
    if destination.is_none() && ["/usr", "/usr/local"].contains(&&*prefix.to_string_lossy()) {
        eprintln!("so that programs find the library: ldconfig; for the service: systemctl daemon-reload");
    }
    Ok(())
}

/// Quotes a path for a shell.
fn for_shell(path: &Path) -> String {
    let path = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(plain) { path.into_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// Builds what is out of date, if requested, and installs everything.
pub(crate) fn install(request: &Request) -> anyhow::Result<()> {
    let prefix = &request.prefix;
    let base = tree::base(prefix, request.destination.as_deref())?;
    if request.build {
        build_release()?;
    }
    let release = target().join("release");
    // Nothing is written to cargo's target folder: root may install, and another user may build next.
    let folder = tempfile::tempdir()?;
    let (shared, fixed) = library::make(&release, folder.path())?;
    let program = strip(&release.join("ttmem"), folder.path())?;
    let agent = strip(&installed_agent(), folder.path())?;

    let mut tree = Tree::new(base, request.quiet);
    tree.copy("bin/ttmem", PROGRAM, &program)?;
    for name in OLD_NAMES {
        tree.link(&format!("bin/{name}"), "ttmem")?;
    }
    tree.copy("lib/ttmem/libttmem_agent.so", PROGRAM, &agent)?;
    tree.copy(&format!("lib/{}", library::shared_name()), PROGRAM, &shared)?;
    tree.link(&format!("lib/{}", library::soname()), &library::shared_name())?;
    tree.link("lib/libttmem.so", &library::soname())?;
    tree.copy("lib/libttmem.a", DATA, &fixed)?;
    let include = root().join("include");
    for file in files_below(&include)? {
        let name = file.strip_prefix(&include)?.display();
        tree.copy(&format!("include/{name}"), DATA, &file)?;
    }
    for (template, name) in [
        ("ttmem.pc.in", "lib/pkgconfig/ttmem.pc"),
        ("ttmem-config.cmake.in", "lib/cmake/ttmem/ttmem-config.cmake"),
        ("ttmem-config-version.cmake.in", "lib/cmake/ttmem/ttmem-config-version.cmake"),
        ("ttmem.service.in", "lib/systemd/system/ttmem.service"),
        ("ttmem.socket.in", "lib/systemd/system/ttmem.socket"),
    ] {
        let text = fs::read_to_string(root().join("packaging").join(template))?;
        tree.put(name, DATA, fill_template(&text, prefix)?.as_bytes())?;
    }
    for command in std::iter::once(None).chain(subcommands(&program)?.iter().map(Some)) {
        let page = output(Command::new(&program).arg("man").args(command))?;
        let name = command.map_or_else(String::new, |name| format!("-{name}"));
        tree.put(&format!("share/man/man1/ttmem{name}.1"), DATA, page.as_bytes())?;
    }
    for (shell, name) in COMPLETIONS {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        tree.put(name, DATA, script.as_bytes())?;
    }
    for page in PAGES {
        tree.copy(&format!("share/doc/ttmem/{page}"), DATA, &root().join(page))?;
    }
    for file in files_below(&root().join("docs"))? {
        // The same folders as in the source tree, so that links between pages work.
        let name = file.strip_prefix(root())?.display();
        tree.copy(&format!("share/doc/ttmem/{name}"), DATA, &file)?;
    }
    tree.finish()
}

/// Copies a file without its debug information.
fn strip(file: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    ensure!(file.is_file(), "{} is not there: build it first", file.display());
    let copy = folder.join(file.file_name().context("a file has a name")?);
    succeed(Command::new("objcopy").arg("--strip-debug").arg(file).arg(&copy))?;
    Ok(copy)
}

/// The commands that the program's help lists.
pub(crate) fn subcommands(program: &Path) -> anyhow::Result<Vec<String>> {
    let help = output(Command::new(program).arg("-h"))?;
    let list =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names =
        list.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    ensure!(names.len() > 5, "the program's help lists no commands");
    Ok(names)
}

/// Replaces the variables of a template.
fn fill_template(template: &str, prefix: &Path) -> anyhow::Result<String> {
    // A service can only run programs below a home if it can read homes.
    let in_home = ["/home", "/root", "/run/user"].iter().any(|home| prefix.starts_with(home));
    let text = template
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@MAJOR@", env!("CARGO_PKG_VERSION_MAJOR"))
        .replace("@MINOR@", env!("CARGO_PKG_VERSION_MINOR"))
        .replace("@SHARED@", &library::shared_name())
        .replace("@SONAME@", &library::soname())
        .replace("@PRIVATE_LIBS@", library::PRIVATE)
        .replace("@PRIVATE_LIBS_LIST@", &library::PRIVATE.replace(' ', ";"))
        .replace("@BINDIR@", &systemd_path(&prefix.join("bin")))
        .replace("@PROTECT_HOME@", if in_home { "read-only" } else { "yes" });
    // Variables are in upper case, unlike `@system-service`.
    let is_variable = |it: &&str| it.len() > 3 && it.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    match text.split('@').find(is_variable) {
        Some(name) => bail!("a template leaves @{name}@ open"),
        None => Ok(text),
    }
}

/// Escapes a path for a unit file.
fn systemd_path(path: &Path) -> String {
    let path = path.display().to_string().replace('\\', r"\\").replace('%', "%%").replace('"', "\\\"");
    if path.contains([' ', '\t']) { path.replace(' ', r"\x20").replace('\t', r"\x09") } else { path }
}

/// All files below a folder, sorted.
pub(crate) fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_required() {
        assert!(parse(&[]).is_err() && parse(&["--prefix"]).is_err() && parse(&["--prefix", ""]).is_err());
        assert!(parse(&["--prefix", "/usr", "--fast"]).is_err());
        let all = parse(&["--prefix=/usr", "--destdir", "/tmp/d", "--no-build"]).unwrap();
        assert_eq!(all.prefix, Path::new("/usr"));
        assert_eq!(all.destination.as_deref(), Some(Path::new("/tmp/d")));
        assert!(!all.build);
        let error = install(&parse(&["--prefix", "usr", "--no-build"]).unwrap()).unwrap_err().to_string();
        assert!(error.contains("absolute"), "{error}");
    }

    #[test]
    fn shell_reads_a_quoted_path_as_one_word() {
        assert_eq!(for_shell(Path::new("/usr/local")), "/usr/local");
        for name in ["/opt/a b", "/opt/it's", "/opt/$HOME;*", "/opt/ü\t"] {
            let script = format!("printf %s {}", for_shell(Path::new(name)));
            assert_eq!(output(Command::new("sh").args(["-c", &script])).unwrap(), name);
        }
    }

    #[test]
    fn templates_are_filled_completely() {
        let unit =
            "ExecStart=@BINDIR@/ttmem serve\nProtectHome=@PROTECT_HOME@\nSystemCallFilter=@system-service\n";
        let filled = fill_template(unit, Path::new("/usr")).unwrap();
        assert_eq!(
            filled,
            "ExecStart=/usr/bin/ttmem serve\nProtectHome=yes\nSystemCallFilter=@system-service\n"
        );
        let in_home = fill_template(unit, Path::new("/home/a b")).unwrap();
        assert!(in_home.contains(r"=/home/a\x20b/bin/ttmem serve"));
        assert!(fill_template(unit, Path::new("/root/x")).unwrap().contains("ProtectHome=read-only"));
        assert!(fill_template("@UNKNOWN@", Path::new("/usr")).is_err());
    }
}
