"""Memory of this process, as in ``torch.cuda``, read from its own segments: this package's or the agent's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import _ttmem
from ._errors import Error, NotTracked, UnknownAllocator
from ._types import DeviceLike

#: Spaces of buffers, which can be added up. Memory of programs overlaps; see :func:`ttmem.snapshot`.
BUFFERS = ("dram", "l1", "l1_small", "trace", "host", "l1_core")

#: One space of one allocator: segment, allocator, space.
Key = tuple[str, int, str]


@dataclass(frozen=True)
class Row:
    """Allocated bytes of one allocator of this process in one space, on each of its devices."""

    key: Key
    own: bool
    writer: str
    devices: tuple[int, ...]
    allocated: int
    peak: int
    closed: bool
    """Whether the allocator is closed: only its peak counts."""


def rows() -> list[Row]:
    """Buffers of this process. Raises :class:`NotTracked` if nothing can be read."""
    try:
        segments = _ttmem.figures()
    except OSError as e:
        raise NotTracked(f"cannot read the segments of this process: {e}") from e
    if not segments:
        reason = _ttmem.status()[2]
        raise NotTracked(f"this process is not tracked{f': {reason}' if reason else ''}")
    return [
        Row((segment, allocator, space), own, writer, devices, 0 if closed else allocated, peak, closed)
        for segment, writer, own, spaces in segments
        for allocator, devices, space, allocated, peak, closed in spaces
        if space in BUFFERS
    ]


class Gauge:
    """Peaks of one block, independent of other resets of peaks meanwhile."""

    def __init__(self) -> None:
        self.peaks: dict[Key, int] = {}
        self.before: dict[Key, int] = {}
        self.devices: dict[Key, tuple[int, ...]] = {}
        # Why the peaks are unknown.
        self.reason: str | None = None
        # Allocators that were closed before the block: their peaks stay in the segment.
        self.closed_before: set[Key] = set()
        # Allocators that are open at the end.
        self.open_keys: set[Key] = set()

    def absorb(self, found: Iterable[Row]) -> None:
        """Adds the peaks that segments have now."""
        for row in found:
            if not row.closed or row.key not in self.closed_before:
                self.peaks[row.key] = max(row.peak, self.peaks.get(row.key, 0))
                self.devices[row.key] = row.devices

    def restart(self, found: Iterable[Row]) -> None:
        """Restarts at what is allocated now."""
        for row in found:
            self.devices[row.key] = row.devices
            self.peaks[row.key] = row.allocated
            if row.closed:
                self.closed_before.add(row.key)


# A segment has one peak for each allocator and space. Before one gauge resets it, all others absorb it.
# `_since_reset` is the gauge of `peak()`: it has the peaks since `reset_peak`.
_lock = threading.Lock()
_gauges: list[Gauge] = []
_since_reset = Gauge()


def _restart_in_child() -> None:
    global _lock, _since_reset
    _lock = threading.Lock()
    _gauges.clear()
    _since_reset = Gauge()


os.register_at_fork(after_in_child=_restart_in_child)


def _reset_segment_peaks(found: Iterable[Row]) -> None:
    """Resets the peaks in segments to what is allocated now; those of the agent can only be reset together."""
    found = [row for row in found if not row.closed]
    for row in found:
        if row.own:
            try:
                _ttmem.reset_own_peak(row.key[1], row.key[2])
            except UnknownAllocator:
                # Another thread closed it since it was read.
                pass
    writers = sorted({row.writer for row in found if not row.own})
    if writers and not _ttmem.reset_agent_peaks():
        raise Error(f"cannot reset peaks: {', '.join(writers)} in this process is too old")


def begin() -> Gauge:
    """Starts a measurement."""
    gauge = Gauge()
    with _lock:
        try:
            found = rows()
        except NotTracked:
            # Tracking starts within the block, at zero.
            _gauges.append(gauge)
            return gauge
        for other in (_since_reset, *_gauges):
            other.absorb(found)
        try:
            _reset_segment_peaks(found)
        except Error as error:
            # The block continues; its peak is unknown.
            gauge.reason = str(error)
        gauge.before = {row.key: row.allocated for row in found}
        gauge.restart(found)
        _gauges.append(gauge)
    return gauge


def end(gauge: Gauge, device: tuple[int, ...] | None) -> tuple[dict[str, int], dict[str, int]] | None:
    """Ends a measurement: peak and difference of allocated bytes, by space. ``None`` if nothing is tracked."""
    with _lock:
        if gauge in _gauges:
            _gauges.remove(gauge)
        try:
            found = rows()
        except NotTracked:
            if not gauge.peaks:
                return None
            found = []
        gauge.absorb(found)
    now = {row.key: row.allocated for row in found}
    gauge.open_keys = {row.key for row in found if not row.closed}
    wanted = _selected_devices(device, gauge.devices.values())
    peaks = _peaks_by_space(gauge.peaks, gauge.devices, gauge.open_keys, wanted) if gauge.reason is None else {}
    differences: dict[str, int] = {}
    for key, devices in gauge.devices.items():
        times = _device_count(wanted, devices)
        if times:
            difference = now.get(key, 0) - gauge.before.get(key, 0)
            differences[key[2]] = differences.get(key[2], 0) + times * difference
    return peaks, differences


def peaks_above(gauge: Gauge, device: DeviceLike | None) -> dict[str, int]:
    """Peaks of an ended measurement above what was allocated at its start, by space."""
    wanted = _selected_devices(device, gauge.devices.values())
    peaks = _peaks_by_space(gauge.peaks, gauge.devices, gauge.open_keys, wanted) if gauge.reason is None else {}
    for key, allocated in gauge.before.items():
        space = key[2]
        if space in peaks:
            peaks[space] = max(peaks[space] - allocated * _device_count(wanted, gauge.devices.get(key, ())), 0)
    return peaks


def _peaks_by_space(
    peaks: Mapping[Key, int],
    devices: Mapping[Key, tuple[int, ...]],
    open_keys: set[Key],
    wanted: tuple[int, ...],
) -> dict[str, int]:
    """Peaks by space: the sum over open allocators, or that of a closed one if it is larger."""
    together: dict[str, int] = {}
    alone: dict[str, int] = {}
    for key, peak in peaks.items():
        times = _device_count(wanted, devices.get(key, ()))
        if times:
            space = key[2]
            if key in open_keys:
                together[space] = together.get(space, 0) + times * peak
            else:
                alone[space] = max(alone.get(space, 0), times * peak)
    return {space: max(together.get(space, 0), alone.get(space, 0)) for space in {**together, **alone}}


def numbers(device: DeviceLike) -> tuple[int, ...]:
    """Returns the numbers of a device or mesh."""
    return _ttmem.Tracker(device).devices


def _selected_devices(device: DeviceLike | None, all_devices: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The selected devices; by default, the first that this process used."""
    if device is not None:
        return numbers(device)
    return next((devices[:1] for devices in all_devices if devices), ())


