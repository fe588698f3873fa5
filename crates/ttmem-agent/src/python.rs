//! The calling thread's own Python frames, read without the interpreter's lock: while a thread is inside a call into C, its frames
//! cannot change. Only loads are needed for a frame that was seen before, so no call of the interpreter, no lock, and no count of
//! references. What a code object says is read when it is first seen.
//!
//! The layouts of frames differ by version, and only those that were tried are used. Each code object is recognised by its type: any
//! other pointer ends the walk.
#![allow(unsafe_code)]

mod activations;

use activations::Activations;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use ttmem_client::agent::hash;

/// Most frames of a stack that are kept.
pub(crate) const MAX_FRAMES: usize = 64;
/// Most frames that are passed on the way to the program's own.
const MAX_WALKED: usize = 256;
/// Bytes of the longest path or name that is kept; of a longer one, the end.
pub(crate) const MAX_TEXT: usize = 1024;

/// Offsets in the interpreter's objects.
struct Layout {
    /// In the thread's state: its newest frame, or what has it.
    top: usize,
    /// In what the thread's state has at `top`: the newest frame, if the state itself does not have it.
    indirect: Option<usize>,
    /// In a frame: the frame that called it, and its code.
    back: usize,
    code: usize,
    /// In a frame: the instruction.
    instruction: usize,
    /// In code: its first instruction. Without it, a frame has an index of instructions of two bytes.
    instructions: Option<usize>,
    /// In a frame: the byte that says who owns it, and its value for frames of the interpreter itself.
    owner: Option<(usize, u8)>,
    /// In code: its first instruction that can be traced. A frame before it belongs to the interpreter itself: it calls `__init__` of an
    /// instance that is being made.
    first_traceable: Option<usize>,
    /// In a frame: its first local variable.
    first_local: usize,
    /// In code: its file and its name.
    file: usize,
    name: usize,
    /// In code: words that differ if code is freed and other code made at its address.
    guards: &'static [usize],
    /// In code: where its lines begin, its table of lines and two strings. These may differ where all of the words above are equal, as
    /// memory is reused. `None` if the words are never equal.
    contents: Option<Contents>,
    /// In an ASCII string: its characters. In another compact one, they are `wide` bytes later.
    text: usize,
    wide: usize,
    /// How an instance has its attributes.
    attributes: Attributes,
    /// Where the native stack has frames.
    activations: Activations,
}

/// Offsets in code of what is shown of it.
#[derive(Clone, Copy)]
struct Contents {
    first_line: usize,
    lines: usize,
    strings: [usize; 2],
}

/// Where the attributes of an instance are.
enum Attributes {
    /// In a dictionary, at the offset that the type has at this offset.
    Dictionary(usize),
    /// Before the instance: a tagged pointer to its values, or its dictionary.
    Inline(usize),
    Unknown,
}

/// In a dictionary: the values of one that shares its keys with others.
const DICTIONARY_VALUES: usize = 40;

/// Bytes in front of the contents of a string of bytes.
const BYTES_HEADER: usize = 32;

/// The hash of a string that was never looked up.
const UNKNOWN_HASH: u64 = u64::MAX;

/// Bytes that are hashed: of more, the first and the last half of them.
const MAX_HASHED: usize = 512;

/// Sums up bytes of the interpreter, so that sums of other bytes differ. It is no hash, but the products do not wait for each other.
///
/// # Safety
///
/// There are so many bytes at the address, and at least eight.
#[inline]
unsafe fn sum_bytes(at: usize, len: usize) -> u64 {
    let (mut sum, mut factor) = (len as u64, 0x9e37_79b9_7f4a_7c15_u64);
    let mut add = |word: u64| {
        factor = factor.wrapping_add(0xadd1_fd70_ccb3_fb26);
        sum = sum.wrapping_add((word ^ factor).wrapping_mul(factor));
    };
    // SAFETY: the caller's promise.
    let word = |offset: usize| unsafe { load::<u64>(at, offset) };
    if len < 8 {
        add(word(0) & ((1 << (8 * len)) - 1));
        return sum;
    }
    let (first, last) = if len <= MAX_HASHED { (len, len) } else { (MAX_HASHED / 2, len - MAX_HASHED / 2) };
    for offset in (0..first - 7).step_by(8).chain((last..len - 7).step_by(8)) {
        add(word(offset));
    }
    add(word(len - 8));
    sum
}

