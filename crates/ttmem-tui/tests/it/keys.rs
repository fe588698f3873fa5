//! What each key, click and paste does.

use crate::desk::{Desk, OWN_PID, terms};
use crate::states;
use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};
use ttmem_core::Snapshot;
use ttmem_core::detail::{BufferGrouping, BufferSort};
use ttmem_tui::{Effect, Msg, Settings, Terms, ThemeName, View};

use KeyCode::{Backspace, Char, Down, End, Enter, Esc, F, Home, Left, PageDown, PageUp, Right, Tab, Up};

fn in_view(view: View, snapshot: Snapshot) -> Desk {
    let settings = Settings { view: view.name().to_owned(), ..Settings::default() };
    Desk::with(snapshot, settings, terms())
}

/// Many processes of one chip, `p0` to `p99`, the first with the most.
fn crowd() -> Snapshot {
    let mut snapshot = states::one();
    let device = snapshot.devices[0].clone();
    let of = |n: u32| {
        let mut it = states::process(1000 + n, &format!("p{n}"), &[&device]);
        it.summary.dram_bytes = Some(u64::from(500 - n) << 20);
        it.summary.l1_bytes = Some(u64::from(n) << 20);
        it
    };
    snapshot.processes = (0..100).map(of).collect();
    snapshot
}

fn chosen_name(desk: &mut Desk) -> String {
    let row = desk.chosen_row();
    row.split_whitespace()
        .find(|it| it.starts_with('p') && it[1..].parse::<u32>().is_ok())
        .unwrap()
        .to_owned()
}

// ---- views

#[test]
fn digits_and_tab_go_to_views() {
    let mut desk = Desk::new(states::eight());
    for (n, view) in View::ALL.into_iter().enumerate() {
        desk.keys(&(n + 1).to_string());
        assert_eq!(desk.kept().view, view.name());
    }
    desk.press(&[Tab]);
    assert_eq!(desk.kept().view, "main", "round");
    desk.press(&[KeyCode::BackTab, KeyCode::BackTab]);
    assert_eq!(desk.kept().view, "programs");
    for view in View::ALL {
        let at = desk.find(&format!(" {} ", view.title()));
        desk.click((at.0 + 1, at.1));
        assert_eq!(desk.kept().view, view.name(), "clicked");
    }
}

#[test]
fn a_view_asks_for_what_it_shows() {
    let mut desk = Desk::new(states::eight());
    let wanted = |desk: &mut Desk, key: &str| {
        desk.keys(key);
        desk.ui.wanted(&desk.shown)
    };
    let main = wanted(&mut desk, "1");
    assert!(
        main.brief
            && main.cores_of.is_none()
            && main.buffers.is_none()
            && main.program_list.is_none()
            && !main.events
    );
    assert_eq!(wanted(&mut desk, "4").cores_of, Some(0));
    assert_eq!(wanted(&mut desk, "]").cores_of, Some(1));
    assert!(wanted(&mut desk, "5").buffers.is_some());
    assert!(wanted(&mut desk, "6").program_list.is_some());
    assert!(wanted(&mut desk, "7").events);
    desk.keys("1");
    desk.press(&[Enter]);
    assert_eq!(desk.ui.wanted(&desk.shown).pid, Some(48_213), "details take all of it");
}

// ---- moving

#[test]
fn arrows_and_letters_move_the_cursor() {
    let mut desk = Desk::new(crowd());
    assert_eq!(chosen_name(&mut desk), "p0");
    for (key, name) in [
        (Down, "p1"),
        (Char('j'), "p2"),
        (Up, "p1"),
        (Char('k'), "p0"),
        (Up, "p0"),
        (End, "p99"),
        (Down, "p99"),
        (Home, "p0"),
        (Char('G'), "p99"),
        (Home, "p0"),
    ] {
        desk.press(&[key]);
        assert_eq!(chosen_name(&mut desk), name, "{key:?}");
    }
    desk.press(&[PageDown]);
    let page = chosen_name(&mut desk);
    assert_ne!(page, "p0");
    desk.press(&[PageDown, PageUp]);
    assert_eq!(chosen_name(&mut desk), page);
    desk.press(&[PageUp]);
    assert_eq!(chosen_name(&mut desk), "p0");
    desk.ctrl('f');
    assert_eq!(chosen_name(&mut desk), page);
    desk.ctrl('b');
    assert_eq!(chosen_name(&mut desk), "p0");
}

