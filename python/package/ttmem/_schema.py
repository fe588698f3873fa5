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
    """A kind of memory. Its name as a plain string is accepted, too."""

    DRAM = "dram"
    """Device DRAM."""
    L1 = "l1"
    """L1 buffers."""
    L1_SMALL = "l1_small"
    """``L1_SMALL`` buffers, at the top of L1."""
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
    """Host memory mapped for the device. It is tracked so that frees match, and never counted as device
    memory.
    """
    L1_CORE = "l1_core"
    """L1 buffers allocated on some cores only, at an address of its own on each."""


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
    """Firmware versions of a device."""

    bundle: str | None
    """Firmware bundle."""
    arc: str | None
    """ARC firmware."""
    ethernet: str | None
    """Ethernet firmware."""
    manager: str | None
    """Board manager firmware."""
    manager_boot: str | None
    """Boot loader of the board manager."""
    flasher: str | None
    """Tool that flashed it."""


@dataclass(frozen=True, kw_only=True)
class Capacity(Record):
    """Memory capacity of one device. Harvested cores are not counted."""

    dram_bytes: int
    """Total DRAM."""
    dram_channels: int
    """DRAM channels."""
    dram_bytes_per_channel: int
    """DRAM per channel that the runtime uses."""
    l1_bytes: int
    """L1 of all cores."""
    cores: int
    """Tensix cores."""
    l1_bytes_per_core: int
    """L1 of one core."""
    dram_allocatable_bytes: int | None
    """DRAM that tt-metal can allocate with default settings; assumed, since it differs by release."""
    l1_allocatable_bytes: int | None
    """L1 that tt-metal can allocate with default settings; assumed, since it differs by release."""
    origin: str
    """Where these figures come from."""


@dataclass(frozen=True, kw_only=True)
class BufferUsage(Record):
    """Buffers of one space."""

    used_bytes: int
    """Bytes in use: allocated bytes where they are known, else requested bytes."""
    requested_bytes: int
    """Bytes that programs requested."""
    occupied_bytes: int | None
    """Bytes in the banks and cores that hold data."""
    allocated_bytes: int | None
    """Bytes that the runtime's allocator accounts for, over all banks it moves in lock-step."""
    allocatable_bytes: int | None
    """Bytes that the allocator manages."""
    free_bytes: int | None
    """Bytes that are free."""
    largest_free_bytes_per_bank: int | None
    """Largest free block per bank: no larger allocation can succeed."""
    fragmentation_percent: float | None
    """Percent of the free bytes that are not in the largest free block; 0 if nothing is free."""
    peak_bytes: int
    """Peak of the bytes in use."""
    count: int | None
    """Live buffers; ``None`` where only their sum is known."""
    basis: str
    """Where the figures come from."""


@dataclass(frozen=True, kw_only=True)
class KernelClassUsage(Record):
    """Kernels of one class."""

    class_: str
    """Class of the kernels."""
    registered_bytes: int
    """Bytes of kernels that are loaded or cached."""
    resident_bytes: int | None
    """Bytes of the programs dispatched last on their cores; ``None`` where dispatches are not reported."""


