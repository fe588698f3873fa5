//! Names of native frames: the process defined only their addresses.

use super::{Emit, Follower};
use crate::symbols::{Library, Symbol};
use std::collections::BTreeMap;
use ttmem_core::input::{Frame, Input, SiteDefinition};
use ttmem_wire::segment::definition;

/// Numbers of source files are counted down from here, and those of a process's definitions up from 1.
const LAST_NUMBER: u32 = (1 << 24) - 1;

impl Follower {
    pub(super) fn define_library(&mut self, number: u32, build_id: &[u8], path: &str, uid: u32) {
        let library = Library { path: path.to_owned(), build_id: build_id.to_owned(), uid };
        self.libraries.insert(number, library);
    }

    /// Whether a frame is an address in a library whose build id is known.
    pub(super) fn is_in_library(&self, frame: &definition::Frame) -> bool {
        frame.offset.get() != 0 && self.libraries.contains_key(&frame.file.get())
    }

    /// Emits frames with their functions and lines, as far as these are known.
    pub(super) fn emit_native_frames(&mut self, frames: &[(u32, definition::Frame)], emit: Emit<'_>) {
        let mut by_library: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for (number, frame) in frames {
            by_library.entry(frame.file.get()).or_default().push((*number, frame.offset.get()));
        }
        for (library, frames) in by_library {
            let symbols = self.look_up(library, &frames);
            for (&(number, offset), symbol) in frames.iter().zip(symbols) {
                let file = self.site_id(library);
                let frame = Frame { file, line: 0, offset, function: symbol.function };
                let frame = match symbol.line {
                    Some((path, line)) => {
                        Frame { file: self.source_file(path, emit), line, offset: 0, ..frame }
                    }
                    None => frame,
                };
                emit(Input::Site(Box::new(SiteDefinition::Frame(self.site_id(number), frame))));
            }
        }
    }

    fn look_up(&mut self, library: u32, frames: &[(u32, u64)]) -> Vec<Symbol> {
        let addresses: Vec<u64> = frames.iter().map(|&(_, offset)| offset).collect();
        let library = self.libraries.get(&library).filter(|_| !self.hangs);
        let found = library.map(|library| library.look_up(&addresses));
        self.hangs |= matches!(found, Some(Err(_)));
        found.and_then(Result::ok).unwrap_or_else(|| vec![Symbol::default(); frames.len()])
    }

    /// The number of a source file, which is emitted if it is new.
    fn source_file(&mut self, path: String, emit: Emit<'_>) -> u32 {
        if let Some(&known) = self.source_files.get(&path) {
            return self.site_id(known);
        }
        let new = LAST_NUMBER - self.source_files.len() as u32;
        let number = self.site_id(new);
        emit(Input::Site(Box::new(SiteDefinition::File(number, path.clone()))));
        self.source_files.insert(path, new);
        number
    }
}
