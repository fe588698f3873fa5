//! The selected row stays selected when its position changes.

use crate::dashboard::Dashboard;
use crate::states;
use ratatui::crossterm::event::KeyCode;
use ttmem_core::Snapshot;

/// A snapshot with these processes: pid and MiB of DRAM.
fn with_processes(processes: &[(u32, u64)]) -> Snapshot {
    let mut snapshot = states::one();
    let device = snapshot.devices[0].clone();
    let process = |&(pid, mib): &(u32, u64)| {
        let mut process = states::process(pid, &format!("work-{pid}"), &[&device]);
        process.summary.dram_bytes = Some(mib << 20);
        process
    };
    snapshot.processes = processes.iter().map(process).collect();
    snapshot
}

#[test]
fn process_stays_selected_when_the_order_changes() {
    let mut dashboard = Dashboard::new(with_processes(&[(10, 400), (11, 300), (12, 200), (13, 100)]));
    dashboard.press(&[KeyCode::Down, KeyCode::Down]);
    assert!(dashboard.selected_row().contains("work-12"));
    dashboard.receive(with_processes(&[(10, 1), (11, 2), (12, 999), (13, 4)]));
    assert!(dashboard.selected_row().contains("work-12") && dashboard.shows(" 1/4 "));
    dashboard.receive(with_processes(&[(9, 5000), (10, 1), (11, 2000), (12, 999), (13, 4000)]));
    assert!(dashboard.selected_row().contains("work-12") && dashboard.shows(" 4/5 "));
    // The order is reversed.
    dashboard.keys("I");
    assert!(dashboard.selected_row().contains("work-12") && dashboard.shows(" 2/5 "));
    dashboard.keys("/work-1");
    assert!(dashboard.selected_row().contains("work-12"));
    dashboard.press(&[KeyCode::Esc]);
    assert!(dashboard.selected_row().contains("work-12"));
}

#[test]
fn cursor_keeps_its_row_when_the_process_exits() {
    let mut dashboard = Dashboard::new(with_processes(&[(10, 400), (11, 300), (12, 200), (13, 100)]));
    dashboard.press(&[KeyCode::Down]);
    dashboard.receive(with_processes(&[(10, 400), (12, 200), (13, 100)]));
    assert!(dashboard.selected_row().contains("work-12") && dashboard.shows(" 2/3 "));
    // Now the process in that row is selected.
    dashboard.receive(with_processes(&[(10, 400), (12, 999), (13, 100)]));
    assert!(dashboard.selected_row().contains("work-12") && dashboard.shows(" 1/3 "));
    // If the last row goes, the one before it is selected.
    dashboard.press(&[KeyCode::End]);
    dashboard.receive(with_processes(&[(10, 400), (12, 999)]));
    assert!(dashboard.selected_row().contains("work-10") && dashboard.shows(" 2/2 "));
    dashboard.receive(with_processes(&[]));
    assert!(dashboard.selected_rows().is_empty());
    dashboard.receive(with_processes(&[(12, 1), (10, 2)]));
    assert!(dashboard.selected_row().contains("work-10"), "the list was empty for a while");
}

#[test]
fn reused_pid_is_another_process() {
    let mut dashboard = Dashboard::new(with_processes(&[(10, 400), (11, 300), (12, 200)]));
    dashboard.press(&[KeyCode::Down]);
    let mut later = with_processes(&[(11, 900), (10, 400), (12, 200)]);
    later.processes[0].start = Some(states::ago(1));
    dashboard.receive(later);
    assert!(
        dashboard.selected_row().contains("work-10"),
        "the cursor keeps its row, since the process is gone"
    );
}

#[test]
fn device_stays_selected_when_another_is_removed() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.keys("]]]");
    assert!(dashboard.shows("Memory of 3 n300"));
    let mut fewer = states::eight();
    fewer.devices.remove(0);
    dashboard.receive(fewer);
    assert!(dashboard.shows("Memory of 3 n300"));
    let mut fewer = states::eight();
    fewer.devices.truncate(2);
    dashboard.receive(fewer);
    assert!(dashboard.shows("Memory of 1 n300"));
}

#[test]
fn selected_row_is_on_the_screen() {
    let many: Vec<(u32, u64)> = (10..110).map(|pid| (pid, u64::from(200 - pid))).collect();
    let mut dashboard = Dashboard::new(with_processes(&many)).sized(80, 24);
    for key in [KeyCode::End, KeyCode::PageUp, KeyCode::Up, KeyCode::Home, KeyCode::PageDown, KeyCode::Down] {
        dashboard.press(&[key]);
        assert_eq!(dashboard.selected_rows().len(), 1, "{key:?}");
    }
    let reversed: Vec<(u32, u64)> = many.iter().map(|&(pid, _)| (pid, u64::from(pid))).collect();
    let selected = dashboard.selected_row();
    let name = selected.split_whitespace().find(|it| it.starts_with("work-")).unwrap().to_owned();
    dashboard.receive(with_processes(&reversed));
    assert!(dashboard.selected_row().contains(&format!("{name} ")));
}