@dataclass(frozen=True, kw_only=True)
class ProgramUsage(Record):
    """Program memory of one space."""

    registered_bytes: int
    """Bytes of programs that are loaded or cached; overlapping address ranges count once."""
    resident_bytes: int | None
    """Bytes of the programs dispatched last on their cores; ``None`` where dispatches are not reported."""
    residency_unknown_bytes: int
    """Registered bytes of which it is not known whether they are resident; ``resident_bytes`` does not
    include them.
    """
    estimated_bytes: int
    """Registered bytes that are estimated."""
    per_core_bytes: int
    """Registered bytes that are counted on one core, because their cores are unknown."""
    by_class: tuple[KernelClassUsage, ...]
    """Kernels of each class, which sum to these figures; empty for other memory."""
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
    """Capacity of the device; ``None`` if unknown."""
    basis: str
    """The weakest basis of its parts."""


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Memory in use on one device, by all processes or by one."""

    dram: BufferUsage | None
    """DRAM buffers."""
    l1: BufferUsage | None
    """L1 buffers."""
    l1_small: BufferUsage | None
    """``L1_SMALL`` buffers."""
    l1_core: BufferUsage | None
    """L1 buffers allocated on some cores only."""
    trace: BufferUsage | None
    """Trace buffers, in DRAM."""
    host: BufferUsage | None
    """Host memory mapped for the device."""
    cb: ProgramUsage | None
    """Circular buffers, in L1."""
    dfb: ProgramUsage | None
    """Dataflow buffers, in L1."""
    scratch: ProgramUsage | None
    """Scratchpads, in L1."""
    kernel: ProgramUsage | None
    """Kernel code."""
    dram_total: Total | None
    """Total DRAM: buffers and trace."""
    l1_total: Total | None
    """Total L1: buffers, ``L1_SMALL`` and program memory, without kernels whose residency is unknown."""


@dataclass(frozen=True, kw_only=True)
class SensorLimits(Record):
    """Limits of sensors."""

    asic_celsius: float | None
    """Temperature at which the device throttles."""
    power_watts: float | None
    """Maximum power."""
    current_amperes: float | None
    """Maximum current."""
    vcore_volts: float | None
    """Maximum voltage."""


@dataclass(frozen=True, kw_only=True)
class PcieRates(Record):
    """PCIe traffic between a device and its host."""

    host_reads_bytes_per_second: float | None
    """Host reads from the device."""
    host_writes_bytes_per_second: float | None
    """Host writes to the device."""
    device_reads_bytes_per_second: float | None
    """Device reads from host memory."""
    device_writes_bytes_per_second: float | None
    """Device writes to host memory."""


@dataclass(frozen=True, kw_only=True)
class Sensors(Record):
    """Sensor readings of a device. ``absent`` has the reason for each that is missing."""

    asic_celsius: float | None
    """Temperature."""
    power_watts: float | None
    """Core power, without the rest of the board."""
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
    """Firmware heartbeat counter."""
    heartbeat_beats: bool | None
    """Whether the heartbeat changed since the previous reading."""
    thermal_trips: int | None
    """Thermal shutdowns since the last power cycle."""
    limits: SensorLimits
    """Limits."""
    pcie: PcieRates | None
    """PCIe traffic."""
    age_ms: int
    """Age of the oldest reading."""
    stale: bool
    """Whether readings are outdated because the driver does not answer."""
    absent: dict[str, str]
    """Missing readings, by name, and the reason for each."""


@dataclass(frozen=True, kw_only=True)
class Holder(Record):
    """A process that held memory."""

    pid: int | None
    """As ``Process.pid``."""
    name: str | None
    """Process name."""
    bytes: int
    """Bytes held."""


@dataclass(frozen=True, kw_only=True)
class Peak(Record):
    """Peak use of one space of a device. The peak of buffers is exact where one process uses the space
    through one allocator. Where several do, their sum is sampled at every tick, and whenever one of them
    shrinks after it grew by some percent. The peak of program memory is sampled at ticks only.
    """

    space: str
    """Memory space."""
    bytes: int
    """Bytes in use at the peak."""
    at: datetime
    """When it was reached."""
    holders: tuple[Holder, ...]
    """The processes that held it, largest first."""


@dataclass(frozen=True, kw_only=True)
class CoreRoom(Record):
    """The free gap of a core, between program memory and the lowest L1 buffer."""

    x: int
    """Column."""
    y: int
    """Row."""
    program_end: int
    """End of the memory of the program dispatched last."""
    registered_end: int
    """End of the memory of all programs that are loaded or cached."""
    lowest_buffer: int
    """Start of the lowest buffer; without one, the end of the memory for buffers."""
    free_gap_bytes: int
    """Bytes from ``program_end`` to ``lowest_buffer``."""
    basis: str
    """The weakest basis of all that use L1 of the device."""


@dataclass(frozen=True, kw_only=True)
class CoreLayout(Record):
    """How a runtime divides the L1 of each core: from 0 its own memory, then the kernel config buffer, then
    the memory that programs and buffers share.
    """

    columns: int
    """Columns of worker cores."""
    rows: int
    """Rows of worker cores."""
    kernel_config: int
    """Start of the kernel config buffer."""
    unreserved: int
    """End of the kernel config buffer, and start of the memory that programs and buffers share."""
    end: int
    """End of a core's L1."""


@dataclass(frozen=True, kw_only=True)
class DispatchCores(Record):
    """Tensix cores that the runtime keeps for itself: for dispatch and fabric. Their L1 is part of the
    capacity.
    """

    program_cores: int
    """Tensix cores that programs can use."""
    cores: int
    """Tensix cores that programs cannot use; 0 if dispatch runs on ethernet cores."""
    rows: tuple[int, int] | None
    """First and last row of these cores; ``None`` if they are not rows, or if unknown."""
    columns: tuple[int, int] | None
    """First and last column of these cores; ``None`` if they are not columns, or if unknown."""
    l1_bytes: int
    """L1 of these cores."""
    origin: str
    """Where the figures come from; ``board`` means tt-metal's default settings."""


@dataclass(frozen=True, kw_only=True)
class EthernetCores(Record):
    """Ethernet cores of a device, after harvesting. Their L1 is not part of the capacity."""

    cores: int
    """Ethernet cores."""
    l1_bytes_per_core: int
    """L1 of one core."""
    l1_bytes: int
    """L1 of all of them."""
    origin: str
    """Where the number of cores comes from."""


@dataclass(frozen=True, kw_only=True)
class OtherCores(Record):
    """Cores of a device that programs cannot use. What they hold is in no figure of the usage."""

    dispatch: DispatchCores | None
    """Tensix cores that the runtime keeps for itself; ``None`` if unknown."""
    ethernet: EthernetCores | None
    """Ethernet cores; ``None`` if unknown."""


@dataclass(frozen=True, kw_only=True)
class Interval(Record):
    """An address range of a core's L1."""

    class_: str
    """What it is used for."""
    start: int
    """First address."""
    bytes: int
    """Length."""


@dataclass(frozen=True, kw_only=True)
class CoreProgram(Record):
    """A program on a core."""

    pid: int | None
    """As ``Process.pid``."""
    hidden: bool
    """Whether its name is withheld from this user."""
    allocator: int | None
    """As ``Program.allocator``."""
    id: int
    """As ``Program.id``."""
    name: str | None
    """As ``Program.name``."""


