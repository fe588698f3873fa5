//! README and docs: every command on a page runs, and pages keep their shape.

use crate::exe;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use ttmem_reader::protocol::{Request, ask};
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{Server, eventually};

/// Number of blocks whose commands cannot run here, each marked with its reason.
const NOT_RUN: usize = 30;

/// The pid that pages use for a tracked process.
const PAGE_PID: &str = "4242";

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files below a folder with one of these extensions, sorted.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if path.extension().is_some_and(|it| extensions.iter().any(|wanted| it == *wanted)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A page of the documentation.
struct Page {
    /// Path relative to the repository.
    name: String,
    text: String,
}

fn pages() -> Vec<Page> {
    let root = repository();
    let mut paths: Vec<PathBuf> = ["README.md", "PROTOCOL.md", "CONTRIBUTING.md", "SECURITY.md"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    paths.extend(files(&root.join("docs"), &["md"]));
    let page = |path: PathBuf| Page {
        name: path.strip_prefix(&root).unwrap().display().to_string(),
        text: fs::read_to_string(path).unwrap(),
    };
    paths.into_iter().map(page).collect()
}

/// A fenced block of a page.
struct Block {
    language: String,
    lines: Vec<String>,
    /// The line of its fence, from 1.
    at: usize,
    /// The reason in the comment before it, if it is not run.
    not_run: Option<String>,
}

impl Page {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut before = "";
        let mut lines = self.text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
                let not_run = before.strip_prefix("<!-- not run: ").and_then(|it| it.strip_suffix(" -->"));
                blocks.push(Block {
                    language: language.to_owned(),
                    lines: block.map(str::to_owned).collect(),
                    at: number + 1,
                    not_run: not_run.map(str::to_owned),
                });
            }
            before = line;
        }
        blocks
    }
}

impl Block {
    /// The commands that a reader would type; quotes may span lines.
    fn commands(&self) -> Vec<String> {
        let typed: Vec<&str> = match self.language.as_str() {
            "sh" => self.lines.iter().map(String::as_str).collect(),
            "console" => self.lines.iter().filter_map(|line| line.strip_prefix("$ ")).collect(),
            "" if self.lines.iter().all(|line| line.starts_with("ttmem ")) => {
                self.lines.iter().map(String::as_str).collect()
            }
            _ => Vec::new(),
        };
        let mut commands = Vec::new();
        let mut pending = String::new();
        for line in typed {
            pending.push_str(line);
            let parses = Command::new("bash").args(["-n", "-c", &pending]).stderr(Stdio::null()).status();
            if parses.unwrap().success() {
                commands.push(std::mem::take(&mut pending));
            } else {
                pending.push('\n');
            }
        }
        assert_eq!(pending, "", "a command that does not end");
        commands.retain(|command| !command.trim().is_empty() && !command.trim_start().starts_with('#'));
        commands
    }
}

/// A machine with simulated devices, a daemon and tracked processes.
pub(crate) struct Fixture {
    server: Server,
    clients: Vec<Child>,
    bin: TempDir,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        let server = Server::start(exe(), &["--sim", "t3k"]);
        let client = |role| {
            let parent = std::process::id().to_string();
            let mut command = Command::new(exe());
            command.args(["demo-client", role, &parent]).arg(server.segments.path()).arg("t3k");
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        let clients = vec![client("llm"), client("vision")];
        let bin = tempfile::tempdir().unwrap();
        symlink(exe(), bin.path().join("ttmem")).unwrap();
        let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let python = String::from_utf8(python.expect("python3 is installed").stdout).unwrap();
        for name in ["python", "python3"] {
            symlink(python.trim(), bin.path().join(name)).unwrap();
        }
        let fixture = Self { server, clients, bin };
        eventually("both clients publish programs", || {
            let known = fixture.server.snapshot().processes;
            let publishes = |it: &&ttmem_core::snapshot::Process| {
                it.usage.iter().any(|usage| usage.usage.cb.is_some() && usage.usage.dram.is_some())
            };
            (known.iter().filter(publishes).count() == 2).then_some(())
        });
        fixture
    }

