//! The dashboard in a real terminal: what is drawn, what keys do, and that the terminal is given back whatever happens.

use crate::{MIB, exe, server};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use ttmem_core::Detail;
use ttmem_testkit::producer::Producer;
use ttmem_testkit::terminal::{Screen, Terminal, find_text};
use ttmem_testkit::{Server, eventually};

const USUAL: (u16, u16) = (120, 40);
const TABS: [&str; 7] =
    ["1 Main", "2 Charts", "3 Telemetry", "4 L1 map", "5 Buffers", "6 Programs", "7 Events"];

const ESC: &str = "\x1b";
const F9: &str = "\x1b[20~";
const F12: &str = "\x1b[24~";
const DOWN: &str = "\x1b[B";
const CTRL_Z: &str = "\x1a";

fn top(query: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.arg("top").args(args).env("TTMEM_QUERY_SOCKET", query).env("TTMEM_TOP_REFRESH_MS", "100");
    command
}

/// The dashboard of a server, once it shows its chips.
fn watching(server: &Server, args: &[&str]) -> Terminal {
    let terminal = Terminal::start(&top(&server.query, args), USUAL);
    terminal.wait_for_text("Processes");
    terminal
}

fn quit(mut terminal: Terminal) {
    terminal.send("q");
    terminal.expect_clean_exit();
}

/// The tab that is not like most.
fn chosen(screen: &Screen) -> Option<usize> {
    let marks = TABS.map(|tab| {
        let (column, row) = find_text(screen, tab)?;
        let cell = screen.cell(row as u16, column as u16)?;
        Some((format!("{:?}", cell.bgcolor()), cell.inverse()))
    });
    let usual = if marks[0] == marks[1] || marks[0] == marks[2] { &marks[0] } else { &marks[1] };
    marks.iter().all(Option::is_some).then(|| marks.iter().position(|mark| mark != usual)).flatten()
}

fn wait_for_view(terminal: &Terminal, view: usize) {
    terminal.wait_for(TABS[view], |screen| (chosen(screen) == Some(view)).then_some(()));
}

fn wait_for_pid(terminal: &Terminal, pid: u32) -> (usize, usize) {
    terminal.position_of(&format!(" {pid} "))
}

/// A producer with so many bytes, seen by the server.
fn producer(server: &Server, bytes: u64) -> Producer {
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, bytes);
    eventually("the server sees it", || server.process(producer.pid));
    producer
}

#[test]
fn it_starts_with_all_there_is_and_gives_the_terminal_back() {
    let server = server();
    let terminal = watching(&server, &[]);
    terminal.wait_until_taken();
    let text = terminal.text();
    assert!(text.contains(" SIMULATED ") && text.contains("via daemon"), "{text}");
    assert!(TABS.iter().all(|tab| text.contains(tab)), "{text}");
    let chips = text.lines().filter(|line| line.contains("n300") && line.contains("Wormhole")).count();
    assert_eq!(chips, 8, "{text}");
    assert_eq!(chosen(&terminal.screen()), Some(0));
    quit(terminal);
    // The same by Ctrl-C, which is a key then.
    let mut terminal = watching(&server, &[]);
    terminal.send("\x03");
    terminal.expect_clean_exit();
    // And `ttmem -w` is the same thing.
    let mut command = Command::new(exe());
    command.arg("-w").env("TTMEM_QUERY_SOCKET", &server.query);
    let terminal = Terminal::start(&command, USUAL);
    terminal.wait_for_text("Processes");
    terminal.wait_until_taken();
    quit(terminal);
}

#[test]
fn every_view_has_its_key() {
    let server = server();
    let terminal = watching(&server, &[]);
    let shows = ["Processes", "30s", "Sensors", "L1 of", "Buffers: 0", "Programs: 0", "Events, newest first"];
    for view in [1, 2, 3, 4, 5, 6, 0] {
        terminal.send(&(view + 1).to_string());
        wait_for_view(&terminal, view);
        terminal.wait_for_text(shows[view]);
    }
    terminal.send("\t");
    wait_for_view(&terminal, 1);
    terminal.send("\x1b[Z\x1b[Z");
    wait_for_view(&terminal, 6);
    quit(terminal);
}