@dataclass(frozen=True, kw_only=True)
class CorePeak(Record):
    """Peak use of a core, in the memory that programs and buffers share. Ranges reserved by lock-step are
    included. Sampled at every dispatch and every tick.
    """

    bytes: int
    """Bytes in use."""
    buffer_bytes: int
    """The part of them that is buffers."""
    at: datetime
    """When it was sampled."""
    pid: int | None
    """Process of the program dispatched last at that time."""
    hidden: bool
    """Whether that program is withheld from this user."""
    program: int | None
    """That program; as ``Program.id``."""
    program_name: str | None
    """Name of that program."""


@dataclass(frozen=True, kw_only=True)
class Core(CoreRoom):
    """The L1 of one core."""

    program: CoreProgram | None
    """The program that was dispatched last there."""
    peak: CorePeak | None
    """Peak use of the core."""
    map: int | None
    """Index of its map in ``Cores.maps``; ``None`` if there are too many intervals."""


@dataclass(frozen=True, kw_only=True)
class Cores(Record):
    """The cores of a device. Many of them are alike, so each map is written once: each core of ``list`` has
    the index of its map in ``maps``.
    """

    maps: tuple[tuple[Interval, ...], ...]
    """Use of the addresses from 0 to the end of L1, in order and without holes."""
    list: tuple[Core, ...]
    """The cores, by row and column."""


@dataclass(frozen=True, kw_only=True)
class Sample(Record):
    """The usage of one memory in one stretch of time."""

    at: datetime
    """Start of the interval."""
    min_bytes: int
    """Lowest."""
    mean_bytes: int
    """Mean."""
    max_bytes: int
    """Highest."""


@dataclass(frozen=True, kw_only=True)
class SensorSample(Record):
    """The readings of one sensor in one stretch of time."""

    at: datetime
    """When it begins."""
    min: float
    """Lowest."""
    mean: float
    """Mean."""
    max: float
    """Highest."""


@dataclass(frozen=True, kw_only=True)
class History(Record):
    """Usage and sensors of a device over time, oldest first; older stretches are longer."""

    dram_total: tuple[Sample, ...]
    """DRAM in use: buffers and trace."""
    l1_total: tuple[Sample, ...]
    """L1 in use: buffers, ``L1_SMALL`` and what programs hold there."""
    asic_celsius: tuple[SensorSample, ...]
    """Temperature in degrees Celsius."""
    power_watts: tuple[SensorSample, ...]
    """Power of the core in watts."""
    aiclk_mhz: tuple[SensorSample, ...]
    """Clock of the Tensix cores in megahertz."""


@dataclass(frozen=True, kw_only=True)
class Device(Record):
    """A device: one Tenstorrent chip."""

    id: str
    """Unique key: ``0x`` and 16 digits of its unique id, else ``pci-`` and its bus address, else
    ``ordinal-N``.
    """
    index: int
    """Device number, as used by runtimes."""
    arch: str | None
    """Architecture."""
    board: str | None
    """Board name."""
    remote: bool
    """Whether it is reached through another device."""
    inferred: bool
    """Whether no source has seen it: it follows from the board of another device. The first process that
    uses it confirms it.
    """
    pci: str | None
    """PCI bus address, as ``0000:01:00.0``."""
    node: int | None
    """The N of ``/dev/tenstorrent/N``."""
    serial: str | None
    """Serial number of the board, 16 digits."""
    names: tuple[str, ...]
    """Other ids of the device, such as tt-metal's."""
    firmware: Firmware
    """Firmware versions."""
    capacity: Capacity | None
    """Memory capacity."""
    usage: Usage
    """Memory in use."""
    sensors: Sensors | None
    """Sensor readings."""
    sensors_absent: str | None
    """Why there are no readings, or no new ones."""
    peaks: tuple[Peak, ...]
    """Peak use of each space, and the processes that held it."""
    tightest_core: CoreRoom | None
    """The core with the smallest free gap between program memory and the lowest L1 buffer; ``None`` where
    the layout of cores is not known.
    """
    core_layout: CoreLayout | None
    """How the runtime divides the L1 of a core, where it is known."""
    other_cores: OtherCores
    """Cores that programs cannot use."""
    cores: Cores | None
    """The L1 of each worker core, by row and column, on request."""
    history: History | None
    """Usage over time, on request."""


@dataclass(frozen=True, kw_only=True)
class Tracker(Record):
    """What tracks a process."""

    writer: str
    """Name and version, as ``ttmem-agent 0.1.0``."""
    runtime: str | None
    """The tracked runtime, as ``ttnn 0.81.1``."""
    hooks: int
    """Number of functions of the runtime to hook."""
    missing_hooks: tuple[str, ...]
    """Hooks that could not be installed."""
    cost_seconds: float | None
    """CPU time that tracking has cost the process."""
    left_out: int
    """Frames, call sites and tensors that are not described, because the segment has no space for more."""


@dataclass(frozen=True, kw_only=True)
class Summary(Record):
    """Totals of a process over all its devices."""

    indexes: tuple[int, ...]
    """``Device.index``es of the devices that it uses or has open."""
    dram_bytes: int | None
    """DRAM and trace buffers; ``None`` if unknown."""
    l1_bytes: int | None
    """L1 buffers of all kinds."""
    program_bytes: int | None
    """Circular and dataflow buffers and scratchpads."""
    kernel_bytes: int | None
    """Kernel code."""


