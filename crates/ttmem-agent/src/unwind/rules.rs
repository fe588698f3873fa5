//! How the callers of frames are found: computed from `.eh_frame`, and remembered for all threads.

use crate::flight;
use crate::modules::Module;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Operation, Pointer, ReaderOffset,
    Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow, X86_64,
};

/// Rules that are remembered. They are in groups, of which a lookup reads one.
const RULES: usize = 1 << 15;
const GROUP: usize = 4;
/// Bits of a rule. The others of a word, and the number of the group, are all bits of an address.
const RULE_BITS: u32 = 30;
const GROUP_BITS: u32 = (RULES / GROUP).trailing_zeros();
const ADDRESS_BITS: u32 = 64 - RULE_BITS + GROUP_BITS;
const _: () = assert!(ADDRESS_BITS == 47, "those of a process on x86-64");

/// Zeros: nothing is remembered. A forked child starts with zeros.
static TABLE: AtomicPtr<[AtomicU64; RULES]> = AtomicPtr::new(ptr::null_mut());

/// How the caller of a frame is found: how its stack pointer (`cfa`, which the return address is below) and its frame pointer follow.
/// Offsets are in words, since the stack consists of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// There is no caller, or it cannot be found.
    End,
    /// The caller's stack pointer is above this frame's stack pointer, or `from_fp` above its frame pointer. The caller's frame pointer
    /// is saved so many words below; 0: it is unchanged.
    Offset { from_fp: bool, cfa: u16, saved: u16 },
    /// A frame that aligned its stack: the caller's stack pointer is saved below the frame pointer, and the caller's frame pointer at it.
    Aligned { saved: u16 },
}

impl Rule {
    /// Bits of an offset.
    const BITS: u32 = 14;

    /// An offset in bytes as words, if it is a number of words that fits.
    fn words(bytes: i64) -> Option<u16> {
        u16::try_from(bytes / 8).ok().filter(|words| bytes % 8 == 0 && words >> Self::BITS == 0)
    }

    /// Never 0.
    fn pack(self) -> u64 {
        let (kind, first, second) = match self {
            Self::Offset { from_fp: false, cfa, saved } => (0, cfa, saved),
            Self::Offset { from_fp: true, cfa, saved } => (1, cfa, saved),
            Self::Aligned { saved } => (2, saved, 0),
            Self::End => (3, 0, 0),
        };
        // An offset of the stack pointer is at least the return address, so that is no 0 either.
        kind << (2 * Self::BITS) | u64::from(first) << Self::BITS | u64::from(second)
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        let mask = (1 << Self::BITS) - 1;
        let (first, second) = ((word >> Self::BITS & mask) as u16, (word & mask) as u16);
        match word >> (2 * Self::BITS) & 3 {
            0 => Self::Offset { from_fp: false, cfa: first, saved: second },
            1 => Self::Offset { from_fp: true, cfa: first, saved: second },
            2 => Self::Aligned { saved: first },
            _ => Self::End,
        }
    }
}

/// Where the rule of an address is remembered: the number of a group, and what is left of the address.
#[inline]
fn place_of(address: usize) -> Option<(usize, u64)> {
    let address = address as u64;
    // Both steps can be undone, so different addresses have different results.
    let product = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << ADDRESS_BITS) - 1);
    let mixed = product ^ product >> (ADDRESS_BITS / 2 + 1);
    let group = mixed & ((1 << GROUP_BITS) - 1);
    (address >> ADDRESS_BITS == 0).then_some((group as usize * GROUP, mixed >> GROUP_BITS))
}

/// The rule of an address that a frame continues at. `None`: no code of a library, as far as is known.
#[inline]
pub(super) fn find_rule(address: usize) -> Option<Rule> {
    let (first, tag) = place_of(address)?;
    // SAFETY: null, or a mapping that is never unmapped and valid as zeros.
    if let Some(table) = unsafe { TABLE.load(Ordering::Acquire).as_ref() } {
        for word in &table[first..first + GROUP] {
            let word = word.load(Ordering::Relaxed);
            if word >> RULE_BITS == tag && word != 0 {
                return Some(Rule::unpack(word));
            }
        }
    }
    find_new_rule(address, first, tag)
}