/// The layout of a version.
fn layout_of(minor: u32) -> Option<Layout> {
    // Since 3.12, code has a version of its own, which is never reused.
    let v12 = Layout {
        top: 56,
        indirect: Some(0),
        back: 8,
        code: 0,
        instruction: 56,
        instructions: Some(192),
        owner: Some((70, 3)),
        first_traceable: None,
        first_local: 72,
        file: 112,
        name: 128,
        guards: &[88],
        contents: None,
        text: 40,
        wide: 16,
        attributes: Attributes::Inline(24),
        activations: Activations::OwnFrames,
    };
    match minor {
        10 => Some(Layout {
            top: 24,
            indirect: None,
            back: 24,
            code: 32,
            instruction: 96,
            instructions: None,
            owner: None,
            first_traceable: None,
            first_local: 352,
            file: 104,
            name: 112,
            guards: &[120, 104, 112, 40, 48, 56],
            contents: Some(Contents { first_line: 40, lines: 120, strings: [104, 112] }),
            text: 48,
            wide: 24,
            attributes: Attributes::Dictionary(288),
            activations: Activations::Chain { newest: 48, previous: 8, outermost: None },
        }),
        11 => Some(Layout {
            indirect: Some(8),
            back: 48,
            code: 32,
            instructions: Some(184),
            owner: None,
            guards: &[136, 112, 128, 72, 24, 32],
            contents: Some(Contents { first_line: 72, lines: 136, strings: [112, 128] }),
            text: 48,
            wide: 24,
            attributes: Attributes::Unknown,
            activations: Activations::Chain { newest: 56, previous: 16, outermost: Some(68) },
            ..v12
        }),
        12 => Some(v12),
        13 => Some(Layout {
            top: 72,
            indirect: None,
            instructions: Some(200),
            first_traceable: Some(184),
            attributes: Attributes::Unknown,
            ..v12
        }),
        _ => None,
    }
}

/// The interpreter of this process.
pub(crate) struct Python {
    layout: Layout,
    current: unsafe extern "C" fn() -> usize,
    line: unsafe extern "C" fn(usize, c_int) -> c_int,
    code_type: usize,
    text_type: usize,
}

/// Code objects whose class is remembered.
const CLASSES: usize = 4096;
/// What is known of code: its fingerprint, with its class in the lowest bits. 0: nothing.
static KNOWN_CLASSES: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];

/// Whose code it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The program's own.
    Program = 1,
    /// That of ttnn, or of ttmem.
    Library = 2,
    /// What calls an operation of ttnn: its first local variable is the operation.
    Operation = 3,
}

/// A frame: its code and the position in it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frame {
    code: usize,
    position: i32,
    /// Distinguishes the code from other code, with its address.
    identity: u64,
}

impl Frame {
    /// Identifies code and position.
    pub(crate) fn key(&self) -> u64 {
        hash(self.code as u64 ^ self.identity, self.position as u64, 2)
    }
}

/// The frames from the program's innermost line outwards, at most so many.
pub(crate) struct Walk<const MOST: usize> {
    frames: [Frame; MOST],
    len: usize,
    /// The name of the operation that the program called, a string of the interpreter; 0: none.
    op: usize,
    /// Identifies frames and operation.
    pub(crate) key: u64,
}

impl<const MOST: usize> Walk<MOST> {
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames[..self.len]
    }
}

/// Reads a value of the interpreter.
///
/// # Safety
///
/// There is such a value at the address.
unsafe fn load<T: Copy>(address: usize, offset: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::with_exposed_provenance::<T>(address.wrapping_add(offset)).read_unaligned() }
}

/// Looks up a symbol of the program or of a library that all can use.
fn find_symbol(name: &CStr) -> Option<usize> {
    // SAFETY: a lookup has no effect.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then(|| found.expose_provenance())
}

/// The interpreter, if the process has one whose layout is known.
pub(crate) fn find() -> Option<&'static Python> {
    static FOUND: OnceLock<Option<Box<Python>>> = OnceLock::new();
    FOUND.get_or_init(|| look_up().map(Box::new)).as_deref()
}

