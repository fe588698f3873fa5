//! Sending signals.

use super::in_view;
use crate::dashboard::{Dashboard, OWN_PID, environment};
use crate::states;
use ratatui::crossterm::event::KeyCode::{Char, Down, Enter, Esc, F, Tab};
use ttmem_tui::{Effect, Environment, Msg, Settings, View};

#[test]
fn signals_need_a_choice_and_a_confirmation() {
    let mut dashboard = Dashboard::new(states::eight());
    assert!(dashboard.press(&[F(9)]).is_empty());
    assert!(dashboard.shows("Signal to python3 (pid 48213, mia)"));
    assert!(dashboard.is_selected("Cancel  "), "the harmless choice is selected");
    assert!(dashboard.press(&[Enter]).is_empty());
    assert!(dashboard.shows("no signal sent") && !dashboard.shows("Signal to"));

    assert!(dashboard.press(&[F(9), Down, Enter]).is_empty(), "TERM needs a confirmation");
    assert!(dashboard.shows("Send TERM to python3 (pid 48213, mia)?"));
    let effects = dashboard.keys("y");
    let [Effect::Signal(to, signal)] = effects.as_slice() else { panic!("{effects:?}") };
    let process = &states::eight().processes[0];
    assert_eq!((to.pid, to.start), (48_213, process.start));
    assert_eq!((to.name.as_str(), to.user.as_str()), ("python3", "mia"));
    assert_eq!((signal.number, signal.name), (15, "TERM"));
    dashboard.send(Msg::EffectDone(Ok("TERM was sent to python3".to_owned())));
    assert!(dashboard.shows("TERM was sent to python3"));
}

#[test]
fn only_y_confirms_a_signal() {
    for key in [Enter, Esc, Char(' '), Char('n'), Char('q'), Char('1'), Tab, F(9), F(10), F(12), Down] {
        let mut dashboard = Dashboard::new(states::eight());
        let effects = dashboard.press(&[F(9), Down, Enter, key]);
        assert!(effects.is_empty(), "{key:?}: {effects:?}");
        assert!(!dashboard.shows("Send signal?") && dashboard.shows("no signal sent"), "{key:?}");
        assert!(dashboard.keys("y").is_empty());
    }
    // Neither clicks nor pasted text confirm.
    for y in 0..40 {
        let mut dashboard = Dashboard::new(states::eight());
        dashboard.press(&[F(9), Down, Enter]);
        let effects = dashboard.click((60, y));
        assert!(!effects.iter().any(|it| matches!(it, Effect::Signal(..))));
        assert!(dashboard.send(Msg::Paste("y".to_owned())).is_empty());
    }
}

#[test]
fn clicked_signal_needs_a_confirmation() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.keys("K");
    let at = dashboard.find("KILL");
    assert!(dashboard.click(at).is_empty());
    assert!(dashboard.shows("Send KILL to python3"));
}

#[test]
fn confirmed_process_gets_the_signal() {
    let mut dashboard = Dashboard::new(states::eight());
    dashboard.press(&[F(9), Down, Enter]);
    let mut other = states::eight();
    other.processes.remove(0);
    dashboard.receive(other);
    let effects = dashboard.keys("y");
    assert!(matches!(&effects[..], [Effect::Signal(to, _)] if to.pid == 48_213), "{effects:?}");
}

#[test]
fn without_vim_keys_k_opens_the_signal_menu() {
    let settings = Settings { vim_keys: false, ..Settings::default() };
    let mut dashboard = Dashboard::with(states::eight(), settings, environment());
    dashboard.keys("k");
    assert!(dashboard.shows("Signal to python3"));
}

#[test]
fn some_processes_cannot_be_signalled() {
    let refused = |dashboard: &mut Dashboard, why: &str| {
        let effects = dashboard.press(&[F(9)]);
        assert!(effects.is_empty() && !dashboard.shows("Cancel"), "{why}");
        assert!(dashboard.shows(why), "{why}");
    };
    let only = |pid: Option<u32>| {
        let mut snapshot = states::one();
        snapshot.processes.truncate(1);
        snapshot.processes[0].pid = pid;
        snapshot
    };
    let readonly = Environment { readonly: true, ..environment() };
    refused(
        &mut Dashboard::with(states::eight(), Settings::default(), readonly),
        "--readonly: signals are disabled",
    );
    refused(&mut Dashboard::new(only(Some(OWN_PID))), "this dashboard");
    refused(&mut Dashboard::new(only(Some(1))), "the init process");
    refused(&mut Dashboard::new(only(Some(0))), "not signalled");
    refused(&mut Dashboard::new(only(None)), "another PID namespace");
    refused(&mut Dashboard::new(states::empty()), "no process is selected");
    let mut elsewhere = in_view(View::Buffers, states::eight());
    elsewhere.press(&[F(9)]);
    assert!(!elsewhere.shows("Signal to"), "only in the view with processes");
}
