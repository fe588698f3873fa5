//! Generates Rust code from the two tables, `runtime.def` and `shared.def`, whose first lines describe them and which C++
//! includes directly, and compiles the shim, the only code that calls into the runtime.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    for file in ["runtime.def", "shared.def", "shim.hpp", "shim.cpp", "shim_programs.cpp"] {
        println!("cargo:rerun-if-changed=src/{file}");
    }
    write("runtime.rs", &generate_runtime(&read("runtime.def")));
    write("exports.rs", &generate_exports(&read("runtime.def")));
    write("shared.rs", &generate_shared(&read("shared.def")));
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .files(["src/shim.cpp", "src/shim_programs.cpp"])
        .flag("-fno-rtti")
        .flag("-fvisibility=hidden")
        // Every function that the shim defines for Rust is declared by a table.
        .flag("-Wmissing-declarations")
        // Without a C++ library to catch with, exceptions must cross no frame of ours: calls through must be jumps.
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        // The C++ library is the runtime's own, looked up together with the runtime: another one, loaded into every
        // preloaded process, could keep the right one out.
        .cpp_link_stdlib(None)
        .compile("ttmem_shim");
}

/// An entry of a table: `NAME(argument, …)`.
struct Entry {
    name: String,
    arguments: Vec<String>,
}

impl Entry {
    /// The entry's arguments, of which there must be `N`.
    fn arguments<const N: usize>(&self) -> [&str; N] {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        arguments
            .try_into()
            .unwrap_or_else(|_| panic!("{}{:?}: not {N} arguments", self.name, self.arguments))
    }
}

/// The entries of a table, without comments and preprocessor lines.
fn read(file: &str) -> Vec<Entry> {
    let text = fs::read_to_string(Path::new("src").join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let code: Vec<&str> = lines.map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join(" ");
    let mut entries = Vec::new();
    let mut rest = code.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('(').unwrap_or_else(|| panic!("{file}: no entry: {rest}"));
        let end = find_closing(after).unwrap_or_else(|| panic!("{file}: {name} does not end"));
        entries.push(Entry { name: name.trim().to_owned(), arguments: split(&after[..end]) });
        rest = after[end + 1..].trim();
    }
    entries
}

/// Index of the parenthesis that closes one opened before `text`.
fn find_closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (depth == 0).then_some(at)
    })
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<String> {
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

fn write(file: &str, code: &str) {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(folder.join(file), code).unwrap_or_else(|e| panic!("{file}: {e}"));
}

/// `BUFFER_TYPE` as `BufferType`.
fn camel_case(name: &str) -> String {
    let word = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
    name.split('_').filter(|it| !it.is_empty()).map(word).collect()
}

/// The enum of calls, the symbol to look up for each, and the variables for addresses of the C++ library's functions.
fn generate_runtime(table: &[Entry]) -> String {
    let (mut names, mut calls, mut variables, mut cxx) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for entry in table {
        let (call, need, symbol) = match entry.name.as_str() {
            "HOOK" => {
                let [call, need, _, _, _, symbol] = entry.arguments();
                (call, need, symbol)
            }
            "CALL" => {
                let [call, need, _, _, symbol] = entry.arguments();
                (call, need, symbol)
            }
            "ADDRESS" => {
                let [call, need, symbol] = entry.arguments();
                (call, need, symbol)
            }
            "CXX" => {
                let [variable, symbol] = entry.arguments();
                variables.push(format!("static mut ttmem_cxx_{variable}: *mut c_void;"));
                cxx.push(format!("(c{symbol}, &raw mut ttmem_cxx_{variable}),"));
                continue;
            }
            "ALIAS" => continue,
            other => panic!("runtime.def: unknown kind of entry: {other}"),
        };
        let (call, need) = (camel_case(call), need.replace('(', "(Hook::"));
        names.push(format!("{call},"));
        calls.push(format!("Entry {{ call: Call::{call}, symbol: c{symbol}, need: Need::{need} }},"));
    }
    format!(
        "/// A function of the runtime: its index in `ttmem_calls`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {{
{}
}}
/// All calls, by index.
const CALLS: [Entry; {}] = [
{}
];
unsafe extern \"C\" {{
{}
}}
/// Functions of the C++ library, and the shim's variables for their addresses.
fn cxx() -> [(&'static CStr, *mut *mut c_void); {}] {{
[
{}
]
}}
",
        names.join("\n"),
        calls.len(),
        calls.join("\n"),
        variables.join("\n"),
        cxx.len(),
        cxx.join("\n")
    )
}

/// The functions that the agent exports instead of the runtime's, for `export_hooks!`.
fn generate_exports(table: &[Entry]) -> String {
    let mut lines = Vec::new();
    let mut export = |name: &str, symbol: &str, hook: &Entry| {
        let [_, _, result, function, parameters, _] = hook.arguments();
        // Pointers are passed on without being read.
        let opaque = |c: &str| if c.contains('*') { "Pointer".to_owned() } else { rust_type(c) };
        let parameters = split(inside(parameters));
        let parameters: Vec<String> =
            parameters.iter().enumerate().map(|(n, it)| format!("a{n}: {}", opaque(it))).collect();
        let result = if result == "void" { String::new() } else { format!(" -> {}", opaque(result)) };
        lines.push(format!("{name}: {symbol} => {function}({}){result};", parameters.join(", ")));
    };
    for entry in table {
        if entry.name == "HOOK" {
            let [call, _, _, _, _, symbol] = entry.arguments();
            export(&call.to_lowercase(), symbol, entry);
        } else if entry.name == "ALIAS" {
            let [call, symbol] = entry.arguments();
            let hook = table.iter().find(|it| it.name == "HOOK" && it.arguments[0] == call);
            let hook = hook.unwrap_or_else(|| panic!("runtime.def: ALIAS of {call}, which is no HOOK"));
            export(&format!("{}_alias", call.to_lowercase()), symbol, hook);
        }
    }
    format!("export_hooks! {{\n{}\n}}\n", lines.join("\n"))
}

