"""The native module of the package. Everything that ``ttmem`` does not re-export is private."""

from collections.abc import Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import final

from ._types import Banks, Chip, Cores, DeviceLike

__all__ = [
    "VERSION",
    "CallSite",
    "Kernel",
    "Label",
    "Placement",
    "Program",
    "Tracker",
    "alloc",
    "Follower",
    "ask",
    "close",
    "enable",
    "figures",
    "free",
    "is_enabled",
    "label_entered",
    "label_left",
    "mark",
    "refresh",
    "reset_agent_peaks",
    "reset_own_peak",
    "set_label_variable",
    "status",
]

VERSION: str

def enable(
    folder: str | None = None,
    group: int | None = None,
    runtime: str | None = None,
    log: str | None = None,
    legacy_socket: str | None = None,
    ring: int | None = None,
) -> bool: ...
def is_enabled() -> bool: ...
def close() -> None: ...
def refresh() -> None: ...
def status() -> tuple[bool, str | None, str | None, int, int, int, int]: ...
def alloc(
    device: DeviceLike,
    space: str,
    address: int,
    size: int,
    bytes_per_bank: int = 0,
    occupied: int | None = None,
    cores: Cores | None = None,
    site: str | CallSite | None = None,
) -> None: ...
def free(device: DeviceLike, space: str, address: int) -> None: ...
def set_label_variable(variable: ContextVar[Label | None]) -> None: ...
def label_entered(in_task: bool) -> None: ...
def label_left(in_task: bool) -> None: ...
def mark(name: str, number: int | None = None) -> None: ...
def ask(local: bool, request: str) -> bytes: ...
@final
class Follower:
    def __new__(cls) -> Follower: ...
    def report(self) -> bytes | None: ...
def figures() -> list[tuple[str, str, bool, list[tuple[int, tuple[int, ...], str, int, int, bool]]]]: ...
def reset_own_peak(allocator: int, space: str) -> None: ...
def reset_agent_peaks() -> bool: ...
@final
class CallSite:
    def __new__(
        cls,
        file: str | None = None,
        line: int = 0,
        function: str | None = None,
        *,
        op: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        purpose: str | None = None,
    ) -> CallSite: ...

@final
class Label:
    def __new__(cls, text: str, outer: Label | None) -> Label: ...

@final
class Tracker:
    def __new__(
        cls, devices: DeviceLike | Chip | list[Chip] | None = None, banks: list[Banks] | None = None
    ) -> Tracker: ...
    @property
    def devices(self) -> tuple[int, ...]: ...
    def alloc(
        self,
        space: str,
        address: int,
        size: int,
        bytes_per_bank: int = 0,
        occupied: int | None = None,
        cores: Cores | None = None,
        site: str | CallSite | None = None,
    ) -> None: ...
    def free(self, space: str, address: int) -> None: ...
    def free_anywhere(self, address: int) -> None: ...
    def free_on_cores(self, address: int, size: int, cores: Cores) -> None: ...
    def out_of_memory(self, space: str, size: int, site: str | CallSite | None = None) -> None: ...
    def program(
        self, name: str | None = None, number: int | None = None, *, dispatches: bool = True
    ) -> Program: ...
    def close(self) -> None: ...

@final
class Program:
    @property
    def number(self) -> int: ...
    def cb(
        self,
        bytes: int,
        address: int | None = None,
        cores: Cores | None = None,
        *,
        view: bool = False,
        estimated: bool = False,
    ) -> Placement: ...
    def place(
        self,
        space: str,
        bytes: int,
        address: int | None = None,
        cores: Cores | None = None,
        *,
        view: bool = False,
        estimated: bool = False,
    ) -> Placement: ...
    def kernel(
        self, bytes: int, cores: Cores | None = None, *, kind: str = "application", estimated: bool = False
    ) -> Kernel: ...
    def dispatch(self) -> None: ...
    def end(self) -> None: ...
    def __enter__(self) -> Program: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...

@final
class Placement:
    def remove(self) -> None: ...

@final
class Kernel:
    def remove(self) -> None: ...
