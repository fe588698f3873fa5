//! What is chosen stays chosen, whatever its place.

use crate::desk::Desk;
use crate::states;
use ratatui::crossterm::event::KeyCode;
use ttmem_core::Snapshot;

/// Some processes, by pid, with so much DRAM each.
fn machine(processes: &[(u32, u64)]) -> Snapshot {
    let mut snapshot = states::one();
    let device = snapshot.devices[0].clone();
    let of = |&(pid, mib): &(u32, u64)| {
        let mut it = states::process(pid, &format!("work-{pid}"), &[&device]);
        it.summary.dram_bytes = Some(mib << 20);
        it
    };
    snapshot.processes = processes.iter().map(of).collect();
    snapshot
}

#[test]
fn a_process_stays_chosen_when_figures_and_order_change() {
    let mut desk = Desk::new(machine(&[(10, 400), (11, 300), (12, 200), (13, 100)]));
    desk.press(&[KeyCode::Down, KeyCode::Down]);
    assert!(desk.chosen_row().contains("work-12"));
    desk.fresh(machine(&[(10, 1), (11, 2), (12, 999), (13, 4)]));
    assert!(desk.chosen_row().contains("work-12") && desk.says(" 1/4 "));
    desk.fresh(machine(&[(9, 5000), (10, 1), (11, 2000), (12, 999), (13, 4000)]));
    assert!(desk.chosen_row().contains("work-12") && desk.says(" 4/5 "));
    // Another order, and back.
    desk.keys("I");
    assert!(desk.chosen_row().contains("work-12") && desk.says(" 2/5 "));
    desk.keys("/work-1");
    assert!(desk.chosen_row().contains("work-12"));
    desk.press(&[KeyCode::Esc]);
    assert!(desk.chosen_row().contains("work-12"));
}

#[test]
fn when_it_ends_the_cursor_stays_at_its_row() {
    let mut desk = Desk::new(machine(&[(10, 400), (11, 300), (12, 200), (13, 100)]));
    desk.press(&[KeyCode::Down]);
    desk.fresh(machine(&[(10, 400), (12, 200), (13, 100)]));
    assert!(desk.chosen_row().contains("work-12") && desk.says(" 2/3 "));
    // From now on that one is chosen.
    desk.fresh(machine(&[(10, 400), (12, 999), (13, 100)]));
    assert!(desk.chosen_row().contains("work-12") && desk.says(" 1/3 "));
    // The last row goes: the one before it.
    desk.press(&[KeyCode::End]);
    desk.fresh(machine(&[(10, 400), (12, 999)]));
    assert!(desk.chosen_row().contains("work-10") && desk.says(" 2/2 "));
    desk.fresh(machine(&[]));
    assert!(desk.chosen().is_empty());
    desk.fresh(machine(&[(12, 1), (10, 2)]));
    assert!(desk.chosen_row().contains("work-10"), "an empty list may come back");
}

#[test]
fn a_later_process_with_the_same_pid_is_another() {
    let mut desk = Desk::new(machine(&[(10, 400), (11, 300), (12, 200)]));
    desk.press(&[KeyCode::Down]);
    let mut later = machine(&[(11, 900), (10, 400), (12, 200)]);
    later.processes[0].start = Some(states::ago(1));
    desk.fresh(later);
    assert!(desk.chosen_row().contains("work-10"), "the row stays, since what was there is gone");
}

#[test]
fn a_chip_stays_chosen_when_another_goes() {
    let mut desk = Desk::new(states::eight());
    desk.keys("]]]");
    assert!(desk.says("Memory of 3 n300"));
    let mut fewer = states::eight();
    fewer.devices.remove(0);
    desk.fresh(fewer);
    assert!(desk.says("Memory of 3 n300"));
    let mut fewer = states::eight();
    fewer.devices.truncate(2);
    desk.fresh(fewer);
    assert!(desk.says("Memory of 1 n300"));
}

#[test]
fn the_chosen_row_is_on_the_screen() {
    let many: Vec<(u32, u64)> = (10..110).map(|pid| (pid, u64::from(200 - pid))).collect();
    let mut desk = Desk::new(machine(&many)).sized(80, 24);
    for key in [KeyCode::End, KeyCode::PageUp, KeyCode::Up, KeyCode::Home, KeyCode::PageDown, KeyCode::Down] {
        desk.press(&[key]);
        assert_eq!(desk.chosen().len(), 1, "{key:?}");
    }
    let mut turned = many.clone();
    for it in &mut turned {
        it.1 = u64::from(it.0);
    }
    let chosen = desk.chosen_row();
    let name = chosen.split_whitespace().find(|it| it.starts_with("work-")).unwrap().to_owned();
    desk.fresh(machine(&turned));
    assert!(desk.chosen_row().contains(&format!("{name} ")));
}
