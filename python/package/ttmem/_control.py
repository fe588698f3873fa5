"""Enables and disables tracking, and reads its status."""

from __future__ import annotations

import os

from . import _agent, _ttmem
from ._types import Status


def enable(
    *,
    folder: str | os.PathLike[str] | None = None,
    group: int | None = None,
    runtime: str | None = None,
    log: str | os.PathLike[str] | None = None,
    legacy_socket: str | os.PathLike[str] | None = None,
    ring: int | None = None,
    agent: bool | None = None,
    stacks: int | str | None = None,
) -> bool:
    """Enables tracking and returns whether reports are recorded.

    Before ``import ttnn``, this also loads the agent, if it is installed: it tracks every allocation of ttnn as ``ttmem run`` does, in
    notebooks, under pytest, in workers. From the first device on, the agent reports instead of this package. After ``import ttnn``
    that is not possible any more: ``RuntimeError``. ``agent=True`` requires the agent: ``FileNotFoundError`` if there is none.
    ``agent=False`` does not load it.
    ``stacks`` is the number of frames that the agent records of each allocation (``TTMEM_STACKS``; default: the line only), with
    ``"native"`` or ``"native,16"`` also those of C++ code.

    Without this call, tracking is enabled by ``TTMEM=1`` or ``TT_ALLOC_TRACKING_ENABLED=1`` in the environment. Arguments that
    are omitted are taken from the environment. Tracking stays disabled if the agent (``ttmem run``) already tracks this
    process, because reports would be counted twice; see :func:`status`. If tracking is enabled already, nothing changes.

    ``folder`` is the folder of the segment, in memory (``TTMEM_SHM_DIR``; default ``/dev/shm``); ``group`` is a group that may
    read the segment (``TTMEM_GROUP``); ``runtime`` is the name of what is tracked, for display; ``log`` is ``stderr`` or a file for
    problems (``TTMEM_LOG``); ``legacy_socket`` sends reports to an old server instead (``TTMEM_TRANSPORT=legacy``); ``ring`` is the
    number of events that the segment keeps for readers (``TTMEM_RING``; default 16384).
    """

    def text(path: str | os.PathLike[str] | None) -> str | None:
        return None if path is None else os.fspath(path)

    if agent is not False and legacy_socket is None:
        wanted = {
            "TTMEM_SHM_DIR": text(folder),
            "TTMEM_GROUP": group,
            "TTMEM_LOG": text(log),
            "TTMEM_RING": ring,
            "TTMEM_STACKS": stacks,
        }
        variables = {name: str(value) for name, value in wanted.items() if value is not None}
        _agent.load(agent is True, variables)
    return _ttmem.enable(text(folder), group, runtime, text(log), text(legacy_socket), ring)


def is_enabled() -> bool:
    """Returns whether reports are recorded."""
    return _ttmem.is_enabled()


def close() -> None:
    """Disables tracking and removes the segment, unless it holds a failed allocation. :func:`enable` starts again, empty."""
    _ttmem.close()


def refresh() -> None:
    """Retries what failed before, such as creating a segment, and updates the segment's heartbeat."""
    _ttmem.refresh()


def status() -> Status:
    """Returns the status of tracking."""
    return Status(*_ttmem.status())
