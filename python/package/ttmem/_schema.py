"""Everything that is known of the machine's device memory, as objects: begin with :class:`Snapshot`.

The classes are those of the JSON that ``ttmem --json`` prints, by the names of PROTOCOL.md: what is not known is ``None``, lists
are tuples, times are :class:`datetime.datetime`, and ``class`` is ``class_``. What a later version says besides is in each object's
``raw``.

Made from docs/snapshot.schema.json by ``cargo xtask gen``; changes belong in crates/ttmem-core.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ._record import Record, Word


class Space(Word):
    """A kind of memory. Wherever one is wanted, its name as a plain string will do, too."""

    DRAM = "dram"
    """Device DRAM."""
    L1 = "l1"
    """L1 buffers."""
    L1_SMALL = "l1_small"
    """L1_SMALL: the reserved top of L1."""
    TRACE = "trace"
    """The trace region, in DRAM."""
    CB = "cb"
    """Circular buffers, in L1, outside its allocator."""
    DFB = "dfb"
    """Dataflow buffers, in L1, outside its allocator."""
    SCRATCH = "scratch"
    """Scratchpads, in L1, outside its allocator."""
    KERNEL = "kernel"
    """Kernel code."""
    HOST = "host"
    """Host memory mapped for the device: tracked so that its frees match, never counted as device memory."""
    L1_CORE = "l1_core"
    """L1 buffers on some cores only, at any free address of each; only those cores are charged."""


@dataclass(frozen=True, kw_only=True)
class Host(Record):
    """The machine the reader runs on."""

    name: str | None
    """Host name."""
    ttmem: str
    """Version of the program that made the snapshot."""
    driver: str | None
    """Version of the kernel driver."""


@dataclass(frozen=True, kw_only=True)
class Firmware(Record):
    """Versions of what runs on a chip."""

    bundle: str | None
    """The bundle that all of it came in."""
    arc: str | None
    """The ARC's."""
    ethernet: str | None
    """The Ethernet cores'."""
    manager: str | None
    """The board manager's."""
    manager_boot: str | None
    """What starts that."""
    flasher: str | None
    """What it was written with."""


@dataclass(frozen=True, kw_only=True)
class Capacity(Record):
    """Memory of one chip. Cores are those left after harvesting, never the grid."""

    dram_bytes: int
    """All of DRAM."""
    dram_channels: int
    """DRAM channels."""
    dram_bytes_per_channel: int
    """The part of a channel the runtime uses."""
    l1_bytes: int
    """L1 of all cores."""
    cores: int
    """Tensix cores."""
    l1_bytes_per_core: int
    """L1 of one core."""
    dram_allocatable_bytes: int | None
    """What tt-metal can hand out of DRAM with default settings; assumed, since it differs by release."""
    l1_allocatable_bytes: int | None
    """What tt-metal can hand out of L1 with default settings; assumed likewise."""
    origin: str
    """Where these figures come from."""


@dataclass(frozen=True, kw_only=True)
class BufferUsage(Record):
    """Buffers of one space."""

    used_bytes: int
    """The figure to show if there is room for one: of each holder what the allocator charges, else what it
    asked for.
    """
    requested_bytes: int
    """What programs asked for."""
    occupied_bytes: int | None
    """What lies in the banks that really hold it."""
    allocated_bytes: int | None
    """What the runtime's allocator charges."""
    allocatable_bytes: int | None
    """What that allocator has in all."""
    free_bytes: int | None
    """What it has left."""
    largest_free_bytes_per_bank: int | None
    """The largest block left in a bank: no larger buffer fits."""
    peak_bytes: int
    """The highest use seen."""
    count: int | None
    """Live buffers; ``None`` where only their sum is known."""
    basis: str
    """Where the figures come from."""


@dataclass(frozen=True, kw_only=True)
class ProgramUsage(Record):
    """What programs hold in one space."""

    registered_bytes: int
    """Held by programs that are loaded or cached; overlapping ranges counted once."""
    resident_bytes: int | None
    """Held by programs dispatched last on their cores; unknown where the source does not say what was
    dispatched.
    """
    unfollowed_bytes: int
    """Registered besides, where ``resident_bytes`` is known of others only: whether it is resident, nobody
    says.
    """
    estimated_bytes: int
    """How much of what is registered is an estimate."""
    count: int | None
    """Live records; ``None`` where only their sum is known."""
    basis: str
    """Where the figures come from."""


