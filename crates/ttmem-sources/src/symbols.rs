//! Functions and lines of native frames, from the symbols and the debug information of their files.
//!
//! Any user may name any file, so only regular files are opened, and only if that user may read them. A file is used if it has the build
//! id that the process saw. It may be on a filesystem that hangs: a thread reads it, and is waited for only for a while.

use crate::files::{open_found, require_regular_file};
use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::sync::mpsc;
use std::time::Duration;
use ttmem_wire::mangled::{self, MAX_NAME};

/// How long a file may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// Bytes of the largest file that is read.
const MAX_FILE: u64 = 4 << 30;
/// Bytes of the largest debug information that is read.
const MAX_DEBUG_INFO: u64 = 256 << 20;
/// End of the addresses that a process can have.
const MAX_ADDRESS: u64 = 1 << 47;
/// Bytes of the longest name of a function that is shown.
const MAX_SHOWN: usize = 200;

/// A program or library, as a process defined it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Library {
    pub(crate) path: String,
    pub(crate) build_id: Vec<u8>,
    /// The user whose process defined it.
    pub(crate) uid: u32,
}

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The function; empty: unknown.
    pub(crate) function: String,
    /// The file and the line, where there is debug information.
    pub(crate) line: Option<(String, u32)>,
}

/// The file of a library did not answer in time.
#[derive(Debug)]
pub(crate) struct Hangs;

type Elf<'a> = ElfFile64<'a, object::LittleEndian, &'a ReadCache<File>>;

impl Library {
    /// Looks up addresses. What is not found, or if this is not the file that the process saw, stays unknown.
    pub(crate) fn look_up(&self, addresses: &[u64]) -> Result<Vec<Symbol>, Hangs> {
        let (sender, receiver) = mpsc::channel();
        let (library, copied) = (self.clone(), addresses.to_vec());
        let read = move || drop(sender.send(library.read_symbols(&copied)));
        let started = std::thread::Builder::new().name("symbols".to_owned()).spawn(read);
        let found = started.ok().map(|_| receiver.recv_timeout(DEADLINE));
        match found {
            Some(Err(mpsc::RecvTimeoutError::Timeout)) => Err(Hangs),
            Some(Ok(Some(symbols))) => Ok(symbols),
            _ => Ok(vec![Symbol::default(); addresses.len()]),
        }
    }

    fn read_symbols(&self, addresses: &[u64]) -> Option<Vec<Symbol>> {
        let cache = ReadCache::new(self.open()?);
        let file: Elf<'_> = ElfFile64::parse(&cache).ok()?;
        if self.build_id.is_empty() || file.build_id().ok()? != Some(&self.build_id) {
            return None;
        }
        let mut found: Vec<Symbol> = addresses.iter().map(|_| Symbol::default()).collect();
        for (symbol, function) in found.iter_mut().zip(find_functions(&file, addresses)) {
            symbol.function = function.map(readable_name).unwrap_or_default();
        }
        if let Some(context) = read_debug_info(&file) {
            // The library counts with addresses, so that they must not be at the end of what there is.
            let plausible = found.iter_mut().zip(addresses).filter(|&(_, &address)| address < MAX_ADDRESS);
            for (symbol, &address) in plausible {
                let location = context.find_location(address).ok().flatten();
                symbol.line = location.and_then(|it| Some((it.file?.to_owned(), it.line?)));
            }
        }
        Some(found)
    }

    fn open(&self) -> Option<File> {
        // Opening anything but a file may have effects.
        let handle = rustix::fs::open(&self.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&handle).ok()?;
        require_regular_file(&stat).ok()?;
        let is_readable = stat.st_uid == self.uid || self.uid == 0 || stat.st_mode & Mode::ROTH.bits() != 0;
        let is_small = u64::try_from(stat.st_size).is_ok_and(|bytes| bytes <= MAX_FILE);
        let opened = (is_readable && is_small).then(|| open_found(&handle))?.ok()?;
        Some(File::from(opened))
    }
}

/// The mangled names of the functions that have these addresses.
fn find_functions<'a>(file: &Elf<'a>, addresses: &[u64]) -> Vec<Option<&'a str>> {
    let mut order: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut names = vec![None; addresses.len()];
    let is_function =
        |it: &object::read::elf::ElfSymbol64<'a, '_, object::LittleEndian, &'a ReadCache<File>>| {
            it.kind() == SymbolKind::Text && !it.is_undefined()
        };
    for symbol in file.symbols().chain(file.dynamic_symbols()).filter(is_function) {
        let first = order.partition_point(|&(address, _)| address < symbol.address());
        let inside = |address: u64| address - symbol.address() < symbol.size();
        for &(_, n) in order[first..].iter().take_while(|&&(address, _)| inside(address)) {
            if names[n].is_none() {
                names[n] = symbol.name().ok();
            }
        }
    }
    names
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

