//! View 8: memory of one space by process, call, operation and tensor. The root is above; the width of a frame is its bytes.

use super::Scene;
use crate::canvas::{Canvas, split_rows, wrap};
use crate::flame::ShownFlame;
use crate::theme::flame_colours;
use crate::ui::Target;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use std::collections::BTreeMap;
use ttmem_core::snapshot::{FlameMoment, FrameKind};
use ttmem_render::device::index_and_board;
use ttmem_render::flame::{FlameNode, describe_gaps, moment_name, space_name};
use ttmem_render::format::{DASH, percent, plural, size};

/// Most rows of text that one frame takes: its name and its size.
const MAX_HEIGHT: u16 = 2;
/// Names in less room would be a letter or two.
const MIN_NAME: u16 = 4;
/// Least rows of the list of frames: a blank one, the header, and two frames.
const MIN_LIST: u16 = 4;
/// Rows of that list for which frames are kept to one row.
const USUAL_LIST: u16 = 8;
/// Rows below the flame: a blank one, the selected frame, its place, and its callers.
const STATUS_ROWS: u16 = 4;

const MOMENTS: [FlameMoment; 3] = [FlameMoment::Live, FlameMoment::Peak, FlameMoment::Mark];

/// Where frames are drawn.
struct Place {
    area: Rect,
    /// Rows of one frame.
    height: u16,
    /// Depth of the first row.
    first: usize,
    /// Number of rows.
    rows: usize,
}

/// A flame with what a search found in it.
struct Drawing<'a, 's> {
    shown: &'s ShownFlame<'a>,
    place: Place,
    /// For each node whether the search found it; `None`: there is no search.
    found: Option<Vec<bool>>,
    /// The number of the colour of each file.
    colours: BTreeMap<&'s str, usize>,
    /// Without colours.
    plain: bool,
}