/// Constants, declarations of what the shim defines, and checks of what Rust defines.
fn generate_shared(table: &[Entry]) -> String {
    let (mut defined, mut declared, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    for entry in table {
        match entry.name.as_str() {
            "CONSTANT" => {
                let [name, value] = entry.arguments();
                defined.push(format!("pub(crate) const {name}: u32 = {value};"));
            }
            "SINK" => {
                let [name, parameters] = entry.arguments();
                let parameters = rust_types(parameters).join(", ");
                defined.push(format!("pub(crate) type {name} = extern \"C\" fn({parameters});"));
            }
            "VARIABLE" => {
                let [kind, name] = entry.arguments();
                declared.push(format!("pub(crate) static mut {name}: {kind};"));
            }
            "SHIM" => {
                let [result, name, parameters] = entry.arguments();
                let parameters: Vec<String> =
                    rust_types(parameters).iter().map(|it| format!("_: {it}")).collect();
                let (parameters, result) = (parameters.join(", "), rust_result(result));
                declared.push(format!("pub(crate) fn {name}({parameters}){result};"));
            }
            "AGENT" => {
                let [module, result, name, parameters] = entry.arguments();
                let (parameters, result) = (rust_types(parameters).join(", "), rust_result(result));
                let function = format!("unsafe extern \"C\" fn({parameters}){result}");
                checked.push(format!("const _: {function} = crate::{module}::{name};"));
            }
            "STRUCT" => checked.push(generate_layout_check(entry, table)),
            "FIELD" | "GAP" => {}
            other => panic!("shared.def: unknown kind of entry: {other}"),
        }
    }
    let [defined, declared, checked] = [defined, declared, checked].map(|it| it.join("\n"));
    format!("{defined}\nunsafe extern \"C\" {{\n{declared}\n}}\n{checked}\n")
}

/// Code that checks that a struct has the stated size, and exactly the stated fields at the stated offsets.
fn generate_layout_check(entry: &Entry, table: &[Entry]) -> String {
    let number =
        |text: &str| text.parse::<usize>().unwrap_or_else(|_| panic!("shared.def: {text} is no number"));
    let [owner, size] = entry.arguments();
    let mut checks = vec![format!("assert!(size_of::<{owner}>() == {size});")];
    let mut fields = Vec::new();
    let mut end = 0;
    for part in table.iter().filter(|it| it.arguments[0] == owner) {
        let (offset, bytes) = match part.name.as_str() {
            "FIELD" => {
                let [_, field, offset, bytes] = part.arguments();
                checks.push(format!("assert!(core::mem::offset_of!({owner}, {field}) == {offset});"));
                checks.push(format!("assert!(bytes_of(|it: &{owner}| &it.{field}) == {bytes});"));
                fields.push(format!("{field}: _"));
                (number(offset), number(bytes))
            }
            "GAP" => {
                let [_, offset, bytes] = part.arguments();
                (number(offset), number(bytes))
            }
            _ => continue,
        };
        assert!(offset == end, "shared.def: {owner}: an entry at {offset}, the one before ends at {end}");
        end += bytes;
    }
    assert!(end == number(size), "shared.def: {owner}: the entries end at {end} of {size}");
    let (checks, fields) = (checks.join("\n"), fields.join(", "));
    format!("const _: () = {{\n{checks}\nlet _ = |it: &{owner}| {{ let {owner} {{ {fields} }} = it; }};\n}};")
}

fn rust_result(c: &str) -> String {
    if c == "void" { String::new() } else { format!(" -> {}", rust_type(c)) }
}

/// The Rust types of a list of C parameters.
fn rust_types(parameters: &str) -> Vec<String> {
    split(inside(parameters)).iter().map(|it| rust_type(it)).collect()
}

/// The text inside parentheses.
fn inside(text: &str) -> &str {
    text.strip_prefix('(')
        .and_then(|it| it.strip_suffix(')'))
        .unwrap_or_else(|| panic!("no parentheses: {text}"))
}

/// The Rust type of a C type, which a name may follow.
fn rust_type(c: &str) -> String {
    let name = |c: &str| match c {
        "Object" | "size_t" => "usize".to_owned(),
        "uint8_t" => "u8".to_owned(),
        "uint32_t" => "u32".to_owned(),
        "uint64_t" => "u64".to_owned(),
        "int" => "core::ffi::c_int".to_owned(),
        "void" => "core::ffi::c_void".to_owned(),
        // Types with one name in both languages; anything else does not compile.
        other => other.to_owned(),
    };
    if let Some((pointee, _)) = c.split_once('*') {
        return match pointee.trim().strip_prefix("const ") {
            Some(pointee) => format!("&{}", name(pointee)),
            None => format!("*mut {}", name(pointee.trim())),
        };
    }
    let words: Vec<&str> = c.split_whitespace().collect();
    match words[..] {
        ["const", kind, array] if array.ends_with("[]") => format!("*const {}", name(kind)),
        [kind] | [kind, _] => name(kind),
        _ => panic!("no type of Rust is known for {c}"),
    }
}
