//! The state of the user interface. Plain data: [`crate::update()`] changes it, and views are drawn from it.

use crate::addresses::AddressState;
use crate::flame::FlameState;
use crate::growth::Growth;
use crate::settings::Settings;
use crate::table::SortOrder;
use crate::theme::{ColourDepth, Theme};
use jiff::Timestamp;
use std::collections::BTreeMap;
use ttmem_core::Snapshot;
use ttmem_core::detail::BufferGrouping;
use ttmem_core::snapshot::{Device, Finding, FlameMoment};
use ttmem_core::words::Space;

/// A view of the dashboard. The order is that of the number keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Devices, their memory, and processes.
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
    /// Memory by the calls that allocated it.
    Flame,
    /// The memory of allocators by address.
    Addresses,
}

impl View {
    /// All views.
    pub const ALL: [Self; 9] = [
        Self::Main,
        Self::Charts,
        Self::Telemetry,
        Self::Map,
        Self::Buffers,
        Self::Programs,
        Self::Events,
        Self::Flame,
        Self::Addresses,
    ];

    /// The title in its tab.
    pub fn title(self) -> &'static str {
        match self {
            Self::Main => "Main",
            Self::Charts => "Charts",
            Self::Telemetry => "Telemetry",
            Self::Map => "L1 map",
            Self::Buffers => "Buffers",
            Self::Programs => "Programs",
            Self::Events => "Events",
            Self::Flame => "Flame",
            Self::Addresses => "Addresses",
        }
    }

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Main => "main",
            Self::Charts => "charts",
            Self::Telemetry => "telemetry",
            Self::Buffers => "buffers",
            Self::Programs => "programs",
            Self::Events => "events",
            Self::Flame => "flame",
            Self::Addresses => "addresses",
        }
    }

    /// The view `by` places further, from the last to the first again.
    pub(crate) fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// A list with a cursor. Devices are one list in all views.
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
    /// Blocks of an allocator.
    Blocks,
}

impl List {
    /// All lists.
    pub(crate) const ALL: [Self; 7] = [
        Self::Devices,
        Self::Processes,
        Self::Buffers,
        Self::Programs,
        Self::Findings,
        Self::Events,
        Self::Blocks,
    ];

    /// The name in the settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Processes => "processes",
            Self::Buffers => "buffers",
            Self::Programs => "programs",
            Self::Findings => "findings",
            Self::Events => "events",
            Self::Blocks => "blocks",
        }
    }
}

/// The cursor, order and filter of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListState {
    pub(crate) cursor: usize,
    /// The key of the row under the cursor, if the user moved it there. The cursor follows that row when the order changes.
    pub(crate) key: Option<String>,
    /// The first row on the screen.
    pub(crate) offset: usize,
    /// Number of rows on the screen when it was last drawn.
    pub(crate) page: usize,
    pub(crate) sort: SortOrder,
    pub(crate) filter: String,
}

impl ListState {
    /// Moves the cursor and the screen to the top.
    pub(crate) fn reset_cursor(&mut self) {
        (self.cursor, self.offset, self.key) = (0, 0, None);
    }

    /// Offset and number of the rows to fetch of a long list: a page more on either side, so that scrolling shows rows at
    /// once.
    pub(crate) fn fetch_window(&self, most: u32) -> (u64, u32) {
        let page = self.page.clamp(20, 300);
        (self.offset.saturating_sub(page) as u64, ((3 * page) as u32).min(most))
    }
}

/// The target of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    View(View),
    Row(List, usize),
    Header(List, &'static str),
    List(List),
    Core(u8, u8),
    Frame(usize),
    FlameSpace(Space),
    FlameMoment(FlameMoment),
    /// A column of the bar of a map, by the number of the map.
    Bar(usize, u16),
    Choice(usize),
    /// A popup, outside its choices.
    Popup,
}

/// The layout of the screen as it was last drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenLayout {
    pub(crate) targets: Vec<(ratatui::layout::Rect, Target)>,
    /// For each list that was drawn: its first row, and the number of rows on the screen.
    pub(crate) pages: Vec<(List, usize, usize)>,
    /// Number of rows that the popup can be scrolled by.
    pub(crate) popup_rows: usize,
    /// Columns of the bars of addresses; 0: there are none on the screen.
    pub(crate) bar_columns: u16,
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

