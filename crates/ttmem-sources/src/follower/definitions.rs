//! Emits the definitions in a segment: chips, allocators, sets of cores, and names of programs and call sites.

use super::{AllocatorInfo, Emit, Follower};
use crate::files::SkipReason;
use crate::segment::SegmentFile;
use ttmem_core::CoreSet;
use ttmem_core::input::{Allocator, Banks, Frame, Input, Site, SiteDefinition};
use ttmem_core::machine::{Capacity, CapacityOrigin, Chip, CoreLayout};
use ttmem_core::words::{Arch, ChipId, Space};
use ttmem_types::Purpose;
use ttmem_wire::segment::definition::{self, Definition, parse};
use ttmem_wire::segment::text;
use zerocopy::little_endian::U32;

impl Follower {
    /// Emits what was defined since the last call.
    pub(super) fn emit_definitions(
        &mut self,
        segment: &SegmentFile,
        emit: Emit<'_>,
    ) -> Result<(), SkipReason> {
        let (bytes, used) = segment.definitions(self.blocks_read)?;
        self.blocks_read = used;
        let mut native = Vec::new();
        for definition in parse(&bytes).flatten() {
            match definition {
                Definition::Chip(number, chip) => {
                    let id = match chip.unique_id.get() {
                        0 => ChipId::Ordinal(chip.index.get()),
                        id => ChipId::Unique(id),
                    };
                    self.chips.insert(number, id);
                    emit(Input::Chip(Box::new(to_chip(id, chip))));
                }
                Definition::Allocator(number, banks, chips) => {
                    self.define_allocator(number, banks, chips, emit);
                }
                Definition::Cores(number, words) => {
                    let cores = CoreSet::from_words(words.map(zerocopy::little_endian::U64::get));
                    self.core_counts.insert(number, cores.count() as u16);
                    emit(Input::Cores(self.definition_id(number), cores));
                }
                Definition::Library(number, build_id, path) => {
                    self.define_library(number, build_id, path, segment.uid);
                    emit(Input::Site(Box::new(SiteDefinition::File(self.site_id(number), path.to_owned()))));
                }
                Definition::Frame(number, frame, "") if self.is_in_library(frame) => {
                    native.push((number, *frame));
                }
                Definition::Program(number, name) => emit(Input::ProgramNamed(number, name.to_owned())),
                Definition::Site(..)
                | Definition::File(..)
                | Definition::Frame(..)
                | Definition::Stack(..)
                | Definition::Op(..)
                | Definition::Track(..)
                | Definition::CallSite(..) => {
                    if let Some(definition) = self.to_site_definition(&definition) {
                        emit(Input::Site(Box::new(definition)));
                    }
                }
            }
        }
        self.emit_native_frames(&native, emit);
        Ok(())
    }

    /// A part of the description of call sites, with numbers that are unique among the segments of the process.
    fn to_site_definition(&self, definition: &Definition<'_>) -> Option<SiteDefinition> {
        let id = |number: &U32| self.site_id(number.get());
        Some(match *definition {
            Definition::Site(number, text) => {
                SiteDefinition::Site(self.site_id(number), Site { text: text.to_owned(), ..Site::default() })
            }
            Definition::File(number, path) => SiteDefinition::File(self.site_id(number), path.to_owned()),
            Definition::Op(number, name) => SiteDefinition::Op(self.site_id(number), name.to_owned()),
            Definition::Track(number, name) => SiteDefinition::Track(self.site_id(number), name.to_owned()),
            Definition::Frame(number, frame, function) => {
                let (line, offset, function) = (frame.line.get(), frame.offset.get(), function.to_owned());
                let frame = Frame { file: id(&frame.file), line, offset, function };
                SiteDefinition::Frame(self.site_id(number), frame)
            }
            Definition::Stack(number, parent, frames) => SiteDefinition::Stack {
                number: self.site_id(number),
                parent: self.site_id(parent),
                frames: frames.iter().map(id).collect(),
            },
            Definition::CallSite(number, site, dimensions, text) => {
                let described = Site {
                    frame: id(&site.frame),
                    stack: id(&site.stack),
                    op: id(&site.op),
                    track: id(&site.track),
                    purpose: Purpose::from_number(site.purpose).unwrap_or_default(),
                    tensor: site.tensor(dimensions),
                    text: text.to_owned(),
                };
                SiteDefinition::Site(self.site_id(number), described)
            }
            Definition::Chip(..)
            | Definition::Allocator(..)
            | Definition::Cores(..)
            | Definition::Library(..)
            | Definition::Program(..) => return None,
        })
    }