fn read_debug_info<'a>(file: &Elf<'a>) -> Option<Context<Bytes<'a>>> {
    file.section_by_name(SectionId::DebugInfo.name())?;
    let sections = file.sections().filter(|it| it.name().is_ok_and(|name| name.starts_with(".debug_")));
    if sections.map(|it| it.size()).fold(0, u64::saturating_add) > MAX_DEBUG_INFO {
        return None;
    }
    let load = |id: SectionId| {
        let section = file.section_by_name(id.name());
        // Without the crates that decompress, a compressed section is missing.
        let section = section.filter(|it| {
            it.compressed_file_range().is_ok_and(|it| it.format == object::CompressionFormat::None)
        });
        let bytes = section.and_then(|section| section.data().ok()).unwrap_or_default();
        Ok::<_, addr2line::gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    Context::from_dwarf(Dwarf::load(load).ok()?).ok()
}

/// A function as its source names it, without parameters.
fn readable_name(symbol: &str) -> String {
    let mut name = demangle(symbol);
    if name.len() > MAX_SHOWN {
        let end = (0..=MAX_SHOWN).rev().find(|&end| name.is_char_boundary(end));
        name.truncate(end.unwrap_or(0));
        name.push('…');
    }
    name
}

fn demangle(symbol: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let demangled = cpp_demangle::Symbol::new(symbol).ok().filter(|_| symbol.starts_with("_Z"));
    if let Some(name) = demangled.and_then(|it| it.demangle_with_options(&options).ok()) {
        return name;
    }
    // Functions with constraints, such as those that dispatch operations.
    let mut room = [0; MAX_NAME];
    let name = mangled::qualified_name(symbol, &mut room);
    match mangled::device_operation(symbol) {
        Some(operation) if name != symbol => format!("{name}<{operation}>"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn names_are_readable() {
        for (symbol, name) in [
            ("main", "main"),
            ("_ZN3app5Model4loadERKSs", "app::Model::load"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN3std2io4Read11read_to_end17hb85a0f6802e14499E", "std::io::Read::read_to_end"),
            (
                "_ZN4ttnn16device_operation6detail21enqueue_mesh_workloadITkNS0_26DeviceOperationWithMeshDeviceENS0_27MeshDeviceOperationAdapterINS_4prim21MatmulDeviceOperationEEEEEvRKNT_",
                "ttnn::device_operation::detail::enqueue_mesh_workload<MatmulDeviceOperation>",
            ),
        ] {
            assert_eq!(readable_name(symbol), name);
        }
        assert_eq!(readable_name(&"é".repeat(300)).chars().count(), MAX_SHOWN / 2 + 1);
    }

    /// A program whose function `answer` is at the line that says so, and its own build id.
    fn build(folder: &std::path::Path) -> (Library, u64) {
        let (source, program) = (folder.join("answer.c"), folder.join("answer"));
        std::fs::write(&source, "__attribute__((noinline)) int answer(int n) {\n  return n * 42;  // line 2\n}\nint main(int n, char **v) { (void)v; return answer(n); }\n").unwrap();
        let built =
            Command::new("cc").args(["-g", "-Wl,--build-id"]).arg(&source).arg("-o").arg(&program).status();
        assert!(built.unwrap().success());
        let cache = ReadCache::new(File::open(&program).unwrap());
        let file: Elf<'_> = ElfFile64::parse(&cache).unwrap();
        let at = file.symbols().find(|it| it.name() == Ok("answer")).unwrap();
        let build_id = file.build_id().unwrap().unwrap().to_vec();
        let path = program.to_str().unwrap().to_owned();
        (Library { path, build_id, uid: rustix::process::getuid().as_raw() }, at.address() + at.size() - 1)
    }

    #[test]
    fn functions_and_lines_of_addresses_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (library, address) = build(folder.path());
        let found = library.look_up(&[address, u64::MAX, 1]).unwrap();
        assert_eq!(found[0].function, "answer");
        let (file, line) = found[0].line.as_ref().unwrap();
        assert!(file.ends_with("answer.c") && (2..=3).contains(line), "{file}:{line}");
        assert_eq!(found[1..], [Symbol::default(), Symbol::default()]);
        // Another file is at that path by now.
        let changed = Library { build_id: vec![1; 20], ..library.clone() };
        assert_eq!(changed.look_up(&[address]).unwrap(), [Symbol::default()]);
        let unknown = Library { build_id: Vec::new(), ..library.clone() };
        assert_eq!(unknown.look_up(&[address]).unwrap(), [Symbol::default()]);
        for path in ["/nothing", "/dev/null", "/", "/proc/self/status"] {
            let elsewhere = Library { path: path.to_owned(), ..library.clone() };
            assert_eq!(elsewhere.look_up(&[address]).unwrap(), [Symbol::default()], "{path}");
        }
    }

    #[test]
    fn files_of_others_are_not_read_for_a_user() {
        let folder = tempfile::tempdir().unwrap();
        let (library, address) = build(folder.path());
        let other = Library { uid: library.uid + 1, ..library };
        let path = rustix::path::Arg::into_c_str(other.path.as_str()).unwrap().into_owned();
        rustix::fs::chmod(path.as_c_str(), Mode::RWXU).unwrap();
        assert_eq!(other.look_up(&[address]).unwrap(), [Symbol::default()]);
        rustix::fs::chmod(path.as_c_str(), Mode::RWXU | Mode::ROTH).unwrap();
        assert_eq!(other.look_up(&[address]).unwrap()[0].function, "answer");
    }
}
