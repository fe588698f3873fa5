"""Named and measured blocks and functions."""

from __future__ import annotations

import asyncio
import os
import threading
import unittest
from collections.abc import AsyncIterator, Iterator

import ttmem

from .support import TrackedCase


class Failure(Exception):
    """An exception of a test."""


class Blocks(TrackedCase):
    def test_block_measures_its_memory(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 0, 1000)
        tracker.alloc("dram", 1 << 20, 5000)
        tracker.free("dram", 1 << 20)
        with ttmem.track("block") as block:
            tracker.alloc("dram", 2 << 20, 300)
            tracker.alloc("dram", 3 << 20, 400)
            tracker.free("dram", 2 << 20)
            tracker.alloc("l1", 0, 70)
        self.assertEqual(block.peak_bytes, {"dram": 1700, "l1": 70})
        self.assertEqual(block.allocated_bytes, {"dram": 400, "l1": 70})
        # The peak before the block is kept.
        self.assertEqual(ttmem.peak(), 6000)

    def test_nested_blocks_measure_separately(self) -> None:
        tracker = ttmem.Tracker(0)

        def spike(bytes_: int) -> None:
            tracker.alloc("dram", 1 << 30, bytes_)
            tracker.free("dram", 1 << 30)

        tracker.alloc("dram", 0, 10)
        with ttmem.track("outer") as outer:
            spike(500)
            with ttmem.track("inner") as inner:
                spike(200)
            spike(700)
            ttmem.reset_peak()
            spike(50)
            self.assertEqual(ttmem.peak(), 60)
        self.assertEqual((outer.peak_bytes["dram"], inner.peak_bytes["dram"]), (710, 210))
        self.assertEqual((outer.allocated_bytes["dram"], inner.allocated_bytes["dram"]), (0, 0))
        with ttmem.track("frees") as block:
            tracker.free("dram", 0)
        self.assertEqual((block.peak_bytes["dram"], block.allocated_bytes["dram"]), (10, -10))

    def test_allocations_have_the_name_of_their_block(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 0x10, 8)
        with ttmem.track("decode"):
            tracker.alloc("dram", 0x20, 8)
            with ttmem.track("attention \ud800"):
                tracker.alloc("dram", 0x30, 8)
                ttmem.alloc(0, "dram", 0x40, 8, site="model.py:3")
            ttmem.alloc(0, "dram", 0x50, 8)
        tracker.alloc("dram", 0x60, 8)
        sites = self.sites()
        self.assertEqual((sites["0x10"], sites["0x20"], sites["0x60"]), (None, "decode", None))
        self.assertRegex(sites["0x30"] or "", "^decode / attention \ufffd+$")
        self.assertEqual((sites["0x40"], sites["0x50"]), ("model.py:3", "decode"))

    def test_lines_are_named(self) -> None:
        tracker = ttmem.Tracker(0)
        line = ttmem.CallSite("/m/model.py", 42, "load", op="ttnn.add", shape=(32, 64), dtype="bfloat16", layout="tile")
        tracker.alloc("dram", 0x10, 8, site=line)
        with ttmem.track("decode"):
            tracker.alloc("dram", 0x20, 8, site=line)
            tracker.alloc("dram", 0x30, 8, site=ttmem.CallSite(purpose="semaphore"))
        tracker.alloc("dram", 0x40, 8, site=line)
        tracker.alloc("dram", 0x50, 8, site=ttmem.CallSite(shape=[]))
        found = {it.id: it for it in ttmem.allocations(local=True) if it.pid == os.getpid()}
        for address, track in (("0x10", None), ("0x20", "decode"), ("0x40", None)):
            it = found[address]
            self.assertEqual((it.file, it.line, it.function, it.op), ("/m/model.py", 42, "load", "ttnn.add"))
            self.assertEqual((it.tensor, it.purpose, it.track), ("bfloat16 [32, 64] tile", "tensor", track))
        self.assertEqual(found["0x10"].site, found["0x40"].site)
        self.assertEqual((found["0x30"].purpose, found["0x30"].track), ("semaphore", "decode"))
        self.assertEqual((found["0x50"].purpose, found["0x50"].tensor), ("tensor", "[]"))
        for wrong in ({"dtype": "float7"}, {"layout": "heap"}, {"purpose": "fun"}):
            with self.assertRaisesRegex(ValueError, "unknown (dtype|layout|purpose) .*; expected one of: "):
                ttmem.CallSite(**wrong)
        with self.assertRaisesRegex(TypeError, "site must be a string or a ttmem.CallSite"):
            tracker.alloc("dram", 0x60, 8, site=42)

    def test_names_outlive_a_closed_tracker(self) -> None:
        with ttmem.track("kept"):
            ttmem.alloc(0, "dram", 0x10, 8)
            ttmem.close()
            ttmem.enable()
            ttmem.alloc(0, "dram", 0x08, 8, site="another")
            ttmem.alloc(0, "dram", 0x20, 8)
        self.assertEqual(self.sites(), {"0x8": "another", "0x20": "kept"})

    def test_allocations_without_space_for_a_name_count(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 0x10, 1, site="early")
        # More names than fit into a segment.
        for step in range(5000):
            tracker.alloc("dram", 0x1000 + step, 1, site=f"step {step}")
        for step in range(3):
            with ttmem.track(f"block {step}") as block:
                tracker.alloc("dram", 0x10000 + step, 8)
            self.assertEqual((block.peak_bytes["dram"], block.allocated_bytes["dram"]), (5001 + 8 * (step + 1), 8))
        ttmem.alloc(0, "dram", 0x20, 1, site="late")
        tracker.out_of_memory("dram", 1 << 40, site="later")
        tracker.alloc("dram", 0x30, 1, site="early")
        self.assertEqual(ttmem.status().live, 5000 + 3 + 3)
        self.assertEqual(ttmem.memory_allocated(0), 5000 + 24 + 3)
        sites = self.sites()
        named = [name for name in sites.values() if name is not None]
        self.assertTrue(1000 < len(named) < 5000, len(named))
        for address, name in (("0x10", "early"), ("0x1000", "step 0"), ("0x10002", "block 2"), ("0x20", None), ("0x30", "early")):
            self.assertEqual(sites[address], name)

    def test_block_enables_tracking(self) -> None:
        ttmem.close()
        with ttmem.track("first") as block:
            self.assertTrue(ttmem.is_enabled())
            ttmem.alloc(3, "dram", 0, 77)
        self.assertEqual((block.peak_bytes, block.allocated_bytes), ({"dram": 77}, {"dram": 77}))
        ttmem.close()
        with ttmem.track("empty") as block:
            pass
        self.assertEqual((block.peak_bytes, block.allocated_bytes), ({}, {}))

    def test_devices_can_be_selected(self) -> None:
        mesh, single = ttmem.Tracker([0, 1, 2, 3]), ttmem.Tracker(2)
        with ttmem.track("one", device=2) as one, ttmem.track("all", device=[0, 1, 2, 3]) as every:
            mesh.alloc("dram", 0, 100)
            single.alloc("dram", 1 << 20, 7)
        self.assertEqual((one.peak_bytes["dram"], every.peak_bytes["dram"]), (107, 407))

    def test_device_opened_and_closed_inside_is_measured(self) -> None:
        with ttmem.track("everything") as block:
            tracker = ttmem.Tracker(0, [ttmem.Banks("dram", 4, 0, 1 << 30)])
            tracker.alloc("dram", 0, 64, bytes_per_bank=16)
            tracker.close()
        self.assertEqual((block.peak_bytes, block.allocated_bytes), ({"dram": 64}, {"dram": 0}))
        with ttmem.track("after") as block:
            pass
        self.assertEqual(block.peak_bytes.get("dram", 0), 0)

    def test_exceptions_pass_through(self) -> None:
        failure = Failure("ours")
        with self.assertRaises(Failure) as caught, ttmem.track("failing") as block:
            ttmem.alloc(0, "dram", 0, 77)
            raise failure
        self.assertIs(caught.exception, failure)
        self.assertEqual(block.peak_bytes, {"dram": 77})
        ttmem.alloc(0, "dram", 0x100, 8)
        self.assertIsNone(self.sites()["0x100"])

    def test_device_may_be_closed_in_its_block(self) -> None:
        class Device:
            closed = False

            def id(self) -> int:
                if self.closed:
                    raise RuntimeError("closed")
                return 3

        device = Device()
        with ttmem.track("closes", device=device) as block:
            ttmem.alloc(device, "dram", 0, 77)
            device.closed = True
        self.assertEqual(block.peak_bytes, {"dram": 77})
        with self.assertRaises(RuntimeError):
            ttmem.track("too late", device=device)

    def test_object_is_one_block_at_a_time(self) -> None:
        block = ttmem.track("again")
        with block, self.assertRaises(RuntimeError), block:
            pass
        with block:
            ttmem.alloc(0, "dram", 0, 77)
        self.assertEqual(block.allocated_bytes, {"dram": 77})
        with self.assertRaises(TypeError):
            ttmem.track(7)  # type: ignore[arg-type]

    def test_names_are_per_thread(self) -> None:
        inside, done = threading.Event(), threading.Event()

        def other() -> None:
            with ttmem.track("other"):
                inside.set()
                done.wait(60)
                ttmem.alloc(0, "dram", 0x20, 8)

        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(60)
        ttmem.alloc(0, "dram", 0x10, 8)
        done.set()
        thread.join()
        self.assertEqual(self.sites(), {"0x10": None, "0x20": "other"})

    def test_child_exits_its_parents_block(self) -> None:
        with ttmem.track("parent") as block:
            ttmem.alloc(0, "dram", 0, 100)
            child = os.fork()
            if child == 0:
                ttmem.alloc(0, "dram", 0x20, 8)
                sites = list(self.sites().values())
                block.__exit__(None, None, None)
                os._exit(0 if sites == ["parent"] else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(block.peak_bytes, {"dram": 100})


class Functions(TrackedCase):
    def test_function_is_measured_per_call(self) -> None:
        @ttmem.track("step")
        def step(address: int, size: int) -> int:
            """Allocates."""
            ttmem.alloc(0, "dram", address, size)
            if size == 13:
                raise Failure("unlucky")
            return size

        self.assertEqual((step.__name__, step.__doc__), ("step", "Allocates."))
        self.assertEqual(step(0x1000, 100), 100)
        self.assertEqual(step(0x2000, size=50), 50)
        with self.assertRaises(Failure):
            step(0x3000, 13)
        self.assertEqual(self.sites(), {"0x1000": "step", "0x2000": "step", "0x3000": "step"})
        self.assertEqual(step.track.peak_bytes, {"dram": 163})  # type: ignore[attr-defined]
        self.assertEqual(step.track.allocated_bytes, {"dram": 13})  # type: ignore[attr-defined]

    def test_recursive_function_is_measured(self) -> None:
        @ttmem.track("deep")
        def deep(n: int) -> None:
            ttmem.alloc(0, "dram", n << 12, 10)
            if n:
                deep(n - 1)

        deep(3)
        self.assertEqual(set(self.sites().values()), {" / ".join(["deep"] * n) for n in (1, 2, 3, 4)})
        self.assertEqual(deep.track.peak_bytes, {"dram": 40})  # type: ignore[attr-defined]

    def test_generator_is_named_per_step(self) -> None:
        closed: list[str] = []

        @ttmem.track("generator")
        def generate() -> Iterator[int]:
            n = 0
            try:
                while True:
                    ttmem.alloc(0, "dram", 0x1000 + n * 16, 8)
                    try:
                        n += (yield n) or 1
                    except Failure:
                        n += 100
                    if n > 500:
                        return "end"  # type: ignore[return-value]
            finally:
                closed.append("closed")

        steps = generate()
        self.assertEqual(next(steps), 0)
        ttmem.alloc(0, "dram", 0x10, 8)
        self.assertEqual(steps.send(5), 5)  # type: ignore[attr-defined]
        self.assertEqual(steps.throw(Failure()), 105)  # type: ignore[attr-defined]
        with self.assertRaises(StopIteration) as end:
            steps.send(1000)  # type: ignore[attr-defined]
        self.assertEqual((end.exception.value, closed), ("end", ["closed"]))
        sites = self.sites()
        self.assertIsNone(sites.pop("0x10"))
        self.assertEqual(list(sites.values()), ["generator"] * 3)
        half = generate()
        with self.assertRaises(ttmem.Error):
            # Its address is still allocated by the first generator.
            next(half)
        with self.assertRaises(StopIteration):
            next(half)
        half = generate()
        half.close()  # type: ignore[attr-defined]
        self.assertEqual(generate.track.allocated_bytes, {"dram": 0})  # type: ignore[attr-defined]

    def test_names_are_per_coroutine(self) -> None:
        @ttmem.track("outer")
        async def outer(n: int) -> int:
            await asyncio.sleep(0)
            ttmem.alloc(0, "dram", n << 12, 8)
            with ttmem.track(f"inner {n}"):
                await asyncio.sleep(0)
                ttmem.alloc(0, "dram", n << 12 | 64, 8)
            if n == 3:
                raise Failure("third")
            return n

        async def gather_all() -> list[object]:
            return await asyncio.gather(*(outer(n) for n in range(1, 4)), return_exceptions=True)

        found = asyncio.run(gather_all())
        self.assertEqual(found[:2], [1, 2])
        self.assertIsInstance(found[2], Failure)
        expected = {f"{n:#x}000": "outer" for n in range(1, 4)}
        expected.update({f"{n:#x}040": f"outer / inner {n}" for n in range(1, 4)})
        self.assertEqual(self.sites(), expected)

    def test_async_generator_is_named_per_step(self) -> None:
        @ttmem.track("stream")
        async def stream() -> AsyncIterator[int]:
            for n in range(3):
                await asyncio.sleep(0)
                ttmem.alloc(0, "dram", 0x1000 + n * 16, 8)
                yield n

        async def read() -> list[int]:
            found = []
            async for n in stream():
                ttmem.alloc(0, "dram", 0x2000 + n * 16, 8)
                found.append(n)
            return found

        self.assertEqual(asyncio.run(read()), [0, 1, 2])
        sites = self.sites()
        self.assertEqual([sites[f"{0x1000 + n * 16:#x}"] for n in range(3)], ["stream"] * 3)
        self.assertEqual([sites[f"{0x2000 + n * 16:#x}"] for n in range(3)], [None] * 3)


if __name__ == "__main__":
    unittest.main()
