"""Random arguments cause exceptions of Python or of the package, never a panic, and figures stay right."""

from __future__ import annotations

import itertools
import os
import random
import unittest
from typing import Any

import ttmem
from ttmem import _ttmem

from .support import TrackedCase


class Misbehaving:
    """Has every attribute and method, with invalid results."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __index__(self) -> Any:
        return [7, -1, 1 << 100, "x", None][self.kind]

    def __iter__(self) -> Any:
        if self.kind == 1:
            raise KeyError("no")
        return itertools.count() if self.kind == 2 else iter([self])

    def __getattr__(self, name: str) -> Any:
        if self.kind == 3:
            raise ZeroDivisionError(name)
        return Misbehaving(0) if self.kind == 4 else self

    def __call__(self, *_: Any) -> Any:
        return itertools.repeat(1)


def arguments() -> list[Any]:
    """Returns valid and invalid arguments."""
    return [
        None, True, 0, 1, -1, 7, 64, 4096, (1 << 32) - 1, 1 << 32, (1 << 64) - 1, 1 << 64, -(1 << 70), 0.5, float("nan"),
        "", "dram", "l1", "l1_core", "cb", "kernel", "\ud800", "\0", "x" * 10_000, "application", b"dram",
        [], [0], [0, 1], [(0, 0)], [(0, 0, 15, 15)], [(-1, 0)], [[]], (), {}, {"a": 1}, set(), object(), int, itertools.count(),
        itertools.repeat((0, 0)), range(10**12), ttmem.Chip(), [ttmem.Chip()], ttmem.Chip(grid=(300, 1)), ttmem.Banks("dram", 1, 0, 64),
        [ttmem.Banks("dram", 70_000, 0, 1)], [ttmem.Banks("cb", 1, 0, 1)] * 40, ttmem.Tracker(0), ttmem.Space.DRAM,
        *(Misbehaving(kind) for kind in range(5)),
    ]  # fmt: skip


class RandomArguments(TrackedCase):
    def test_random_calls_do_not_panic(self) -> None:
        draw = random.Random(8)
        pool = arguments()
        tracker = ttmem.Tracker(0)
        program = tracker.program("x")
        calls: list[Any] = [
            ttmem.alloc,
            ttmem.free,
            ttmem.Tracker,
            ttmem.memory_allocated,
            ttmem.peak,
            ttmem.reset_peak,
            ttmem.track,
            ttmem.L1Tracker,
            tracker.alloc,
            tracker.free,
            tracker.free_anywhere,
            tracker.free_on_cores,
            tracker.out_of_memory,
            tracker.program,
            program.cb,
            program.place,
            program.kernel,
            _ttmem.Label,
            _ttmem.reset_own_peak,
        ]
        good = 0
        for _ in range(20_000):
            call = draw.choice(calls)
            args = [draw.choice(pool) for _ in range(draw.randrange(7))]
            try:
                call(*args)
                good += 1
            except Exception:
                # PyO3's PanicException is no Exception, so it fails the test.
                pass
        self.assertGreater(good, 1000)
        status = ttmem.status()
        self.assertEqual((status.on, status.lost), (True, 0))
        # Tracking still works.
        before = ttmem.memory_allocated(900, "host")
        ttmem.alloc(900, "host", 1 << 50, 12345)
        self.assertEqual(ttmem.memory_allocated(900, "host"), before + 12345)
        found = [it for it in ttmem.snapshot(local=True).processes if it.pid == os.getpid()]
        self.assertEqual(len(found), 1)
        listed = [it for it in ttmem.allocations(local=True) if it.pid == os.getpid()]
        self.assertEqual(len(listed) + status.unlisted, ttmem.status().live)


if __name__ == "__main__":
    unittest.main()
