//! The details of a subject as text: figures with their units, or the reason why there is none.

mod buffer;
mod core;
mod device;
mod finding;
mod process;
mod program;

use super::Scene;
use super::main_view::space_notes;
use crate::lists;
use crate::ui::Subject;
pub(super) use device::sensor_facts;
use ttmem_core::snapshot::Usage;
use ttmem_core::words::Space;
use ttmem_render::device::index_and_board;
use ttmem_render::format::{DASH, core_range, percent, size};
use ttmem_render::usage::{kernel_classes, share_of_capacity};
use ttmem_render::{label, usage};

/// The style of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FactTone {
    Plain,
    Good,
    Bad,
    Heading,
}

/// A labelled text; a long one is wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) label: String,
    pub(super) text: String,
    pub(super) tone: FactTone,
}

impl Fact {
    fn good(self) -> Self {
        Self { tone: FactTone::Good, ..self }
    }

    fn bad_if(self, bad: bool) -> Self {
        if bad { Self { tone: FactTone::Bad, ..self } } else { self }
    }
}

fn fact(label: impl Into<String>, text: impl Into<String>) -> Fact {
    Fact { label: label.into(), text: text.into(), tone: FactTone::Plain }
}

fn heading(label: impl Into<String>) -> Fact {
    Fact { label: label.into(), text: String::new(), tone: FactTone::Heading }
}

fn text_or_dash(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| DASH.to_owned())
}

/// The spaces of memory, in the order of the details.
const SPACES: [Space; 10] = [
    Space::Dram,
    Space::Trace,
    Space::L1,
    Space::L1Core,
    Space::L1Small,
    Space::Cb,
    Space::Dfb,
    Space::Scratch,
    Space::Kernel,
    Space::Host,
];

impl Scene<'_> {
    /// The title and the facts of a subject, for a popup with `width` columns.
    pub(super) fn facts_of(&self, subject: &Subject, width: usize) -> (String, Vec<Fact>) {
        let snapshot = &self.data.snapshot;
        let gone = |title: &str| (title.to_owned(), vec![fact("", "It no longer exists.")]);
        match subject {
            Subject::Device(id) => match snapshot.devices.iter().find(|it| it.id == *id) {
                Some(device) => (format!("Device {}", index_and_board(device)), self.device_facts(device)),
                None => gone("Device"),
            },
            Subject::Process(key) => {
                let mut processes = snapshot.processes.iter();
                match processes.find(|it| key.starts_with(&lists::process_key(it))) {
                    Some(process) => {
                        let pid = lists::pid_text(process.pid, process.reported_pid);
                        (format!("Process {pid}"), self.process_facts(process))
                    }
                    None => gone("Process"),
                }
            }
            Subject::Program(key) => {
                let open = snapshot.programs.as_ref().and_then(|it| it.open.as_ref());
                match open.filter(|it| lists::program_key(it) == *key) {
                    Some(row) => (format!("Program {}", row.program.id), self.program_facts(row)),
                    // Its details are requested when it is opened.
                    None if self.data.detail != self.ui.required_detail(self.data) => {
                        ("Program".to_owned(), vec![fact("", super::LOADING)])
                    }
                    None => gone("Program"),
                }
            }
            Subject::Buffer(key) => {
                let listed = snapshot.buffers.iter().flat_map(|it| &it.list);
                let blocks = snapshot.block_maps.iter().flatten().flat_map(|map| &map.blocks);
                let mut buffers = listed.chain(blocks.filter_map(|block| block.allocation.as_ref()));
                match buffers.find(|it| lists::buffer_key(it) == *key) {
                    Some(buffer) => (buffer::title(buffer), buffer::facts(buffer)),
                    None => gone("Allocation"),
                }
            }
            Subject::Finding(key) => {
                match snapshot.findings.iter().find(|it| lists::finding_key(it) == *key) {
                    Some(finding) => ("Finding".to_owned(), self.finding_facts(finding, width)),
                    None => gone("Finding"),
                }
            }
            Subject::Event(sequence) => {
                match snapshot.events.iter().flatten().find(|it| it.sequence == *sequence) {
                    Some(event) => ("Event".to_owned(), self.event_facts(event)),
                    None => gone("Event"),
                }
            }
            Subject::Core(id, x, y) => {
                let device = snapshot.devices.iter().find(|it| it.id == *id);
                let mut cores = device.into_iter().flat_map(|it| it.cores.iter().flat_map(|it| it.iter()));
                match cores.find(|it| (it.room.x, it.room.y) == (*x, *y)) {
                    Some(core) => (format!("Core {x},{y}"), self.core_facts(core, device)),
                    None => gone("Core"),
                }
            }
        }
    }

    /// The index of a device by its id, or the id of a device that is gone.
    fn device_index(&self, id: &str) -> String {
        let device = self.data.snapshot.devices.iter().find(|it| it.id == id);
        device.map_or_else(|| id.to_owned(), |it| it.index.to_string())
    }
}

/// The facts of each space that is in use.
fn space_facts(usage: &Usage) -> impl Iterator<Item = Fact> {
    let used = SPACES.into_iter().filter_map(|space| Some((space, usage.used(space)?.0)));
    used.flat_map(|(space, used)| {
        let share = share_of_capacity(usage, space);
        let share = share.map_or_else(String::new, |share| format!(" ({})", percent(Some(share))));
        let text = format!("{}{share}: {}", size(used), space_notes(usage, space).join(", "));
        let classes = usage::programs(usage, space).map(kernel_classes).unwrap_or_default();
        let classes = classes.into_iter().map(|(class, text)| fact(format!("  {class}"), text));
        [fact(label::space(space), text)].into_iter().chain(classes)
    })
}

fn format_core_ranges(cores: &[[u8; 4]]) -> String {
    match cores {
        [] => "unknown cores".to_owned(),
        all => all.iter().copied().map(core_range).collect::<Vec<_>>().join(" "),
    }
}
