//! The command line, as people and scripts use it.

use crate::*;
use std::process::{Command, Output, Stdio};
use ttmem_testkit::{Client, schema};
use ttmem_wire::legacy::Vintage;

fn ttmem(server: &Server, args: &[&str]) -> Output {
    Command::new(exe())
        .args(args)
        .env("TTMEM_QUERY_SOCKET", &server.query)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn busy_server() -> (Server, Client) {
    let server = Server::start(exe(), &["--sim", "n300"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(0, DRAM, 0x10_0000, 3 << 30);
    client.alloc(0, TRACE, 0x3f00_0000, 24 * MIB);
    client.alloc(0, L1, 0x15_0000, 40 * MIB);
    client.alloc(0, L1_SMALL, 0x16_0000, 512 << 10);
    client.cb_alloc(0, 0x19d60, 64 << 10);
    client.kernel_load(0, 1, 0x10, 57_344);
    client.sync();
    (server, client)
}

#[test]
fn table_shows_devices_breakdown_and_processes() {
    let (server, _client) = busy_server();
    let page = text(&ttmem(&server, &["-v"]));
    for part in [
        ", via daemon, SIMULATED DEVICES ",
        "\n0   n300 ",
        " 3.0 GiB/12.0 GiB 25.2  █",
        " 40.6 MiB/91.5 MiB 44.3\n",
        "\n1   n300 R  N/A   N/A N/A ",
        " idle / 12.0 GiB ",
        "  DRAM             3.0 GiB / 12.0 GiB   [██████░░░░░░░░░░░░░░░░░░░]  25.2 %",
        "    Buffers        3.0 GiB  [███░░░░░░░]  25.0 %   1 buffer, peak 3.0 GiB, as requested,",
        "    TRACE         24.0 MiB  [█░░░░░░░░░]   0.2 %   1 buffer,",
        "  L1              40.6 MiB / 91.5 MiB   [███████████░░░░░░░░░░░░░░]  44.3 %",
        "    CBs           64.0 KiB  [█░░░░░░░░░]   0.1 %   active or cached, per core, reported",
        "    Kernels       56.0 KiB ",
        "loaded, not in the total,",
        "   fabric 56.0 KiB\n",
        "    L1_SMALL     512.0 KiB",
        "64 cores x 1.4 MiB",
        "  Dispatch: 8 of 64 Tensix cores, 11.4 MiB of L1; simulated\n",
        "  Ethernet: 16 cores x 256.0 KiB = 4.0 MiB of L1, for links and fabric; simulated\n",
        "  (what dispatch, fabric and firmware hold in these cores is not tracked)\n",
        "No process reports memory on device 1.",
        "PID User Dev    DRAM       L1 Programs  Tracking Command\n",
        " root 0 ",
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}");
    }
    assert!(!page.contains('\x1b'), "no colours in a pipe");
    assert!(page.contains(&std::process::id().to_string()));
    let ascii = text(&ttmem(&server, &["-v", "--ascii"]));
    assert!(ascii.is_ascii(), "{ascii}");
    assert!(ascii.contains("[######-------------------]"));
    assert!(ascii.contains(" ###---------- 3.0 GiB/12.0 GiB"), "{ascii}");
}

#[test]
fn json_is_one_line_of_the_schema() {
    let (server, _client) = busy_server();
    let page = text(&ttmem(&server, &["--json"]));
    assert_eq!(page.lines().count(), 1);
    let json: serde_json::Value = schema::snapshot(page.as_bytes());
    assert_eq!(json["schema"], 1);
    assert_eq!(json["simulated"], true);
    assert_eq!(json["devices"][0]["id"], "0x0000005100000000");
    assert_eq!(json["devices"][0]["arch"], "wormhole_b0");
    assert_eq!(json["devices"][0]["capacity"]["l1_bytes"], 95_944_704);
    let dram = &json["devices"][0]["usage"]["dram"];
    assert_eq!(
        (&dram["requested_bytes"], &dram["basis"]),
        (&serde_json::json!(3u64 << 30), &serde_json::json!("reported"))
    );
    assert!(dram["allocated_bytes"].is_null(), "unknown is null");
    assert!(json["devices"][1]["usage"].as_object().unwrap().is_empty(), "no data is absent");
    assert_eq!(json["processes"][0]["pid"], std::process::id());
    assert_eq!(json["processes"][0]["usage"][0]["device"], json["devices"][0]["id"]);
    let kernels = serde_json::json!([
        {"class": "fabric", "registered_bytes": 57_344, "resident_bytes": null},
    ]);
    for usage in [&json["devices"][0]["usage"], &json["processes"][0]["usage"][0]] {
        assert_eq!(usage["kernel"]["by_class"], kernels, "of a device and of a process");
    }
    let cores = &json["devices"][0]["other_cores"];
    assert_eq!(cores["dispatch"]["cores"], 8);
    assert_eq!(
        cores["ethernet"],
        serde_json::json!({
            "cores": 16, "l1_bytes_per_core": 262_144, "l1_bytes": 4_194_304, "origin": "simulated",
        })
    );
    assert_eq!(json["health"]["source"], "daemon");
    let at = json["at"].as_str().unwrap();
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
    assert!(json["devices"][0].get("history").is_none());
    let with: serde_json::Value = schema::snapshot(&ttmem(&server, &["--json", "--history"]).stdout);
    assert!(with["devices"][0]["history"]["dram_total"].is_array());
    // The output can be parsed and written again without change.
    let snapshot: ttmem_core::Snapshot = serde_json::from_str(&page).unwrap();
    assert_eq!(serde_json::to_string(&snapshot).unwrap(), page.trim_end());
}

#[test]
fn output_can_be_filtered_by_device_and_process() {
    let (server, mut client) = busy_server();
    client.alloc(1, DRAM, 1, 64);
    client.sync();
    let mut puppet = ttmem_testkit::puppet::Puppet::new(&server.legacy);
    puppet.send(ttmem_wire::legacy::Type::Alloc, 1, DRAM, 5, 100);
    let json =
        |args: &[&str]| -> serde_json::Value { schema::snapshot(text(&ttmem(&server, args)).as_bytes()) };
    let one = json(&["--json", "-d", "1"]);
    assert_eq!(one["devices"].as_array().unwrap().len(), 1);
    assert_eq!(one["processes"].as_array().unwrap().len(), 2);
    assert_eq!(one["processes"][0]["usage"].as_array().unwrap().len(), 1);
    let same = json(&["--json", "-d", "0x0000005100000001"]);
    for key in ["id", "index", "usage"] {
        assert_eq!(same["devices"][0][key], one["devices"][0][key]);
    }
    let mine = json(&["--json", "--pid", &puppet.pid.to_string()]);
    assert_eq!(mine["processes"].as_array().unwrap().len(), 1);
    let none = ttmem(&server, &["-d", "9"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&none.stderr).contains("--device 9: no such device; devices are 0-1"));
    let none = ttmem(&server, &["--pid", "1"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("--pid 1: the process has no device open"));
    let dump = ttmem(&server, &["dump", "--json", "--pid", &puppet.pid.to_string()]);
    let dump: serde_json::Value = schema::dump(&dump.stdout);
    assert_eq!(dump["allocations"].as_array().unwrap().len(), 1);
    assert_eq!(dump["allocations"][0]["id"], "0x5");
}

#[test]
fn dump_lists_every_live_allocation() {
    let (server, _client) = busy_server();
    let page = text(&ttmem(&server, &["dump"]));
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 1 + 6 + 1);
    assert!(lines[0].starts_with("DEVICE   SPACE "));
    assert!(lines[1].starts_with("0        dram                0x100000    3.0 GiB        N/A"), "{page}");
    assert!(page.contains("fabric, reported"));
    assert_eq!(lines[7], "6 allocations, 3.1 GiB requested per device", "{page}");
    let on_one = text(&ttmem(&server, &["dump", "-d", "1"]));
    assert!(on_one.contains("0 allocations"));
    for (args, code, error) in [
        (["-d", "9"], 2, "--device 9: no such device; devices are 0-1"),
        (["--pid", "1"], 1, "--pid 1: the process has no device open"),
    ] {
        let none = ttmem(&server, &["dump", args[0], args[1]]);
        assert_eq!(none.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&none.stderr).contains(error));
    }
}

#[test]
fn large_dump_is_complete_and_costs_little_memory() {
    let (server, mut client) = busy_server();
    for n in 0..200_000 {
        client.alloc(1, DRAM, n, 32);
    }
    client.sync();
    let before = server.resident_bytes();
    let all = server.allocations();
    assert_eq!(all.len(), 200_006);
    let ids: std::collections::BTreeSet<&str> = all.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert!(ids.len() >= 200_000, "each is listed once");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more for a dump of 40 MB");
}

#[test]
fn exit_codes_give_the_outcome() {
    let nowhere = tempfile::tempdir().unwrap();
    let code = |args: &[&str], socket: &Path| {
        let output = Command::new(exe()).args(args).env("TTMEM_QUERY_SOCKET", socket).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let missing = nowhere.path().join("no.sock");
    for args in [&[][..], &["--json"], &["dump"], &["-w"]] {
        let (exit, error) = code(args, &missing);
        assert_eq!(exit, 4, "{args:?}");
        assert!(error.contains("no daemon answers at") && error.contains("ttmem serve"), "{error}");
    }
    let empty = Server::start(exe(), &[]);
    assert_eq!(code(&[], &empty.query).0, 3);
    assert_eq!(code(&["--json"], &empty.query).0, 3);
    let full = server();
    assert_eq!(code(&["--json"], &full.query).0, 0);
    for bad in [&["--nonsense"][..], &["serve", "--sim", "n999"], &["--pid", "x"], &["-w", "-r", "1"]] {
        assert_eq!(code(bad, &missing).0, 2, "{bad:?}");
    }
    let (_, error) = code(&["serve", "--sim", "n999"], &missing);
    assert!(error.contains("unknown board") && error.contains("galaxy-bh"), "{error}");
    // A server that does not speak the protocol is a failure, not a missing daemon.
    let strange = nowhere.path().join("strange.sock");
    let listener = std::os::unix::net::UnixListener::bind(&strange).unwrap();
    std::thread::spawn(move || drop(listener.accept()));
    assert_eq!(code(&["--json"], &strange).0, 1);
}

#[test]
fn help_man_pages_and_completions_are_printed() {
    let run = |args: &[&str]| {
        let output = Command::new(exe()).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let help = run(&["--help"]);
    for word in ["serve", "dump", "demo", "--json", "--query-socket", "Exit codes"] {
        assert!(help.contains(word), "{word} is not in the help");
    }
    assert!(!help.contains("demo-client"));
    assert!(run(&["man"]).starts_with(".ie"));
    assert!(run(&["man", "dump"]).contains("\\-\\-cores"), "a command has a page of its own");
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).contains("ttmem"), "{shell}");
    }
    assert!(run(&["--version"]).starts_with("ttmem 0."));
}

