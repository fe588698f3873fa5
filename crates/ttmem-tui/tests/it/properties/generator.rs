//! Values generated from bytes, with many extreme ones. After the last byte, all values are the smallest.

use crate::states;
use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ttmem_core::snapshot::Severity;
use ttmem_core::words::{Basis, Space};

/// The bytes that are left.
pub(super) struct Generator<'a>(std::slice::Iter<'a, u8>);

impl<'a> Generator<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(super) fn yes(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    pub(super) fn one<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub(super) fn number(&mut self) -> u64 {
        const EXTREME: [u64; 14] = [
            0,
            1,
            1000,
            1 << 20,
            (1 << 20) - 1,
            3 << 30,
            12 << 30,
            u32::MAX as u64,
            1 << 40,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
            1 << 53,
        ];
        let byte = self.byte();
        match byte {
            0..100 => u64::from(byte),
            100..200 => EXTREME[usize::from(byte) % EXTREME.len()],
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    pub(super) fn small(&mut self) -> u32 {
        match self.byte() {
            byte @ 0..250 => u32::from(byte % 40),
            250..253 => u32::MAX,
            _ => self.number() as u32,
        }
    }

    pub(super) fn real(&mut self) -> f64 {
        const EXTREME: [f64; 10] = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            -0.0,
            -1.0,
            1e18,
            1e300,
        ];
        let byte = self.byte();
        if byte < 150 { f64::from(byte) / 2.0 } else { EXTREME[usize::from(byte) % EXTREME.len()] }
    }

    pub(super) fn signed(&mut self) -> i64 {
        match self.byte() % 4 {
            0 => 0,
            1 => i64::MIN,
            2 => i64::MAX,
            _ => self.number() as i64,
        }
    }

    pub(super) fn time(&mut self) -> Timestamp {
        match self.byte() {
            240..245 => Timestamp::MIN,
            245..250 => Timestamp::MAX,
            250.. => Timestamp::UNIX_EPOCH,
            near => {
                states::now().checked_add(SignedDuration::from_millis((i64::from(near) - 230) * 700)).unwrap()
            }
        }
    }

    pub(super) fn text(&mut self) -> String {
        const EXTREME: [&str; 14] = [
            "",
            "a",
            "python3",
            "\x1b[2J\x1b[31m",
            "漢字漢字",
            "\u{202e}txet desrever\u{202c}",
            "e\u{301}\u{301}\u{301}",
            "👩‍👩‍👧‍👦",
            "\0\r\n\t\x07",
            "\u{200b}\u{feff}",
            "ﷺ",
            "שלום",
            "\u{ad}\u{9b}",
            "a b  c",
        ];
        let mut text = String::new();
        for _ in 0..self.byte() % 4 {
            let part = self.one(&EXTREME);
            text.push_str(&part.repeat(if self.byte() > 250 { 2000 } else { 1 }));
        }
        text
    }

    pub(super) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.yes().then(|| make(self))
    }

    pub(super) fn some<T>(&mut self, most: u8, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % (most + 1)).map(|_| make(self)).collect()
    }

    pub(super) fn space(&mut self) -> Space {
        self.one(&[
            Space::Dram,
            Space::L1,
            Space::L1Small,
            Space::Trace,
            Space::Cb,
            Space::Dfb,
            Space::Scratch,
            Space::Kernel,
            Space::Host,
            Space::L1Core,
        ])
    }

    pub(super) fn basis(&mut self) -> Basis {
        self.one(&[Basis::Exact, Basis::Counters, Basis::Reported, Basis::Unknown])
    }

    pub(super) fn severity(&mut self) -> Severity {
        self.one(&[Severity::Error, Severity::Warning, Severity::Info])
    }

    /// The id of a device, often of one that exists.
    pub(super) fn id(&mut self) -> String {
        if self.byte() > 200 { self.text() } else { format!("device-{}", self.byte() % 4) }
    }

    pub(super) fn pid(&mut self) -> Option<u32> {
        match self.byte() % 8 {
            0 => None,
            1 => Some(0),
            2 => Some(u32::MAX),
            n => Some(u32::from(n)),
        }
    }

    pub(super) fn rectangle(&mut self) -> [u8; 4] {
        std::array::from_fn(|_| self.one(&[0, 1, 7, 254, 255]))
    }

    pub(super) fn key(&mut self) -> KeyEvent {
        const MOVES: [KeyCode; 16] = [
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::Tab,
            KeyCode::BackTab,
            KeyCode::Backspace,
            KeyCode::Delete,
            KeyCode::Insert,
            KeyCode::Null,
        ];
        const LETTERS: &[u8] = b"12345678hjklqQGgIsmptTzrK[]/?+-=<> yYabx";
        let code = match self.byte() {
            0..90 => self.one(&MOVES),
            90..110 => KeyCode::F(self.byte() % 14),
            110..250 => KeyCode::Char(char::from(self.one(LETTERS))),
            _ => KeyCode::Char(self.one(&['漢', '\u{301}', '\u{202e}', '\0', '👩', 'ß'])),
        };
        let modifiers = match self.byte() {
            0..220 => KeyModifiers::NONE,
            220..245 => KeyModifiers::CONTROL,
            _ => KeyModifiers::SHIFT | KeyModifiers::ALT,
        };
        let kind = self.one(&[
            KeyEventKind::Press,
            KeyEventKind::Press,
            KeyEventKind::Repeat,
            KeyEventKind::Release,
        ]);
        KeyEvent::new_with_kind(code, modifiers, kind)
    }

    pub(super) fn mouse(&mut self, (width, height): (u16, u16)) -> MouseEvent {
        let kind = self.one(&[
            MouseEventKind::Down(MouseButton::Left),
            MouseEventKind::Down(MouseButton::Left),
            MouseEventKind::Down(MouseButton::Right),
            MouseEventKind::ScrollUp,
            MouseEventKind::ScrollDown,
            MouseEventKind::Moved,
            MouseEventKind::Drag(MouseButton::Left),
        ]);
        let mut at = |max: u16| match self.byte() {
            255 => u16::MAX,
            byte => (u32::from(byte) * u32::from(max) / 250) as u16,
        };
        MouseEvent { kind, column: at(width), row: at(height), modifiers: KeyModifiers::NONE }
    }

    pub(super) fn size(&mut self) -> (u16, u16) {
        let (a, b) = (u16::from(self.byte()), u16::from(self.byte()));
        // The smallest supported size is the most likely to fail.
        match self.byte() {
            0..80 => (80, 24),
            80..110 => (1 + a % 90, 1 + b % 30),
            _ => (80 + a * 220 / 255, 24 + b * 76 / 255),
        }
    }
}
