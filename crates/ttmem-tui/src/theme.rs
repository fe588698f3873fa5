//! Colours by meaning. A theme is a palette, adapted to the number of colours of the terminal. Without colours, bold,
//! faint and reversed text make the differences.

mod flame;

use crate::data::Series;
pub(crate) use flame::{FlameStyles, colours as flame_colours};
use ratatui::style::{Color, Modifier, Style};
use serde::{Deserialize, Serialize};
use ttmem_core::snapshot::{CoreClass, Severity, Tracking};
use ttmem_core::words::Space;
use ttmem_render::Tone;
use ttmem_render::format::Level;

/// The name of a theme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThemeName {
    /// For dark backgrounds.
    #[default]
    Dark,
    /// For light backgrounds.
    Light,
    /// Blue, white and orange instead of red and green.
    ColourBlind,
    /// Without colours.
    Mono,
}

impl ThemeName {
    /// All themes.
    pub const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::ColourBlind, Self::Mono];

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::ColourBlind => "colour-blind",
            Self::Mono => "mono",
        }
    }
}

/// The number of colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourDepth {
    /// No colours.
    None,
    /// 16 colours, which the user of the terminal may have changed.
    Sixteen,
    /// 256 colours.
    Indexed,
    /// 24-bit colours.
    Full,
}

/// A colour as red, green and blue, and the nearest of the 16 colours.
#[derive(Clone, Copy)]
struct Ink(u8, u8, u8, Color);

impl Ink {
    fn at(self, depth: ColourDepth) -> Color {
        let Self(r, g, b, sixteen) = self;
        match depth {
            ColourDepth::None => Color::Reset,
            ColourDepth::Sixteen => sixteen,
            ColourDepth::Full => Color::Rgb(r, g, b),
            ColourDepth::Indexed => {
                // The cube of 6 x 6 x 6 colours, or one of the 24 greys.
                let step = |v: u8| if v < 48 { 0 } else { (v.saturating_sub(35) / 40).min(5) };
                if r.abs_diff(g) < 10 && g.abs_diff(b) < 10 && (8..=238).contains(&r) {
                    return Color::Indexed(232 + (r - 8) / 10);
                }
                Color::Indexed(16 + 36 * step(r) + 6 * step(g) + step(b))
            }
        }
    }
}

/// The colours of a theme.
struct Palette {
    faint: Ink,
    frame: Ink,
    accent: Ink,
    good: Ink,
    warn: Ink,
    bad: Ink,
    selected: Ink,
    on_badge: Ink,
    dram: Ink,
    l1: Ink,
    trace: Ink,
    small: Ink,
    cb: Ink,
    dfb: Ink,
    scratch: Ink,
    kernel: Ink,
    reserved: Ink,
    empty: Ink,
    heat: [Ink; 6],
}

const DARK: Palette = Palette {
    faint: Ink(128, 134, 145, Color::DarkGray),
    frame: Ink(72, 80, 94, Color::DarkGray),
    accent: Ink(110, 190, 230, Color::Cyan),
    good: Ink(110, 200, 120, Color::Green),
    warn: Ink(230, 190, 80, Color::Yellow),
    bad: Ink(240, 100, 95, Color::Red),
    selected: Ink(44, 56, 78, Color::Blue),
    on_badge: Ink(18, 20, 24, Color::Black),
    dram: Ink(95, 175, 240, Color::LightBlue),
    l1: Ink(95, 205, 150, Color::LightGreen),
    trace: Ink(150, 130, 230, Color::Magenta),
    small: Ink(170, 215, 110, Color::Green),
    cb: Ink(240, 165, 75, Color::Yellow),
    dfb: Ink(235, 125, 150, Color::LightMagenta),
    scratch: Ink(205, 140, 225, Color::Magenta),
    kernel: Ink(220, 200, 120, Color::LightYellow),
    reserved: Ink(100, 106, 118, Color::DarkGray),
    empty: Ink(58, 64, 76, Color::DarkGray),
    heat: [
        Ink(42, 62, 84, Color::Blue),
        Ink(40, 98, 118, Color::Cyan),
        Ink(44, 130, 104, Color::Green),
        Ink(128, 142, 58, Color::LightGreen),
        Ink(196, 140, 46, Color::Yellow),
        Ink(206, 74, 66, Color::Red),
    ],
};

