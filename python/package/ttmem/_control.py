"""Tracking: on, off, and how it goes."""

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
) -> bool:
    """Switches tracking on, and returns whether it is on.

    It is on by itself with ``TTMEM=1`` or ``TT_ALLOC_TRACKING_ENABLED=1`` in the environment. What is not said here is as the
    environment says. It stays off where the agent (``ttmem run``) tracks this process already, since everything would count
    twice; :func:`status` says so. While it is on already, nothing changes.

    ``folder`` is where the segment goes, in memory (``TTMEM_SHM_DIR``; ``/dev/shm``); ``group`` may read it, too (``TTMEM_GROUP``);
    ``runtime`` is what is tracked, for people; ``log`` is ``stderr`` or a file that is told what goes wrong (``TTMEM_LOG``); with
    ``legacy_socket`` an old server is told everything instead (``TTMEM_TRANSPORT=legacy``).
    """

    def text(path: str | os.PathLike[str] | None) -> str | None:
        return None if path is None else os.fspath(path)

    return _ttmem.enable(text(folder), group, runtime, text(log), text(legacy_socket))


def is_enabled() -> bool:
    """Whether what is told is recorded."""
    return _ttmem.is_enabled()


def close() -> None:
    """Ends tracking: what this process published is gone. It may be switched on again, and then knows of nothing before."""
    _ttmem.close()


def refresh() -> None:
    """Makes good what could not be done before, as a segment that found no room, and shows readers that the process is well."""
    _ttmem.refresh()


def status() -> Status:
    """How tracking is going."""
    return Status(*_ttmem.status())