fn look_up() -> Option<Python> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    let function = |name: &CStr| find_symbol(name).map(core::ptr::with_exposed_provenance::<c_void>);
    let version = function(c"Py_GetVersion")?;
    // SAFETY: this is how the interpreter declares it. It returns a text that is never freed.
    let version = unsafe { CStr::from_ptr(core::mem::transmute::<*const c_void, Version>(version)()) };
    let version = version.to_str().ok()?;
    let (major, rest) = version.split_once('.')?;
    let minor: u32 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    // Objects of debug builds and of those without a global lock have other fields.
    let is_debug = minor < 13 && find_symbol(c"_Py_NegativeRefcount").is_some();
    if major != "3" || is_debug || version.contains("free-threading") {
        return None;
    }
    let (current, line) = (function(c"PyGILState_GetThisThreadState")?, function(c"PyCode_Addr2Line")?);
    Some(Python {
        layout: layout_of(minor)?,
        // SAFETY: these are the interpreter's declarations of both.
        current: unsafe { core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> usize>(current) },
        // SAFETY: as above.
        line: unsafe {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn(usize, c_int) -> c_int>(line)
        },
        code_type: find_symbol(c"PyCode_Type")?,
        text_type: find_symbol(c"PyUnicode_Type")?,
    })
}

impl Python {
    /// The state of the calling thread, and its newest frame.
    #[inline]
    fn newest_frame(&self) -> Option<(usize, usize)> {
        let layout = &self.layout;
        // SAFETY: the interpreter's function for any thread; it only reads a variable of the thread.
        let state = unsafe { (self.current)() };
        if state == 0 {
            return None;
        }
        // SAFETY: this thread's own state, as this version lays it out.
        let frame: usize = unsafe { load(state, layout.top) };
        match layout.indirect {
            Some(_) if frame == 0 => None,
            // SAFETY: as above.
            Some(offset) => Some((state, unsafe { load(frame, offset) })),
            None => Some((state, frame)),
        }
    }

    /// An address in the code of the interpreter.
    pub(crate) fn address(&self) -> usize {
        self.line as usize
    }

    /// Walks the calling thread's frames: from the program's innermost line outwards, at most `most` of them.
    #[inline]
    pub(crate) fn walk<const MOST: usize>(&self, most: usize) -> Option<Walk<MOST>> {
        let layout = &self.layout;
        let (_, mut frame) = self.newest_frame()?;
        let mut walk = Walk { frames: [Frame::default(); MOST], len: 0, op: 0, key: 1 };
        for _ in 0..MAX_WALKED {
            if frame == 0 || walk.len >= most.min(MOST) {
                break;
            }
            // SAFETY: a frame of this thread, which exists at least until the call that is running returns.
            let is_own = |(offset, value)| unsafe { load::<u8>(frame, offset) } == value;
            if !layout.owner.is_some_and(is_own) {
                // SAFETY: as above.
                let code: usize = unsafe { load(frame, layout.code) };
                // SAFETY: a frame has an object as its code; its type follows its count of references.
                if code == 0 || !code.is_multiple_of(8) || unsafe { load::<usize>(code, 8) } != self.code_type
                {
                    break;
                }
                self.visit(frame, code, &mut walk);
            }
            // SAFETY: as above.
            frame = unsafe { load(frame, layout.back) };
        }
        walk.key = hash(walk.key, walk.len as u64, 3);
        (walk.len > 0).then_some(walk)
    }

