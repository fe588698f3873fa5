//! View 4: the cores of a device, coloured by how full their L1 is, and one core with the owner of each address range.

use super::Scene;
use crate::canvas::{Canvas, split_columns, split_rows};
use crate::theme::Theme;
use crate::ui::Target;
use crate::update::core_at;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ttmem_core::snapshot::{Core, CoreAllocation, CoreClass, Cores, Device, Interval};
use ttmem_render::device::number_and_board;
use ttmem_render::figure::{DASH, size};
use ttmem_render::label;
use ttmem_render::usage::is_gap_certain;

/// A core's cell: three digits and a gap, and wider where there is room.
const CELLS: [u16; 3] = [8, 6, 4];

/// Memory is handed out in steps of this: a cell of such steps shows where things really end.
const STEP: u64 = 64;

/// Classes in the order of the legend.
const CLASSES: [CoreClass; 10] = [
    CoreClass::Buffer,
    CoreClass::L1Small,
    CoreClass::Cb,
    CoreClass::Dfb,
    CoreClass::Scratch,
    CoreClass::KernelConfig,
    CoreClass::Lockstep,
    CoreClass::Reserved,
    CoreClass::L1SmallFree,
    CoreClass::Free,
];

/// The character of a class: patterns distinguish classes where colours do not.
fn glyph(class: CoreClass) -> char {
    match class {
        CoreClass::Buffer | CoreClass::Cb => '█',
        CoreClass::L1Small | CoreClass::Dfb | CoreClass::Scratch => '▓',
        CoreClass::KernelConfig | CoreClass::Reserved | CoreClass::Other => '▒',
        CoreClass::Lockstep => '░',
        CoreClass::L1SmallFree | CoreClass::Free => '·',
    }
}

/// Without colours and shades: a letter.
fn letter(class: CoreClass) -> char {
    match class {
        CoreClass::Reserved | CoreClass::Other => 'R',
        CoreClass::KernelConfig => 'K',
        CoreClass::Buffer => 'B',
        CoreClass::L1Small => 'S',
        CoreClass::Cb => 'C',
        CoreClass::Dfb => 'D',
        CoreClass::Scratch => 'P',
        CoreClass::Lockstep => 'o',
        CoreClass::L1SmallFree | CoreClass::Free => '.',
    }
}

/// How much of what programs and buffers can use is taken, by either or in lock-step.
pub(super) fn fill(core: &Core) -> Option<f64> {
    let is_ours = |it: &&Interval| !matches!(it.class, CoreClass::Reserved | CoreClass::KernelConfig);
    let usable = core.intervals.iter().filter(is_ours);
    let all: u64 = usable.clone().fold(0, |sum, it| sum.saturating_add(it.bytes));
    let free = usable.filter(|it| matches!(it.class, CoreClass::Free | CoreClass::L1SmallFree));
    let free: u64 = free.fold(0, |sum, it| sum.saturating_add(it.bytes));
    (all > 0).then(|| (all - free) as f64 / all as f64)
}

/// A range of addresses of a core, and its owner.
pub(super) struct OwnedRange<'a> {
    start: u64,
    pub(super) bytes: u64,
    pub(super) class: CoreClass,
    owner: Option<&'a CoreAllocation>,
}

impl OwnedRange<'_> {
    /// `0x01f980-0x020000`.
    pub(super) fn place(&self) -> String {
        format!("{:#08x}-{:#08x}", self.start, self.start.saturating_add(self.bytes))
    }

    /// The class of the range; if it has an owner: the program, the call site and the process.
    pub(super) fn describe(&self) -> String {
        let class = label::core_class(self.class);
        let Some(it) = self.owner else { return class.to_owned() };
        let program = it.program.map(|id| match &it.program_name {
            Some(name) => format!("program {id} {name}"),
            None => format!("program {id}"),
        });
        let name = it.process_name.as_deref().unwrap_or("unknown process");
        let process = it.pid.map_or_else(|| name.to_owned(), |pid| format!("{name} (pid {pid})"));
        let parts = [Some(class.to_owned()), program, it.site_name.clone(), Some(process)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The intervals of a core in order; in place of one with known allocations, these.
pub(super) fn ranges<'a>(
    core: &'a Core,
    allocations: &'a [CoreAllocation],
) -> impl Iterator<Item = OwnedRange<'a>> {
    core.intervals.iter().flat_map(move |it| {
        let end = it.start.saturating_add(it.bytes);
        // The list is by address, and what begins behind the interval is not in it.
        let until = allocations.partition_point(|of| of.start < end);
        let inside = allocations[..until]
            .iter()
            .filter(move |of| of.class == it.class && of.start.saturating_add(of.bytes) > it.start);
        let owned = inside.map(|of| OwnedRange {
            start: of.start,
            bytes: of.bytes,
            class: of.class,
            owner: Some(of),
        });
        let mut owned = owned.peekable();
        let alone = OwnedRange { start: it.start, bytes: it.bytes, class: it.class, owner: None };
        let alone = owned.peek().is_none().then_some(alone);
        alone.into_iter().chain(owned)
    })
}

