//! Source files follow the language rules: no ruled-out words in comments and identifiers, comments that stand alone, short
//! names of functions, and no `it` for a value that is used for long.
//!
//! `source_words.allow` lists exceptions.

mod it_bindings;
mod scanner;

use crate::pages::repository;
use crate::words::{RULED_OUT, find_phrases};
use scanner::{Language, scan};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words that are ruled out in comments, besides those that are ruled out in texts for users.
const IN_COMMENTS: [&str; 27] = [
    "somebody",
    "anybody",
    "whosoever",
    "tell",
    "telling",
    "hear",
    "heard",
    "believe",
    "met",
    "meet",
    "meets",
    "trouble",
    "troubles",
    "look",
    "looked",
    "looking",
    "goes on",
    "go on",
    "is said",
    "are said",
    "was said",
    "the dead",
    "mere",
    "merely",
    "thereby",
    "wherever",
    "kin",
];

/// Words that are ruled out as parts of identifiers.
const IN_IDENTIFIERS: [&str; 38] = [
    "nobody",
    "nobodys",
    "whoever",
    "anothers",
    "somebody",
    "anybody",
    "tell",
    "tells",
    "told",
    "hear",
    "hears",
    "heard",
    "meet",
    "meets",
    "met",
    "bear",
    "born",
    "odd",
    "oddity",
    "oddities",
    "settle",
    "settled",
    "settles",
    "unsettle",
    "unsettled",
    "look",
    "looks",
    "looked",
    "came",
    "happening",
    "happenings",
    "thing",
    "things",
    "trouble",
    "troubles",
    "survey",
    "loyalty",
    "dead",
];

/// Whole identifiers that are ruled out.
const IDENTIFIERS: [&str; 1] = ["Known"];

/// Beginnings of doc comments that refer to another one.
const BEGINNINGS: [&str; 4] = ["The same", "Same as", "As above", "Likewise"];

/// Longest name of a function.
const MAX_FUNCTION_NAME: usize = 60;

/// Threads that check files.
const THREADS: usize = 4;

/// Folders that are no sources, for the case that there is no git.
const NO_SOURCES: [&str; 2] = ["target", ".git"];

/// A violation of a rule.
#[derive(Debug, PartialEq)]
struct Hit {
    line: usize,
    rule: &'static str,
    /// What violates the rule: a phrase with its line of the comment, or a name.
    text: String,
}

/// Checks one file.
fn check(language: Language, source: &str) -> Vec<Hit> {
    let (comments, identifiers) = scan(language, source);
    let phrases = [&RULED_OUT[..], &IN_COMMENTS].concat();
    let mut hits = Vec::new();
    for comment in comments {
        let text = &comment.text;
        for phrase in find_phrases(text, &phrases) {
            if text[phrase.clone()].to_lowercase().starts_with("look") && is_up(&text[phrase.end..]) {
                continue;
            }
            let line = comment.line + text[..phrase.start].matches('\n').count();
            let begin = text[..phrase.start].rfind('\n').map_or(0, |at| at + 1);
            let end = text[phrase.end..].find('\n').map_or(text.len(), |at| phrase.end + at);
            hits.push(Hit { line, rule: "word in a comment", text: text[begin..end].trim().to_owned() });
        }
        let beginning = text.trim_start_matches(['/', '*', ' ', '\n']);
        if comment.is_doc && BEGINNINGS.iter().any(|words| starts_with_words(beginning, words)) {
            let text = beginning.lines().next().unwrap_or_default().trim().to_owned();
            hits.push(Hit { line: comment.line, rule: "doc comment that refers to another", text });
        }
    }
    for identifier in identifiers {
        let name = identifier.name;
        if IDENTIFIERS.contains(&name) || has_ruled_out_part(name) {
            hits.push(Hit { line: identifier.line, rule: "word in an identifier", text: name.to_owned() });
        }
        if identifier.is_function && name.len() > MAX_FUNCTION_NAME {
            hits.push(Hit { line: identifier.line, rule: "long name of a function", text: name.to_owned() });
        }
    }
    hits
}

