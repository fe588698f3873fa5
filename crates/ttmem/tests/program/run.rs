//! `ttmem run`: signals, jobs, streams and exit codes are those of the program without it, in a real terminal.

mod summary;

use crate::exe;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{eventually, memory_folder};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_BACKSLASH: &str = "\x1c";
const CTRL_Z: &str = "\x1a";
const PROMPT: &str = "ready>";

/// The command `ttmem run`, with a folder for segments.
fn run(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.args(["run", "--shm-dir"]).arg(folder).args(args);
    command.env("TTMEM_AGENT", ttmem_testkit::agent()).env_remove("LD_PRELOAD").env_remove("TTMEM_RUN");
    command
}

/// Runs a script of a shell through `ttmem run`.
fn run_script(script: &str) -> Output {
    let folder = memory_folder();
    run(folder.path(), &["--quiet", "--", "sh", "-c", script]).output().unwrap()
}

/// An interactive shell in a terminal. `$RUN` is `ttmem run --quiet`.
struct Shell {
    terminal: Terminal,
    _folder: Arc<TempDir>,
}

impl Shell {
    fn start() -> Self {
        let folder = memory_folder();
        let line = format!("{} run --quiet --shm-dir {}", exe().display(), folder.path().display());
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile", "-i"]).env("PS1", "ready> ").env("RUN", line);
        command
            .env("TTMEM_AGENT", ttmem_testkit::agent())
            .env_remove("LD_PRELOAD")
            .env_remove("PROMPT_COMMAND");
        let terminal = Terminal::start(&command, (100, 40));
        terminal.wait_for_text(PROMPT);
        Self { terminal, _folder: folder }
    }

    fn send(&self, keys: &str) {
        self.terminal.send(keys);
    }

    fn wait_for(&self, text: &str) {
        self.terminal.wait_for_text(text);
    }
}

