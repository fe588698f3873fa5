//! Words that are ruled out do not appear in anything a user reads: docs, headers, help, manual, screens, messages.
//!
//! Messages are found in the sources as string literals, so that each one is checked, however rare it is. Exceptions (lines
//! of the old server, quotations) are in `words.allow`.

use crate::pages::{Fixture, files, repository};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Whole words, in any case. A blank matches any separator of words in prose and comments, an underscore only itself.
const RULED_OUT: [&str; 24] = [
    "nobody",
    "whoever",
    "whomever",
    "in vain",
    "of late",
    "is to be seen",
    "to be seen",
    "looks",
    "tells",
    "told",
    "came",
    "odd",
    "oddity",
    "oddities",
    "black box",
    "black boxes",
    "black_box",
    "black_boxes",
    "happening",
    "happenings",
    "hears",
    "believes",
    "kernel ring",
    "kernel_ring",
];

/// Crates for development only.
const DEVELOPMENT: [&str; 2] = ["ttmem-testkit", "ttmem-loom"];

/// Characters shown on each side of a hit.
const CONTEXT_CHARS: usize = 80;

/// A text that users read.
struct Text {
    /// A file, relative to the repository, or a command.
    place: String,
    /// Its first line.
    line: usize,
    text: String,
}

/// An exception: a place, and a phrase that is allowed there.
struct Exception {
    place: String,
    phrase: String,
    used: bool,
}

fn read_exceptions() -> Vec<Exception> {
    let text = include_str!("words.allow");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [place, phrase, reason] = parts[..] else { panic!("words.allow: not three parts: {line}") };
        assert!(!reason.is_empty(), "words.allow: no reason: {line}");
        Exception { place: place.to_owned(), phrase: phrase.to_owned(), used: false }
    };
    lines.map(parse).collect()
}

/// Finds the words in a text that are ruled out.
fn find_ruled_out(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<(Range<usize>, String)> = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(begin)) => {
                words.push((begin..at, text[begin..at].to_lowercase()));
                start = None;
            }
            _ => {}
        }
    }
    let mut hits = Vec::new();
    for first in 0..words.len() {
        let matches = |phrase: &&&str| {
            let mut separator = ' ';
            let mut parts = phrase.split_inclusive([' ', '_']).enumerate();
            parts.all(|(n, part)| {
                let Some((range, word)) = words.get(first + n) else { return false };
                let between = if n == 0 { "" } else { &text[words[first + n - 1].0.end..range.start] };
                let is_separator = |c: char| {
                    c == separator || separator == ' ' && (c.is_whitespace() || "*/#-\\".contains(c))
                };
                let is_match = between.chars().all(is_separator) && word == part.trim_end_matches([' ', '_']);
                separator = if part.ends_with('_') { '_' } else { ' ' };
                is_match
            })
        };
        // The longest match, so that a phrase counts once.
        if let Some(phrase) = RULED_OUT.iter().filter(matches).max_by_key(|phrase| phrase.len()) {
            let last = first + phrase.split([' ', '_']).count() - 1;
            hits.push(words[first].0.start..words[last].0.end);
        }
    }
    hits.dedup_by(|next, before| next.start < before.end);
    hits
}

/// Hits that no exception covers, as `place:line: word: the line`.
fn check(texts: &[Text], exceptions: &mut [Exception]) -> Vec<String> {
    let mut found = Vec::new();
    for Text { place, line, text } in texts {
        for hit in find_ruled_out(text) {
            let covers = |exception: &&mut Exception| {
                *place == exception.place
                    && text
                        .match_indices(&exception.phrase)
                        .any(|(at, phrase)| at <= hit.start && hit.end <= at + phrase.len())
            };
            if let Some(exception) = exceptions.iter_mut().find(covers) {
                exception.used = true;
                continue;
            }
            let number = line + text[..hit.start].matches('\n').count();
            let begin = text[..hit.start].rfind('\n').map_or(0, |at| at + 1);
            let end = text[hit.end..].find('\n').map_or(text.len(), |at| hit.end + at);
            // A line of JSON is long, so only the context is shown.
            let before: Vec<char> = text[begin..hit.start].chars().rev().take(CONTEXT_CHARS).collect();
            let after: String = text[hit.end..end].chars().take(CONTEXT_CHARS).collect();
            let around = format!("{}{}{after}", before.iter().rev().collect::<String>(), &text[hit.clone()]);
            found.push(format!("{place}:{number}: {:?}: {}", &text[hit], around.trim()));
        }
    }
    found
}

