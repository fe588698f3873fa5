"""What this process holds, in the manner of ``torch.cuda``: by its own segments, whoever writes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import _ttmem
from ._errors import Error, NotTracked, UnknownAllocator
from ._types import DeviceLike

#: Spaces of buffers, which can be added up. What programs keep lies over each other, and a snapshot has it.
BUFFERS = ("dram", "l1", "l1_small", "trace", "host", "l1_core")

#: One space of one allocator: segment, allocator, space.
Key = tuple[str, int, str]


@dataclass(frozen=True)
class Row:
    """What one allocator of this process holds in one space, on each of its devices."""

    key: Key
    own: bool
    writer: str
    devices: tuple[int, ...]
    allocated: int
    peak: int
    closed: bool
    """The allocator is closed: it holds nothing, but its peak was there."""


def rows() -> list[Row]:
    """Everything that this process holds in buffers. Raises :class:`NotTracked` where nothing of it can be read."""
    try:
        segments = _ttmem.figures()
    except OSError as e:
        raise NotTracked(f"this process's own memory cannot be read: {e}") from e
    if not segments:
        reason = _ttmem.status()[2]
        raise NotTracked(f"nothing of this process is tracked{f': {reason}' if reason else ''}")
    return [
        Row((segment, allocator, space), own, writer, devices, 0 if closed else allocated, peak, closed)
        for segment, writer, own, spaces in segments
        for allocator, devices, space, allocated, peak, closed in spaces
        if space in BUFFERS
    ]


class Gauge:
    """The most that was held within one stretch of a program, whatever else lets peaks begin anew meanwhile."""

    def __init__(self) -> None:
        self.peaks: dict[Key, int] = {}
        self.before: dict[Key, int] = {}
        self.devices: dict[Key, tuple[int, ...]] = {}
        self.is_measured = True
        # Allocators that were closed before: their peaks stay in the segment.
        self.over: set[Key] = set()

    def absorb(self, found: Iterable[Row]) -> None:
        """Takes in the peaks that segments have now."""
        for row in found:
            if not row.closed or row.key not in self.over:
                self.peaks[row.key] = max(row.peak, self.peaks.get(row.key, 0))
                self.devices[row.key] = row.devices

    def forget(self, found: Iterable[Row]) -> None:
        """Begins anew with what these hold now."""
        for row in found:
            self.devices[row.key] = row.devices
            self.peaks[row.key] = row.allocated
            if row.closed:
                self.over.add(row.key)


# A segment has one peak for each allocator and space. Before one of those who measure lets it begin anew, all others take it in.
# `_since_reset` is the gauge of `peak()`: it has what was cut off since `reset_peak`.
_lock = threading.Lock()
_gauges: list[Gauge] = []
_since_reset = Gauge()


def _begin_anew_in_child() -> None:
    global _lock, _since_reset
    _lock = threading.Lock()
    _gauges.clear()
    _since_reset = Gauge()


os.register_at_fork(after_in_child=_begin_anew_in_child)


def _let_begin_anew(found: Iterable[Row]) -> None:
    """Lets the peaks of these begin anew at what is held now; those of the agent only all at once."""
    found = [row for row in found if not row.closed]
    for row in found:
        if row.own:
            try:
                _ttmem.reset_own_peak(row.key[1], row.key[2])
            except UnknownAllocator:
                # Another thread closed it since it was read.
                pass
    writers = sorted({row.writer for row in found if not row.own})
    if writers and not _ttmem.reset_agents_peaks():
        raise Error(f"{', '.join(writers)} in this process cannot let its peaks begin anew: it is too old")


def begin() -> Gauge:
    """Begins to measure."""
    gauge = Gauge()
    with _lock:
        try:
            found = rows()
        except NotTracked:
            # It begins within the stretch, at nothing.
            _gauges.append(gauge)
            return gauge
        for other in (_since_reset, *_gauges):
            other.absorb(found)
        try:
            _let_begin_anew(found)
        except Error:
            # The block goes on all the same; only its peak is not known.
            gauge.is_measured = False
        gauge.before = {row.key: row.allocated for row in found}
        gauge.forget(found)
        _gauges.append(gauge)
    return gauge


def end(gauge: Gauge, device: tuple[int, ...] | None) -> tuple[dict[str, int], dict[str, int]] | None:
    """Ends it: the peak and the difference of what is held, by space. ``None`` if nothing is tracked."""
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
    open_keys = {row.key for row in found if not row.closed}
    wanted = _wanted(device, gauge.devices.values())
    peaks = _most(gauge.peaks, gauge.devices, open_keys, wanted) if gauge.is_measured else {}
    differences: dict[str, int] = {}
    for key, devices in gauge.devices.items():
        times = _times(wanted, devices)
        if times:
            difference = now.get(key, 0) - gauge.before.get(key, 0)
            differences[key[2]] = differences.get(key[2], 0) + times * difference
    return peaks, differences


def _most(
    peaks: Mapping[Key, int],
    devices: Mapping[Key, tuple[int, ...]],
    open_keys: set[Key],
    wanted: tuple[int, ...],
) -> dict[str, int]:
    """The most by space: of allocators that are open together, or of one that is closed by now."""
    together: dict[str, int] = {}
    alone: dict[str, int] = {}
    for key, peak in peaks.items():
        times = _times(wanted, devices.get(key, ()))
        if times:
            space = key[2]
            if key in open_keys:
                together[space] = together.get(space, 0) + times * peak
            else:
                alone[space] = max(alone.get(space, 0), times * peak)
    return {space: max(together.get(space, 0), alone.get(space, 0)) for space in {**together, **alone}}


def numbers(device: DeviceLike) -> tuple[int, ...]:
    return _ttmem.Tracker(device).devices


def _wanted(device: DeviceLike | None, all_devices: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The devices that are meant: without any, the first that this process used."""
    if device is not None:
        return numbers(device)
    return next((devices[:1] for devices in all_devices if devices), ())