const LIGHT: Palette = Palette {
    faint: Ink(110, 114, 122, Color::DarkGray),
    frame: Ink(176, 182, 192, Color::Gray),
    accent: Ink(0, 95, 150, Color::Blue),
    good: Ink(20, 120, 50, Color::Green),
    warn: Ink(160, 100, 0, Color::Yellow),
    bad: Ink(190, 30, 30, Color::Red),
    selected: Ink(208, 222, 240, Color::Cyan),
    on_badge: Ink(255, 255, 255, Color::White),
    dram: Ink(25, 100, 190, Color::Blue),
    l1: Ink(20, 130, 85, Color::Green),
    trace: Ink(95, 70, 180, Color::Magenta),
    small: Ink(90, 140, 30, Color::Green),
    cb: Ink(190, 100, 10, Color::Yellow),
    dfb: Ink(190, 50, 95, Color::Magenta),
    scratch: Ink(140, 60, 170, Color::Magenta),
    kernel: Ink(140, 115, 10, Color::Yellow),
    reserved: Ink(150, 155, 163, Color::Gray),
    empty: Ink(212, 216, 222, Color::Gray),
    heat: [
        Ink(214, 228, 242, Color::Gray),
        Ink(168, 212, 224, Color::Cyan),
        Ink(152, 214, 170, Color::Green),
        Ink(222, 220, 120, Color::LightYellow),
        Ink(246, 184, 92, Color::Yellow),
        Ink(240, 130, 118, Color::LightRed),
    ],
};

/// Blue, white and orange, which people with any kind of colour blindness can distinguish.
const COLOUR_BLIND: Palette = Palette {
    good: Ink(86, 160, 233, Color::LightBlue),
    warn: Ink(240, 228, 66, Color::Yellow),
    bad: Ink(230, 120, 0, Color::LightRed),
    dram: Ink(86, 180, 233, Color::LightBlue),
    l1: Ink(230, 159, 0, Color::Yellow),
    trace: Ink(0, 114, 178, Color::Blue),
    small: Ink(240, 228, 66, Color::LightYellow),
    cb: Ink(213, 94, 0, Color::Red),
    dfb: Ink(204, 121, 167, Color::LightMagenta),
    scratch: Ink(180, 150, 220, Color::Magenta),
    kernel: Ink(225, 225, 225, Color::White),
    heat: [
        Ink(24, 50, 88, Color::Blue),
        Ink(44, 92, 140, Color::LightBlue),
        Ink(92, 118, 140, Color::Cyan),
        Ink(140, 130, 110, Color::Gray),
        Ink(190, 130, 60, Color::Yellow),
        Ink(214, 110, 10, Color::LightRed),
    ],
    ..DARK
};

/// The styles of the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Whether there are colours. Without them, letters distinguish what colours would.
    pub(crate) coloured: bool,
    pub(crate) text: Style,
    /// Labels, and unknown figures.
    pub(crate) faint: Style,
    pub(crate) frame: Style,
    pub(crate) title: Style,
    /// Keys, and the frame of the focused list.
    pub(crate) accent: Style,
    pub(crate) header: Style,
    pub(crate) good: Style,
    pub(crate) warn: Style,
    pub(crate) bad: Style,
    /// The row under the cursor.
    pub(crate) selected: Style,
    /// The row under the cursor of a list without the focus.
    pub(crate) selected_elsewhere: Style,
    pub(crate) badge: Style,
    pub(crate) alarm: Style,
    pub(crate) dram: Style,
    pub(crate) l1: Style,
    /// The empty part of a bar.
    pub(crate) empty: Style,
    trace: Style,
    small: Style,
    cb: Style,
    dfb: Style,
    scratch: Style,
    kernel: Style,
    reserved: Style,
    heat: [Style; 6],
    /// Frames of flames.
    pub(crate) flame: FlameStyles,
}

