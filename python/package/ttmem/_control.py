"""Enables and disables tracking, and reads its status."""

from __future__ import annotations

import os

from . import _ttmem
from ._types import Status


def enable(
    *,
    folder: str | os.PathLike[str] | None = None,
    group: int | None = None,
    runtime: str | None = None,
    log: str | os.PathLike[str] | None = None,
    legacy_socket: str | os.PathLike[str] | None = None,
    ring: int | None = None,
) -> bool:
    """Enables tracking and returns whether it is enabled.

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
