//! View 5: every live allocation; or all of a process, a program, a call site together.

use super::Scene;
use crate::canvas::Canvas;
use crate::figure::{KIB, UNKNOWN, about, age, bytes, bytes_or, counted, program_number};
use crate::lists;
use crate::table::{Cell, Table};
use crate::theme::{Part, Theme};
use crate::ui::List;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::detail::BufferGrouping;
use ttmem_core::snapshot::{Allocation, BufferGroup, Buffers};
use ttmem_core::words::{Space, ranges, size};

impl Scene<'_> {
    pub(super) fn buffers(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.shown.snapshot.clone(), self.ui);
        let nothing = Buffers::default();
        let buffers = snapshot.buffers.as_ref().unwrap_or(&nothing);
        let grouped = ui.group.is_some();
        let table = Table {
            list: List::Buffers,
            columns: if grouped { lists::GROUPS } else { lists::BUFFERS },
            place: ui.place(List::Buffers),
            count: lists::count(&snapshot, ui, List::Buffers),
            focused: true,
            hidden: &[],
        };
        let by = match ui.group {
            None => String::new(),
            Some(BufferGrouping::Process) => " by process".to_owned(),
            Some(BufferGrouping::Program) => " by program".to_owned(),
            Some(BufferGrouping::Site) => " by call site".to_owned(),
        };
        let title = format!(
            "Buffers{by}: {}, {} on one chip each, {} asked for",
            counted(buffers.count, "allocation"),
            size(buffers.used_bytes),
            size(buffers.requested_bytes)
        );
        let empty = if snapshot.buffers.is_none() {
            "Looking …"
        } else if table.place.filter.is_empty() {
            "Nothing is allocated by any process that is followed buffer by buffer."
        } else {
            "No allocation fits the filter."
        };
        let first = buffers.offset as usize;
        self.framed(canvas, area, &title, &table, empty, |at, _| {
            let Some(at) = at.checked_sub(first) else { return Vec::new() };
            if grouped {
                buffers.groups.get(at).map_or_else(Vec::new, |it| group_row(it, &ui.theme))
            } else {
                buffers.list.get(at).map_or_else(Vec::new, |it| row(it, &ui.theme))
            }
        });
    }
}

fn space_style(space: Space, theme: &Theme) -> Style {
    theme.part(match space {
        Space::Dram => Part::Dram,
        Space::Trace => Part::Trace,
        Space::L1 | Space::L1Core => Part::L1,
        Space::L1Small => Part::L1Small,
        Space::Cb => Part::Cb,
        Space::Dfb => Part::Dfb,
        Space::Scratch => Part::Scratch,
        Space::Kernel => Part::Kernel,
        Space::Host => return theme.faint,
    })
}

/// What it belongs to, in words: its call site, else its program.
pub(super) fn origin(site: Option<&String>, program: Option<&String>) -> String {
    match (site, program) {
        (Some(site), Some(program)) => format!("{program} · {site}"),
        (Some(it), None) | (None, Some(it)) => it.clone(),
        (None, None) => String::new(),
    }
}

fn row(it: &Allocation, theme: &Theme) -> Vec<Cell> {
    let used = it.allocated_bytes.unwrap_or(it.requested_bytes);
    let pid = lists::pid_text(it.pid, it.reported_pid);
    let layout = match (&it.cores, it.layout.and_then(ttmem_core::words::Layout::title)) {
        (_, Some(layout)) => layout.to_owned(),
        (Some(cores), None) => counted(lists::core_count(cores), "core"),
        (None, None) => UNKNOWN.to_owned(),
    };
    vec![
        Cell::new(about(it.estimated, bytes(used, KIB, 1)), theme.text),
        Cell::new(about(it.estimated, bytes(it.requested_bytes, KIB, 1)), theme.faint),
        Cell::new(it.space.name(), space_style(it.space, theme)),
        // Where it lies nowhere known, its id is no address.
        if it.unplaced { Cell::new(UNKNOWN, theme.faint) } else { Cell::new(it.id.as_str(), theme.text) },
        match &it.indexes[..] {
            [] => Cell::new(UNKNOWN, theme.faint),
            all => Cell::new(ranges(all), theme.text),
        },
        Cell::new(pid, theme.text),
        Cell::new(bytes_or(it.bytes_per_bank, KIB, 1), theme.faint),
        Cell::new(layout, theme.faint),
        Cell::new(age(it.age_seconds), theme.faint),
        Cell::new(it.program.map_or_else(String::new, program_number), theme.faint),
        Cell::new(origin(it.site_name.as_ref(), it.program_name.as_ref()), theme.text),
    ]
}

fn group_row(it: &BufferGroup, theme: &Theme) -> Vec<Cell> {
    let name = origin(it.site_name.as_ref(), it.program_name.as_ref());
    let number =
        it.program.map(|it| format!("program {it}")).or_else(|| it.site.map(|it| format!("site {it}")));
    let what = if name.is_empty() { number.unwrap_or_default() } else { name };
    vec![
        Cell::new(bytes(it.used_bytes, KIB, 1), theme.text),
        Cell::new(bytes(it.requested_bytes, KIB, 1), theme.faint),
        Cell::new(it.count.to_string(), theme.text),
        Cell::new(it.pid.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string()), theme.text),
        Cell::new(it.process_name.as_deref().unwrap_or(UNKNOWN), theme.text),
        it.space
            .map_or_else(|| Cell::new("", theme.faint), |it| Cell::new(it.name(), space_style(it, theme))),
        Cell::new(what, theme.text),
    ]
}