#[test]
fn help_comes_and_goes() {
    let server = server();
    let terminal = watching(&server, &[]);
    terminal.send("?");
    terminal.wait_for_text("devices, memory, processes");
    // There is more than fits, and keys get there.
    terminal.send("\x1b[F");
    terminal.wait_for_text("has a device open and publishes nothing");
    terminal.send(ESC);
    terminal.wait_without("has a device open and publishes nothing");
    // Here q goes back, too: nobody loses the dashboard for having read the help.
    terminal.send("?");
    terminal.wait_for_text("devices, memory, processes");
    terminal.send("q");
    terminal.wait_without("devices, memory, processes");
    quit(terminal);
}

#[test]
fn rows_are_filtered_by_what_is_typed_or_pasted() {
    let server = server();
    let (one, other) = (producer(&server, MIB), producer(&server, 2 * MIB));
    let terminal = watching(&server, &[]);
    wait_for_pid(&terminal, one.pid);
    wait_for_pid(&terminal, other.pid);
    terminal.send("/");
    terminal.wait_for_text("Enter: apply");
    terminal.send(&one.pid.to_string());
    terminal.wait_without(&format!(" {} ", other.pid));
    wait_for_pid(&terminal, one.pid);
    terminal.send("\r");
    terminal.wait_without("Enter: apply");
    terminal.wait_for_text(&format!("filter: {}", one.pid));
    terminal.send(ESC);
    wait_for_pid(&terminal, other.pid);
    // A newline in what is pasted is no Enter, and a q in it does not quit.
    terminal.send("/");
    terminal.wait_for_text("Enter: apply");
    terminal.paste("quite\nnothing");
    terminal.wait_for_text("No process matches the filter.");
    let text = terminal.text();
    assert!(text.contains("Enter: apply") && text.contains("filter: quite nothing"), "{text}");
    terminal.send(ESC);
    wait_for_pid(&terminal, one.pid);
    terminal.wait_without("Enter: apply");
    // Where nobody types, what is pasted is nothing.
    terminal.paste("q3\n");
    terminal.send("2");
    wait_for_view(&terminal, 1);
    quit(terminal);
}

#[test]
fn the_mouse_does_what_keys_do() {
    let server = server();
    let all: Vec<Producer> = (1..=3).map(|n| producer(&server, n * 10 * MIB)).collect();
    let terminal = watching(&server, &[]);
    for it in &all {
        wait_for_pid(&terminal, it.pid);
    }
    terminal.click(terminal.position_of("3 Telemetry"));
    wait_for_view(&terminal, 2);
    terminal.click(terminal.position_of("1 Main"));
    wait_for_view(&terminal, 0);
    // A click chooses, another one opens.
    let rows = |screen: &Screen| -> Option<Vec<u32>> {
        let mut at: Vec<(usize, u32)> = Vec::new();
        for it in &all {
            at.push((find_text(screen, &format!(" {} ", it.pid))?.1, it.pid));
        }
        at.sort_unstable();
        Some(at.into_iter().map(|it| it.1).collect())
    };
    let order = terminal.wait_for("all rows", rows);
    terminal.click(wait_for_pid(&terminal, order[1]));
    terminal.wait_for_text(" 2/3 ");
    terminal.click(wait_for_pid(&terminal, order[1]));
    terminal.wait_for_text("back");
    let text = terminal.text();
    assert!(text.contains("Esc back"), "{text}");
    terminal.send(ESC);
    terminal.wait_without("Esc back");
    terminal.wheel(true, wait_for_pid(&terminal, order[0]));
    terminal.wait_for_text(" 3/3 ");
    terminal.wheel(false, wait_for_pid(&terminal, order[0]));
    terminal.wait_for_text(" 1/3 ");
    // By what they hold is how it begins; a click on a title sorts by that, another one the other way round.
    let mut by_pid: Vec<u32> = all.iter().map(|it| it.pid).collect();
    by_pid.sort_unstable();
    terminal.click(terminal.position_of("PID"));
    terminal.wait_for("sorted by pid", |screen| (rows(screen)? == by_pid).then_some(()));
    by_pid.reverse();
    terminal.click(terminal.position_of("PID"));
    terminal.wait_for("and the other way round", |screen| (rows(screen)? == by_pid).then_some(()));
    quit(terminal);
}

