//! Colours, by what they mean. A theme is a table of inks; how many colours the terminal has decides what becomes of
//! them. Without colours the same differences are made with bold, faint and reversed text.

use crate::shown::Series;
use ratatui::style::{Color, Modifier, Style};
use serde::{Deserialize, Serialize};
use ttmem_core::snapshot::{CoreClass, Severity, Tracking};
use ttmem_core::words::Space;
use ttmem_render::Tone;
use ttmem_render::figure::Level;

/// Themes, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThemeName {
    /// For dark backgrounds.
    #[default]
    Dark,
    /// For light ones.
    Light,
    /// No red beside green: blue, white and orange.
    ColourBlind,
    /// No colours at all.
    Mono,
}

impl ThemeName {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::ColourBlind, Self::Mono];

    /// As it is written in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::ColourBlind => "colour-blind",
            Self::Mono => "mono",
        }
    }
}

/// How many colours a terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None.
    None,
    /// The 16 that every terminal has; which those are is the user's choice.
    Sixteen,
    /// 256.
    Indexed,
    /// All.
    Full,
}

/// A colour, and the nearest of the 16.
#[derive(Clone, Copy)]
struct Ink(u8, u8, u8, Color);

impl Ink {
    fn at(self, depth: Depth) -> Color {
        let Self(r, g, b, sixteen) = self;
        match depth {
            Depth::None => Color::Reset,
            Depth::Sixteen => sixteen,
            Depth::Full => Color::Rgb(r, g, b),
            Depth::Indexed => {
                // The cube of 6 x 6 x 6, or the 24 greys between its own.
                let step = |v: u8| if v < 48 { 0 } else { (v.saturating_sub(35) / 40).min(5) };
                if r.abs_diff(g) < 10 && g.abs_diff(b) < 10 && (8..=238).contains(&r) {
                    return Color::Indexed(232 + (r - 8) / 10);
                }
                Color::Indexed(16 + 36 * step(r) + 6 * step(g) + step(b))
            }
        }
    }
}