impl Scene<'_> {
    pub(super) fn map(&self, canvas: &mut Canvas, area: Rect) {
        let snapshot = &self.shown.snapshot;
        let theme = &self.ui.theme;
        let Some(device) = self.ui.chip(snapshot) else {
            canvas.frame(area, "L1 map", false);
            canvas.text(area, 2, 1, super::NO_DEVICE, theme.faint);
            return;
        };
        let name = number_and_board(device);
        let cores = device.cores.as_ref().filter(|it| !it.is_empty());
        let Some(cores) = cores else {
            let inside = canvas.frame(area, &format!("L1 of {name}"), true);
            let why = if device.core_layout.is_none() {
                "The core layout of this device is unknown: the agent reports it. Start a process with tracking: \
                 `ttmem run -- python model.py`"
            } else {
                super::LOADING
            };
            canvas.paragraph(inside, 1, 0, why, theme.faint);
            return;
        };
        let mut columns: Vec<u8> = cores.iter().map(|it| it.room.x).collect();
        columns.sort_unstable();
        columns.dedup();
        // The opened core needs a column of its own; the grid gets what it takes, up to a half and a bit.
        let wanted = |cell: u16| (columns.len() as u16).saturating_mul(cell) + 6;
        let cell = CELLS.into_iter().find(|&cell| wanted(cell) <= area.width / 2).unwrap_or(CELLS[2]);
        let (left, right) = split_columns(area, wanted(cell).clamp(38, (area.width * 3 / 5).max(38)));
        self.grid(canvas, left, device, cores, &columns, cell);
        let chosen = core_at(self.ui, self.shown);
        let core = chosen.and_then(|at| cores.iter().find(|it| (it.room.x, it.room.y) == at));
        match core {
            Some(core) => self.core(canvas, right, device, core),
            None => {
                canvas.frame(right, "Core", false);
            }
        }
    }

    /// All cores of a chip.
    fn grid(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        device: &Device,
        cores: &Cores,
        columns: &[u8],
        wide: u16,
    ) {
        let theme = &self.ui.theme;
        let inside = canvas.frame(area, &format!("L1 of {}", number_and_board(device)), true);
        let mut rows: Vec<u8> = cores.iter().map(|it| it.room.y).collect();
        rows.sort_unstable();
        rows.dedup();
        let chosen = core_at(self.ui, self.shown);
        let (mut most, mut least): (Option<f64>, Option<f64>) = (None, None);
        // More cores than fit are moved so that the chosen one is seen.
        let fit_columns = usize::from((inside.width.saturating_sub(3)) / wide).max(1);
        let fit_rows = usize::from(inside.height.saturating_sub(5)).max(1);
        let place = |all: &[u8], at: Option<u8>, fit: usize| {
            let at = at.map_or(0, |at| all.partition_point(|&it| it < at));
            at.saturating_sub(fit - 1).min(all.len().saturating_sub(fit))
        };
        let (first_column, first_row) = (
            place(columns, chosen.map(|it| it.0), fit_columns),
            place(&rows, chosen.map(|it| it.1), fit_rows),
        );
        // Air between the rows, and higher ones, where there is room for it.
        let pitch = (usize::from(inside.height.saturating_sub(5)) / rows.len().max(1)).clamp(1, 4) as u16;
        for (n, column) in columns.iter().skip(first_column).take(fit_columns).enumerate() {
            let x = 3 + n as u16 * wide + (wide - 4) / 2;
            canvas.right(inside, x, 0, 3, &column.to_string(), theme.faint);
        }
        for (n, row) in rows.iter().skip(first_row).take(fit_rows).enumerate() {
            let y = 1 + n as u16 * pitch + pitch.saturating_sub(2) / 2;
            canvas.right(inside, 0, y, 2, &row.to_string(), theme.faint);
        }
        for core in cores {
            let share = fill(core);
            if let Some(share) = share {
                most = Some(most.map_or(share, |it| it.max(share)));
                least = Some(least.map_or(share, |it| it.min(share)));
            }
            let column = columns.partition_point(|&it| it < core.room.x).checked_sub(first_column);
            let row = rows.partition_point(|&it| it < core.room.y).checked_sub(first_row);
            let (Some(column), Some(row)) = (column, row) else { continue };
            if column >= fit_columns || row >= fit_rows {
                continue;
            }
            let (x, y) = (3 + column as u16 * wide, 1 + row as u16 * pitch);
            let is_chosen = chosen == Some((core.room.x, core.room.y));
            let text = share.map_or_else(|| format!("{DASH:>3}"), |it| format!("{:>3.0}", it * 100.0));
            let mut style = share.map_or(theme.faint, |it| theme.heat(it));
            let cell = Rect {
                x: inside.x.saturating_add(x),
                y: inside.y.saturating_add(y),
                width: wide - 1,
                height: pitch.saturating_sub(1).max(1),
            };
            let middle = y + (cell.height - 1) / 2;
            if is_chosen {
                style = style.add_modifier(Modifier::BOLD);
                canvas.put(inside, x - 1, middle, '▸', theme.accent);
                canvas.put(inside, x + cell.width, middle, '◂', theme.accent);
            }
            canvas.tint(cell, style);
            canvas.text(inside, x + (cell.width - 3) / 2, middle, &text, style);
            canvas.target(cell, Target::Core(core.room.x, core.room.y));
        }
        let y = inside.height.saturating_sub(3);
        let percent =
            |it: Option<f64>| it.map_or_else(|| DASH.to_owned(), |it| format!("{:.0} %", it * 100.0));
        let text = format!("usable L1 in use: {} to {}", percent(least), percent(most));
        canvas.cut(inside, 1, y, inside.width.saturating_sub(2), &text, theme.faint);
        let mut x = 1;
        for (share, label) in
            [(0.0, "  0"), (0.1, "<25"), (0.3, "<50"), (0.6, "<75"), (0.8, "<90"), (0.95, "90+")]
        {
            x = canvas.text(inside, x, y + 1, label, theme.heat(share)) + 1;
        }
        if let Some(room) = device.tightest_core {
            let how = if is_gap_certain(&room, &device.usage) { "" } else { " or less" };
            let text =
                format!("min free gap {}{how} at {},{} (t)", size(room.free_gap_bytes), room.x, room.y);
            canvas.cut(inside, 1, y + 2, inside.width.saturating_sub(2), &text, theme.accent);
        }
    }

    /// One core, from its first address to its last.
    fn core(&self, canvas: &mut Canvas, area: Rect, device: &Device, core: &Core) {
        let theme = &self.ui.theme;
        let inside = canvas.frame(area, &format!("Core {},{}", core.room.x, core.room.y), false);
        let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
        let program = match &core.program {
            Some(it) => {
                let name = it.name.as_deref().unwrap_or("unnamed program");
                let pid = it.pid.map_or_else(String::new, |pid| format!(" of pid {pid}"));
                format!("{name} (program {}{pid})", it.id)
            }
            None => "no active program".to_owned(),
        };
        canvas.cut(inside, 0, 0, inside.width, &program, theme.text);
        let room = &core.room;
        let how = if is_gap_certain(room, &device.usage) { "free gap" } else { "free gap at most" };
        let gap = format!(
            "{how} {}: {:#x} to {:#x}",
            size(room.free_gap_bytes),
            room.program_end,
            room.lowest_buffer
        );
        canvas.cut(inside, 0, 1, inside.width, &gap, theme.accent);
        let end = core.intervals.last().map_or(0, |it| it.start.saturating_add(it.bytes));
        if end == 0 {
            canvas.paragraph(
                inside,
                0,
                3,
                "Address ranges unknown: too many, or none reported.",
                theme.faint,
            );
            return;
        }
        let present: Vec<CoreClass> =
            CLASSES.into_iter().filter(|class| core.intervals.iter().any(|it| it.class == *class)).collect();
        let legend = present.len() as u16;
        let inside = Rect { y: inside.y + 3, height: inside.height.saturating_sub(3), ..inside };
        // Owners get what the map does not need.
        let owners = inside.height.saturating_sub(legend + 2) / 2;
        let owners = if owners < 8 { 0 } else { owners };
        let (map, below) = split_rows(inside, inside.height.saturating_sub(1 + legend + owners).max(3));
        self.addresses(canvas, map, core, end);
        let below = Rect { y: below.y.saturating_add(1), height: below.height.saturating_sub(1), ..below };
        if owners > 0 {
            let (_, list) = split_rows(below, legend + 1);
            self.owners(canvas, list, device, core);
        }
        for (y, class) in present.into_iter().enumerate() {
            let y = y as u16;
            let here = core.intervals.iter().filter(|it| it.class == class);
            let bytes: u64 = here.fold(0, |sum, it| sum.saturating_add(it.bytes));
            let (mark, style) = self.ink(class);
            for x in 0..2 {
                canvas.put(below, x, y, mark, style);
            }
            canvas.cut(below, 3, y, 21, label::core_class(class), theme.faint);
            canvas.right(below, 24, y, 11, &size(bytes), theme.text);
            if class == CoreClass::KernelConfig && below.width > 50 {
                let bytes = device.usage.kernel.as_ref().map(ttmem_core::snapshot::ProgramUsage::used_bytes);
                if let Some(bytes) = bytes {
                    canvas.cut(
                        below,
                        37,
                        y,
                        below.width - 37,
                        &format!("{} of kernels on all cores", size(bytes)),
                        theme.faint,
                    );
                }
            }
        }
    }

    /// The address ranges of a core, with the owner of each.
    fn owners(&self, canvas: &mut Canvas, area: Rect, device: &Device, core: &Core) {
        let theme = &self.ui.theme;
        let allocations = self.shown.allocations_on(device, core);
        let mut ranges = ranges(core, allocations);
        for y in 0..area.height {
            let Some(range) = ranges.next() else { return };
            if y + 1 == area.height && ranges.next().is_some() {
                canvas.text(area, 0, y, "more: Enter", theme.faint);
                return;
            }
            let x = canvas.text(area, 0, y, &range.place(), theme.faint);
            canvas.right(area, x, y, 11, &size(range.bytes), theme.text);
            let style = if range.owner.is_some() { theme.text } else { theme.faint };
            canvas.cut(area, x + 13, y, area.width.saturating_sub(x + 13), &range.describe(), style);
        }
    }

    fn ink(&self, class: CoreClass) -> (char, Style) {
        let theme: &Theme = &self.ui.theme;
        let plain = self.ui.ascii || !theme.coloured;
        (if plain { letter(class) } else { glyph(class) }, theme.class(class))
    }

    /// Cells for stretches of addresses, row by row from address 0 up. Of what lies in a cell the strongest shows.
    fn addresses(&self, canvas: &mut Canvas, area: Rect, core: &Core, end: u64) {
        let theme = &self.ui.theme;
        let (label, wide) = (9u16, area.width.saturating_sub(9));
        let rows = area.height;
        if wide < 4 || rows == 0 {
            return;
        }
        let cells = u64::from(wide) * u64::from(rows);
        let cell = end.div_ceil(cells).div_ceil(STEP).max(1).saturating_mul(STEP);
        let per_row = cell.saturating_mul(u64::from(wide));
        let mut at = 0;
        for y in 0..rows {
            let begin = u64::from(y).saturating_mul(per_row);
            if begin >= end {
                break;
            }
            canvas.right(area, 0, y, label - 1, &format!("{begin:#x}"), theme.faint);
            for x in 0..wide {
                let from = begin.saturating_add(u64::from(x).saturating_mul(cell));
                let to = from.saturating_add(cell).min(end);
                if from >= end {
                    break;
                }
                while core.intervals.get(at).is_some_and(|it| it.start.saturating_add(it.bytes) <= from) {
                    at += 1;
                }
                let here =
                    core.intervals[at.min(core.intervals.len())..].iter().take_while(|it| it.start < to);
                // The order of classes is the order of strength, but reserved memory is no news.
                let strength = |class: CoreClass| match class {
                    CoreClass::Buffer => 9,
                    CoreClass::Cb => 8,
                    CoreClass::Dfb => 7,
                    CoreClass::Scratch => 6,
                    CoreClass::L1Small => 5,
                    CoreClass::KernelConfig => 4,
                    CoreClass::Reserved | CoreClass::Other => 3,
                    CoreClass::Lockstep => 2,
                    CoreClass::L1SmallFree => 1,
                    CoreClass::Free => 0,
                };
                let class = here.map(|it| it.class).max_by_key(|it| strength(*it));
                if let Some(class) = class {
                    let (mark, style) = self.ink(class);
                    canvas.put(area, label + x, y, mark, style);
                }
            }
        }
    }
}
