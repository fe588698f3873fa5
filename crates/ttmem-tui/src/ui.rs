//! The state of the user interface. Plain data: [`crate::update()`] changes it, and views are drawn from it.

use crate::settings::Settings;
use crate::shown::Shown;
use crate::table::Sorting;
use crate::theme::{Depth, Theme};
use jiff::Timestamp;
use std::collections::BTreeMap;
use ttmem_core::detail::{BufferGrouping, BufferQuery, CoreQuery, ProgramQuery};
use ttmem_core::snapshot::Finding;
use ttmem_core::{Detail, Snapshot};

/// The views, in the order of their digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Devices, what is in their memory, and who holds it.
    #[default]
    Main,
    /// Usage over time.
    Charts,
    /// Sensors.
    Telemetry,
    /// The L1 of a device's cores.
    Map,
    /// Every live allocation.
    Buffers,
    /// Programs and their L1.
    Programs,
    /// Findings and events.
    Events,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Main, Self::Charts, Self::Telemetry, Self::Map, Self::Buffers, Self::Programs, Self::Events];

    /// As in its tab.
    pub fn title(self) -> &'static str {
        match self {
            Self::Main => "Main",
            Self::Charts => "Charts",
            Self::Telemetry => "Telemetry",
            Self::Map => "L1 map",
            Self::Buffers => "Buffers",
            Self::Programs => "Programs",
            Self::Events => "Events",
        }
    }

    /// As in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Main => "main",
            Self::Charts => "charts",
            Self::Telemetry => "telemetry",
            Self::Buffers => "buffers",
            Self::Programs => "programs",
            Self::Events => "events",
        }
    }

    pub(crate) fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// Lists with a cursor. Devices are one list, wherever they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// Devices.
    Devices,
    /// Processes.
    Processes,
    /// Allocations.
    Buffers,
    /// Programs.
    Programs,
    /// Findings.
    Findings,
    /// Events.
    Events,
}

impl List {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Devices, Self::Processes, Self::Buffers, Self::Programs, Self::Findings, Self::Events];

    /// As in the settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Processes => "processes",
            Self::Buffers => "buffers",
            Self::Programs => "programs",
            Self::Findings => "findings",
            Self::Events => "events",
        }
    }
}

/// The cursor, order and filter of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cursor: usize,
    /// The key of that row, if the user put the cursor there: it moves along when the order changes.
    pub(crate) key: Option<String>,
    /// The first row on the screen.
    pub(crate) offset: usize,
    /// Rows on the screen, as it was last drawn.
    pub(crate) page: usize,
    pub(crate) sort: Sorting,
    pub(crate) filter: String,
}

impl Place {
    /// What of a long list is to be fetched: a screen before and one behind, so that moving on shows something at once.
    fn window(&self, most: u32) -> (u64, u32) {
        let page = self.page.clamp(20, 300);
        (self.offset.saturating_sub(page) as u64, ((3 * page) as u32).min(most))
    }
}

/// The target of a click.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    View(View),
    Row(List, usize),
    Header(List, &'static str),
    List(List),
    Core(u8, u8),
    Choice(usize),
    /// What lies over the view, where nothing else is meant.
    Popup,
}

/// What a screen turned out to be like, for the next message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    pub(crate) targets: Vec<(ratatui::layout::Rect, Target)>,
    /// Of each list that was drawn: its first row, and how many there are on the screen.
    pub(crate) pages: Vec<(List, usize, usize)>,
    /// How far what lies over the view can be moved.
    pub(crate) popup_rows: usize,
}

/// The subject of a details popup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Device(String),
    Process(String),
    Buffer(String),
    Program(String),
    Finding(String),
    Event(u64),
    Core(String, u8, u8),
}

/// A process to send a signal to. Its start distinguishes it from a later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// Its pid.
    pub pid: u32,
    /// When it started.
    pub start: Option<Timestamp>,
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub user: String,
}

/// What lies over the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Popup {
    Help,
    Details(Subject),
    Sort { list: List, choice: usize },
    Signal { to: Recipient, choice: usize },
    Confirm { to: Recipient, signal: &'static Signal },
    Setup { choice: usize },
}

/// A signal that can be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Signal {
    /// The kernel's number of it.
    pub number: i32,
    /// As `TERM`.
    pub name: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

/// What the menu has, below Cancel.
pub(crate) const SIGNALS: [Signal; 6] = [
    Signal { number: 15, name: "TERM", help: "ask the process to exit" },
    Signal { number: 2, name: "INT", help: "interrupt, as Ctrl-C" },
    Signal { number: 1, name: "HUP", help: "hang up" },
    Signal { number: 9, name: "KILL", help: "exit at once, without cleanup" },
    Signal { number: 19, name: "STOP", help: "stop the process" },
    Signal { number: 18, name: "CONT", help: "continue a stopped process" },
];