/// A process to send a signal to. Its start time distinguishes it from a later process with the same pid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// Pid.
    pub pid: u32,
    /// Start time.
    pub start: Option<Timestamp>,
    /// Name.
    pub name: String,
    /// Name of the user who owns it.
    pub user: String,
}

/// A popup over the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Popup {
    Help,
    Details(Subject),
    Sort { list: List, choice: usize },
    Signal { to: Recipient, choice: usize },
    Confirm { to: Recipient, signal: &'static Signal },
    Settings { choice: usize },
}

/// A signal that can be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Signal {
    /// Number, as in the kernel.
    pub number: i32,
    /// Name without `SIG`, as `TERM`.
    pub name: &'static str,
    /// Effect of the signal.
    pub(crate) help: &'static str,
}

/// The signals of the menu, below Cancel.
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

/// A message that the bottom line shows for some seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) text: String,
    pub(crate) is_warning: bool,
    /// When it disappears, on the clock of [`crate::update()`].
    pub(crate) until_ms: u64,
}

/// The state of the user interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Ui {
    pub(crate) view: View,
    /// The settings that can be saved.
    pub settings: Settings,
    pub(crate) colour_depth: ColourDepth,
    pub(crate) theme: Theme,
    pub(crate) ascii: bool,
    /// Signals are disabled.
    pub(crate) readonly: bool,
    pub(crate) own_pid: u32,
    list_states: [ListState; List::ALL.len()],
    /// Whether the second list of the view has the focus.
    pub(crate) second_focused: bool,
    /// Processes are shown below their parents.
    pub(crate) tree: bool,
    /// Column and row of the selected core; `None`: the one with the smallest free gap.
    pub(crate) core: Option<(u8, u8)>,
    pub(crate) window: usize,
    /// Charts are scaled to the highest value instead of to the capacity or limit.
    pub(crate) scaled: bool,
    /// Charts show sensors instead of memory where there is no space for both.
    pub(crate) sensors: bool,
    /// Charts show the selected device instead of all devices.
    pub(crate) single: bool,
    pub(crate) flame: FlameState,
    pub(crate) addresses: AddressState,
    pub(crate) group: Option<BufferGrouping>,
    /// The groups when the view of buffers was opened.
    pub(crate) growth: Growth,
    /// The list of groups that a group was opened from.
    pub(crate) opened_from: Option<(BufferGrouping, ListState)>,
    /// Findings that the user acknowledged, with the count of each at that time.
    acknowledged: BTreeMap<String, u64>,
    pub(crate) shows_acknowledged: bool,
    pub(crate) popup: Option<Popup>,
    pub(crate) popup_offset: usize,
    /// The filter as it is being typed.
    pub(crate) editing: Option<String>,
    pub(crate) paused: Option<Timestamp>,
    pub(crate) status: Option<Status>,
    pub(crate) layout: ScreenLayout,
    /// Snapshots are filtered by device, so they must have the memory of processes by device.
    pub(crate) filtered_by_device: bool,
}

/// Properties of the terminal and the command line, which do not change while the program runs.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Number of colours of the terminal.
    pub colour_depth: ColourDepth,
    /// The terminal shows ASCII only.
    pub ascii: bool,
    /// Signals are disabled.
    pub readonly: bool,
    /// Pid of the dashboard, which gets no signals.
    pub own_pid: u32,
    /// Snapshots are filtered by device, so they must have the memory of processes by device.
    pub filtered_by_device: bool,
}