@dataclass(frozen=True, kw_only=True)
class Total(Record):
    """A sum over spaces that share one memory."""

    used_bytes: int
    """In use."""
    capacity_bytes: int | None
    """What the chip has; unknown where the chip is."""
    basis: str
    """The weakest basis of its parts."""


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Memory in use on one chip, of all processes or of one."""

    dram: BufferUsage | None
    """DRAM buffers."""
    l1: BufferUsage | None
    """L1 buffers."""
    l1_small: BufferUsage | None
    """``L1_SMALL`` buffers."""
    l1_core: BufferUsage | None
    """L1 buffers that lie on some cores only."""
    trace: BufferUsage | None
    """Trace buffers, in DRAM."""
    host: BufferUsage | None
    """Host memory mapped for the device; not the device's."""
    cb: ProgramUsage | None
    """Circular buffers, in L1."""
    dfb: ProgramUsage | None
    """Dataflow buffers, in L1."""
    scratch: ProgramUsage | None
    """Scratchpads, in L1."""
    kernel: ProgramUsage | None
    """Kernel code."""
    dram_total: Total | None
    """DRAM in all: buffers and trace."""
    l1_total: Total | None
    """L1 in all: buffers, ``L1_SMALL`` and what programs hold there."""


@dataclass(frozen=True, kw_only=True)
class SensorLimits(Record):
    """Limits of sensors."""

    asic_celsius: float | None
    """At this temperature the chip slows down."""
    power_watts: float | None
    """Most power."""
    current_amperes: float | None
    """Most current."""
    vcore_volts: float | None
    """Highest voltage."""


@dataclass(frozen=True, kw_only=True)
class PcieRates(Record):
    """Traffic between a chip and its host."""

    host_reads_bytes_per_second: float | None
    """The host reads the chip."""
    host_writes_bytes_per_second: float | None
    """The host writes to the chip."""
    chip_reads_bytes_per_second: float | None
    """The chip reads the host's memory."""
    chip_writes_bytes_per_second: float | None
    """The chip writes to the host's memory."""


@dataclass(frozen=True, kw_only=True)
class Sensors(Record):
    """What a chip's sensors said. What is not there has its reason in ``absent``."""

    asic_celsius: float | None
    """Temperature."""
    power_watts: float | None
    """Power of the core, not of the board."""
    current_amperes: float | None
    """Current of the core."""
    vcore_volts: float | None
    """Voltage of the core."""
    aiclk_mhz: float | None
    """Clock of the Tensix cores."""
    axiclk_mhz: float | None
    """Clock of the AXI bus."""
    arcclk_mhz: float | None
    """Clock of the ARC."""
    fan_rpm: float | None
    """Fan."""
    heartbeat: int | None
    """A counter that changes while the firmware lives."""
    heartbeat_beats: bool | None
    """Whether it changed since it was last read."""
    thermal_trips: int | None
    """Shutdowns for heat since the last power cycle."""
    limits: SensorLimits
    """What must not be exceeded."""
    pcie: PcieRates | None
    """Traffic on the bus."""
    age_ms: int
    """How old the oldest of these is."""
    stale: bool
    """Whether they are older than they should be, because the driver does not answer."""
    absent: dict[str, str]
    """What is not there, by name, and why."""


@dataclass(frozen=True, kw_only=True)
class Holder(Record):
    """Who held something."""

    pid: int | None
    """As ``Process.pid``."""
    name: str | None
    """Short name."""
    bytes: int
    """How much."""


@dataclass(frozen=True, kw_only=True)
class Peak(Record):
    """The highest use of one space of a chip. Of buffers it is exact where one process holds the space
    through one allocator; where several do, what they hold together is looked at with every tick and
    whenever one of them shrinks after it had grown by some percent. What programs hold is looked at with
    ticks only.
    """

    space: str
    """Which."""
    bytes: int
    """How much."""
    at: datetime
    """When it was seen."""
    holders: tuple[Holder, ...]
    """Who held how much of it then, most first."""


@dataclass(frozen=True, kw_only=True)
class CoreRoom(Record):
    """Where programs and buffers meet on a core."""

    x: int
    """Column."""
    y: int
    """Row."""
    program_end: int
    """Where what the program that was dispatched last keeps there ends."""
    registered_end: int
    """Where what all programs that are loaded or cached keep there ends."""
    lowest_buffer: int
    """Where the lowest buffer begins; without one, where buffers end."""
    gap_bytes: int
    """From ``program_end`` to ``lowest_buffer``: what a program could keep more, or a buffer take."""
    basis: str
    """Where the figures come from: the weakest of those who hold L1 of the chip."""


