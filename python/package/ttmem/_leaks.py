"""Call sites of this process that leak, with what holds their buffers."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _snapshot, _who
from ._schema import Allocation

#: Names that a text has of one call site.
_NAMES = 3


@dataclass(frozen=True)
class LeakingSite:
    """Buffers of one line and operation in one space, and why they stay. As a ``str``, it is a sentence."""

    site: str
    """The operation and the line."""
    space: str
    count: int
    """Buffers, those in cycles included."""
    bytes: int
    """Allocated bytes per device, else requested bytes."""
    growth: str | None
    """As ``12 of 14 steps``; ``None`` if the daemon knows no growth of this line, or if there is no daemon."""
    in_cycles: int
    """Buffers that only reference cycles held. They are freed now."""
    in_tracebacks: int
    """Buffers that only tracebacks of exceptions hold."""
    names: tuple[str, ...]
    """The variables that hold the others, as :func:`ttmem.who` names them."""

    def __str__(self) -> str:
        reasons = [] if self.growth is None else [f"grew in {self.growth}"]
        if self.in_cycles:
            reasons.append(f"{self.in_cycles} held only by reference cycles, freed now by gc.collect()")
        if self.in_tracebacks:
            reasons.append(f"{self.in_tracebacks} held only by kept tracebacks")
        if self.names:
            reasons.append(f"held by {list_names(self.names)}")
        return f"{format_size(self.bytes)} of {self.space} in {count_buffers(self.count)} of {self.site}: {'; '.join(reasons)}"


def leaks() -> list[LeakingSite]:
    """Returns the call sites of this process that leak, with what holds their buffers, largest first.

    These are lines that grow from mark to mark (:func:`ttmem.mark`), if the daemon runs; lines with buffers that only reference cycles
    hold, which this call collects; and lines with buffers that only the tracebacks of kept exceptions hold. That takes a tenth of a second
    and more, and other threads should not allocate meanwhile: for a report or a test, not for a loop.
    """
    grown = _grown_sites()
    before = _who.own_buffers()
    gc.collect()
    gc.collect()
    after = {(it.space, it.address): it.names for it in _who.who()}
    by_site: dict[tuple[str, str], list[Allocation]] = {}
    for buffer in before:
        by_site.setdefault((describe_site(buffer), str(buffer.space)), []).append(buffer)
    found = []
    for (site, space), buffers in by_site.items():
        names = [after[place] for it in buffers if (place := (space, int(it.id, 16))) in after]
        in_tracebacks = sum(1 for of_one in names if of_one and all(map(_who.is_in_traceback, of_one)))
        in_cycles = len(buffers) - len(names)
        growth = grown.get((site, space))
        if growth is not None or in_cycles or in_tracebacks:
            size = sum(map(_who.allocated_bytes, buffers))
            distinct = tuple(sorted({name for of_one in names for name in of_one}))
            found.append(LeakingSite(site, space, len(buffers), size, growth, in_cycles, in_tracebacks, distinct))
    return sorted(found, key=lambda it: (-it.bytes, it.site))


def _grown_sites() -> dict[tuple[str, str], str]:
    """The lines that grow, as the daemon has seen them, with the intervals in which they did."""
    pid = os.getpid()
    answer = _snapshot.query(False, {"get": "snapshot", "leaks": True})
    own = [it for it in answer.get("leaks", ()) if it["pid"] == pid]
    return {(join_site(it.get("op"), it["site_name"]), it["space"]): _describe_growth(it) for it in own}


def _describe_growth(leak: dict[str, Any]) -> str:
    nouns = {"marks": leak["mark"] or "mark", "replays": "replay"}
    noun = nouns.get(leak["basis"], "interval")
    return f"{leak['grown_intervals']} of {leak['intervals']} {noun}s"


def describe_site(buffer: Allocation) -> str:
    """The operation and the line that allocated a buffer."""
    return join_site(buffer.op, buffer.site_name)


def join_site(op: str | None, site: str | None) -> str:
    """An operation and a line as one text."""
    site = site or "an unknown line"
    return site if op is None or op == site else f"{op}, {site}"


def list_names(names: Sequence[str]) -> str:
    """The shortest names, and how many more there are."""
    shortest = sorted(names, key=lambda name: (len(name), name))
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(shortest[:_NAMES]) + more


def count_buffers(count: int) -> str:
    return f"{count} buffer{'' if count == 1 else 's'}"


def format_size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
