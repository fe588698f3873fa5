"""What is said to the tracker, and what it says back."""

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
        """Its number."""


#: A device's number, several, or an object that knows such.
DeviceLike = Union[int, Sequence[int], HasDeviceIds, HasId]

#: Cores: each a column and a row, or a rectangle from column and row to column and row, both included.
Cores = Sequence[Union[tuple[int, int], tuple[int, int, int, int]]]


@dataclass(frozen=True)
class Chip:
    """A chip, as far as its program knows it: what is not known is 0 or empty."""

    index: int = 0
    """The number that the program calls it by."""
    unique_id: int = 0
    arch: str | None = None
    """``wormhole_b0`` or ``blackhole``."""
    remote: bool = False
    """Reached through another chip rather than over the bus."""
    board: str = ""
    pci: str = ""
    dram_bytes: int = 0
    dram_channels: int = 0
    dram_bytes_per_channel: int = 0
    cores: int = 0
    """Tensix cores, harvested ones left out."""
    l1_bytes_per_core: int = 0
    dram_allocatable: int = 0
    l1_allocatable: int = 0
    kernel_config: int = 0
    """Where the ring of kernels begins in a core's L1."""
    unreserved: int = 0
    """Where it ends, and what programs and buffers share begins."""
    grid: tuple[int, int] = (0, 0)
    """Columns and rows of cores that programs can use."""


@dataclass(frozen=True)
class Banks:
    """How an allocator lays out one space: so many banks, which move in lock-step."""

    space: str
    banks: int
    base: int
    """First address in a bank that is handed out."""
    bytes_per_bank: int


@dataclass(frozen=True)
class Status:
    """How tracking is going."""

    on: bool
    """Whether what is told is recorded."""
    segment: str | None
    """Name of the file that readers see."""
    reason: str | None
    """Why there is none, or a smaller one, or why tracking is off although it was switched on."""
    live: int
    """Live allocations."""
    unlisted: int
    """Of these, how many did not fit the file; they are counted, but readers cannot list them."""
    lost: int
    """Events that could not be recorded."""
    queued: int
    """Messages that wait for an old server to take them, with the legacy transport."""
