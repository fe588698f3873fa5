//! Private terminals for tests: a pty, a program that it controls, and the screen.

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

/// Begin of a frame.
const BEGIN: &[u8] = b"\x1b[?2026h";
/// End of a frame.
const END: &[u8] = b"\x1b[?2026l";
/// Time after which a test fails.
const LIMIT: Duration = Duration::from_secs(60);

/// A program in a terminal.
pub struct Terminal {
    pty: Option<Arc<File>>,
    seen: Arc<(Mutex<Output>, Condvar)>,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    child: Child,
    before: String,
    /// The user's folder of settings.
    pub settings: TempDir,
}

/// Output of the program so far.
struct Output {
    screen: Parser,
    bytes: Vec<u8>,
    frames: usize,
    /// Whether a frame has begun and not ended: the screen is then partly the old frame and partly the new one.
    within: bool,
    /// Whether the program's side has been closed.
    closed: bool,
}

impl Output {
    fn add(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        // A mark may be split over two reads.
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

/// The terminal's modes, for comparison.
fn modes(pty: &File) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, special_codes, .. } =
        &rustix::termios::tcgetattr(pty).unwrap();
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?} {special_codes:?}")
}

fn winsize((columns, rows): (u16, u16)) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Opens a pty; returns it and the name of the program's side.
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
    /// Starts a program in a terminal with a number of columns and rows, which is its controlling terminal.
    pub fn start(command: &Command, size: (u16, u16)) -> Self {
        let mut through = Command::new("setsid");
        through.arg("--ctty").arg(command.get_program()).args(command.get_args());
        Self::start_by(through, command, size)
    }

    /// Starts a program in a terminal that is not its controlling one, so it gets no signal when that is closed.
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
        // The command's descriptors would keep the terminal open.
        drop(through);
        let seen = Output {
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

    fn seen(&self) -> MutexGuard<'_, Output> {
        self.seen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types keys.
    pub fn send(&self, keys: &str) {
        self.pty().write_all(keys.as_bytes()).unwrap();
    }

    /// Clicks with the left button.
    pub fn click(&self, (column, row): (usize, usize)) {
        let (column, row) = (column + 1, row + 1);
        self.send(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
    }

    /// Turns the mouse wheel by one step.
    pub fn wheel(&self, down: bool, (column, row): (usize, usize)) {
        self.send(&format!("\x1b[<{};{};{}M", 64 + u8::from(down), column + 1, row + 1));
    }

    /// Pastes a text, with the marks of bracketed paste.
    pub fn paste(&self, text: &str) {
        self.send(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Changes the number of columns and rows.
    pub fn resize(&self, size: (u16, u16)) {
        let (columns, rows) = (size.0.try_into().unwrap(), size.1.try_into().unwrap());
        self.seen().screen.screen_mut().set_size(rows, columns);
        rustix::termios::tcsetwinsize(self.pty(), winsize(size)).unwrap();
    }

    /// Waits until `find` returns a value for a complete frame, and returns that value.
    pub fn wait_for<T>(&self, what: &str, mut find: impl FnMut(&Screen) -> Option<T>) -> T {
        let begin = Instant::now();
        let mut seen = self.seen();
        loop {
            let found = if seen.within && !seen.closed { None } else { find(seen.screen.screen()) };
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

    /// Waits until `more` frames have been drawn; returns how many bytes they took.
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

    /// Numbers of frames drawn and of bytes written so far.
    pub fn drawn(&self) -> (usize, usize) {
        let seen = self.seen();
        (seen.frames, seen.bytes.len())
    }

    /// All bytes written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen().bytes.clone()
    }

    /// The current screen.
    pub fn screen(&self) -> Screen {
        self.seen().screen.screen().clone()
    }

    /// Text of the current screen.
    pub fn text(&self) -> String {
        self.seen().screen.screen().contents()
    }

    /// Waits for a text on the screen; returns its column and row.
    pub fn position_of(&self, text: &str) -> (usize, usize) {
        self.wait_for(text, |screen| find_text(screen, text))
    }

    /// Whether the terminal's modes, apart from those of the screen, are as before.
    pub fn is_cooked(&self) -> bool {
        modes(self.pty()) == self.before
    }

    /// Waits until the terminal is restored to how the program found it.
    pub fn wait_until_restored(&self) {
        self.wait_for("the terminal is given back", |screen| {
            let shown = !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste();
            let quiet = screen.mouse_protocol_mode() == MouseProtocolMode::None;
            (shown && quiet && self.is_cooked()).then_some(())
        });
    }

    /// Waits until the dashboard has taken over the terminal.
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

    /// The kernel's state of the program: `R`, `S`, `T`, and so on.
    pub fn state(&self) -> char {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map_or("", |it| it.1);
        rest.chars().next().unwrap_or('X')
    }

    /// Processor time of all the program's threads.
    pub fn cpu_time(&self) -> Duration {
        cpu_time_of(self.pid())
    }

    /// Waits until the program exits and all its output is read.
    pub fn wait(&mut self) -> ExitStatus {
        let status = crate::eventually("the program ends", || self.child.try_wait().unwrap());
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }

    /// Waits until the program exits, which must be with status 0 and the terminal restored.
    pub fn expect_clean_exit(&mut self) {
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.text());
        self.wait_until_restored();
    }

    /// Closes the terminal while the program runs.
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

/// Processor time of all threads of a process.
pub fn cpu_time_of(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let nanos = |task: &Path| -> Option<u64> {
        let stat = fs::read_to_string(task.join("schedstat")).ok()?;
        stat.split_ascii_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(|task| nanos(&task.ok()?.path())).sum())
}

/// Column and row of a text on a screen.
pub fn find_text(screen: &Screen, text: &str) -> Option<(usize, usize)> {
    let rows = screen.rows(0, screen.size().1.get());
    let mut positions = rows.enumerate().filter_map(|(row, line)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count(), row))
    });
    positions.next()
}

fn read(mut pty: &File, seen: &(Mutex<Output>, Condvar), closing: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !closing.load(Ordering::Relaxed) {
        let ready = rustix::event::poll(&mut [PollFd::new(&pty, PollFlags::IN)], Some(&timeout));
        if matches!(ready, Ok(0) | Err(rustix::io::Errno::INTR)) {
            continue;
        }
        // Fails when no process has the program's side open.
        let len = pty.read(&mut buffer).unwrap_or(0);
        let mut now = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.add(&buffer[..len]);
        now.closed |= len == 0;
        drop(now);
        seen.1.notify_all();
        if len == 0 {
            return;
        }
    }
}
