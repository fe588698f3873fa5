//! View 3: the sensors of all devices with their limits, and the details of the selected one.

use super::Scene;
use super::details::{self, Fact};
use crate::canvas::{Canvas, split_rows};
use crate::table::Table;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_render::device;
use ttmem_render::format::DASH;

impl Scene<'_> {
    pub(super) fn draw_telemetry(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.data.snapshot.clone(), self.ui);
        let count = snapshot.devices.len() as u16;
        let (above, below) = split_rows(area, (count + 3).clamp(4, (area.height * 3 / 5).max(4)));
        let table = Table {
            list: List::Devices,
            columns: device::TELEMETRY,
            state: ui.list_state(List::Devices),
            count: snapshot.devices.len(),
            focused: true,
            hidden: &[],
            wrapped: None,
            branches: None,
        };
        self.draw_table(canvas, above, "Sensors", &table, super::NO_DEVICE, |at| {
            Some(device::Row { snapshot: &snapshot, device: snapshot.devices.get(at)? })
        });
        let Some(device) = ui.selected_device(&snapshot) else { return };
        let inside = canvas.draw_frame(below, &device::index_and_board(device), false);
        let facts = details::sensor_facts(device::Row { snapshot: &snapshot, device });
        draw_facts(canvas, inside, &facts);
    }
}

/// Draws facts in one or two columns, as many as fit.
fn draw_facts(canvas: &mut Canvas, area: Rect, facts: &[Fact]) {
    let columns = if area.width >= 110 { 2 } else { 1 };
    let width = area.width / columns;
    // Both columns have the same number of rows, if all facts fit so.
    let rows = usize::from(area.height).max(1).min(facts.len().div_ceil(usize::from(columns)).max(1));
    for (n, fact) in facts.iter().enumerate().take(rows * usize::from(columns)) {
        let (x, y) = ((n / rows) as u16 * width, (n % rows) as u16);
        let theme = canvas.theme;
        if rows * usize::from(columns) == n + 1 && facts.len() > n + 1 {
            canvas.write(area, x + 1, y, &format!("and {} more: Enter", facts.len() - n), theme.accent);
            break;
        }
        canvas.write_cut(area, x + 1, y, 18, &fact.label, theme.faint);
        let style = match fact.tone {
            details::FactTone::Bad => theme.bad,
            _ if fact.text.starts_with(DASH) => theme.faint,
            _ => theme.text,
        };
        canvas.write_cut(area, x + 20, y, width.saturating_sub(21), &fact.text, style);
    }
}