impl Scene<'_> {
    pub(super) fn draw_flame(&self, canvas: &mut Canvas, area: Rect) {
        let (ui, theme) = (self.ui, &self.ui.theme);
        let device = ui.selected_device(&self.data.snapshot).filter(|_| ui.single);
        let on =
            device.map_or_else(|| "all devices".to_owned(), |it| format!("device {}", index_and_board(it)));
        let inside = canvas.draw_frame(area, &format!("Flame of {on}"), true);
        let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
        let (head, rest) = split_rows(inside, 2);
        let Some(shown) = ShownFlame::new(ui, &self.data.snapshot) else {
            self.draw_flame_head(canvas, head, None);
            return canvas.write_cut(rest, 0, 0, rest.width, super::LOADING, theme.faint);
        };
        self.draw_flame_head(canvas, head, Some(&shown));
        let gaps = describe_gaps(&shown.tree.gaps);
        let gaps: Vec<String> = gaps.iter().flat_map(|gap| wrap(gap, rest.width.into())).collect();
        if shown.tree.nodes.len() == 1 {
            canvas.write_paragraph(rest, 0, 0, describe_absence(ui.flame.moment), theme.faint);
            for (y, gap) in (2..).zip(&gaps) {
                canvas.write(rest, 0, y, gap, theme.warn);
            }
            return;
        }
        let status_rows = STATUS_ROWS + gaps.len() as u16;
        let (body, _) = split_rows(rest, rest.height.saturating_sub(status_rows));
        let found = shown.matches(&ui.flame.search);
        if let Some(found) = &found {
            let bytes = shown.tree.matching_bytes(shown.zoom, &|at| found[at]);
            let share = share_of(bytes, &shown.tree.nodes[shown.zoom]);
            let text = format!("/{}: {}, {share}", ui.flame.search, size(bytes));
            canvas.write_top_right(area, &text, theme.accent);
        }
        let place = Place::new(&shown, body);
        let (first, rows) = (place.first, place.rows);
        let levels = depth_below(&shown);
        if rows < levels {
            let text = format!("rows {}-{} of {levels}", first + 1, (first + rows).min(levels));
            canvas.write_bottom_right(area, &text, theme.faint);
        }
        let (_, below) = split_rows(rest, rows as u16 * place.height);
        let (status, list) = split_rows(below, status_rows);
        let calls = shown.tree.nodes.iter().filter(|node| node.kind() == Some(FrameKind::Call));
        let colours = flame_colours(calls.map(file_of).collect());
        Drawing { shown: &shown, place, found, colours, plain: !theme.coloured }.draw(canvas);
        self.draw_flame_status(canvas, status, &shown, &gaps);
        if list.height >= MIN_LIST {
            self.draw_frames_in(canvas, list, &shown);
        }
    }

    /// Draws the spaces and the moments, with the shown ones marked.
    fn draw_flame_head(&self, canvas: &mut Canvas, area: Rect, shown: Option<&ShownFlame<'_>>) {
        let (theme, moment) = (&self.ui.theme, self.ui.flame.moment);
        let mut x = 0;
        for &(space, bytes) in shown.iter().flat_map(|it| &it.spaces) {
            let bytes = bytes.map_or_else(|| DASH.to_owned(), size);
            let text = format!(" {} {bytes} ", space_name(space));
            let is_shown = shown.is_some_and(|it| it.tree.space == space);
            let begin = x;
            x = canvas.write(area, x, 0, &text, if is_shown { theme.selected } else { theme.text });
            canvas.add_target(
                Rect { x: area.x + begin, width: x - begin, height: 1, ..area },
                Target::FlameSpace(space),
            );
            x += 1;
        }
        let width =
            |moments: &[FlameMoment]| moments.iter().map(|&it| moment_name(it).len() as u16 + 3).sum::<u16>();
        // Where there is no room for all, the current one is shown.
        let current = [moment];
        let moments = if x + width(&MOMENTS) <= area.width { &MOMENTS[..] } else { &current };
        let mut x = area.width.saturating_sub(width(moments)).max(x);
        for &choice in moments {
            let begin = x + 1;
            let style = if choice == moment { theme.selected } else { theme.faint };
            x = canvas.write(area, begin, 0, &format!(" {} ", moment_name(choice)), style);
            canvas.add_target(
                Rect { x: area.x + begin, width: x.saturating_sub(begin), height: 1, ..area },
                Target::FlameMoment(choice),
            );
        }
    }

    /// Lists the frames in the selected one, largest first, also those that are too narrow for the screen.
    fn draw_frames_in(&self, canvas: &mut Canvas, area: Rect, shown: &ShownFlame<'_>) {
        let theme = &self.ui.theme;
        let nodes = &shown.tree.nodes;
        let node = &nodes[shown.selected];
        if node.children.is_empty() {
            return;
        }
        let own = (node.own_bytes > 0).then_some((node.own_bytes, None));
        let rows = node.children.iter().map(|&child| (nodes[child].bytes, Some(child))).chain(own);
        let heading = format!("{:>10} {:>8} {:>8}  In {}", "Size", "Share", "Buffers", node.name);
        canvas.write_cut(area, 0, 1, area.width, &heading, theme.header);
        let room = usize::from(area.height - 2);
        let count = node.children.len() + usize::from(node.own_bytes > 0);
        for (y, (bytes, child)) in (2..).zip(rows.take(room)) {
            if y + 1 == area.height && count > room {
                let more = format!("{} more", count + 1 - room);
                return canvas.write_cut(area, 30, y, area.width.saturating_sub(30), &more, theme.faint);
            }
            let child = child.map(|at| (at, &nodes[at]));
            let buffers =
                child.and_then(|(_, it)| it.count).map_or_else(|| DASH.to_owned(), |n| n.to_string());
            let name = child.map_or("nothing below: its own buffers", |(_, it)| &it.name);
            let figures = format!("{:>10} {:>8} {buffers:>8}", size(bytes), share_of(bytes, node));
            canvas.write_cut(area, 0, y, area.width, &figures, theme.text);
            canvas.write_cut(area, 30, y, area.width.saturating_sub(30), name, theme.text);
            if let Some((at, _)) = child {
                canvas.add_target(Rect { y: area.y + y, height: 1, ..area }, Target::Frame(at));
            }
        }
    }

    /// Draws what is known of the selected frame, and what is unknown of the flame.
    fn draw_flame_status(&self, canvas: &mut Canvas, area: Rect, shown: &ShownFlame<'_>, gaps: &[String]) {
        let theme = &self.ui.theme;
        let (tree, node) = (&shown.tree, &shown.tree.nodes[shown.selected]);
        let mut figures = vec![size(node.bytes)];
        figures.push(format!("{} of {}", share_of(node.bytes, &tree.nodes[0]), tree.nodes[0].name));
        let count = node.count.map_or_else(|| format!("{DASH} buffers"), |n| plural(n, "buffer"));
        figures.push(count);
        let figures = figures.join("  ");
        let room = area.width.saturating_sub(figures.chars().count() as u16 + 2);
        canvas.write_cut(area, 0, 1, room, &node.name, theme.title);
        let name = (node.name.chars().count()).min(room.into()) as u16;
        canvas.write(area, name + 2, 1, &figures, theme.text);
        let place = match (node.place(), node.kind()) {
            (Some((file, Some(line))), _) => format!("{file}:{line}"),
            (Some((file, None)), _) => file.to_owned(),
            (None, Some(FrameKind::Op)) => "operation".to_owned(),
            (None, Some(FrameKind::Contents)) => "contents of the buffers".to_owned(),
            (None, Some(FrameKind::Call)) => "call site".to_owned(),
            (None, Some(FrameKind::Unknown)) => {
                "the process reports no call sites of these buffers".to_owned()
            }
            (None, None) if node.parent.is_some() => "process".to_owned(),
            (None, None) => "all processes".to_owned(),
        };
        canvas.write_cut(area, 0, 2, area.width, &place, theme.faint);
        let mut path = tree.path(shown.selected);
        path.pop();
        let callers: Vec<&str> = path.iter().map(|&at| &*tree.nodes[at].name).collect();
        let callers =
            if callers.is_empty() { String::new() } else { format!("in {}", callers.join(" → ")) };
        canvas.write_cut(area, 0, 3, area.width, &cut_front(&callers, area.width.into()), theme.faint);
        for (y, gap) in (STATUS_ROWS..).zip(gaps) {
            canvas.write(area, 0, y, gap, theme.warn);
        }
    }
}

