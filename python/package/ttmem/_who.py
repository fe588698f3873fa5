"""Names of the variables that hold live tensors, also in kept tracebacks."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _snapshot
from ._schema import Allocation

#: How deep lists, tuples and dictionaries are searched, and how many of their elements.
_DEPTH, _WIDTH = 4, 10_000
_KEPT = " (kept traceback"
_SPACES = {"DRAM": "dram", "L1": "l1", "L1_SMALL": "l1_small", "TRACE": "trace"}


@dataclass(frozen=True)
class NamedBuffer:
    """A live buffer of this process, and the variables that hold it."""

    names: tuple[str, ...]
    """As ``Layer.weight``, ``x in forward`` or ``Model.cache[3]``; ``x in forward (kept traceback of ValueError, errors[0])`` if the exception
    in the variable ``errors[0]`` keeps a function's variables. Empty if no variable was found."""
    space: str
    address: int
    bytes: int
    """Allocated bytes per device, else requested bytes."""
    site: str | None
    """The line that allocated it."""
    tensor: str | None
    """Data type, shape and layout."""


def who() -> list[NamedBuffer]:
    """Returns the live buffers of this process with the names of the variables that hold them, largest first.

    Attributes of instances, local variables of running functions, of generators and of kept tracebacks, variables of closures, and global
    variables of modules are searched, and lists, tuples and dictionaries in them. That takes a tenth of a second and more: for a report or
    a test, not for a loop. Buffers of caches and traces, and temporary ones, have no names.
    """
    names = _names()
    found = [
        NamedBuffer(
            names.get((str(it.space), int(it.id, 16)), ()),
            str(it.space),
            int(it.id, 16),
            allocated_bytes(it),
            it.site_name,
            it.tensor,
        )
        for it in own_buffers()
    ]
    return sorted(found, key=lambda it: (-it.bytes, it.space, it.address))


def own_buffers() -> list[Allocation]:
    """The live buffers of this process that tensors can have."""
    pid = os.getpid()
    return [it for it in _snapshot.allocations(local=True) if it.pid == pid and str(it.space) in _SPACES.values()]


def allocated_bytes(buffer: Allocation) -> int:
    """Allocated bytes per device, else requested bytes."""
    return buffer.requested_bytes if buffer.allocated_bytes is None else buffer.allocated_bytes


def is_in_traceback(name: str) -> bool:
    """Whether a name of a variable is that of a function which has failed, kept by its exception."""
    return _KEPT in name


def _names() -> dict[tuple[str, int], tuple[str, ...]]:
    """The names of the variables that hold tensors, by space and address."""
    names: dict[tuple[str, int], set[str]] = {}
    for name, tensor in _find_tensors():
        place = _place_of(tensor)
        if place is not None:
            names.setdefault(place, set()).add(name)
    return {place: tuple(sorted(found)) for place, found in names.items()}