@dataclass(frozen=True, kw_only=True)
class ProcessUsage(Usage):
    """Memory in use by one process on one device."""

    device: str
    """``Device.id``."""


@dataclass(frozen=True, kw_only=True)
class AllocatorSpace(BufferUsage):
    """One space of an allocator."""

    space: str
    """Memory space."""
    banks: int
    """Banks that allocate in lock-step."""
    base: int
    """First address of a bank."""
    bytes_per_bank: int
    """Bytes of a bank."""
    largest_free_block_addrs: tuple[int, ...]
    """Addresses within a bank of the free blocks that have the size of the largest one, lowest first; at
    most 256.
    """


@dataclass(frozen=True, kw_only=True)
class AllocatorUsage(Record):
    """Memory in use by one allocator, on each of its devices."""

    id: int
    """Allocator number within the process."""
    devices: tuple[str, ...]
    """``Device.id``s it covers."""
    spaces: tuple[AllocatorSpace, ...]
    """By space."""


@dataclass(frozen=True, kw_only=True)
class AuditResult(Record):
    """A comparison with the runtime's own allocator statistics."""

    allocator: int
    """Number of the allocator."""
    devices: tuple[str, ...]
    """``Device.id``s it covers."""
    space: str
    """Memory space."""
    drift_bytes: int
    """Allocated bytes: ttmem's figure minus the runtime's."""
    free_drift_bytes: int | None
    """Free bytes: ttmem's figure minus the runtime's; ``None`` where the bank layout is not known."""
    largest_free_drift_bytes: int | None
    """Largest free block per bank: ttmem's figure minus the runtime's; ``None`` where the bank layout is not
    known.
    """
    compared: bool
    """Whether the comparison is valid: no allocation or free happened during the audit."""
    allocated_bytes: int
    """Allocated bytes according to the runtime, over all banks."""
    free_bytes: int
    """Free bytes according to the runtime."""
    largest_free_bytes_per_bank: int
    """Largest free block per bank according to the runtime."""
    sequence: int
    """Sequence number of the process's last allocation event before the audit."""


@dataclass(frozen=True, kw_only=True)
class Trace(Record):
    """A captured trace."""

    id: int
    """Trace number in the runtime."""
    allocator: int
    """Number of its allocator."""
    devices: tuple[str, ...]
    """``Device.id``s of its devices."""
    dispatches: int
    """Dispatches it holds."""
    replays: int
    """Number of replays."""
    captured: datetime
    """End of the capture."""
    endangered_count: int
    """Buffers allocated since the capture and still live: a replay may overwrite them."""
    endangered_bytes: int
    """Requested bytes of those buffers."""


@dataclass(frozen=True, kw_only=True)
class Mark(Record):
    """A moment that a process marked, such as the end of a step."""

    name: str | None
    """Name; ``None`` if there was no space for it."""
    number: int | None
    """Number, such as that of the step."""
    at: datetime
    """When it was marked."""
    compared: int
    """Marks so far that were compared with each other, of the name with the most of them: call sites that
    leak are found from 10 on.
    """


@dataclass(frozen=True, kw_only=True)
class Placement(Record):
    """Memory of a program on its cores."""

    space: str
    """Memory space."""
    address: int | None
    """Address on each core; ``None`` if unknown."""
    bytes: int
    """Bytes per core."""
    cores: tuple[tuple[int, int, int, int], ...]
    """Its cores: rectangles, each from column, row to column, row."""
    view: bool
    """Whether it is a view of an L1 buffer, which is counted as L1."""
    count: int
    """Number of equal placements of the program; absent if it is 1."""


@dataclass(frozen=True, kw_only=True)
class Program(Record):
    """A program that is loaded or cached."""

    id: int
    """Program number, as in the runtime."""
    allocator: int | None
    """Number of its allocator."""
    devices: tuple[str, ...]
    """``Device.id``s of its devices."""
    indexes: tuple[int, ...]
    """``Device.index``es of its devices."""
    name: str | None
    """Its operation, or the names of its kernels."""
    kernels: str | None
    """The names of its kernels, if its operation is known."""
    site_name: str | None
    """The call site that dispatched it first."""
    class_: str
    """Class of the program."""
    cores: tuple[tuple[int, int, int, int], ...]
    """Cores it runs on: rectangles, each from column, row to column, row."""
    core_count: int
    """Number of those cores."""
    resident_cores: int
    """Number of cores, over all its devices, on which it was dispatched last."""
    dispatches: int
    """Number of dispatches."""
    residency_unknown: bool
    """Whether dispatches are not reported, so that neither their number nor residency is known."""
    estimated: bool
    """Whether some of its sizes are estimates."""
    dispatched: datetime | None
    """Time of the last dispatch."""
    kernel_bytes: int
    """Kernel code, arguments and semaphores, per core."""
    cb_bytes: int
    """Circular buffers per device; overlapping address ranges count once."""
    dfb_bytes: int
    """Dataflow buffers per device."""
    scratch_bytes: int
    """Scratchpads per device."""
    view_count: int
    """Circular and dataflow buffers that are views of L1 buffers, which are counted as L1."""
    end: int | None
    """Highest end address of its memory on any core; ``None`` if it has none."""
    would_clash: bool
    """Whether L1 buffers are below that end: as long as they are there, a dispatch fails."""
    placements: tuple[Placement, ...]
    """Its memory, by address."""


