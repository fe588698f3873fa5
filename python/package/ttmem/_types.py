"""Arguments and results of the tracker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Union


class HasDeviceIds(Protocol):
    """A mesh of ttnn."""

    def get_device_ids(self) -> Sequence[int]:
        """Numbers of its devices."""


class HasId(Protocol):
    """A device of ttnn."""

    def id(self) -> int:
        """Device number."""


#: A device number, several of them, or a device or mesh object.
DeviceLike = Union[int, Sequence[int], HasDeviceIds, HasId]

#: Cores: each ``(x, y)``, or a rectangle ``(x0, y0, x1, y1)`` with both corners included.
Cores = Sequence[Union[tuple[int, int], tuple[int, int, int, int]]]


@dataclass(frozen=True)
class Chip:
    """A device; 0 and empty mean unknown."""

    index: int = 0
    """Device number in this process."""
    unique_id: int = 0
    arch: str | None = None
    """``wormhole_b0`` or ``blackhole``."""
    remote: bool = False
    """Whether it is reached through another device."""
    board: str = ""
    pci: str = ""
    dram_bytes: int = 0
    dram_channels: int = 0
    dram_bytes_per_channel: int = 0
    cores: int = 0
    """Tensix cores, without harvested ones."""
    l1_bytes_per_core: int = 0
    dram_allocatable: int = 0
    l1_allocatable: int = 0
    kernel_config: int = 0
    """Start address of the kernel config buffer in a core's L1."""
    unreserved: int = 0
    """End of the kernel config buffer, where memory of programs and buffers begins."""
    grid: tuple[int, int] = (0, 0)
    """Columns and rows of cores that programs can use."""


@dataclass(frozen=True)
class Banks:
    """Layout of one memory space of an allocator. Its banks allocate in lock-step."""

    space: str
    banks: int
    base: int
    """First allocatable address in a bank."""
    bytes_per_bank: int


@dataclass(frozen=True)
class Status:
    """Status of tracking."""

    on: bool
    """Whether reports are recorded."""
    segment: str | None
    """File name of the segment."""
    reason: str | None
    """Why there is no segment or a smaller one, or why tracking is off although it was enabled."""
    live: int
    """Live allocations."""
    unlisted: int
    """Live allocations that do not fit the segment: counted, but not listed."""
    lost: int
    """Reports that were not recorded."""
    queued: int
    """Messages queued for an old server, with the legacy transport."""
