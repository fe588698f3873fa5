//! A terminal of one's own: a pty, a program whose controlling terminal it is, and what can be seen on it.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
pub use vt100::{Cell, Color, MouseProtocolMode, Parser, Screen};

/// Begins a frame.
const BEGIN: &[u8] = b"\x1b[?2026h";
/// Ends it.
const END: &[u8] = b"\x1b[?2026l";
/// Whatever takes longer never happens.
const LIMIT: Duration = Duration::from_secs(60);

/// A program in a terminal.
pub struct Terminal {
    pty: Option<Arc<File>>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    child: Child,
    before: String,
    /// The person's folder for settings.
    pub settings: TempDir,
}

/// All that came so far.
struct Seen {
    screen: Parser,
    bytes: Vec<u8>,
    frames: usize,
    /// A frame has begun and not ended; what is on the screen then is half of this and half of that.
    within: bool,
    /// The other side has been closed.
    closed: bool,
}

impl Seen {
    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        // A mark may have come in two pieces.
        let from = self.bytes.len().saturating_sub(END.len() - 1);
        self.bytes.extend_from_slice(bytes);
        for mark in self.bytes[from..].windows(END.len()) {
            if mark == END {
                self.frames += 1;
                self.within = false;
            } else if mark == BEGIN {
                self.within = true;
            }
        }
    }
}

/// What a terminal is set to, for comparing.
fn modes(pty: &File) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, special_codes, .. } =
        &rustix::termios::tcgetattr(pty).unwrap();
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?} {special_codes:?}")
}

fn winsize((columns, rows): (u16, u16)) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A pty, and the name of its other side.
fn open(size: (u16, u16)) -> (File, PathBuf) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let pty: OwnedFd = rustix::pty::openpt(flags).unwrap();
    rustix::pty::grantpt(&pty).unwrap();
    rustix::pty::unlockpt(&pty).unwrap();
    rustix::termios::tcsetwinsize(&pty, winsize(size)).unwrap();
    let name = rustix::pty::ptsname(&pty, Vec::new()).unwrap();
    (File::from(pty), PathBuf::from(name.to_str().unwrap()))
}

impl Terminal {
    /// Starts a program in a terminal of so many columns and rows, which is its controlling one.
    pub fn start(command: &Command, size: (u16, u16)) -> Self {
        let mut through = Command::new("setsid");
        through.arg("--ctty").arg(command.get_program()).args(command.get_args());
        Self::start_by(through, command, size)
    }

    /// The same, but it hears nothing of the terminal being closed: that is another session's.
    pub fn start_without_control(command: &Command, size: (u16, u16)) -> Self {
        let mut through = Command::new("setsid");
        through.arg(command.get_program()).args(command.get_args());
        Self::start_by(through, command, size)
    }