#[test]
fn left_and_right_change_between_lists() {
    let mut desk = Desk::new(states::eight());
    for key in [Right, Left, Char('l'), Char('h')] {
        assert!(desk.chosen_row().contains("48213"));
        desk.press(&[key]);
        assert!(desk.chosen_row().contains("0 n300"), "{key:?}");
        desk.press(&[key]);
    }
    desk.press(&[Right, Down, Down]);
    assert!(desk.says("Memory of 2 n300"));
    desk.press(&[Enter]);
    assert!(desk.says("Device 2 n300"));
}

#[test]
fn on_the_map_all_four_move() {
    let mut desk = in_view(View::Map, states::one());
    assert!(desk.says("─ Core 0,3 ─"), "where there is the least room");
    for (key, core) in [
        (Right, "1,3"),
        (Down, "1,4"),
        (Char('l'), "2,4"),
        (Char('k'), "2,3"),
        (End, "7,3"),
        (Home, "0,3"),
        (PageDown, "0,8"),
        (PageUp, "0,0"),
        (Left, "0,0"),
        (Char('j'), "0,1"),
        (Char('t'), "0,3"),
    ] {
        desk.press(&[key]);
        assert!(desk.says(&format!("─ Core {core} ─")), "{key:?}");
    }
    let at = desk.find(" 87 ");
    desk.click((at.0 + 1, at.1));
    assert!(desk.says("─ Core 0,6 ─"), "clicked");
    desk.press(&[Enter]);
    assert!(desk.says("Lowest buffer"));
}

#[test]
fn chips_are_chosen_everywhere() {
    let mut desk = Desk::new(states::eight());
    desk.keys("]]");
    assert!(desk.says("Memory of 2 n300"));
    desk.keys("[[[");
    assert!(desk.says("Memory of 7 n300 R"), "round");
    desk.keys("4");
    assert!(desk.says("L1 of 7 n300 R"));
    desk.keys("]");
    assert!(desk.says("L1 of 0 n300"));
    desk.keys("2");
    desk.press(&[Right, Enter]);
    assert!(desk.says("DRAM of 1 n300"), "one chart alone");
    desk.press(&[Esc]);
    assert!(!desk.says("DRAM of 1 n300"));
    desk.keys("3");
    desk.press(&[Enter]);
    assert!(desk.says("Device 1 n300"));
    desk.keys("]");
    assert!(desk.says("Device 2 n300"), "details go along");
}

#[test]
fn the_wheel_moves_the_list_under_it() {
    let mut desk = Desk::new(crowd());
    let at = desk.find("p3 ");
    desk.mouse(MouseEventKind::ScrollDown, at);
    assert_eq!(chosen_name(&mut desk), "p3");
    desk.mouse(MouseEventKind::ScrollUp, at);
    assert_eq!(chosen_name(&mut desk), "p0");
}

#[test]
fn a_click_chooses_and_another_opens() {
    let mut desk = Desk::new(crowd());
    let at = desk.find("p2 ");
    desk.click(at);
    assert_eq!(chosen_name(&mut desk), "p2");
    assert!(!desk.says("Process 1002"));
    desk.click(at);
    assert!(desk.says("Process 1002"));
    desk.click((0, 39));
    assert!(!desk.says("Process 1002"), "beside it");
    let at = desk.find("0 n150");
    desk.click(at);
    assert!(desk.chosen_row().contains("0 n150"), "the other list has the focus");
}

