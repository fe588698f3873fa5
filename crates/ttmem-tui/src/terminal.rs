//! The terminal, taken and given back. Whatever happens, it is left as it was found.

use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::{execute, queue, style, terminal};
use ratatui::layout::{Position, Rect};
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the thread that fetches.
pub(crate) const FETCHER: &str = "ttmem-fetch";

/// A frame goes out in one piece.
const FRAME_ROOM: usize = 64 << 10;

/// Clicks and the wheel; not every movement, which would wake us for nothing.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// The screen while it is ours.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    pub(crate) fn enter(mouse: bool) -> io::Result<Self> {
        // The theme decides on colours: crossterm's own way with NO_COLOR takes bold and reversed text away as well.
        style::force_color_output(true);
        restore_on_panic();
        take(mouse)?;
        let out = CrosstermBackend::new(BufWriter::with_capacity(FRAME_ROOM, io::stdout()));
        let options = TerminalOptions { viewport: Viewport::Fullscreen };
        match Terminal::with_options(out, options) {
            Ok(terminal) => Ok(Self { terminal }),
            Err(e) => {
                give_back();
                Err(e)
            }
        }
    }

    /// Draws what has changed.
    pub(crate) fn draw<T>(&mut self, draw: impl FnOnce(&mut Buffer) -> T) -> io::Result<T> {
        let mut found = None;
        queue!(self.terminal.backend_mut(), terminal::BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| found = Some(draw(frame.buffer_mut()))).map(|_| ());
        let ended = execute!(self.terminal.backend_mut(), terminal::EndSynchronizedUpdate);
        drawn.and(ended)?;
        found.ok_or_else(|| io::Error::other("nothing was drawn"))
    }

    /// Has everything drawn anew next time. Asking the terminal to clear itself would make ratatui ask where the cursor is,
    /// and wait for an answer that another thread reads.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    pub(crate) fn set_mouse(&mut self, ours: bool) -> io::Result<()> {
        let out = self.terminal.backend_mut();
        out.write_all(if ours { MOUSE_ON } else { MOUSE_OFF })?;
        Write::flush(out)
    }

    /// Gives the terminal back for a while.
    pub(crate) fn leave() {
        give_back();
    }

    /// Takes it again.
    pub(crate) fn come_back(&mut self, mouse: bool) -> io::Result<()> {
        take(mouse)?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether the terminal is ours. Given back twice, it would put its cursor where that was at first, on what was written since.
static OURS: AtomicBool = AtomicBool::new(false);

fn take(mouse: bool) -> io::Result<()> {
    terminal::enable_raw_mode()?;
    OURS.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    // The other screen, cleared, without a cursor, with pasted text marked as such.
    let taken = out.write_all(b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?2004h");
    let taken = taken.and_then(|()| out.write_all(if mouse { MOUSE_ON } else { b"" }));
    taken.and_then(|()| out.flush()).inspect_err(|_| give_back())
}

/// As it was found. Nothing can be done about a terminal that does not take it.
pub(crate) fn give_back() {
    if !OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout().lock();
    let _ = out.write_all(MOUSE_OFF);
    let _ = out.write_all(b"\x1b[0m\x1b[?2004l\x1b[?25h\x1b[?1049l");
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}

/// A message on the other screen would be gone with it.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // What the fetching thread has to say is shown on the screen, which lives on.
            if std::thread::current().name() != Some(FETCHER) {
                give_back();
                before(info);
            }
        }));
    });
}
