//! The effects of keys, clicks and pasted text.

mod addresses;
mod filters;
mod findings;
mod flame;
mod refresh;
mod settings;
mod signals;
mod sorting;
mod views;

use crate::dashboard::{Dashboard, environment};
use crate::states;
use ttmem_core::Snapshot;
use ttmem_tui::{Settings, View};

fn in_view(view: View, snapshot: Snapshot) -> Dashboard {
    let settings = Settings { view: view.name().to_owned(), ..Settings::default() };
    Dashboard::with(snapshot, settings, environment())
}

/// 100 processes on one device, `p0` to `p99`; the first has the most DRAM and the last the most L1.
fn many_processes() -> Snapshot {
    let mut snapshot = states::one();
    let device = snapshot.devices[0].clone();
    let process = |n: u32| {
        let mut process = states::process(1000 + n, &format!("p{n}"), &[&device]);
        process.summary.dram_bytes = Some(u64::from(500 - n) << 20);
        process.summary.l1_bytes = Some(u64::from(n) << 20);
        process
    };
    snapshot.processes = (0..100).map(process).collect();
    snapshot
}

fn selected_name(dashboard: &mut Dashboard) -> String {
    let row = dashboard.selected_row();
    row.split_whitespace()
        .find(|it| it.starts_with('p') && it[1..].parse::<u32>().is_ok())
        .unwrap()
        .to_owned()
}
