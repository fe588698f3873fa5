//! Snapshots with arbitrary content.

use super::generator::Generator;
use std::sync::Arc;
use ttmem_core::Snapshot;
use ttmem_core::machine::{
    Capacity, CapacityOrigin, CoreLayout, DispatchCores, EthernetCores, Firmware, Host, OtherCores,
    PcieRates, SensorLimits, Sensors,
};
use ttmem_core::snapshot::{
    AllocatorSpace, AllocatorUsage, AuditResult, BufferUsage, Core, CoreClass, CorePeak, CoreProgram,
    CoreRoom, Cores, Device, Event, EventKind, Finding, FindingKind, Flame, FlameGap, FlameMoment, FlamePool,
    FlameStack, Frame, FrameKind, Health, History, Holder, HostUsage, Interval, KernelClassUsage, Mark, Peak,
    Process, ProcessUsage, ProgramUsage, Sample, SensorSample, Summary, Total, Trace, Tracker, Tracking,
    Usage,
};
use ttmem_core::words::{Arch, KernelClass};

impl Generator<'_> {
    fn flame(&mut self) -> Flame {
        let frame = |g: &mut Self| Frame {
            kind: g.one(&[FrameKind::Call, FrameKind::Op, FrameKind::Contents, FrameKind::Unknown]),
            name: g.text(),
            file: g.maybe(Self::text),
            line: g.maybe(Self::small),
        };
        let stack = |g: &mut Self| FlameStack {
            frames: g.some(8, |g| u32::from(g.byte() % 6)),
            count: g.maybe(Self::number),
            bytes: g.number(),
        };
        Flame {
            moment: self.one(&[FlameMoment::Live, FlameMoment::Live, FlameMoment::Peak, FlameMoment::Mark]),
            frames: self.some(6, frame),
            pools: self.some(4, |g| FlamePool {
                pid: g.maybe(Self::small),
                reported_pid: None,
                process_name: g.maybe(Self::text),
                hidden: false,
                indexes: g.some(3, Self::small),
                space: g.space(),
                bytes: g.maybe(Self::number),
                at: g.maybe(Self::time),
                gap: g.maybe(|g| g.one(&[FlameGap::NotFollowed, FlameGap::NoMark, FlameGap::NotListed])),
                stacks: g.some(12, stack),
            }),
        }
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
            fragmentation_percent: None,
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
            per_core_bytes: self.number(),
            by_class: self.some(4, |g| KernelClassUsage {
                class: g.one(&KernelClass::ALL),
                registered_bytes: g.number(),
                resident_bytes: g.maybe(Self::number),
            }),
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
            pcie: self.maybe(|g| PcieRates {
                host_reads_bytes_per_second: g.maybe(Self::real),
                host_writes_bytes_per_second: g.maybe(Self::real),
                device_reads_bytes_per_second: g.maybe(Self::real),
                device_writes_bytes_per_second: g.maybe(Self::real),
            }),
            age_ms: self.number(),
            stale: self.yes(),
            absent: self
                .some(2, |g| (g.one(&["fan_rpm", "pcie"]).to_owned(), g.text()))
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
        let interval = |g: &mut Self| Interval {
            class: g.one(&[
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
            start: g.number(),
            bytes: g.number(),
        };
        Core {
            room: self.room(),
            program: self.maybe(|g| CoreProgram {
                hidden: g.yes(),
                pid: g.pid(),
                allocator: g.maybe(Self::small),
                id: g.small(),
                name: g.maybe(Self::text),
            }),
            intervals: Arc::from(self.some(6, interval)),
            peak: self.maybe(|g| CorePeak {
                hidden: g.yes(),
                bytes: g.number(),
                buffer_bytes: g.number(),
                at: g.time(),
                pid: g.pid(),
                program: g.maybe(Self::small),
                program_name: g.maybe(Self::text),
            }),
        }
    }

    fn cores(&mut self) -> Cores {
        let mut all = self.some(8, Self::core);
        // Sometimes a row of cores, or a very large grid.
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
        self.some(12, |g| Sample {
            at: g.time(),
            min_bytes: g.number(),
            mean_bytes: g.number(),
            max_bytes: g.number(),
        })
    }

    fn readings(&mut self) -> Vec<SensorSample> {
        self.some(12, |g| SensorSample { at: g.time(), min: g.real(), mean: g.real(), max: g.real() })
    }

    fn device(&mut self) -> Device {
        Device {
            id: self.id(),
            index: self.small(),
            arch: self.maybe(|g| g.one(&[Arch::WormholeB0, Arch::Blackhole])),
            board: self.maybe(Self::text),
            remote: self.yes(),
            inferred: self.yes(),
            pci: self.maybe(Self::text),
            node: self.maybe(Self::small),
            serial: self.maybe(Self::text),
            names: self.some(3, Self::text),
            firmware: Firmware { bundle: self.maybe(Self::text), ..Firmware::default() },
            capacity: self.maybe(|g| Capacity {
                dram_bytes: g.number(),
                dram_channels: g.small(),
                dram_bytes_per_channel: g.number(),
                l1_bytes: g.number(),
                cores: g.small(),
                l1_bytes_per_core: g.number(),
                dram_allocatable_bytes: g.maybe(Self::number),
                l1_allocatable_bytes: g.maybe(Self::number),
                origin: g.one(&[CapacityOrigin::Board, CapacityOrigin::Runtime, CapacityOrigin::Simulated]),
            }),
            usage: self.usage(),
            sensors: self.maybe(Self::sensors),
            sensors_absent: self.maybe(Self::text),
            peaks: self.some(3, |g| Peak {
                space: g.space(),
                bytes: g.number(),
                at: g.time(),
                holders: g.some(4, |g| Holder { pid: g.pid(), name: g.maybe(Self::text), bytes: g.number() }),
            }),
            tightest_core: self.maybe(Self::room),
            core_layout: self.maybe(|g| CoreLayout {
                columns: g.one(&[0, 1, 8, 255]),
                rows: g.one(&[0, 1, 8, 255]),
                kernel_config: g.number(),
                unreserved: g.number(),
                end: g.number(),
            }),
            other_cores: OtherCores {
                dispatch: self.maybe(|g| DispatchCores {
                    program_cores: g.small(),
                    cores: g.small(),
                    rows: g.maybe(|g| [g.one(&[0, 7, 255]), g.one(&[0, 7, 255])]),
                    columns: g.maybe(|g| [g.one(&[0, 7, 255]), g.one(&[0, 7, 255])]),
                    l1_bytes: g.number(),
                    origin: g.one(&[CapacityOrigin::Board, CapacityOrigin::Runtime]),
                }),
                ethernet: self.maybe(|g| EthernetCores {
                    cores: g.small(),
                    l1_bytes_per_core: g.number(),
                    l1_bytes: g.number(),
                    origin: g.one(&[CapacityOrigin::Board, CapacityOrigin::Descriptor]),
                }),
            },
            cores: self.maybe(Self::cores),
            history: self.maybe(|g| History {
                dram_total: g.samples(),
                l1_total: g.samples(),
                asic_celsius: g.readings(),
                power_watts: g.readings(),
                aiclk_mhz: g.readings(),
            }),
        }
    }

    fn process(&mut self) -> Process {
        Process {
            uid: None,
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
            tracker: self.maybe(|g| Tracker {
                writer: g.text(),
                runtime: g.maybe(Self::text),
                hooks: g.small(),
                missing_hooks: g.some(2, Self::text),
                cost_seconds: g.maybe(Self::real),
                left_out: g.number(),
            }),
            summary: Summary {
                indexes: self.some(5, Self::small),
                dram_bytes: self.maybe(Self::number),
                l1_bytes: self.maybe(Self::number),
                program_bytes: self.maybe(Self::number),
                kernel_bytes: self.maybe(Self::number),
            },
            usage: self.some(2, |g| ProcessUsage { device: g.id(), usage: g.usage() }),
            allocators: self.some(2, |g| AllocatorUsage {
                id: g.small(),
                devices: g.some(2, Self::id),
                spaces: g.some(2, |g| AllocatorSpace {
                    space: g.space(),
                    banks: g.number() as u16,
                    base: g.number(),
                    largest_free_block_addrs: Vec::new(),
                    bytes_per_bank: g.number(),
                    usage: g.buffer_usage(),
                }),
            }),
            audit: self.some(2, |g| AuditResult {
                allocator: g.small(),
                devices: g.some(2, Self::id),
                space: g.space(),
                drift_bytes: g.signed(),
                free_drift_bytes: g.maybe(Self::signed),
                largest_free_drift_bytes: g.maybe(Self::signed),
                compared: g.yes(),
                allocated_bytes: g.number(),
                free_bytes: g.number(),
                largest_free_bytes_per_bank: g.number(),
                sequence: g.number(),
            }),
            traces: self.some(9, |g| Trace {
                id: g.small(),
                allocator: g.small(),
                devices: g.some(2, Self::id),
                dispatches: g.number(),
                replays: g.number(),
                captured: g.time(),
                endangered_count: g.number(),
                endangered_bytes: g.number(),
            }),
            last_mark: self.maybe(|g| Mark {
                name: g.maybe(Self::text),
                number: g.maybe(Self::number),
                at: g.time(),
                compared: g.byte().into(),
            }),
            programs: self.maybe(|g| g.some(3, Self::program)),
            host: self.maybe(|g| HostUsage {
                cpu_percent: g.maybe(Self::real),
                rss_bytes: g.number(),
                parent_pid: g.pid(),
                ancestor_pid: g.pid(),
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
            failure: None,
            text: self.text(),
        }
    }

    fn event(&mut self) -> Event {
        Event {
            hidden: self.yes(),
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

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let mut devices = self.some(2, Self::device);
        // Most failures need a device.
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
            events: self.maybe(|g| g.some(6, Self::event)),
            buffers: self.maybe(Self::buffers),
            programs: self.maybe(Self::program_list),
            core_allocations: self.maybe(Self::core_allocations),
            block_maps: self.maybe(|g| g.some(4, Self::block_map)),
            sites: None,
            leaks: None,
            flame: self.maybe(Self::flame),
            health: Health::default(),
        }
    }
}
