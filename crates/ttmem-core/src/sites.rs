//! The call sites of a process: what it defined, and the names that follow from that.
//!
//! A definition may be replaced later: the name of a native function or of a device operation is looked up after its first use. The
//! names of all sites that depend on it are then derived again.

mod counted;
mod frames;

use crate::detail::BufferGrouping;
use crate::input::{Frame, Site, SiteDefinition};
use crate::snapshot::Origin;
use counted::{bytes_of, insert, sum_bytes};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_types::{Purpose, Tensor};

pub(crate) use frames::UNKNOWN;

/// What the sites of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteKey {
    Line,
    LineAndOp,
    Op,
    Function,
    File,
    Tensor,
    Track,
}

impl SiteKey {
    /// The key of a grouping, if that is one by sites.
    pub(crate) fn of(grouping: BufferGrouping) -> Option<Self> {
        Some(match grouping {
            BufferGrouping::Process | BufferGrouping::Program => return None,
            BufferGrouping::Site => Self::Line,
            BufferGrouping::Op => Self::Op,
            BufferGrouping::Function => Self::Function,
            BufferGrouping::File => Self::File,
            BufferGrouping::Tensor => Self::Tensor,
            BufferGrouping::Track => Self::Track,
        })
    }
}

/// Numbers, a text and a tensor that sites of one group have in common.
type Key<'a> = ([u32; 2], &'a str, Option<Tensor>);

/// Most frames of a stack that are described.
const MAX_STACK: usize = 64;
/// Longest name that a site gets from its line: many sites may have one line.
const MAX_NAME: usize = 512;
/// What the runtime's names of device operations may end with.
const SUFFIXES: [&str; 2] = ["DeviceOperation", "Operation"];

/// The call sites of a process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sites {
    files: BTreeMap<u32, String>,
    frames: BTreeMap<u32, Frame>,
    stacks: BTreeMap<u32, Stack>,
    ops: BTreeMap<u32, String>,
    tracks: BTreeMap<u32, String>,
    sites: BTreeMap<u32, KnownSite>,
    /// Frames and operations that sites refer to and that are not defined yet.
    awaited: BTreeSet<Awaited>,
    /// Bytes that all of them take.
    #[serde(skip)]
    bytes: u64,
}

/// A frame or an operation that is defined after the sites that refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Awaited {
    Frame(u32),
    Op(u32),
}

#[derive(Debug, Serialize, Deserialize)]
struct Stack {
    /// The stack that the outermost frame was called from; 0: none.
    parent: u32,
    /// Innermost first.
    frames: Vec<u32>,
}

/// A call site with its names.
#[derive(Debug, Serialize, Deserialize)]
struct KnownSite {
    site: Site,
    /// Its text, or its line, or else its operation or track.
    name: Option<String>,
    /// What a program of this site is called.
    program: Option<String>,
}

impl Sites {
    /// Bytes that all definitions take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts the bytes of all definitions.
    pub(crate) fn count_bytes(&mut self) {
        let texts = sum_bytes(&self.files) + sum_bytes(&self.ops) + sum_bytes(&self.tracks);
        self.bytes = texts + sum_bytes(&self.frames) + sum_bytes(&self.stacks) + sum_bytes(&self.sites);
    }

