//! The event loop. One thread owns the terminal and all state. Three others send it messages: one reads keys, one waits for
//! signals, one fetches snapshots.

use crate::data::{Data, FailureKey};
use crate::settings::Settings;
use crate::terminal::{FETCH_THREAD, Screen};
use crate::ui::{Environment, Recipient, Signal, Ui};
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
use ttmem_core::snapshot::PostMortem;
use ttmem_core::{Detail, Snapshot};

/// How the dashboard starts.
#[derive(Debug)]
pub struct StartOptions {
    /// Settings, from the file and the command line.
    pub settings: Settings,
    /// Properties of the terminal and the command line.
    pub environment: Environment,
    /// When to end without a key.
    pub until: Option<Instant>,
}

/// A snapshot and its source, or the reason why there is none.
pub type FetchResult = Result<(Snapshot, String), String>;

/// The outcome of an effect, as a message.
pub type EffectResult = Result<String, String>;

/// A function that reads the post-mortem of a failed allocation.
pub type PostMortemReader = dyn FnMut(FailureKey) -> Result<PostMortem, String>;

/// A function that sends a signal.
pub type SignalSender = dyn FnMut(&Recipient, &Signal) -> EffectResult;

/// The functions that the dashboard calls for what it cannot do itself.
pub struct Callbacks {
    /// Fetches a snapshot. Runs on a thread of its own.
    pub fetch: Box<dyn FnMut(&Detail) -> FetchResult + Send>,
    /// Reads a post-mortem.
    pub post_mortem: Box<PostMortemReader>,
    /// Sends a signal.
    pub signal: Box<SignalSender>,
    /// Saves settings.
    pub save: Box<dyn FnMut(&Settings) -> EffectResult>,
}

/// The most inputs in the queue; further senders block.
const MAX_QUEUED: usize = 1024;
/// How long a signal waits for the loop to end the program: a terminal that accepts no output blocks the loop.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses after failures to fetch.
const RETRIES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// The longest time between two frames: the screen shows ages.
const TICK: Duration = Duration::from_secs(1);

/// An input of the loop.
enum Input {
    Event(Event),
    Signal(i32),
    Fetched(Box<(FetchResult, Detail, Option<Timestamp>)>),
    /// The terminal is gone.
    Gone,
}

/// The work requested from the fetching thread.
struct FetchRequest {
    detail: Detail,
    refresh: Duration,
    window_seconds: u64,
    /// Fetch without waiting for the refresh interval.
    at_once: bool,
    /// The loop has not handled the last result yet.
    unhandled: bool,
    ended: bool,
}

/// The request that the loop and the fetching thread share.
type SharedRequest = Arc<(Mutex<FetchRequest>, Condvar)>;

