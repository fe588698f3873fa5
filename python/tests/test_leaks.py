"""What holds the buffers of lines that leak, with tensors that stand in for ttnn's."""

from __future__ import annotations

import gc
import types
import unittest
from typing import Any

import ttmem

from .support import TrackedCase, daemon, run_python

kept: list[Any] = []


class Tensor:
    """Has memory from its creation on until it is freed, as a tensor of ttnn."""

    last = 0

    def __init__(self, tracker: ttmem.Tracker, site: str, kib: int = 4) -> None:
        Tensor.last += 0x10000
        self.tracker, self.address = tracker, Tensor.last
        tracker.alloc("dram", self.address, kib << 10, site=site)

    def __del__(self) -> None:
        self.tracker.free("dram", self.address)

    def is_allocated(self) -> bool:
        return True

    def memory_config(self) -> Any:
        return types.SimpleNamespace(buffer_type="BufferType.DRAM")

    def buffer_address(self) -> int:
        return self.address


Tensor.__module__ = "ttnn.tensor"


class Holders(TrackedCase):
    def setUp(self) -> None:
        super().setUp()
        kept.clear()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        self.addCleanup(kept.clear)
        self.tracker = ttmem.Tracker(0)

    def fail_once(self, site: str = "failing") -> None:
        lost = Tensor(self.tracker, site)
        try:
            raise KeyError(lost.address)
        except KeyError as error:
            kept.append(error)

    def tie(self, site: str = "tied") -> None:
        knot: list[Any] = [Tensor(self.tracker, site)]
        knot.append(knot)

    def test_reference_cycles_are_named_and_collected(self) -> None:
        kept.append(Tensor(self.tracker, "tied"))
        for _ in range(3):
            self.tie()
        self.assertEqual(ttmem.memory_allocated(0), 16 << 10)
        [leak] = ttmem.leaks()
        self.assertEqual((leak.site, leak.space, leak.count, leak.bytes), ("tied", "dram", 4, 16 << 10))
        self.assertEqual((leak.growth, leak.in_cycles, leak.in_tracebacks), (None, 3, 0))
        self.assertEqual(leak.names, (f"{__name__}.kept[0]",))
        expected = f"3 held only by reference cycles, freed now by gc.collect(); held by {__name__}.kept[0]"
        self.assertEqual(str(leak), f"16.0 KiB of dram in 4 buffers of tied: {expected}")
        self.assertEqual((ttmem.memory_allocated(0), ttmem.leaks()), (4 << 10, []))

    def test_kept_tracebacks_are_named_with_their_exception(self) -> None:
        self.fail_once()
        [leak] = ttmem.leaks()
        self.assertEqual((leak.count, leak.in_cycles, leak.in_tracebacks), (1, 0, 1))
        self.assertEqual(leak.names, (f"lost in fail_once (kept traceback of KeyError, {__name__}.kept[0])",))
        # A traceback may be kept without its exception.
        kept[0] = kept[0].__traceback__
        self.assertEqual(ttmem.leaks()[0].names, ("lost in fail_once (kept traceback)",))
        kept.clear()
        self.assertEqual(ttmem.leaks(), [])

    def test_buffer_in_a_variable_is_not_only_in_a_traceback(self) -> None:
        self.fail_once()
        kept.append(kept[0].__traceback__.tb_frame.f_locals["lost"])
        self.assertEqual(ttmem.leaks(), [])
        names = [name for it in ttmem.who() for name in it.names]
        self.assertIn(f"{__name__}.kept[1]", names)
        self.assertIn(f"lost in fail_once (kept traceback of KeyError, {__name__}.kept[0])", names)

    def test_search_holds_nothing(self) -> None:
        for search in (ttmem.who, ttmem.leaks):
            tensor = Tensor(self.tracker, "local")
            self.fail_once()
            search()
            del tensor
            kept.clear()
            self.assertEqual(ttmem.memory_allocated(0), 0)

    def test_variables_that_a_program_has_from_locals_stay(self) -> None:
        own = locals()
        ttmem.who()
        self.assertIs(own["self"], self)

    def test_largest_is_first(self) -> None:
        for _ in range(3):
            self.tie()
        self.fail_once()
        self.assertEqual([it.site for it in ttmem.leaks()], ["tied", "failing"])


class Growth(TrackedCase):
    def test_growth_that_the_daemon_found_is_in_it(self) -> None:
        code = """
import os, time, ttmem
ttmem.enable()
tracker = ttmem.Tracker(0)
tracker.alloc("dram", 0x900000, 4096, site="weights")
# Marks count if a reader follows the process.
while all(it.pid != os.getpid() for it in ttmem.snapshot().processes):
    time.sleep(0.05)
line = ttmem.CallSite("/home/me/model.py", 9, "step", op="ttnn.add")
for step in range(14):
    tracker.alloc("dram", 0x10000 * (step + 1), 4096, site=line)
    ttmem.mark("step", step)
for _ in range(600):
    found = ttmem.leaks()
    if found and found[0].growth.startswith("12 "):
        break
    time.sleep(0.05)
print(found[0])
"""
        with daemon(self.folder) as places:
            done = run_python(code, self.folder, **places)
        expected = "56.0 KiB of dram in 14 buffers of ttnn.add, model.py:9 (step): grew in 12 of 12 steps\n"
        self.assertEqual((done.stdout, done.stderr), (expected, ""))


if __name__ == "__main__":
    unittest.main()
