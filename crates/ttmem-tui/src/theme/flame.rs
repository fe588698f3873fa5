//! Colours of flames: one for each file, and one for each other kind of frame.

use super::{ColourDepth, Ink, ThemeName};
use ratatui::style::{Color, Style};
use std::collections::{BTreeMap, BTreeSet};
use ttmem_core::snapshot::FrameKind;

/// Number of colours for files.
const FILES: usize = 6;

/// Backgrounds on which the text of a theme is readable.
struct Inks {
    files: [Ink; FILES],
    process: Ink,
    op: Ink,
    faint: Ink,
    text: Ink,
    edge: Ink,
}

const BLACK: Ink = Ink(20, 22, 26, Color::Black);

const DARK: Inks = Inks {
    files: [
        Ink(46, 92, 138, Color::LightBlue),
        Ink(32, 108, 96, Color::Cyan),
        Ink(126, 84, 36, Color::Yellow),
        Ink(112, 66, 122, Color::LightMagenta),
        Ink(78, 104, 44, Color::Green),
        Ink(138, 62, 70, Color::LightRed),
    ],
    process: Ink(68, 78, 98, Color::Gray),
    op: Ink(86, 88, 96, Color::White),
    faint: Ink(56, 60, 68, Color::Gray),
    text: Ink(236, 238, 242, Color::Black),
    edge: Ink(18, 20, 24, Color::Black),
};

const LIGHT: Inks = Inks {
    files: [
        Ink(184, 212, 242, Color::LightBlue),
        Ink(174, 224, 210, Color::Cyan),
        Ink(246, 214, 160, Color::Yellow),
        Ink(226, 200, 236, Color::LightMagenta),
        Ink(204, 226, 170, Color::Green),
        Ink(248, 200, 200, Color::LightRed),
    ],
    process: Ink(204, 212, 224, Color::Gray),
    op: Ink(218, 220, 226, Color::White),
    faint: Ink(232, 234, 238, Color::Gray),
    text: BLACK,
    edge: Ink(255, 255, 255, Color::White),
};

/// Blues and oranges, which people with any kind of colour blindness can distinguish, of different lightness.
const COLOUR_BLIND: Inks = Inks {
    files: [
        Ink(24, 70, 122, Color::LightBlue),
        Ink(146, 84, 10, Color::Yellow),
        Ink(66, 112, 158, Color::Cyan),
        Ink(102, 66, 30, Color::LightRed),
        Ink(40, 84, 100, Color::Green),
        Ink(128, 104, 124, Color::LightMagenta),
    ],
    ..DARK
};

/// The styles of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlameStyles {
    files: [Style; FILES],
    process: Style,
    op: Style,
    /// Contents, the space, and frames that a search did not find.
    pub(crate) faint: Style,
    /// The left edge of a frame.
    pub(crate) edge: Style,
}

impl FlameStyles {
    pub(super) fn new(name: ThemeName, depth: ColourDepth) -> Self {
        let inks = match name {
            ThemeName::Light => &LIGHT,
            ThemeName::ColourBlind => &COLOUR_BLIND,
            ThemeName::Dark | ThemeName::Mono => &DARK,
        };
        let on = |ink: Ink| Style::new().fg(inks.text.at(depth)).bg(ink.at(depth));
        Self {
            files: inks.files.map(on),
            process: on(inks.process),
            op: on(inks.op),
            faint: on(inks.faint),
            edge: Style::new().fg(inks.edge.at(depth)),
        }
    }

    pub(super) fn mono() -> Self {
        let plain = Style::new();
        Self { files: [plain; FILES], process: plain, op: plain, faint: plain, edge: plain }
    }

    /// The style of a frame; `None`: of a process. Calls in one file have the colour with this number.
    pub(crate) fn of(&self, kind: Option<FrameKind>, colour: usize) -> Style {
        match kind {
            None => self.process,
            Some(FrameKind::Call) => self.files[colour % FILES],
            Some(FrameKind::Op) => self.op,
            Some(FrameKind::Contents | FrameKind::Unknown) => self.faint,
        }
    }
}

/// The number of the colour of each file. It depends on the name, so that a file keeps it, unless another file has it already; two
/// files have one colour only if there are more files than colours.
pub(crate) fn colours(files: BTreeSet<&str>) -> BTreeMap<&str, usize> {
    let mut taken = [0u32; FILES];
    let mut choose = |file: &str| {
        let first = hash(file) % FILES;
        let least = taken.iter().min().copied().unwrap_or(0);
        let colour = (0..FILES).map(|n| (first + n) % FILES).find(|&n| taken[n] == least).unwrap_or(first);
        taken[colour] += 1;
        colour
    };
    files.into_iter().map(|file| (file, choose(file))).collect()
}

/// FNV-1a.
fn hash(text: &str) -> usize {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = text.bytes().fold(0x811c_9dc5, step);
    (hash ^ hash >> 16) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_colours_of_their_own_while_there_are_enough() {
        let names: Vec<String> = (0..15).map(|n| format!("/home/me/{n}.py")).collect();
        for count in 0..names.len() {
            let colours = colours(names[..count].iter().map(String::as_str).collect());
            let distinct: BTreeSet<usize> = colours.values().copied().collect();
            assert_eq!(distinct.len(), count.min(FILES));
        }
    }
}
