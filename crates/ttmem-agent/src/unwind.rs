//! The calling thread's native frames. The runtime has no frame pointers, so they are found by the tables that exceptions use
//! (`.eh_frame`).
//!
//! How to get from an address to its caller is a *rule*, which all threads remember in one table: an address that was seen before costs
//! a cache line of that and two words of the stack. A new one is found with `_dl_find_object`, which takes no lock, and its rule is
//! computed without allocating (`rules`). Most stacks have their outer frames in common with the thread's last one, so these are only
//! compared with it (`recent`). Only the thread's own stack is read, and only upwards. The walk ends where anything is implausible: what
//! was found until then is certain.
#![allow(unsafe_code)]

mod recent;
mod rules;

pub(crate) use rules::forget_rules;

use crate::modules;
use core::arch::asm;
use core::cell::Cell;
use core::ops::Range;
use core::ptr;
use rules::{Rule, find_rule};

/// Most frames of a walk that are kept.
pub(crate) const MAX_FRAMES: usize = 64;
/// Most frames that are passed, with those that are not kept.
const MAX_WALKED: usize = 256;

/// A frame: the registers that its callers are found by, and how.
#[derive(Clone, Copy)]
struct Step {
    /// Where the frame continues.
    address: usize,
    sp: usize,
    fp: usize,
    /// Where on the stack the frame pointer was found; 0: it is that of the frame further inside.
    fp_at: usize,
    rule: Rule,
}

/// A stack, from the stack pointer of the innermost frame upwards.
struct Stack(Range<usize>);

impl Stack {
    /// The word at an address of the stack.
    #[inline]
    fn load(&self, at: usize) -> Option<usize> {
        let is_inside = at >= self.0.start && at < self.0.end && at.is_multiple_of(8);
        // SAFETY: a word of this thread's stack, above its stack pointer; the end of the stack is at a multiple of a page.
        is_inside.then(|| unsafe { ptr::with_exposed_provenance::<usize>(at).read_volatile() })
    }

    /// The caller of a frame. What has no rule may be no code at all.
    #[inline]
    fn step(&self, frame: &Step) -> Option<Step> {
        let below = |at: usize, words: u16| at.wrapping_sub(usize::from(words) * 8);
        let (sp, fp_at) = match frame.rule {
            Rule::End => return None,
            Rule::Offset { from_fp, cfa, saved } => {
                let sp = if from_fp { frame.fp } else { frame.sp }.wrapping_add(usize::from(cfa) * 8);
                (sp, if saved == 0 { 0 } else { below(sp, saved) })
            }
            Rule::Aligned { saved } => (self.load(below(frame.fp, saved))?, frame.fp),
        };
        let fp = if fp_at == 0 { frame.fp } else { self.load(fp_at)? };
        let address = self.load(sp.wrapping_sub(8))?;
        // A caller is always further up.
        (sp > frame.sp).then_some(Step { address, sp, fp, fp_at, rule: find_rule(address)? })
    }
}

/// The stack of the calling thread. `None`: it is not known, or the thread is on another one, such as that of a coroutine.
#[inline]
fn own_stack(sp: usize) -> Option<Stack> {
    std::thread_local! {
        static OWN: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    }
    let (start, end) = OWN.get().unwrap_or_else(|| {
        let found = find_stack().unwrap_or_default();
        OWN.set(Some(found));
        found
    });
    (start <= sp && sp < end).then_some(Stack(sp..end))
}

/// Asks the C library for the stack of the calling thread, once: for the main thread, it reads a file.
#[cold]
fn find_stack() -> Option<(usize, usize)> {
    // SAFETY: zeros are valid.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    let (mut start, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the attributes are filled before they are read, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
        (found == 0).then(|| (start.expose_provenance(), start.expose_provenance().saturating_add(bytes)))
    }
}

/// The frame that calls this, and its stack.
macro_rules! own_frame {
    () => {{
        let (address, sp, fp);
        // SAFETY: the registers are read, and nothing else.
        unsafe {
            asm!(
                "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) address, out(reg) sp, out(reg) fp,
                options(nomem, nostack, preserves_flags)
            );
        }
        own_stack(sp).zip(find_rule(address).map(|rule| Step { address, sp, fp, fp_at: 0, rule }))
    }};
}

/// A number that identifies the calling thread's frames. `None`: they cannot be read.
#[inline(never)]
pub(crate) fn key() -> Option<u64> {
    let (stack, frame) = own_frame!()?;
    Some(recent::key(&stack, frame))
}

/// A native frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frame {
    /// Where it continues.
    pub(crate) address: usize,
    /// Its stack pointer.
    pub(crate) sp: usize,
}

/// Native frames, innermost first, without those of the agent and of the interpreter.
pub(crate) struct Walk {
    frames: [Frame; MAX_FRAMES],
    len: usize,
}

impl Walk {
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames[..self.len]
    }
}

/// Walks the calling thread's frames, at most `most` of them.
#[inline(never)]
pub(crate) fn walk(most: usize) -> Walk {
    let mut walk = Walk { frames: [Frame::default(); MAX_FRAMES], len: 0 };
    let Some(((stack, mut frame), skipped)) = own_frame!().zip(modules::skipped()) else { return walk };
    for _ in 0..MAX_WALKED {
        let Some(caller) = stack.step(&frame) else { break };
        frame = caller;
        if walk.len == most.min(MAX_FRAMES) {
            break;
        }
        if !skipped.iter().any(|module| module.contains(&frame.address)) {
            walk.frames[walk.len] = Frame { address: frame.address, sp: frame.sp };
            walk.len += 1;
        }
    }
    walk
}