/// Lengths of the time axis, in seconds.
pub(crate) const WINDOWS: [u64; 7] = [60, 300, 900, 3600, 10_800, 21_600, 86_400];

/// A message in the lowest line, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) text: String,
    pub(crate) alarming: bool,
    /// Until when, on the clock of messages.
    pub(crate) until_ms: u64,
}

/// The state of the user interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Ui {
    pub(crate) view: View,
    /// What can be kept for the next time.
    pub settings: Settings,
    pub(crate) depth: Depth,
    pub(crate) theme: Theme,
    pub(crate) ascii: bool,
    /// No signals.
    pub(crate) readonly: bool,
    pub(crate) own_pid: u32,
    places: [Place; List::ALL.len()],
    /// Whether keys move in the second list of the view.
    pub(crate) second: bool,
    /// Processes below their parents.
    pub(crate) tree: bool,
    /// Column and row of the selected core; `None`: the one with the smallest free gap.
    pub(crate) core: Option<(u8, u8)>,
    pub(crate) window: usize,
    /// Charts are scaled to the highest value instead of to the capacity or limit.
    pub(crate) scaled: bool,
    /// Charts of sensors instead of memory, where there is no room for both.
    pub(crate) sensors: bool,
    /// One device's charts instead of those of all devices.
    pub(crate) single: bool,
    pub(crate) group: Option<BufferGrouping>,
    /// The list of groups that a group was opened from.
    pub(crate) opened_from: Option<(BufferGrouping, Place)>,
    /// Findings that the user acknowledged, and how often each had occurred then.
    acknowledged: BTreeMap<String, u64>,
    pub(crate) shows_acknowledged: bool,
    pub(crate) popup: Option<Popup>,
    pub(crate) popup_offset: usize,
    /// The filter as it is being typed.
    pub(crate) editing: Option<String>,
    pub(crate) paused: Option<Timestamp>,
    pub(crate) status: Option<Status>,
    pub(crate) laid: Laid,
    /// Everything is asked for in full: the source is to be narrowed down afterwards.
    pub(crate) narrowed: bool,
}

/// What does not change while the program runs.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How many colours there are.
    pub depth: Depth,
    /// Whether the terminal shows ASCII only.
    pub ascii: bool,
    /// No signals may be sent.
    pub readonly: bool,
    /// The dashboard's own pid, which gets no signals.
    pub own_pid: u32,
    /// Snapshots are narrowed down to some devices, so all that processes hold must be asked for by device.
    pub narrowed: bool,
}

impl Ui {
    /// As it is at the start.
    pub fn new(settings: Settings, terms: Terms) -> Self {
        let mut places: [Place; List::ALL.len()] = Default::default();
        for (place, list) in places.iter_mut().zip(List::ALL) {
            place.sort = settings.sorting(list);
        }
        let window =
            WINDOWS.iter().position(|&it| it >= settings.window_seconds).unwrap_or(WINDOWS.len() - 1);
        Self {
            view: settings.first_view(),
            depth: terms.depth,
            theme: Theme::new(settings.theme, terms.depth),
            ascii: terms.ascii || settings.ascii,
            readonly: terms.readonly,
            own_pid: terms.own_pid,
            places,
            second: false,
            tree: false,
            core: None,
            window,
            scaled: false,
            sensors: false,
            single: false,
            group: None,
            opened_from: None,
            acknowledged: BTreeMap::new(),
            shows_acknowledged: false,
            popup: None,
            popup_offset: 0,
            editing: None,
            paused: None,
            status: None,
            laid: Laid::default(),
            narrowed: terms.narrowed,
            settings,
        }
    }

    pub(crate) fn place(&self, list: List) -> &Place {
        &self.places[list as usize]
    }

    pub(crate) fn place_mut(&mut self, list: List) -> &mut Place {
        &mut self.places[list as usize]
    }

