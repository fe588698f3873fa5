//! The table that `ttmem` prints, in a pipe and on a terminal.

use crate::*;
use std::process::{Command, Stdio};
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::{Client, terminal::Terminal};
use ttmem_wire::legacy::{Type, Vintage};

fn command(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.args(args).env("TTMEM_QUERY_SOCKET", &server.query).env_remove("NO_COLOR").env_remove("COLUMNS");
    command.stdin(Stdio::null());
    command
}

fn printed(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A T3000 with four processes, the first with memory on every device, and a finding on each of them.
fn four_processes() -> (Server, Vec<Puppet>) {
    let server = server();
    let mut all: Vec<Puppet> = (0..4).map(|_| Puppet::new(&server.legacy)).collect();
    for device in 0..8 {
        all[0].send(Type::Alloc, device, DRAM, 0x10_0000, 3 << 30);
        all[0].send(Type::Alloc, device, L1, 0x15_0000, 40 * MIB);
    }
    for (n, puppet) in all.iter_mut().enumerate() {
        puppet.send(Type::Alloc, n as i32, DRAM, 0x4000_0000, 1536 * MIB);
        puppet.send(Type::Alloc, n as i32, DRAM, 0x5000_0000, MIB);
        for _ in 0..2 {
            puppet.send(Type::Free, n as i32, DRAM, 0x5000_0000, 0);
        }
    }
    (server, all)
}

fn widest(page: &str) -> usize {
    page.lines().map(|line| line.chars().count()).max().unwrap()
}

#[test]
fn t3000_with_four_processes_fits_a_terminal() {
    let (server, processes) = four_processes();
    let page = printed(command(&server, &[]));
    assert!(page.lines().count() <= 40 && widest(&page) <= 100, "{page}");
    assert!(page.contains("Dev Board  Temp Power MHz  DRAM"), "{page}");
    assert!(page.contains(" 4.5 GiB/12.0 GiB 37.5  █"), "{page}");
    assert!(page.contains(" 40.0 MiB/91.5 MiB 43.7"), "{page}");
    // Sensors of remote devices cannot be read, so these rows are identical.
    assert!(page.contains("\n4-7 ") && page.contains("n300 R"), "{page}");
    assert!(!page.contains("0-3 "), "devices with sensors have a row each: {page}");
    let small = printed({
        let mut command = command(&server, &[]);
        command.env("COLUMNS", "80");
        command
    });
    assert!(small.lines().count() <= 24 && widest(&small) <= 80, "{small}");
    assert!(small.contains(" 4.5Gi/12.0Gi 37.5  █"), "{small}");
    for puppet in &processes {
        for page in [&page, &small] {
            let findings = page.split("Findings:").nth(1).unwrap();
            let named = format!("pid {} (", puppet.pid);
            assert!(findings.contains(&named), "{named}: {page}");
            assert!(!findings.contains('…'), "findings are not cut: {page}");
        }
    }
    let wide = printed({
        let mut command = command(&server, &[]);
        command.env("COLUMNS", "400");
        command
    });
    let devices: String = wide.lines().take(8).collect::<Vec<_>>().join("\n");
    assert!(widest(&devices) < 130, "no wider than needed: {wide}");
}

#[test]
fn terminal_output_has_its_width_and_colours() {
    let (server, _processes) = four_processes();
    for (columns, rows) in [(80, 24), (100, 40)] {
        let mut terminal = Terminal::start(&command(&server, &[]), (columns, rows));
        terminal.wait_for_text("Findings:");
        assert!(terminal.wait().success());
        let raw = String::from_utf8(terminal.bytes()).unwrap();
        assert!(raw.contains("\x1b[32m█"), "{raw:?}");
        assert!(raw.lines().count() < usize::from(rows), "{raw}");
        assert_eq!(raw.contains(" GiB/"), columns == 100, "{raw}");
        let mut plain = command(&server, &[]);
        plain.env("NO_COLOR", "1");
        let mut terminal = Terminal::start(&plain, (columns, rows));
        terminal.wait_for_text("Findings:");
        assert!(terminal.wait().success());
        assert!(!String::from_utf8(terminal.bytes()).unwrap().contains("\x1b["));
    }
}

#[test]
fn unopened_device_is_idle() {
    let server = Server::start(exe(), &["--sim", "n300"]);
    let page = printed(command(&server, &[]));
    assert_eq!(page.matches("idle / 12.0 GiB").count(), 2, "{page}");
    assert!(page.contains("No process has a device open or reports device memory."), "{page}");
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0x10_0000, MIB);
    client.sync();
    let page = printed(command(&server, &[]));
    assert_eq!(page.matches("idle / 12.0 GiB").count(), 1, "{page}");
    assert!(page.contains(" 1.0 MiB/12.0 GiB 0.0 "), "{page}");
    assert_eq!(
        (page.matches("N/A / 91.5 MiB").count(), page.matches("idle / 91.5 MiB").count()),
        (1, 1),
        "{page}"
    );
}

#[test]
fn verbose_folds_equal_breakdowns() {
    let (server, _processes) = four_processes();
    assert!(!printed(command(&server, &[])).contains("Memory breakdown"));
    let page = printed(command(&server, &["-v"]));
    assert!(page.contains("\nMemory breakdown:\nDevices 0-3 (Wormhole), each:\n"), "{page}");
    assert_eq!(page.matches("Devices 4-7 (Wormhole), each:").count(), 1, "{page}");
    let long = std::env::current_exe().unwrap();
    assert!(page.contains(long.file_name().unwrap().to_str().unwrap()), "the whole command: {page}");
}