#[test]
fn a_key_that_is_let_go_does_nothing() {
    let mut desk = Desk::new(crowd());
    let released = KeyEvent::new_with_kind(Down, KeyModifiers::NONE, KeyEventKind::Release);
    desk.send(Msg::Key(released));
    assert_eq!(chosen_name(&mut desk), "p0");
}

// ---- filter

#[test]
fn a_filter_holds_as_it_is_typed() {
    let mut desk = Desk::new(crowd());
    desk.keys("/p9");
    assert!(desk.says("filter: p9") && desk.says("1/11"));
    desk.keys("7");
    assert!(desk.says("1/1 ") && chosen_name(&mut desk) == "p97");
    desk.press(&[Enter, Down]);
    desk.keys("/");
    assert_eq!(desk.ui.settings, Settings::default(), "letters and digits were only typed");
    desk.press(&[Backspace]);
    assert!(desk.says("/11 ") && chosen_name(&mut desk) == "p97", "what is chosen stays so");
    desk.press(&[Enter]);
    assert!(desk.says("filter: p9"), "it is kept, and its frame says so");
    assert!(desk.keys("q").contains(&Effect::Quit), "keys are keys again");
    desk.press(&[Esc]);
    assert!(!desk.says("filter:") && desk.says("/100 "));
    // Esc while typing takes it away.
    desk.keys("/p5");
    desk.press(&[Esc]);
    assert!(!desk.says("filter:") && desk.says("/100 "));
    desk.press(&[F(4)]);
    desk.keys("zzz");
    assert!(desk.says("No process matches the filter."));
    desk.ctrl('u');
    assert!(desk.says("/100 "));
    desk.keys("q");
    assert!(desk.says("filter: q"), "no key but Ctrl-C ends it from here");
    assert_eq!(desk.ctrl('c'), [Effect::Quit]);
}

#[test]
fn each_word_of_a_filter_must_be_somewhere() {
    let mut desk = Desk::new(states::eight());
    desk.keys("/LLAMA vllm 10006");
    assert!(desk.says("1/1 ") && desk.chosen_row().contains("48977"));
    desk.keys(" x9");
    assert!(desk.says("No process matches the filter."));
}

#[test]
fn buffers_are_filtered_by_whoever_has_them() {
    let mut desk = in_view(View::Buffers, states::two());
    desk.keys("/wqkv");
    assert_eq!(desk.ui.wanted(&desk.shown).buffers.unwrap().text, "wqkv");
}

#[test]
fn a_newline_in_what_is_pasted_does_not_end_the_filter() {
    let mut desk = Desk::new(crowd());
    desk.send(Msg::Paste("ignored, since nothing is typed\n".to_owned()));
    assert!(!desk.says("ignored"));
    desk.keys("/");
    let effects = desk.send(Msg::Paste("p9\nq\t7\u{1b}".to_owned()));
    assert!(effects.is_empty());
    assert!(desk.says("filter: p9 q 7 "));
    desk.keys("x");
    assert!(desk.says("filter: p9 q 7 x"), "it is still being typed");
    desk.send(Msg::Paste("y".repeat(100_000)));
    desk.press(&[Enter]);
    assert!(desk.says("No process matches the filter."));
}

// ---- order

#[test]
fn lists_are_sorted_by_menu_and_by_click() {
    let mut desk = Desk::new(crowd());
    assert!(desk.kept().sort.is_empty(), "nobody chose an order");
    desk.press(&[Down, Up]);
    desk.keys("s");
    assert!(desk.says("Sort processes by") && desk.is_chosen("DRAM                   current"));
    desk.press(&[Down, Enter]);
    assert_eq!(desk.kept().sort["processes"], "l1");
    assert!(desk.row("Process ").contains("L1▾"));
    assert!(chosen_name(&mut desk) == "p0" && desk.says("100/100"), "what is chosen went along");
    desk.press(&[Home]);
    assert_eq!(chosen_name(&mut desk), "p99");
    desk.keys("I");
    assert_eq!(desk.kept().sort["processes"], "-l1");
    assert!(desk.row("Process ").contains("L1▴"));
    let header = desk.find("PID");
    desk.click(header);
    assert_eq!(desk.kept().sort["processes"], "pid");
    desk.click(header);
    assert_eq!(desk.kept().sort["processes"], "-pid");
    desk.press(&[F(6), Esc]);
    assert_eq!(desk.kept().sort["processes"], "-pid");
}