impl Theme {
    /// Creates the theme of a name for a terminal with this number of colours.
    pub fn new(name: ThemeName, depth: ColourDepth) -> Self {
        let palette = match name {
            ThemeName::Light => &LIGHT,
            ThemeName::ColourBlind => &COLOUR_BLIND,
            ThemeName::Dark | ThemeName::Mono => &DARK,
        };
        if name == ThemeName::Mono || depth == ColourDepth::None {
            return Self::mono();
        }
        let fore = |ink: Ink| Style::new().fg(ink.at(depth));
        // Text must be readable on all heat colours; of 16 colours, only black is.
        let on_heat = match (name, depth) {
            (ThemeName::Light, _) | (_, ColourDepth::Sixteen) => Ink(20, 22, 26, Color::Black),
            _ => Ink(236, 238, 242, Color::White),
        };
        let bold = |ink: Ink| fore(ink).add_modifier(Modifier::BOLD);
        let badge = |ink: Ink| bold(palette.on_badge).bg(ink.at(depth));
        Self {
            coloured: true,
            text: Style::new(),
            faint: fore(palette.faint),
            frame: fore(palette.frame),
            title: Style::new().add_modifier(Modifier::BOLD),
            accent: fore(palette.accent),
            header: bold(palette.faint),
            good: fore(palette.good),
            warn: fore(palette.warn),
            bad: bold(palette.bad),
            selected: Style::new().bg(palette.selected.at(depth)).add_modifier(Modifier::BOLD),
            selected_elsewhere: Style::new().add_modifier(Modifier::BOLD),
            badge: badge(palette.warn),
            alarm: badge(palette.bad),
            dram: fore(palette.dram),
            l1: fore(palette.l1),
            empty: fore(palette.empty),
            trace: fore(palette.trace),
            small: fore(palette.small),
            cb: fore(palette.cb),
            dfb: fore(palette.dfb),
            scratch: fore(palette.scratch),
            kernel: fore(palette.kernel),
            reserved: fore(palette.reserved),
            heat: palette.heat.map(|ink| fore(on_heat).bg(ink.at(depth))),
            flame: FlameStyles::new(name, depth),
        }
    }

    fn mono() -> Self {
        let (plain, faint) = (Style::new(), Style::new().add_modifier(Modifier::DIM));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        Self {
            coloured: false,
            text: plain,
            faint,
            frame: faint,
            title: bold,
            accent: bold,
            header: Style::new().add_modifier(Modifier::UNDERLINED),
            good: plain,
            warn: bold,
            bad: reversed,
            selected: reversed,
            selected_elsewhere: bold,
            badge: reversed,
            alarm: reversed.add_modifier(Modifier::BOLD),
            dram: bold,
            l1: plain,
            empty: faint,
            trace: plain,
            small: plain,
            cb: plain,
            dfb: plain,
            scratch: plain,
            kernel: plain,
            reserved: faint,
            heat: [faint, plain, plain, bold, bold, reversed],
            flame: FlameStyles::mono(),
        }
    }

    /// The style of a series of samples.
    pub(crate) fn series(&self, series: Series) -> Style {
        match series {
            Series::Dram => self.dram,
            Series::L1 => self.l1,
            Series::Temperature => self.cb,
            Series::Power => self.dfb,
            Series::Clock => self.trace,
        }
    }

    /// The style of a share of memory in use: a warning from 75 %, an alarm from 90 %.
    pub(crate) fn level(&self, share: f64) -> Style {
        match Level::of(share) {
            Level::Full => self.bad,
            Level::High => self.warn,
            Level::Low => self.good,
        }
    }

    /// The style of a sensor reading: a warning from 90 % of its limit, an alarm from the limit.
    pub(crate) fn reading(&self, value: Option<f64>, limit: Option<f64>) -> Style {
        match (value, limit) {
            (None, _) => self.faint,
            (Some(value), Some(limit)) if limit > 0.0 && value >= limit => self.bad,
            (Some(value), Some(limit)) if limit > 0.0 && value >= 0.9 * limit => self.warn,
            _ => self.text,
        }
    }

    /// The background of a core with this share in use.
    pub(crate) fn heat(&self, share: f64) -> Style {
        let step = match share {
            s if s >= 0.9 => 5,
            s if s >= 0.75 => 4,
            s if s >= 0.5 => 3,
            s if s >= 0.25 => 2,
            s if s > 0.0 => 1,
            _ => 0,
        };
        self.heat[step]
    }