/// Reads whole files: docs, packaging, headers, the Python package, screens.
fn read_files() -> Vec<Text> {
    let root = repository();
    let mut paths: Vec<_> = [
        "README.md",
        "PROTOCOL.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "ARCHITECTURE.md",
        "python/README.md",
    ]
    .iter()
    .chain(&["python/pyproject.toml"])
    .map(|name| root.join(name))
    .collect();
    for (folder, extensions) in [
        ("docs", &["md", "json", "svg"][..]),
        ("packaging", &["in", "symbols"]),
        ("include", &["h", "hpp"]),
        ("python/package", &["py", "pyi"]),
        ("crates/ttmem-tui/tests/it/snapshots", &["snap"]),
    ] {
        let found = files(&root.join(folder), extensions);
        assert!(!found.is_empty(), "nothing in {folder}");
        paths.extend(found);
    }
    let read = |path: &std::path::PathBuf| Text {
        place: relative(&root, path),
        line: 1,
        text: fs::read_to_string(path).unwrap(),
    };
    paths.iter().map(read).collect()
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap().display().to_string()
}

/// Runs the program: help, manual and completions of each command, and its output for a machine.
fn run_program() -> Vec<Text> {
    let fixture = Fixture::start();
    let run = |args: &[&str]| {
        let output = fixture.ttmem(args);
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        Text { place: format!("ttmem {}", args.join(" ")).trim_end().to_owned(), line: 1, text }
    };
    let help = run(&["--help"]);
    let commands = help.text.split("Commands:\n").nth(1).expect("help lists commands");
    let commands: Vec<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()))
        .collect();
    assert!(commands.contains(&"doctor") && commands.len() >= 10, "{commands:?}");
    let mut texts = vec![run(&["-h"]), run(&["man"])];
    for &command in commands.iter().filter(|command| **command != "help") {
        texts.extend([run(&[command, "--help"]), run(&["man", command])]);
    }
    for shell in ["bash", "zsh", "fish"] {
        texts.push(run(&["completions", shell]));
    }
    for args in [
        &[][..],
        &["-v"],
        &["--json", "--events", "--programs"],
        &["--query", "help"],
        &["dump"],
        &["dump", "--programs"],
        &["dump", "--cores"],
        &["dump", "--cores", "1,1", "-d", "0"],
        &["check", "--wait", "0"],
        &["doctor"],
        &["doctor", "--local"],
    ] {
        texts.push(run(args));
    }
    texts.push(help);
    texts
}

/// Reads the string literals of the product's sources: messages, labels, names.
fn read_sources() -> Vec<Text> {
    let root = repository();
    let mut folders = vec![root.join("python/src")];
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let entry = entry.unwrap();
        if !DEVELOPMENT.iter().any(|name| entry.file_name() == *name) {
            folders.push(entry.path().join("src"));
        }
    }
    folders.sort();
    let mut texts = Vec::new();
    for path in folders.iter().flat_map(|folder| files(folder, &["rs"])) {
        let is_test =
            path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
        if !is_test {
            texts.extend(literals(&relative(&root, &path), &fs::read_to_string(&path).unwrap()));
        }
    }
    texts
}

/// String literals of a Rust file, without comments and tests. Doc comments that users read are in the generated help, header
/// and schema.
fn literals(place: &str, source: &str) -> Vec<Text> {
    let stream: TokenStream = source.parse().unwrap_or_else(|e| panic!("{place}: {e}"));
    let mut found = Vec::new();
    collect(place, stream, &mut found);
    found
}

fn collect(place: &str, stream: TokenStream, found: &mut Vec<Text>) {
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                tokens.next_if(|next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'));
                let Some(TokenTree::Group(attribute)) = tokens.next_if(
                    |next| matches!(next, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket),
                ) else {
                    continue;
                };
                let text: String = attribute.stream().to_string().split_whitespace().collect();
                if text == "test" || text == "cfg(test)" {
                    // Skip the item that follows, up to its braces or semicolon.
                    tokens.find(|token| match token {
                        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                        TokenTree::Punct(punct) => punct.as_char() == ';',
                        _ => false,
                    });
                } else if !["doc=", "allow(", "expect("].iter().any(|begin| text.starts_with(begin)) {
                    collect(place, attribute.stream(), found);
                }
            }
            TokenTree::Group(group) => collect(place, group.stream(), found),
            TokenTree::Literal(literal) => {
                if let Some(text) = contents(&literal.to_string()) {
                    found.push(Text { place: place.to_owned(), line: literal.span().start().line, text });
                }
            }
            _ => {}
        }
    }
}

