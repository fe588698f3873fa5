//! Keys and clicks in the view of addresses.

use super::in_view;
use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::KeyCode::{Down, End, Enter, Esc, Home, Left, Right};
use ttmem_core::detail::BlockQuery;
use ttmem_core::words::Space;
use ttmem_tui::View;

fn addresses() -> Dashboard {
    let mut dashboard = in_view(View::Addresses, states::one()).sized(120, 40);
    dashboard.refresh();
    dashboard
}

fn query(dashboard: &Dashboard) -> BlockQuery {
    dashboard.ui.required_detail(&dashboard.data).blocks.unwrap()
}

/// The row below the open bar, with a mark below the selected block.
fn mark(dashboard: &mut Dashboard) -> String {
    let row = dashboard.row("▲");
    row.trim_matches(['│', ' ', '▲']).to_owned()
}

#[test]
fn blocks_of_one_map_are_fetched() {
    let mut dashboard = in_view(View::Addresses, states::one()).sized(120, 40);
    // At first it is not known which maps there are.
    let first = query(&dashboard);
    assert_eq!((first.device, first.open, first.limit), (Some(0), None, 0));
    dashboard.refresh();
    let all = query(&dashboard);
    assert_eq!((all.device, all.parts, all.limit), (Some(0), 116, 4000));
    assert_eq!(all.open.unwrap().space, Space::Dram);
    for space in [Space::L1, Space::Trace, Space::Dram] {
        dashboard.keys("s");
        assert_eq!(query(&dashboard).open.unwrap().space, space);
    }
    assert_eq!(query(&dashboard).open.unwrap().pid, Some(48_977), "the second process");
}

#[test]
fn table_and_bar_have_one_selection() {
    let mut dashboard = addresses();
    for (key, expected) in [
        (Home, "0x0: 8.0 MiB used"),
        (Down, "0x800000: 34.0 MiB free, largest free block"),
        (Right, "0x2a00000: 16.0 MiB used"),
        (Right, "0x3a00000: 26.0 MiB free"),
        (Left, "0x2a00000: 16.0 MiB used"),
        (End, "0x3e600000: 25.0 MiB free"),
        (Right, "0x3e600000: 25.0 MiB free"),
    ] {
        dashboard.press(&[key]);
        assert_eq!(mark(&mut dashboard), expected, "after {key:?}");
    }
    dashboard.keys("f");
    assert!(mark(&mut dashboard).contains("free, largest free block"));
}

#[test]
fn clicks_select_blocks_and_open_maps() {
    let mut dashboard = addresses();
    // The bar is below the title, the tabs, the edge and the title of the map.
    dashboard.click((2 + 5, 4));
    assert_eq!(mark(&mut dashboard), "0x2a00000: 16.0 MiB used");
    let (_, row) = dashboard.find("64 × ");
    // L1 is used near its upper end.
    dashboard.click((2 + 95, row + 1));
    assert_eq!(query(&dashboard).open.unwrap().space, Space::L1);
    assert!(mark(&mut dashboard).starts_with("0x100000: 256.0 KiB used"), "{}", mark(&mut dashboard));
}

#[test]
fn enter_shows_the_buffer_and_filters_apply_to_owners() {
    let mut dashboard = addresses();
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("Allocation 0x0"), "{:?}", dashboard.rows());
    dashboard.press(&[Esc, Down, Enter]);
    assert!(!dashboard.shows("Allocation 0x"), "a free block has no buffer");
    dashboard.keys("/largest free");
    dashboard.press(&[Enter]);
    assert!(dashboard.shows("filter: largest free"));
    assert!(mark(&mut dashboard).contains("largest free block"));
    dashboard.keys("/ no such word");
    assert!(dashboard.shows("No block matches the filter."));
    dashboard.press(&[Esc]);
    assert!(dashboard.shows("0x2a00000"));
}

#[test]
fn selection_follows_a_block_that_becomes_part_of_a_hole() {
    let mut dashboard = addresses();
    dashboard.press(&[Down, Down]);
    assert_eq!(mark(&mut dashboard), "0x2a00000: 16.0 MiB used");
    let mut freed = states::one();
    let blocks = &mut freed.block_maps.as_mut().unwrap()[0].blocks;
    blocks[1].bytes += blocks[2].bytes + blocks[3].bytes;
    blocks.drain(2..4);
    dashboard.receive(freed);
    assert_eq!(mark(&mut dashboard), "0x800000: 76.0 MiB free, largest free block");
}