#[test]
fn exit_code_is_the_programs() {
    for code in [0, 1, 3, 126, 255] {
        assert_eq!(run_script(&format!("exit {code}")).status.code(), Some(code));
    }
    let folder = memory_folder();
    for (program, code) in [("/nonexistent/program", 127), ("/etc/passwd", 126)] {
        let output = run(folder.path(), &["--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(
            printed.starts_with(&format!("ttmem: cannot run {program}: ")) && printed.lines().count() == 1
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the mark of the run is removed");
}

#[test]
fn signal_that_ends_the_program_ends_the_parent() {
    for signal in [Signal::TERM, Signal::KILL, Signal::INT, Signal::SEGV, Signal::PIPE, Signal::USR1] {
        let output = run_script(&format!("kill -{} $$", signal.as_raw()));
        assert_eq!(output.status.signal(), Some(signal.as_raw()));
        assert!(!output.status.core_dumped());
    }
}

#[test]
fn streams_are_the_programs() {
    let folder = memory_folder();
    let mut command = run(folder.path(), &["--quiet", "--", "sh", "-c", "tr a-z A-Z; echo error >&2"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"text").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.stdout, output.stderr), (b"TEXT".to_vec(), b"error\n".to_vec()));
    // A reader that ends early ends the program, which writes without end.
    let script = format!("{} run --quiet -- yes | head -1", exe().display());
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("TTMEM_AGENT", ttmem_testkit::agent())
        .env("TTMEM_SHM_DIR", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"y\n");
}

#[test]
fn output_ends_when_the_program_closes_it() {
    let folder = memory_folder();
    // The program closes its output, and continues until its input ends.
    let mut command = run(folder.path(), &["--quiet", "--", "sh", "-c", "exec >&-; read line"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut printed).unwrap();
    assert!(child.try_wait().unwrap().is_none() && printed.is_empty());
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn signals_to_the_parent_reach_the_program() {
    for signal in [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::INT, Signal::QUIT] {
        let folder = memory_folder();
        let ready = folder.path().join("ready");
        let number = signal.as_raw();
        let script = format!(
            "trap 'echo got; exit 7' {number}; touch {}; while :; do sleep 0.05; done",
            ready.display()
        );
        let mut command = run(folder.path(), &["--quiet", "--", "sh", "-c", &script]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        eventually("the program runs", || ready.exists().then_some(()));
        rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(7), b"got\n".to_vec()), "{signal:?}");
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    let folder = memory_folder();
    let script = format!(
        "trap '' HUP INT; {} run --quiet --shm-dir {} -- grep SigIgn /proc/self/status",
        exe().display(),
        folder.path().display()
    );
    let mask = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("TTMEM_AGENT", ttmem_testkit::agent()).env_remove("LD_PRELOAD");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(mask(&script), mask("trap '' HUP INT; grep SigIgn /proc/self/status"));
}

#[test]
fn killed_parent_leaves_the_program_running() {
    let folder = memory_folder();
    let mut command = run(folder.path(), &["--quiet", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let program = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    rustix::process::test_kill_process(program).unwrap();
    rustix::process::kill_process(program, Signal::KILL).unwrap();
}

#[test]
fn exec_replaces_ttmem_by_the_program() {
    let folder = memory_folder();
    let child =
        run(folder.path(), &["--exec", "--", "sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    assert_eq!(child.wait_with_output().unwrap().stdout, format!("{pid}\n").into_bytes());
    let output = run(folder.path(), &["--exec", "--quiet", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn keys_of_the_terminal_reach_the_program_once() {
    let shell = Shell::start();
    for (key, name) in [(CTRL_C, "INT"), (CTRL_BACKSLASH, "QUIT")] {
        // The program counts for a moment, so that a second signal would be counted, too.
        shell.send(&format!(
            "$RUN -- bash -c 'n=0; trap n=$\\(\\(n+1\\)\\) {name}; echo up-{name}; while [ $n = 0 ]; do sleep 0.1; done; sleep 0.3; echo {name}-$n'; echo rc=$?\n"
        ));
        shell.wait_for(&format!("\nup-{name}"));
        shell.send(key);
        shell.wait_for(&format!("{name}-1"));
        shell.wait_for("rc=0");
    }
    shell.send("$RUN -- sh -c 'echo up-last; exec sleep 100'\n");
    shell.wait_for("\nup-last");
    shell.send(CTRL_C);
    shell.wait_for("^C\nready>");
    shell.send("echo rc-$?-is\n");
    shell.wait_for("rc-130-is");
}

#[test]
fn stopped_program_stops_the_parent_until_fg() {
    let shell = Shell::start();
    shell.send("$RUN -- sh -c 'echo up-now; read line; echo got-$line'; echo rc-$?-is\n");
    shell.wait_for("\nup-now");
    shell.send(CTRL_Z);
    shell.wait_for("Stopped");
    shell.wait_for("rc-148-is");
    shell.send("fg\n");
    shell.wait_for("ready> fg\n");
    shell.send("text\n");
    shell.wait_for("got-text");
    // Once more, in the background and to the end. It starts no process: one that is stopped before its exec would keep the shell from
    // stopping, also without ttmem.
    let end = memory_folder();
    let end = end.path().join("end");
    let program = format!("echo up-again; while [ ! -e {} ]; do :; done; exit 5", end.display());
    shell.send(&format!("$RUN -- sh -c '{program}'; echo rc-$?-again\n"));
    shell.wait_for("\nup-again");
    shell.send(CTRL_Z);
    shell.wait_for("rc-148-again");
    shell.send("bg; wait %1; echo rc-$?-bg\n");
    std::fs::write(&end, "").unwrap();
    shell.wait_for("rc-5-bg");
}

#[test]
fn programs_read_from_the_terminal() {
    let shell = Shell::start();
    shell.send("$RUN -- sh -c 'echo up-cat; exec cat'; echo rc-$?-is\n");
    shell.wait_for("\nup-cat");
    shell.send("a line\n");
    shell.wait_for("a line\na line");
    shell.send(CTRL_D);
    shell.wait_for("rc-0-is");
    // In the background, a program that reads is stopped.
    shell.send("$RUN -- cat &\n");
    shell.send("until jobs | grep Stopped; do sleep 0.1; done; echo is-$?\n");
    shell.wait_for("is-0");
    shell.send("kill %1; while kill -0 %1; do sleep 0.1; done; echo over-$?\n");
    shell.wait_for("over-0");
}

#[test]
fn timeout_ends_the_program() {
    let folder = memory_folder();
    let pid = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 60", pid.display());
    let mut command = Command::new("timeout");
    command.arg("1").arg(exe()).args(["run", "--quiet", "--shm-dir"]).arg(folder.path());
    command
        .args(["--", "sh", "-c", &script])
        .env("TTMEM_AGENT", ttmem_testkit::agent())
        .env_remove("LD_PRELOAD");
    assert_eq!(command.status().unwrap().code(), Some(124));
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    eventually("the program has ended", || {
        rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_err().then_some(())
    });
}

#[test]
fn descendants_outlive_the_program() {
    let folder = memory_folder();
    let file = folder.path().join("later");
    let script = format!("(sleep 0.5; echo done > {}) >/dev/null 2>&1 & exit 4", file.display());
    let output = run(folder.path(), &["--quiet", "--", "sh", "-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(!file.exists(), "the parent waits for its program only");
    eventually("the descendant goes on", || file.exists().then_some(()));
}

#[test]
fn programs_with_the_address_sanitizer_run() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("program.c");
    fs::write(&source, "int main(int count, char **all) { return count == 2 ? all[1][1000000] : 0; }")
        .unwrap();
    let program = home.path().join("program");
    let compiler = Command::new("gcc").args(["-fsanitize=address", "-o"]).args([&program, &source]).status();
    assert!(compiler.unwrap().success());
    let program = program.display();
    let script = format!("{program} && echo $ASAN_OPTIONS; {program} far 2>/dev/null; exit $?");
    for (options, shown) in
        [("", "verify_asan_link_order=0"), ("exitcode=86", "exitcode=86:verify_asan_link_order=0")]
    {
        let folder = memory_folder();
        let mut command = run(folder.path(), &["--quiet", "--", "sh", "-c", &script]);
        let output = command.env("ASAN_OPTIONS", options).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), shown, "{output:?}");
        assert_eq!(
            output.status.code(),
            Some(if options.is_empty() { 1 } else { 86 }),
            "it still finds mistakes"
        );
    }
}
