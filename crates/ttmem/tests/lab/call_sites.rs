//! The line, operation and tensor of each allocation, compared with what the interpreter itself says.

use super::stage::OLDER;
use super::*;
use std::collections::BTreeMap;
use ttmem_core::snapshot::{Allocation, Dump};
use ttmem_core::words::Space;
use ttmem_testkit::memory_folder;

/// Runs call_sites.py with a Python that has the agent; returns what it printed.
fn run_script(mut command: Command, arguments: &[&str]) -> String {
    command.args(arguments);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

fn script() -> String {
    here().join("call_sites.py").to_str().unwrap().to_owned()
}

/// The figures in a line of `NAME N NAME N`.
fn figures(printed: &str, first: &str) -> BTreeMap<String, u64> {
    let line = printed.lines().find(|line| line.starts_with(first)).unwrap_or_else(|| panic!("{printed}"));
    let words: Vec<&str> = line.split(' ').collect();
    let pairs =
        words.chunks(2).enumerate().map(|(n, pair)| (format!("{}{n}", pair[0]), pair[1].parse().unwrap()));
    pairs.collect()
}

fn expect_all_equal(printed: &str, wanted: u64) {
    let figures = figures(printed, "checked ");
    assert!(figures["checked0"] >= wanted && figures["wrong1"] == 0 && figures["missing2"] == 0, "{printed}");
}

/// Pythons of the versions whose frames can be read: that of the lab, and others on this machine.
fn pythons() -> Vec<PathBuf> {
    let versions = ["3.10", "3.11", "3.12", "3.13"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&path)
        .flat_map(|folder| versions.map(|version| folder.join(format!("python{version}"))))
        .collect();
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| std::env::home_dir().map(|home| home.join(".pyenv")));
    let installed = root.into_iter().flat_map(|root| std::fs::read_dir(root.join("versions"))).flatten();
    let installed = installed.flatten().filter(|it| {
        versions.iter().any(|version| it.file_name().to_string_lossy().starts_with(&format!("{version}.")))
    });
    found.extend(installed.map(|it| it.path().join("bin/python")));
    let runs = |python: &PathBuf| {
        Command::new(python)
            .args(["-c", "import ctypes"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    found.retain(runs);
    found.push(python(TTNN));
    found
}

#[test]
fn frames_equal_those_of_the_interpreter() {
    for python in pythons() {
        let mut command = Command::new(&python);
        command.arg(script()).env("LD_PRELOAD", agent());
        expect_all_equal(&run_script(command, &["walk", "100000"]), 100_000);
    }
}

#[test]
fn native_frames_are_where_the_interpreter_was_called() {
    for python in pythons() {
        let mut command = Command::new(&python);
        command.arg(script()).env("LD_PRELOAD", agent());
        println!("{}", python.display());
        expect_all_equal(&run_script(command, &["mixed", "2000"]), 2000);
    }
}

#[test]
fn lines_of_allocations_equal_those_of_the_interpreter() {
    let folder = memory_folder();
    let command = tracked_command("n150", folder.path(), &[python(TTNN).to_str().unwrap(), &script()]);
    expect_all_equal(&run_script(command, &["ttnn", "100000"]), 100_000);
}

#[test]
fn very_many_lines_are_bounded_and_never_mixed_up() {
    let lines = if std::env::var_os("TTMEM_LONG").is_some() { 1_000_000 } else { 50_000 };
    let folder = memory_folder();
    let command = tracked_command("n150", folder.path(), &[python(TTNN).to_str().unwrap(), &script()]);
    let printed = run_script(command, &["flood", &lines.to_string(), exe().to_str().unwrap()]);
    let figures = figures(&printed, "named ");
    assert!(figures["named0"] >= 14, "{printed}");
    // Of most lines, the frame and the call site have no space.
    assert!(figures["left_out1"] > lines && figures["left_out1"] <= 2 * lines, "{printed}");
    assert!(figures["grown2"] < 32 << 20, "{printed}");
}

fn expect_named_operations(version: &str) {
    let folder = memory_folder();
    let command = tracked_command("n150", folder.path(), &[python(version).to_str().unwrap(), &script()]);
    let printed = run_script(command, &["ops", exe().to_str().unwrap()]);
    let figures = figures(&printed, "outputs ");
    assert!(figures["outputs0"] >= 75 && figures["named1"] * 100 >= figures["outputs0"] * 95, "{printed}");
    assert!(figures["programs2"] >= 75 && figures["named3"] == figures["programs2"], "{printed}");
}

#[test]
fn operations_have_the_names_that_the_program_calls() {
    expect_named_operations(TTNN);
}

#[test]
fn operations_of_the_older_runtime_have_their_names() {
    expect_named_operations(OLDER);
}

/// The lines of six_layers.py that are marked with a name.
fn marked_lines() -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(here().join("six_layers.py")).unwrap();
    let lines =
        (1..).zip(text.lines()).filter_map(|(n, line)| Some((line.split_once("# site: ")?.1.to_owned(), n)));
    lines.collect()
}

/// Buffers of a dump.
fn buffers(output: &Output) -> Vec<Allocation> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump: Dump = serde_json::from_slice(&output.stdout).unwrap();
    dump.allocations.into_iter().filter(|it| !it.space.is_program()).collect()
}

/// Number and allocated bytes of the buffers that each marked line allocated.
fn by_name(buffers: &[Allocation]) -> BTreeMap<String, (u64, u64)> {
    let lines = marked_lines();
    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for buffer in buffers {
        let is_here = buffer.origin.file.as_ref().is_some_and(|file| file.ends_with("/six_layers.py"));
        let named = lines.iter().find(|&(_, &line)| is_here && buffer.origin.line == Some(line));
        let sum = found.entry(named.map_or("?", |(name, _)| name).to_owned()).or_default();
        *sum = (sum.0 + 1, sum.1 + buffer.allocated_bytes.unwrap());
    }
    found
}

#[test]
fn every_buffer_of_a_transformer_has_its_line() {
    const STEPS: u64 = 5;
    let folder = memory_folder();
    let mut puppet = Puppet::start_with_device("n150", folder.path(), "1, 1");
    puppet.run("import six_layers");
    let before = [puppet.number("view(d, 'DRAM')"), puppet.number("view(d, 'L1')")];
    puppet.run("m = six_layers.Model(d)");
    for _ in 0..STEPS {
        puppet.run("m.step()");
    }
    let all = buffers(&ttmem(folder.path(), &["dump", "--json"]));
    let found = by_name(&all);
    let counts: BTreeMap<&str, u64> = found.iter().map(|(name, sum)| (name.as_str(), sum.0)).collect();
    let expected =
        [("activation", 6), ("keys", 6), ("leak", STEPS), ("token", 1), ("values", 6), ("weight", 24)];
    let without: BTreeMap<&str, u64> =
        counts.iter().filter(|(name, _)| **name != "?").map(|(n, c)| (*n, *c)).collect();
    assert_eq!(without, BTreeMap::from(expected), "{counts:?}");
    // A reshape keeps a tensor of its own in the program cache; all else that has another line has no tensor.
    let is_elsewhere = |it: &&Allocation| by_name(std::slice::from_ref(it)).contains_key("?");
    let others = all.iter().filter(|it| it.origin.tensor.is_some()).filter(is_elsewhere);
    let ops: Vec<&str> = others.filter_map(|it| it.origin.op.as_deref()).collect();
    assert!(ops.iter().all(|op| *op == "ttnn.reshape"), "{ops:?}");
    // To the byte: what the runtime's allocator has, over all lines.
    for (space, name, before) in [(Space::Dram, "DRAM", before[0]), (Space::L1, "L1", before[1])] {
        let sum: u64 = all.iter().filter(|it| it.space == space).map(|it| it.allocated_bytes.unwrap()).sum();
        assert_eq!(sum, puppet.number(&format!("view(d, '{name}')")), "{name}, before: {before}");
    }
    let output = ttmem(folder.path(), &["--json", "--sites"]);
    let seen: Snapshot = ttmem_testkit::schema::snapshot(&output.stdout);
    // Nothing is wrong with this model so far: one leaked buffer in each of few steps is no finding without marks.
    assert_eq!(seen.findings, [], "a healthy run has no findings");
    let sites = seen.sites.unwrap();
    for (space, name) in [(Space::Dram, "DRAM"), (Space::L1, "L1")] {
        let sum: u64 = sites.iter().filter(|it| it.space == space).map(|it| it.used_bytes).sum();
        assert_eq!(sum, puppet.number(&format!("view(d, '{name}')")), "{sites:#?}");
    }
    let grouped = ttmem(folder.path(), &["dump", "--group-by", "site"]);
    let grouped = String::from_utf8_lossy(&grouped.stdout).into_owned();
    for (name, op) in
        [("weight", "ttnn.zeros"), ("leak", "ttnn.add"), ("activation", "ttnn.to_memory_config")]
    {
        let wanted = format!("{op}, six_layers.py:{} (", marked_lines()[name]);
        assert!(grouped.contains(&wanted), "{wanted} is not in\n{grouped}");
    }
    // Flames have every byte, too, also of what was allocated since a mark.
    let flame = |option: &[&str]| {
        let output = ttmem(folder.path(), &[&["flame"], option].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let sum_of = |flame: &str, space: &str| -> u64 {
        let lines = flame.lines().filter(|line| line.starts_with(space));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let names = [("DRAM;", "DRAM"), ("L1;", "L1")];
    let before = names.map(|(_, name)| puppet.number(&format!("view(d, '{name}')")));
    for ((space, _), bytes) in names.into_iter().zip(before) {
        assert_eq!(sum_of(&flame(&[]), space), bytes, "{space}");
    }
    puppet.run("import ctypes\nctypes.CDLL(None).ttmem_agent_mark(b'step', 4, None)");
    puppet.run("kept = ttnn.zeros((1, 1, 64, 256), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=d)");
    let kept = puppet.number("view(d, 'DRAM')") - before[0];
    assert!(kept >= 64 * 256 * 2, "{kept}");
    assert_eq!(sum_of(&flame(&["--since-mark"]), "DRAM;"), kept);
    puppet.run("del kept");
    // The dashboard's groups by call site, and then by operation.
    let mut screen = super::dashboard::top(folder.path());
    screen.send("5");
    screen.wait_for_text("Buffers: ");
    screen.send("ggg");
    screen.wait_for_text(&format!("six_layers.py:{} (weight)", marked_lines()["weight"]));
    screen.wait_for_text(&format!("six_layers.py:{} (step)", marked_lines()["leak"]));
    screen.send("g");
    screen.wait_for_text("Buffers by operation");
    screen.wait_for_text("ttnn.to_memory_config");
    screen.send("q");
    screen.expect_clean_exit();
    let leak = all.iter().find(|it| it.origin.line == Some(marked_lines()["leak"])).unwrap();
    assert_eq!(leak.site_name.as_deref(), Some(&*format!("six_layers.py:{} (step)", marked_lines()["leak"])));
    assert_eq!(leak.origin.op.as_deref(), Some("ttnn.add"));
    assert_eq!(leak.origin.tensor.as_deref(), Some("bfloat16 [1, 1, 32, 256] tile"));

    // A process that is killed leaves a crash segment that says the same.
    puppet.kill();
    let mut files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let segment = files.find(|path| path.is_file()).unwrap();
    let mut dump = Command::new(exe());
    let crashed = buffers(&dump.args(["dump", "--json", "--segment"]).arg(segment).output().unwrap());
    assert_eq!(by_name(&crashed), found);
}
