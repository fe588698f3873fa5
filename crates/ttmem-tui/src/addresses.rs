//! The state of the view of addresses, and the maps and blocks that it shows.

use crate::keys::Action;
use crate::lists::{self, matches_filter};
use crate::ui::{List, Ui};
use std::cmp::Reverse;
use ttmem_core::Snapshot;
use ttmem_core::detail::{BlockMapKey, BlockQuery};
use ttmem_core::snapshot::{Block, BlockMap, BlockState};
use ttmem_render::block::{Row, SEARCHED};

/// Most blocks of the open map that are fetched.
const MOST_BLOCKS: u32 = 4000;

/// What the user selected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AddressState {
    /// The map whose blocks are listed; `None`: the first one.
    open: Option<BlockMapKey>,
    /// Columns of a bar when it was last drawn.
    pub(crate) columns: u16,
}

/// The maps of the selected device.
pub(crate) struct ShownMaps<'a> {
    pub(crate) maps: Vec<&'a BlockMap>,
    /// Number of the map whose blocks are listed.
    pub(crate) open: usize,
}

impl<'a> ShownMaps<'a> {
    pub(crate) fn new(ui: &Ui, snapshot: &'a Snapshot) -> Self {
        let device = ui.selected_device(snapshot).map(|device| device.index);
        let is_shown = |map: &&BlockMap| device.is_some_and(|device| map.indexes.contains(&device));
        let maps: Vec<&BlockMap> = snapshot.block_maps.iter().flatten().filter(is_shown).collect();
        let is_open = |map: &&BlockMap| Some(map.key()) == ui.addresses.open;
        let open = maps.iter().position(is_open).unwrap_or(0);
        Self { maps, open }
    }

    pub(crate) fn open_map(&self) -> Option<&'a BlockMap> {
        self.maps.get(self.open).copied()
    }
}

/// The maps of the selected device, with the blocks of the open one. Which maps there are is not known at first.
pub(crate) fn query(ui: &Ui, snapshot: &Snapshot) -> Option<BlockQuery> {
    let device = ui.selected_device(snapshot)?.index;
    let open = ShownMaps::new(ui, snapshot).open_map().map(BlockMap::key);
    let limit = if open.is_some() { MOST_BLOCKS } else { 0 };
    let parts = ui.addresses.columns;
    Some(BlockQuery { device: Some(device), open, limit, parts, ..BlockQuery::default() })
}

/// The listed blocks of the open map that match the filter, by address.
pub(crate) fn rows<'a>(snapshot: &'a Snapshot, ui: &Ui) -> Vec<Row<'a>> {
    let filter = &ui.list_state(List::Blocks).filter;
    let is_match = |row: &Row<'_>| {
        let texts = SEARCHED.each_ref().map(|column| column.text(row));
        matches_filter(filter, &texts.each_ref().map(|text| &**text))
    };
    let all = ShownMaps::new(ui, snapshot).open_map().into_iter().flat_map(Row::all);
    all.filter(|row| filter.is_empty() || is_match(row)).collect()
}

/// The column of a bar, of `columns`, in which an address is.
pub(crate) fn column_of(map: &BlockMap, address: u64, columns: u16) -> u16 {
    let (bytes, last) = (u128::from(map.bytes_per_bank.unwrap_or(0).max(1)), columns.saturating_sub(1));
    let offset = u128::from(address.saturating_sub(map.base.unwrap_or(0)));
    let column = (offset * u128::from(columns) / bytes).min(last.into()) as u16;
    // Parts of a bank are rounded down to whole bytes.
    let next = map.part_address(usize::from(column) + 1, columns.into());
    if column < last && next <= address { column + 1 } else { column }
}

/// The columns that a block takes, the last one included.
pub(crate) fn columns_of(map: &BlockMap, block: &Block, columns: u16) -> (u16, u16) {
    let last = block.address.saturating_add(block.bytes.saturating_sub(1));
    (column_of(map, block.address, columns), column_of(map, last, columns))
}

/// The buffer in the selected block.
pub(crate) fn selected_buffer(ui: &Ui, snapshot: &Snapshot) -> Option<String> {
    let row = rows(snapshot, ui).get(ui.list_state(List::Blocks).cursor).copied()?;
    row.block.allocation.as_ref().map(lists::buffer_key)
}