/// The content of a string literal of any kind. Escapes and the names in format strings become blanks.
fn contents(literal: &str) -> Option<String> {
    let start = literal.find('"').filter(|start| literal[..*start].chars().all(|c| "brc#".contains(c)))?;
    let text = without_names(&literal[start + 1..literal.rfind('"')?]);
    if literal[..start].contains('r') {
        return Some(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(escaped @ ('"' | '\'' | '\\' | '\n')) => plain.push(escaped),
                // A blank, so that the letter does not become part of a word.
                Some(_) => plain.push(' '),
                None => {}
            },
            c => plain.push(c),
        }
    }
    Some(plain)
}

/// A format string without the identifiers in its braces.
fn without_names(text: &str) -> String {
    let mut within = false;
    let blank = |c: char| {
        within = c == '{' || within && (c.is_alphanumeric() || "_.:#?<>^$+".contains(c));
        if within && c != '{' { ' ' } else { c }
    };
    text.chars().map(blank).collect()
}

#[test]
fn no_ruled_out_words() {
    let mut exceptions = read_exceptions();
    let texts: Vec<Text> = [read_files(), read_sources(), run_program()].into_iter().flatten().collect();
    assert!(texts.len() > 1000, "only {} texts were found", texts.len());
    let found = check(&texts, &mut exceptions);
    let unused: Vec<&str> = exceptions.iter().filter(|it| !it.used).map(|it| it.phrase.as_str()).collect();
    let mut report = String::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for hit in &found {
        let _ = writeln!(report, "{hit}");
        let place = hit.split(':').next().unwrap();
        let depth = if place.starts_with("crates/") { 3 } else { 1 };
        let area = place.split('/').take(depth).collect::<Vec<_>>().join("/");
        *counts.entry(area).or_default() += 1;
    }
    for (area, count) in counts {
        let _ = writeln!(report, "{count:>5} in {area}");
    }
    assert!(found.is_empty(), "{} words that are ruled out:\n{report}", found.len());
    assert!(unused.is_empty(), "words.allow has exceptions that nothing needs: {unused:?}");
}

#[test]
fn only_whole_words_are_found() {
    let words =
        |text: &str| find_ruled_out(text).into_iter().map(|hit| text[hit].to_owned()).collect::<Vec<_>>();
    assert_eq!(
        words("Nobody's chip; it came\n# in\n# vain, process_came"),
        ["Nobody", "came", "in\n# vain", "came"]
    );
    assert_eq!(words("the address is to be seen; black_boxes"), ["is to be seen", "black_boxes"]);
    assert_eq!(
        words("oddly added, cameo, latest of later, in, vain, look, 0x0dd, black_boxing"),
        Vec::<String>::new()
    );
}

#[test]
fn only_strings_outside_tests_are_found() {
    let source = [
        "",
        "//! odd",
        "/// told",
        "#[command(after_help = \"tells\")]",
        "fn shown() { println!(\"first\\n\\",
        "    {} came {told:>3}\", r#\"odd \"quoted\" one\"#); let c = 'o'; let c = c\"told\"; }",
        "#[expect(clippy::odd, reason = \"odd\")]",
        "#[cfg(test)]",
        "mod tests { const ODD: &str = \"odd\"; }",
        "#[test]",
        "fn odd() { panic!(\"odd\") }",
        "const AFTER: &str = \"looks\";",
    ];
    let found = literals("file.rs", &source.join("\n"));
    let hits = check(&found, &mut []);
    let hits: Vec<&str> = hits.iter().map(|hit| hit.split(": ").next().unwrap()).collect();
    assert_eq!(hits, ["file.rs:4", "file.rs:6", "file.rs:6", "file.rs:6", "file.rs:12"]);
}

#[test]
fn finding_texts_are_among_the_strings() {
    let texts = read_sources();
    for fault in ttmem_types::Fault::ALL {
        for text in [fault.text(), fault.description(), fault.name()] {
            assert!(texts.iter().any(|found| found.text == text), "{text}");
        }
    }
}

#[test]
fn exceptions_cover_their_phrase_only() {
    let text = |text: &str| Text { place: "a.md".to_owned(), line: 1, text: text.to_owned() };
    let mut exceptions =
        [Exception { place: "a.md".to_owned(), phrase: "it came back".to_owned(), used: false }];
    assert_eq!(check(&[text("then it came back")], &mut exceptions), Vec::<String>::new());
    assert!(exceptions[0].used);
    assert_eq!(check(&[text("then it came\nback")], &mut exceptions).len(), 1);
    let elsewhere = Text { place: "b.md".to_owned(), ..text("then it came back") };
    assert_eq!(check(&[elsewhere], &mut exceptions), ["b.md:1: \"came\": then it came back"]);
}
