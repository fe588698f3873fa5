//! The terminal in full-screen mode. It is restored in every case: at the end, on suspension, and on a panic.

use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::{execute, queue, style, terminal};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the thread that fetches snapshots.
pub(crate) const FETCH_THREAD: &str = "ttmem-fetch";

/// Size of the output buffer: a whole frame fits, so it is written at once.
const FRAME_BYTES: usize = 64 << 10;

/// Requests clicks and the wheel, but not every movement, which would wake the loop for nothing.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Columns and rows that are drawn. A terminal may claim any size, and each cell takes memory.
const MAX_SIZE: (u16, u16) = (1024, 512);

/// The part of the terminal that is drawn.
fn area() -> io::Result<Rect> {
    let (columns, rows) = terminal::size()?;
    Ok(drawn_area(columns, rows))
}

fn drawn_area(columns: u16, rows: u16) -> Rect {
    Rect::new(0, 0, columns.min(MAX_SIZE.0), rows.min(MAX_SIZE.1))
}

/// The terminal in full-screen mode.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    pub(crate) fn enter(mouse: bool) -> io::Result<Self> {
        // The theme decides on colours: with NO_COLOR, crossterm would remove bold and reversed text as well.
        style::force_color_output(true);
        restore_on_panic();
        acquire(mouse)?;
        let out = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stdout()));
        let begin = || {
            let viewport = Viewport::Fixed(area()?);
            Terminal::with_options(out, TerminalOptions { viewport })
        };
        match begin() {
            Ok(terminal) => Ok(Self { terminal }),
            Err(e) => {
                restore();
                Err(e)
            }
        }
    }

    /// Draws a frame; only what has changed is written.
    pub(crate) fn draw<T>(&mut self, draw: impl FnOnce(&mut Buffer) -> T) -> io::Result<T> {
        let mut returned = None;
        let area = area()?;
        if area != self.terminal.get_frame().area() {
            self.terminal.resize(area)?;
        }
        queue!(self.terminal.backend_mut(), terminal::BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| returned = Some(draw(frame.buffer_mut()))).map(|_| ());
        let ended = execute!(self.terminal.backend_mut(), terminal::EndSynchronizedUpdate);
        drawn.and(ended)?;
        returned.ok_or_else(|| io::Error::other("nothing was drawn"))
    }

    /// Makes the next frame draw everything again. `Terminal::clear` is not used: it would query the position of the
    /// cursor and wait for an answer that the thread of the keys reads.
    pub(crate) fn force_redraw(&mut self) -> io::Result<()> {
        self.terminal.resize(area()?)
    }

    pub(crate) fn set_mouse(&mut self, on: bool) -> io::Result<()> {
        let out = self.terminal.backend_mut();
        out.write_all(if on { MOUSE_ON } else { MOUSE_OFF })?;
        Write::flush(out)
    }

    /// Restores the terminal until [`Screen::resume`].
    pub(crate) fn suspend() {
        restore();
    }

    /// Enters full-screen mode again.
    pub(crate) fn resume(&mut self, mouse: bool) -> io::Result<()> {
        acquire(mouse)?;
        self.force_redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal is in full-screen mode. Restoring it twice would move the cursor back onto later output.
static ACQUIRED: AtomicBool = AtomicBool::new(false);

fn acquire(mouse: bool) -> io::Result<()> {
    terminal::enable_raw_mode()?;
    ACQUIRED.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    // The alternate screen, cleared, without a cursor, with bracketed paste.
    let written = out.write_all(b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?2004h");
    let written = written.and_then(|()| out.write_all(if mouse { MOUSE_ON } else { b"" }));
    written.and_then(|()| out.flush()).inspect_err(|_| restore())
}

/// Restores the terminal. Errors are ignored: nothing more can be done.
pub(crate) fn restore() {
    if !ACQUIRED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout().lock();
    let _ = out.write_all(MOUSE_OFF);
    let _ = out.write_all(b"\x1b[0m\x1b[?2004l\x1b[?25h\x1b[?1049l");
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}

/// Restores the terminal before a panic is reported: the report would disappear with the alternate screen.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A panic of the fetching thread is shown on the screen, which stays.
            if std::thread::current().name() != Some(FETCH_THREAD) {
                restore();
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_area_is_bounded() {
        assert_eq!(drawn_area(80, 24), Rect::new(0, 0, 80, 24));
        let largest = drawn_area(u16::MAX, u16::MAX);
        assert_eq!((largest.width, largest.height), MAX_SIZE);
        assert_eq!(drawn_area(0, u16::MAX), Rect::new(0, 0, 0, 512));
    }
}
