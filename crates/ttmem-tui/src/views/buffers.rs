//! View 5: live allocations, one by one or grouped by process, program, call site, operation or file.

use super::Scene;
use crate::canvas::Canvas;
use crate::lists;
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_core::detail::BufferGrouping;
use ttmem_core::snapshot::Buffers;
use ttmem_render::format::{plural, size};
use ttmem_render::{allocation, group};

impl Scene<'_> {
    pub(super) fn draw_buffers(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.data.snapshot.clone(), self.ui);
        let none = Buffers::default();
        let buffers = snapshot.buffers.as_ref().unwrap_or(&none);
        let grouping = match ui.group {
            None => String::new(),
            Some(BufferGrouping::Process) => " by process".to_owned(),
            Some(BufferGrouping::Program) => " by program".to_owned(),
            Some(BufferGrouping::Site) => " by call site".to_owned(),
            Some(BufferGrouping::Op) => " by operation".to_owned(),
            Some(BufferGrouping::Function) => " by function".to_owned(),
            Some(BufferGrouping::File) => " by file".to_owned(),
            Some(BufferGrouping::Tensor) => " by tensor".to_owned(),
            Some(BufferGrouping::Track) => " by track".to_owned(),
        };
        let withheld = match buffers.hidden_count {
            0 => String::new(),
            count => format!("; {count} of other users withheld, {}", size(buffers.hidden_bytes)),
        };
        let title = format!(
            "Buffers{grouping}: {}, {} allocated, {} requested per device{withheld}",
            plural(buffers.count, "allocation"),
            size(buffers.used_bytes),
            size(buffers.requested_bytes)
        );
        let (state, count) = (ui.list_state(List::Buffers), lists::count(&snapshot, ui, List::Buffers));
        let empty = if snapshot.buffers.is_none() {
            super::LOADING
        } else if buffers.hidden_count > 0 {
            "Allocations of other users are withheld from this user."
        } else if state.filter.is_empty() {
            "No allocations. Start a process: `ttmem run -- python model.py`"
        } else {
            "No allocation matches the filter."
        };
        let first = buffers.offset as usize;
        let (list, focused, hidden, wrapped, branches) = (List::Buffers, true, &[][..], None, None);
        if let Some(grouping) = ui.group {
            let table = Table {
                list,
                columns: group::screen_columns(grouping),
                state,
                count,
                focused,
                hidden,
                wrapped,
                branches,
            };
            let row = |at: usize| {
                let group = buffers.groups.get(at.checked_sub(first)?)?;
                let first_bytes = ui.growth.first_bytes(grouping, &state.filter, group);
                Some(group::Row { group, total_bytes: buffers.used_bytes, first_bytes })
            };
            self.draw_table(canvas, area, &title, &table, empty, row);
        } else {
            let table =
                Table { list, columns: allocation::SCREEN, state, count, focused, hidden, wrapped, branches };
            let row = |at: usize| buffers.list.get(at.checked_sub(first)?);
            self.draw_table(canvas, area, &title, &table, empty, row);
        }
    }
}