@dataclass(frozen=True, kw_only=True)
class CoreLayout(Record):
    """How a runtime divides the L1 of each core: from 0 its own, then the ring that programs' code and
    arguments pass through, then what programs and buffers share.
    """

    columns: int
    """Columns of cores that programs can use."""
    rows: int
    """Rows of them."""
    kernel_ring: int
    """Where the ring of kernels begins."""
    unreserved: int
    """Where it ends, and what can be used freely begins."""
    end: int
    """Where a core's L1 ends."""


@dataclass(frozen=True, kw_only=True)
class Interval(Record):
    """A stretch of a core's L1."""

    class_: str
    """What it is."""
    start: int
    """First address."""
    bytes: int
    """How long it is."""


@dataclass(frozen=True, kw_only=True)
class CoreProgram(Record):
    """A program on a core."""

    pid: int | None
    """As ``Process.pid``."""
    allocator: int | None
    """As ``Program.allocator``."""
    id: int
    """As ``Program.id``."""
    name: str | None
    """As ``Program.name``."""


@dataclass(frozen=True, kw_only=True)
class CorePeak(Record):
    """The most that lay on a core at once, in what programs and buffers share: what the program there keeps,
    and buffers, those included that are there in lock-step only. Looked at with every dispatch and with
    every tick.
    """

    bytes: int
    """All of it."""
    buffer_bytes: int
    """Of these, buffers."""
    at: datetime
    """When it was seen."""
    pid: int | None
    """Whose program was there then."""
    program: int | None
    """That program; as ``Program.id``."""
    program_name: str | None
    """Its name."""


@dataclass(frozen=True, kw_only=True)
class Core(CoreRoom):
    """One core's L1."""

    program: CoreProgram | None
    """The program that was dispatched last there."""
    peak: CorePeak | None
    """The most that lay there at once, of what was seen."""
    map: int | None
    """Its place in ``Cores.maps``; ``None`` where there is too much to tell."""


@dataclass(frozen=True, kw_only=True)
class Cores(Record):
    """A chip's cores. Many of them are alike, so each map is written once: ``maps`` has them, and each core
    of the ``list`` names its own by its place there.
    """

    maps: tuple[tuple[Interval, ...], ...]
    """What lies where, from address 0 to the end of L1 without a gap."""
    list: tuple[Core, ...]
    """The cores, by row and column."""


@dataclass(frozen=True, kw_only=True)
class Sample(Record):
    """One stretch of time."""

    at: datetime
    """When it begins."""
    min_bytes: int
    """Lowest."""
    mean_bytes: int
    """Mean."""
    max_bytes: int
    """Highest."""


@dataclass(frozen=True, kw_only=True)
class History(Record):
    """Usage of a chip over time, oldest first; older stretches are longer."""

    dram_total: tuple[Sample, ...]
    """DRAM in all."""
    l1_total: tuple[Sample, ...]
    """L1 in all."""


@dataclass(frozen=True, kw_only=True)
class Device(Record):
    """A chip."""

    id: str
    """Its key: ``0x`` and 16 digits of its unique id, else ``pci-`` and its place, else ``ordinal-N``."""
    index: int
    """The number clients call it by."""
    arch: str | None
    """Architecture."""
    board: str | None
    """Board name."""
    remote: bool
    """Reached through another chip."""
    pci: str | None
    """Where it is on the bus, as ``0000:01:00.0``."""
    node: int | None
    """The N of ``/dev/tenstorrent/N``."""
    serial: str | None
    """Number of its board, 16 digits."""
    names: tuple[str, ...]
    """Other ids that it is known by, as to tt-metal."""
    firmware: Firmware
    """Versions of what runs on it."""
    capacity: Capacity | None
    """Memory it has."""
    usage: Usage
    """Memory in use."""
    sensors: Sensors | None
    """What its sensors say."""
    sensors_absent: str | None
    """Why they say nothing, or nothing new."""
    peaks: tuple[Peak, ...]
    """The highest use seen of each space, and whose that was."""
    tightest_core: CoreRoom | None
    """The core with the least room between what programs keep at the bottom of its L1 and the lowest buffer;
    ``None`` where it is not known how cores are laid out.
    """
    core_layout: CoreLayout | None
    """How its runtime divides a core's L1, where that was said."""
    cores: Cores | None
    """The L1 of each core that programs can use, by row and column, on request."""
    history: History | None
    """Usage over time, on request."""


