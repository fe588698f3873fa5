//! How the dashboard starts, is suspended, loses its daemon, and ends.

use super::*;

/// A child that is killed at the end of its test.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn dashboard_reconnects_to_a_restarted_daemon() {
    let mut server = server();
    let producer = producer(&server, 77 * MIB);
    let terminal = start_top(&server, &[]);
    wait_for_pid(&terminal, producer.pid);
    terminal.wait_for_text(" 77.0 ");
    server.signal(Signal::KILL);
    server.wait();
    terminal.wait_for_text("no answer for ");
    let text = terminal.text();
    assert!(text.contains(" 77.0 ") && text.contains(&format!(" {} ", producer.pid)), "{text}");
    // Keys work in the meantime.
    terminal.send("3");
    wait_for_view(&terminal, 2);
    terminal.send("1");
    terminal.wait_for_text(" 77.0 ");
    let restarted = Command::new(exe())
        .args(["serve", "--quiet", "--sim", "t3k", "--legacy-socket"])
        .arg(&server.legacy)
        .arg("--query-socket")
        .arg(&server.query)
        .env("TTMEM_SHM_DIR", server.segments.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _restarted = OwnedChild(restarted.unwrap());
    terminal.wait_without("no answer for ");
    terminal.wait_for_text("via daemon");
    terminal.wait_for_text(" 77.0 ");
    quit(terminal);
}

#[test]
fn stale_socket_is_reported_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("query.sock");
    // The socket of an exited daemon: the file is left, but no process listens.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let terminal = Terminal::start(&top(&path, &[]), DEFAULT_SIZE);
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
fn hanging_daemon_does_not_block_the_dashboard() {
    let server = server();
    let terminal = start_top(&server, &[]);
    server.signal(Signal::STOP);
    terminal.wait_for("the outage is shown", |screen| {
        let text = screen.contents();
        (text.contains("no answer for ") || text.contains("no data for ")).then_some(())
    });
    for view in [1, 4, 0] {
        terminal.send(&(view + 1).to_string());
        wait_for_view(&terminal, view);
    }
    // It quits while the daemon still hangs.
    quit(terminal);
    server.signal(Signal::CONT);
}

#[test]
fn signals_end_the_dashboard_and_restore_the_terminal() {
    let server = server();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut terminal = start_top(&server, &[]);
        terminal.wait_until_taken();
        terminal.signal(signal);
        terminal.expect_clean_exit();
    }
}

#[test]
fn suspended_dashboard_resumes() {
    let server = server();
    let terminal = start_top(&server, &[]);
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
        // The whole screen is drawn again, not only changes.
        let text = terminal.text();
        assert!(TABS.iter().all(|tab| text.contains(tab)), "{text}");
        assert!(text.lines().filter(|line| line.contains("n300 ")).count() >= 8, "{text}");
        // Keys and the mouse work again.
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
        post_mortem: Box::new(|_| Err(String::new())),
        signal: Box::new(|_, _| Ok(String::new())),
        save: Box::new(|_| panic!("the drawer is stuck")),
    };
    let settings = ttmem_tui::Settings::default();
    let options = ttmem_tui::StartOptions { settings, environment, until: None };
    ttmem_tui::run(options, callbacks).unwrap();
}

#[test]
fn panic_is_shown_on_a_restored_terminal() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "terminal::lifecycle::dashboard_that_panics",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(PANICS, "1");
    let mut terminal = Terminal::start(&command, DEFAULT_SIZE);
    terminal.wait_for_text("via test");
    terminal.wait_until_taken();
    // A panic while fetching is shown on the dashboard, which continues.
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
fn dashboard_ends_with_its_terminal() {
    let server = server();
    let command = top(&server.query, &[]);
    for mut terminal in
        [Terminal::start(&command, DEFAULT_SIZE), Terminal::start_without_control(&command, DEFAULT_SIZE)]
    {
        terminal.wait_for_text("Processes");
        let before = terminal.cpu_time();
        let pid = terminal.pid();
        terminal.close();
        let mut spent = Duration::ZERO;
        eventually("it ends", || {
            spent = spent.max(ttmem_testkit::terminal::cpu_time_of(pid).saturating_sub(before));
            matches!(terminal.state(), 'Z' | 'X').then_some(())
        });
        assert!(spent < Duration::from_secs(1), "it used {spent:?} of CPU time to end");
    }
}

#[test]
fn unsuitable_terminal_is_an_error() {
    let server = server();
    let mut terminal = Terminal::start(&top(&server.query, &["--user", "nosuch"]), DEFAULT_SIZE);
    assert_eq!(terminal.wait().code(), Some(2));
    assert!(terminal.text().contains("--user nosuch: no such user"), "{}", terminal.text());
    for term in ["dumb", ""] {
        let mut command = top(&server.query, &[]);
        command.env("TERM", term);
        let mut terminal = Terminal::start(&command, DEFAULT_SIZE);
        assert_eq!(terminal.wait().code(), Some(1));
        let (text, bytes) = (terminal.text(), terminal.bytes());
        assert!(text.contains("TERM is") && text.contains("cannot show the dashboard"), "{text}");
        assert!(!bytes.contains(&0x1b), "{bytes:?}");
        terminal.wait_until_restored();
    }
    let output = top(&server.query, &[]).stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("-w") && error.contains("--json") && output.stdout.is_empty(), "{error}");
}

#[test]
fn demo_ends_all_its_processes() {
    for by_signal in [false, true] {
        let mut command = Command::new(exe());
        command.args(["demo", "-r", "100"]);
        let mut terminal = Terminal::start(&command, DEFAULT_SIZE);
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
