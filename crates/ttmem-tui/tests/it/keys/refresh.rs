//! Pausing, refreshing and the time axis.

use super::in_view;
use crate::dashboard::{Dashboard, environment};
use crate::states;
use jiff::{SignedDuration, Timestamp};
use ttmem_core::Snapshot;
use ttmem_tui::{Effect, Msg, Settings, View};

#[test]
fn pause_stops_the_display_but_not_the_history() {
    let mut dashboard = Dashboard::new(states::one());
    dashboard.keys("p");
    let before = (dashboard.rows(), dashboard.data.history.clone());
    assert!(before.0[0].contains("PAUSED 14:02:11"));
    let later = |seconds: i64| -> Snapshot {
        let mut snapshot = states::one();
        snapshot.at = snapshot.at.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        snapshot.processes.clear();
        let history = snapshot.devices[0].history.as_mut().unwrap();
        let mut sample = history.dram_total.pop().unwrap();
        sample.at = snapshot.at;
        history.dram_total = vec![sample];
        snapshot
    };
    let since: Option<Timestamp> = Some(states::now());
    let detail = dashboard.data.detail.clone();
    let message = |seconds| Msg::Snapshot {
        snapshot: Box::new(later(seconds)),
        detail: detail.clone(),
        since,
        source: "daemon".to_owned(),
    };
    dashboard.send(message(5));
    assert_eq!(dashboard.rows(), before.0);
    assert_ne!(dashboard.data.history, before.1);
    assert_eq!(dashboard.keys(" "), [Effect::Fetch], "resuming fetches at once");
    dashboard.send(message(6));
    let rows = dashboard.rows();
    assert!(!rows[0].contains("PAUSED") && rows[0].contains("14:02:17"));
    assert!(dashboard.shows("No process uses a device"));
}

#[test]
fn missing_daemon_is_reported_with_a_remedy() {
    let mut dashboard = Dashboard::without_data(Settings::default(), environment()).sized(80, 24);
    dashboard.send(Msg::FetchFailed("no daemon answers at /run/ttmem/query.sock".to_owned()));
    assert!(
        dashboard.rows()[2..].iter().any(|row| row.contains("no daemon answers at /run/ttmem/query.sock"))
    );
    assert!(dashboard.shows("Start a daemon: `ttmem serve`") && dashboard.shows("`ttmem top --local`"));
}

#[test]
fn views_can_be_switched_while_paused() {
    let mut dashboard = Dashboard::new(states::two());
    dashboard.keys("p6");
    assert!(dashboard.shows("PAUSED") && dashboard.shows("Programs: 12 cached"));
}

#[test]
fn plus_and_minus_change_the_refresh_interval() {
    let mut dashboard = Dashboard::new(states::one());
    dashboard.keys("+");
    assert_eq!(dashboard.ui.settings.refresh_ms, 250);
    assert!(dashboard.shows("refresh interval: 250 ms"));
    dashboard.keys("-");
    dashboard.keys("-");
    assert_eq!(dashboard.ui.settings.refresh_ms, 1000);
    dashboard.keys("=");
    assert_eq!(dashboard.ui.settings.refresh_ms, 500);
    dashboard.keys("+++++++++");
    assert_eq!(dashboard.ui.settings.refresh_ms, 100, "shorter intervals are not readable");
    dashboard.keys("--------------------");
    assert_eq!(dashboard.ui.settings.refresh_ms, 60_000);
    assert_eq!(dashboard.ui.settings.find_error(), None);
    dashboard.ms += 60_000;
    dashboard.send(Msg::Tick);
    assert!(!dashboard.shows("looks every"), "the message disappears");
}

#[test]
fn charts_have_a_time_axis_and_a_scale() {
    let mut dashboard = in_view(View::Charts, states::two());
    for seconds in [300, 900, 3600, 10_800, 21_600, 86_400, 60] {
        dashboard.keys("t");
        assert_eq!(dashboard.saved_settings().window_seconds, seconds);
    }
    dashboard.keys(">><");
    assert_eq!(dashboard.saved_settings().window_seconds, 300);
    dashboard.keys("<<<");
    assert_eq!(dashboard.saved_settings().window_seconds, 60);
    let before = dashboard.rows();
    dashboard.keys("z");
    assert_ne!(dashboard.rows(), before);
    dashboard.keys("z");
    assert_eq!(dashboard.rows(), before);
}
