"""Who holds what on this machine."""

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
    """Everything that is known of this machine's device memory at this moment.

    The daemon is asked if there is one, else (or if ``local``) the kernel's files and what processes publish are read here, as
    ``ttmem`` does, with the same environment (``TTMEM_SHM_DIR``, ``TTMEM_QUERY_SOCKET``, ``TTMEM_TOPOLOGY``). No chip is opened. Other
    threads run meanwhile. Beyond what everybody wants there are each device's ``history`` and ``cores``, each process's ``programs``,
    the last ``events``, and the so many largest ``buffers``. Raises :class:`ttmem.ReadError` if nothing can be read.
    """
    request: dict[str, Any] = {"get": "snapshot"}
    wanted = {"history": history, "events": events, "cores": cores, "programs": programs}
    request.update({word: True for word, is_wanted in wanted.items() if is_wanted})
    if buffers:
        request["buffers"] = {"limit": buffers}
    return make(Snapshot, _ask(local, request))


def allocations(local: bool = False) -> tuple[Allocation, ...]:
    """Every live allocation on this machine, in no order; otherwise as :func:`snapshot`."""
    answer = _ask(local, {"get": "allocations"})
    return tuple(make(Allocation, it) for it in answer.get("allocations", ()))


def _ask(local: bool, request: dict[str, Any]) -> dict[str, Any]:
    answer = json.loads(_ttmem.ask(local, json.dumps(request)))
    if not isinstance(answer, dict) or "error" in answer:
        raise ReadError(f"the daemon did not understand: {answer!r}")
    return answer
