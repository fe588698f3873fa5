//! View 5: live allocations, one by one or grouped by process, program or call site.

use super::Scene;
use crate::canvas::Canvas;
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_core::detail::BufferGrouping;
use ttmem_core::snapshot::Buffers;
use ttmem_render::allocation;
use ttmem_render::figure::{counted, size};

impl Scene<'_> {
    pub(super) fn buffers(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.shown.snapshot.clone(), self.ui);
        let nothing = Buffers::default();
        let buffers = snapshot.buffers.as_ref().unwrap_or(&nothing);
        let by = match ui.group {
            None => String::new(),
            Some(BufferGrouping::Process) => " by process".to_owned(),
            Some(BufferGrouping::Program) => " by program".to_owned(),
            Some(BufferGrouping::Site) => " by call site".to_owned(),
        };
        let title = format!(
            "Buffers{by}: {}, {} allocated, {} requested per device",
            counted(buffers.count, "allocation"),
            size(buffers.used_bytes),
            size(buffers.requested_bytes)
        );
        let (place, count) = (ui.place(List::Buffers), lists::count(&snapshot, ui, List::Buffers));
        let empty = if snapshot.buffers.is_none() {
            super::LOADING
        } else if place.filter.is_empty() {
            "No allocations. Start a process: `ttmem run -- python model.py`"
        } else {
            "No allocation matches the filter."
        };
        let first = buffers.offset as usize;
        let (list, focused, hidden, wrapped, branches) = (List::Buffers, true, &[][..], None, None);
        if ui.group.is_some() {
            let table = Table {
                list,
                columns: allocation::GROUP_SCREEN,
                place,
                count,
                focused,
                hidden,
                wrapped,
                branches,
            };
            let row = |at: usize| buffers.groups.get(at.checked_sub(first)?);
            self.framed(canvas, area, &title, &table, empty, row);
        } else {
            let table =
                Table { list, columns: allocation::SCREEN, place, count, focused, hidden, wrapped, branches };
            let row = |at: usize| buffers.list.get(at.checked_sub(first)?);
            self.framed(canvas, area, &title, &table, empty, row);
        }
    }
}