    fn start_by(mut through: Command, command: &Command, size: (u16, u16)) -> Self {
        let (pty, name) = open(size);
        let other = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let before = modes(&pty);
        let settings = tempfile::tempdir().unwrap();
        for name in ["NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE", "TTMEM_TOP_THEME", "TTMEM_TOP_REFRESH_MS"]
        {
            through.env_remove(name);
        }
        through.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").env("XDG_CONFIG_HOME", settings.path());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => through.env(name, value),
                None => through.env_remove(name),
            };
        }
        through.stdin(other.try_clone().unwrap()).stdout(other.try_clone().unwrap()).stderr(other);
        let child = through.spawn().unwrap();
        // What stays open in there would keep the terminal open.
        drop(through);
        let seen = Seen {
            screen: Parser::new(size.1.try_into().unwrap(), size.0.try_into().unwrap(), 0),
            bytes: Vec::new(),
            frames: 0,
            within: false,
            closed: false,
        };
        let (pty, seen) = (Arc::new(pty), Arc::new((Mutex::new(seen), Condvar::new())));
        let closing = Arc::new(AtomicBool::new(false));
        let reader = {
            let (pty, seen, closing) = (Arc::clone(&pty), Arc::clone(&seen), Arc::clone(&closing));
            std::thread::spawn(move || read(&pty, &seen, &closing))
        };
        Self { pty: Some(pty), seen, closing, reader: Some(reader), child, before, settings }
    }

    fn pty(&self) -> &File {
        self.pty.as_ref().unwrap()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types.
    pub fn send(&self, keys: &str) {
        self.pty().write_all(keys.as_bytes()).unwrap();
    }

    /// Clicks with the left button.
    pub fn click(&self, (column, row): (usize, usize)) {
        let (column, row) = (column + 1, row + 1);
        self.send(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
    }

    /// Turns the wheel by one: towards the person, or away.
    pub fn wheel(&self, down: bool, (column, row): (usize, usize)) {
        self.send(&format!("\x1b[<{};{};{}M", 64 + u8::from(down), column + 1, row + 1));
    }

    /// Pastes, as terminals do that were asked to mark it.
    pub fn paste(&self, text: &str) {
        self.send(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Changes the size: columns and rows.
    pub fn resize(&self, size: (u16, u16)) {
        let (columns, rows) = (size.0.try_into().unwrap(), size.1.try_into().unwrap());
        self.seen().screen.screen_mut().set_size(rows, columns);
        rustix::termios::tcsetwinsize(self.pty(), winsize(size)).unwrap();
    }

    /// Waits until whole frames satisfy something; returns what that found.
    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Screen) -> Option<T>) -> T {
        let begin = Instant::now();
        let mut seen = self.seen();
        loop {
            let found = if seen.within && !seen.closed { None } else { look(seen.screen.screen()) };
            if let Some(found) = found {
                return found;
            }
            let screen = seen.screen.screen().contents();
            assert!(begin.elapsed() < LIMIT && !seen.closed, "never: {what}; the screen is\n{screen}");
            let wait = Duration::from_millis(200);
            seen = self.seen.1.wait_timeout(seen, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for a text on the screen.
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.contents().contains(text).then_some(()));
    }

    /// Waits until a text is not on the screen.
    pub fn wait_without(&self, text: &str) {
        self.wait_for(&format!("no {text}"), |screen| (!screen.contents().contains(text)).then_some(()));
    }

    /// Waits until so many more frames have been drawn; returns the bytes they took.
    pub fn wait_for_frames(&self, more: usize) -> usize {
        let begin = Instant::now();
        let mut seen = self.seen();
        let (frames, bytes) = (seen.frames, seen.bytes.len());
        while seen.frames < frames + more {
            assert!(begin.elapsed() < 2 * LIMIT && !seen.closed, "nothing is drawn any more");
            let wait = Duration::from_millis(200);
            seen = self.seen.1.wait_timeout(seen, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        seen.bytes.len() - bytes
    }

    /// Frames drawn so far, and bytes written.
    pub fn drawn(&self) -> (usize, usize) {
        let seen = self.seen();
        (seen.frames, seen.bytes.len())
    }

    /// All that was written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen().bytes.clone()
    }

    /// The screen as it is.
    pub fn screen(&self) -> Screen {
        self.seen().screen.screen().clone()
    }

    /// Its text.
    pub fn text(&self) -> String {
        self.seen().screen.screen().contents()
    }

    /// Where a text is: column and row. Waits for it.
    pub fn place_of(&self, text: &str) -> (usize, usize) {
        self.wait_for(text, |screen| place(screen, text))
    }

    /// Whether the terminal itself, not what is shown on it, is set as it was before.
    pub fn is_cooked(&self) -> bool {
        modes(self.pty()) == self.before
    }

    /// Waits until everything about the terminal is as it was found.
    pub fn wait_until_given_back(&self) {
        self.wait_for("the terminal is given back", |screen| {
            let shown = !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste();
            let quiet = screen.mouse_protocol_mode() == MouseProtocolMode::None;
            (shown && quiet && self.is_cooked()).then_some(())
        });
    }

    /// Waits until the dashboard has it.
    pub fn wait_until_taken(&self) {
        self.wait_for("the terminal is taken", |screen| {
            let shown = screen.alternate_screen() && screen.hide_cursor() && screen.bracketed_paste();
            (shown && !self.is_cooked()).then_some(())
        });
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How the kernel says it is: `R`, `S`, `T`, and so on.
    pub fn state(&self) -> char {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map_or("", |it| it.1);
        rest.chars().next().unwrap_or('X')
    }

    /// Processor time of all its threads.
    pub fn cpu_time(&self) -> Duration {
        cpu_time_of(self.pid())
    }

    /// Waits for its end, and for all it wrote.
    pub fn wait(&mut self) -> ExitStatus {
        let status = crate::eventually("the program ends", || self.child.try_wait().unwrap());
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }

    /// Waits for its end, which must be one in peace, with the terminal given back.
    pub fn end(&mut self) {
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.text());
        self.wait_until_given_back();
    }

    /// Closes the terminal under it.
    pub fn close(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.pty = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.closing.store(true, Ordering::Relaxed);
    }
}

/// Processor time of all threads of a process, those that ended and those that live.
pub fn cpu_time_of(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = |task: &Path| -> Option<u64> {
        let stat = fs::read_to_string(task.join("schedstat")).ok()?;
        stat.split_ascii_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(|task| nanos(&task.ok()?.path())).sum())
}

/// Where a text is on a screen: column and row.
pub fn place(screen: &Screen, text: &str) -> Option<(usize, usize)> {
    let rows = screen.rows(0, screen.size().1.get());
    let mut places = rows.enumerate().filter_map(|(row, line)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count(), row))
    });
    places.next()
}

fn read(mut pty: &File, seen: &(Mutex<Seen>, Condvar), closing: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !closing.load(Ordering::Relaxed) {
        let ready = rustix::event::poll(&mut [PollFd::new(&pty, PollFlags::IN)], Some(&moment));
        if matches!(ready, Ok(0) | Err(rustix::io::Errno::INTR)) {
            continue;
        }
        // Nobody has the other side open any more: that is an error here.
        let len = pty.read(&mut buffer).unwrap_or(0);
        let mut now = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.take(&buffer[..len]);
        now.closed |= len == 0;
        drop(now);
        seen.1.notify_all();
        if len == 0 {
            return;
        }
    }
}