/// Selects the block in the next column, to the left or right, that a block begins in: the largest one there.
pub(crate) fn move_in_bar(ui: &mut Ui, snapshot: &Snapshot, action: Action) {
    let (rows, columns) = (rows(snapshot, ui), ui.addresses.columns);
    let column = |row: &Row<'_>| column_of(row.map, row.block.address, columns);
    let Some(from) = rows.get(ui.list_state(List::Blocks).cursor).map(column) else { return };
    let all = rows.iter().map(column);
    let to = match action {
        Action::Left => all.filter(|&it| it < from).max(),
        _ => all.filter(|&it| it > from).min(),
    };
    let here = rows.iter().enumerate().filter(|(_, row)| Some(column(row)) == to);
    if let Some((row, _)) = here.max_by_key(|(at, row)| (row.block.bytes, Reverse(*at))) {
        lists::move_cursor(snapshot, ui, List::Blocks, row);
    }
}

/// Opens the map after the open one.
pub(crate) fn next_map(ui: &mut Ui, snapshot: &Snapshot) {
    let shown = ShownMaps::new(ui, snapshot);
    let next = shown.maps.get(shown.open + 1).or(shown.maps.first());
    if let Some(map) = next {
        open_map(ui, map.key());
    }
}

fn open_map(ui: &mut Ui, key: BlockMapKey) {
    if ui.addresses.open != Some(key) {
        ui.addresses.open = Some(key);
        ui.list_state_mut(List::Blocks).reset_cursor();
    }
}

/// Selects the largest free block: of several, the next one.
pub(crate) fn select_largest_free(ui: &mut Ui, snapshot: &Snapshot) {
    let (rows, cursor) = (rows(snapshot, ui), ui.list_state(List::Blocks).cursor);
    let largest = || rows.iter().enumerate().filter(|(_, row)| row.block.largest).map(|it| it.0);
    if let Some(row) = largest().find(|&row| row > cursor).or_else(|| largest().next()) {
        lists::move_cursor(snapshot, ui, List::Blocks, row);
    }
}

/// Opens a map and selects the block that takes most of a column of its bar.
pub(crate) fn click(ui: &mut Ui, snapshot: &Snapshot, map: usize, column: u16) {
    let shown = ShownMaps::new(ui, snapshot);
    let Some(&map) = shown.maps.get(map) else { return };
    open_map(ui, map.key());
    let (part, columns) = (usize::from(column), usize::from(ui.addresses.columns));
    let (start, end) = (map.part_address(part, columns), map.part_address(part + 1, columns));
    let rows = rows(snapshot, ui);
    let overlap = |block: &Block| {
        block.address.saturating_add(block.bytes).min(end).saturating_sub(block.address.max(start))
    };
    let taken = rows.iter().enumerate().filter(|(_, row)| overlap(row.block) > 0);
    match taken.max_by_key(|(at, row)| (overlap(row.block), Reverse(*at))) {
        Some((row, _)) => lists::move_cursor(snapshot, ui, List::Blocks, row),
        // The blocks have not been fetched yet.
        None if map.blocks.is_empty() => {
            ui.list_state_mut(List::Blocks).key = Some(start.to_string());
        }
        None => {}
    }
}

/// For each column of a bar the used block that takes most of it, as far as blocks are listed.
pub(crate) fn owners(map: &BlockMap, columns: u16) -> Vec<Option<&Block>> {
    let mut owners: Vec<Option<(u64, &Block)>> = vec![None; columns.into()];
    for block in map.blocks.iter().filter(|it| it.state != BlockState::Free && it.bytes > 0) {
        let (first, last) = columns_of(map, block, columns);
        for column in first..=last.min(columns.saturating_sub(1)) {
            let part = usize::from(column);
            let start = map.part_address(part, columns.into()).max(block.address);
            let end = map.part_address(part + 1, columns.into());
            let bytes = end.min(block.address.saturating_add(block.bytes)).saturating_sub(start);
            if owners[part].is_none_or(|(most, _)| bytes > most) {
                owners[part] = Some((bytes, block));
            }
        }
    }
    owners.into_iter().map(|owner| owner.map(|it| it.1)).collect()
}
