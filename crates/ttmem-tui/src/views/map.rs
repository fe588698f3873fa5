//! View 4: the cores of a device, coloured by how full their L1 is, and one core with the owner of each address range.

use super::Scene;
use crate::canvas::{Canvas, split_columns, split_rows};
use crate::ui::Target;
use crate::update::selected_core;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ttmem_core::snapshot::{Core, CoreAllocation, CoreClass, Cores, Device, Interval, ProgramUsage};
use ttmem_render::device::index_and_board;
use ttmem_render::format::{DASH, size};
use ttmem_render::site::describe_site;
use ttmem_render::usage::is_gap_certain;
use ttmem_render::{label, other_cores};

/// Widths of a core's cell, from wide screens to narrow ones: at least three digits and a gap.
const CELL_WIDTHS: [u16; 3] = [8, 6, 4];

/// Alignment of allocations in bytes: cells of a multiple of this show where allocations end.
const ALIGNMENT: u64 = 64;

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

/// The character of a class: patterns distinguish classes of similar colours.
fn glyph(class: CoreClass) -> char {
    match class {
        CoreClass::Buffer | CoreClass::Cb => '█',
        CoreClass::L1Small | CoreClass::Dfb | CoreClass::Scratch => '▓',
        CoreClass::KernelConfig | CoreClass::Reserved | CoreClass::Other => '▒',
        CoreClass::Lockstep => '░',
        CoreClass::L1SmallFree | CoreClass::Free => '·',
    }
}

/// The letter of a class, without colours or in ASCII.
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

/// The share of a core's usable L1 that is in use: by programs, buffers, or lock-step.
pub(super) fn used_share(core: &Core) -> Option<f64> {
    let is_usable = |it: &&Interval| !matches!(it.class, CoreClass::Reserved | CoreClass::KernelConfig);
    let usable = core.intervals.iter().filter(is_usable);
    let all: u64 = usable.clone().fold(0, |sum, it| sum.saturating_add(it.bytes));
    let free = usable.filter(|it| matches!(it.class, CoreClass::Free | CoreClass::L1SmallFree));
    let free: u64 = free.fold(0, |sum, it| sum.saturating_add(it.bytes));
    (all > 0).then(|| (all - free) as f64 / all as f64)
}

/// An address range of a core, and its owner.
pub(super) struct OwnedRange<'a> {
    start: u64,
    pub(super) bytes: u64,
    pub(super) class: CoreClass,
    owner: Option<&'a CoreAllocation>,
}

impl OwnedRange<'_> {
    /// The addresses, as `0x01f980-0x020000`.
    pub(super) fn addresses(&self) -> String {
        format!("{:#08x}-{:#08x}", self.start, self.start.saturating_add(self.bytes))
    }

    /// The class of the range and, if it has an owner, program, operation, call site and process.
    pub(super) fn describe(&self) -> String {
        let class = label::core_class(self.class);
        let Some(owner) = self.owner else { return class.to_owned() };
        let program = owner.program.map(|id| match &owner.program_name {
            Some(name) => format!("program {id} {name}"),
            None => format!("program {id}"),
        });
        let name = owner.process_name.as_deref().unwrap_or("unknown process");
        let process = owner.pid.map_or_else(|| name.to_owned(), |pid| format!("{name} (pid {pid})"));
        // The name of a program is its operation.
        let op = owner.op.as_deref().filter(|_| owner.program_name.is_none());
        let site = describe_site(owner.site_name.as_deref(), op, None);
        let parts = [Some(class.to_owned()), program, site, Some(process)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The address ranges of a core in order: its intervals, or the allocations in an interval if they are known.
pub(super) fn owned_ranges<'a>(
    core: &'a Core,
    allocations: &'a [CoreAllocation],
) -> impl Iterator<Item = OwnedRange<'a>> {
    core.intervals.iter().flat_map(move |interval| {
        let Interval { start, bytes, class } = *interval;
        // The allocations are sorted by address; those that start after the interval are skipped.
        let until = allocations.partition_point(|it| it.start < start.saturating_add(bytes));
        let inside = allocations[..until]
            .iter()
            .filter(move |it| it.class == class && it.start.saturating_add(it.bytes) > start);
        let owned = inside.map(|owner| {
            let CoreAllocation { start, bytes, class, .. } = *owner;
            OwnedRange { start, bytes, class, owner: Some(owner) }
        });
        let mut owned = owned.peekable();
        let whole = owned.peek().is_none().then_some(OwnedRange { start, bytes, class, owner: None });
        whole.into_iter().chain(owned)
    })
}

