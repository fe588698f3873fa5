//! The program under the names of the old tools.

use super::started_as;
use crate::*;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use ttmem_testkit::puppet::Puppet;
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{Client, eventually};
use ttmem_wire::legacy::{Type, Vintage};

fn printed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn old_names_show_the_usage_they_accept() {
    let server = started_as("allocation_server_poc");
    let help = printed(server.command().arg("--help"));
    assert!(help.contains("\nUsage: allocation_server_poc [OPTIONS]\n"), "{help}");
    assert!(help.contains("-q, --quiet") && !help.contains("serve [OPTIONS]"), "{help}");
    let monitor = started_as("tt_smi_umd");
    let help = printed(monitor.command().arg("--help"));
    assert!(help.contains("\nUsage: tt_smi_umd [OPTIONS]\n") && !help.contains("Commands:"), "{help}");
    for part in ["-w, --watch", "-r, --refresh <MS>", "--sysfs", "tt_smi_umd -w -r 1000"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    for tool in [&server, &monitor] {
        let name = tool.name;
        assert!(printed(tool.command().arg("--version")).starts_with(&format!("{name} ")));
        let wrong = tool.command().arg("serve").output().unwrap();
        assert_eq!(wrong.status.code(), Some(2));
        let text = String::from_utf8(wrong.stderr).unwrap();
        assert!(text.starts_with(&format!("{name}: ")), "{text}");
        assert!(text.contains("'serve'") && text.ends_with(&format!("see `{name} --help`\n")), "{text}");
    }
}

#[test]
fn old_server_listens_logs_and_stops() {
    let tool = started_as("allocation_server_poc");
    let (legacy, query) = (tool.folder.path().join("legacy.sock"), tool.folder.path().join("query.sock"));
    for quiet in [false, true] {
        let mut command = tool.command();
        command.arg("--legacy-socket").arg(&legacy).arg("--query-socket").arg(&query);
        command.args(["--sim", "p150a"]).args(quiet.then_some("--quiet"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        eventually("the server listens", || UnixStream::connect(&legacy).ok());
        let mut client = Client::connect_to(&legacy, Vintage::V144);
        client.alloc(0, DRAM, 0x7f8a_2c00_0000, 4_194_304);
        client.kernel_load(0, 0, 1, 2_621_440);
        client.free(0, 0x7f8a_2c00_0000);
        client.kernel_unload(0, 1, 2_621_440);
        assert_eq!(client.device_info(-1).capacity.num_devices, 1);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(!legacy.exists(), "the socket is removed");
        let lines: Vec<String> =
            BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
        if quiet {
            assert_eq!(lines, [""; 0]);
            continue;
        }
        let pid = std::process::id();
        for line in [
            "   Device 0: Blackhole (32.0 GiB DRAM, 180.0 MiB L1) [Local PCIe]".to_owned(),
            "   Total: 1 device(s) detected".to_owned(),
            "🚀 Allocation Server started".to_owned(),
            format!("   Listening on: {}", legacy.display()),
            "   Press Ctrl+C to stop".to_owned(),
            format!("✓ [PID {pid}] Allocated 4194304 bytes of DRAM on device 0 (buffer_id=0x7f8a2c000000)"),
            "✓ [KERNEL_LOAD] Application kernel on Device 0: +2.5 MB (Total: 2.5 MB)".to_owned(),
            format!("✗ [PID {pid}] Freed buffer 0x7f8a2c000000 on device 0 (4194304 bytes, FINAL)"),
            "✗ [KERNEL_UNLOAD] Application kernel on Device 0: -2.5 MB (Total: 0 MB)".to_owned(),
        ] {
            assert!(lines.contains(&line), "{line:?} is not in {lines:#?}");
        }
    }
}

/// The value behind a label in the lines of a device, as scripts read it.
fn value<'a>(page: &'a str, device: u32, label: &str) -> Option<&'a str> {
    let heading = format!("Device {device} (");
    let block = page.lines().skip_while(|line| !line.starts_with(&heading)).skip(2);
    let block = block.take_while(|line| !line.is_empty());
    block.into_iter().find_map(|line| line.trim_start().strip_prefix(label)).map(str::trim)
}

#[test]
fn old_page_has_the_labels_of_the_old_tool() {
    let server = server();
    let mut puppet = Puppet::new(&server.legacy);
    for device in 0..2 {
        puppet.send(Type::Alloc, device, DRAM, 0x10_0000, 3 << 30);
        puppet.send(Type::Alloc, device, L1, 0x15_0000, 40 * MIB);
        puppet.send(Type::Alloc, device, L1_SMALL, 0x16_0000, MIB / 2);
        puppet.send(Type::Alloc, device, TRACE, 0x4000_0000, 256 * MIB);
        puppet.send(Type::CbAlloc, device, 0, 0x19d60, 3 * MIB / 2);
        puppet.send(Type::KernelLoad, device, 0, 9, 2 * MIB);
    }
    let tool = started_as("tt_smi_umd");
    let page = printed(tool.command().env("TTMEM_QUERY_SOCKET", &server.query).arg("--sysfs"));
    for part in [
        "│ tt-smi-umd (",
        "│ GPU Name            Temp      Power     AICLK       Memory-Usage  ",
        "│ 7   Wormhole_B0     N/A       N/A       N/A         0.0B/12.0GB  ",
        "\nMemory Breakdown:\n\nDevice 0 (Wormhole_B0):\n----------------------------------------------------------------------\n",
        "\n  DRAM:       3.2GB      / 12.0GB      [███████░░░░░░░░░░░░░░░░░░] 27.1%\n",
        "\n    Buffers:  40.0MB\n    CBs:      1.5MB\n    Kernels:  2.0MB\n    L1_SMALL: 512.0KB\n",
        "\nProcesses:\n",
        "│ PID     Name                Device  DRAM        L1          Status  ",
        "Connected to server",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    let row = page.lines().find(|line| line.starts_with("│ 0   Wormhole_B0 ")).unwrap();
    assert!(row.contains("°C ") && row.contains("W ") && row.contains(" MHz "), "{row}");
    assert!(row.contains(" 3.2GB/12.0GB "), "{row}");
    for device in 0..8 {
        let memory = value(&page, device, "L1 Memory:").unwrap();
        let (used, rest) = memory.split_once('/').unwrap();
        let expected = if device < 2 { "42.0MB" } else { "0.0B" };
        assert!(expected == used.trim() && rest.starts_with(" 91.5MB"), "device {device}: {memory}");
        assert!(rest.ends_with('%') && rest.contains('['), "{memory}");
        assert_eq!(value(&page, device, "CBs:"), (device < 2).then_some("1.5MB"));
        assert_eq!(value(&page, device, "TRACE:"), (device < 2).then_some("256.0MB"));
    }
    assert_eq!(value(&page, 0, "Basis:"), Some("DRAM reported, L1 reported"));
    assert_eq!(value(&page, 0, "Of L1:"), Some("Buffers 43.7 %, CBs 1.6 %, Kernels 2.2 %, L1_SMALL 0.5 %"));
}

#[test]
fn old_page_shows_unknown_memory_as_such() {
    let tool = started_as("tt_smi_umd");
    let server = Server::start(exe(), &["--sim", "n150"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, L1, 0x15_0000, MIB);
    client.sync();
    let page = printed(tool.command().env("TTMEM_QUERY_SOCKET", &server.query));
    assert_eq!(value(&page, 0, "DRAM:"), Some("N/A        / 12.0GB"), "{page}");
    assert!(value(&page, 0, "L1 Memory:").unwrap().starts_with("1.0MB "), "{page}");
}

#[test]
fn greps_of_the_old_guide_find_their_lines() {
    let server = server();
    let mut client = Client::connect(&server, Vintage::V144);
    for device in 0..4 {
        for n in 0..3 {
            client.cb_alloc(device, n << 20, MIB / 4);
        }
        client.kernel_load(device, 0, 1, 2_202_010);
    }
    client.sync();
    server.wait_for_log("[KERNEL_LOAD] Application kernel on Device 3");
    let shell = |script: &str| {
        let script = script.replace("out.log", server.folder.path().join("out").to_str().unwrap());
        printed(Command::new("sh").args(["-c", &script]))
    };
    let cbs = shell(r#"grep "CB_ALLOC" out.log | head -10"#);
    assert_eq!(cbs.lines().count(), 10, "{cbs}");
    assert!(cbs.starts_with("✓ [CB_ALLOC] Device 0: +0.25 MB (Total: 0.25 MB)\n"), "{cbs}");
    let kernels = shell(r#"grep "KERNEL_LOAD" out.log | head -10"#);
    let line =
        |device| format!("✓ [KERNEL_LOAD] Application kernel on Device {device}: +2.1 MB (Total: 2.1 MB)\n");
    assert_eq!(kernels, (0..4).map(line).collect::<String>());
    let counts = shell(r#"grep -E "CB_ALLOC.*Device [0-3]" out.log | cut -d' ' -f3 | sort | uniq -c"#);
    assert_eq!(counts.trim(), "12 Device", "as with the old server, whose lines have the number in field 4");
    let counts = shell(r#"grep -E "CB_ALLOC.*Device [0-3]" out.log | cut -d' ' -f3,4 | sort | uniq -c"#);
    assert_eq!(
        counts.lines().map(str::trim).collect::<Vec<_>>(),
        [0, 1, 2, 3].map(|n| format!("3 Device {n}:"))
    );
}

#[test]
fn old_monitor_has_its_keys_on_a_terminal() {
    let server = server();
    let tool = started_as("tt_smi_umd");
    let mut command = tool.command();
    command.args(["-w", "-r", "100", "--sysfs"]).env("TTMEM_QUERY_SOCKET", &server.query);
    let mut terminal = Terminal::start(&command, (120, 40));
    terminal.wait_for_text("Processes");
    for (key, text) in [("2", "30s"), ("3", "Sensors"), ("1", "Processes")] {
        terminal.send(key);
        terminal.wait_for_text(text);
    }
    terminal.send("q");
    terminal.expect_clean_exit();
    // Into a pipe, the old page is printed again and again.
    let mut command = tool.command();
    command.args(["-w", "-r", "100", "-n", "2"]).env("TTMEM_QUERY_SOCKET", &server.query);
    assert_eq!(printed(&mut command).matches("\nMemory Breakdown:\n").count(), 2);
}