@dataclass(frozen=True, kw_only=True)
class HostUsage(Record):
    """What a process uses of the host, and its place in the process tree."""

    cpu_percent: float | None
    """CPU time since the reading before, in percent of one CPU; ``None`` in the first reading."""
    rss_bytes: int
    """Host memory that is resident (RSS)."""
    parent_pid: int | None
    """Pid of its parent process; ``None`` if it has none."""
    ancestor_pid: int | None
    """Pid of its nearest ancestor among the processes of the snapshot; ``None`` if there is none."""


@dataclass(frozen=True, kw_only=True)
class Process(Record):
    """A tracked process."""

    pid: int | None
    """Process id in the reader's PID namespace; ``None`` if it is not visible there."""
    reported_pid: int | None
    """Process id that the process itself reported, where it differs."""
    start: datetime | None
    """When it started."""
    name: str | None
    """Process name."""
    command: str | None
    """Command line."""
    user: str | None
    """Owner."""
    uid: int | None
    """Number of the owner; ``None``: unknown."""
    container: str | None
    """Container id, where it runs in one."""
    pod: str | None
    """Pod of the container, where it is known."""
    hidden: bool
    """Whether names, command and call sites are withheld from this user."""
    open_devices: tuple[str, ...]
    """``Device.id``s that it has open, according to the kernel."""
    tracking: str
    """How well its memory is known, in one word."""
    basis: str
    """The best basis of its figures."""
    complete: bool
    """Whether every allocation and free of the process is included."""
    sequence: int | None
    """Sequence number of the last allocation event that these figures include; ``None`` where the process
    does not number them.
    """
    tracker: Tracker | None
    """What tracks the process, where it is known."""
    summary: Summary
    """Totals over all its devices."""
    usage: tuple[ProcessUsage, ...]
    """Memory in use, by device."""
    allocators: tuple[AllocatorUsage, ...]
    """Memory in use, by open allocator."""
    audit: tuple[AuditResult, ...]
    """Comparisons with the runtime's own allocator statistics."""
    traces: tuple[Trace, ...]
    """Traces that can be replayed."""
    last_mark: Mark | None
    """The last moment that the process marked."""
    programs: tuple[Program, ...] | None
    """Programs that are loaded or cached, by number, on request."""
    host: HostUsage | None
    """What it uses of the host, on request; absent where the reader cannot see it."""


@dataclass(frozen=True, kw_only=True)
class Failure(Record):
    """A request that the runtime refused, with the figures of that moment. What is absent is unknown."""

    kind: str
    """Why it failed."""
    indexes: tuple[int, ...]
    """``Device.index``es of its devices."""
    space: str | None
    """Memory space; of program memory, that of the parts that did not fit."""
    requested_bytes: int | None
    """Requested bytes on each device: of a buffer, of all traces, or of a program's kernels and arguments."""
    needed_bytes_per_bank: int | None
    """Bytes that the buffer needs in each bank."""
    free_bytes_per_bank: int | None
    """Free bytes in each bank."""
    largest_free_bytes_per_bank: int | None
    """Largest free block in a bank."""
    program_end: int | None
    """End of the program's memory on its cores, an address in L1."""
    lowest_buffer: int | None
    """Lowest address of a buffer in L1."""
    limit_bytes: int | None
    """Bytes that there are: of L1, of the kernel config buffer, or of the trace region."""
    cores: tuple[tuple[int, int, int, int], ...] | None
    """Cores that it concerns, if not all: rectangles, each from column, row to column, row."""
    program: int | None
    """Number of the program."""
    program_name: str | None
    """Name of the program."""
    site_name: str | None
    """Call site."""
    file: str | None
    """Path of the file."""
    line: int | None
    """Line of the file."""
    function: str | None
    """Function that the line is in."""
    op: str | None
    """Operation that the line called, or the runtime's device operation."""
    purpose: str | None
    """What the memory is for."""
    tensor: str | None
    """The tensor: data type, shape and layout."""
    track: str | None
    """The part of the program, if it names its parts: ``decode / attention``."""
    stack: tuple[str, ...]
    """The calls that led to the line, innermost first, if whole stacks are recorded."""
    sequence: int | None
    """Number of the event in its segment."""


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """A problem, with severity."""

    kind: str
    """Kind of problem."""
    severity: str
    """Severity."""
    device: str | None
    """``Device.id``, if it concerns one device."""
    pid: int | None
    """Process id, if it concerns a process that is or was visible."""
    process_name: str | None
    """Name of that process."""
    command: str | None
    """Command line of that process."""
    hidden: bool
    """Whether name and command are withheld from this user."""
    space: str | None
    """Memory space, if it concerns one."""
    bytes: int | None
    """Bytes concerned."""
    count: int
    """Number of occurrences."""
    first: datetime | None
    """First occurrence; ``None`` for a state that holds now."""
    last: datetime | None
    """Last occurrence; ``None`` for a state that holds now."""
    failure: Failure | None
    """The failed allocation, if it is one: the last of its kind."""
    text: str
    """The finding in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Event(Record):
    """Something that happened at a time. Single allocations are not events."""

    sequence: int
    """Number of the event; numbers are consecutive unless older events were dropped."""
    at: datetime
    """When it happened."""
    kind: str
    """Kind of event."""
    severity: str
    """Severity."""
    pid: int | None
    """Process id, if it concerns one."""
    hidden: bool
    """Whether call sites and names in its text are withheld from this user."""
    device: str | None
    """``Device.id``, if it concerns one device."""
    bytes: int | None
    """Bytes concerned."""
    text: str
    """The event in one sentence."""


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
    """Number of its allocator."""
    space: str
    """Memory space."""
    id: str
    """Device address or kernel id, in hexadecimal."""
    requested_bytes: int
    """Requested bytes."""
    occupied_bytes: int | None
    """Bytes in the banks and cores that hold data."""
    allocated_bytes: int | None
    """Bytes that the runtime's allocator accounts for, over all banks it moves in lock-step."""
    bytes_per_bank: int | None
    """Bytes per bank or core."""
    banks: int | None
    """Number of banks or cores that allocate it."""
    layout: str | None
    """Layout over banks or cores."""
    cores: tuple[tuple[int, int, int, int], ...] | None
    """Cores that hold it, if not all do: rectangles, each from column, row to column, row."""
    estimated: bool
    """Whether its size is an estimate."""
    unplaced: bool
    """Whether its address is unknown; then the id is only a unique number."""
    references: int
    """Reference count."""
    age_seconds: float
    """Time since it was allocated."""
    kernel: str | None
    """Class of a kernel."""
    program: int | None
    """Number of the program it belongs to."""
    site: int | None
    """Number of the call site that allocated it."""
    site_name: str | None
    """Call site that allocated it."""
    file: str | None
    """Path of the file."""
    line: int | None
    """Line of the file."""
    function: str | None
    """Function that the line is in."""
    op: str | None
    """Operation that the line called, or the runtime's device operation."""
    purpose: str | None
    """What the memory is for."""
    tensor: str | None
    """The tensor: data type, shape and layout."""
    track: str | None
    """The part of the program, if it names its parts: ``decode / attention``."""
    stack: tuple[str, ...]
    """The calls that led to the line, innermost first, if whole stacks are recorded."""
    program_name: str | None
    """Name of the program."""
    hidden: bool
    """Whether names and call sites are withheld from this user. Allocations of other users are not listed at
    all.
    """
    basis: str
    """Where the figures come from."""