    /// Takes a definition. Returns false, and takes nothing, if it is new and there are as many of its kind as `limit`. With a limit of
    /// 0, it may not take more bytes than the one that it replaces either.
    pub(crate) fn define(&mut self, definition: SiteDefinition, limit: usize) -> bool {
        let bytes = &mut self.bytes;
        let mut insert_text =
            |all: &mut BTreeMap<u32, String>, number, text| insert(all, number, text, limit, bytes);
        let (replaced, defined) = match definition {
            SiteDefinition::File(number, path) => {
                return insert_text(&mut self.files, number, path).is_some();
            }
            SiteDefinition::Op(number, name) => {
                (insert_text(&mut self.ops, number, name), Awaited::Op(number))
            }
            SiteDefinition::Track(number, name) => {
                return insert_text(&mut self.tracks, number, name).is_some();
            }
            SiteDefinition::Frame(number, frame) => {
                (insert(&mut self.frames, number, frame, limit, bytes), Awaited::Frame(number))
            }
            SiteDefinition::Stack { number, parent, frames } => {
                return insert(&mut self.stacks, number, Stack { parent, frames }, limit, bytes).is_some();
            }
            SiteDefinition::Site(number, site) => {
                if site.frame != 0 && !self.frames.contains_key(&site.frame) {
                    self.awaited.insert(Awaited::Frame(site.frame));
                }
                if site.op != 0 && !self.ops.contains_key(&site.op) {
                    self.awaited.insert(Awaited::Op(site.op));
                }
                let (name, program) = (self.derive_name(&site), self.derive_program_name(&site));
                let known = KnownSite { site, name, program };
                return insert(&mut self.sites, number, known, limit, &mut self.bytes).is_some();
            }
        };
        if self.awaited.remove(&defined) || replaced == Some(true) {
            self.derive_names(defined);
        }
        replaced.is_some()
    }

    /// Derives the names of the sites that refer to a frame or operation.
    fn derive_names(&mut self, defined: Awaited) {
        let mut sites = std::mem::take(&mut self.sites);
        let refers = |site: &Site| match defined {
            Awaited::Frame(number) => site.frame == number,
            Awaited::Op(number) => site.op == number,
        };
        for known in sites.values_mut().filter(|known| refers(&known.site)) {
            self.bytes -= bytes_of(known);
            known.name = self.derive_name(&known.site);
            known.program = self.derive_program_name(&known.site);
            self.bytes += bytes_of(known);
        }
        self.sites = sites;
    }

    fn derive_name(&self, site: &Site) -> Option<String> {
        // A text that is all there is may be empty.
        let has_parts = site.frame != 0 || site.track != 0 || site.purpose != Purpose::Unknown;
        let text = Some(&site.text).filter(|text| site.op == 0 && !(has_parts && text.is_empty()));
        let line = || self.describe_frame(site.frame).map(|line| line.chars().take(MAX_NAME).collect());
        text.cloned().or_else(line).or_else(|| self.ops.get(&site.op).or(self.track(site)).cloned())
    }

    fn derive_program_name(&self, site: &Site) -> Option<String> {
        let op = self.ops.get(&site.op).map(|op| program_name(op));
        let text = || Some(&site.text).filter(|text| !text.is_empty()).cloned();
        op.or_else(text).or_else(|| self.derive_name(site))
    }

    /// A frame as text: `model.py:42 (forward)`.
    fn describe_frame(&self, number: u32) -> Option<String> {
        let frame = self.frames.get(&number)?;
        let path = self.files.get(&frame.file).filter(|path| !path.is_empty());
        let file = path.map_or("?", |path| file_name(path));
        let function = frame.function.as_str();
        Some(match (frame.offset, frame.line, function) {
            (0, 0, "") => path.map(|_| file.to_owned())?,
            (0, line, "") if line != 0 => format!("{file}:{line}"),
            (0, line, _) if line != 0 => format!("{file}:{line} ({function})"),
            (offset, _, "") => format!("{file}+{offset:#x}"),
            _ => format!("{file} ({function})"),
        })
    }

    /// The track that a site is in.
    fn track(&self, site: &Site) -> Option<&String> {
        self.tracks.get(&site.track)
    }

    /// The site with a number.
    pub(crate) fn get(&self, site: u32) -> Option<&Site> {
        self.sites.get(&site).map(|known| &known.site)
    }

    /// The name of a site: `model.py:42 (forward)`.
    pub(crate) fn name(&self, site: u32) -> Option<&String> {
        self.sites.get(&site)?.name.as_ref()
    }