#[test]
fn any_size_is_drawn_or_refused_in_words() {
    let server = server();
    let terminal = Terminal::start(&top(&server.query, &[]), (200, 60));
    terminal.wait_for_text("Findings");
    terminal.resize(USUAL);
    // The lowest line is the last one of the new size.
    let lowest = |rows: usize| {
        terminal.wait_for("the hints are in the lowest line", |screen| {
            (find_text(screen, "? F1 help")?.1 + 1 == rows).then_some(())
        });
    };
    lowest(40);
    terminal.resize((40, 10));
    terminal.wait_for_text("This terminal has 40 x 10 characters.");
    terminal.wait_for_text("The dashboard needs 80 x 24.");
    terminal.wait_without("Processes");
    terminal.resize((1, 1));
    terminal.wait_for_frames(3);
    terminal.resize((80, 24));
    lowest(24);
    terminal.wait_for_text("Processes");
    terminal.resize((200, 60));
    lowest(60);
    terminal.wait_for_text("Findings");
    quit(terminal);
}

#[test]
fn the_picture_is_taken_more_or_less_often_or_held() {
    let server = server();
    let mut producer = producer(&server, 100 * MIB);
    let terminal = Terminal::start(&top(&server.query, &["-r", "400"]), USUAL);
    terminal.wait_for_text("400 ms");
    terminal.send("+");
    terminal.wait_for_text("refresh interval: 200 ms");
    terminal.send("---");
    terminal.wait_for_text("refresh interval: 1600 ms");
    terminal.send("++++");
    terminal.wait_for_text("refresh interval: 100 ms");
    terminal.wait_for_text(" 100.0 ");
    terminal.send("p");
    terminal.wait_for_text(" PAUSED ");
    let held = format!(" {}.0 ", 100 + 23);
    producer.alloc(8_192_000, 23 * MIB);
    eventually("the server knows more", || {
        (server.process(producer.pid)?.summary.dram_bytes? >= 123 * MIB).then_some(())
    });
    terminal.wait_for_frames(10);
    assert!(!terminal.text().contains(&held), "{}", terminal.text());
    terminal.send(" ");
    terminal.wait_for_text(&held);
    terminal.wait_without(" PAUSED ");
    quit(terminal);
}

#[test]
fn it_looks_as_often_as_asked() {
    let server = server();
    let start = |ms| Terminal::start(&top(&server.query, &["-r", ms]), USUAL);
    let (often, seldom) = (start("50"), start("1000"));
    for terminal in [&often, &seldom] {
        terminal.wait_for_text("Processes");
    }
    // Not so many in so much time, which depends on the machine, but many more than the other in the same.
    let (before, _) = often.drawn();
    seldom.wait_for_frames(6);
    let frames = often.drawn().0 - before;
    assert!(frames > 3 * 6, "{frames} instead of about 60, or 120");
    quit(often);
    quit(seldom);
}

#[test]
fn settings_are_kept_for_the_next_time() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let mut command = top(&server.query, &[]);
    command.env("XDG_CONFIG_HOME", folder.path());
    let terminal = Terminal::start(&command, USUAL);
    terminal.wait_for_text("Processes");
    terminal.send("T");
    terminal.wait_for_text("theme light");
    terminal.send("3");
    wait_for_view(&terminal, 2);
    terminal.send(F12);
    terminal.wait_for_text("saved to ");
    quit(terminal);
    let file = folder.path().join("ttmem/config.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("theme = \"light\"") && text.contains("view = \"telemetry\""), "{text}");
    let terminal = Terminal::start(&command, USUAL);
    terminal.wait_for_text("Sensors");
    wait_for_view(&terminal, 2);
    terminal.send("T");
    terminal.wait_for_text("theme colour-blind");
    quit(terminal);
    // What cannot be read is said before anything else is done.
    for (text, key) in [
        ("[top]\nmouse = true\nrefresh_ms = \"often\"\n", "refresh_ms"),
        ("[top]\nmouse = true\ncolour = 1\n", "colour"),
        ("[top]\nmouse = true\ntheme = \"pink\"\n", "theme"),
        ("[top]\nmouse = true\nview = \n", "view"),
        ("[top]\nmouse = true\nrefresh_ms = 1\n", "refresh_ms"),
        ("[top]\nmouse = true\nview = \"x\"\n", "view"),
        ("[top]\nmouse = true\nsort = { processes = \"x\" }\n", "sort"),
    ] {
        fs::write(&file, text).unwrap();
        let mut terminal = Terminal::start(&command, (200, 40));
        assert_eq!(terminal.wait().code(), Some(1));
        let said = terminal.text();
        assert!(said.contains(&*file.to_string_lossy()) && said.contains(key), "{text}: {said}");
        assert!(said.contains("line 3") || said.contains("3 |"), "{text}: {said}");
        terminal.wait_until_restored();
        assert!(!terminal.bytes().contains(&0x1b), "{said}");
    }
}