/// Checks a file of the repository.
fn check_file(root: &Path, file: &str) -> Vec<Hit> {
    let language = Language::of(file).expect("only sources are checked");
    let source = fs::read_to_string(root.join(file)).unwrap();
    let mut hits = check(language, &source);
    if language == Language::Rust {
        hits.extend(check_bindings(&source).unwrap_or_else(|e| panic!("{file}: {e}")));
    }
    hits.sort_by_key(|hit| hit.line);
    hits
}

/// Checks the bindings of a Rust file.
fn check_bindings(source: &str) -> syn::Result<Vec<Hit>> {
    let long = it_bindings::long_bindings(source)?;
    let hit =
        |(line, used)| Hit { line, rule: "`it` that is used for long", text: format!("until line {used}") };
    Ok(long.into_iter().map(hit).collect())
}

/// Whether a text continues with "up", as in "look up".
fn is_up(rest: &str) -> bool {
    starts_with_words(rest.trim_start(), "up")
}

fn starts_with_words(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

fn has_ruled_out_part(name: &str) -> bool {
    let parts = parts(name);
    (0..parts.len()).any(|n| {
        let is_look_up = parts[n].starts_with("look") && parts.get(n + 1).is_some_and(|next| next == "up");
        IN_IDENTIFIERS.contains(&&*parts[n]) && !is_look_up
    })
}

/// The words of an identifier, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for word in name.split('_') {
        let mut before = None;
        let mut rest = word.chars().peekable();
        while let Some(c) = rest.next() {
            let is_begin = match before {
                None => true,
                Some(before) if c.is_uppercase() => {
                    !char::is_uppercase(before) || rest.peek().is_some_and(|next| next.is_lowercase())
                }
                Some(before) => c.is_numeric() != char::is_numeric(before),
            };
            if is_begin {
                parts.push(String::new());
            }
            if let Some(last) = parts.last_mut() {
                last.extend(c.to_lowercase());
            }
            before = Some(c);
        }
    }
    parts
}

/// Source files, relative to the repository: those that git tracks, or all if there is no git.
fn sources(root: &Path) -> Vec<String> {
    let git = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output();
    let mut files = match git {
        Ok(output) if output.status.success() => {
            let list = String::from_utf8(output.stdout).unwrap();
            list.split_terminator('\0').map(str::to_owned).collect()
        }
        _ => files_below(root, root),
    };
    files.retain(|file| Language::of(file).is_some() && root.join(file).exists());
    files.sort();
    files
}

fn files_below(root: &Path, folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if !path.is_dir() {
            files.push(path.strip_prefix(root).unwrap().display().to_string());
        } else if !NO_SOURCES.iter().any(|name| entry.file_name() == *name) {
            files.extend(files_below(root, &path));
        }
    }
    files
}

/// An exception: a file or `*`, and a text that may violate a rule there.
struct Exception<'a> {
    file: &'a str,
    text: &'a str,
    used: bool,
}

fn exceptions(list: &str) -> Vec<Exception<'_>> {
    let lines = list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let parse = |line| {
        let parts: Vec<&str> = str::split(line, " | ").map(str::trim).collect();
        let [file, text, reason] = parts[..] else { panic!("source_words.allow: not three parts: {line}") };
        assert!(!text.is_empty() && !reason.is_empty(), "source_words.allow: no text or no reason: {line}");
        Exception { file, text, used: false }
    };
    lines.map(parse).collect()
}