    /// The line of a site: `model.py:42 (forward)`.
    pub(crate) fn line(&self, site: u32) -> Option<String> {
        self.describe_frame(self.get(site)?.frame)
    }

    /// The name of a program by its site: its operation, as `matmul`.
    pub(crate) fn program_name(&self, site: u32) -> Option<&String> {
        self.sites.get(&site)?.program.as_ref()
    }

    /// The sites that have a name, by number.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        self.sites.iter().filter_map(|(&number, known)| Some((number, known.name.as_deref()?)))
    }

    /// The names of each site, by number, in which the words of a query are searched: its own, and those of its file, its
    /// operation, its tensor, its track, and what its memory is for.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (u32, String)> {
        self.sites.iter().map(|(&number, KnownSite { site, name, .. })| {
            let file = self.frames.get(&site.frame).and_then(|frame| self.files.get(&frame.file));
            let purpose = Some(site.purpose).filter(|&it| it != Purpose::Unknown).map(Purpose::name);
            let names =
                [name.as_deref(), file.map(String::as_str), purpose, self.op(number).map(String::as_str)];
            let tensor = site.tensor.map(|tensor| tensor.to_string());
            let more = [tensor.as_deref(), self.track(site).map(String::as_str)];
            let texts: Vec<&str> = names.into_iter().chain(more).flatten().collect();
            // Words have no spaces, so none is found across two texts.
            (number, texts.join(" "))
        })
    }

    /// The operation of a site, as the program called it.
    pub(crate) fn op(&self, site: u32) -> Option<&String> {
        self.ops.get(&self.get(site)?.op)
    }

    /// The kernels of the program of a site, if it is named by its operation.
    pub(crate) fn kernels(&self, site: u32) -> Option<&String> {
        let named = self.get(site).filter(|site| self.ops.contains_key(&site.op));
        named.map(|site| &site.text).filter(|text| !text.is_empty())
    }

    /// What is known about a site.
    pub(crate) fn origin(&self, number: u32) -> Origin {
        let Some(site) = self.get(number) else { return Origin::default() };
        let frame = self.frames.get(&site.frame);
        Origin {
            file: frame
                .and_then(|frame| self.files.get(&frame.file))
                .filter(|path| !path.is_empty())
                .cloned(),
            line: frame.map(|frame| frame.line).filter(|&line| line != 0),
            function: frame.map(|frame| frame.function.clone()).filter(|function| !function.is_empty()),
            op: self.ops.get(&site.op).cloned(),
            purpose: Some(site.purpose).filter(|&purpose| purpose != Purpose::Unknown),
            tensor: site.tensor.map(|tensor| tensor.to_string()),
            track: self.track(site).cloned(),
            stack: self.stack(number),
        }
    }

    /// The group of each site: the first site that has the same key. Sites that have no key have no group.
    pub(crate) fn groups(&self, by: SiteKey) -> Vec<(u32, u32)> {
        let mut first: BTreeMap<Key<'_>, u32> = BTreeMap::new();
        let keyed =
            self.sites.iter().filter_map(|(&number, known)| Some((number, self.key(&known.site, by)?)));
        keyed.map(|(number, key)| (number, *first.entry(key).or_insert(number))).collect()
    }

    fn key<'a>(&'a self, site: &'a Site, by: SiteKey) -> Option<Key<'a>> {
        let frame = self.frames.get(&site.frame);
        let is_text = site.frame == 0 && site.op == 0 && site.track == 0;
        let text = if is_text { site.text.as_str() } else { "" };
        let purpose = special_purpose(site).unwrap_or_default();
        let key = match by {
            SiteKey::Line if site.frame != 0 => Some(([site.frame, 0], "", None)),
            SiteKey::Line if site.op != 0 || !text.is_empty() => Some(([0, site.op], text, None)),
            // A program that reports by itself may name nothing but the track.
            SiteKey::Line | SiteKey::LineAndOp if site.track != 0 => {
                Some(([0, 0], self.track(site).map_or("", String::as_str), None))
            }
            // Of one line and operation, the tensor is apart from the kernels.
            SiteKey::LineAndOp if site.frame != 0 || site.op != 0 => {
                Some(([site.frame, site.op], purpose, None))
            }
            SiteKey::LineAndOp if !text.is_empty() => Some(([0, 0], text, None)),
            SiteKey::Line | SiteKey::LineAndOp => None,
            SiteKey::Op => (site.op != 0).then_some(([site.op, 0], "", None)),
            SiteKey::Function => frame.map(|frame| ([frame.file, 0], frame.function.as_str(), None)),
            SiteKey::File => frame.map(|frame| ([frame.file, 0], "", None)),
            SiteKey::Tensor => site.tensor.map(|tensor| ([0, 0], "", Some(tensor))),
            SiteKey::Track => (site.track != 0).then_some(([site.track, 0], "", None)),
        };
        // A second number sets these apart from texts.
        key.or_else(|| Some(([0, u32::MAX], special_purpose(site)?, None)))
    }

    /// What the sites of a group have in common, if that is not their name.
    pub(crate) fn label(&self, site: u32, by: SiteKey) -> Option<String> {
        let origin = self.origin(site);
        let label = match by {
            SiteKey::Line | SiteKey::LineAndOp if self.name(site).is_some() => return None,
            SiteKey::Line | SiteKey::LineAndOp => None,
            SiteKey::Op => origin.op,
            SiteKey::Function if origin.function.is_none() && origin.file.is_none() => None,
            SiteKey::Function => {
                let file = origin.file.as_deref().map_or("?", file_name);
                Some(format!("{} ({file})", origin.function.as_deref().unwrap_or("?")))
            }
            SiteKey::File => origin.file,
            SiteKey::Tensor => origin.tensor,
            SiteKey::Track => origin.track,
        };
        label.or_else(|| Some(special_purpose(self.get(site)?)?.to_owned()))
    }

    /// The frames of a site's stack as text, innermost first.
    fn stack(&self, site: u32) -> Vec<String> {
        let stack = self.get(site).map_or(0, |site| site.stack);
        let described = self.stack_frames(stack).filter_map(|frame| self.describe_frame(frame));
        described.take(MAX_STACK).collect()
    }

    /// The numbers of the frames of a stack, innermost first.
    fn stack_frames(&self, stack: u32) -> impl Iterator<Item = u32> {
        let parts = std::iter::successors(self.stacks.get(&stack), |part| self.stacks.get(&part.parent));
        // A stack that contains itself would never end.
        parts
            .take_while(|part| !part.frames.is_empty())
            .take(MAX_STACK)
            .flat_map(|part| part.frames.iter().copied())
    }
}