@dataclass(frozen=True, kw_only=True)
class BufferGroup(Record):
    """A group of allocations."""

    pid: int | None
    """As ``Process.pid``."""
    process_name: str | None
    """As ``Process.name``."""
    hidden: bool
    """Whether single allocations are withheld from this user; then this is the sum of the process."""
    space: str | None
    """Memory space, if all of them are in one."""
    program: int | None
    """Number of their program, if they were grouped by program."""
    program_name: str | None
    """Name of that program."""
    site: int | None
    """Number of their call site, if they were grouped by call site."""
    site_name: str | None
    """That call site."""
    label: str | None
    """The operation, function, file or tensor that they have in common, if they were grouped by it. If that
    is unknown: what the memory is for, or ``programs``.
    """
    count: int
    """Number of allocations."""
    requested_bytes: int
    """Requested bytes."""
    used_bytes: int
    """Allocated bytes, else requested bytes."""


@dataclass(frozen=True, kw_only=True)
class Buffers(Record):
    """A page of the list of live allocations."""

    count: int
    """Number of allocations that match; the list is a part of them."""
    requested_bytes: int
    """Requested bytes of all that match."""
    used_bytes: int
    """Allocated bytes of all that match, else requested bytes."""
    offset: int
    """Number of allocations before this part."""
    list: tuple[Allocation, ...]
    """The allocations, unless they were grouped."""
    hidden_count: int
    """Number of further allocations, of other users' processes, which are withheld from this user. They
    match by device, process and space; words are compared with the pid and name of the process only.
    """
    hidden_bytes: int
    """Allocated bytes of these, else requested bytes."""
    group_count: int
    """Number of groups, if they were grouped; ``groups`` is a part of them."""
    groups: tuple[BufferGroup, ...]
    """The groups."""


@dataclass(frozen=True, kw_only=True)
class ProgramRow(Record):
    """A program and its process."""

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    start: datetime | None
    """As ``Process.start``."""
    process_name: str | None
    """As ``Process.name``."""
    hidden: bool
    """Whether names are withheld from this user."""
    program: Program
    """The program."""


@dataclass(frozen=True, kw_only=True)
class ProgramList(Record):
    """A page of the list of programs."""

    count: int
    """Number of programs that match; the list is a part of them."""
    resident_count: int
    """Number of those that are resident on any core."""
    has_dfbs: bool
    """Whether any of them has dataflow buffers."""
    has_scratch: bool
    """Whether any of them has scratchpads."""
    hidden_processes: int
    """Number of processes of other users, whose programs are withheld from this user."""
    offset: int
    """Number of programs before this part."""
    list: tuple[ProgramRow, ...]
    """The programs, without their placements."""
    open: ProgramRow | None
    """The program that was requested with its placements."""