#[test]
fn a_process_is_sent_a_signal_and_no_other() {
    let server = server();
    let (mut victim, mut other) = (producer(&server, 2 * MIB), producer(&server, MIB));
    let terminal = watching(&server, &[]);
    wait_for_pid(&terminal, other.pid);
    let pid = victim.pid;
    let choose = || {
        terminal.send(F9);
        terminal.wait_for_text("Signal to ");
        terminal.wait_for_text(&format!("(pid {pid}, "));
    };
    // The first choice is to do nothing.
    choose();
    terminal.send("\r");
    terminal.wait_for_text("no signal sent");
    // A question that is not answered by yes is answered by no.
    choose();
    terminal.send(DOWN);
    terminal.send("\r");
    terminal.wait_for_text("Send TERM to ");
    terminal.send("\r");
    terminal.wait_without("Send TERM to ");
    victim.ping();
    choose();
    terminal.send(DOWN);
    terminal.send("\r");
    terminal.wait_for_text("Send TERM to ");
    terminal.send("y");
    terminal.wait_for_text("sent TERM to ");
    let (status, _) = victim.quit();
    assert_eq!(status.signal(), Some(15));
    other.ping();
    quit(terminal);
}

#[test]
fn who_only_looks_sends_no_signal() {
    let server = server();
    let mut producer = producer(&server, MIB);
    let terminal = watching(&server, &["--readonly"]);
    wait_for_pid(&terminal, producer.pid);
    terminal.send("K");
    terminal.wait_for_text("--readonly: signals are disabled");
    assert!(!terminal.text().contains("Signal to "));
    quit(terminal);
    producer.ping();
}

/// A process that ends with the test.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_daemon_that_died_is_missed_and_found_again() {
    let mut server = server();
    let producer = producer(&server, 77 * MIB);
    let terminal = watching(&server, &[]);
    wait_for_pid(&terminal, producer.pid);
    terminal.wait_for_text(" 77.0 ");
    server.signal(Signal::KILL);
    server.wait();
    terminal.wait_for_text("no answer for ");
    let text = terminal.text();
    assert!(text.contains(" 77.0 ") && text.contains(&format!(" {} ", producer.pid)), "{text}");
    // Keys work all the while.
    terminal.send("3");
    wait_for_view(&terminal, 2);
    terminal.send("1");
    terminal.wait_for_text(" 77.0 ");
    let again = Command::new(exe())
        .args(["serve", "--quiet", "--sim", "t3k", "--legacy-socket"])
        .arg(&server.legacy)
        .arg("--query-socket")
        .arg(&server.query)
        .env("TTMEM_SHM_DIR", server.segments.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _again = Owned(again.unwrap());
    terminal.wait_without("no answer for ");
    terminal.wait_for_text("via daemon");
    terminal.wait_for_text(" 77.0 ");
    quit(terminal);
}

#[test]
fn a_dead_socket_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("query.sock");
    // The socket of a daemon that is gone: the file is left, and nothing listens.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let terminal = Terminal::start(&top(&path, &[]), USUAL);
    terminal.wait_for_text("ttmem top --local");
    let text = terminal.text();
    let body: Vec<&str> = text.lines().skip(2).collect();
    assert!(
        body.iter().any(|line| line.contains("no daemon answers at") && line.contains("query.sock")),
        "{text}"
    );
    assert!(body.iter().any(|line| line.contains("`ttmem serve`")), "{text}");
    assert!(body.iter().any(|line| line.contains("Retrying")), "{text}");
    quit(terminal);
}