    #[inline]
    fn visit<const MOST: usize>(&self, frame: usize, code: usize, walk: &mut Walk<MOST>) {
        let position = self.position(frame, code);
        // SAFETY: a field of a code object, as this version lays it out; it counts instructions of two bytes.
        let is_before = |offset| position < unsafe { load::<i32>(code, offset) }.wrapping_mul(2);
        if self.layout.first_traceable.is_some_and(is_before) {
            return;
        }
        if walk.len == 0 {
            match self.class_of(code) {
                Class::Program => {}
                Class::Library => return,
                Class::Operation => {
                    // The outermost one is the operation that the program called; those inside are its parts.
                    walk.op = self.operation_name(frame).unwrap_or(walk.op);
                    return;
                }
            }
            if walk.op != 0 {
                // SAFETY: a string, whose hash is there once it was used as a key; the address may be reused, but not with its hash.
                let text_hash: u64 = unsafe { load(walk.op, 24) };
                walk.key = hash(walk.op as u64, text_hash, 1);
            }
        }
        let identity = self.identity(code);
        walk.frames[walk.len] = Frame { code, position, identity };
        walk.len += 1;
        // The whole walk is hashed at its end; until then, each frame changes what follows in one step.
        let place =
            (code as u64 ^ identity).wrapping_add((position as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        walk.key = (walk.key.rotate_left(23) ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The position of a frame in its code, in bytes.
    #[inline]
    fn position(&self, frame: usize, code: usize) -> i32 {
        let layout = &self.layout;
        match layout.instructions {
            // SAFETY: a frame of this thread, as this version lays it out.
            Some(first) => unsafe { load::<usize>(frame, layout.instruction) }
                .wrapping_sub(code.wrapping_add(first)) as i32,
            // SAFETY: as above.
            None => unsafe { load::<i32>(frame, layout.instruction) }.wrapping_mul(2),
        }
    }

    /// What usually distinguishes code from other code that was at its address before.
    #[inline]
    fn fingerprint(&self, code: usize) -> u64 {
        let words = self.layout.guards.iter();
        // SAFETY: the fields of a code object, as this version lays it out.
        words.fold(code as u64, |sum, &offset| sum.rotate_left(21) ^ unsafe { load::<u64>(code, offset) })
    }

    /// What distinguishes code from all that was at its address before, also from such that differs in a line or a letter only.
    #[inline]
    fn identity(&self, code: usize) -> u64 {
        let Some(contents) = self.layout.contents else { return self.fingerprint(code) };
        // SAFETY: the fields of a code object, as this version lays it out.
        let (first_line, lines) =
            unsafe { (load::<u32>(code, contents.first_line), load::<usize>(code, contents.lines)) };
        let mut sum = u64::from(first_line).rotate_left(40);
        if lines != 0 {
            // SAFETY: a string of bytes has its size, and after its header at least a word of memory.
            sum = sum.wrapping_add(unsafe { sum_bytes(lines + BYTES_HEADER, load(lines, 16)) });
        }
        for (offset, factor) in
            contents.strings.into_iter().zip([0xd6e8_feb8_6659_fd93_u64, 0xa076_1d64_78bd_642f])
        {
            // SAFETY: a code object has these strings, and a string has its hash.
            let (text, hash) = unsafe {
                let text: usize = load(code, offset);
                (text, if text == 0 { 0 } else { load::<u64>(text, 24) })
            };
            let part = if hash == UNKNOWN_HASH { self.sum_text(text) } else { hash };
            sum = sum.wrapping_add(part.wrapping_mul(factor));
        }
        sum
    }

    /// The sum of a string whose hash is unknown.
    #[cold]
    fn sum_text(&self, text: usize) -> u64 {
        // SAFETY: these are the string's characters; the memory of a string has at least a word for them.
        self.characters(text).map_or(0, |(first, len, bytes)| unsafe { sum_bytes(first, len * bytes) })
    }

    #[inline]
    fn class_of(&self, code: usize) -> Class {
        let tag = hash(code as u64, self.fingerprint(code), 4) & !3;
        let known = &KNOWN_CLASSES[(tag >> 48) as usize % CLASSES];
        let word = known.load(Ordering::Relaxed);
        if word & !3 == tag {
            return match word & 3 {
                2 => Class::Library,
                3 => Class::Operation,
                _ => Class::Program,
            };
        }
        let class = self.classify(code);
        known.store(tag | class as u64, Ordering::Relaxed);
        class
    }

    #[cold]
    fn classify(&self, code: usize) -> Class {
        let (mut file, mut name) = ([0; MAX_TEXT], [0; MAX_TEXT]);
        let (file, name) = (
            self.text_in(code, self.layout.file, &mut file),
            self.text_in(code, self.layout.name, &mut name),
        );
        // As installed by pip, and in a source tree.
        let is_in = |places: [&str; 2]| places.iter().any(|place| file.contains(place));
        if is_in(["-packages/ttnn/", "/ttnn/ttnn/"]) {
            let calls = file.ends_with("/decorators.py") && name.rsplit('.').next() == Some("__call__");
            return if calls { Class::Operation } else { Class::Library };
        }
        if is_in(["-packages/ttmem/", "/package/ttmem/"]) { Class::Library } else { Class::Program }
    }

    /// The name of the operation that is the first local variable of a frame: the first attribute of the instance.
    #[inline]
    fn operation_name(&self, frame: usize) -> Option<usize> {
        let pointer = |at: usize| (at > 4096 && at.is_multiple_of(8)).then_some(at);
        // SAFETY: the instance is alive while its method runs, and is laid out as this version does it; what is loaded is checked
        // before it is used.
        unsafe {
            let instance = pointer(load(frame, self.layout.first_local))?;
            let values: usize = match self.layout.attributes {
                Attributes::Unknown => return None,
                Attributes::Dictionary(in_type) => {
                    let offset: isize = load(pointer(load(instance, 8))?, in_type);
                    let dictionary =
                        pointer(load(instance, usize::try_from(offset).ok().filter(|&it| it > 0)?))?;
                    load(dictionary, DICTIONARY_VALUES)
                }
                Attributes::Inline(before) => {
                    let tagged: usize = load(instance.wrapping_sub(before), 0);
                    if tagged & 1 == 1 { tagged + 1 } else { load(pointer(tagged)?, DICTIONARY_VALUES) }
                }
            };
            let name = pointer(load(pointer(values)?, 0))?;
            (load::<usize>(name, 8) == self.text_type).then_some(name)
        }
    }

    /// The operation that the program called, as its line calls it: `ttnn.add`.
    pub(crate) fn op<'a, const MOST: usize>(
        &self,
        walk: &Walk<MOST>,
        room: &'a mut [u8; MAX_TEXT],
    ) -> &'a str {
        if walk.op == 0 { "" } else { self.text(walk.op, room) }
    }

    /// The file of a frame.
    pub(crate) fn file<'a>(&self, frame: &Frame, room: &'a mut [u8; MAX_TEXT]) -> &'a str {
        self.text_in(frame.code, self.layout.file, room)
    }