#[test]
fn buffers_are_sorted_by_whoever_has_them() {
    let mut desk = in_view(View::Buffers, states::two());
    desk.press(&[Down, Down]);
    let header = desk.find("Address");
    desk.click(header);
    let query = desk.ui.wanted(&desk.shown).buffers.unwrap();
    assert_eq!((query.sort, query.reversed, query.offset), (BufferSort::Address, false, 0));
    desk.keys("I");
    assert!(desk.ui.wanted(&desk.shown).buffers.unwrap().reversed);
    assert_eq!(desk.kept().sort["buffers"], "-address");
}

#[test]
fn what_was_kept_is_how_it_begins() {
    let mut desk = in_view(View::Programs, states::two());
    desk.keys("s");
    desk.press(&[Home, Enter]);
    let kept = desk.kept();
    let mut again = Desk::with(states::two(), kept.clone(), terms());
    assert_eq!(again.kept(), kept);
    assert_eq!(kept.view, "programs");
    assert_eq!(kept.fault(), None);
}

#[test]
fn g_puts_buffers_together() {
    let mut desk = in_view(View::Buffers, states::two());
    let groups = [
        (Some(BufferGrouping::Process), "Buffers by process:"),
        (Some(BufferGrouping::Program), "Buffers by program:"),
        (Some(BufferGrouping::Site), "Buffers by call site:"),
        (None, "Buffers:"),
    ];
    for (group, title) in groups {
        desk.keys("g");
        assert_eq!(desk.ui.wanted(&desk.shown).buffers.unwrap().group, group);
        assert!(desk.says(title));
    }
    desk.keys("g");
    assert!(desk.says("1/8 "), "as many as there are groups");
    desk.press(&[Esc]);
    assert!(desk.says("Buffers:"));
    desk.keys("1g");
    assert_eq!(desk.ui.wanted(&desk.shown).buffers, None, "nowhere else");
}

#[test]
fn esc_in_an_opened_group_returns_to_the_groups() {
    let mut desk = in_view(View::Buffers, states::two());
    desk.keys("ggg");
    desk.press(&[Down, Enter]);
    let opened = desk.ui.wanted(&desk.shown).buffers.unwrap();
    assert!(opened.group.is_none() && !opened.text.is_empty(), "{opened:?}");
    desk.press(&[Esc]);
    let back = desk.ui.wanted(&desk.shown).buffers.unwrap();
    assert_eq!((back.group, back.text.as_str()), (Some(BufferGrouping::Site), ""));
    assert!(desk.says("Buffers by call site:") && desk.says("2/8 "), "the cursor is on the same group");
    desk.press(&[Esc]);
    assert!(desk.says("Buffers:"), "and from the groups to the list");
}

#[test]
fn t_shows_children_below_their_parents() {
    let mut desk = Desk::new(states::galaxy()).sized(120, 90);
    let names = |desk: &mut Desk| -> Vec<String> {
        let rows = desk.rows();
        let of = |row: &String| {
            let name = row.split_once(" mia ")?.1.trim_start_matches(' ');
            Some(name[..name.find("  ").unwrap_or(name.len())].to_owned())
        };
        rows.iter().filter_map(of).collect()
    };
    let list = names(&mut desk);
    assert!(list.len() == 9 && list.iter().all(|it| !it.contains(['├', '└'])), "{list:?}");
    desk.keys("t");
    assert!(desk.says("─ Process tree ─"));
    let tree = names(&mut desk);
    assert_eq!(tree.len(), 9);
    assert_eq!(tree[0], "python3");
    let first = tree.iter().position(|it| it.ends_with("─ worker-0") || it.ends_with(" worker-0")).unwrap();
    // Two of the workers were started by the first one.
    let children: Vec<&str> = tree[first + 1..first + 3].iter().map(String::as_str).collect();
    assert!(children.iter().all(|it| it.contains("worker-3") || it.contains("worker-7")), "{tree:?}");
    assert!(children.iter().all(|it| it.contains("├ ") || it.contains("└ ")), "{tree:?}");
    assert!(tree.last().unwrap().contains('└'), "{tree:?}");
    // Where the filter hides a parent, its children are below the next one.
    desk.keys("/python3");
    desk.press(&[Enter]);
    assert_eq!(names(&mut desk), ["python3"]);
    desk.press(&[Esc]);
    desk.keys("/worker-3");
    desk.press(&[Enter]);
    assert_eq!(names(&mut desk), ["worker-3"]);
    desk.press(&[Esc]);
    desk.keys("t");
    assert_eq!(names(&mut desk), list);
}