#[test]
fn a_daemon_that_hangs_holds_nothing_up() {
    let server = server();
    let terminal = watching(&server, &[]);
    server.signal(Signal::STOP);
    terminal.wait_for("it is said", |screen| {
        let text = screen.contents();
        (text.contains("no answer for ") || text.contains("no data for ")).then_some(())
    });
    for view in [1, 4, 0] {
        terminal.send(&(view + 1).to_string());
        wait_for_view(&terminal, view);
    }
    // It ends although the daemon never goes on.
    quit(terminal);
    server.signal(Signal::CONT);
}

#[test]
fn signals_end_it_with_the_terminal_given_back() {
    let server = server();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut terminal = watching(&server, &[]);
        terminal.wait_until_taken();
        terminal.signal(signal);
        terminal.expect_clean_exit();
    }
}

#[test]
fn it_stops_for_the_shell_and_comes_back() {
    let server = server();
    let terminal = watching(&server, &[]);
    for typed in [false, true] {
        terminal.wait_until_taken();
        if typed {
            terminal.send(CTRL_Z);
        } else {
            terminal.signal(Signal::TSTP);
        }
        eventually("it stops", || (terminal.state() == 'T').then_some(()));
        terminal.wait_until_restored();
        let (frames, _) = terminal.drawn();
        terminal.signal(Signal::CONT);
        terminal.wait_until_taken();
        terminal.wait_for_text("Processes");
        terminal.wait_for_frames(2);
        assert!(terminal.drawn().0 > frames);
        // Everything is drawn again, not only what changed.
        let text = terminal.text();
        assert!(TABS.iter().all(|tab| text.contains(tab)), "{text}");
        assert!(text.lines().filter(|line| line.contains("n300 ")).count() >= 8, "{text}");
        // Keys and the mouse are ours again.
        terminal.click(terminal.position_of("2 Charts"));
        wait_for_view(&terminal, 1);
        terminal.send("1");
        wait_for_view(&terminal, 0);
    }
    quit(terminal);
}

const PANICS: &str = "TTMEM_TEST_PANICS";

/// Not a test, but a dashboard that panics when settings are saved.
#[test]
fn dashboard_that_panics() {
    if std::env::var_os(PANICS).is_none() {
        return;
    }
    let environment = ttmem_tui::Environment {
        colour_depth: ttmem_tui::ColourDepth::Indexed,
        ascii: false,
        readonly: true,
        own_pid: std::process::id(),
        filtered_by_device: false,
    };
    let callbacks = ttmem_tui::Callbacks {
        fetch: Box::new(|detail: &Detail| {
            assert!(detail.buffers.is_none(), "no list today");
            Ok((ttmem_core::Snapshot::default(), "via test".to_owned()))
        }),
        signal: Box::new(|_, _| Ok(String::new())),
        save: Box::new(|_| panic!("the drawer is stuck")),
    };
    let settings = ttmem_tui::Settings::default();
    let options = ttmem_tui::StartOptions { settings, environment, until: None };
    ttmem_tui::run(options, callbacks).unwrap();
}

#[test]
fn a_panic_is_read_on_a_terminal_that_works() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "terminal::dashboard_that_panics", "--nocapture", "--test-threads=1"]);
    command.env(PANICS, "1");
    let mut terminal = Terminal::start(&command, USUAL);
    terminal.wait_for_text("via test");
    terminal.wait_until_taken();
    // One while looking is told on the dashboard, which lives on.
    terminal.send("5");
    terminal.wait_for_text("no list today");
    terminal.send("1");
    terminal.wait_without("no list today");
    terminal.send(F12);
    assert_ne!(terminal.wait().code(), Some(0));
    terminal.wait_until_restored();
    terminal.wait_for_text("the drawer is stuck");
}

#[test]
fn it_ends_with_its_terminal() {
    let server = server();
    let command = top(&server.query, &[]);
    for mut terminal in [Terminal::start(&command, USUAL), Terminal::start_without_control(&command, USUAL)] {
        terminal.wait_for_text("Processes");
        let before = terminal.cpu_time();
        let pid = terminal.pid();
        terminal.close();
        let mut spent = Duration::ZERO;
        eventually("it ends", || {
            spent = spent.max(ttmem_testkit::terminal::cpu_time_of(pid).saturating_sub(before));
            matches!(terminal.state(), 'Z' | 'X').then_some(())
        });
        assert!(spent < Duration::from_secs(1), "it took {spent:?} of processor time to end");
    }
}

