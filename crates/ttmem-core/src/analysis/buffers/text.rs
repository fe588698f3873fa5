//! The words of a query, each of which an allocation must have in one of its texts.

use super::ByNumber;
use crate::ledger::Entry;
use crate::state::{ProcessState, visible};
use crate::words::{Layout, ProcessId, Scope, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The words of a query in lower case, as many as a set has room for.
pub(super) struct Words {
    words: Vec<String>,
    /// Those that could be part of an address.
    in_address: Found,
    all: Found,
    /// Those that are part of the name of a layout.
    layouts: [(Layout, Found); 8],
}

/// What memory of programs is called.
pub(super) const PROGRAMS: &str = "programs";

/// Set of words that were found: a bit each.
type Found = u64;

/// Words that were found in the names of one pool.
#[derive(Default)]
pub(super) struct OfPool {
    everywhere: Found,
    /// By number.
    sites: Option<Arc<ByNumber<Found>>>,
    programs: Option<Arc<ByNumber<Found>>>,
}

/// Words that were found in the names of one process.
pub(super) struct OfProcess<'a> {
    process: &'a ProcessState,
    everywhere: Found,
    sites: Option<Arc<ByNumber<Found>>>,
    programs: BTreeMap<Scope, Arc<ByNumber<Found>>>,
}

impl Words {
    pub(super) fn new(text: &str) -> Self {
        let words: BTreeSet<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let words: Vec<String> = words.into_iter().take(Found::BITS as usize).collect();
        let mask = |fits: &dyn Fn(&str) -> bool| {
            let bits = words.iter().enumerate().filter(|(_, word)| fits(word)).map(|(n, _)| 1 << n);
            bits.fold(0, |all, bit: Found| all | bit)
        };
        let is_digit = |byte: u8| byte == b'x' || byte.is_ascii_hexdigit();
        let layouts = Layout::ALL
            .map(|it| (it, mask(&|word| it.title().is_some_and(|name| name.to_lowercase().contains(word)))));
        Self { in_address: mask(&|word| word.bytes().all(is_digit)), all: mask(&|_| true), layouts, words }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The words that are part of a text.
    fn within(&self, text: &str) -> Found {
        let text = text.to_lowercase();
        let words = self.words.iter().enumerate();
        words.filter(|(_, word)| text.contains(word.as_str())).fold(0, |all, (n, _)| all | 1 << n)
    }

    /// Whether each word is part of a text of an allocation.
    pub(super) fn fit(&self, entry: &Entry, names: &OfPool) -> bool {
        let mut found = names.everywhere;
        if found != self.all {
            let of = |it: &Option<Arc<ByNumber<Found>>>, number| it.as_ref().and_then(|it| it.get(number));
            found |= of(&names.sites, entry.site).unwrap_or(0);
            found |= of(&names.programs, entry.program).unwrap_or(0);
        }
        if found != self.all {
            found |= self.layouts.iter().find(|it| it.0 == entry.layout).map_or(0, |it| it.1);
        }
        // The others can only be part of the address.
        let left = self.all & !found;
        if left == 0 || left & !self.in_address != 0 {
            return left == 0;
        }
        let mut room = [0; 18];
        let address = hexadecimal(entry.id, &mut room);
        let mut words = self.words.iter().enumerate().filter(|(n, _)| left >> n & 1 != 0);
        words.all(|(_, word)| address.windows(word.len()).any(|part| part == word.as_bytes()))
    }
}

/// A number as tables show it.
fn hexadecimal(number: u64, room: &mut [u8; 18]) -> &[u8] {
    let mut left = number;
    let mut begin = room.len();
    loop {
        begin -= 1;
        room[begin] = b"0123456789abcdef"[(left & 15) as usize];
        left >>= 4;
        if left == 0 {
            break;
        }
    }
    room[begin - 2..begin].copy_from_slice(b"0x");
    &room[begin - 2..]
}

impl<'a> OfProcess<'a> {
    pub(super) fn new(words: &Words, id: ProcessId, process: &'a ProcessState) -> Self {
        let mut everywhere = 0;
        let mut sites = None;
        if !words.is_empty() {
            let pid = visible(id).map(i64::from).or(process.info.reported_pid);
            everywhere |= pid.map_or(0, |pid| words.within(&pid.to_string()));
            everywhere |= process.info.name.as_deref().map_or(0, |name| words.within(name));
            let found = process.sites.texts().map(|(number, text)| (number, words.within(&text)));
            sites = Some(Arc::new(found.collect()));
        }
        Self { process, everywhere, sites, programs: BTreeMap::new() }
    }

    /// Whether each word is part of the pid or name of the process.
    pub(super) fn has_all(&self, words: &Words) -> bool {
        self.everywhere == words.all
    }

    pub(super) fn of_pool(&mut self, words: &Words, scope: Scope, space: Space) -> OfPool {
        if words.is_empty() {
            return OfPool::default();
        }
        let process = self.process;
        let programs = self.programs.entry(scope).or_insert_with(|| {
            let begun = process.programs_in(scope).map(|(&(_, number), _)| number);
            let named = process.program_names.keys().copied();
            let numbers: BTreeSet<u32> = begun.chain(named).filter(|&number| number != 0).collect();
            let found = |number: u32| Some(words.within(process.program_name(scope, number)?));
            Arc::new(numbers.into_iter().filter_map(|number| Some((number, found(number)?))).collect())
        });
        let of_programs = if space.is_program() { words.within(PROGRAMS) } else { 0 };
        OfPool {
            everywhere: self.everywhere | words.within(space.name()) | of_programs,
            sites: self.sites.clone(),
            programs: Some(Arc::clone(programs)),
        }
    }
}
