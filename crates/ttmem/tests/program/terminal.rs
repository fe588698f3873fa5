//! The dashboard in a real terminal: screens, keys, and that the terminal is always restored.

mod lifecycle;
mod views;

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

const DEFAULT_SIZE: (u16, u16) = (120, 40);
const TABS: [&str; 9] = [
    "1 Main",
    "2 Charts",
    "3 Telemetry",
    "4 L1 map",
    "5 Buffers",
    "6 Programs",
    "7 Events",
    "8 Flame",
    "9 Addresses",
];

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

/// Starts the dashboard of a server and waits until it shows devices.
fn start_top(server: &Server, args: &[&str]) -> Terminal {
    let terminal = Terminal::start(&top(&server.query, args), DEFAULT_SIZE);
    terminal.wait_for_text("Processes");
    terminal
}

fn quit(mut terminal: Terminal) {
    terminal.send("q");
    terminal.expect_clean_exit();
}

/// The selected tab: the one with another style than most.
fn selected_tab(screen: &Screen) -> Option<usize> {
    let marks = TABS.map(|tab| {
        let (column, row) = find_text(screen, tab)?;
        let cell = screen.cell(row as u16, column as u16)?;
        Some((format!("{:?}", cell.bgcolor()), cell.inverse()))
    });
    let plain = if marks[0] == marks[1] || marks[0] == marks[2] { &marks[0] } else { &marks[1] };
    marks.iter().all(Option::is_some).then(|| marks.iter().position(|mark| mark != plain)).flatten()
}

fn wait_for_view(terminal: &Terminal, view: usize) {
    terminal.wait_for(TABS[view], |screen| (selected_tab(screen) == Some(view)).then_some(()));
}

fn wait_for_pid(terminal: &Terminal, pid: u32) -> (usize, usize) {
    terminal.position_of(&format!(" {pid} "))
}

/// A producer with this many bytes, known to the server.
fn producer(server: &Server, bytes: u64) -> Producer {
    let mut producer = Producer::new(server.segments.path());
    producer.alloc(4096, bytes);
    eventually("the server lists it", || server.process(producer.pid));
    producer
}

#[test]
fn start_shows_devices_and_quit_restores_the_terminal() {
    let server = server();
    let terminal = start_top(&server, &[]);
    terminal.wait_until_taken();
    let text = terminal.text();
    assert!(text.contains(" SIMULATED ") && text.contains("via daemon"), "{text}");
    assert!(TABS.iter().all(|tab| text.contains(tab)), "{text}");
    let devices = text.lines().filter(|line| line.contains("n300") && line.contains("Wormhole")).count();
    assert_eq!(devices, 8, "{text}");
    assert_eq!(selected_tab(&terminal.screen()), Some(0));
    quit(terminal);
    // Ctrl-C, which is a key in raw mode.
    let mut terminal = start_top(&server, &[]);
    terminal.send("\x03");
    terminal.expect_clean_exit();
    // `ttmem -w` shows the dashboard, too.
    let mut command = Command::new(exe());
    command.arg("-w").env("TTMEM_QUERY_SOCKET", &server.query);
    let terminal = Terminal::start(&command, DEFAULT_SIZE);
    terminal.wait_for_text("Processes");
    terminal.wait_until_taken();
    quit(terminal);
}

#[test]
fn every_view_has_a_key() {
    let server = server();
    let terminal = start_top(&server, &[]);
    let shows = [
        "Processes",
        "30s",
        "Sensors",
        "L1 of",
        "Buffers: 0",
        "Programs: 0",
        "Events, newest first",
        "No buffers",
        "No allocator of this device",
    ];
    for view in [1, 2, 3, 4, 5, 6, 7, 8, 0] {
        terminal.send(&(view + 1).to_string());
        wait_for_view(&terminal, view);
        terminal.wait_for_text(shows[view]);
    }
    terminal.send("\t");
    wait_for_view(&terminal, 1);
    terminal.send("\x1b[Z\x1b[Z");
    wait_for_view(&terminal, 8);
    quit(terminal);
}

#[test]
fn help_opens_and_closes() {
    let server = server();
    let terminal = start_top(&server, &[]);
    terminal.send("?");
    terminal.wait_for_text("devices, memory, processes");
    // The help is longer than the screen and can be scrolled.
    terminal.send("\x1b[F");
    terminal.wait_for_text("has a device open and publishes nothing");
    terminal.send(ESC);
    terminal.wait_without("has a device open and publishes nothing");
    // In the help, q closes it and does not quit.
    terminal.send("?");
    terminal.wait_for_text("devices, memory, processes");
    terminal.send("q");
    terminal.wait_without("devices, memory, processes");
    quit(terminal);
}

