//! `ttmem dump` with many buffers: groups, orders and limits.

use crate::*;
use std::process::{Command, Output, Stdio};
use ttmem_testkit::terminal::Terminal;
use ttmem_testkit::{Client, schema};
use ttmem_wire::legacy::Vintage;

fn command(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(exe());
    command.arg("dump").args(args).env("TTMEM_QUERY_SOCKET", &server.query).env_remove("COLUMNS");
    command.stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn dump(server: &Server, args: &[&str]) -> String {
    text(&command(server, args).output().unwrap())
}

/// 10,000 buffers in three sizes on two devices, and a program's memory.
fn many() -> (Server, Client) {
    let server = Server::start(exe(), &["--sim", "n300"]);
    let mut client = Client::connect(&server, Vintage::V144);
    client.alloc(1, DRAM, 0x4000_0000, 1536 * MIB);
    for n in 0..9_000 {
        client.alloc(0, DRAM, 0x1000 * n, 4096);
    }
    for n in 0..999 {
        client.alloc(0, L1, 0x10_0000 + 0x1000 * n, 2048);
    }
    client.cb_alloc(0, 0x19d60, 64 << 10);
    client.sync();
    (server, client)
}

fn columns(page: &str, count: usize) -> Vec<String> {
    let rows =
        page.lines().skip(1).map(|line| line.split_whitespace().take(count).collect::<Vec<_>>().join(" "));
    rows.collect()
}

#[test]
fn groups_add_up_allocations() {
    let (server, _client) = many();
    let page = dump(&server, &["--group-by", "size"]);
    let rows = columns(&page, 8);
    assert!(page.starts_with("   TOTAL SHARE COUNT    EACH  DEVICE SPACE "), "{page}");
    assert_eq!(rows[0], "1.5 GiB 97.6% 1 1.5 GiB 1 dram", "{page}");
    assert_eq!(rows[1], "35.2 MiB 2.2% 9000 4.0 KiB 0 dram");
    assert_eq!(rows[2], "2.0 MiB 0.1% 999 2.0 KiB 0 l1");
    assert_eq!(rows[3], "10000 allocations, 1.5 GiB on all devices");
    assert_eq!(
        page.lines().last(),
        Some("not included: 1 allocation of programs; see `ttmem dump --programs`")
    );
    for (by, first, count) in [
        ("space", "1.5 GiB 99.9% 9001 - 0-1 dram", 3),
        ("process", "1.5 GiB 100.0% 10000 - 0-1 2 spaces", 1),
        ("site", "1.5 GiB 100.0% 10000 - 0-1 2 spaces", 1),
        ("op", "1.5 GiB 100.0% 10000 - 0-1 2 spaces", 1),
        ("device", "1.5 GiB 97.6% 1 1.5 GiB 1 dram", 2),
        ("program", "64.0 KiB 100.0% 1 64.0 KiB 0 cb", 1),
    ] {
        let page = dump(&server, &["--group-by", by]);
        let rows = columns(&page, first.split(' ').count());
        assert_eq!(rows[0], first, "{by}: {page}");
        assert!(rows[count].contains("allocation"), "{by}: {count} groups: {page}");
    }
    let counted = dump(&server, &["--group-by", "size", "--sort", "count", "--top", "1"]);
    assert_eq!(columns(&counted, 4)[0], "35.2 MiB 2.2% 9000", "{counted}");
    assert!(counted.contains("\n2 more groups with 1.5 GiB; "), "{counted}");
    let aged: serde_json::Value =
        serde_json::from_str(&dump(&server, &["--group-by", "size", "--sort", "age", "--json"])).unwrap();
    let ages = aged["groups"].as_array().unwrap().iter().map(|it| it["age_seconds"].as_f64().unwrap());
    assert!(ages.clone().count() == 3 && ages.is_sorted_by(|a, b| a >= b), "oldest first: {aged}");
    let json: serde_json::Value =
        serde_json::from_str(&dump(&server, &["--group-by", "space", "--json", "--top", "1"])).unwrap();
    assert_eq!((&json["group_by"], &json["more"]), (&"space".into(), &2.into()));
    assert_eq!(json["groups"][0]["total_bytes"], 1536 * MIB + 9000 * 4096);
    let on_one = dump(&server, &["--group-by", "process", "-d", "0"]);
    assert!(columns(&on_one, 4)[0].starts_with("37.1 MiB 100.0% 9999"), "{on_one}");
}

#[test]
fn lists_are_sorted_and_limited() {
    let (server, _client) = many();
    let page = dump(&server, &["--top", "2"]);
    assert_eq!(page.lines().count(), 1 + 2 + 2, "{page}");
    assert!(page.lines().nth(1).unwrap().contains(" 1.5 GiB "), "largest first: {page}");
    assert!(page.contains("\n9999 more with "), "{page}");
    assert_eq!(dump(&server, &[]).lines().count(), 1 + 10_001 + 1, "a pipe gets everything");
    let json: serde_json::Value = schema::dump(dump(&server, &["--json"]).as_bytes());
    assert_eq!(json["allocations"].as_array().unwrap().len(), 10_001);
    for bad in
        [&["--all", "--top", "3"][..], &["--programs", "--group-by", "size"], &["--group-by", "colour"]]
    {
        let output = command(&server, bad).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{bad:?}");
    }
}

#[test]
fn terminal_gets_groups_without_all() {
    let (server, _client) = many();
    for (size, args, count) in [((100, 40), &[][..], 1 + 3 + 2), ((80, 24), &["--all"], 1 + 10_001 + 1)] {
        let mut terminal = Terminal::start(&command(&server, args), size);
        terminal.wait_for_text("allocations");
        assert!(terminal.wait().success());
        let printed = String::from_utf8(terminal.bytes()).unwrap();
        assert_eq!(printed.lines().count(), count, "{printed}");
    }
}