@dataclass(frozen=True, kw_only=True)
class CoreAllocation(Record):
    """One allocation on a core, and its owner."""

    class_: str
    """What it is on this core."""
    start: int
    """First address."""
    bytes: int
    """Bytes on this core."""
    pid: int | None
    """As ``Process.pid``."""
    process_name: str | None
    """As ``Process.name``."""
    program: int | None
    """As ``Program.id``, if it belongs to a program."""
    program_name: str | None
    """As ``Program.name``."""
    site_name: str | None
    """The call site that allocated it."""
    op: str | None
    """The operation that the call site called."""


@dataclass(frozen=True, kw_only=True)
class CoreAllocations(Record):
    """The allocations on one core of a device, by address: those of buffers, and of the program that was
    dispatched last there.
    """

    device: int
    """``Device.index``."""
    x: int
    """Column."""
    y: int
    """Row."""
    count: int
    """How many there are; the list has the first of them."""
    list: tuple[CoreAllocation, ...]
    """The allocations, by address."""
    hidden_count: int
    """Number of allocations of other users' processes, which are not listed."""


@dataclass(frozen=True, kw_only=True)
class Block(Record):
    """One block of a bank."""

    address: int
    """First address within a bank."""
    bytes: int
    """Bytes in each bank."""
    state: str
    """Whether it is used or free."""
    largest: bool
    """Whether it is a free block, and none is larger."""
    allocation: Allocation | None
    """The allocation that uses it, where it is known."""


@dataclass(frozen=True, kw_only=True)
class BlockMap(Record):
    """The blocks of one space of an allocator. Banks allocate in lock-step, so one list describes each of
    them.
    """

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    process_name: str | None
    """Process name."""
    hidden: bool
    """Whether its blocks are withheld from this user."""
    allocator: int | None
    """Number of the allocator within the process; absent where the process reports devices only."""
    devices: tuple[str, ...]
    """``Device.id``s it covers."""
    indexes: tuple[int, ...]
    """``Device.index``es it covers."""
    space: str
    """Memory space."""
    basis: str
    """Where the blocks come from."""
    used_bytes: int
    """Bytes in use, over all banks: allocated bytes where they are known, else requested bytes."""
    unknown: str | None
    """Why the blocks are not known; then there are none, and their figures are ``None``."""
    banks: int | None
    """Banks that allocate in lock-step."""
    base: int | None
    """First address of a bank."""
    bytes_per_bank: int | None
    """Bytes of a bank."""
    used_bytes_per_bank: int | None
    """Bytes of each bank in use, buffers of other allocators included."""
    free_bytes_per_bank: int | None
    """Free bytes of each bank."""
    largest_free_bytes_per_bank: int | None
    """Largest free block per bank: no larger allocation can succeed."""
    largest_free_block_addrs: tuple[int, ...]
    """Addresses of all free blocks of that size, lowest first."""
    single_core_bytes: int
    """Bytes of buffers on single cores of the same devices (``l1_core``), which may be in blocks that are
    free otherwise.
    """
    used_count: int | None
    """Number of blocks in use; ``None`` if unknown."""
    free_count: int | None
    """Number of free blocks; ``None`` if unknown."""
    blocks: tuple[Block, ...]
    """The blocks by address."""
    omitted_blocks: int
    """Number of further blocks, which the request left out."""
    parts: tuple[int, ...]
    """Used share of equal parts of a bank, from its first address on, in 255ths: 0 only if all of the part
    is free, 255 only if all of it is used. On request.
    """


@dataclass(frozen=True, kw_only=True)
class SiteUsage(Record):
    """Buffers of one process on some devices in one space that one line allocated by one operation."""

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    hidden: bool
    """Whether call sites are withheld from this user; then this is the sum of all call sites of the process.
    """
    indexes: tuple[int, ...]
    """``Device.index``es that hold them."""
    space: str
    """Memory space."""
    site_name: str | None
    """The call site; ``None``: unknown."""
    file: str | None
    """Path of the file."""
    line: int | None
    """Line of the file."""
    function: str | None
    """Function that the line is in."""
    op: str | None
    """Operation that the line called, or the runtime's device operation."""
    purpose: str | None
    """What the memory is for."""
    tensor: str | None
    """The tensor: data type, shape and layout."""
    track: str | None
    """The part of the program, if it names its parts: ``decode / attention``."""
    stack: tuple[str, ...]
    """The calls that led to the line, innermost first, if whole stacks are recorded."""
    count: int
    """Number of buffers."""
    requested_bytes: int
    """Requested bytes per device."""
    used_bytes: int
    """Allocated bytes per device, else requested bytes."""
    peak_count: int | None
    """Number of buffers when the process's memory of this space was largest; ``None``: unknown."""
    peak_bytes: int | None
    """Bytes per device at that time."""