/// Whether an exception covers a hit, which is then used.
fn is_allowed(exceptions: &mut [Exception<'_>], file: &str, hit: &Hit) -> bool {
    let covers = |it: &&mut Exception<'_>| ["*", file].contains(&it.file) && hit.text.contains(it.text);
    exceptions.iter_mut().find(covers).map(|exception| exception.used = true).is_some()
}

#[test]
fn sources_follow_the_language_rules() {
    let root = repository();
    let mut exceptions = exceptions(include_str!("source_words.allow"));
    let files = sources(&root);
    assert!(files.len() > 300, "only {} files were found", files.len());
    let next = AtomicUsize::new(0);
    let check_files = || -> Vec<(&str, Hit)> {
        let files = std::iter::from_fn(|| files.get(next.fetch_add(1, Ordering::Relaxed)));
        files.flat_map(|file| check_file(&root, file).into_iter().map(|hit| (file.as_str(), hit))).collect()
    };
    let mut hits: Vec<(&str, Hit)> = std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(check_files));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    hits.retain(|(file, hit)| !is_allowed(&mut exceptions, file, hit));
    hits.sort_by_key(|(file, _)| *file);
    let mut report = String::new();
    for (file, Hit { line, rule, text }) in &hits {
        let _ = writeln!(report, "{file}:{line}: {rule}: {text}");
    }
    assert!(hits.is_empty(), "{} violations in {} files:\n{report}", hits.len(), files.len());
    let unused: Vec<&str> = exceptions.iter().filter(|it| !it.used).map(|it| it.text).collect();
    assert!(unused.is_empty(), "source_words.allow has exceptions that nothing needs: {unused:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and texts of the violations in a text.
    fn found(language: Language, source: &str) -> Vec<(usize, String)> {
        check(language, source).into_iter().map(|hit| (hit.line, hit.text)).collect()
    }

    fn lines_of_it(source: &str) -> Vec<usize> {
        check_bindings(source).unwrap().into_iter().map(|hit| hit.line).collect()
    }

    fn at(line: usize, text: &str) -> (usize, String) {
        (line, text.to_owned())
    }

    #[test]
    fn words_in_comments_are_found() {
        let rust = "\n/// What nobody\n/// said.\nfn a() {} // In\n// vain. /* nothing */\n/* Told /* twice */ it came */\n";
        let hits = ["What nobody", "In\n vain. /* nothing */", "/* Told /* twice */ it came */"];
        let hits = [at(2, hits[0]), at(4, hits[1]), at(6, hits[2]), at(6, hits[2])];
        assert_eq!(found(Language::Rust, rust), hits);
        let c = "int a; /* Looks\n * odd. */\n// It tells.\n#define B 'x' // met\n";
        let hits = [at(1, "/* Looks"), at(2, "* odd. */"), at(3, "It tells."), at(4, "met")];
        assert_eq!(found(Language::C, c), hits);
        let python = "\"\"\"Who came.\n\nWhoever.\n\"\"\"\nx = 1  # heard\ndef f():\n    'Told.'\n";
        let hits = [at(1, "Who came."), at(3, "Whoever."), at(5, "heard"), at(7, "Told.")];
        assert_eq!(found(Language::Python, python), hits);
    }

    #[test]
    fn strings_and_standard_words_are_not_comments() {
        let rust = r###"fn a<'a>(b: &'a str) -> char { // Looks up, looking up, a lookup.
            let c = ("// nobody \" told", r##"/* "# odd */"##, b"// met", c"told", '"', '\'', '\\', 'x');
            '/' } // fine"###;
        assert_eq!(found(Language::Rust, rust), []);
        let c = "auto a = R\"x(// told \")\" /* met */)x\"; int b = 200'000; char c = '\"'; // fine\n";
        assert_eq!(found(Language::C, c), []);
        let python =
            "x = '''# told\n'''\nf('# odd', \"\"\"\nmet\n\"\"\")\nf(\n  'told'\n)\ny = f\"{x} told\"\n";
        assert_eq!(found(Language::Python, python), []);
    }

    #[test]
    fn words_in_identifiers_are_found() {
        let names = "is_nobodys tellAll HTTPTold Known settle2 look_at ttmem_agent_met BORN".split(' ');
        for name in names {
            assert_eq!(found(Language::Rust, &format!("let {name} = 1;")), [at(1, name)]);
            assert_eq!(found(Language::C, &format!("int {name};")), [at(1, name)]);
            assert_eq!(found(Language::Python, &format!("{name} = 1")), [at(1, name)]);
        }
        let fine = "fn look_up(metal: Unknown, oddly: KnownName, nothing: Deadline) { lookup(telling) }";
        assert_eq!(found(Language::Rust, fine), []);
    }

    #[test]
    fn identifiers_are_divided_into_words() {
        assert_eq!(parts("Told_by2HTTPServers__x"), ["told", "by", "2", "http", "servers", "x"]);
        assert_eq!(parts("look_up"), ["look", "up"]);
        assert_eq!(parts("_"), [""; 0]);
    }

    #[test]
    fn doc_comments_must_stand_alone() {
        let rust = "/// The same.\nfn a() {}\n/// Reads.\n/// The same.\nfn b() {}\n/** Same as `a`. */\n// The same.\n";
        assert_eq!(found(Language::Rust, rust), [at(1, "The same."), at(6, "Same as `a`. */")]);
        assert_eq!(found(Language::Rust, "//! As above, below.\n"), [at(1, "As above, below.")]);
        assert_eq!(found(Language::C, "// Likewise.\nint a; // The same.\n"), [at(1, "Likewise.")]);
        assert_eq!(found(Language::Python, "def f():\n    \"\"\"The same.\"\"\"\n"), [at(2, "The same.")]);
        assert_eq!(found(Language::Rust, "/// The sameness of things.\n"), []);
    }

    #[test]
    fn long_names_of_functions_are_found() {
        let (longest, long) = ("x".repeat(60), "x".repeat(61));
        for (language, before, after) in [
            (Language::Rust, "fn ", "() {}"),
            (Language::C, "int ", " (void);"),
            (Language::Python, "def ", "(): ..."),
        ] {
            assert_eq!(found(language, &format!("{before}{longest}{after}")), []);
            assert_eq!(found(language, &format!("{before}{long}{after}")), [at(1, &long)]);
        }
        assert_eq!(found(Language::Rust, &format!("const {long}: u32 = 1;")), []);
    }

    #[test]
    fn long_uses_of_it_are_found() {
        let body = |last: &str| format!("fn a() {{\n let it = 1;\n\n\n {last};\n {last};\n}}");
        for last in ["it.b()", "b(&it)", "b!(it)", "b!(\"{it:>3}\")", "b!(x => it)", "B { it }", "|c| it"] {
            assert_eq!(lines_of_it(&body(last)), [2], "{last}");
        }
        for last in
            ["b(|it| it.c)", "b!(|it| it.c)", "c.it()", "b::it", "b!(\"it\")", "matches!(c, D(it) if it)"]
        {
            assert_eq!(lines_of_it(&body(last)), [0; 0], "{last}");
        }
        assert_eq!(lines_of_it("fn a() {\n let it = 1;\n\n\n it;\n}"), [0; 0]);
    }

    #[test]
    fn bindings_end_with_their_scope() {
        let uses = "\n\n\n\n it;\n";
        for binding in [
            format!("for it in b {{{uses}}}"),
            format!("if let Some(it) = b {{{uses}}}"),
            format!("while let Some(it) = b {{{uses}}}"),
            format!("match b {{ it => {{{uses}}} }}"),
            format!("let Some(it) = b else {{ return }};{uses}"),
            format!("b(|(_, it)| {{{uses}}});"),
        ] {
            assert_eq!(lines_of_it(&format!("fn a() {{ {binding} }}")), [1], "{binding}");
        }
        assert_eq!(lines_of_it(&format!("fn a(it: u8) {{{uses}}}")), [1]);
        for binding in [
            format!("for it in b {{ it }}{uses}"),
            format!("if let Some(it) = b {{ it }} else {{{uses}}}"),
            format!("let it = {{{uses}}};"),
            format!("{{ let it = 1; }}{uses}"),
            format!("match b {{ it => it, _ => {{{uses}}} }}"),
            "let it = 1;\n let it = it;\n let it = it;\n let it = it;\n let it = it;\n it;".to_owned(),
        ] {
            assert_eq!(lines_of_it(&format!("fn a() {{ {binding} }}")), [0; 0], "{binding}");
        }
        assert_eq!(lines_of_it("macro_rules! a { ($it:expr) => { let it =\n\n\n\n it; } }"), [0; 0]);
    }

    #[test]
    fn exceptions_cover_their_file_and_text() {
        let hit = |text: &str| Hit { line: 1, rule: "", text: text.to_owned() };
        let mut list = exceptions("# comment\n\n* | dead_code | a lint\na.rs | odd number | arithmetic\n");
        assert!(is_allowed(&mut list, "b.rs", &hit("dead_code")));
        assert!(!is_allowed(&mut list, "b.rs", &hit("an odd number")));
        assert!(!list[1].used);
        assert!(is_allowed(&mut list, "a.rs", &hit("an odd number")));
        assert!(list[1].used && !is_allowed(&mut list, "a.rs", &hit("odd")));
    }

    #[test]
    fn sources_are_found_without_git() {
        let root = repository();
        let all = files_below(&root, &root);
        for file in sources(&root) {
            assert!(all.contains(&file), "{file}");
        }
        assert!(all.iter().all(|file| !file.contains("target/debug/")));
    }
}