    /// A command in a folder, with this machine's sockets and folders in its environment.
    fn environment(&self, mut command: Command, folder: &Path) -> Command {
        let path = std::env::var("PATH").unwrap();
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TT")) {
            command.env_remove(name);
        }
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        command
            .env("PATH", format!("{}:{path}", self.bin.path().display()))
            .env("HOME", folder)
            .env("USER", String::from_utf8(user).unwrap().trim())
            .env("TTMEM_AGENT", ttmem_testkit::agent())
            .env("TTMEM_SHM_DIR", self.server.segments.path())
            .env("TTMEM_QUERY_SOCKET", &self.server.query)
            .env("TTMEM_LEGACY_SOCKET", &self.server.legacy)
            .env("TTMEM_TOP_REFRESH_MS", "100")
            .current_dir(folder)
            .stdin(Stdio::null());
        command
    }

    /// Replaces the paths in a page's command by those of this machine.
    fn translate(&self, command: &str) -> String {
        command
            .replace("cargo run --release --", "ttmem")
            .replace("/dev/shm/", &format!("{}/", self.server.segments.path().display()))
            .replace("/tmp/tt_allocation_server.sock", &self.server.legacy.display().to_string())
            .replace("/run/ttmem/query.sock", &self.server.query.display().to_string())
            .replace(PAGE_PID, &self.clients[0].id().to_string())
    }

    /// Runs `ttmem` with arguments until it exits.
    pub(crate) fn ttmem(&self, args: &[&str]) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(exe());
        command.args(args);
        self.environment(command, folder.path()).output().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for client in &mut self.clients {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

/// How a command ends.
enum Kind {
    /// It runs on a terminal until `q`.
    Screen,
    /// It runs until a signal.
    Daemon,
    /// It prints until a signal.
    Follower,
    /// It exits.
    Plain,
}

fn kind(command: &str) -> Kind {
    let words: Vec<&str> = command.split('#').next().unwrap_or_default().split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    match words.as_slice() {
        ["ttmem", ..] if has("--help") => Kind::Plain,
        ["ttmem", "serve", ..] => Kind::Daemon,
        ["ttmem", "top" | "demo", ..] => Kind::Screen,
        ["ttmem", "events", ..] if has("-f") => Kind::Follower,
        ["ttmem", ..] if (has("-w") || has("--watch")) && !has("-n") => Kind::Screen,
        _ => Kind::Plain,
    }
}

/// Exit codes besides 0 that a page explains as results.
fn accepted_codes(command: &str) -> &'static [i32] {
    match command {
        _ if command.contains("||") => &[],
        // No process here has the agent, so there is nothing to compare.
        _ if command.contains("ttmem check") => &[3],
        _ if command.contains("ttmem doctor") => &[1, 2],
        _ => &[],
    }
}

/// Runs one command as a reader would.
fn run(fixture: &Fixture, folder: &Path, prelude: &str, command: &str) -> Result<(), String> {
    let command = fixture.translate(command);
    let mut shell = Command::new("bash");
    match kind(&command) {
        Kind::Screen => {
            shell.args(["-c", &format!("{prelude}exec {command}")]);
            let mut terminal = Terminal::start(&fixture.environment(shell, folder), (120, 40));
            terminal.wait_for_text("Processes");
            terminal.send("q");
            terminal.expect_clean_exit();
            Ok(())
        }
        Kind::Daemon => {
            shell.args(["-c", &format!("{prelude}exec {command}")]);
            let mut shell = fixture.environment(shell, folder);
            let socket = folder.join("query.sock");
            shell.env("TTMEM_QUERY_SOCKET", &socket).env("TTMEM_LEGACY_SOCKET", folder.join("legacy.sock"));
            let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let ready = eventually("the daemon answers, or ends", || {
                let ended = child.try_wait().unwrap().is_some();
                (ended || ask(&socket, &Request::SNAPSHOT).is_ok()).then_some(!ended)
            });
            if ready {
                let pid = rustix::process::Pid::from_child(&child);
                rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            }
            let status = child.wait().unwrap();
            if ready && status.success() { Ok(()) } else { Err(format!("the daemon ended: {status}")) }
        }
        Kind::Follower => {
            shell.args(["-c", &format!("{prelude}exec {command}")]);
            let mut child = fixture.environment(shell, folder).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&child),
                rustix::process::Signal::INT,
            )
            .unwrap();
            let status = child.wait().unwrap();
            if status.success() && !line.is_empty() { Ok(()) } else { Err(format!("it ended: {status}")) }
        }
        Kind::Plain => {
            // A command that hangs ends the test.
            shell = Command::new("timeout");
            shell.args(["300", "bash", "-o", "pipefail", "-c", &format!("{prelude}{command}")]);
            let output = fixture.environment(shell, folder).output().unwrap();
            let (out, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let code = output.status.code().unwrap_or(-1);
            if code != 0 && !accepted_codes(&command).contains(&code) {
                return Err(format!("exit code {code}: {errors}"));
            }
            if command.starts_with("ttmem run") && !out.contains("with the agent") {
                return Err(format!("the program ran without the agent: {out}{errors}"));
            }
            let silent = command.starts_with("export ") || command.starts_with("eval ");
            if out.is_empty() && !silent { Err(format!("it prints nothing; {errors}")) } else { Ok(()) }
        }
    }
}

/// The program of the reader in examples.
const MODEL: &str = "\
maps = open('/proc/self/maps').read()
print('model', 'with the agent' if 'libttmem_agent' in maps else 'alone')
";

