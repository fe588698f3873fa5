"""Names of the variables that hold live tensors."""

from __future__ import annotations

import gc
import os
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _snapshot

#: How deep lists, tuples and dictionaries are searched, and how many of their elements.
_DEPTH, _WIDTH = 4, 10_000
_SPACES = {"DRAM": "dram", "L1": "l1", "L1_SMALL": "l1_small", "TRACE": "trace"}


@dataclass(frozen=True)
class NamedBuffer:
    """A live buffer of this process, and the variables that hold it."""

    names: tuple[str, ...]
    """As ``Layer.weight``, ``x in forward`` or ``Model.cache[3]``; empty if no variable was found."""
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
    names: dict[tuple[str, int], list[str]] = {}
    for name, tensor in _find_tensors():
        place = _place_of(tensor)
        if place is not None:
            known = names.setdefault(place, [])
            if name not in known:
                known.append(name)
    pid = os.getpid()
    found = [
        NamedBuffer(
            tuple(sorted(names.get((str(it.space), int(it.id, 16)), ()))),
            str(it.space),
            int(it.id, 16),
            it.requested_bytes if it.allocated_bytes is None else it.allocated_bytes,
            it.site_name,
            it.tensor,
        )
        for it in _snapshot.allocations(local=True)
        if it.pid == pid and str(it.space) in _SPACES.values()
    ]
    return sorted(found, key=lambda it: (-it.bytes, it.space, it.address))


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
    own = sys._getframe()
    for name, value in _named_values(own):
        yield from _search(name, value, _DEPTH)


def _search(name: str, value: object, depth: int) -> Iterator[tuple[str, Any]]:
    """The tensors in a value: itself, or elements of a list, a tuple or a dictionary."""
    if _is_tensor(value):
        yield name, value
    elif depth > 0 and type(value) in (list, tuple):
        for number, element in enumerate(list(value)[:_WIDTH]):  # type: ignore[call-overload]
            yield from _search(f"{name}[{number}]", element, depth - 1)
    elif depth > 0 and isinstance(value, dict):
        for key, element in list(value.items())[:_WIDTH]:
            shown = repr(key) if isinstance(key, (str, int, tuple)) else type(key).__name__
            yield from _search(f"{name}[{shown}]", element, depth - 1)


def _named_values(own: types.FrameType) -> Iterator[tuple[str, object]]:
    """All variables that can be named."""
    running = {id(frame) for top in sys._current_frames().values() for frame in _callers(top)}
    inside = {id(frame) for frame in _frames_of_package(own)}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.partition(".")[0] not in ("ttnn", "ttmem"):
            yield from ((f"{name}.{key}", value) for key, value in list(vars(module).items()))
    for top in sys._current_frames().values():
        for frame in _callers(top):
            if id(frame) not in inside and frame.f_code.co_name != "<module>":
                yield from _locals_of(frame, "")
    for it in gc.get_objects():
        if isinstance(it, types.GeneratorType) and it.gi_frame is not None:
            yield from _locals_of(it.gi_frame, " (generator)")
        elif isinstance(it, types.TracebackType):
            if id(it.tb_frame) not in running and it.tb_frame.f_code.co_name != "<module>":
                yield from _locals_of(it.tb_frame, " (kept traceback)")
        elif isinstance(it, types.FunctionType) and it.__closure__:
            for variable, cell in zip(it.__code__.co_freevars, it.__closure__):
                try:
                    yield f"{variable} in {it.__qualname__} (closure)", cell.cell_contents
                except ValueError:
                    # Not assigned yet.
                    continue
        elif not isinstance(it, (type, types.ModuleType)):
            attributes = _attributes_of(it)
            if attributes:
                kind = type(it).__name__
                yield from ((f"{kind}.{key}", value) for key, value in list(attributes.items()))


def _attributes_of(instance: object) -> Mapping[str, object] | None:
    """The dictionary of an instance, without running any code of its class."""
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except Exception:
        return None
    return attributes if type(attributes) is dict else None


def _locals_of(frame: types.FrameType, kind: str) -> Iterator[tuple[str, object]]:
    name = frame.f_code.co_name
    yield from ((f"{variable} in {name}{kind}", value) for variable, value in list(frame.f_locals.items()))


def _callers(top: types.FrameType | None) -> Iterator[types.FrameType]:
    while top is not None:
        yield top
        top = top.f_back


def _frames_of_package(own: types.FrameType) -> Iterator[types.FrameType]:
    """The frames of this package that search now."""
    for frame in _callers(own):
        if frame.f_globals.get("__package__") != __package__:
            return
        yield frame