#[test]
fn without_colours_there_are_none() {
    let server = server();
    let _producer = producer(&server, MIB);
    let mut command = top(&server.query, &[]);
    command.env("NO_COLOR", "1").env("COLORTERM", "truecolor");
    let terminal = Terminal::start(&command, (200, 60));
    for (key, tab) in TABS.iter().enumerate() {
        terminal.send(&(key + 1).to_string());
        wait_for_view(&terminal, key);
        terminal.wait_for_frames(3);
        assert!(terminal.text().contains(tab));
    }
    let bytes = terminal.bytes();
    quit(terminal);
    let mut seen = Vec::new();
    for styling in String::from_utf8_lossy(&bytes).split("\x1b[").skip(1) {
        let end = styling.find(|c: char| !matches!(c, '0'..='9' | ';' | ':' | '?')).unwrap_or(0);
        if styling[end..].starts_with('m') {
            seen.extend(styling[..end].split(';').map(|it| it.parse::<u32>().unwrap_or(0)));
        }
    }
    // 39 and 49 are the terminal's own colours.
    let coloured = |it: &&u32| matches!(it, 30..=38 | 40..=48 | 58 | 90..=97 | 100..=107);
    assert_eq!(seen.iter().find(coloured), None);
    assert!(seen.contains(&1) && seen.contains(&7), "neither bold nor reversed");
}

#[test]
fn what_cannot_show_it_is_refused() {
    let server = server();
    let mut terminal = Terminal::start(&top(&server.query, &["--user", "nosuch"]), USUAL);
    assert_eq!(terminal.wait().code(), Some(2));
    assert!(terminal.text().contains("--user nosuch: no such user"), "{}", terminal.text());
    for term in ["dumb", ""] {
        let mut command = top(&server.query, &[]);
        command.env("TERM", term);
        let mut terminal = Terminal::start(&command, USUAL);
        assert_eq!(terminal.wait().code(), Some(1));
        let (text, bytes) = (terminal.text(), terminal.bytes());
        assert!(text.contains("TERM is") && text.contains("cannot show the dashboard"), "{text}");
        assert!(!bytes.contains(&0x1b), "{bytes:?}");
        terminal.wait_until_restored();
    }
    let output = top(&server.query, &[]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("-w") && said.contains("--json") && output.stdout.is_empty(), "{said}");
}

#[test]
fn the_demo_takes_all_of_itself_along() {
    for by_signal in [false, true] {
        let mut command = Command::new(exe());
        command.args(["demo", "-r", "100"]);
        let mut terminal = Terminal::start(&command, USUAL);
        terminal.wait_for_text(" SIMULATED ");
        terminal.wait_for_text("demo-llm");
        let pid = terminal.pid();
        let children = || -> Vec<u32> {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            text.split_ascii_whitespace().map(|it| it.parse().unwrap()).collect()
        };
        let children = children();
        assert!(children.len() >= 4, "{children:?}");
        if by_signal {
            terminal.signal(Signal::TERM);
        } else {
            terminal.send("q");
        }
        terminal.expect_clean_exit();
        for child in children {
            eventually("its processes end", || {
                (!Path::new(&format!("/proc/{child}")).exists()).then_some(())
            });
        }
        let prefix = format!("ttmem-demo.{pid}.");
        let left = fs::read_dir("/dev/shm").unwrap().filter_map(Result::ok);
        let left = left.filter(|it| it.file_name().to_string_lossy().starts_with(&prefix)).count();
        assert_eq!(left, 0, "a folder of segments is left");
    }
}

#[test]
fn little_is_written_while_nothing_changes() {
    // Ten KiB a second is nothing even for a telephone line; at two frames a second that is this much for each.
    const MOST: usize = 5 << 10;
    const FRAMES: usize = 20;
    let server = server();
    let mut producer = producer(&server, MIB);
    producer.flood(200, 4096);
    let terminal = Terminal::start(&top(&server.query, &[]), (200, 60));
    for (view, tab) in TABS.iter().enumerate() {
        terminal.send(&(view + 1).to_string());
        wait_for_view(&terminal, view);
        terminal.wait_for_frames(5);
        let each = terminal.wait_for_frames(FRAMES) / FRAMES;
        assert!(each <= MOST, "{tab}: {each} bytes a frame");
    }
    quit(terminal);
}