#[test]
fn every_documented_command_runs() {
    let fixture = OnceCell::new();
    let (mut ran, mut not_run, mut failed) = (0, Vec::new(), Vec::new());
    for page in pages() {
        for block in page.blocks() {
            let place = format!("{}:{}", page.name, block.at);
            if let Some(reason) = &block.not_run {
                assert!(!block.commands().is_empty(), "{place}: marked as not run, but has no command");
                not_run.push(format!("{place}: {reason}"));
                continue;
            }
            let fixture = fixture.get_or_init(Fixture::start);
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("model.py"), MODEL).unwrap();
            let mut prelude = String::new();
            for command in block.commands() {
                ran += 1;
                // The last line names the command if this panics.
                println!("{place}: {command}");
                if let Err(error) = run(fixture, folder.path(), &prelude, &command) {
                    // Further lines are usage.
                    let error = error.lines().next().unwrap_or_default();
                    failed.push(format!("{place}: {command}\n    {error}"));
                }
                if command.starts_with("export ") {
                    prelude.push_str(&command);
                    prelude.push('\n');
                }
            }
        }
    }
    println!("{ran} commands ran; {} blocks are not run:\n{}", not_run.len(), not_run.join("\n"));
    assert!(failed.is_empty(), "{} of {ran} commands failed:\n{}", failed.len(), failed.join("\n"));
    assert!(ran >= 60, "only {ran} commands were found");
    assert_eq!(not_run.len(), NOT_RUN, "blocks that are not run");
}

#[test]
fn pages_keep_their_shape() {
    let root = repository();
    let mut wrong = Vec::new();
    let pages = pages();
    for page in &pages {
        let name = &page.name;
        let most = if name == "README.md" { 120 } else { 200 };
        let count = page.text.lines().count();
        if count > most {
            wrong.push(format!("{name}: {count} lines, at most {most}"));
        }
        let mut code = false;
        for (number, line) in page.text.lines().enumerate() {
            code ^= line.starts_with("```");
            // A table's row cannot be wrapped.
            if line.chars().count() > 100 && !line.starts_with('|') && !line.starts_with("<!--") {
                wrong.push(format!("{name}:{}: {} columns", number + 1, line.chars().count()));
            }
        }
        if code {
            wrong.push(format!("{name}: a fence is not closed"));
        }
        // Before the first section there is something to try or to see.
        let opening = page.text.split("\n## ").next().unwrap();
        if !opening.contains("\n```") && !opening.contains("\n|") && name != "docs/README.md" {
            wrong.push(format!("{name}: no example before the first section"));
        }
        wrong.extend(broken_links(&root, page));
    }
    let index = pages.iter().find(|page| page.name == "docs/README.md").expect("docs have an index");
    let listed: BTreeSet<&str> = links(&index.text).map(|link| link.split('#').next().unwrap()).collect();
    for page in &pages {
        let relative = page.name.strip_prefix("docs/");
        if let Some(name) = relative.filter(|name| *name != "README.md" && !listed.contains(name)) {
            wrong.push(format!("docs/README.md does not list {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Targets of a page's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn broken_links(root: &Path, page: &Page) -> Vec<String> {
    let folder = root.join(&page.name).parent().unwrap().to_owned();
    let mut broken = Vec::new();
    for link in links(&page.text).filter(|link| !link.contains("://")) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { root.join(&page.name) } else { folder.join(file) };
        let found = fs::read_to_string(&target);
        let has_anchor = |text: &String| {
            anchor.is_empty() || text.lines().filter(|it| it.starts_with('#')).any(|it| slug(it) == anchor)
        };
        if !found.as_ref().is_ok_and(has_anchor) {
            broken.push(format!("{}: broken link {link}", page.name));
        }
    }
    broken
}

#[test]
fn blocks_are_read_as_a_reader_does() {
    let text = "# Page\n\n```sh\nttmem  # once\n\n# not a command\necho 'two\nlines'\n```\n\n\
                <!-- not run: needs root -->\n```sh\nreboot\n```\n```console\n$ ttmem dump\noutput\n```\n\
                ```text\nttmem\n```\n```\nttmem -s\n```\n";
    let page = Page { name: "page.md".to_owned(), text: text.to_owned() };
    let blocks = page.blocks();
    let commands: Vec<Vec<String>> = blocks.iter().map(Block::commands).collect();
    let expected =
        [&["ttmem  # once", "echo 'two\nlines'"][..], &["reboot"], &["ttmem dump"], &[], &["ttmem -s"]];
    assert_eq!(commands, expected);
    let marked: Vec<Option<&str>> = blocks.iter().map(|block| block.not_run.as_deref()).collect();
    assert_eq!(marked, [None, Some("needs root"), None, None, None]);
    assert_eq!(blocks[1].at, 12);
}

#[test]
fn links_must_resolve() {
    let text = "[a](docs/README.md) [b](docs/none.md) [c](docs/install.md#files) [d](docs/install.md#none)";
    let page = Page { name: "README.md".to_owned(), text: text.to_owned() };
    let broken = broken_links(&repository(), &page);
    assert_eq!(
        broken,
        ["README.md: broken link docs/none.md", "README.md: broken link docs/install.md#none"]
    );
}

/// A heading's anchor.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