def _device_count(wanted: tuple[int, ...], devices: tuple[int, ...]) -> int:
    """Number of selected devices that have the allocation."""
    return sum(1 for device in wanted if device in devices)


def _buffer_space(space: str) -> str:
    name = str(space)
    if name not in BUFFERS:
        raise ValueError(f"unknown buffer space {name!r}; expected one of: {', '.join(BUFFERS)}")
    return name


def memory_allocated(device: DeviceLike | None = None, space: str = "dram") -> int:
    """Returns the bytes that buffers of this process have allocated on a device, in one space.

    These are allocated bytes if known, else requested bytes. ``device`` is a device number, several numbers, or a device or mesh
    of ttnn; several devices are added up. The default is the first device that this process used. Works with this package and with
    the agent (``ttmem run``). Raises :class:`ttmem.NotTracked` if neither tracks this process.
    """
    space = _buffer_space(space)
    found = rows()
    wanted = _selected_devices(device, (row.devices for row in found))
    return sum(_device_count(wanted, row.devices) * row.allocated for row in found if row.key[2] == space)


def peak(device: DeviceLike | None = None, space: str = "dram") -> int:
    """Returns the peak of :func:`memory_allocated` since the process started or since :func:`reset_peak`.

    Arguments are those of :func:`memory_allocated`. If a process has several allocators on a device, such as those of a mesh and
    of its parts, their peaks are added up; the sum may exceed the true peak.
    """
    space = _buffer_space(space)
    with _lock:
        found = rows()
        _since_reset.absorb(found)
        # Segments that are gone do not count.
        present = {row.key[0] for row in found}
        peaks = {key: value for key, value in _since_reset.peaks.items() if key[0] in present}
        devices = dict(_since_reset.devices)
    open_keys = {row.key for row in found if not row.closed}
    wanted = _selected_devices(device, (row.devices for row in found))
    return _peaks_by_space(peaks, devices, open_keys, wanted).get(space, 0)


def reset_peak(device: DeviceLike | None = None, space: str | None = None) -> None:
    """Resets peaks to what is allocated now, of one device or all, in one space or all."""
    name = None if space is None else _buffer_space(space)
    wanted = None if device is None else numbers(device)
    with _lock:
        found = rows()
        for gauge in (_since_reset, *_gauges):
            gauge.absorb(found)
        selected = [
            row
            for row in found
            if (name is None or row.key[2] == name) and (wanted is None or _device_count(wanted, row.devices))
        ]
        _reset_segment_peaks(selected)
        _since_reset.restart(selected)
