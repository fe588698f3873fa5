//! Call sites with native stacks: native frames first, and the interpreter's frames where it runs them.

use super::{
    FRAMES, SITES, define_op, define_site, define_stack, find_from, find_native, find_or_define_frame,
};
use crate::agent::tracker;
use crate::modules::{self, Module};
use crate::python::{self, Frame, MAX_FRAMES, Python, Walk};
use crate::unwind;
use ttmem_client::SiteNumber;
use ttmem_client::agent::{self, SiteParts, hash};

/// What the names of the runtime's libraries begin with.
const RUNTIME: [&str; 2] = ["libtt", "_ttnn"];

type Frames<'a> = Option<(&'a Python, &'a Walk<MAX_FRAMES>)>;

/// The number of the place where the calling thread is, with at most so many native frames and so many of the interpreter.
pub(super) fn find<'a>(
    most: usize,
    key: u64,
    caller: u64,
    parts: impl FnOnce() -> SiteParts<'a>,
) -> SiteNumber {
    let python = python::find().and_then(|python| Some((python, python.walk::<MAX_FRAMES>(most)?)));
    let Some(native) = unwind::key() else {
        // A stack that cannot be read, such as a coroutine's.
        return match python {
            None => find_native(key, caller, parts),
            Some((python, walk)) => find_from(python, Some(walk), key, caller, parts),
        };
    };
    let inner = python.as_ref().map_or(caller, |(_, walk)| walk.key);
    let key = hash(hash(native, inner, 10), key, generation());
    let number = SITES.find_or_define(key, || {
        let native = unwind::walk(most);
        let python = python.as_ref().map(|(python, walk)| (*python, walk));
        #[cfg(any(feature = "probe", debug_assertions))]
        crate::probe::note_mixed_definition(key, |visit| mix(&native, python, visit));
        define(&native, python, caller, &parts())
    });
    #[cfg(any(feature = "probe", debug_assertions))]
    crate::probe::note_use(key);
    SiteNumber::new(number)
}

/// Changes when the numbers of native frames become invalid.
fn generation() -> u64 {
    agent::generation(tracker()) ^ modules::generation() << 32
}

/// A frame of a stack.
pub(crate) enum AnyFrame<'a> {
    /// The frame that continues at an address.
    Native(usize),
    Python(&'a Python, &'a Frame),
}

/// Visits the frames of a stack, innermost first. The interpreter runs its frames in native frames, which are left out: they are where
/// those would be.
fn mix<'a>(native: &unwind::Walk, python: Frames<'a>, mut visit: impl FnMut(AnyFrame<'a>)) {
    let python = python.map(|(python, walk)| {
        walk.frames()
            .iter()
            .zip(python.places(walk))
            .map(move |(frame, place)| (AnyFrame::Python(python, frame), place))
    });
    let mut rest = python.into_iter().flatten().peekable();
    for frame in native.frames() {
        while let Some((inner, _)) = rest.next_if(|(_, place)| *place < frame.sp) {
            visit(inner);
        }
        visit(AnyFrame::Native(frame.address));
    }
    rest.for_each(|(frame, _)| visit(frame));
}

#[cold]
fn define(native: &unwind::Walk, python: Frames<'_>, caller: u64, parts: &SiteParts<'_>) -> u32 {
    let (mut numbers, mut len) = ([0; MAX_FRAMES], 0);
    mix(native, python, |frame| {
        if let Some(number) = numbers.get_mut(len) {
            *number = match frame {
                AnyFrame::Native(address) => find_or_define_native_frame(address),
                AnyFrame::Python(python, frame) => find_or_define_frame(python, frame),
            };
            len += 1;
        }
    });
    let stack = define_stack(&numbers[..len]);
    let (frame, op) = match python {
        Some((python, walk)) => {
            (find_or_define_frame(python, &walk.frames()[0]), define_op(python, walk, parts))
        }
        None => (displayed_frame(native, caller), parts.op),
    };
    define_site(&SiteParts { frame, stack, op, ..*parts })
}

/// The frame that is displayed of a stack without Python: the innermost one outside of the runtime, or else the caller of the runtime's
/// function.
fn displayed_frame(native: &unwind::Walk, caller: u64) -> u32 {
    let is_outside = |frame: &&unwind::Frame| {
        let module = Module::find(frame.address - 1);
        module.is_some_and(|module| !RUNTIME.iter().any(|name| module.file_name().starts_with(name)))
    };
    let outside = native.frames().iter().find(is_outside).map(|frame| frame.address);
    let address = outside.or((caller != 0).then_some(caller as usize));
    address.map_or(0, find_or_define_native_frame)
}

/// The number of the frame that continues at an address.
fn find_or_define_native_frame(address: usize) -> u32 {
    FRAMES.find_or_define(hash(address as u64, generation(), 8), || {
        // A return address is behind its call, which may be the last instruction of its function.
        let address = address - 1;
        let Some(module) = Module::find(address) else { return 0 };
        let (path, build_id, offset) = (module.path(), module.build_id(), module.offset(address));
        agent::define_native_frame(tracker(), path, build_id, offset).unwrap_or(0)
    })
}
