//! The loop: one thread owns the terminal and all state. Others only send it messages: one reads keys, one waits for signals,
//! one fetches.

use crate::settings::Settings;
use crate::shown::Shown;
use crate::terminal::{FETCHER, Screen};
use crate::ui::{Recipient, Signal, Terms, Ui};
use crate::update::{Effect, Msg, update};
use crate::views::{Now, view};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use ttmem_core::{Detail, Snapshot};

/// How it begins.
#[derive(Debug)]
pub struct Start {
    /// As they were kept, or typed.
    pub settings: Settings,
    /// What does not change.
    pub terms: Terms,
    /// When to end by itself.
    pub until: Option<Instant>,
}

/// A snapshot and its source, or why there is none.
pub type Fetched = Result<(Snapshot, String), String>;

/// The outcome of an action, as a message.
pub type Done = Result<String, String>;

/// Sends a signal; returns the outcome.
pub type Sender = dyn FnMut(&Recipient, &Signal) -> Done;

/// What the dashboard cannot do itself.
pub struct Hands {
    /// Makes a snapshot, or says why not. Runs on a thread of its own.
    pub fetch: Box<dyn FnMut(&Detail) -> Fetched + Send>,
    /// Sends a signal; returns the outcome.
    pub signal: Box<Sender>,
    /// Keeps settings; likewise.
    pub save: Box<dyn FnMut(&Settings) -> Done>,
}

/// Messages that may wait; further senders block.
const WAITING: usize = 1024;
/// A terminal that takes nothing holds the loop up; those who want it to end do not wait longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts, when nothing comes.
const RETRIES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// Ages are shown, so time passes even if nothing else does.
const TICK: Duration = Duration::from_secs(1);

/// What wakes the loop.
enum Input {
    Event(Event),
    Signal(i32),
    Fetched(Box<(Fetched, Detail, Option<Timestamp>)>),
    /// The terminal is gone.
    Gone,
}

/// What to fetch, and whether the last thing that was fetched has been taken.
struct Order {
    detail: Detail,
    refresh: Duration,
    window_seconds: u64,
    at_once: bool,
    untaken: bool,
    ended: bool,
}

type Orders = Arc<(Mutex<Order>, Condvar)>;

fn order(orders: &Orders) -> MutexGuard<'_, Order> {
    // Poisoning is harmless: the data is plain.
    orders.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the dashboard until the user or a signal ends it.
