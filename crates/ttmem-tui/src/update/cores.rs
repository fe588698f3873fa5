//! The selected core of the L1 map.

use crate::data::Data;
use crate::keys::Action;
use crate::ui::Ui;

/// The core that the user selected, or else the one with the smallest free gap.
pub(crate) fn selected_core(ui: &Ui, data: &Data) -> Option<(u8, u8)> {
    let device = ui.selected_device(&data.snapshot)?;
    let cores = device.cores.as_ref();
    let selected = ui.core.filter(|&(x, y)| {
        cores.is_none_or(|cores| cores.is_empty() || cores.iter().any(|it| (it.room.x, it.room.y) == (x, y)))
    });
    let first = || cores.and_then(|cores| cores.first()).map(|it| (it.room.x, it.room.y));
    selected.or_else(|| device.tightest_core.map(|room| (room.x, room.y))).or_else(first)
}

/// Moves the selection to another core.
pub(super) fn move_selection(ui: &mut Ui, data: &Data, action: Action) {
    let Some(device) = ui.selected_device(&data.snapshot) else { return };
    let Some(cores) = &device.cores else { return };
    let Some((x, y)) = selected_core(ui, data) else { return };
    let (mut columns, mut rows): (Vec<u8>, Vec<u8>) = cores.iter().map(|it| (it.room.x, it.room.y)).unzip();
    for numbers in [&mut columns, &mut rows] {
        numbers.sort_unstable();
        numbers.dedup();
    }
    let step = |all: &[u8], at: u8, forward: bool| {
        let at = all.partition_point(|&it| it < at);
        let to = if forward { (at + 1).min(all.len().saturating_sub(1)) } else { at.saturating_sub(1) };
        all.get(to).copied().unwrap_or(0)
    };
    ui.core = Some(match action {
        Action::Left => (step(&columns, x, false), y),
        Action::Right => (step(&columns, x, true), y),
        Action::Up => (x, step(&rows, y, false)),
        Action::Down => (x, step(&rows, y, true)),
        Action::First => (columns.first().copied().unwrap_or(x), y),
        Action::Last => (columns.last().copied().unwrap_or(x), y),
        Action::PageUp => (x, rows.first().copied().unwrap_or(y)),
        _ => (x, rows.last().copied().unwrap_or(y)),
    });
}