// ---- findings

#[test]
fn acknowledged_findings_are_hidden_until_they_happen_again() {
    let mut desk = in_view(View::Events, states::findings()).sized(200, 60);
    let text = "double free x2";
    let counts = |desk: &mut Desk| desk.row("ttmem lab1").contains("5 warnings");
    assert!(desk.says(text) && counts(&mut desk));
    desk.press(&[Left, Down, Down, Down, Down, Down]);
    assert!(desk.chosen_row().contains(text));
    desk.keys("a");
    assert!(!desk.says(text) && desk.says("Findings, 1 acknowledged (A: show)"));
    assert!(desk.row("ttmem lab1").contains("4 warnings"), "neither is it counted");
    desk.keys("A");
    assert!(desk.says("(acknowledged) double free x2") && desk.says("1 of them acknowledged"));
    desk.keys("A");
    desk.fresh(states::findings());
    assert!(!desk.says(text), "it did not happen again");
    let mut again = states::findings();
    again.findings.iter_mut().find(|it| it.text.contains(text)).unwrap().count += 1;
    desk.fresh(again);
    assert!(desk.says(text) && counts(&mut desk));
    // What was acknowledged and is gone is new when it returns.
    desk.keys("a");
    desk.fresh(states::one());
    desk.fresh(states::findings());
    assert!(desk.says("15/15 ") || desk.says("/15 "), "{}", desk.rows().join("\n"));
}

#[test]
fn findings_are_shown_in_full() {
    let whole = "requested 2.0 GiB of DRAM on device 1; largest free block 38.0 MiB per bank";
    for (view, size) in [(View::Main, (200, 60)), (View::Events, (200, 60)), (View::Events, (120, 40))] {
        let mut desk = in_view(view, states::findings()).sized(size.0, size.1);
        let words =
            desk.rows().iter().map(|row| row.replace(['│', '╭', '╮'], " ")).collect::<Vec<_>>().join(" ");
        let words: Vec<&str> = words.split_whitespace().collect();
        for word in whole.split(' ') {
            assert!(words.contains(&word), "{word} in {view:?} at {size:?}");
        }
        assert!(!desk.row("out of memory").contains('…'));
    }
}

// ---- time

#[test]
fn pause_holds_the_picture_while_history_goes_on() {
    let mut desk = Desk::new(states::one());
    desk.keys("p");
    let before = (desk.rows(), desk.shown.history.clone());
    assert!(before.0[0].contains("PAUSED 14:02:11"));
    let later = |seconds: i64| -> Snapshot {
        let mut it = states::one();
        it.at = it.at.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        it.processes.clear();
        let history = it.devices[0].history.as_mut().unwrap();
        let mut sample = history.dram_total.pop().unwrap();
        sample.at = it.at;
        history.dram_total = vec![sample];
        it
    };
    let since: Option<Timestamp> = Some(states::now());
    let detail = desk.shown.detail.clone();
    let fresh = |seconds| Msg::Fresh {
        snapshot: Box::new(later(seconds)),
        detail: detail.clone(),
        since,
        by: "daemon".to_owned(),
    };
    desk.send(fresh(5));
    assert_eq!(desk.rows(), before.0);
    assert_ne!(desk.shown.history, before.1);
    assert_eq!(desk.keys(" "), [Effect::Fetch], "and on, at once");
    desk.send(fresh(6));
    let rows = desk.rows();
    assert!(!rows[0].contains("PAUSED") && rows[0].contains("14:02:17"));
    assert!(desk.says("No process uses a device"));
}