    pub(crate) fn severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Error => self.bad,
            Severity::Warning => self.warn,
            Severity::Info => self.accent,
        }
    }

    fn tracking(&self, tracking: Tracking) -> Style {
        match tracking {
            Tracking::Audited | Tracking::Agent | Tracking::Library => self.good,
            Tracking::Counters | Tracking::Reported | Tracking::Partial => self.warn,
            Tracking::Drift => self.bad,
            Tracking::Untracked => self.faint,
        }
    }

    /// The style of a cell of a table.
    pub(crate) fn tone(&self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => self.text,
            Tone::Faint => self.faint,
            Tone::Good => self.good,
            Tone::Warn => self.warn,
            Tone::Bad => self.bad,
            Tone::Level(share) => self.level(share),
            Tone::Reading(value, limit) => self.reading(Some(value), limit),
            Tone::Tracking(tracking) => self.tracking(tracking),
            Tone::Severity(severity) => self.severity(severity),
            Tone::Space(space) => MemoryPart::of(space).map_or(self.faint, |part| self.part(part)),
        }
    }

    pub(crate) fn part(&self, part: MemoryPart) -> Style {
        match part {
            MemoryPart::Dram => self.dram,
            MemoryPart::Trace => self.trace,
            MemoryPart::L1 => self.l1,
            MemoryPart::L1Small => self.small,
            MemoryPart::Cb => self.cb,
            MemoryPart::Dfb => self.dfb,
            MemoryPart::Scratch => self.scratch,
            MemoryPart::Kernel => self.kernel,
        }
    }

    pub(crate) fn class(&self, class: CoreClass) -> Style {
        match class {
            CoreClass::Buffer => self.l1,
            CoreClass::L1Small => self.small,
            CoreClass::Cb => self.cb,
            CoreClass::Dfb => self.dfb,
            CoreClass::Scratch => self.scratch,
            CoreClass::KernelConfig => self.kernel,
            CoreClass::Reserved | CoreClass::Lockstep | CoreClass::Other => self.reserved,
            CoreClass::L1SmallFree | CoreClass::Free => self.empty,
        }
    }
}

/// A part of a memory bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryPart {
    Dram,
    Trace,
    L1,
    L1Small,
    Cb,
    Dfb,
    Scratch,
    Kernel,
}

impl MemoryPart {
    /// The part of a space; host memory is in no bar.
    pub(crate) fn of(space: Space) -> Option<Self> {
        Some(match space {
            Space::Dram => Self::Dram,
            Space::Trace => Self::Trace,
            Space::L1 | Space::L1Core => Self::L1,
            Space::L1Small => Self::L1Small,
            Space::Cb => Self::Cb,
            Space::Dfb => Self::Dfb,
            Space::Scratch => Self::Scratch,
            Space::Kernel => Self::Kernel,
            Space::Host => return None,
        })
    }

    /// The letter of a part without colours.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Dram | Self::L1 => 'B',
            Self::Trace => 'T',
            Self::L1Small => 'S',
            Self::Cb => 'C',
            Self::Dfb => 'D',
            Self::Scratch => 'P',
            Self::Kernel => 'K',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mono_has_no_colours() {
        for (name, depth) in [(ThemeName::Mono, ColourDepth::Full), (ThemeName::Dark, ColourDepth::None)] {
            let theme = Theme::new(name, depth);
            let styles = [theme.text, theme.bad, theme.selected, theme.badge, theme.heat(0.95), theme.dram];
            for style in styles {
                assert!(style.fg.is_none() && style.bg.is_none(), "{style:?}");
            }
        }
    }

    #[test]
    fn colours_fit_the_terminal() {
        let ink = Ink(240, 100, 95, Color::Red);
        assert_eq!(ink.at(ColourDepth::Full), Color::Rgb(240, 100, 95));
        assert_eq!(ink.at(ColourDepth::Sixteen), Color::Red);
        assert_eq!(ink.at(ColourDepth::Indexed), Color::Indexed(16 + 36 * 5 + 6 + 1));
        assert_eq!(Ink(0, 0, 0, Color::Black).at(ColourDepth::Indexed), Color::Indexed(16));
        assert_eq!(Ink(128, 128, 128, Color::Gray).at(ColourDepth::Indexed), Color::Indexed(244));
        assert_eq!(Ink(255, 255, 255, Color::White).at(ColourDepth::Indexed), Color::Indexed(231));
    }

    #[test]
    fn levels_have_their_thresholds() {
        let theme = Theme::new(ThemeName::Dark, ColourDepth::Sixteen);
        assert_eq!(theme.level(0.749).fg, Some(Color::Green));
        assert_eq!(theme.level(0.75).fg, Some(Color::Yellow));
        assert_eq!(theme.level(0.9).fg, Some(Color::Red));
        assert_eq!(theme.reading(Some(69.0), Some(75.0)).fg, Some(Color::Yellow));
        assert_eq!(theme.reading(Some(75.0), Some(75.0)).fg, Some(Color::Red));
        assert_eq!(theme.reading(Some(99.0), None), theme.text);
    }
}