#[test]
fn rows_are_filtered_by_typed_or_pasted_text() {
    let server = server();
    let (one, other) = (producer(&server, MIB), producer(&server, 2 * MIB));
    let terminal = start_top(&server, &[]);
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
    // A pasted newline is not Enter, and a pasted q does not quit.
    terminal.send("/");
    terminal.wait_for_text("Enter: apply");
    terminal.paste("quite\nnothing");
    terminal.wait_for_text("No process matches the filter.");
    let text = terminal.text();
    assert!(text.contains("Enter: apply") && text.contains("filter: quite nothing"), "{text}");
    terminal.send(ESC);
    wait_for_pid(&terminal, one.pid);
    terminal.wait_without("Enter: apply");
    // Without a filter being typed, pasted text is ignored.
    terminal.paste("q3\n");
    terminal.send("2");
    wait_for_view(&terminal, 1);
    quit(terminal);
}

#[test]
fn mouse_selects_opens_scrolls_and_sorts() {
    let server = server();
    let all: Vec<Producer> = (1..=3).map(|n| producer(&server, n * 10 * MIB)).collect();
    let terminal = start_top(&server, &[]);
    for it in &all {
        wait_for_pid(&terminal, it.pid);
    }
    terminal.click(terminal.position_of("3 Telemetry"));
    wait_for_view(&terminal, 2);
    terminal.click(terminal.position_of("1 Main"));
    wait_for_view(&terminal, 0);
    // The first click selects, the second one opens.
    let rows = |screen: &Screen| -> Option<Vec<u32>> {
        let mut at: Vec<(usize, u32)> = Vec::new();
        for producer in &all {
            at.push((find_text(screen, &format!(" {} ", producer.pid))?.1, producer.pid));
        }
        at.sort_unstable();
        Some(at.into_iter().map(|(_, pid)| pid).collect())
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
    // The default order is by memory; a click on a title sorts by that column, a second one reverses the order.
    let mut by_pid: Vec<u32> = all.iter().map(|it| it.pid).collect();
    by_pid.sort_unstable();
    terminal.click(terminal.position_of("PID"));
    terminal.wait_for("sorted by pid", |screen| (rows(screen)? == by_pid).then_some(()));
    by_pid.reverse();
    terminal.click(terminal.position_of("PID"));
    terminal.wait_for("the reversed order", |screen| (rows(screen)? == by_pid).then_some(()));
    quit(terminal);
}

#[test]
fn every_size_is_drawn_or_explained() {
    let server = server();
    let terminal = Terminal::start(&top(&server.query, &[]), (200, 60));
    terminal.wait_for_text("Findings");
    terminal.resize(DEFAULT_SIZE);
    // The hints are in the last line of the new size.
    let wait_for_height = |rows: usize| {
        terminal.wait_for("the hints are in the last line", |screen| {
            (find_text(screen, "? F1 help")?.1 + 1 == rows).then_some(())
        });
    };
    wait_for_height(40);
    terminal.resize((40, 10));
    terminal.wait_for_text("This terminal has 40 x 10 characters.");
    terminal.wait_for_text("The dashboard needs 80 x 24.");
    terminal.wait_without("Processes");
    terminal.resize((1, 1));
    terminal.wait_for_frames(3);
    terminal.resize((80, 24));
    wait_for_height(24);
    terminal.wait_for_text("Processes");
    terminal.resize((200, 60));
    wait_for_height(60);
    terminal.wait_for_text("Findings");
    quit(terminal);
}

#[test]
fn refresh_interval_changes_and_display_pauses() {
    let server = server();
    let mut producer = producer(&server, 100 * MIB);
    let terminal = Terminal::start(&top(&server.query, &["-r", "400"]), DEFAULT_SIZE);
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
    let increased = format!(" {}.0 ", 100 + 23);
    producer.alloc(8_192_000, 23 * MIB);
    eventually("the server has the new figure", || {
        (server.process(producer.pid)?.summary.dram_bytes? >= 123 * MIB).then_some(())
    });
    terminal.wait_for_frames(10);
    assert!(!terminal.text().contains(&increased), "{}", terminal.text());
    terminal.send(" ");
    terminal.wait_for_text(&increased);
    terminal.wait_without(" PAUSED ");
    quit(terminal);
}

#[test]
fn refresh_interval_is_observed() {
    let server = server();
    let start = |ms| Terminal::start(&top(&server.query, &["-r", ms]), DEFAULT_SIZE);
    let (often, seldom) = (start("50"), start("1000"));
    for terminal in [&often, &seldom] {
        terminal.wait_for_text("Processes");
    }
    // The number of frames depends on the machine, so two intervals are compared.
    let (before, _) = often.drawn();
    seldom.wait_for_frames(6);
    let frames = often.drawn().0 - before;
    assert!(frames > 3 * 6, "{frames} instead of about 60, or 120");
    quit(often);
    quit(seldom);
}

#[test]
fn settings_are_saved_and_restored() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let mut command = top(&server.query, &[]);
    command.env("XDG_CONFIG_HOME", folder.path());
    let terminal = Terminal::start(&command, DEFAULT_SIZE);
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
    let terminal = Terminal::start(&command, DEFAULT_SIZE);
    terminal.wait_for_text("Sensors");
    wait_for_view(&terminal, 2);
    terminal.send("T");
    terminal.wait_for_text("theme colour-blind");
    quit(terminal);
    // Errors in the file are reported before the dashboard starts.
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
        let error = terminal.text();
        assert!(error.contains(&*file.to_string_lossy()) && error.contains(key), "{text}: {error}");
        assert!(error.contains("line 3") || error.contains("3 |"), "{text}: {error}");
        terminal.wait_until_restored();
        assert!(!terminal.bytes().contains(&0x1b), "{error}");
    }
}