/// The purpose of memory that is not that of a tensor.
fn special_purpose(site: &Site) -> Option<&'static str> {
    let is_special = !matches!(site.purpose, Purpose::Tensor | Purpose::Unknown);
    is_special.then(|| site.purpose.name())
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// A device operation as a word: `BinaryNgDeviceOperation` as `binary_ng`.
fn program_name(op: &str) -> String {
    if op.contains('.') {
        return op.to_owned();
    }
    let mut stripped = SUFFIXES.iter().filter_map(|suffix| op.strip_suffix(suffix));
    let name = stripped.find(|name| !name.is_empty()).unwrap_or(op);
    let mut word = String::new();
    let letters: Vec<char> = name.chars().collect();
    for (n, &letter) in letters.iter().enumerate() {
        let follows_lower = n > 0 && letters[n - 1].is_lowercase();
        let precedes_lower = letters.get(n + 1).is_some_and(|next| next.is_lowercase());
        let starts_word = letter.is_uppercase() && n > 0 && (follows_lower || precedes_lower);
        if starts_word && !word.ends_with('_') {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_operations_become_words() {
        for (op, word) in [
            ("MatmulDeviceOperation", "matmul"),
            ("BinaryNgDeviceOperation", "binary_ng"),
            ("SDPADecodeDeviceOperation", "sdpa_decode"),
            ("InterleavedToShardedDeviceOperation", "interleaved_to_sharded"),
            ("Conv2dDeviceOperation", "conv2d"),
            ("UpdateKVCacheOperation", "update_kv_cache"),
            ("Pool2D", "pool2d"),
            ("accumulation", "accumulation"),
            ("DeviceOperation", "device"),
            ("ttnn.matmul", "ttnn.matmul"),
        ] {
            assert_eq!(program_name(op), word);
        }
    }

    #[test]
    fn names_follow_later_definitions() {
        let mut sites = Sites::default();
        let frame = |function: &str| Frame { file: 1, line: 42, offset: 0, function: function.to_owned() };
        let site = Site { frame: 1, op: 7, text: "reader+writer".to_owned(), ..Site::default() };
        for definition in [
            SiteDefinition::Site(3, site),
            SiteDefinition::File(1, "/home/me/model.py".to_owned()),
            SiteDefinition::Frame(1, frame("forward")),
        ] {
            assert!(sites.define(definition, 9));
        }
        assert_eq!(sites.program_name(3).map(String::as_str), Some("reader+writer"));
        assert_eq!(sites.kernels(3), None, "the name has them");
        sites.define(SiteDefinition::Op(7, "MatmulDeviceOperation".to_owned()), 9);
        assert_eq!(sites.name(3).map(String::as_str), Some("model.py:42 (forward)"));
        assert_eq!(sites.program_name(3).map(String::as_str), Some("matmul"));
        assert_eq!(sites.kernels(3).map(String::as_str), Some("reader+writer"));
        sites.define(SiteDefinition::Frame(1, frame("Layer.forward")), 9);
        assert_eq!(sites.name(3).map(String::as_str), Some("model.py:42 (Layer.forward)"));
    }

    #[test]
    fn unknown_parts_of_a_frame_are_left_out() {
        let mut sites = Sites::default();
        for (number, path) in [(1, "/home/me/model.py"), (2, "")] {
            sites.define(SiteDefinition::File(number, path.to_owned()), 9);
        }
        for (file, line, offset, function, expected) in [
            (1, 42, 0, "forward", Some("model.py:42 (forward)")),
            (1, 42, 0, "", Some("model.py:42")),
            (1, 0, 0, "forward", Some("model.py (forward)")),
            (1, 0, 0x40, "", Some("model.py+0x40")),
            (1, 0, 0, "", Some("model.py")),
            (2, 0, 0, "", None),
            (9, 7, 0, "run", Some("?:7 (run)")),
        ] {
            sites.define(
                SiteDefinition::Frame(1, Frame { file, line, offset, function: function.to_owned() }),
                9,
            );
            assert_eq!(sites.describe_frame(1).as_deref(), expected);
        }
    }

    #[test]
    fn stack_that_contains_itself_ends() {
        let mut sites = Sites::default();
        for definition in [
            SiteDefinition::File(1, "m.py".to_owned()),
            SiteDefinition::Frame(1, Frame { file: 1, line: 1, ..Frame::default() }),
            SiteDefinition::Stack { number: 1, parent: 2, frames: vec![1, 1] },
            SiteDefinition::Stack { number: 2, parent: 1, frames: vec![1] },
            SiteDefinition::Site(1, Site { stack: 1, ..Site::default() }),
        ] {
            assert!(sites.define(definition, 9));
        }
        assert_eq!(sites.stack(1).len(), MAX_STACK);
        let too_many = SiteDefinition::Site(2, Site::default());
        assert!(!sites.define(too_many, 1), "beyond the limit");
    }
}