#[test]
fn no_daemon_is_named_with_what_to_do() {
    let mut desk = Desk::before_anything(Settings::default(), terms()).sized(80, 24);
    desk.send(Msg::Lost("no daemon answers at /run/ttmem/query.sock".to_owned()));
    assert!(desk.rows()[2..].iter().any(|row| row.contains("no daemon answers at /run/ttmem/query.sock")));
    assert!(desk.says("Start a daemon: `ttmem serve`") && desk.says("`ttmem top --local`"));
}

#[test]
fn another_view_is_shown_even_while_paused() {
    let mut desk = Desk::new(states::two());
    desk.keys("p6");
    assert!(desk.says("PAUSED") && desk.says("Programs: 12 cached"));
}

#[test]
fn plus_and_minus_look_more_and_less_often() {
    let mut desk = Desk::new(states::one());
    desk.keys("+");
    assert_eq!(desk.ui.settings.refresh_ms, 250);
    assert!(desk.says("refresh interval: 250 ms"));
    desk.keys("-");
    desk.keys("-");
    assert_eq!(desk.ui.settings.refresh_ms, 1000);
    desk.keys("=");
    assert_eq!(desk.ui.settings.refresh_ms, 500);
    desk.keys("+++++++++");
    assert_eq!(desk.ui.settings.refresh_ms, 100, "no more often than anybody can read");
    desk.keys("--------------------");
    assert_eq!(desk.ui.settings.refresh_ms, 60_000);
    assert_eq!(desk.ui.settings.fault(), None);
    desk.ms += 60_000;
    desk.send(Msg::Tick);
    assert!(!desk.says("looks every"), "words go by themselves");
}

#[test]
fn charts_have_a_time_axis_and_a_scale() {
    let mut desk = in_view(View::Charts, states::two());
    for seconds in [300, 900, 3600, 10_800, 21_600, 86_400, 60] {
        desk.keys("t");
        assert_eq!(desk.kept().window_seconds, seconds);
    }
    desk.keys(">><");
    assert_eq!(desk.kept().window_seconds, 300);
    desk.keys("<<<");
    assert_eq!(desk.kept().window_seconds, 60);
    let before = desk.rows();
    desk.keys("z");
    assert_ne!(desk.rows(), before);
    desk.keys("z");
    assert_eq!(desk.rows(), before);
}

// ---- signals

#[test]
fn a_signal_takes_a_choice_and_a_yes() {
    let mut desk = Desk::new(states::eight());
    assert!(desk.press(&[F(9)]).is_empty());
    assert!(desk.says("Signal to python3 (pid 48213, mia)"));
    assert!(desk.is_chosen("Cancel  "), "the harmless one is chosen");
    assert!(desk.press(&[Enter]).is_empty());
    assert!(desk.says("no signal sent") && !desk.says("Signal to"));

    assert!(desk.press(&[F(9), Down, Enter]).is_empty(), "TERM asks");
    assert!(desk.says("Send TERM to python3 (pid 48213, mia)?"));
    let effects = desk.keys("y");
    let [Effect::Signal(to, signal)] = effects.as_slice() else { panic!("{effects:?}") };
    let process = &states::eight().processes[0];
    assert_eq!((to.pid, to.start), (48_213, process.start));
    assert_eq!((to.name.as_str(), to.user.as_str()), ("python3", "mia"));
    assert_eq!((signal.number, signal.name), (15, "TERM"));
    desk.send(Msg::Done(Ok("TERM was sent to python3".to_owned())));
    assert!(desk.says("TERM was sent to python3"));
}

