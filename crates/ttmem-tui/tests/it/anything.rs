//! Whatever the snapshot, whatever was pressed, whatever the size: there is a screen, and nothing breaks.
//!
//! Everything is made from bytes, which run out at the end: few bytes make little, so that what fails becomes small.

use crate::desk::{Desk, rows, terms};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Rect;
use std::sync::Arc;
use ttmem_core::Snapshot;
use ttmem_core::machine::{
    Capacity, CapacityOrigin, CoreLayout, Firmware, Host, PcieRates, SensorLimits, Sensors,
};
use ttmem_core::snapshot::{
    Allocation, AllocatorSpace, AllocatorUsage, AuditResult, BufferGroup, BufferUsage, Buffers, Core,
    CoreAllocation, CoreAllocations, CoreClass, CorePeak, CoreProgram, CoreRoom, Cores, Device, Event,
    EventKind, Finding, FindingKind, Health, History, Holder, HostUsage, Interval, Peak, Placement, Process,
    ProcessUsage, Program, ProgramList, ProgramRow, ProgramUsage, Sample, SensorSample, Severity, Summary,
    Total, Trace, Tracker, Tracking, Usage,
};
use ttmem_core::words::{Arch, Basis, KernelClass, Layout, Space};
use ttmem_tui::{Depth, Msg, Now, Settings, Terms, ThemeName, View, view};

/// Bytes that everything is made from.
struct Source<'a>(std::slice::Iter<'a, u8>);

