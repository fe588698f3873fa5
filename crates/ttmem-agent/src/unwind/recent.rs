//! The last stacks of threads. The outer frames of a stack are mostly those of the thread's last one: they are, if they begin at an equal
//! frame and follow from equal words of the stack. To compare a frame takes two loads, which is less than finding its rule.

use super::rules::Rule;
use super::{MAX_WALKED, Stack, Step};
use crate::{flight, modules};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Stacks that are remembered. Threads that share one forget each other's.
const STACKS: usize = 64;

/// A frame of the last stack. Zeros: any.
#[derive(Clone, Copy)]
struct LastFrame {
    address: usize,
    sp: usize,
    fp: usize,
    fp_at: usize,
    /// Whether the outer frames follow from its frame pointer, which is not always one.
    needs_fp: bool,
    /// Whether its caller follows from more of the stack than is compared.
    is_aligned: bool,
    /// Identifies this frame and all outer ones.
    key: u64,
}

/// The frames of the last stack, outermost first.
struct Frames {
    generation: u64,
    len: usize,
    known: [LastFrame; MAX_WALKED],
}

struct Recent {
    /// 1: a thread uses the frames.
    lock: AtomicU32,
    frames: UnsafeCell<Frames>,
}

/// Zero in a forked child, which also releases the locks of threads that it does not have.
static RECENT: AtomicPtr<[Recent; STACKS]> = AtomicPtr::new(ptr::null_mut());

/// The frames that a thread with this end of its stack may use until this is dropped.
struct Guard(&'static Recent);

impl Guard {
    fn acquire(stack_end: usize) -> Option<Self> {
        let mut all = RECENT.load(Ordering::Acquire);
        if all.is_null() {
            flight::map_zeroed(&RECENT);
            all = RECENT.load(Ordering::Acquire);
        }
        // Stacks begin at multiples of a page, and often at equal distances.
        let place = (stack_end as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // SAFETY: null, or a mapping that is never unmapped and valid as zeros.
        let recent = &unsafe { all.as_ref() }?[place as usize % STACKS];
        // A signal handler, or another thread, does without.
        (recent.lock.swap(1, Ordering::Acquire) == 0).then_some(Self(recent))
    }

    fn frames(&mut self) -> &mut Frames {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.frames.get() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

impl Frames {
    /// Whether the frames outside of the one with number `from` are what they were. It equals a frame of this stack.
    fn are_unchanged(&self, from: usize, stack: &Stack) -> bool {
        self.known[..=from].windows(2).rev().all(|pair| {
            let [outer, inner] = pair else { return false };
            !inner.is_aligned
                && stack.load(outer.sp.wrapping_sub(8)) == Some(outer.address)
                && (!outer.needs_fp || outer.fp_at == 0 || stack.load(outer.fp_at) == Some(outer.fp))
        })
    }
}

/// A number that identifies a frame and all that called it.
pub(super) fn key(stack: &Stack, innermost: Step) -> u64 {
    let mut guard = Guard::acquire(stack.0.end);
    let mut frames = guard.as_mut().map(Guard::frames);
    let generation = modules::generation();
    // Frames of the last stack that may be reached, from the outermost on.
    let mut known =
        frames.as_ref().filter(|frames| frames.generation == generation).map_or(0, |frames| frames.len);
    let mut new = [const { MaybeUninit::<Step>::uninit() }; MAX_WALKED];
    let (mut len, mut frame) = (0, Some(innermost));
    while let Some(step) = frame {
        if let Some(frames) = frames.as_ref().filter(|_| known > 0) {
            while known > 0 && frames.known[known - 1].sp < step.sp {
                known -= 1;
            }
            let last = known.checked_sub(1).map(|last| (last, &frames.known[last]));
            let is_equal = |it: &LastFrame| {
                it.sp == step.sp && it.address == step.address && (it.fp == step.fp || !it.needs_fp)
            };
            if let Some((last, _)) = last.filter(|(_, it)| is_equal(it)) {
                if frames.are_unchanged(last, stack) {
                    break;
                }
                known = 0;
            }
        }
        new[len].write(step);
        len += 1;
        frame = if len == MAX_WALKED { None } else { stack.step(&step) };
        if frame.is_none() {
            known = 0;
        }
    }
    let first = known.checked_sub(1).and_then(|last| frames.as_ref().map(|frames| frames.known[last]));
    let (mut key, mut needs_fp) = first.map_or((1, false), |it| (it.key, it.needs_fp));
    if let Some(frames) = &mut frames {
        // Frames that are not remembered end what is.
        frames.len = if known + len <= MAX_WALKED { known + len } else { 0 };
        frames.generation = generation;
    }
    for (n, step) in new[..len].iter().rev().enumerate() {
        // SAFETY: the first `len` were written.
        let step = unsafe { step.assume_init_ref() };
        key = (key.rotate_left(23) ^ step.address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        needs_fp = match step.rule {
            Rule::End => false,
            Rule::Offset { from_fp, saved, .. } => from_fp || saved == 0 && needs_fp,
            Rule::Aligned { .. } => true,
        };
        let place = frames.as_mut().and_then(|frames| frames.known.get_mut(known + n));
        if let Some(place) = place {
            let Step { address, sp, fp, fp_at, rule } = *step;
            let is_aligned = matches!(rule, Rule::Aligned { .. });
            *place = LastFrame { address, sp, fp, fp_at, needs_fp, is_aligned, key };
        }
    }
    key
}