#[test]
fn closed_pipe_is_no_error() {
    let (server, mut client) = busy_server();
    for n in 0..20_000 {
        client.alloc(1, DRAM, n, 32);
    }
    client.sync();
    let command = format!("{} dump | head -n 1; exit ${{PIPESTATUS[0]}}", exe().display());
    let output = Command::new("bash")
        .args(["-c", &command])
        .env("TTMEM_QUERY_SOCKET", &server.query)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn demo_prints_tables_and_leaves_nothing_behind() {
    let output =
        Command::new(exe()).args(["demo", "--seconds", "4", "--refresh", "500", "--ascii"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8(output.stdout).unwrap();
    let frames: Vec<&str> = page.split("ttmem 0.").skip(1).collect();
    assert!(frames.len() >= 3, "{} frames", frames.len());
    assert_ne!(frames[0], frames[frames.len() - 1]);
    let last = frames[frames.len() - 1];
    for part in ["demo-llm", "demo-vision", "demo-leaky", "demo-victim", "\n0 ", "\n1 ", "SIMULATED"] {
        assert!(last.contains(part), "{part} is not in\n{last}");
    }
    let notes = String::from_utf8(output.stderr).unwrap();
    let socket = notes.split("--query-socket ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(!Path::new(socket).exists() && !Path::new(socket).parent().unwrap().exists());
    let pid = notes.split("the daemon (pid ").nth(1).unwrap().split(')').next().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn killed_demo_leaves_nothing_behind() {
    use std::io::BufRead;
    for delay in [0, 300] {
        let mut demo = Command::new(exe())
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut notes = String::new();
        let mut errors = std::io::BufReader::new(demo.stderr.take().unwrap());
        while !notes.contains("dump --query-socket") {
            assert!(errors.read_line(&mut notes).unwrap() > 0, "{notes}");
        }
        std::thread::sleep(std::time::Duration::from_millis(delay));
        let socket =
            notes.split("--query-socket ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        let folder = Path::new(&socket).parent().unwrap().to_owned();
        demo.kill().unwrap();
        demo.wait().unwrap();
        ttmem_testkit::eventually("no process of the demo is left", || {
            let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&command).contains(folder.to_str().unwrap())
            });
            (!left).then_some(())
        });
        assert!(!folder.exists(), "{} is left", folder.display());
        let prefix = format!("ttmem-demo.{}.", demo.id());
        let left = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let left: Vec<_> = left.filter(|it| it.file_name().to_string_lossy().starts_with(&prefix)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn watch_prints_a_line_or_rows_per_refresh() {
    let (server, _client) = busy_server();
    let watch = |args: &[&str]| text(&ttmem(&server, &[&["-w", "-r", "50", "-n", "3"], args].concat()));
    let lines = watch(&["--json"]);
    assert_eq!(lines.lines().count(), 3);
    for line in lines.lines() {
        let json: serde_json::Value = schema::snapshot(line.as_bytes());
        assert_eq!(json["devices"].as_array().unwrap().len(), 2);
    }
    let one = watch(&["--json", "-d", "0"]);
    assert_eq!(one.lines().count(), 3, "with a filter, too");
    let csv = watch(&["--format", "csv,nounits", "--query", "index,dram_used_bytes"]);
    let rows = "0,3246391296\n1,N/A\n".repeat(3);
    assert_eq!(csv, format!("index,dram_used_bytes\n{rows}"), "one header");
    assert_eq!(watch(&[]).matches("ttmem 0.").count(), 3, "tables");
    // On a terminal, it prints lines as well instead of the dashboard.
    let mut command = Command::new(exe());
    command.args(["-w", "-r", "50", "-n", "2", "--json"]).env("TTMEM_QUERY_SOCKET", &server.query);
    let mut terminal = ttmem_testkit::terminal::Terminal::start(&command, (100, 40));
    assert!(terminal.wait().success());
    let printed = String::from_utf8(terminal.bytes()).unwrap();
    assert_eq!(printed.matches("\"schema\":1").count(), 2, "{printed}");
}

#[test]
fn usage_errors_are_one_line_with_the_flag() {
    let nowhere = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (&["--query", "index"][..], "--query needs --format csv"),
        (&["--json", "--query", "index"], "--query needs --format csv"),
        (&["-n", "3"], "--count needs --watch"),
        (&["-w", "-n", "0"], "'--count <COUNT>'"),
        (
            &["--format", "csv", "--query", "colour"],
            "'--query <FIELDS>': no such field; `ttmem --query help`",
        ),
        (&["--jsn"], "unexpected argument '--jsn' found; a similar argument exists: '--json'"),
        (&["dump", "--cores", "x"], "'--cores [<X,Y>]'"),
        (&["run"], "<CMD>"),
    ] {
        let output = Command::new(exe())
            .args(args)
            .env("TTMEM_SHM_DIR", nowhere.path())
            .env("TTMEM_LEGACY_SOCKET", nowhere.path().join("legacy.sock"))
            .env("TTMEM_QUERY_SOCKET", nowhere.path().join("query.sock"))
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {error}");
        assert!(error.starts_with("ttmem: ") && error.contains(expected), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        assert!(!error.contains("--shm-dir") && !error.contains("--legacy-socket"), "{args:?}: {error}");
    }
}

#[test]
fn unknown_user_is_a_usage_error() {
    let (server, _client) = busy_server();
    for args in [&["--user", "nosuch"][..], &["--json", "--user", "nosuch"], &["dump", "--user", "nosuch"]] {
        let output = ttmem(&server, args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {error}");
        assert!(
            error.starts_with("ttmem: --user nosuch: no such user; ") && error.lines().count() == 1,
            "{error}"
        );
    }
    for user in ["root", "0", "4242"] {
        assert_eq!(ttmem(&server, &["--user", user]).status.code(), Some(0), "{user}");
    }
}

#[test]
fn texts_use_plain_words() {
    let run = |args: &[&str]| {
        let output = Command::new(exe()).args(args).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let mut texts =
        vec![run(&["--help"]), run(&["man"]), run(&["--query", "help"]), run(&["doctor", "--local"])];
    for command in ["top", "run", "env", "check", "dump", "serve", "doctor", "demo", "completions", "man"] {
        texts.push(run(&[command, "--help"]));
        texts.push(run(&["man", command]));
    }
    let banned = [
        "nobody",
        "whoever",
        "somebody",
        "everybody",
        "vain",
        "looks",
        "look",
        "tells",
        "told",
        "came",
        "odd",
        "chip",
    ];
    for text in &texts {
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            assert!(!banned.contains(&word.to_lowercase().as_str()), "{word}: {text}");
        }
        assert!(!text.contains("of late") && !text.contains("to be seen"), "{text}");
    }
    assert!(texts[0].contains("docs/glossary.md"));
}
