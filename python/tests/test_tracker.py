"""Reports appear in snapshots; invalid reports raise exceptions and change nothing."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import unittest

import ttmem
from ttmem import errors

from .support import TrackedCase, run_program, run_python


class Reports(TrackedCase):
    def test_buffer_counts_until_it_is_freed(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 0x1000, 4096)
        tracker.alloc(ttmem.Space.L1, 0x2000, 2048)
        usage = self.usage()
        self.assertEqual((usage.dram.requested_bytes, usage.l1.requested_bytes), (4096, 2048))
        self.assertIsNone(usage.dram.allocatable_bytes)
        tracker.free("dram", 0x1000)
        tracker.free_anywhere(0x2000)
        usage = self.usage()
        self.assertEqual((usage.dram.requested_bytes, usage.l1.requested_bytes), (0, 0))
        self.assertTrue(self.process().complete)

    def test_program_shows_the_same(self) -> None:
        ttmem.alloc(3, "dram", 0x1000, 4096, site="model.py:42 forward")
        snapshot = run_program("--json", "--local", folder=self.folder)
        process = next(it for it in snapshot["processes"] if it["pid"] == os.getpid())
        self.assertEqual(process["summary"]["dram_bytes"], 4096)
        self.assertEqual(process["summary"]["indexes"], [3])
        self.assertEqual(process["tracker"]["writer"], f"ttmem-python {ttmem.__version__}")
        listed = run_program("dump", "--json", "--local", folder=self.folder)["allocations"]
        self.assertEqual([it["site_name"] for it in listed], ["model.py:42 forward"])

    def test_mesh_allocation_is_one_record(self) -> None:
        class Mesh:
            def get_device_ids(self) -> list[int]:
                return [0, 1, 2, 3]

            def id(self) -> int:
                raise AssertionError("the id of a mesh is no device number")

        class Device:
            def id(self) -> int:
                return 2

        self.assertEqual(ttmem.Tracker(Mesh()).devices, (0, 1, 2, 3))
        self.assertEqual(ttmem.Tracker(Device()).devices, (2,))
        ttmem.alloc(Mesh(), "dram", 64, 1024)
        ttmem.alloc(Device(), "dram", 1 << 20, 512)
        self.assertEqual(ttmem.status().live, 2)
        self.assertEqual([self.usage(n).dram.requested_bytes for n in range(4)], [1024, 1024, 1536, 1024])
        ttmem.free([3, 2, 1, 0], "dram", 64)
        self.assertEqual(ttmem.status().live, 1)

    def test_banks_give_allocated_bytes(self) -> None:
        chip = ttmem.Chip(index=1, unique_id=0x1234, arch="wormhole_b0", board="n150", grid=(8, 8))
        banks = [ttmem.Banks("dram", 12, 1 << 20, 1 << 30), ttmem.Banks("l1", 64, 0x19D60, 1 << 20)]
        tracker = ttmem.Tracker([chip], banks)
        tracker.alloc("dram", 1 << 20, 2048, bytes_per_bank=2048, occupied=2048)
        tracker.alloc("l1", 0x20000, 8192, bytes_per_bank=2048, cores=[(0, 0, 3, 0)])
        usage = self.usage(1)
        self.assertEqual(usage.dram.allocated_bytes, 12 * 2048)
        self.assertEqual(usage.dram.free_bytes, 12 * ((1 << 30) - 2048))
        self.assertEqual(usage.l1.allocated_bytes, 64 * 2048)
        self.assertEqual(ttmem.memory_allocated(1), 12 * 2048)
        (allocator,) = self.process().allocators
        self.assertEqual(allocator.devices, ("0x0000000000001234",))

    def test_programs_register_buffers_and_kernels(self) -> None:
        tracker = ttmem.Tracker(0)
        with tracker.program("matmul", 7) as program:
            self.assertEqual(program.number, 7)
            cb = program.cb(2048, 0x20000, [(0, 0, 3, 3)])
            program.place("scratch", 512, 0x30000, [(0, 0)])
            program.cb(1024, 0x40000, [(0, 0)], view=True)
            kernel = program.kernel(4096, [(0, 0, 3, 3)])
            program.dispatch()
            usage = self.usage()
            self.assertEqual((usage.cb.registered_bytes, usage.cb.resident_bytes), (16 * 2048, 16 * 2048))
            self.assertEqual(usage.scratch.registered_bytes, 512)
            self.assertEqual(usage.kernel.registered_bytes, 16 * 4096)
            (listed,) = self.process().programs or ()
            self.assertEqual((listed.id, listed.name, listed.dispatches, listed.view_count), (7, "matmul", 1, 1))
            cb.remove()
            kernel.remove()
            usage = self.usage()
            self.assertTrue(usage.cb is None or usage.cb.registered_bytes == 0)
        self.assertFalse(self.process().programs)

    def test_buffers_without_address_add_up(self) -> None:
        program = ttmem.Tracker(0).program(dispatches=False)
        first, _ = program.cb(1000), program.cb(1000)
        usage = self.usage()
        self.assertEqual((usage.cb.registered_bytes, usage.cb.resident_bytes), (2000, None))
        first.remove()
        self.assertEqual(self.usage().cb.registered_bytes, 1000)

    def test_residency_is_known_if_dispatches_are_reported(self) -> None:
        for dispatches, resident in ((True, 0), (False, None)):
            with ttmem.Tracker(0).program(dispatches=dispatches) as program:
                program.cb(64, 0x20000, [(0, 0)])
                usage = self.usage()
                self.assertEqual((usage.cb.registered_bytes, usage.cb.resident_bytes), (64, resident))

    def test_failed_allocation_is_a_finding(self) -> None:
        ttmem.Tracker(0).out_of_memory("dram", 1 << 40)
        found = [it for it in ttmem.snapshot(local=True).findings if it.kind == "out_of_memory"]
        self.assertEqual([(it.space, it.bytes, it.pid) for it in found], [("dram", 1 << 40, os.getpid())])
        self.assertTrue(found[0].text.endswith(" requested 1.0 TiB of DRAM on device 0"), found[0].text)

    def test_exit_removes_the_segment_unless_an_allocation_failed(self) -> None:
        for report, left in (("alloc('dram', 64, 64)", []), ("out_of_memory('dram', 64)", ["", ".first"])):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                done = run_python(f"import ttmem; ttmem.Tracker(0).{report}", folder, TTMEM="1")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                # The user's index of segments stays as long as there is one.
                names = sorted(name for name in os.listdir(folder) if not name.startswith("ttmem-index."))
                self.assertEqual([name.removeprefix(names[0]) for name in names], left, report)

    def test_closed_device_has_no_allocations(self) -> None:
        tracker = ttmem.Tracker(0, [ttmem.Banks("dram", 12, 0, 1 << 30)])
        tracker.alloc("dram", 64, 64)
        tracker.close()
        self.assertEqual(ttmem.status().live, 0)
        with self.assertRaises(errors.UnknownAllocator):
            tracker.alloc("dram", 64, 64)

    def test_tracking_can_be_closed_and_enabled_again(self) -> None:
        tracker = ttmem.Tracker(5)
        program = tracker.program("old")
        cb, kernel = program.cb(64, 0), program.kernel(64)
        tracker.alloc("dram", 64, 64)
        ttmem.close()
        self.assertFalse(ttmem.is_enabled())
        self.assertEqual(os.listdir(self.folder), [])
        # While tracking is off, reports do nothing.
        cb.remove()
        kernel.remove()
        program.cb(64).remove()
        program.kernel(64).remove()
        program.dispatch()
        program.end()
        tracker.alloc("dram", 64, 64)
        tracker.free("dram", 4096)
        ttmem.alloc(0, "dram", 0, 1)
        self.assertEqual(ttmem.status(), ttmem.Status(False, None, None, 0, 0, 0, 0))
        ttmem.enable()
        ttmem.Tracker(9).alloc("dram", 1, 1)
        tracker.alloc("dram", 64, 32)
        self.assertEqual(self.usage(5).dram.requested_bytes, 32)
        self.assertEqual(self.usage(9).dram.requested_bytes, 1)
        for registered in (cb, kernel):
            with self.assertRaises(ttmem.UnknownFree):
                registered.remove()
        with self.assertRaises(errors.UnknownProgram):
            program.dispatch()

    def test_environment_enables_tracking(self) -> None:
        code = "import ttmem; ttmem.alloc(0, 'dram', 64, 64); print(ttmem.is_enabled(), ttmem.status().live)"
        for variable in ("TTMEM", "TT_ALLOC_TRACKING_ENABLED"):
            self.assertEqual(run_python(code, self.folder, **{variable: "1"}).stdout, "True 1\n")
        self.assertEqual(run_python(code, self.folder).stdout, "False 0\n")

    def test_nothing_is_printed(self) -> None:
        code = (
            "import ttmem; ttmem.enable(folder='/nowhere/at/all'); ttmem.alloc(0, 'dram', 64, 64)\n"
            "try: ttmem.free(0, 'dram', 1)\nexcept ttmem.Error: pass\n"
            "assert ttmem.status().segment is None and ttmem.status().live == 1, ttmem.status()\n"
            "assert 'cannot' in ttmem.status().reason, ttmem.status()"
        )
        done = run_python(code, self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Misuse(TrackedCase):
    def test_each_refusal_has_its_class(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 64, 64)
        tracker.free("dram", 64)
        refused = {
            ttmem.DoubleFree: lambda: tracker.free("dram", 64),
            ttmem.UnknownFree: lambda: tracker.free("dram", 65),
            errors.ZeroSize: lambda: tracker.alloc("dram", 1, 0),
            errors.TooLarge: lambda: tracker.alloc("dram", 1, 1 << 60),
            errors.BeyondAddresses: lambda: tracker.alloc("dram", (1 << 64) - 1, 64),
            errors.WrongSpace: lambda: tracker.alloc("cb", 1, 64),
            errors.UnknownChip: lambda: ttmem.alloc(1 << 30, "dram", 1, 64),
        }
        for kind, call in refused.items():
            with self.subTest(kind=kind.__name__):
                with self.assertRaises(ttmem.Error) as caught:
                    call()
                self.assertIs(type(caught.exception), kind)
                self.assertTrue(str(caught.exception))
        tracker.alloc("dram", 64, 64)
        with self.assertRaises(errors.StillHeld):
            tracker.alloc("dram", 64, 64)
        with self.assertRaises(errors.Replaced):
            tracker.alloc("dram", 64, 128)
        self.assertEqual(self.usage().dram.requested_bytes, 128)
        kinds = {it.kind for it in ttmem.snapshot(local=True).findings}
        self.assertLessEqual({"double_free", "unknown_free", "refused", "replaced"}, kinds)

    def test_every_class_has_its_kind(self) -> None:
        classes = [it for it in vars(errors).values() if isinstance(it, type) and issubclass(it, ttmem.Error)]
        kinds = {it.kind for it in classes}
        self.assertEqual(len(kinds), len(classes))
        for it in classes:
            self.assertEqual(it.kind, re.sub("(?<!^)(?=[A-Z])", "_", it.__name__).lower())

    def test_wrong_arguments_raise_builtin_exceptions(self) -> None:
        tracker = ttmem.Tracker(0)
        wrong = [
            (OverflowError, lambda: tracker.alloc("dram", -1, 64)),
            (OverflowError, lambda: tracker.alloc("dram", 0, -64)),
            (OverflowError, lambda: tracker.alloc("dram", 1 << 64, 64)),
            (OverflowError, lambda: tracker.alloc("dram", 0, 1 << 200)),
            (OverflowError, lambda: ttmem.alloc(-1, "dram", 0, 64)),
            (OverflowError, lambda: ttmem.free(1 << 40, "dram", 0)),
            (TypeError, lambda: tracker.alloc(None, 0, 64)),
            (TypeError, lambda: tracker.alloc("dram", None, 64)),
            (TypeError, lambda: tracker.alloc("dram", "64", 64)),
            (TypeError, lambda: tracker.alloc("dram", 1.5, 64)),
            (TypeError, lambda: tracker.alloc("dram", 0)),
            (TypeError, lambda: tracker.alloc("dram", 0, 64, nonsense=1)),
            (TypeError, lambda: tracker.alloc("dram", 0, 64, site=7)),
            (TypeError, lambda: ttmem.alloc(None, "dram", 0, 64)),
            (TypeError, lambda: ttmem.alloc("0", "dram", 0, 64)),
            (TypeError, lambda: ttmem.alloc(object(), "dram", 0, 64)),
            (ValueError, lambda: tracker.alloc("DRAM", 0, 64)),
            (ValueError, lambda: tracker.alloc("", 0, 64)),
            (UnicodeEncodeError, lambda: tracker.alloc("\ud800", 0, 64)),
            (ValueError, lambda: tracker.alloc("l1", 0, 64, cores=[(16, 0)])),
            (ValueError, lambda: tracker.alloc("l1", 0, 64, cores=[(3, 0, 1, 0)])),
            (ValueError, lambda: tracker.alloc("l1", 0, 64, cores=[])),
            (ValueError, lambda: tracker.alloc("l1", 0, 64, cores=[(1, 2, 3)])),
            (TypeError, lambda: tracker.alloc("l1", 0, 64, cores=7)),
            (OverflowError, lambda: tracker.alloc("l1", 0, 64, cores=[(-1, 0)])),
            (ValueError, lambda: ttmem.Tracker([])),
            (TypeError, lambda: ttmem.Tracker("0")),
            (AttributeError, lambda: ttmem.Tracker(0, [7])),
            (ValueError, lambda: ttmem.Tracker(ttmem.Chip(arch="grayskull"))),
            (ValueError, lambda: tracker.program("x", 0)),
            (OverflowError, lambda: tracker.program("x", -1)),
            (ValueError, lambda: tracker.program("x").kernel(1, kind="other")),
            (TypeError, lambda: ttmem.enable(folder=7)),
            (OverflowError, lambda: ttmem.enable(group=-1)),
        ]
        live = ttmem.status().live
        for n, (kind, call) in enumerate(wrong):
            with self.subTest(n=n), self.assertRaises(kind):
                call()
        self.assertEqual(ttmem.status().live, live)

    def test_any_name_is_accepted(self) -> None:
        tracker = ttmem.Tracker(0)
        names = ["", "\0", "\ud800 half", "é" * 400, "x" * 100_000, "a\nb\x1b[31m", "🧮"]
        for n, name in enumerate(names):
            tracker.alloc("dram", n * 64, 64, site=name)
            tracker.program(name).cb(64)
        listed = run_program("dump", "--json", "--local", folder=self.folder)["allocations"]
        self.assertEqual(len(listed), 2 * len(names))
        sites = {it["site_name"] for it in listed if it["space"] == "dram"}
        self.assertIn("\ufffd half", {site.replace("\ufffd\ufffd\ufffd", "\ufffd") for site in sites if site})
        self.assertIn("é" * 256, sites)

    def test_exception_of_a_device_is_raised(self) -> None:
        class Broken:
            def id(self) -> int:
                raise KeyError("gone")

        with self.assertRaises(KeyError):
            ttmem.alloc(Broken(), "dram", 0, 64)

    def test_threads_report_concurrently(self) -> None:
        tracker = ttmem.Tracker(0)
        failures: list[BaseException] = []

        def work(n: int) -> None:
            try:
                for step in range(2000):
                    address = n << 40 | step << 12
                    tracker.alloc("dram", address, 4096)
                    if step % 2:
                        tracker.free("dram", address)
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(ttmem.status().live, 8 * 1000)
        self.assertEqual(ttmem.memory_allocated(), 8 * 1000 * 4096)
        self.assertEqual(self.usage().dram.count, 8000)


class Children(TrackedCase):
    def in_child(self, work: object) -> None:
        """Runs a function in a forked child, and fails if it does."""
        child = os.fork()
        if child == 0:
            try:
                work()  # type: ignore[operator]
            except BaseException as e:
                os.write(2, f"in the child: {e!r}\n".encode())
                os._exit(1)
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_forked_child_has_its_own_segment(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 64, 1000)
        parents = ttmem.status().segment

        def child() -> None:
            assert ttmem.status().live == 0, ttmem.status()
            tracker.alloc("dram", 64, 64)
            assert ttmem.status().segment != parents, ttmem.status()
            assert ttmem.memory_allocated() == 64, ttmem.memory_allocated()
            assert ttmem.peak() == 64
            assert self.usage().dram.requested_bytes == 64
            tracker.free("dram", 64)
            assert (ttmem.memory_allocated(), ttmem.peak()) == (0, 64)
            ttmem.close()

        self.in_child(child)
        self.assertEqual(ttmem.status().segment, parents)
        self.assertEqual(ttmem.memory_allocated(), 1000)

    def test_child_cannot_free_its_parents_buffer(self) -> None:
        tracker = ttmem.Tracker(0)
        tracker.alloc("dram", 64, 1000)

        def child() -> None:
            try:
                tracker.free("dram", 64)
                raise AssertionError("the buffer is the parent's")
            except errors.InheritedFree:
                pass

        self.in_child(child)
        self.assertEqual(ttmem.memory_allocated(), 1000)

    def test_process_pool_reports(self) -> None:
        code = (
            "import multiprocessing, os, ttmem\n"
            "def work(n):\n"
            "    ttmem.alloc(n, 'dram', 64, 100 + n)\n"
            "    return ttmem.memory_allocated(n), ttmem.status().live, os.getpid()\n"
            "if __name__ == '__main__':\n"
            "    ttmem.alloc(0, 'dram', 64, 7)\n"
            "    with multiprocessing.get_context('fork').Pool(3, maxtasksperchild=1) as pool:\n"
            "        found = pool.map(work, range(6), chunksize=1)\n"
            "    assert [it[:2] for it in found] == [(100 + n, 1) for n in range(6)], found\n"
            "    assert ttmem.memory_allocated(0) == 7\n"
            "    print('done')\n"
        )
        done = run_python(code, self.folder, TTMEM="1")
        self.assertEqual((done.stdout, done.stderr), ("done\n", ""))


if __name__ == "__main__":
    unittest.main()