impl<'a> Source<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn yes(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    fn number(&mut self) -> u64 {
        const ODD: [u64; 14] = [
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
            100..200 => ODD[usize::from(byte) % ODD.len()],
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn small(&mut self) -> u32 {
        match self.byte() {
            byte @ 0..250 => u32::from(byte % 40),
            250..253 => u32::MAX,
            _ => self.number() as u32,
        }
    }

    fn real(&mut self) -> f64 {
        const ODD: [f64; 10] = [
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
        if byte < 150 { f64::from(byte) / 2.0 } else { ODD[usize::from(byte) % ODD.len()] }
    }

    fn signed(&mut self) -> i64 {
        match self.byte() % 4 {
            0 => 0,
            1 => i64::MIN,
            2 => i64::MAX,
            _ => self.number() as i64,
        }
    }

    fn time(&mut self) -> Timestamp {
        match self.byte() {
            240..245 => Timestamp::MIN,
            245..250 => Timestamp::MAX,
            250.. => Timestamp::UNIX_EPOCH,
            near => crate::states::now()
                .checked_add(SignedDuration::from_millis((i64::from(near) - 230) * 700))
                .unwrap(),
        }
    }

    fn text(&mut self) -> String {
        const ODD: [&str; 14] = [
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
            let part = self.one(&ODD);
            text.push_str(&part.repeat(if self.byte() > 250 { 2000 } else { 1 }));
        }
        text
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.yes().then(|| make(self))
    }

    fn some<T>(&mut self, most: u8, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % (most + 1)).map(|_| make(self)).collect()
    }

    fn space(&mut self) -> Space {
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

    fn basis(&mut self) -> Basis {
        self.one(&[Basis::Exact, Basis::Counters, Basis::Reported, Basis::Unknown])
    }

    fn severity(&mut self) -> Severity {
        self.one(&[Severity::Error, Severity::Warning, Severity::Info])
    }

    /// An id that some chip has, or none.
    fn id(&mut self) -> String {
        if self.byte() > 200 { self.text() } else { format!("chip-{}", self.byte() % 4) }
    }

    fn pid(&mut self) -> Option<u32> {
        match self.byte() % 8 {
            0 => None,
            1 => Some(0),
            2 => Some(u32::MAX),
            n => Some(u32::from(n)),
        }
    }

    fn rectangle(&mut self) -> [u8; 4] {
        std::array::from_fn(|_| self.one(&[0, 1, 7, 254, 255]))
    }

    fn buffer_usage(&mut self) -> BufferUsage {
        BufferUsage {
            used_bytes: self.number(),
            requested_bytes: self.number(),
            occupied_bytes: self.maybe(Self::number),
            allocated_bytes: self.maybe(Self::number),
            allocatable_bytes: self.maybe(Self::number),
            free_bytes: self.maybe(Self::number),
            largest_free_bytes_per_bank: self.maybe(Self::number),
            peak_bytes: self.number(),
            count: self.maybe(Self::number),
            basis: self.basis(),
        }
    }

    fn program_usage(&mut self) -> ProgramUsage {
        ProgramUsage {
            registered_bytes: self.number(),
            resident_bytes: self.maybe(Self::number),
            residency_unknown_bytes: self.number(),
            estimated_bytes: self.number(),
            count: self.maybe(Self::number),
            basis: self.basis(),
        }
    }

    fn total(&mut self) -> Total {
        Total { used_bytes: self.number(), capacity_bytes: self.maybe(Self::number), basis: self.basis() }
    }

    fn usage(&mut self) -> Usage {
        Usage {
            dram: self.maybe(Self::buffer_usage),
            l1: self.maybe(Self::buffer_usage),
            l1_small: self.maybe(Self::buffer_usage),
            l1_core: self.maybe(Self::buffer_usage),
            trace: self.maybe(Self::buffer_usage),
            host: self.maybe(Self::buffer_usage),
            cb: self.maybe(Self::program_usage),
            dfb: self.maybe(Self::program_usage),
            scratch: self.maybe(Self::program_usage),
            kernel: self.maybe(Self::program_usage),
            dram_total: self.maybe(Self::total),
            l1_total: self.maybe(Self::total),
        }
    }

    fn sensors(&mut self) -> Sensors {
        Sensors {
            asic_celsius: self.maybe(Self::real),
            power_watts: self.maybe(Self::real),
            current_amperes: self.maybe(Self::real),
            vcore_volts: self.maybe(Self::real),
            aiclk_mhz: self.maybe(Self::real),
            axiclk_mhz: self.maybe(Self::real),
            arcclk_mhz: self.maybe(Self::real),
            fan_rpm: self.maybe(Self::real),
            heartbeat: self.maybe(Self::number),
            heartbeat_beats: self.maybe(Self::yes),
            thermal_trips: self.maybe(Self::number),
            limits: SensorLimits {
                asic_celsius: self.maybe(Self::real),
                power_watts: self.maybe(Self::real),
                current_amperes: self.maybe(Self::real),
                vcore_volts: self.maybe(Self::real),
            },
            pcie: self.maybe(|it| PcieRates {
                host_reads_bytes_per_second: it.maybe(Self::real),
                host_writes_bytes_per_second: it.maybe(Self::real),
                device_reads_bytes_per_second: it.maybe(Self::real),
                device_writes_bytes_per_second: it.maybe(Self::real),
            }),
            age_ms: self.number(),
            stale: self.yes(),
            absent: self
                .some(2, |it| (it.one(&["fan_rpm", "pcie"]).to_owned(), it.text()))
                .into_iter()
                .collect(),
        }
    }

    fn room(&mut self) -> CoreRoom {
        CoreRoom {
            x: self.one(&[0, 1, 2, 100, 254, 255]),
            y: self.one(&[0, 1, 2, 100, 254, 255]),
            program_end: self.number(),
            registered_end: self.number(),
            lowest_buffer: self.number(),
            free_gap_bytes: self.number(),
            basis: self.basis(),
        }
    }

    fn core(&mut self) -> Core {
        let interval = |it: &mut Self| Interval {
            class: it.one(&[
                CoreClass::Reserved,
                CoreClass::KernelConfig,
                CoreClass::Buffer,
                CoreClass::L1Small,
                CoreClass::Cb,
                CoreClass::Dfb,
                CoreClass::Scratch,
                CoreClass::Lockstep,
                CoreClass::L1SmallFree,
                CoreClass::Free,
                CoreClass::Other,
            ]),
            start: it.number(),
            bytes: it.number(),
        };
        Core {
            room: self.room(),
            program: self.maybe(|it| CoreProgram {
                pid: it.pid(),
                allocator: it.maybe(Self::small),
                id: it.small(),
                name: it.maybe(Self::text),
            }),
            intervals: Arc::from(self.some(6, interval)),
            peak: self.maybe(|it| CorePeak {
                bytes: it.number(),
                buffer_bytes: it.number(),
                at: it.time(),
                pid: it.pid(),
                program: it.maybe(Self::small),
                program_name: it.maybe(Self::text),
            }),
        }
    }

    fn cores(&mut self) -> Cores {
        let mut all = self.some(8, Self::core);
        // A grid as large as numbers go, or a row.
        if let Some(first) = all.first().cloned().filter(|_| self.byte() > 200) {
            let rows = self.one(&[1, 2, 255]);
            for y in 0..rows {
                for x in 0..=255u8 {
                    if rows < 9 || x % 16 == 15 {
                        all.push(Core { room: CoreRoom { x, y, ..first.room }, ..first.clone() });
                    }
                }
            }
        }
        Cores(all)
    }

    fn samples(&mut self) -> Vec<Sample> {
        self.some(12, |it| Sample {
            at: it.time(),
            min_bytes: it.number(),
            mean_bytes: it.number(),
            max_bytes: it.number(),
        })
    }

    fn readings(&mut self) -> Vec<SensorSample> {
        self.some(12, |it| SensorSample { at: it.time(), min: it.real(), mean: it.real(), max: it.real() })
    }

    fn core_allocations(&mut self) -> CoreAllocations {
        let one = |it: &mut Self| CoreAllocation {
            class: it.one(&[CoreClass::Buffer, CoreClass::Cb, CoreClass::Lockstep, CoreClass::Free]),
            start: it.number(),
            bytes: it.number(),
            pid: it.pid(),
            process_name: it.maybe(Self::text),
            program: it.maybe(Self::small),
            program_name: it.maybe(Self::text),
            site_name: it.maybe(Self::text),
        };
        CoreAllocations {
            device: self.small(),
            x: self.one(&[0, 1, 255]),
            y: self.one(&[0, 1, 255]),
            count: self.number(),
            list: self.some(6, one),
        }
    }

    fn device(&mut self) -> Device {
        Device {
            id: self.id(),
            index: self.small(),
            arch: self.maybe(|it| it.one(&[Arch::WormholeB0, Arch::Blackhole])),
            board: self.maybe(Self::text),
            remote: self.yes(),
            pci: self.maybe(Self::text),
            node: self.maybe(Self::small),
            serial: self.maybe(Self::text),
            names: self.some(3, Self::text),
            firmware: Firmware { bundle: self.maybe(Self::text), ..Firmware::default() },
            capacity: self.maybe(|it| Capacity {
                dram_bytes: it.number(),
                dram_channels: it.small(),
                dram_bytes_per_channel: it.number(),
                l1_bytes: it.number(),
                cores: it.small(),
                l1_bytes_per_core: it.number(),
                dram_allocatable_bytes: it.maybe(Self::number),
                l1_allocatable_bytes: it.maybe(Self::number),
                origin: it.one(&[CapacityOrigin::Board, CapacityOrigin::Runtime, CapacityOrigin::Simulated]),
            }),
            usage: self.usage(),
            sensors: self.maybe(Self::sensors),
            sensors_absent: self.maybe(Self::text),
            peaks: self.some(3, |it| Peak {
                space: it.space(),
                bytes: it.number(),
                at: it.time(),
                holders: it.some(4, |it| Holder {
                    pid: it.pid(),
                    name: it.maybe(Self::text),
                    bytes: it.number(),
                }),
            }),
            tightest_core: self.maybe(Self::room),
            core_layout: self.maybe(|it| CoreLayout {
                columns: it.one(&[0, 1, 8, 255]),
                rows: it.one(&[0, 1, 8, 255]),
                kernel_config: it.number(),
                unreserved: it.number(),
                end: it.number(),
            }),
            cores: self.maybe(Self::cores),
            history: self.maybe(|it| History {
                dram_total: it.samples(),
                l1_total: it.samples(),
                asic_celsius: it.readings(),
                power_watts: it.readings(),
                aiclk_mhz: it.readings(),
            }),
        }
    }

    fn program(&mut self) -> Program {
        Program {
            id: self.small(),
            allocator: self.maybe(Self::small),
            devices: self.some(2, Self::id),
            indexes: self.some(4, Self::small),
            name: self.maybe(Self::text),
            class: self.one(&[KernelClass::Application, KernelClass::Fabric, KernelClass::Unknown]),
            cores: self.some(3, Self::rectangle),
            core_count: self.small(),
            resident_cores: self.small(),
            dispatches: self.number(),
            residency_unknown: self.yes(),
            estimated: self.yes(),
            dispatched: self.maybe(Self::time),
            kernel_bytes: self.number(),
            cb_bytes: self.number(),
            dfb_bytes: self.number(),
            scratch_bytes: self.number(),
            view_count: self.number(),
            end: self.maybe(Self::number),
            placements: self.some(3, |it| Placement {
                space: it.space(),
                address: it.maybe(Self::number),
                bytes: it.number(),
                cores: it.some(2, Self::rectangle),
                view: it.yes(),
            }),
        }
    }

    fn process(&mut self) -> Process {
        Process {
            pid: self.pid(),
            reported_pid: self.maybe(Self::signed),
            start: self.maybe(Self::time),
            name: self.maybe(Self::text),
            command: self.maybe(Self::text),
            user: self.maybe(Self::text),
            container: self.maybe(Self::text),
            pod: self.maybe(Self::text),
            hidden: self.yes(),
            open_devices: self.some(2, Self::id),
            tracking: self.one(&[Tracking::Audited, Tracking::Drift, Tracking::Partial, Tracking::Untracked]),
            basis: self.basis(),
            complete: self.yes(),
            sequence: self.maybe(Self::number),
            tracker: self.maybe(|it| Tracker {
                writer: it.text(),
                runtime: it.maybe(Self::text),
                hooks: it.small(),
                missing_hooks: it.some(2, Self::text),
                cost_seconds: it.maybe(Self::real),
            }),
            summary: Summary {
                indexes: self.some(5, Self::small),
                dram_bytes: self.maybe(Self::number),
                l1_bytes: self.maybe(Self::number),
                program_bytes: self.maybe(Self::number),
                kernel_bytes: self.maybe(Self::number),
            },
            usage: self.some(2, |it| ProcessUsage { device: it.id(), usage: it.usage() }),
            allocators: self.some(2, |it| AllocatorUsage {
                id: it.small(),
                devices: it.some(2, Self::id),
                spaces: it.some(2, |it| AllocatorSpace {
                    space: it.space(),
                    banks: it.number() as u16,
                    base: it.number(),
                    bytes_per_bank: it.number(),
                    usage: it.buffer_usage(),
                }),
            }),
            audit: self.some(2, |it| AuditResult {
                allocator: it.small(),
                devices: it.some(2, Self::id),
                space: it.space(),
                drift_bytes: it.signed(),
                free_drift_bytes: it.maybe(Self::signed),
                largest_free_drift_bytes: it.maybe(Self::signed),
                compared: it.yes(),
                allocated_bytes: it.number(),
                free_bytes: it.number(),
                largest_free_bytes_per_bank: it.number(),
                sequence: it.number(),
            }),
            traces: self.some(9, |it| Trace {
                id: it.small(),
                allocator: it.small(),
                devices: it.some(2, Self::id),
                dispatches: it.number(),
                replays: it.number(),
                captured: it.time(),
                endangered_count: it.number(),
                endangered_bytes: it.number(),
            }),
            programs: self.maybe(|it| it.some(3, Self::program)),
            host: self.maybe(|it| HostUsage {
                cpu_percent: it.maybe(Self::real),
                rss_bytes: it.number(),
                parent_pid: it.pid(),
                ancestor_pid: it.pid(),
            }),
        }
    }

    fn allocation(&mut self) -> Allocation {
        Allocation {
            pid: self.pid(),
            reported_pid: self.maybe(Self::signed),
            devices: self.some(2, Self::id),
            indexes: self.some(3, Self::small),
            allocator: self.maybe(Self::small),
            space: self.space(),
            id: self.text(),
            requested_bytes: self.number(),
            occupied_bytes: self.maybe(Self::number),
            allocated_bytes: self.maybe(Self::number),
            bytes_per_bank: self.maybe(Self::number),
            banks: self.maybe(|it| it.number() as u16),
            layout: self.maybe(|it| it.one(&[Layout::Unknown, Layout::NdSharded, Layout::View])),
            cores: self.maybe(|it| it.some(3, Self::rectangle)),
            estimated: self.yes(),
            unplaced: self.yes(),
            references: self.small(),
            age_seconds: self.real(),
            kernel: None,
            program: self.maybe(Self::small),
            site: self.maybe(Self::small),
            site_name: self.maybe(Self::text),
            program_name: self.maybe(Self::text),
            hidden: self.yes(),
            basis: self.basis(),
        }
    }

    fn buffers(&mut self) -> Buffers {
        Buffers {
            count: self.number(),
            requested_bytes: self.number(),
            used_bytes: self.number(),
            offset: self.number(),
            list: self.some(6, Self::allocation),
            group_count: self.number(),
            groups: self.some(3, |it| BufferGroup {
                pid: it.pid(),
                process_name: it.maybe(Self::text),
                space: it.maybe(Self::space),
                program: it.maybe(Self::small),
                program_name: it.maybe(Self::text),
                site: it.maybe(Self::small),
                site_name: it.maybe(Self::text),
                count: it.number(),
                requested_bytes: it.number(),
                used_bytes: it.number(),
            }),
        }
    }

    fn finding(&mut self) -> Finding {
        Finding {
            kind: self.one(&[FindingKind::OverCapacity, FindingKind::Drift, FindingKind::Other]),
            severity: self.severity(),
            device: self.maybe(Self::id),
            pid: self.pid(),
            process_name: self.maybe(Self::text),
            command: self.maybe(Self::text),
            hidden: self.yes(),
            space: self.maybe(Self::space),
            bytes: self.maybe(Self::number),
            count: self.number(),
            first: self.maybe(Self::time),
            last: self.maybe(Self::time),
            text: self.text(),
        }
    }

    fn program_list(&mut self) -> ProgramList {
        let row = |it: &mut Self| ProgramRow {
            pid: it.pid(),
            reported_pid: it.maybe(|it| it.number() as i64),
            start: it.maybe(Self::time),
            process_name: it.maybe(Self::text),
            hidden: it.yes(),
            program: it.program(),
        };
        ProgramList {
            count: self.number(),
            resident_count: self.number(),
            has_dfbs: self.yes(),
            has_scratch: self.yes(),
            offset: self.number(),
            list: self.some(4, row),
            open: self.maybe(row),
        }
    }

    fn event(&mut self) -> Event {
        Event {
            sequence: self.number(),
            at: self.time(),
            kind: self.one(&[EventKind::UsageThreshold, EventKind::Finding, EventKind::Other]),
            severity: self.severity(),
            pid: self.pid(),
            device: self.maybe(Self::id),
            bytes: self.maybe(Self::number),
            text: self.text(),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let mut devices = self.some(2, Self::device);
        // Most of what can go wrong takes a chip.
        devices.extend((self.byte() < 230).then(|| self.device()));
        if let Some(first) = devices.first().cloned().filter(|_| self.byte() > 240) {
            devices.extend(std::iter::repeat_n(first, 300));
        }
        let mut processes = self.some(4, Self::process);
        if let Some(first) = processes.first().cloned().filter(|_| self.byte() > 240) {
            processes.extend(std::iter::repeat_n(first, 300));
        }
        Snapshot {
            schema: 1,
            at: self.time(),
            simulated: self.yes(),
            host: Host { name: self.maybe(Self::text), ttmem: self.text(), driver: self.maybe(Self::text) },
            devices,
            processes,
            findings: self.some(6, Self::finding),
            events: self.maybe(|it| it.some(6, Self::event)),
            buffers: self.maybe(Self::buffers),
            programs: self.maybe(Self::program_list),
            core_allocations: self.maybe(Self::core_allocations),
            health: Health::default(),
        }
    }

    fn key(&mut self) -> KeyEvent {
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
        const LETTERS: &[u8] = b"1234567hjklqQGgIsptTzrK[]/?+-=<> yYabx";
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

    fn mouse(&mut self, (width, height): (u16, u16)) -> MouseEvent {
        let kind = self.one(&[
            MouseEventKind::Down(MouseButton::Left),
            MouseEventKind::Down(MouseButton::Left),
            MouseEventKind::Down(MouseButton::Right),
            MouseEventKind::ScrollUp,
            MouseEventKind::ScrollDown,
            MouseEventKind::Moved,
            MouseEventKind::Drag(MouseButton::Left),
        ]);
        let mut at = |most: u16| match self.byte() {
            255 => u16::MAX,
            byte => (u32::from(byte) * u32::from(most) / 250) as u16,
        };
        MouseEvent { kind, column: at(width), row: at(height), modifiers: KeyModifiers::NONE }
    }

    fn size(&mut self) -> (u16, u16) {
        let (a, b) = (u16::from(self.byte()), u16::from(self.byte()));
        // The smallest that is enough is where most goes wrong.
        match self.byte() {
            0..80 => (80, 24),
            80..110 => (1 + a % 90, 1 + b % 30),
            _ => (80 + a * 220 / 255, 24 + b * 76 / 255),
        }
    }
}

/// Draws, twice, and looks at every cell.
fn check(desk: &Desk) -> Result<ttmem_tui::Laid, TestCaseError> {
    let area = Rect::new(0, 0, desk.size.0, desk.size.1);
    let mut first = Buffer::empty(area);
    let laid = view(&desk.shown, &desk.ui, desk.now(), &mut first);
    prop_assert_eq!(first.area, area);
    for cell in first.content() {
        let symbol = cell.symbol();
        if !matches!(symbol.as_bytes(), [b' '..=b'~']) {
            let one = symbol.chars().count() == 1 && unicode_width::UnicodeWidthStr::width(symbol) == 1;
            prop_assert!(one, "{symbol:?}");
        }
    }
    let mut second = Buffer::empty(area);
    let again = view(&desk.shown, &desk.ui, desk.now(), &mut second);
    prop_assert!(first == second, "{}", rows(&first).join("\n"));
    prop_assert_eq!(&laid, &again);
    Ok(laid)
}

fn play(what: &[u8], steps: &[u8]) -> Result<(), TestCaseError> {
    let (mut what, mut steps) = (Source::new(what), Source::new(steps));
    let theme = steps.one(&ThemeName::ALL);
    let settings = Settings {
        theme,
        view: steps.one(&View::ALL).name().to_owned(),
        vim_keys: steps.yes(),
        ..Settings::default()
    };
    let depth = steps.one(&[Depth::Full, Depth::Indexed, Depth::Sixteen, Depth::None]);
    let terms = Terms { depth, ascii: steps.yes(), readonly: steps.yes(), narrowed: steps.yes(), ..terms() };
    let mut desk = Desk::before_anything(settings, terms);
    desk.size = steps.size();
    desk.fresh(what.snapshot());
    let laid = check(&desk)?;
    desk.ui.settle(laid);
    while !steps.is_empty() {
        desk.ms += u64::from(steps.byte()) * 20;
        let size = desk.size;
        let msg = match steps.byte() {
            0..150 => Msg::Key(steps.key()),
            150..195 => Msg::Mouse(steps.mouse(size)),
            195..203 => Msg::Paste(steps.text()),
            203..223 => {
                let snapshot = Box::new(if what.is_empty() { steps.snapshot() } else { what.snapshot() });
                let detail = desk.ui.wanted(&desk.shown);
                Msg::Fresh { snapshot, detail, since: steps.maybe(Source::time), by: steps.text() }
            }
            223..229 => Msg::Lost(steps.text()),
            229..236 => Msg::Done(if steps.yes() { Ok(steps.text()) } else { Err(steps.text()) }),
            236..244 => {
                desk.size = steps.size();
                Msg::Tick
            }
            _ => Msg::Tick,
        };
        desk.send(msg);
        let _ = desk.ui.wanted(&desk.shown);
        // Several messages may come before the screen is drawn again.
        if steps.byte() < 200 {
            let laid = check(&desk)?;
            desk.ui.settle(laid);
        }
    }
    check(&desk).map(|_| ())
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(700) })]

    #[test]
    fn anything_can_be_drawn_after_anything(what in bytes(3000), steps in bytes(150)) {
        play(&what, &steps)?;
    }

    #[test]
    fn any_size_is_drawn(width in 1..=300u16, height in 1..=100u16, what in bytes(2000), steps in bytes(8)) {
        let mut source = Source::new(&what);
        let mut desk = Desk::before_anything(Settings::default(), terms());
        desk.size = (width, height);
        desk.fresh(source.snapshot());
        let mut steps = Source::new(&steps);
        for view in '1'..='7' {
            desk.send(Msg::Key(KeyEvent::new(KeyCode::Char(view), KeyModifiers::NONE)));
            desk.send(Msg::Key(steps.key()));
            check(&desk)?;
        }
    }
}

/// The clock on the wall may be anywhere, too.
#[test]
fn any_time_is_drawn() {
    for wall in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        for (_, state) in crate::states::ALL {
            for view_name in View::ALL {
                let settings = Settings { view: view_name.name().to_owned(), ..Settings::default() };
                let desk = Desk::with(state(), settings, terms());
                let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 60));
                view(&desk.shown, &desk.ui, Now { ms: u64::MAX, wall }, &mut buffer);
            }
        }
    }
}