@dataclass(frozen=True, kw_only=True)
class Tracker(Record):
    """Who tracks a process, and how well."""

    writer: str
    """As ``ttmem-agent 0.1.0``."""
    runtime: str | None
    """The runtime that is tracked, as ``ttnn 0.81.1``."""
    hooks: int
    """How many hooks into it were wanted."""
    missing_hooks: tuple[str, ...]
    """Those that did not take."""
    cost_seconds: float | None
    """Processor time that tracking cost the process so far."""


@dataclass(frozen=True, kw_only=True)
class Summary(Record):
    """A process in a line."""

    indexes: tuple[int, ...]
    """``Device.index``es of those that it holds something on, or has open."""
    dram_bytes: int | None
    """DRAM and trace buffers; ``None`` where nothing is known of them, as in the others."""
    l1_bytes: int | None
    """L1 buffers of all kinds."""
    program_bytes: int | None
    """Circular and dataflow buffers and scratchpads."""
    kernel_bytes: int | None
    """Kernel code."""
    quality: str
    """How well all this is known."""


@dataclass(frozen=True, kw_only=True)
class ProcessUsage(Usage):
    """What one process holds on one device."""

    device: str
    """``Device.id``."""


@dataclass(frozen=True, kw_only=True)
class AllocatorSpace(BufferUsage):
    """One space of an allocator."""

    space: str
    """Which."""
    banks: int
    """Banks it moves in lock-step."""
    base: int
    """First address in a bank."""
    bytes_per_bank: int
    """Bytes of a bank."""


@dataclass(frozen=True, kw_only=True)
class AllocatorUsage(Record):
    """What one allocator holds, on each of its devices."""

    id: int
    """Its number within the process."""
    devices: tuple[str, ...]
    """``Device.id``s it covers."""
    spaces: tuple[AllocatorSpace, ...]
    """By space."""


@dataclass(frozen=True, kw_only=True)
class AuditResult(Record):
    """One comparison with the runtime's allocator."""

    allocator: int
    """Number of the allocator."""
    chips: tuple[str, ...]
    """``Device.id``s it covers."""
    space: str
    """Which space."""
    drift_bytes: int
    """Allocated bytes: ours minus the allocator's."""
    free_drift_bytes: int | None
    """The same of free bytes, where the bank layout is known."""
    largest_free_drift_bytes: int | None
    """The same of the largest free block in a bank."""
    judged: bool
    """Whether nothing happened meanwhile, so that the difference means something."""
    allocated_bytes: int
    """What the allocator itself said is allocated, over all banks."""
    free_bytes: int
    """What it said is free."""
    largest_free_bytes_per_bank: int
    """The largest free block of a bank, as it said."""
    sequence: int
    """The event it was asked at, by the process's own count."""


@dataclass(frozen=True, kw_only=True)
class Trace(Record):
    """Dispatches that were captured, to be replayed at once."""

    id: int
    """The runtime's number of it."""
    allocator: int
    """The allocator it belongs to."""
    devices: tuple[str, ...]
    """``Device.id``s it is for."""
    dispatches: int
    """Dispatches it holds."""
    replays: int
    """How often it was replayed."""
    captured: datetime
    """When its capture ended."""
    endangered_count: int
    """Buffers that were allocated since and are still held: a replay may write over them."""
    endangered_bytes: int
    """What they asked for."""


@dataclass(frozen=True, kw_only=True)
class Placement(Record):
    """Something a program keeps on its cores."""

    space: str
    """Which space."""
    address: int | None
    """Address on each core; unknown where its source does not say it."""
    bytes: int
    """Bytes on each core."""
    cores: tuple[tuple[int, int, int, int], ...]
    """The cores: rectangles, each from column, row to column, row."""
    view: bool
    """It is only a view of a buffer, which is counted as such."""