    fn define_allocator(
        &mut self,
        number: u16,
        banks: &[definition::Banks],
        chips: &[zerocopy::little_endian::U16],
        emit: Emit<'_>,
    ) {
        let chips: Vec<ChipId> =
            chips.iter().filter_map(|chip| self.chips.get(&chip.get()).copied()).collect();
        let mut counts = [0; Space::NUMBERS];
        let mut spaces = Vec::new();
        for defined in banks {
            let Some(space) = Space::from_number(defined.space) else { continue };
            let (banks, base) = (defined.banks.get(), defined.base.get());
            counts[space as usize] = banks;
            spaces.push(Banks { space, banks, base, bytes_per_bank: defined.bytes_per_bank.get() });
        }
        let definition = Allocator { id: self.definition_id(number), chips, spaces };
        self.allocators.insert(number, AllocatorInfo { banks: counts, definition: definition.clone() });
        self.open_allocators.insert(number);
        emit(Input::Allocator(definition));
    }
}

/// A chip as a segment defines it.
fn to_chip(id: ChipId, chip: &definition::Chip) -> Chip {
    let known = |n: u64| (n > 0).then_some(n);
    let (cores, l1) = (chip.cores.get(), chip.l1_bytes_per_core.get());
    let capacity = (chip.dram_bytes.get() > 0 && cores > 0 && l1 > 0).then(|| Capacity {
        dram_bytes: chip.dram_bytes.get(),
        dram_channels: chip.dram_channels.get(),
        dram_bytes_per_channel: chip.dram_bytes_per_channel.get(),
        l1_bytes: l1.saturating_mul(u64::from(cores)),
        cores,
        l1_bytes_per_core: l1,
        dram_allocatable_bytes: known(chip.dram_allocatable.get()),
        l1_allocatable_bytes: known(chip.l1_allocatable.get()),
        origin: CapacityOrigin::Runtime,
    });
    Chip {
        pci: text(&chip.pci).parse().ok(),
        arch: Arch::from_number(chip.arch),
        board: Some(text(&chip.board).to_owned()).filter(|board| !board.is_empty()),
        remote: chip.remote == 1,
        capacity,
        core_layout: core_layout(chip),
        ..Chip::new(id, chip.index.get())
    }
}

/// How the L1 of a core is divided, if the definition has that and it is plausible.
fn core_layout(chip: &definition::Chip) -> Option<CoreLayout> {
    let layout = CoreLayout {
        columns: chip.columns,
        rows: chip.rows,
        kernel_config: u64::from(chip.kernel_config.get()),
        unreserved: u64::from(chip.unreserved.get()),
        end: chip.l1_bytes_per_core.get(),
    };
    let fits = (1..=16).contains(&layout.columns) && (1..=16).contains(&layout.rows);
    let is_ordered = layout.kernel_config <= layout.unreserved && layout.unreserved <= layout.end;
    (fits && is_ordered && layout.end > 0).then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_number_takes_the_space_of_one() {
        let mut follower = Follower::new(0);
        follower.define_allocator(u16::MAX, &[], &[], &mut |_| {});
        assert_eq!(follower.allocators.len(), 1);
    }

    #[test]
    fn implausible_core_layout_is_refused() {
        let layout = |columns, rows, kernel_config: u32, unreserved: u32, end: u64| {
            core_layout(&definition::Chip {
                columns,
                rows,
                kernel_config: kernel_config.into(),
                unreserved: unreserved.into(),
                l1_bytes_per_core: end.into(),
                ..Default::default()
            })
        };
        assert!(layout(8, 8, 35_168, 105_824, 1_499_136).is_some());
        assert!(layout(16, 16, 0, 0, 1).is_some(), "largest grid, nothing reserved");
        for (columns, rows) in [(0, 8), (8, 0), (17, 8), (8, 17), (255, 255)] {
            assert!(layout(columns, rows, 1, 2, 3).is_none(), "{columns} x {rows}");
        }
        assert!(layout(8, 8, 3, 2, 4).is_none(), "kernel config buffer ends before it begins");
        assert!(layout(8, 8, 1, 5, 4).is_none(), "no room behind it");
        assert!(layout(8, 8, 0, 0, 0).is_none(), "not defined");
    }
}