#[test]
fn nothing_but_y_sends() {
    for key in [Enter, Esc, Char(' '), Char('n'), Char('q'), Char('1'), Tab, F(9), F(10), F(12), Down] {
        let mut desk = Desk::new(states::eight());
        let effects = desk.press(&[F(9), Down, Enter, key]);
        assert!(effects.is_empty(), "{key:?}: {effects:?}");
        assert!(!desk.says("Send signal?") && desk.says("no signal sent"), "{key:?}");
        assert!(desk.keys("y").is_empty());
    }
    // Neither does the mouse, wherever it clicks, nor what is pasted.
    for y in 0..40 {
        let mut desk = Desk::new(states::eight());
        desk.press(&[F(9), Down, Enter]);
        let effects = desk.click((60, y));
        assert!(!effects.iter().any(|it| matches!(it, Effect::Signal(..))));
        assert!(desk.send(Msg::Paste("y".to_owned())).is_empty());
    }
}

#[test]
fn a_click_on_a_signal_asks_as_well() {
    let mut desk = Desk::new(states::eight());
    desk.keys("K");
    let at = desk.find("KILL");
    assert!(desk.click(at).is_empty());
    assert!(desk.says("Send KILL to python3"));
}

#[test]
fn the_one_that_was_asked_about_is_the_one_that_gets_it() {
    let mut desk = Desk::new(states::eight());
    desk.press(&[F(9), Down, Enter]);
    let mut other = states::eight();
    other.processes.remove(0);
    desk.fresh(other);
    let effects = desk.keys("y");
    assert!(matches!(&effects[..], [Effect::Signal(to, _)] if to.pid == 48_213), "{effects:?}");
}

#[test]
fn without_vim_keys_k_is_the_signal_menu() {
    let settings = Settings { vim_keys: false, ..Settings::default() };
    let mut desk = Desk::with(states::eight(), settings, terms());
    desk.keys("k");
    assert!(desk.says("Signal to python3"));
}

#[test]
fn some_get_no_signal() {
    let refused = |desk: &mut Desk, why: &str| {
        let effects = desk.press(&[F(9)]);
        assert!(effects.is_empty() && !desk.says("Cancel"), "{why}");
        assert!(desk.says(why), "{why}");
    };
    let only = |pid: Option<u32>| {
        let mut snapshot = states::one();
        snapshot.processes.truncate(1);
        snapshot.processes[0].pid = pid;
        snapshot
    };
    let readonly = Terms { readonly: true, ..terms() };
    refused(
        &mut Desk::with(states::eight(), Settings::default(), readonly),
        "--readonly: signals are disabled",
    );
    refused(&mut Desk::new(only(Some(OWN_PID))), "this dashboard");
    refused(&mut Desk::new(only(Some(1))), "the init process");
    refused(&mut Desk::new(only(Some(0))), "not signalled");
    refused(&mut Desk::new(only(None)), "another PID namespace");
    refused(&mut Desk::new(states::empty()), "no process is selected");
    let mut elsewhere = in_view(View::Buffers, states::eight());
    elsewhere.press(&[F(9)]);
    assert!(!elsewhere.says("Signal to"), "only where processes are seen");
}

// ---- settings, help, the rest

#[test]
fn f12_keeps_what_was_changed() {
    let mut desk = Desk::new(states::eight());
    assert_eq!(desk.kept(), Settings::default());
    desk.keys("+T");
    desk.click((3, 3));
    let (x, y) = desk.find("L1  CPU %");
    desk.click((x, y));
    desk.keys("2t");
    let kept = desk.kept();
    let wanted = Settings {
        theme: ThemeName::Light,
        refresh_ms: 250,
        view: "charts".to_owned(),
        window_seconds: 300,
        sort: [("processes".to_owned(), "l1".to_owned())].into(),
        ..Settings::default()
    };
    assert_eq!(kept, wanted);
    desk.send(Msg::Done(Err("no room on the disk".to_owned())));
    assert!(desk.says("no room on the disk"));
}