@dataclass(frozen=True, kw_only=True)
class Program(Record):
    """A program that is loaded or cached."""

    id: int
    """Its number within the process."""
    allocator: int | None
    """The allocator, or set of chips, it belongs to."""
    devices: tuple[str, ...]
    """``Device.id``s it is for."""
    indexes: tuple[int, ...]
    """``Device.index``es it is for."""
    name: str | None
    """What it is called, or made of."""
    class_: str
    """What kind of program."""
    cores: tuple[tuple[int, int, int, int], ...]
    """The cores it runs on: rectangles, each from column, row to column, row."""
    core_count: int
    """How many those are."""
    resident_cores: int
    """On how many cores of how many it is for, over all its devices, it is what was dispatched last."""
    dispatches: int
    """How often it was dispatched."""
    unfollowed: bool
    """Nobody tells of dispatches: neither those nor whether it is resident are known."""
    estimated: bool
    """Some of what it keeps is as large as somebody estimates."""
    dispatched: datetime | None
    """When that last happened."""
    kernel_bytes: int
    """Code, arguments and semaphores, on each core."""
    cb_bytes: int
    """Circular buffers on each device, overlapping ranges counted once."""
    dfb_bytes: int
    """Dataflow buffers likewise."""
    scratch_bytes: int
    """Scratchpads likewise."""
    view_count: int
    """Of its circular and dataflow buffers, those that are only views of buffers, which are counted as such.
    """
    end: int | None
    """Where what it keeps ends, on the core where that is highest; ``None`` if it keeps nothing."""
    placements: tuple[Placement, ...]
    """Everything it keeps, by address."""


@dataclass(frozen=True, kw_only=True)
class Process(Record):
    """A tracked process."""

    pid: int | None
    """As the reader sees it; ``None`` if it cannot."""
    reported_pid: int | None
    """What the process calls itself, where that differs."""
    start: datetime | None
    """When it started."""
    name: str | None
    """Short name."""
    command: str | None
    """Command line."""
    user: str | None
    """Owner."""
    container: str | None
    """Container, where it runs in one."""
    pod: str | None
    """The pod that is part of, where that can be told."""
    opened: tuple[str, ...]
    """``Device.id``s that it has open, as far as the kernel says."""
    tracking: str
    """How it is tracked: the best basis it has."""
    exact: bool
    """Whether every allocation and free is known and accounted for."""
    sequence: int | None
    """The last event, by the process's own count, that these figures include; ``None`` where it does not
    count them.
    """
    tracker: Tracker | None
    """Who tracks it and how well, where that is known."""
    summary: Summary
    """What it holds on all its devices, and how well that is known."""
    usage: tuple[ProcessUsage, ...]
    """What it holds, by device."""
    allocators: tuple[AllocatorUsage, ...]
    """What each of its open allocators holds, where there are such."""
    audit: tuple[AuditResult, ...]
    """The runtime's own figures, compared."""
    traces: tuple[Trace, ...]
    """Traces that can be replayed."""
    programs: tuple[Program, ...] | None
    """Programs that are loaded or cached, by number, on request."""


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """Something odd, stated as data."""

    kind: str
    """What it is."""
    severity: str
    """How bad."""
    device: str | None
    """``Device.id``, if it concerns one."""
    pid: int | None
    """Process, if it concerns one."""
    space: str | None
    """Space, if it concerns one."""
    bytes: int | None
    """How many bytes."""
    count: int
    """How often."""
    first: datetime | None
    """First seen, if it is something that happened."""
    last: datetime | None
    """Last seen, likewise."""
    text: str
    """For people."""


@dataclass(frozen=True, kw_only=True)
class Happening(Record):
    """Something that happened, worth telling. Single allocations are not."""

    sequence: int
    """Counts them; without a gap, unless some were dropped for newer ones."""
    at: datetime
    """When."""
    kind: str
    """What."""
    severity: str
    """How bad."""
    pid: int | None
    """Process, if it concerns one."""
    device: str | None
    """``Device.id``, if it concerns one."""
    bytes: int | None
    """How many bytes."""
    text: str
    """For people."""


@dataclass(frozen=True, kw_only=True)
class Allocation(Record):
    """One live allocation."""

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    devices: tuple[str, ...]
    """``Device.id``s that hold it."""
    indexes: tuple[int, ...]
    """``Device.index``es that hold it."""
    allocator: int | None
    """The allocator it came from, where the source knows."""
    space: str
    """Which space."""
    id: str
    """Device address or kernel id, in hexadecimal."""
    requested_bytes: int
    """What was asked for."""
    occupied_bytes: int | None
    """What lies in the banks that really hold it."""
    allocated_bytes: int | None
    """What the runtime's allocator charges."""
    bytes_per_bank: int | None
    """What it takes in each of its banks, or on each of its cores."""
    banks: int | None
    """On how many banks or cores it is charged."""
    layout: str | None
    """How it lies there."""
    cores: tuple[tuple[int, int, int, int], ...] | None
    """The cores it lies on, if it lies on some only: rectangles, each from column, row to column, row."""
    estimated: bool
    """Its size is an estimate."""
    unplaced: bool
    """Where it lies is not known: its id only tells it from others."""
    references: int
    """How many times it is held."""
    age_seconds: float
    """How long it has lived."""
    kernel: str | None
    """For kernels."""
    program: int | None
    """The program it belongs to, where the source knows."""
    site: int | None
    """The call site it came from, where the source knows."""
    site_name: str | None
    """What that site is called."""
    program_name: str | None
    """What the program is called."""
    basis: str
    """Where the figures come from."""


