//! Sorting and grouping lists.

use super::{in_view, many_processes, selected_name};
use crate::dashboard::{Dashboard, environment};
use crate::states;
use ratatui::crossterm::event::KeyCode::{Down, Enter, Esc, F, Home, Up};
use ttmem_core::detail::{BufferGrouping, BufferSort};
use ttmem_core::snapshot::BufferGroup;
use ttmem_tui::View;

const MIB: u64 = 1 << 20;

#[test]
fn lists_are_sorted_by_menu_and_by_click() {
    let mut dashboard = Dashboard::new(many_processes());
    assert!(dashboard.saved_settings().sort.is_empty(), "the default order is not saved");
    dashboard.press(&[Down, Up]);
    dashboard.keys("s");
    assert!(dashboard.shows("Sort processes by") && dashboard.is_selected("DRAM                   current"));
    dashboard.press(&[Down, Enter]);
    assert_eq!(dashboard.saved_settings().sort["processes"], "l1");
    assert!(dashboard.row("Process ").contains("L1▾"));
    assert!(
        selected_name(&mut dashboard) == "p0" && dashboard.shows("100/100"),
        "the cursor follows the selected row"
    );
    dashboard.press(&[Home]);
    assert_eq!(selected_name(&mut dashboard), "p99");
    dashboard.keys("I");
    assert_eq!(dashboard.saved_settings().sort["processes"], "-l1");
    assert!(dashboard.row("Process ").contains("L1▴"));
    let header = dashboard.find("PID");
    dashboard.click(header);
    assert_eq!(dashboard.saved_settings().sort["processes"], "pid");
    dashboard.click(header);
    assert_eq!(dashboard.saved_settings().sort["processes"], "-pid");
    dashboard.press(&[F(6), Esc]);
    assert_eq!(dashboard.saved_settings().sort["processes"], "-pid");
}

#[test]
fn order_of_buffers_is_part_of_the_query() {
    let mut dashboard = in_view(View::Buffers, states::two());
    dashboard.press(&[Down, Down]);
    let header = dashboard.find("Address ");
    dashboard.click(header);
    let query = dashboard.ui.required_detail(&dashboard.data).buffers.unwrap();
    assert_eq!((query.sort, query.reversed, query.offset), (BufferSort::Address, false, 0));
    dashboard.keys("I");
    assert!(dashboard.ui.required_detail(&dashboard.data).buffers.unwrap().reversed);
    assert_eq!(dashboard.saved_settings().sort["buffers"], "-address");
}

#[test]
fn saved_settings_are_restored() {
    let mut dashboard = in_view(View::Programs, states::two());
    dashboard.keys("s");
    dashboard.press(&[Home, Enter]);
    let saved = dashboard.saved_settings();
    let mut again = Dashboard::with(states::two(), saved.clone(), environment());
    assert_eq!(again.saved_settings(), saved);
    assert_eq!(saved.view, "programs");
    assert_eq!(saved.find_error(), None);
}

#[test]
fn g_groups_buffers() {
    let mut dashboard = in_view(View::Buffers, states::two());
    let groups = [
        (Some(BufferGrouping::Process), "Buffers by process:"),
        (Some(BufferGrouping::Program), "Buffers by program:"),
        (Some(BufferGrouping::Site), "Buffers by call site:"),
        (Some(BufferGrouping::Op), "Buffers by operation:"),
        (Some(BufferGrouping::File), "Buffers by file:"),
        (None, "Buffers:"),
    ];
    for (group, title) in groups {
        dashboard.keys("g");
        assert_eq!(dashboard.ui.required_detail(&dashboard.data).buffers.unwrap().group, group);
        assert!(dashboard.shows(title));
    }
    dashboard.keys("g");
    assert!(dashboard.shows("1/8 "), "the number of groups");
    dashboard.press(&[Esc]);
    assert!(dashboard.shows("Buffers:"));
    dashboard.keys("1g");
    assert_eq!(dashboard.ui.required_detail(&dashboard.data).buffers, None, "in other views g does nothing");
}

