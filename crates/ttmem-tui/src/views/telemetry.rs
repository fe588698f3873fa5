//! View 3: all sensors of all chips, with their limits, and everything else that is known of the chosen one.

use super::Scene;
use super::details::{self, Fact};
use crate::canvas::{Canvas, split_rows};
use crate::figure::{MIB, UNKNOWN, age, reading};
use crate::lists;
use crate::table::{Cell, Table};
use crate::theme::Theme;
use crate::ui::List;
use ratatui::layout::Rect;
use ttmem_core::machine::Sensors;
use ttmem_core::snapshot::Device;

impl Scene<'_> {
    pub(super) fn telemetry(&mut self, canvas: &mut Canvas, area: Rect) {
        let (snapshot, ui) = (self.shown.snapshot.clone(), self.ui);
        let chips = snapshot.devices.len() as u16;
        let (above, below) = split_rows(area, (chips + 3).clamp(4, (area.height * 3 / 5).max(4)));
        let table = Table {
            list: List::Devices,
            columns: lists::TELEMETRY,
            place: ui.place(List::Devices),
            count: snapshot.devices.len(),
            focused: true,
            hidden: &[],
        };
        self.framed(canvas, above, "Sensors", &table, "No device is here.", |at, _| {
            snapshot.devices.get(at).map_or_else(Vec::new, |device| row(device, &ui.theme))
        });
        let Some(device) = ui.chip(&snapshot) else { return };
        let inside = canvas.frame(below, &super::main_view::name(device), false);
        let facts = details::sensors(device);
        two_columns(canvas, inside, &facts);
    }
}

/// Facts beside each other, as far as there is room.
fn two_columns(canvas: &mut Canvas, area: Rect, facts: &[Fact]) {
    let columns = if area.width >= 110 { 2 } else { 1 };
    let width = area.width / columns;
    // Both columns alike, if that is enough.
    let rows = usize::from(area.height).max(1).min(facts.len().div_ceil(usize::from(columns)).max(1));
    for (n, fact) in facts.iter().enumerate().take(rows * usize::from(columns)) {
        let (x, y) = ((n / rows) as u16 * width, (n % rows) as u16);
        let theme = canvas.theme;
        if rows * usize::from(columns) == n + 1 && facts.len() > n + 1 {
            canvas.text(area, x + 1, y, &format!("and {} more: Enter", facts.len() - n), theme.accent);
            break;
        }
        canvas.cut(area, x + 1, y, 18, &fact.label, theme.faint);
        let style = if fact.text.starts_with(UNKNOWN) { theme.faint } else { theme.text };
        canvas.cut(area, x + 20, y, width.saturating_sub(21), &fact.text, style);
    }
}

fn row(device: &Device, theme: &Theme) -> Vec<Cell> {
    let sensors = device.sensors.as_ref();
    let stale = sensors.is_some_and(|it| it.stale);
    let get = |of: fn(&Sensors) -> Option<f64>| sensors.and_then(of);
    let cell = |value: Option<f64>, limit: Option<f64>, places| {
        let style = if stale { theme.faint } else { theme.against(value, limit) };
        Cell::new(reading(value, places), style)
    };
    let limit = |value: Option<f64>, places| Cell::new(reading(value, places), theme.faint);
    let limits = sensors.map(|it| it.limits.clone()).unwrap_or_default();
    let heart = match sensors.and_then(|it| it.heartbeat_beats) {
        Some(true) => Cell::new("beats", theme.good),
        Some(false) => Cell::new("STOPS", theme.bad),
        None => Cell::new(UNKNOWN, theme.faint),
    };
    let trips = sensors.and_then(|it| it.thermal_trips);
    let trips = match trips {
        None => Cell::new(UNKNOWN, theme.faint),
        Some(0) => Cell::new("0", theme.text),
        Some(n) => Cell::new(n.to_string(), theme.bad),
    };
    let pcie = sensors.and_then(|it| it.pcie.as_ref());
    let rate = |parts: [Option<f64>; 2]| {
        let known: Vec<f64> = parts.into_iter().flatten().collect();
        let sum = (!known.is_empty()).then(|| known.iter().sum::<f64>() / MIB as f64);
        Cell::new(reading(sum, 1), if sum.is_some() { theme.text } else { theme.faint })
    };
    let to_chip =
        pcie.map_or([None; 2], |it| [it.host_writes_bytes_per_second, it.chip_reads_bytes_per_second]);
    let to_host =
        pcie.map_or([None; 2], |it| [it.host_reads_bytes_per_second, it.chip_writes_bytes_per_second]);
    let old = sensors.map_or_else(|| UNKNOWN.to_owned(), |it| age(it.age_ms as f64 / 1e3));
    let board = device.board.as_deref().unwrap_or(UNKNOWN);
    vec![
        Cell::new(device.index.to_string(), theme.text),
        Cell::new(format!("{board}{}", if device.remote { " R" } else { "" }), theme.text),
        cell(get(|it| it.asic_celsius), limits.asic_celsius, 1),
        limit(limits.asic_celsius, 0),
        cell(get(|it| it.power_watts), limits.power_watts, 1),
        limit(limits.power_watts, 0),
        cell(get(|it| it.current_amperes), limits.current_amperes, 1),
        limit(limits.current_amperes, 0),
        cell(get(|it| it.vcore_volts), limits.vcore_volts, 3),
        limit(limits.vcore_volts, 3),
        cell(get(|it| it.aiclk_mhz), None, 0),
        cell(get(|it| it.axiclk_mhz), None, 0),
        cell(get(|it| it.arcclk_mhz), None, 0),
        cell(get(|it| it.fan_rpm), None, 0),
        heart,
        trips,
        rate(to_chip),
        rate(to_host),
        Cell::new(old, if stale { theme.warn } else { theme.faint }),
    ]
}