    /// The function of a frame.
    pub(crate) fn function<'a>(&self, frame: &Frame, room: &'a mut [u8; MAX_TEXT]) -> &'a str {
        self.text_in(frame.code, self.layout.name, room)
    }

    /// The line of a frame.
    pub(crate) fn line(&self, frame: &Frame) -> u32 {
        // SAFETY: code of a frame that is running. The function only reads the code's table of lines.
        u32::try_from(unsafe { (self.line)(frame.code, frame.position) }).unwrap_or(0)
    }

    fn text_in<'a>(&self, code: usize, offset: usize, room: &'a mut [u8; MAX_TEXT]) -> &'a str {
        // SAFETY: code of a frame that is running, as this version lays it out.
        self.text(unsafe { load(code, offset) }, room)
    }

    /// The characters of a string of the interpreter: address, number, and bytes of each. `None` if it is no such string.
    fn characters(&self, at: usize) -> Option<(usize, usize, usize)> {
        // SAFETY: what code refers to is an object, and what this type has is a string.
        let (len, state) = unsafe {
            if at == 0 || load::<usize>(at, 8) != self.text_type {
                return None;
            }
            (load::<usize>(at, 16), load::<u32>(at, 32))
        };
        let (bytes, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        let first = at + self.layout.text + if is_ascii { 0 } else { self.layout.wide };
        (is_compact && matches!(bytes, 1 | 2 | 4)).then_some((first, len, bytes as usize))
    }

    /// Copies a string of the interpreter, which never changes; the end of it, if it is too long. Empty if it is no such string.
    fn text<'a>(&self, at: usize, room: &'a mut [u8; MAX_TEXT]) -> &'a str {
        let Some((first, len, bytes)) = self.characters(at) else { return "" };
        let mut begin = MAX_TEXT;
        for n in (0..len).rev() {
            // SAFETY: the string has `len` characters of this size.
            let number = unsafe {
                match bytes {
                    1 => u32::from(load::<u8>(first, n)),
                    2 => u32::from(load::<u16>(first, n * 2)),
                    _ => load::<u32>(first, n * 4),
                }
            };
            // A lone surrogate stands for a byte that is no text.
            let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            let size = character.len_utf8();
            if size > begin {
                break;
            }
            begin -= size;
            character.encode_utf8(&mut room[begin..begin + size]);
        }
        core::str::from_utf8(&room[begin..]).unwrap_or_default()
    }
}