#[test]
fn groups_show_growth_since_the_view_was_opened() {
    let mut dashboard = in_view(View::Buffers, states::two());
    dashboard.keys("ggg");
    assert!(dashboard.shows("Growth") && !dashboard.shows("+2.0 MiB"));
    let mut grown = states::two();
    let buffers = grown.buffers.as_mut().unwrap();
    buffers.groups[5].used_bytes += 2 * MIB;
    buffers.groups[6].used_bytes -= MIB;
    let new =
        BufferGroup { label: Some("trace".to_owned()), used_bytes: 3 * MIB, ..buffers.groups[7].clone() };
    buffers.groups.push(new);
    buffers.group_count += 1;
    dashboard.receive(grown.clone());
    for (growth, count) in [("+2.0 MiB", 1), ("-1.0 MiB", 1), ("+3.0 MiB", 1)] {
        let rows = dashboard.rows();
        assert_eq!(rows.iter().filter(|row| row.contains(growth)).count(), count, "{growth}: {rows:?}");
    }
    dashboard.keys("15");
    dashboard.receive(grown);
    assert!(!dashboard.shows("+2.0 MiB"), "the view was opened again");
}

#[test]
fn details_of_a_buffer_name_its_call_site() {
    let mut dashboard = in_view(View::Buffers, states::two()).sized(120, 60);
    dashboard.press(&[Enter]);
    for text in [
        "model.py:40 (Attention.forward)",
        "/home/ml/llama/model.py:40",
        "ttnn.linear",
        "bfloat16 [1, 32, 4096] tile",
        "Stack, innermost first",
        "model.py:301 (Attention.forward)",
    ] {
        assert!(dashboard.shows(text), "{text}: {:?}", dashboard.rows());
    }
}

#[test]
fn esc_in_an_opened_group_returns_to_the_groups() {
    let mut dashboard = in_view(View::Buffers, states::two());
    dashboard.keys("ggg");
    dashboard.press(&[Down, Enter]);
    let opened = dashboard.ui.required_detail(&dashboard.data).buffers.unwrap();
    assert!(opened.group.is_none() && !opened.text.is_empty(), "{opened:?}");
    dashboard.press(&[Esc]);
    let back = dashboard.ui.required_detail(&dashboard.data).buffers.unwrap();
    assert_eq!((back.group, back.text.as_str()), (Some(BufferGrouping::Site), ""));
    assert!(
        dashboard.shows("Buffers by call site:") && dashboard.shows("2/8 "),
        "the cursor is on the same group"
    );
    dashboard.press(&[Esc]);
    assert!(dashboard.shows("Buffers:"), "and from the groups to the list");
}

#[test]
fn t_shows_children_below_their_parents() {
    let mut dashboard = Dashboard::new(states::galaxy()).sized(120, 90);
    let names = |dashboard: &mut Dashboard| -> Vec<String> {
        let rows = dashboard.rows();
        let name = |row: &String| {
            let name = row.split_once(" mia ")?.1.trim_start_matches(' ');
            Some(name[..name.find("  ").unwrap_or(name.len())].to_owned())
        };
        rows.iter().filter_map(name).collect()
    };
    let list = names(&mut dashboard);
    assert!(list.len() == 9 && list.iter().all(|it| !it.contains(['├', '└'])), "{list:?}");
    dashboard.keys("t");
    assert!(dashboard.shows("─ Process tree ─"));
    let tree = names(&mut dashboard);
    assert_eq!(tree.len(), 9);
    assert_eq!(tree[0], "python3");
    let first = tree.iter().position(|it| it.ends_with("─ worker-0") || it.ends_with(" worker-0")).unwrap();
    // Two of the workers are children of the first one.
    let children: Vec<&str> = tree[first + 1..first + 3].iter().map(String::as_str).collect();
    assert!(children.iter().all(|it| it.contains("worker-3") || it.contains("worker-7")), "{tree:?}");
    assert!(children.iter().all(|it| it.contains("├ ") || it.contains("└ ")), "{tree:?}");
    assert!(tree.last().unwrap().contains('└'), "{tree:?}");
    // If the filter hides a parent, its children are below the next ancestor.
    dashboard.keys("/python3");
    dashboard.press(&[Enter]);
    assert_eq!(names(&mut dashboard), ["python3"]);
    dashboard.press(&[Esc]);
    dashboard.keys("/worker-3");
    dashboard.press(&[Enter]);
    assert_eq!(names(&mut dashboard), ["worker-3"]);
    dashboard.press(&[Esc]);
    dashboard.keys("t");
    assert_eq!(names(&mut dashboard), list);
}