impl Scene<'_> {
    pub(super) fn draw_map(&self, canvas: &mut Canvas, area: Rect) {
        let snapshot = &self.data.snapshot;
        let theme = &self.ui.theme;
        let Some(device) = self.ui.selected_device(snapshot) else {
            canvas.draw_frame(area, "L1 map", false);
            canvas.write(area, 2, 1, super::NO_DEVICE, theme.faint);
            return;
        };
        let name = index_and_board(device);
        let cores = device.cores.as_ref().filter(|cores| !cores.is_empty());
        let Some(cores) = cores else {
            let inside = canvas.draw_frame(area, &format!("L1 of {name}"), true);
            let why = if device.core_layout.is_none() {
                "The core layout of this device is unknown: the agent reports it. Start a process with tracking: \
                 `ttmem run -- python model.py`"
            } else {
                super::LOADING
            };
            canvas.write_paragraph(inside, 1, 0, why, theme.faint);
            return;
        };
        let mut columns: Vec<u8> = cores.iter().map(|it| it.room.x).collect();
        columns.sort_unstable();
        columns.dedup();
        // The grid gets the width it needs, up to three fifths; the selected core gets the rest.
        let wanted = |cell: u16| (columns.len() as u16).saturating_mul(cell) + 6;
        let fits = |&cell: &u16| wanted(cell) <= area.width / 2;
        let cell = CELL_WIDTHS.into_iter().find(fits).unwrap_or(CELL_WIDTHS[2]);
        let (left, right) = split_columns(area, wanted(cell).clamp(38, (area.width * 3 / 5).max(38)));
        self.draw_grid(canvas, left, device, cores, &columns, cell);
        let selected = selected_core(self.ui, self.data);
        let core = selected.and_then(|at| cores.iter().find(|it| (it.room.x, it.room.y) == at));
        match core {
            Some(core) => self.draw_core(canvas, right, device, core),
            None => {
                canvas.draw_frame(right, "Core", false);
            }
        }
    }

    /// Draws all cores of a device, and a legend below them.
    fn draw_grid(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        device: &Device,
        cores: &Cores,
        columns: &[u8],
        cell_width: u16,
    ) {
        let theme = &self.ui.theme;
        let inside = canvas.draw_frame(area, &format!("L1 of {}", index_and_board(device)), true);
        let mut rows: Vec<u8> = cores.iter().map(|it| it.room.y).collect();
        rows.sort_unstable();
        rows.dedup();
        let selected = selected_core(self.ui, self.data);
        // More cores than fit are scrolled to the selected one.
        let fit_columns = usize::from((inside.width.saturating_sub(3)) / cell_width).max(1);
        let room = usize::from(inside.height.saturating_sub(2 + legend_rows(device)));
        let fit_rows = room.max(1);
        let first = |all: &[u8], at: Option<u8>, fit: usize| {
            let at = at.map_or(0, |at| all.partition_point(|&it| it < at));
            at.saturating_sub(fit - 1).min(all.len().saturating_sub(fit))
        };
        let (first_column, first_row) = (
            first(columns, selected.map(|it| it.0), fit_columns),
            first(&rows, selected.map(|it| it.1), fit_rows),
        );
        // Rows are higher, with gaps between them, if they fit.
        let pitch = (room / rows.len().max(1)).clamp(1, 4) as u16;
        for (n, column) in columns.iter().skip(first_column).take(fit_columns).enumerate() {
            let x = 3 + n as u16 * cell_width + (cell_width - 4) / 2;
            canvas.write_right(inside, x, 0, 3, &column.to_string(), theme.faint);
        }
        for (n, row) in rows.iter().skip(first_row).take(fit_rows).enumerate() {
            let y = 1 + n as u16 * pitch + pitch.saturating_sub(2) / 2;
            canvas.write_right(inside, 0, y, 2, &row.to_string(), theme.faint);
        }
        let shares: Vec<Option<f64>> = cores.iter().map(used_share).collect();
        for (core, &share) in cores.iter().zip(&shares) {
            let column = columns.partition_point(|&it| it < core.room.x).checked_sub(first_column);
            let row = rows.partition_point(|&it| it < core.room.y).checked_sub(first_row);
            let (Some(column), Some(row)) = (column, row) else { continue };
            if column >= fit_columns || row >= fit_rows {
                continue;
            }
            let (x, y) = (3 + column as u16 * cell_width, 1 + row as u16 * pitch);
            let is_selected = selected == Some((core.room.x, core.room.y));
            let text = share.map_or_else(|| format!("{DASH:>3}"), |it| format!("{:>3.0}", it * 100.0));
            let mut style = share.map_or(theme.faint, |it| theme.heat(it));
            let cell = Rect {
                x: inside.x.saturating_add(x),
                y: inside.y.saturating_add(y),
                width: cell_width - 1,
                height: pitch.saturating_sub(1).max(1),
            };
            let middle = y + (cell.height - 1) / 2;
            if is_selected {
                style = style.add_modifier(Modifier::BOLD);
                canvas.put(inside, x - 1, middle, '▸', theme.accent);
                canvas.put(inside, x + cell.width, middle, '◂', theme.accent);
            }
            canvas.set_style(cell, style);
            canvas.write(inside, x + (cell.width - 3) / 2, middle, &text, style);
            canvas.add_target(cell, Target::Core(core.room.x, core.room.y));
        }
        self.draw_grid_legend(canvas, inside, device, &shares);
    }

    fn draw_grid_legend(&self, canvas: &mut Canvas, inside: Rect, device: &Device, shares: &[Option<f64>]) {
        let theme = &self.ui.theme;
        let others = other_cores::summaries(&device.other_cores);
        let y = inside.height.saturating_sub(legend_rows(device));
        let shares = || shares.iter().copied().flatten();
        let percent = |share: Option<f64>| {
            share.map_or_else(|| DASH.to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        let (least, most) = (shares().reduce(f64::min), shares().reduce(f64::max));
        let text = format!("usable L1 in use: {} to {}", percent(least), percent(most));
        canvas.write_cut(inside, 1, y, inside.width.saturating_sub(2), &text, theme.faint);
        let mut x = 1;
        for (share, label) in
            [(0.0, "  0"), (0.1, "<25"), (0.3, "<50"), (0.6, "<75"), (0.8, "<90"), (0.95, "90+")]
        {
            x = canvas.write(inside, x, y + 1, label, theme.heat(share)) + 1;
        }
        if let Some(room) = device.tightest_core {
            let how = if is_gap_certain(&room, &device.usage) { "" } else { " or less" };
            let text =
                format!("min free gap {}{how} at {},{} (t)", size(room.free_gap_bytes), room.x, room.y);
            canvas.write_cut(inside, 1, y + 2, inside.width.saturating_sub(2), &text, theme.accent);
        }
        if let Some([long, short]) = others {
            let room = inside.width.saturating_sub(2);
            let text = if long.chars().count() <= usize::from(room) { long } else { short };
            canvas.write_cut(inside, 1, y + 3, room, &text, theme.faint);
        }
    }

    /// Draws one core: its program, its free gap, a map of its addresses, a legend and the owners of ranges.
    fn draw_core(&self, canvas: &mut Canvas, area: Rect, device: &Device, core: &Core) {
        let theme = &self.ui.theme;
        let inside = canvas.draw_frame(area, &format!("Core {},{}", core.room.x, core.room.y), false);
        let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
        let program = match &core.program {
            Some(program) => {
                let name = program.name.as_deref().unwrap_or("unnamed program");
                let pid = program.pid.map_or_else(String::new, |pid| format!(" of pid {pid}"));
                format!("{name} (program {}{pid})", program.id)
            }
            None => "no active program".to_owned(),
        };
        canvas.write_cut(inside, 0, 0, inside.width, &program, theme.text);
        let room = &core.room;
        let how = if is_gap_certain(room, &device.usage) { "free gap" } else { "free gap at most" };
        let gap = format!(
            "{how} {}: {:#x} to {:#x}",
            size(room.free_gap_bytes),
            room.program_end,
            room.lowest_buffer
        );
        canvas.write_cut(inside, 0, 1, inside.width, &gap, theme.accent);
        let end = core.intervals.last().map_or(0, |it| it.start.saturating_add(it.bytes));
        if end == 0 {
            canvas.write_paragraph(
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
        // The list of owners gets a half if that is enough for it.
        let owners = inside.height.saturating_sub(legend + 2) / 2;
        let owners = if owners < 8 { 0 } else { owners };
        let (map, below) = split_rows(inside, inside.height.saturating_sub(1 + legend + owners).max(3));
        self.draw_addresses(canvas, map, core, end);
        let below = Rect { y: below.y.saturating_add(1), height: below.height.saturating_sub(1), ..below };
        if owners > 0 {
            let (_, list) = split_rows(below, legend + 1);
            self.draw_owners(canvas, list, device, core);
        }
        self.draw_class_legend(canvas, below, device, core, &present);
    }

    fn draw_class_legend(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        device: &Device,
        core: &Core,
        classes: &[CoreClass],
    ) {
        let theme = &self.ui.theme;
        for (y, &class) in classes.iter().enumerate() {
            let y = y as u16;
            let here = core.intervals.iter().filter(|it| it.class == class);
            let bytes: u64 = here.fold(0, |sum, it| sum.saturating_add(it.bytes));
            let (mark, style) = self.class_mark(class);
            for x in 0..2 {
                canvas.put(area, x, y, mark, style);
            }
            canvas.write_cut(area, 3, y, 21, label::core_class(class), theme.faint);
            canvas.write_right(area, 24, y, 11, &size(bytes), theme.text);
            if class == CoreClass::KernelConfig && area.width > 50 {
                let bytes = device.usage.kernel.as_ref().map(ProgramUsage::used_bytes);
                if let Some(bytes) = bytes {
                    let text = format!("{} of kernels on all cores", size(bytes));
                    canvas.write_cut(area, 37, y, area.width - 37, &text, theme.faint);
                }
            }
        }
    }

    /// Draws the address ranges of a core, with the owner of each.
    fn draw_owners(&self, canvas: &mut Canvas, area: Rect, device: &Device, core: &Core) {
        let theme = &self.ui.theme;
        let allocations = self.data.allocations_on(device, core);
        let mut ranges = owned_ranges(core, allocations);
        for y in 0..area.height {
            let Some(range) = ranges.next() else { return };
            if y + 1 == area.height && ranges.next().is_some() {
                canvas.write(area, 0, y, "more: Enter", theme.faint);
                return;
            }
            let x = canvas.write(area, 0, y, &range.addresses(), theme.faint);
            canvas.write_right(area, x, y, 11, &size(range.bytes), theme.text);
            let style = if range.owner.is_some() { theme.text } else { theme.faint };
            canvas.write_cut(area, x + 13, y, area.width.saturating_sub(x + 13), &range.describe(), style);
        }
    }

    /// Character and style of a class.
    fn class_mark(&self, class: CoreClass) -> (char, Style) {
        let theme = &self.ui.theme;
        let plain = self.ui.ascii || !theme.coloured;
        (if plain { letter(class) } else { glyph(class) }, theme.class(class))
    }

    /// Draws a cell for each range of addresses, row by row from address 0. A cell shows its class of the highest rank.
    fn draw_addresses(&self, canvas: &mut Canvas, area: Rect, core: &Core, end: u64) {
        let theme = &self.ui.theme;
        let (label, columns) = (9u16, area.width.saturating_sub(9));
        let rows = area.height;
        if columns < 4 || rows == 0 {
            return;
        }
        let cells = u64::from(columns) * u64::from(rows);
        let cell = end.div_ceil(cells).div_ceil(ALIGNMENT).max(1).saturating_mul(ALIGNMENT);
        let per_row = cell.saturating_mul(u64::from(columns));
        let mut at = 0;
        for y in 0..rows {
            let begin = u64::from(y).saturating_mul(per_row);
            if begin >= end {
                break;
            }
            canvas.write_right(area, 0, y, label - 1, &format!("{begin:#x}"), theme.faint);
            for x in 0..columns {
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
                let class = here.map(|it| it.class).max_by_key(|it| display_rank(*it));
                if let Some(class) = class {
                    let (mark, style) = self.class_mark(class);
                    canvas.put(area, label + x, y, mark, style);
                }
            }
        }
    }
}

/// Rows of the legend below the grid; cores that are not in the grid have one if there are any.
fn legend_rows(device: &Device) -> u16 {
    3 + u16::from(other_cores::summaries(&device.other_cores).is_some())
}

/// The rank of a class in a cell of several classes: buffers and programs come before reserved and free memory.
fn display_rank(class: CoreClass) -> u8 {
    match class {
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
    }
}