#[test]
fn signal_is_sent_to_the_selected_process() {
    let server = server();
    let (mut victim, mut other) = (producer(&server, 2 * MIB), producer(&server, MIB));
    let terminal = start_top(&server, &[]);
    wait_for_pid(&terminal, other.pid);
    let pid = victim.pid;
    let open_menu = || {
        terminal.send(F9);
        terminal.wait_for_text("Signal to ");
        terminal.wait_for_text(&format!("(pid {pid}, "));
    };
    // The first choice is to cancel.
    open_menu();
    terminal.send("\r");
    terminal.wait_for_text("no signal sent");
    // Any key but y cancels.
    open_menu();
    terminal.send(DOWN);
    terminal.send("\r");
    terminal.wait_for_text("Send TERM to ");
    terminal.send("\r");
    terminal.wait_without("Send TERM to ");
    victim.ping();
    open_menu();
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
fn readonly_dashboard_sends_no_signal() {
    let server = server();
    let mut producer = producer(&server, MIB);
    let terminal = start_top(&server, &["--readonly"]);
    wait_for_pid(&terminal, producer.pid);
    terminal.send("K");
    terminal.wait_for_text("--readonly: signals are disabled");
    assert!(!terminal.text().contains("Signal to "));
    quit(terminal);
    producer.ping();
}

#[test]
fn no_color_disables_colours() {
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
fn few_bytes_are_written_without_changes() {
    // 10 KiB per second at two frames per second.
    const MAX_BYTES: usize = 5 << 10;
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
        assert!(each <= MAX_BYTES, "{tab}: {each} bytes a frame");
    }
    quit(terminal);
}

#[test]
fn finding_of_a_failure_shows_its_post_mortem() {
    let server = server();
    let mut producer = Producer::new(server.segments.path());
    let site = producer.site("model.py:7 (forward)".to_owned());
    assert_eq!(site, 1);
    producer.alloc(4096, MIB);
    producer.out_of_memory(1 << 50, Some(38 * MIB));
    producer.alloc(1 << 30, MIB);
    eventually("the server lists it", || server.process(producer.pid));
    let segments = server.segments.path().to_str().unwrap();
    let terminal = start_top(&server, &["--shm-dir", segments]);
    terminal.send("7");
    terminal.wait_for_text("out of memory");
    // From the events to the findings.
    terminal.send("\x1b[D");
    terminal.send("\r");
    terminal.wait_for_text("Post-mortem");
    // It has the buffer that was there before the failure only.
    terminal.wait_for_text("Allocated in DRAM, per bank:");
    terminal.wait_for_text("100.0%      1  unknown");
    terminal.send(ESC);
    // Esc and a key at once would be one key with Alt.
    terminal.wait_for("the findings", |screen| find_text(screen, "Post-mortem").is_none().then_some(()));
    quit(terminal);
}