/// The inks of a theme.
struct Inks {
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

const DARK: Inks = Inks {
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

const LIGHT: Inks = Inks {
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

/// From blue over white to orange, which people with any colour blindness can distinguish.
const BLIND: Inks = Inks {
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

/// What is drawn how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Whether there are colours; without them marks must do.
    pub(crate) coloured: bool,
    pub(crate) text: Style,
    /// What is not a figure, and figures that are not known.
    pub(crate) faint: Style,
    pub(crate) frame: Style,
    pub(crate) title: Style,
    /// Keys, and names of what has the focus.
    pub(crate) accent: Style,
    pub(crate) header: Style,
    pub(crate) good: Style,
    pub(crate) warn: Style,
    pub(crate) bad: Style,
    /// Background of the chosen row.
    pub(crate) selected: Style,
    /// That of a table without the focus.
    pub(crate) selected_elsewhere: Style,
    pub(crate) badge: Style,
    pub(crate) alarm: Style,
    pub(crate) dram: Style,
    pub(crate) l1: Style,
    /// The part of a bar that is not filled.
    pub(crate) empty: Style,
    trace: Style,
    small: Style,
    cb: Style,
    dfb: Style,
    scratch: Style,
    kernel: Style,
    reserved: Style,
    heat: [Style; 6],
}

impl Theme {
    /// The theme of that name on a terminal with so many colours.
    pub fn new(name: ThemeName, depth: Depth) -> Self {
        let inks = match name {
            ThemeName::Light => &LIGHT,
            ThemeName::ColourBlind => &BLIND,
            ThemeName::Dark | ThemeName::Mono => &DARK,
        };
        if name == ThemeName::Mono || depth == Depth::None {
            return Self::mono();
        }
        let fore = |ink: Ink| Style::new().fg(ink.at(depth));
        // Text on a heat cell must be read on all of them, and 16 colours leave no choice but black.
        let on_heat = match (name, depth) {
            (ThemeName::Light, _) | (_, Depth::Sixteen) => Ink(20, 22, 26, Color::Black),
            _ => Ink(236, 238, 242, Color::White),
        };
        let bold = |ink: Ink| fore(ink).add_modifier(Modifier::BOLD);
        let badge = |ink: Ink| bold(inks.on_badge).bg(ink.at(depth));
        Self {
            coloured: true,
            text: Style::new(),
            faint: fore(inks.faint),
            frame: fore(inks.frame),
            title: Style::new().add_modifier(Modifier::BOLD),
            accent: fore(inks.accent),
            header: bold(inks.faint),
            good: fore(inks.good),
            warn: fore(inks.warn),
            bad: bold(inks.bad),
            selected: Style::new().bg(inks.selected.at(depth)).add_modifier(Modifier::BOLD),
            selected_elsewhere: Style::new().add_modifier(Modifier::BOLD),
            badge: badge(inks.warn),
            alarm: badge(inks.bad),
            dram: fore(inks.dram),
            l1: fore(inks.l1),
            empty: fore(inks.empty),
            trace: fore(inks.trace),
            small: fore(inks.small),
            cb: fore(inks.cb),
            dfb: fore(inks.dfb),
            scratch: fore(inks.scratch),
            kernel: fore(inks.kernel),
            reserved: fore(inks.reserved),
            heat: inks.heat.map(|ink| fore(on_heat).bg(ink.at(depth))),
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
        }
    }

    /// The colour of a figure over time.
    pub(crate) fn series(&self, series: Series) -> Style {
        match series {
            Series::Dram => self.dram,
            Series::L1 => self.l1,
            Series::Temperature => self.cb,
            Series::Power => self.dfb,
            Series::Clock => self.trace,
        }
    }

    /// How full something is: from 75 % on a warning, from 90 % on an alarm.
    pub(crate) fn level(&self, share: f64) -> Style {
        match Level::of(share) {
            Level::Full => self.bad,
            Level::High => self.warn,
            Level::Low => self.good,
        }
    }

    /// A reading against its limit, if it has one: from nine tenths of it on, and from it on.
    pub(crate) fn against(&self, value: Option<f64>, limit: Option<f64>) -> Style {
        match (value, limit) {
            (None, _) => self.faint,
            (Some(value), Some(limit)) if limit > 0.0 && value >= limit => self.bad,
            (Some(value), Some(limit)) if limit > 0.0 && value >= 0.9 * limit => self.warn,
            _ => self.text,
        }
    }

    /// The background of a core so full.
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

    pub(crate) fn quality(&self, quality: Tracking) -> Style {
        match quality {
            Tracking::Audited | Tracking::Agent | Tracking::Library => self.good,
            Tracking::Counters | Tracking::Reported | Tracking::Partial => self.warn,
            Tracking::Drift => self.bad,
            Tracking::Untracked => self.faint,
        }
    }

    /// How a cell of a table is drawn.
    pub(crate) fn tone(&self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => self.text,
            Tone::Faint => self.faint,
            Tone::Good => self.good,
            Tone::Warn => self.warn,
            Tone::Bad => self.bad,
            Tone::Level(share) => self.level(share),
            Tone::Against(value, limit) => self.against(Some(value), limit),
            Tone::Tracking(quality) => self.quality(quality),
            Tone::Severity(severity) => self.severity(severity),
            Tone::Space(space) => Part::of(space).map_or(self.faint, |part| self.part(part)),
        }
    }

    pub(crate) fn part(&self, part: Part) -> Style {
        match part {
            Part::Dram => self.dram,
            Part::Trace => self.trace,
            Part::L1 => self.l1,
            Part::L1Small => self.small,
            Part::Cb => self.cb,
            Part::Dfb => self.dfb,
            Part::Scratch => self.scratch,
            Part::Kernel => self.kernel,
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

/// What a bar is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Dram,
    Trace,
    L1,
    L1Small,
    Cb,
    Dfb,
    Scratch,
    Kernel,
}

impl Part {
    /// What a space is drawn as; host memory is no part of any bar.
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

    /// The letter of a part, where there are no colours.
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
    fn without_colours_nothing_is_coloured() {
        for (name, depth) in [(ThemeName::Mono, Depth::Full), (ThemeName::Dark, Depth::None)] {
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
        assert_eq!(ink.at(Depth::Full), Color::Rgb(240, 100, 95));
        assert_eq!(ink.at(Depth::Sixteen), Color::Red);
        assert_eq!(ink.at(Depth::Indexed), Color::Indexed(16 + 36 * 5 + 6 + 1));
        assert_eq!(Ink(0, 0, 0, Color::Black).at(Depth::Indexed), Color::Indexed(16));
        assert_eq!(Ink(128, 128, 128, Color::Gray).at(Depth::Indexed), Color::Indexed(244));
        assert_eq!(Ink(255, 255, 255, Color::White).at(Depth::Indexed), Color::Indexed(231));
    }

    #[test]
    fn levels_have_their_thresholds() {
        let theme = Theme::new(ThemeName::Dark, Depth::Sixteen);
        assert_eq!(theme.level(0.749).fg, Some(Color::Green));
        assert_eq!(theme.level(0.75).fg, Some(Color::Yellow));
        assert_eq!(theme.level(0.9).fg, Some(Color::Red));
        assert_eq!(theme.against(Some(69.0), Some(75.0)).fg, Some(Color::Yellow));
        assert_eq!(theme.against(Some(75.0), Some(75.0)).fg, Some(Color::Red));
        assert_eq!(theme.against(Some(99.0), None), theme.text);
    }
}