@dataclass(frozen=True, kw_only=True)
class BufferGroup(Record):
    """Allocations that have something in common."""

    pid: int | None
    """As ``Process.pid``."""
    process_name: str | None
    """As ``Process.name``."""
    space: str | None
    """Which space, if they were put together by process; else the one they are all of."""
    program: int | None
    """The program they belong to, if they were put together by that."""
    program_name: str | None
    """What it is called."""
    site: int | None
    """The call site they came from, if they were put together by that."""
    site_name: str | None
    """What it is called."""
    count: int
    """How many."""
    requested_bytes: int
    """What they asked for."""
    used_bytes: int
    """What the allocator charges for them, else what they asked for."""


@dataclass(frozen=True, kw_only=True)
class Buffers(Record):
    """Some of the live allocations: those that were asked for."""

    count: int
    """How many fit the question; the list has a part of them."""
    requested_bytes: int
    """What those asked for."""
    used_bytes: int
    """What the allocator charges for them, else what they asked for."""
    offset: int
    """How many of the list come before this part."""
    list: tuple[Allocation, ...]
    """The allocations, unless they were to be put together."""
    group_count: int
    """How many groups there are, if they were; ``groups`` has a part of them."""
    groups: tuple[BufferGroup, ...]
    """The groups."""


@dataclass(frozen=True, kw_only=True)
class ProgramRow(Record):
    """A program, and whose it is."""

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    start: datetime | None
    """As ``Process.start``."""
    process_name: str | None
    """As ``Process.name``."""
    program: Program
    """The program."""


@dataclass(frozen=True, kw_only=True)
class ProgramList(Record):
    """Some of the programs: those that were asked for."""

    count: int
    """How many fit the question; the list has a part of them."""
    resident_count: int
    """How many of those are resident anywhere."""
    has_dfbs: bool
    """Whether any of them keeps dataflow buffers."""
    has_scratch: bool
    """Whether any of them keeps scratchpads."""
    offset: int
    """How many of the list come before this part."""
    list: tuple[ProgramRow, ...]
    """The programs, without what they keep where."""
    open: ProgramRow | None
    """The one that was asked for with everything."""


@dataclass(frozen=True, kw_only=True)
class Skipped(Record):
    """A file that was not read, and why."""

    path: str
    """Where it is."""
    reason: str
    """Why it was not read."""


@dataclass(frozen=True, kw_only=True)
class Health(Record):
    """How the snapshot came about."""

    source: str
    """``daemon`` or ``local``."""
    connections: int
    """Open connections of old clients."""
    segments: int
    """Segments of living processes that are read."""
    black_boxes: int
    """Segments that dead processes left behind."""
    regions: int
    """Files of tt-metal's own counters that are read."""
    skipped: tuple[Skipped, ...]
    """Files that look like segments or counters and cannot be read as such."""
    live_records: int
    """Live records behind the figures."""
    lost_records: int
    """Records lost before they could be read."""
    dropped_log_lines: int
    """Lines the event log had to drop because nobody took them."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(Record):
    """Everything known at one moment."""

    schema: int
    """Number of the schema; it changes only if a key is taken away or changes its meaning."""
    at: datetime
    """When it was taken."""
    simulated: bool
    """Whether any chip in it is simulated."""
    host: Host
    """The machine."""
    devices: tuple[Device, ...]
    """Chips, by index."""
    processes: tuple[Process, ...]
    """Tracked processes, by pid."""
    findings: tuple[Finding, ...]
    """Oddities, worst first."""
    events: tuple[Happening, ...] | None
    """What happened of late, oldest first, on request."""
    buffers: Buffers | None
    """A page of the list of live allocations, on request."""
    programs: ProgramList | None
    """A page of the list of programs, on request."""
    health: Health
    """How the snapshot came about."""