fn lock(shared: &SharedRequest) -> MutexGuard<'_, FetchRequest> {
    // Poisoning is harmless: the data is plain.
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the dashboard until the user or a signal ends it.
pub fn run(options: StartOptions, callbacks: Callbacks) -> io::Result<()> {
    let Callbacks { fetch, mut post_mortem, mut signal, mut save } = callbacks;
    let mut ui = Ui::new(options.settings, options.environment);
    let mut data = Data::empty(TimeZone::system());
    let mut screen = Screen::enter(ui.settings.mouse)?;
    let (send, inputs) = sync_channel(MAX_QUEUED);
    let request: SharedRequest = Arc::new((
        Mutex::new(FetchRequest {
            detail: ui.required_detail(&data),
            refresh: Duration::from_millis(ui.settings.refresh_ms),
            window_seconds: ui.window_seconds(),
            at_once: true,
            unhandled: false,
            ended: false,
        }),
        Condvar::new(),
    ));
    wait_for_signals(send.clone())?;
    read_keys(send.clone());
    spawn_fetcher(fetch, Arc::clone(&request), send)?;

    let begin = Instant::now();
    let ended = (|| -> io::Result<()> {
        loop {
            let now = Now { ms: begin.elapsed().as_millis() as u64, wall: Timestamp::now() };
            let layout = screen.draw(|buffer| view(&data, &ui, now, buffer))?;
            ui.set_layout(layout);
            update_request(&ui, &data, &request);
            // All queued inputs are handled before the next frame, so that a key held down does not fill the queue.
            let Some(first) = next(&inputs, options.until) else { return Ok(()) };
            for input in std::iter::once(first).chain(inputs.try_iter().take(MAX_QUEUED)) {
                let now_ms = begin.elapsed().as_millis() as u64;
                let msg = match input {
                    Input::Signal(SIGTSTP) => {
                        suspend(&mut screen, &ui)?;
                        continue;
                    }
                    Input::Signal(SIGCONT) => {
                        screen.resume(ui.settings.mouse)?;
                        continue;
                    }
                    Input::Signal(_) | Input::Gone => return Ok(()),
                    Input::Event(Event::Key(key)) => Msg::Key(key),
                    Input::Event(Event::Mouse(mouse)) => Msg::Mouse(mouse),
                    Input::Event(Event::Paste(text)) => Msg::Paste(text),
                    Input::Event(_) => continue,
                    Input::Fetched(fetched) => {
                        let (fetched, detail, since) = *fetched;
                        lock(&request).unhandled = false;
                        // The fetching thread may wait for this.
                        request.1.notify_all();
                        match fetched {
                            Ok((snapshot, source)) => {
                                Msg::Snapshot { snapshot: Box::new(snapshot), detail, since, source }
                            }
                            Err(reason) => Msg::FetchFailed(reason),
                        }
                    }
                };
                for effect in update(&mut ui, &mut data, now_ms, msg) {
                    let result = match effect {
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => {
                            suspend(&mut screen, &ui)?;
                            continue;
                        }
                        Effect::Redraw => {
                            screen.force_redraw()?;
                            continue;
                        }
                        Effect::Mouse(on) => {
                            screen.set_mouse(on)?;
                            continue;
                        }
                        Effect::Fetch => {
                            lock(&request).at_once = true;
                            request.1.notify_all();
                            continue;
                        }
                        Effect::Save(settings) => save(&settings),
                        Effect::Signal(recipient, which) => signal(&recipient, which),
                    };
                    update(&mut ui, &mut data, now_ms, Msg::EffectDone(result));
                }
            }
            let now_ms = begin.elapsed().as_millis() as u64;
            update(&mut ui, &mut data, now_ms, Msg::Tick);
            if let Some(failure) = ui.required_failure(&data) {
                let found = post_mortem(failure).map(Arc::new);
                update(&mut ui, &mut data, now_ms, Msg::PostMortem(failure, found));
            }
        }
    })();
    lock(&request).ended = true;
    request.1.notify_all();
    drop(screen);
    match ended {
        // The terminal is gone, so the error cannot be reported.
        Err(e) if e.raw_os_error() == Some(5) || e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Waits for an input; `None` at the end of the time.
fn next(inputs: &Receiver<Input>, until: Option<Instant>) -> Option<Input> {
    let wait = until.map_or(TICK, |until| until.saturating_duration_since(Instant::now()).min(TICK));
    match inputs.recv_timeout(wait) {
        Ok(input) => Some(input),
        Err(RecvTimeoutError::Timeout) if until.is_some_and(|until| Instant::now() >= until) => None,
        // A tick: an event without effect.
        Err(RecvTimeoutError::Timeout) => Some(Input::Event(Event::FocusGained)),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// Stops the process until the shell continues it.
fn suspend(screen: &mut Screen, ui: &Ui) -> io::Result<()> {
    Screen::suspend();
    signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
    screen.resume(ui.settings.mouse)
}

/// Requests what the screen needs now.
fn update_request(ui: &Ui, data: &Data, shared: &SharedRequest) {
    let (detail, window_seconds) = (ui.required_detail(data), ui.window_seconds());
    let refresh = Duration::from_millis(ui.settings.refresh_ms);
    let mut request = lock(shared);
    if request.detail != detail || request.window_seconds != window_seconds {
        request.at_once = true;
    } else if request.refresh == refresh {
        return;
    }
    (request.detail, request.window_seconds, request.refresh) = (detail, window_seconds, refresh);
    drop(request);
    shared.1.notify_all();
}

fn read_keys(send: SyncSender<Input>) {
    /// Ends the loop when reading ends for any reason: without keys, the user could not end the program.
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
                // Normally the loop ends the program first.
                thread::sleep(EXIT_TIMEOUT);
                let _ = ratatui::crossterm::terminal::disable_raw_mode();
                std::process::exit(1);
            }
        }
    });
    Ok(())
}

fn spawn_fetcher(
    mut fetch: Box<dyn FnMut(&Detail) -> FetchResult + Send>,
    shared: SharedRequest,
    send: SyncSender<Input>,
) -> io::Result<()> {
    let work = move || {
        let mut failures = 0;
        let mut last: Option<Instant> = None;
        // The history of the whole window is fetched once, then only newer samples.
        let (mut newest, mut fetched_seconds) = (None, 0);
        loop {
            let mut request = lock(&shared);
            loop {
                if request.ended {
                    return;
                }
                let pause = match failures {
                    0 => request.refresh,
                    _ => RETRIES[(failures - 1).min(RETRIES.len() - 1)],
                };
                let left = last.map_or(Duration::ZERO, |last| pause.saturating_sub(last.elapsed()));
                if !request.unhandled && (left.is_zero() || request.at_once) {
                    break;
                }
                let left = if request.unhandled { TICK } else { left };
                request = shared.1.wait_timeout(request, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            request.at_once = false;
            let detail = request.detail.clone();
            let window = request.window_seconds;
            drop(request);
            last = Some(Instant::now());
            if window > fetched_seconds {
                newest = None;
            }
            let since = newest
                .or_else(|| Timestamp::now().checked_sub(SignedDuration::from_secs(window as i64)).ok());
            let with_history = Detail { history_since: since, ..detail.clone() };
            // A panic of the callback is shown on the screen.
            let fetched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fetch(&with_history)));
            let fetched = fetched.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
                Err(format!("refresh failed: {text}"))
            });
            match &fetched {
                Ok((snapshot, _)) => {
                    failures = 0;
                    fetched_seconds = fetched_seconds.max(window);
                    let samples = snapshot.devices.iter().filter_map(|it| it.history.as_ref());
                    let latest = samples.flat_map(|it| [it.dram_total.last(), it.l1_total.last()]).flatten();
                    newest = latest.map(|it| it.at).max().or(newest);
                }
                Err(_) => failures += 1,
            }
            lock(&shared).unhandled = true;
            if send.send(Input::Fetched(Box::new((fetched, detail, since)))).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name(FETCH_THREAD.to_owned()).spawn(work).map(|_| ())
}