#[cold]
fn find_new_rule(address: usize, first: usize, tag: u64) -> Option<Rule> {
    // A return address is behind its call, which may be the last instruction of its function.
    let module = Module::find(address.checked_sub(1)?)?;
    let rule = read_rule(&module, address - 1)?;
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        flight::map_zeroed(&TABLE);
        table = TABLE.load(Ordering::Acquire);
    }
    // SAFETY: as above.
    if let Some(table) = unsafe { table.as_ref() } {
        let group = &table[first..first + GROUP];
        let vacant = group.iter().find(|word| word.load(Ordering::Relaxed) == 0);
        vacant
            .unwrap_or(&group[tag as usize % GROUP])
            .store(tag << RULE_BITS | rule.pack(), Ordering::Relaxed);
    }
    Some(rule)
}

/// Forgets all rules, since a library was unloaded.
pub(crate) fn forget_rules() {
    // SAFETY: null, or a mapping that is never unmapped and valid as zeros.
    if let Some(table) = unsafe { TABLE.load(Ordering::Acquire).as_ref() } {
        for word in table {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Memory for the computation of a rule.
struct OnStack;

impl<T: ReaderOffset> UnwindContextStorage<T> for OnStack {
    // The processor has 17 registers.
    type Rules = [(Register, RegisterRule<T>); 20];
    type Stack = [UnwindTableRow<T, Self>; 4];
}

type Bytes = EndianSlice<'static, NativeEndian>;

/// Computes the rule of an address. `None`: the module has no table that covers it.
fn read_rule(module: &Module, address: usize) -> Option<Rule> {
    let header = module.unwind_table;
    let bytes = |from: usize| EndianSlice::new(module.bytes_from(from), NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(header as u64);
    let parsed = EhFrameHdr::from(bytes(header)).parse(&bases, 8).ok()?;
    let Pointer::Direct(frames) = parsed.eh_frame_ptr() else { return None };
    let bases = bases.set_eh_frame(frames);
    let frames: EhFrame<Bytes> = bytes(frames as usize).into();
    let fde = parsed.table()?.fde_for_address(&frames, &bases, address as u64, EhFrame::cie_from_offset);
    let fde = fde.ok()?;
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let row = fde.unwind_info_for_address(&frames, &bases, &mut context, address as u64).ok()?;
    Some(if fde.is_signal_trampoline() { Rule::End } else { to_rule(&frames, row).unwrap_or(Rule::End) })
}

fn to_rule(frames: &EhFrame<Bytes>, row: &UnwindTableRow<usize, OnStack>) -> Option<Rule> {
    if row.register(X86_64::RA) != Some(RegisterRule::Offset(-8)) {
        return None;
    }
    let fp = row.register(X86_64::RBP);
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if [X86_64::RSP, X86_64::RBP].contains(register) => {
            let saved = match fp {
                // It is callee-saved.
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
                Some(RegisterRule::Offset(offset)) => Rule::words(offset.checked_neg()?)?,
                _ => return None,
            };
            let cfa = Rule::words(*offset).filter(|&words| words > 0)?;
            Some(Rule::Offset { from_fp: *register == X86_64::RBP, cfa, saved })
        }
        CfaRule::Expression(cfa) => {
            let Some(RegisterRule::Expression(fp)) = fp else { return None };
            let saved = Rule::words(frame_offset(frames, cfa, true)?.checked_neg()?)?;
            (frame_offset(frames, &fp, false)? == 0).then_some(Rule::Aligned { saved })
        }
        CfaRule::RegisterAndOffset { .. } => None,
    }
}

/// The offset of an expression that consists of the frame pointer and an offset, and, if `is_loaded`, a load.
fn frame_offset(
    frames: &EhFrame<Bytes>,
    expression: &UnwindExpression<usize>,
    is_loaded: bool,
) -> Option<i64> {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    let mut operations = expression.get(frames).ok()?.operations(encoding);
    let Operation::RegisterOffset { register: X86_64::RBP, offset, .. } = operations.next().ok()?? else {
        return None;
    };
    if is_loaded && !matches!(operations.next().ok()??, Operation::Deref { .. }) {
        return None;
    }
    operations.next().ok()?.is_none().then_some(offset)
}