@dataclass(frozen=True, kw_only=True)
class Leak(Record):
    """Buffers that one line allocates by one operation, and that only grow: a leak."""

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    indexes: tuple[int, ...]
    """``Device.index``es that hold them."""
    space: str
    """Memory space."""
    site_name: str | None
    """The call site; ``None``: unknown."""
    file: str | None
    """Path of the file."""
    line: int | None
    """Line of the file."""
    function: str | None
    """Function that the line is in."""
    op: str | None
    """Operation that the line called, or the runtime's device operation."""
    purpose: str | None
    """What the memory is for."""
    tensor: str | None
    """The tensor: data type, shape and layout."""
    track: str | None
    """The part of the program, if it names its parts: ``decode / attention``."""
    stack: tuple[str, ...]
    """The calls that led to the line, innermost first, if whole stacks are recorded."""
    basis: str
    """What shows it."""
    mark: str | None
    """Name of the marks; ``None`` if there are none, or no space for it."""
    trace: int | None
    """Number of the trace that is replayed."""
    late_after_ns: int | None
    """Age beyond which a buffer is a late survivor: 10 times the median life of the call site's freed
    buffers; absent if there are marks or replays.
    """
    intervals: int
    """Intervals between marks, between replays, or of 10 seconds, since the number of buffers last fell."""
    grown_intervals: int
    """Those in which it grew."""
    grown_count: int
    """Buffers more than at the beginning of these intervals."""
    grown_bytes: int
    """Allocated bytes per device more than then."""
    count: int
    """Buffers at the last mark; without marks, late survivors."""
    used_bytes: int
    """Their allocated bytes per device."""
    since: datetime
    """When these intervals began."""


@dataclass(frozen=True, kw_only=True)
class Frame(Record):
    """A frame of a stack."""

    kind: str
    """Kind of frame."""
    name: str
    """Name: ``model.py:42 (forward)``, ``ttnn.matmul``."""
    file: str | None
    """Path of the file."""
    line: int | None
    """Line of the file."""


@dataclass(frozen=True, kw_only=True)
class FlameStack(Record):
    """Buffers that one stack allocated."""

    frames: tuple[int, ...]
    """Positions of its frames in ``Flame.frames``, outermost first."""
    count: int | None
    """Number of buffers; ``None``: unknown."""
    bytes: int
    """Bytes per device."""


@dataclass(frozen=True, kw_only=True)
class FlamePool(Record):
    """Buffers of one process on some devices in one space."""

    pid: int | None
    """As ``Process.pid``."""
    reported_pid: int | None
    """As ``Process.reported_pid``."""
    process_name: str | None
    """As ``Process.name``."""
    hidden: bool
    """Whether its stacks are withheld from this user; then there is one for all of it."""
    indexes: tuple[int, ...]
    """``Device.index``es that hold them."""
    space: str
    """Memory space."""
    bytes: int | None
    """Allocated bytes per device, else requested bytes: the sum of the stacks; ``None``: unknown, see
    ``gap``.
    """
    at: datetime | None
    """When the peak was, or the mark."""
    gap: str | None
    """Why the stacks are unknown or not complete."""
    stacks: tuple[FlameStack, ...]
    """The stacks."""


@dataclass(frozen=True, kw_only=True)
class Flame(Record):
    """Buffers by the stacks that allocated them, at one moment."""

    moment: str
    """Which buffers."""
    frames: tuple[Frame, ...]
    """Frames of the stacks, each once. A stack has their positions in this list."""
    pools: tuple[FlamePool, ...]
    """Buffers of each process, by devices and space."""


@dataclass(frozen=True, kw_only=True)
class Skipped(Record):
    """A file that was not read, and why."""

    path: str
    """Path of the file."""
    reason: str
    """Why it was not read."""


@dataclass(frozen=True, kw_only=True)
class Health(Record):
    """How the snapshot was made."""

    source: str
    """``daemon`` or ``local``."""
    connections: int
    """Open connections of legacy clients."""
    segments: int
    """Segments of running processes that are read."""
    crash_segments: int
    """Crash segments: segments whose process is gone."""
    counter_files: int
    """Files of tt-metal counters that are read."""
    skipped: tuple[Skipped, ...]
    """Files named like segments or counters that cannot be read, and the socket of a daemon that does not
    answer.
    """
    live_records: int
    """Live records behind the figures."""
    lost_records: int
    """Records lost before they could be read."""
    dropped_log_lines: int
    """Event log lines dropped because their reader was too slow."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(Record):
    """Everything known at one moment."""

    schema: int
    """Number of the schema; it changes only if a key is taken away or changes its meaning."""
    at: datetime
    """When it was taken."""
    simulated: bool
    """Whether any device is simulated."""
    host: Host
    """The machine."""
    devices: tuple[Device, ...]
    """Devices, by index."""
    processes: tuple[Process, ...]
    """Tracked processes, by pid."""
    findings: tuple[Finding, ...]
    """Problems that hold now or occurred in the last 10 minutes, worst first."""
    events: tuple[Event, ...] | None
    """Recent events, oldest first, on request."""
    buffers: Buffers | None
    """A page of the list of live allocations, on request."""
    programs: ProgramList | None
    """A page of the list of programs, on request."""
    core_allocations: CoreAllocations | None
    """The allocations on one core, on request."""
    block_maps: tuple[BlockMap, ...] | None
    """The blocks of allocators' banks, by process, allocator and space, on request."""
    sites: tuple[SiteUsage, ...] | None
    """Usage of buffers by process, devices, space, call site and operation, largest first, on request."""
    leaks: tuple[Leak, ...] | None
    """Call sites that leak, largest first, on request."""
    flame: Flame | None
    """Buffers by the stacks that allocated them, on request."""
    health: Health
    """How the snapshot was made."""
