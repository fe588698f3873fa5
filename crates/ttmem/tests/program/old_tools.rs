//! What the documents of the old tools describe: a table in `docs/old-tools.md` names a test for each part.

mod answers;
mod names;

use crate::pages::repository;
use crate::*;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use tempfile::TempDir;

/// Number of parts that the old documents have.
const PARTS: usize = 41;

/// A link to the program, with the name of an old tool.
struct OldTool {
    name: &'static str,
    folder: TempDir,
}

fn started_as(name: &'static str) -> OldTool {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(exe(), folder.path().join(name)).unwrap();
    OldTool { name, folder }
}

impl OldTool {
    fn command(&self) -> Command {
        let mut command = Command::new(self.folder.path().join(self.name));
        command.env_remove("NO_COLOR").env_remove("COLUMNS").env_remove("TTMEM_QUERY_SOCKET");
        command
    }
}

/// The answer to `echo "" | nc -U`.
fn dump_text(server: &Server) -> String {
    let mut person = UnixStream::connect(&server.legacy).unwrap();
    person.write_all(b"\n").unwrap();
    person.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    person.read_to_string(&mut text).unwrap();
    text
}

fn is_python(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|it| it == "py")
}

/// Whether a source has a test with this name.
fn has_test(file: &str, source: &str, name: &str) -> bool {
    let head = |line: &str, keyword: &str| {
        let rest = line.trim_start().strip_prefix(keyword).and_then(|it| it.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('('))
    };
    if is_python(file) {
        return name.starts_with("test_") && source.lines().any(|line| head(line, "def "));
    }
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| head(line, "fn ")) else { return false };
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    above.into_iter().any(|&line| line == "#[test]")
}

/// The tests in the last cell of a row, each as `FILE: NAME`.
fn missing_tests(cell: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for named in cell.split("; ") {
        let parts = named.strip_prefix('`').and_then(|it| it.strip_suffix('`')?.split_once(": "));
        let Some((file, name)) = parts else {
            missing.push(format!("{named:?} is not `FILE: NAME`"));
            continue;
        };
        let path = match file.strip_prefix("dashboard/") {
            Some(file) => repository().join("crates/ttmem-tui/tests/it").join(file),
            None if is_python(file) => repository().join(file),
            None => repository().join("crates/ttmem/tests").join(file),
        };
        let source = fs::read_to_string(path).unwrap_or_default();
        if !has_test(file, &source, name) {
            missing.push(format!("{file} has no test {name}"));
        }
    }
    missing
}

#[test]
fn every_part_of_the_old_documents_has_a_test() {
    let page = fs::read_to_string(repository().join("docs/old-tools.md")).unwrap();
    let mut wrong = Vec::new();
    let mut numbers = Vec::new();
    for row in page.lines() {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(number) = cells.first().and_then(|it| it.parse::<usize>().ok()) else { continue };
        numbers.push(number);
        let test = cells[cells.len() - 1];
        if cells.len() != 5 || cells.iter().any(|cell| cell.is_empty()) {
            wrong.push(format!("row {number} has {} cells, or an empty one", cells.len()));
        } else {
            wrong.extend(missing_tests(test).into_iter().map(|it| format!("row {number}: {it}")));
        }
    }
    assert!(wrong.is_empty(), "docs/old-tools.md: {}", wrong.join("\n"));
    assert_eq!(numbers, (1..=PARTS).collect::<Vec<_>>());
}

#[test]
fn only_functions_with_a_test_attribute_are_tests() {
    let source = "#[test]\n#[cfg(unix)]\nfn one() {}\n\nfn two() {}\n\n// Why.\n#[test]\n    fn three() {}\n";
    let found = ["one", "two", "three", "thre", "four"].map(|name| has_test("a.rs", source, name));
    assert_eq!(found, [true, false, true, false, false]);
    assert!(has_test("a.py", "def test_x():\n", "test_x") && !has_test("a.py", "def x():\n", "x"));
    assert_eq!(missing_tests("`c.rs: nothing_of_the_kind`").len(), 1);
    assert_eq!(missing_tests("none").len(), 1);
}