/// A text whose beginning is left out if it is too long: the nearest callers are at its end.
fn cut_front(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    std::iter::once('…').chain(text.chars().skip(count + 1 - width.max(1))).collect()
}

fn describe_absence(moment: FlameMoment) -> &'static str {
    match moment {
        FlameMoment::Live => "No buffers are allocated. Start programs with `ttmem run -- CMD`.",
        FlameMoment::Peak => "No process has allocated a buffer. Start programs with `ttmem run -- CMD`.",
        FlameMoment::Mark => "No live buffers were allocated since a mark.",
    }
}

/// The file of a call, or else its name, by which it has its colour.
fn file_of<'n>(node: &'n FlameNode<'_>) -> &'n str {
    node.place().map_or(&*node.name, |(file, _)| file)
}

fn share_of(bytes: u64, whole: &FlameNode<'_>) -> String {
    percent((whole.bytes > 0).then(|| bytes as f64 / whole.bytes as f64))
}

/// Number of rows of the shown node and what is below it.
fn depth_below(shown: &ShownFlame<'_>) -> usize {
    let nodes = &shown.tree.nodes;
    let deepest = shown.tree.below(shown.zoom).into_iter().map(|at| nodes[at].depth).max().unwrap_or(0);
    deepest - nodes[shown.zoom].depth + 1
}

impl Place {
    fn new(shown: &ShownFlame<'_>, area: Rect) -> Self {
        let levels = depth_below(shown);
        let high = usize::from(MAX_HEIGHT) * levels + usize::from(USUAL_LIST);
        let height = if high <= usize::from(area.height) { MAX_HEIGHT } else { 1 };
        let rows = usize::from(area.height / height).min(levels);
        let nodes = &shown.tree.nodes;
        let selected = nodes[shown.selected].depth - nodes[shown.zoom].depth;
        // More rows than fit are scrolled to the selected one, and one below it.
        let first = (selected + 2).min(levels).saturating_sub(rows.max(1));
        Self { area, height, first, rows }
    }
}

impl Drawing<'_, '_> {
    fn draw(&self, canvas: &mut Canvas) {
        let (nodes, zoom) = (&self.shown.tree.nodes, self.shown.zoom);
        let selected = self.shown.tree.path(self.shown.selected);
        let mut left = vec![(zoom, 0u64)];
        while let Some((at, begin)) = left.pop() {
            let node = &nodes[at];
            let (from, to) = (self.column(begin), self.column(begin.saturating_add(node.bytes)));
            // The shown node is there even if it has no bytes.
            let to = if at == zoom { self.place.area.width } else { to };
            if let Some(area) = self.cell(node.depth, from, to) {
                let is_found = self.found.as_ref().map(|found| found[at]);
                self.draw_cell(canvas, area, Some(node), &node.name, at == self.shown.selected, is_found);
                canvas.add_target(area, Target::Frame(at));
            }
            let mut begin = begin;
            for (n, &child) in node.children.iter().enumerate() {
                if self.is_too_narrow(nodes[child].bytes) {
                    let rest = &node.children[n..];
                    let is_selected = rest.iter().any(|it| selected.contains(it));
                    self.draw_rest(canvas, begin, rest, is_selected);
                    break;
                }
                left.push((child, begin));
                begin = begin.saturating_add(nodes[child].bytes);
            }
        }
    }