#[test]
fn settings_change_at_once() {
    let mut desk = Desk::new(states::eight());
    desk.press(&[F(2)]);
    assert!(desk.says("Settings") && desk.is_chosen("Theme   "));
    desk.press(&[Down, Enter]);
    assert_eq!(desk.ui.settings.refresh_ms, 1000);
    desk.press(&[Down, Right]);
    assert_eq!(desk.kept().window_seconds, 300);
    desk.press(&[Down, Enter]);
    assert!(desk.ui.settings.ascii && desk.rows().iter().all(|row| row.is_ascii()));
    assert_eq!(desk.press(&[Down, Enter]), [Effect::Mouse(false)]);
    desk.press(&[Down, Enter]);
    assert!(!desk.ui.settings.vim_keys);
    desk.press(&[Home, Enter]);
    assert_eq!(desk.ui.settings.theme, ThemeName::Light);
    let effects = desk.press(&[F(12)]);
    assert!(matches!(&effects[..], [Effect::Save(kept)] if kept.ascii && !kept.mouse && !kept.vim_keys));
    desk.press(&[Esc]);
    assert!(!desk.says("Settings"));
}

#[test]
fn help_opens_moves_and_closes() {
    let mut desk = Desk::new(states::eight()).sized(80, 24);
    for open in [Char('?'), F(1)] {
        desk.press(&[open]);
        assert!(desk.says("─ Keys ─") && desk.says("more ▼"));
        desk.press(&[End]);
        assert!(desk.says("▲ more") && desk.says("publishes nothing"));
        desk.press(&[Home]);
        assert!(desk.says("devices, memory, processes"));
        desk.press(&[Esc]);
        assert!(!desk.says("─ Keys ─"));
    }
    desk.keys("?5");
    assert!(!desk.says("─ Keys ─"));
    assert_eq!(desk.kept().view, "buffers", "digits go on from there");
}

#[test]
fn details_of_everything_open_and_close() {
    for (view, keys, title) in [
        (View::Main, vec![Enter], "Process 48213"),
        (View::Main, vec![Left, Enter], "Device 0 n150"),
        (View::Telemetry, vec![Down, Enter], "Device 1 n150"),
        (View::Map, vec![Enter], "Lowest buffer"),
        (View::Buffers, vec![Enter], "Allocation 0x20000"),
        (View::Programs, vec![Enter], "Program 11"),
        (View::Events, vec![Enter], "an event of a later version"),
        (View::Events, vec![Left, Enter], "Severity           error"),
    ] {
        let mut desk = in_view(view, states::findings());
        desk.press(&keys);
        assert!(desk.says(title), "{view:?} {keys:?}\n{}", desk.rows().join("\n"));
        assert!(desk.says("Esc back"));
        desk.press(&[Esc]);
        assert!(!desk.says("Esc back"));
    }
}

#[test]
fn what_is_looked_at_may_go() {
    let mut desk = Desk::new(states::eight());
    desk.press(&[Enter]);
    desk.fresh(states::empty());
    assert!(desk.says("It no longer exists."));
}

#[test]
fn keys_that_end_and_renew() {
    let mut desk = Desk::new(states::one());
    for key in [Char('q'), Char('Q'), F(10)] {
        assert_eq!(desk.press(&[key]), [Effect::Quit]);
    }
    assert_eq!(desk.ctrl('c'), [Effect::Quit]);
    assert_eq!(desk.ctrl('z'), [Effect::Suspend]);
    assert_eq!(desk.ctrl('l'), [Effect::Redraw]);
    assert_eq!(desk.press(&[Char('r'), F(5)]), [Effect::Fetch, Effect::Fetch]);
    // In a menu, q only closes it.
    assert!(desk.keys("?q").is_empty() && !desk.says("─ Keys ─"));
    assert!(desk.press(&[F(9)]).is_empty());
    assert_eq!(desk.ctrl('c'), [Effect::Quit]);
    assert!(desk.press(&[Esc, Esc]).is_empty());
    assert!(desk.says("q: quit"), "Esc does not end it, and says what does");
}