    /// The lists of a view: two, or one, or none.
    pub(crate) fn lists(&self) -> &'static [List] {
        match self.view {
            View::Main => &[List::Processes, List::Devices],
            View::Charts | View::Telemetry => &[List::Devices],
            View::Map => &[],
            View::Buffers => &[List::Buffers],
            View::Programs => &[List::Programs],
            View::Events => &[List::Events, List::Findings],
        }
    }

    /// The list that keys move in.
    pub(crate) fn list(&self) -> Option<List> {
        let lists = self.lists();
        lists.get(usize::from(self.second)).or(lists.first()).copied()
    }

    pub(crate) fn window_seconds(&self) -> u64 {
        WINDOWS[self.window.min(WINDOWS.len() - 1)]
    }

    /// The selected device.
    pub(crate) fn chip<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a ttmem_core::snapshot::Device> {
        let place = self.place(List::Devices);
        let named = snapshot.devices.iter().find(|device| Some(&device.id) == place.key.as_ref());
        named.or_else(|| snapshot.devices.get(place.cursor)).or_else(|| snapshot.devices.first())
    }

    /// What must be fetched for what is on the screen.
    pub fn wanted(&self, shown: &Shown) -> Detail {
        let mut detail = Detail { brief: !self.narrowed, ..Detail::NONE };
        match self.view {
            View::Map => {
                detail.cores_of = self.chip(&shown.snapshot).map(|device| device.index);
                detail.core = detail.cores_of.map(|device| self.core_query(device));
            }
            View::Main => detail.host = true,
            View::Buffers => detail.buffers = Some(self.buffer_query()),
            View::Programs => detail.program_list = Some(self.program_query()),
            View::Events => detail.events = true,
            View::Charts | View::Telemetry => {}
        }
        if let Some(Popup::Details(Subject::Process(key))) = &self.popup {
            detail.pid = crate::lists::pid_of(key);
        }
        detail
    }

    fn core_query(&self, device: u32) -> CoreQuery {
        /// More than fit beside the map.
        const BESIDE: u32 = 80;
        match &self.popup {
            Some(Popup::Details(Subject::Core(_, x, y))) => {
                CoreQuery { device, core: Some([*x, *y]), limit: CoreQuery::MOST }
            }
            // The core with the smallest free gap is chosen where the list is made: it may be another one by then.
            _ => CoreQuery { device, core: self.core.map(|(x, y)| [x, y]), limit: BESIDE },
        }
    }

    fn program_query(&self) -> ProgramQuery {
        let place = self.place(List::Programs);
        let (offset, limit) = place.window(ProgramQuery::MOST);
        let open = match &self.popup {
            Some(Popup::Details(Subject::Program(key))) => crate::lists::program_of(key),
            _ => None,
        };
        ProgramQuery {
            sort: crate::lists::program_sort(place.sort.column),
            reversed: place.sort.reversed,
            text: place.filter.clone(),
            offset,
            limit,
            open,
            ..ProgramQuery::default()
        }
    }

    fn buffer_query(&self) -> BufferQuery {
        let place = self.place(List::Buffers);
        let (offset, limit) = place.window(BufferQuery::MOST);
        let sort = crate::lists::buffer_sort(place.sort.column);
        BufferQuery {
            sort,
            reversed: place.sort.reversed,
            text: place.filter.clone(),
            group: self.group,
            offset,
            limit,
            ..BufferQuery::default()
        }
    }

    /// Hides a finding until it occurs again; of one that is hidden already, shows it again.
    pub(crate) fn acknowledge(&mut self, finding: &Finding) {
        let key = crate::lists::finding_key(finding);
        if self.acknowledged.remove(&key).is_none() {
            self.acknowledged.insert(key, finding.count);
        }
    }

    /// Whether a finding was acknowledged and has not occurred since.
    pub(crate) fn is_acknowledged(&self, finding: &Finding) -> bool {
        let known = || self.acknowledged.get(&crate::lists::finding_key(finding));
        !self.acknowledged.is_empty() && known().is_some_and(|&count| finding.count <= count)
    }

    /// Forgets acknowledgements of what is gone or occurred again.
    pub(crate) fn forget_acknowledged(&mut self, findings: &[Finding]) {
        if !self.acknowledged.is_empty() {
            let kept: Vec<String> = findings
                .iter()
                .filter(|it| self.is_acknowledged(it))
                .map(crate::lists::finding_key)
                .collect();
            self.acknowledged.retain(|key, _| kept.contains(key));
        }
    }

    pub(crate) fn say(&mut self, now_ms: u64, text: impl Into<String>) {
        self.status = Some(Status { text: text.into(), alarming: false, until_ms: now_ms + 4000 });
    }

    pub(crate) fn warn(&mut self, now_ms: u64, text: impl Into<String>) {
        self.status = Some(Status { text: text.into(), alarming: true, until_ms: now_ms + 8000 });
    }

    /// Takes over what the last drawing found out.
    pub fn settle(&mut self, laid: Laid) {
        for &(list, offset, page) in &laid.pages {
            let place = self.place_mut(list);
            (place.offset, place.page) = (offset, page);
        }
        self.popup_offset = self.popup_offset.min(laid.popup_rows);
        self.laid = laid;
    }
}
