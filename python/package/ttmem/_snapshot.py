"""Memory use of all processes of this machine."""

from __future__ import annotations

import json
from typing import Any

from . import _ttmem
from ._errors import ReadError
from ._record import make
from ._schema import Allocation, Snapshot


def snapshot(
    local: bool = False,
    *,
    history: bool = False,
    events: bool = False,
    cores: bool = False,
    programs: bool = False,
    buffers: int = 0,
) -> Snapshot:
    """Returns the device memory of this machine as it is now.

    Queries the daemon if it runs. Otherwise, or if ``local``, it reads the kernel's files and the segments of processes, as
    ``ttmem`` does, with the same environment variables (``TTMEM_SHM_DIR``, ``TTMEM_QUERY_SOCKET``, ``TTMEM_TOPOLOGY``). No device is
    opened, and other threads run meanwhile. Optional parts are ``history`` and ``cores`` of each device, ``programs`` of each
    process, recent ``events``, and the given number of largest ``buffers``. Raises :class:`ttmem.ReadError` if nothing can be read.
    """
    request: dict[str, Any] = {"get": "snapshot"}
    wanted = {"history": history, "events": events, "cores": cores, "programs": programs}
    request.update({word: True for word, is_wanted in wanted.items() if is_wanted})
    if buffers:
        request["buffers"] = {"limit": buffers}
    return make(Snapshot, query(local, request))


def allocations(local: bool = False) -> tuple[Allocation, ...]:
    """Returns every live allocation on this machine, unordered. ``local`` is that of :func:`snapshot`."""
    answer = query(local, {"get": "allocations"})
    return tuple(make(Allocation, entry) for entry in answer.get("allocations", ()))


def query(local: bool, request: dict[str, Any]) -> dict[str, Any]:
    """The daemon's answer to a request, or this process's own one."""
    answer = json.loads(_ttmem.ask(local, json.dumps(request)))
    if not isinstance(answer, dict) or "error" in answer:
        raise ReadError(f"invalid answer from the daemon: {answer!r}")
    return answer
