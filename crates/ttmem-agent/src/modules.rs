//! The loaded programs and libraries, found by an address without the loader's lock.
#![allow(unsafe_code)]

use crate::unwind;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use ttmem_wire::segment::definition::MAX_BUILD_ID;

/// The C library's answer about an address.
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link: *const Link,
    unwind_table: usize,
    reserved: [u64; 7],
}

/// The public part of what the loader knows of a library.
#[repr(C)]
struct Link {
    bias: usize,
    path: *const c_char,
}

/// Looks up an address. It takes no lock and may be called anywhere. The C library has it since 2.35.
type FindObject = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

/// What is looked up once.
struct Lookup {
    find: FindObject,
    /// The path of the program, which the loader does not know.
    program: String,
    /// The agent and the interpreter, whose frames are left out.
    skipped: [Range<usize>; 2],
}

static LOOKUP: OnceLock<Option<Box<Lookup>>> = OnceLock::new();

/// Changes when a library was unloaded: others may be at its addresses.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Looks up what finds modules; `interpreter` is an address in the interpreter. This takes the loader's lock. Returns whether modules
/// can be found.
pub(crate) fn configure(interpreter: Option<usize>) -> bool {
    let lookup = || {
        // SAFETY: a lookup has no effect.
        let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        if find.is_null() {
            return None;
        }
        // SAFETY: this is how the C library declares it.
        let find = unsafe { core::mem::transmute::<*mut c_void, FindObject>(find) };
        let range_of = |address| find_with(find, address).map_or(0..0, |module| module.range);
        let own = configure as fn(Option<usize>) -> bool as usize;
        let skipped = [range_of(own), interpreter.map_or(0..0, range_of)];
        let program = std::fs::read_link("/proc/self/exe").map(OsString::from).unwrap_or_default();
        let program = String::from_utf8_lossy(&program.into_vec()).into_owned();
        Some(Box::new(Lookup { find, program, skipped }))
    };
    LOOKUP.get_or_init(lookup).is_some()
}

#[inline]
fn lookup() -> Option<&'static Lookup> {
    LOOKUP.get()?.as_deref()
}

/// The addresses of modules whose frames are left out.
#[inline]
pub(crate) fn skipped() -> Option<&'static [Range<usize>; 2]> {
    Some(&lookup()?.skipped)
}

/// A number that changes when addresses may have got another meaning.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Notices libraries that were unloaded since the last call. This takes the loader's lock, so only the agent's own thread calls it.
pub(crate) fn notice_unloaded() {
    unsafe extern "C" fn read_count(info: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: the C library passes what it documents, and `count` is the pointer passed below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_subs };
        1
    }
    if lookup().is_none() {
        return;
    }
    let mut count = 0_u64;
    // SAFETY: the function is called before this returns.
    unsafe { libc::dl_iterate_phdr(Some(read_count), (&raw mut count).cast()) };
    if GENERATION.swap(count, Ordering::Relaxed) != count {
        unwind::forget_rules();
    }
}

/// A program or library.
pub(crate) struct Module {
    range: Range<usize>,
    /// What is added to the addresses of its file.
    bias: usize,
    /// The address of its `.eh_frame_hdr`.
    pub(crate) unwind_table: usize,
    path: *const c_char,
}

impl Module {
    /// The module that has an address.
    pub(crate) fn find(address: usize) -> Option<Self> {
        find_with(lookup()?.find, address)
    }

    /// An address as its file has it.
    pub(crate) fn offset(&self, address: usize) -> u64 {
        address.wrapping_sub(self.bias) as u64
    }

    pub(crate) fn path(&self) -> &str {
        // SAFETY: null, or a text that exists while the module is loaded.
        let path = (!self.path.is_null()).then(|| unsafe { CStr::from_ptr(self.path) });
        let path = path.and_then(|path| path.to_str().ok()).unwrap_or_default();
        if path.is_empty() { lookup().map_or("", |lookup| &lookup.program) } else { path }
    }

    /// The last part of the path.
    pub(crate) fn file_name(&self) -> &str {
        let path = self.path();
        path.rsplit('/').next().unwrap_or(path)
    }

    /// The bytes from an address to the end of its segment.
    pub(crate) fn bytes_from(&self, from: usize) -> &'static [u8] {
        let segments = self.headers().iter().filter(|it| it.p_type == libc::PT_LOAD);
        let mut ranges = segments.filter_map(|it| self.mapped(it));
        let Some(segment) = ranges.find(|range| range.contains(&from)) else { return &[] };
        // SAFETY: a part of a segment of a loaded module, which is read while the module is loaded: a function of it is running.
        unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(from), segment.end - from) }
    }

    /// The build id; empty: it has none.
    pub(crate) fn build_id(&self) -> &'static [u8] {
        let mut notes = self.headers().iter().filter(|it| it.p_type == libc::PT_NOTE);
        let found = notes.find_map(|it| {
            let range = self.mapped(it)?;
            find_build_id(self.bytes_from(range.start).get(..range.len())?)
        });
        found.unwrap_or_default()
    }

    /// The addresses of a segment in memory, as far as the module has them. Segments are mapped in whole pages.
    fn mapped(&self, header: &libc::Elf64_Phdr) -> Option<Range<usize>> {
        let start = self.bias.wrapping_add(header.p_vaddr as usize);
        let end = start.checked_add(header.p_filesz as usize)?;
        (self.range.contains(&start) && end <= self.range.end && header.p_flags & libc::PF_R != 0)
            .then_some(start..end)
    }

    /// The program headers, which are in the first page of nearly all modules.
    fn headers(&self) -> &'static [libc::Elf64_Phdr] {
        const PAGE: usize = 4096;
        if self.range.len() < PAGE {
            return &[];
        }
        // SAFETY: the first page of a module is mapped for reading, and begins with its first segment.
        let header = unsafe { &*ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(self.range.start) };
        let (offset, count) = (header.e_phoff as usize, usize::from(header.e_phnum));
        let size = size_of::<libc::Elf64_Phdr>();
        let is_plausible = header.e_ident.starts_with(b"\x7fELF")
            && usize::from(header.e_phentsize) == size
            && offset.is_multiple_of(8)
            && offset.checked_add(count * size).is_some_and(|end| end <= PAGE);
        if !is_plausible {
            return &[];
        }
        // SAFETY: a part of the first page.
        unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(self.range.start + offset), count) }
    }
}

fn find_with(find: FindObject, address: usize) -> Option<Module> {
    let mut found =
        Found { flags: 0, start: 0, end: 0, link: ptr::null(), unwind_table: 0, reserved: [0; 7] };
    // SAFETY: any address may be looked up.
    let is_found = unsafe { find(ptr::with_exposed_provenance(address), &raw mut found) } == 0;
    // SAFETY: null, or valid while the module is loaded.
    let link = unsafe { found.link.as_ref() }.filter(|_| is_found)?;
    let (range, unwind_table) = (found.start..found.end, found.unwind_table);
    Some(Module { range, bias: link.bias, unwind_table, path: link.path })
}

/// The build id among notes.
fn find_build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |n: usize| u32::from_le_bytes(head[n * 4..n * 4 + 4].try_into().unwrap_or_default());
        let [name, content] = [word(0), word(1)].map(|bytes| bytes as usize);
        let (name, rest) = rest.split_at_checked(name.checked_next_multiple_of(4)?)?;
        let id = rest.get(..content)?;
        if word(2) == BUILD_ID && name == b"GNU\0" {
            return Some(id).filter(|id| id.len() <= MAX_BUILD_ID);
        }
        notes = rest.get(content.checked_next_multiple_of(4)?..)?;
    }
}