    /// Draws frames that are too narrow as one.
    fn draw_rest(&self, canvas: &mut Canvas, begin: u64, rest: &[usize], is_selected: bool) {
        let tree = &self.shown.tree;
        let bytes = rest.iter().fold(0u64, |sum, &at| sum.saturating_add(tree.nodes[at].bytes));
        let (mut from, mut to) = (self.column(begin), self.column(begin.saturating_add(bytes)));
        if is_selected {
            // What is selected is on the screen, however narrow it is.
            to = to.max(from + 1).min(self.place.area.width);
            from = from.min(to.saturating_sub(1));
        }
        let Some(area) = self.cell(tree.nodes[rest[0]].depth, from, to) else { return };
        let has_found = |found: &Vec<bool>| rest.iter().any(|&at| tree.below(at).iter().any(|&at| found[at]));
        let is_found = self.found.as_ref().map(has_found);
        self.draw_cell(canvas, area, None, &format!("{} more", rest.len()), is_selected, is_found);
        canvas.add_target(area, Target::Frame(rest[0]));
    }

    /// The column of a number of bytes from the left edge.
    fn column(&self, bytes: u64) -> u16 {
        let (width, whole) = (self.place.area.width, self.shown.tree.nodes[self.shown.zoom].bytes.max(1));
        let column = (u128::from(bytes) * u128::from(width) + u128::from(whole) / 2) / u128::from(whole);
        column.min(width.into()) as u16
    }

    /// Whether a frame would take less than a column.
    fn is_too_narrow(&self, bytes: u64) -> bool {
        let whole = self.shown.tree.nodes[self.shown.zoom].bytes;
        u128::from(bytes) * u128::from(self.place.area.width) < u128::from(whole).max(1)
    }

    /// The area of a frame, if it is on the screen.
    fn cell(&self, depth: usize, from: u16, to: u16) -> Option<Rect> {
        let Place { area, height, first, rows } = self.place;
        let row = (depth - self.shown.tree.nodes[self.shown.zoom].depth).checked_sub(first)?;
        let is_shown = row < rows && to > from;
        is_shown.then(|| Rect { x: area.x + from, y: area.y + row as u16 * height, width: to - from, height })
    }

    /// Draws a frame, or several if `node` is absent.
    fn draw_cell(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        node: Option<&FlameNode<'_>>,
        name: &str,
        is_selected: bool,
        is_found: Option<bool>,
    ) {
        let mut style = self.style(canvas, node, is_found);
        if is_selected {
            style = style.add_modifier(Modifier::REVERSED | Modifier::BOLD);
        }
        canvas.set_style(area, style);
        let (edge, edge_style) = if self.plain || is_selected {
            ('│', style)
        } else {
            ('▏', style.patch(canvas.theme.flame.edge))
        };
        for y in 0..area.height {
            canvas.put(area, 0, y, edge, edge_style);
        }
        let room = area.width - 1;
        let mark = if self.plain && is_found == Some(true) { "*" } else { "" };
        let mut text = format!("{mark}{name}");
        if room < MIN_NAME {
            text.clear();
        }
        // Figures are whole or left out.
        let sized = |it: &FlameNode<'_>| {
            let (size, share) = (size(it.bytes), share_of(it.bytes, &self.shown.tree.nodes[0]));
            [format!("{size}  {share}"), size]
        };
        let used = if area.height == 1 { text.chars().count() + 2 } else { 0 };
        let fits = |figures: &String| used + figures.chars().count() <= room.into();
        let figures = node.and_then(|it| sized(it).into_iter().find(fits));
        if let Some(figures) = figures {
            if area.height == 1 {
                text = format!("{text}  {figures}");
            } else {
                canvas.write(area, 1, 1, &figures, style);
            }
        }
        canvas.write_cut(area, 1, 0, room, &text, style);
        self.draw_line(canvas, area, text.chars().count(), style);
    }

    /// Without colours, draws a line from the name to the end of the frame.
    fn draw_line(&self, canvas: &mut Canvas, area: Rect, used: usize, style: Style) {
        let begin = (used + 2).min(usize::from(area.width)) as u16;
        for x in begin..area.width {
            if self.plain {
                canvas.put(area, x, 0, '─', style);
            }
        }
    }

    fn style(&self, canvas: &Canvas, node: Option<&FlameNode<'_>>, is_found: Option<bool>) -> Style {
        let theme = canvas.theme;
        match (is_found, node.filter(|node| node.parent.is_some())) {
            (Some(true), _) if self.plain => theme.title,
            (Some(true), _) => theme.badge,
            (Some(false), _) if self.plain => theme.faint,
            (Some(false), _) | (None, None) => theme.flame.faint,
            (None, Some(node)) => {
                let colour = self.colours.get(file_of(node)).copied().unwrap_or(0);
                theme.flame.of(node.kind(), colour)
            }
        }
    }
}