def _times(wanted: tuple[int, ...], devices: tuple[int, ...]) -> int:
    """On how many of the devices that are meant it is held."""
    return sum(1 for device in wanted if device in devices)


def _space(space: str) -> str:
    name = str(space)
    if name not in BUFFERS:
        raise ValueError(f"{name!r} is no space of buffers: those are {', '.join(BUFFERS)}")
    return name


def memory_allocated(device: DeviceLike | None = None, space: str = "dram") -> int:
    """Bytes of a device that this process holds in buffers, in one space.

    That is what the allocator charges where it is known, else what was asked for. ``device`` is a number as runtimes give them,
    several numbers, or a device or mesh of ttnn, of which the devices are added up; without it, the first device that this
    process used. It works with whatever tracks this process: this package, or the agent (``ttmem run``). Raises
    :class:`ttmem.NotTracked` where neither does.
    """
    space = _space(space)
    found = rows()
    wanted = _wanted(device, (row.devices for row in found))
    return sum(_times(wanted, row.devices) * row.allocated for row in found if row.key[2] == space)


def peak(device: DeviceLike | None = None, space: str = "dram") -> int:
    """The most of a device that this process held at once in one space, since it began or since :func:`reset_peak`.

    Arguments are those of :func:`memory_allocated`. Where a process has several allocators over a device, as for a mesh and
    its parts, their peaks are added up, and it may never have been so much at once.
    """
    space = _space(space)
    with _lock:
        found = rows()
        _since_reset.absorb(found)
        # What was tracked before it was closed altogether is over.
        there = {row.key[0] for row in found}
        peaks = {key: most for key, most in _since_reset.peaks.items() if key[0] in there}
        devices = dict(_since_reset.devices)
    open_keys = {row.key for row in found if not row.closed}
    wanted = _wanted(device, (row.devices for row in found))
    return _most(peaks, devices, open_keys, wanted).get(space, 0)


def reset_peak(device: DeviceLike | None = None, space: str | None = None) -> None:
    """Lets peaks begin anew, at what is held now: of a device, or of all; in a space, or in all."""
    name = None if space is None else _space(space)
    wanted = None if device is None else numbers(device)
    with _lock:
        found = rows()
        for gauge in (_since_reset, *_gauges):
            gauge.absorb(found)
        meant = [
            row
            for row in found
            if (name is None or row.key[2] == name) and (wanted is None or _times(wanted, row.devices))
        ]
        _let_begin_anew(meant)
        _since_reset.forget(meant)