impl Ui {
    /// Creates the state at the start.
    pub fn new(settings: Settings, environment: Environment) -> Self {
        let mut list_states: [ListState; List::ALL.len()] = Default::default();
        for (state, list) in list_states.iter_mut().zip(List::ALL) {
            state.sort = settings.sort_order(list);
        }
        let window =
            WINDOWS.iter().position(|&it| it >= settings.window_seconds).unwrap_or(WINDOWS.len() - 1);
        Self {
            view: settings.first_view(),
            colour_depth: environment.colour_depth,
            theme: Theme::new(settings.theme, environment.colour_depth),
            ascii: environment.ascii || settings.ascii,
            readonly: environment.readonly,
            own_pid: environment.own_pid,
            list_states,
            second_focused: false,
            tree: false,
            core: None,
            window,
            scaled: false,
            sensors: false,
            single: false,
            flame: FlameState::default(),
            addresses: AddressState::default(),
            group: None,
            growth: Growth::default(),
            opened_from: None,
            acknowledged: BTreeMap::new(),
            shows_acknowledged: false,
            popup: None,
            popup_offset: 0,
            editing: None,
            paused: None,
            status: None,
            layout: ScreenLayout::default(),
            filtered_by_device: environment.filtered_by_device,
            settings,
        }
    }

    pub(crate) fn list_state(&self, list: List) -> &ListState {
        &self.list_states[list as usize]
    }

    pub(crate) fn list_state_mut(&mut self, list: List) -> &mut ListState {
        &mut self.list_states[list as usize]
    }

    /// The lists of the view, at most two.
    pub(crate) fn lists(&self) -> &'static [List] {
        match self.view {
            View::Main => &[List::Processes, List::Devices],
            View::Charts | View::Telemetry => &[List::Devices],
            View::Map | View::Flame => &[],
            View::Buffers => &[List::Buffers],
            View::Programs => &[List::Programs],
            View::Events => &[List::Events, List::Findings],
            View::Addresses => &[List::Blocks],
        }
    }

    /// The list in which keys move the cursor.
    pub(crate) fn focused_list(&self) -> Option<List> {
        let lists = self.lists();
        lists.get(usize::from(self.second_focused)).or(lists.first()).copied()
    }

    /// Length of the time axis.
    pub(crate) fn window_seconds(&self) -> u64 {
        WINDOWS[self.window.min(WINDOWS.len() - 1)]
    }

    /// The selected device.
    pub(crate) fn selected_device<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Device> {
        let state = self.list_state(List::Devices);
        let by_key = snapshot.devices.iter().find(|device| Some(&device.id) == state.key.as_ref());
        by_key.or_else(|| snapshot.devices.get(state.cursor)).or_else(|| snapshot.devices.first())
    }

    /// Hides a finding until it occurs again, or shows one that is hidden.
    pub(crate) fn toggle_acknowledged(&mut self, finding: &Finding) {
        let key = crate::lists::finding_key(finding);
        if self.acknowledged.remove(&key).is_none() {
            self.acknowledged.insert(key, finding.count);
        }
    }

    /// Whether a finding was acknowledged and has not occurred since.
    pub(crate) fn is_acknowledged(&self, finding: &Finding) -> bool {
        let then = || self.acknowledged.get(&crate::lists::finding_key(finding));
        !self.acknowledged.is_empty() && then().is_some_and(|&count| finding.count <= count)
    }

    /// Removes acknowledgements of findings that are gone or occurred again.
    pub(crate) fn prune_acknowledged(&mut self, findings: &[Finding]) {
        if !self.acknowledged.is_empty() {
            let kept: Vec<String> = findings
                .iter()
                .filter(|it| self.is_acknowledged(it))
                .map(crate::lists::finding_key)
                .collect();
            self.acknowledged.retain(|key, _| kept.contains(key));
        }
    }

    pub(crate) fn show_status(&mut self, now_ms: u64, text: impl Into<String>) {
        self.status = Some(Status { text: text.into(), is_warning: false, until_ms: now_ms + 4000 });
    }

    pub(crate) fn show_warning(&mut self, now_ms: u64, text: impl Into<String>) {
        self.status = Some(Status { text: text.into(), is_warning: true, until_ms: now_ms + 8000 });
    }

    /// Stores the layout of the screen that was just drawn.
    pub fn set_layout(&mut self, layout: ScreenLayout) {
        for &(list, offset, page) in &layout.pages {
            let state = self.list_state_mut(list);
            (state.offset, state.page) = (offset, page);
        }
        self.popup_offset = self.popup_offset.min(layout.popup_rows);
        if layout.bar_columns > 0 {
            self.addresses.columns = layout.bar_columns;
        }
        self.layout = layout;
    }
}