def _is_tensor(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "Tensor" and kind.__module__.partition(".")[0] == "ttnn"


def _place_of(tensor: Any) -> tuple[str, int] | None:
    """Space and address of a tensor, if it is on a device."""
    try:
        if not tensor.is_allocated():
            return None
        space = str(tensor.memory_config().buffer_type).rpartition(".")[2]
        return _SPACES[space], int(tensor.buffer_address())
    except Exception:
        # On the host, or of a version that lacks one of these functions.
        return None


def _find_tensors() -> Iterator[tuple[str, Any]]:
    exceptions: dict[int, str] = {}
    for name, value in _named_values():
        for place, found in _search(name, value, _DEPTH):
            if isinstance(found, BaseException):
                exceptions.setdefault(id(found), place)
            else:
                yield place, found
    for name, value in _values_in_tracebacks(exceptions):
        for place, found in _search(name, value, _DEPTH):
            if not isinstance(found, BaseException):
                yield place, found


def _search(name: str, value: object, depth: int) -> Iterator[tuple[str, Any]]:
    """The tensors and exceptions in a value: itself, or elements of a list, a tuple or a dictionary."""
    if _is_tensor(value) or isinstance(value, BaseException):
        yield name, value
    elif depth > 0 and type(value) in (list, tuple):
        for number, element in enumerate(list(value)[:_WIDTH]):  # type: ignore[call-overload]
            yield from _search(f"{name}[{number}]", element, depth - 1)
    elif depth > 0 and isinstance(value, dict):
        for key, element in list(value.items())[:_WIDTH]:
            shown = repr(key) if isinstance(key, (str, int, tuple)) else type(key).__name__
            yield from _search(f"{name}[{shown}]", element, depth - 1)


def _named_values() -> Iterator[tuple[str, object]]:
    """All variables that can be named, but those of kept tracebacks."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.partition(".")[0] not in ("ttnn", "ttmem"):
            yield from ((f"{name}.{key}", value) for key, value in list(vars(module).items()))
    for frame in _running_frames():
        if frame.f_code.co_name != "<module>":
            yield from _locals_of(frame, "")
    # Frames would hold that of this function.
    for it in [it for it in gc.get_objects() if not isinstance(it, (type, types.ModuleType, types.TracebackType, types.FrameType))]:
        if isinstance(it, types.GeneratorType):
            if it.gi_frame is not None and not _is_of_package(it.gi_frame):
                yield from _locals_of(it.gi_frame, " (generator)")
        elif isinstance(it, types.FunctionType) and it.__closure__:
            for variable, cell in zip(it.__code__.co_freevars, it.__closure__):
                try:
                    yield f"{variable} in {it.__qualname__} (closure)", cell.cell_contents
                except ValueError:
                    # Not assigned yet.
                    continue
        else:
            attributes = _attributes_of(it)
            if attributes:
                kind = type(it).__name__
                yield from ((f"{kind}.{key}", value) for key, value in list(attributes.items()))


def _values_in_tracebacks(exceptions: Mapping[int, str]) -> Iterator[tuple[str, object]]:
    """Variables of functions that have failed, which a traceback keeps, with its exception and the variable that holds that one."""
    running = {id(frame) for frame in _running_frames()}
    objects = [it for it in gc.get_objects() if isinstance(it, (BaseException, types.TracebackType))]
    named: set[int] = set()
    kept: list[tuple[str, types.TracebackType | None]] = []
    for it in objects:
        if isinstance(it, BaseException) and it.__traceback__ is not None:
            place = exceptions.get(id(it))
            of = f"{type(it).__name__}, {place}" if place else type(it).__name__
            kept.append((f"{_KEPT} of {of})", it.__traceback__))
    # Tracebacks may be kept without their exception.
    kept += [(f"{_KEPT})", it) for it in objects if isinstance(it, types.TracebackType)]
    for kind, traceback in kept:
        while traceback is not None:
            frame = traceback.tb_frame
            is_over = id(frame) not in running and not _is_of_package(frame)
            if id(traceback) not in named and is_over and frame.f_code.co_name != "<module>":
                yield from _locals_of(frame, kind)
            named.add(id(traceback))
            traceback = traceback.tb_next


def _attributes_of(instance: object) -> Mapping[str, object] | None:
    """The dictionary of an instance, without running any code of its class."""
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except Exception:
        return None
    return attributes if type(attributes) is dict else None


def _locals_of(frame: types.FrameType, kind: str) -> Iterator[tuple[str, object]]:
    name = frame.f_code.co_name
    variables = frame.f_locals
    items = list(variables.items())
    # Before Python 3.13 it is a copy that stays with the frame, and would hold tensors that the function deletes. Three references to it
    # are the frame's, this function's and the argument's; with others, the program has it from locals().
    if type(variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(variables) == 3:
        variables.clear()
    yield from ((f"{variable} in {name}{kind}", value) for variable, value in items)


def _running_frames() -> list[types.FrameType]:
    """The frames of all threads, but those of this package: one that held itself would stay until the next collection."""
    frames = []
    frame: types.FrameType | None
    for frame in list(sys._current_frames().values()):
        while frame is not None:
            if not _is_of_package(frame):
                frames.append(frame)
            frame = frame.f_back
    return frames


def _is_of_package(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__package__") == __package__