pub fn run(start: Start, hands: Hands) -> io::Result<()> {
    let Hands { fetch, mut signal, mut save } = hands;
    let mut ui = Ui::new(start.settings, start.terms);
    let mut shown = Shown::nothing(TimeZone::system());
    let mut screen = Screen::enter(ui.settings.mouse)?;
    let (send, inputs) = sync_channel(WAITING);
    let orders: Orders = Arc::new((
        Mutex::new(Order {
            detail: ui.wanted(&shown),
            refresh: Duration::from_millis(ui.settings.refresh_ms),
            window_seconds: ui.window_seconds(),
            at_once: true,
            untaken: false,
            ended: false,
        }),
        Condvar::new(),
    ));
    wait_for_signals(send.clone())?;
    read_keys(send.clone());
    fetch_forever(fetch, Arc::clone(&orders), send)?;

    let begin = Instant::now();
    let ended = (|| -> io::Result<()> {
        loop {
            let now = Now { ms: begin.elapsed().as_millis() as u64, wall: Timestamp::now() };
            let laid = screen.draw(|buffer| view(&shown, &ui, now, buffer))?;
            ui.settle(laid);
            ask_for_what_is_seen(&ui, &shown, &orders);
            // Everything that waits is taken in before the next drawing: keys held down must not queue up.
            let Some(first) = next(&inputs, start.until) else { return Ok(()) };
            for input in std::iter::once(first).chain(inputs.try_iter().take(WAITING)) {
                let now_ms = begin.elapsed().as_millis() as u64;
                let msg = match input {
                    Input::Signal(SIGTSTP) => {
                        suspend(&mut screen, &ui)?;
                        continue;
                    }
                    Input::Signal(SIGCONT) => {
                        screen.come_back(ui.settings.mouse)?;
                        continue;
                    }
                    Input::Signal(_) | Input::Gone => return Ok(()),
                    Input::Event(Event::Key(key)) => Msg::Key(key),
                    Input::Event(Event::Mouse(mouse)) => Msg::Mouse(mouse),
                    Input::Event(Event::Paste(text)) => Msg::Paste(text),
                    Input::Event(_) => continue,
                    Input::Fetched(fetched) => {
                        let (fetched, detail, since) = *fetched;
                        order(&orders).untaken = false;
                        // The fetching thread may wait for this.
                        orders.1.notify_all();
                        match fetched {
                            Ok((snapshot, by)) => {
                                Msg::Fresh { snapshot: Box::new(snapshot), detail, since, by }
                            }
                            Err(why) => Msg::Lost(why),
                        }
                    }
                };
                for effect in update(&mut ui, &mut shown, now_ms, msg) {
                    let done = match effect {
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => {
                            suspend(&mut screen, &ui)?;
                            continue;
                        }
                        Effect::Redraw => {
                            screen.forget()?;
                            continue;
                        }
                        Effect::Mouse(ours) => {
                            screen.set_mouse(ours)?;
                            continue;
                        }
                        Effect::Fetch => {
                            order(&orders).at_once = true;
                            orders.1.notify_all();
                            continue;
                        }
                        Effect::Save(settings) => save(&settings),
                        Effect::Signal(to, which) => signal(&to, which),
                    };
                    update(&mut ui, &mut shown, now_ms, Msg::Done(done));
                }
            }
            let now_ms = begin.elapsed().as_millis() as u64;
            update(&mut ui, &mut shown, now_ms, Msg::Tick);
        }
    })();
    order(&orders).ended = true;
    orders.1.notify_all();
    drop(screen);
    match ended {
        // The terminal is gone: there is nowhere to report it.
        Err(e) if e.raw_os_error() == Some(5) || e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Waits for something to happen, or for the time to end: `None`.
fn next(inputs: &Receiver<Input>, until: Option<Instant>) -> Option<Input> {
    let wait = until.map_or(TICK, |until| until.saturating_duration_since(Instant::now()).min(TICK));
    match inputs.recv_timeout(wait) {
        Ok(input) => Some(input),
        Err(RecvTimeoutError::Timeout) if until.is_some_and(|until| Instant::now() >= until) => None,
        // A second passed.
        Err(RecvTimeoutError::Timeout) => Some(Input::Event(Event::FocusGained)),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// To the shell, and back when it says so.
fn suspend(screen: &mut Screen, ui: &Ui) -> io::Result<()> {
    Screen::leave();
    signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
    screen.come_back(ui.settings.mouse)
}

fn ask_for_what_is_seen(ui: &Ui, shown: &Shown, orders: &Orders) {
    let (detail, window_seconds) = (ui.wanted(shown), ui.window_seconds());
    let refresh = Duration::from_millis(ui.settings.refresh_ms);
    let mut order = order(orders);
    if order.detail != detail || order.window_seconds != window_seconds {
        order.at_once = true;
    } else if order.refresh == refresh {
        return;
    }
    (order.detail, order.window_seconds, order.refresh) = (detail, window_seconds, refresh);
    drop(order);
    orders.1.notify_all();
}

fn read_keys(send: SyncSender<Input>) {
    /// However reading ends: without keys, nothing could end the program.
    struct Reader(SyncSender<Input>);
    impl Drop for Reader {
        fn drop(&mut self) {
            let _ = self.0.try_send(Input::Gone);
        }
    }
    let reader = Reader(send);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if reader.0.send(Input::Event(event)).is_err() {
                return;
            }
        }
    });
}

fn wait_for_signals(send: SyncSender<Input>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let _ = send.try_send(Input::Signal(signal));
            if matches!(signal, SIGINT | SIGTERM | SIGHUP) {
                // Normally the loop ends the program long before that.
                thread::sleep(PATIENCE);
                let _ = ratatui::crossterm::terminal::disable_raw_mode();
                std::process::exit(1);
            }
        }
    });
    Ok(())
}

fn fetch_forever(
    mut fetch: Box<dyn FnMut(&Detail) -> Fetched + Send>,
    orders: Orders,
    send: SyncSender<Input>,
) -> io::Result<()> {
    let work = move || {
        let mut failures = 0;
        let mut last: Option<Instant> = None;
        // History is fetched once, then only what is new of it.
        let (mut newest, mut told_seconds) = (None, 0);
        loop {
            let mut now = order(&orders);
            loop {
                if now.ended {
                    return;
                }
                let pause =
                    if failures == 0 { now.refresh } else { RETRIES[(failures - 1).min(RETRIES.len() - 1)] };
                let left = last.map_or(Duration::ZERO, |last| pause.saturating_sub(last.elapsed()));
                if !now.untaken && (left.is_zero() || now.at_once) {
                    break;
                }
                let left = if now.untaken { TICK } else { left };
                now = orders.1.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            now.at_once = false;
            let detail = now.detail.clone();
            let window = now.window_seconds;
            drop(now);
            last = Some(Instant::now());
            if window > told_seconds {
                newest = None;
            }
            let since = newest
                .or_else(|| Timestamp::now().checked_sub(SignedDuration::from_secs(window as i64)).ok());
            let asked = Detail { history_since: since, ..detail.clone() };
            // A panic in there is reported on the screen.
            let fetched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fetch(&asked)));
            let fetched = fetched.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
                Err(format!("refresh failed: {text}"))
            });
            match &fetched {
                Ok((snapshot, _)) => {
                    failures = 0;
                    told_seconds = told_seconds.max(window);
                    let samples = snapshot.devices.iter().filter_map(|it| it.history.as_ref());
                    let latest = samples.flat_map(|it| [it.dram_total.last(), it.l1_total.last()]).flatten();
                    newest = latest.map(|it| it.at).max().or(newest);
                }
                Err(_) => failures += 1,
            }
            order(&orders).untaken = true;
            if send.send(Input::Fetched(Box::new((fetched, detail, since)))).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name(FETCHER.to_owned()).spawn(work).map(|_| ())
}
