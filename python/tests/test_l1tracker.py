"""The guide's manual tracker: its exact output, and what it publishes."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import unittest

import ttmem
from ttmem import L1Tracker

from .support import TrackedCase, run_python


def printed(work: object) -> str:
    """Returns what a function prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        work()  # type: ignore[operator]
    return out.getvalue()


class Guide(unittest.TestCase):
    """The examples of the guide, while tracking is off."""

    def setUp(self) -> None:
        ttmem.close()

    def test_first_snippet(self) -> None:
        core_range = range(64)
        tracker = L1Tracker()
        self.assertEqual(tracker.track_cb(1024, 2048), 2097152)
        self.assertEqual(tracker.track_kernel(num_cores=len(core_range)), 64 * 51200)
        self.assertEqual((tracker.cb_total, tracker.kernel_est, tracker.num_kernels), (2097152, 3276800, 1))
        self.assertEqual(
            printed(tracker.summary),
            "\n============================================================\n"
            "L1 Memory Usage Breakdown\n"
            "============================================================\n"
            "Circular Buffers:       2.0 MB\n"
            "Kernel Code (est):      3.1 MB\n"
            "  (1 kernels)\n"
            "Total L1 Overhead:      5.1 MB\n"
            "============================================================\n\n",
        )

    def test_figures_of_the_guide(self) -> None:
        # 95.2 MB of circular buffers, and 128 kernels on 313 cores in all. Its columns are those that its code prints.
        tracker = L1Tracker()
        tracker.track_cb(1, round(95.2 * 1024 * 1024))
        for cores in [2] * 71 + [3] * 57:
            tracker.track_kernel(cores)
        self.assertEqual(
            printed(tracker.summary),
            "\n============================================================\n"
            "L1 Memory Usage Breakdown\n"
            "============================================================\n"
            "Circular Buffers:      95.2 MB\n"
            "Kernel Code (est):     15.3 MB\n"
            "  (128 kernels)\n"
            "Total L1 Overhead:    110.5 MB\n"
            "============================================================\n\n",
        )

    def test_second_snippet(self) -> None:
        tracker = L1Tracker()
        self.assertEqual(printed(lambda: tracker.cb_alloc(1024, 2048)), "CB: +2.0MB\n")
        self.assertEqual(printed(lambda: tracker.cb_alloc(tiles=100, tile_size=1024)), "CB: +0.1MB\n")
        self.assertEqual(printed(lambda: tracker.kernel_add(cores=64)), "")
        self.assertEqual(printed(tracker.kernel_add), "")
        self.assertEqual((tracker.cb, tracker.kern), (2097152 + 102400, 50 * 1024 * 65))
        self.assertEqual(printed(tracker.show), "\nL1: CBs=2.1MB, Kernels=3.2MB\n")

    def test_interfaces_share_counters(self) -> None:
        tracker = L1Tracker()
        tracker.track_cb(2, 1024)
        printed(lambda: tracker.cb_alloc(3, 1024))
        tracker.track_kernel()
        tracker.kernel_add(2)
        self.assertEqual((tracker.cb_total, tracker.cb), (5120, 5120))
        self.assertEqual((tracker.kernel_est, tracker.kern, tracker.num_kernels), (153600, 153600, 2))

    def test_only_documented_methods_print(self) -> None:
        def quiet() -> None:
            with L1Tracker(device=3) as tracker:
                tracker.track_cb(1, 1)
                tracker.track_kernel()
                tracker.kernel_add()

        self.assertEqual(printed(quiet), "")


class Published(TrackedCase):
    def test_counts_are_published_as_a_program(self) -> None:
        with L1Tracker(device=2) as tracker:
            tracker.track_cb(1024, 2048)
            tracker.track_cb(1024, 2048)
            tracker.track_kernel(64)
            usage = self.usage(2)
            self.assertEqual((usage.cb.registered_bytes, usage.cb.resident_bytes), (2 * 2097152, None))
            self.assertEqual((usage.kernel.registered_bytes, usage.kernel.resident_bytes), (3276800, None))
            (program,) = self.process().programs or ()
            self.assertEqual(program.name, "L1Tracker")
        self.assertEqual(ttmem.status().live, 0)
        self.assertEqual(tracker.cb_total, 2 * 2097152)

    def test_kernel_sizes_are_estimated(self) -> None:
        tracker = L1Tracker()
        tracker.track_kernel(4)
        (kernel,) = (it for it in ttmem.allocations(local=True) if it.space == "kernel")
        self.assertEqual(kernel.requested_bytes, 204800)
        self.assertTrue(kernel.raw.get("estimated"), kernel.raw)

    def test_close_removes_what_was_published(self) -> None:
        tracker = L1Tracker()
        tracker.track_cb(1, 2048)
        tracker.close()
        tracker.close()
        self.assertEqual(ttmem.status().live, 0)
        tracker.track_cb(1, 2048)
        self.assertGreater(ttmem.status().live, 0)
        del tracker
        gc.collect()
        self.assertEqual(ttmem.status().live, 0)

    def test_two_trackers_are_two_programs(self) -> None:
        first, second = L1Tracker(), L1Tracker()
        first.track_cb(1, 300)
        second.track_cb(1, 60)
        second.track_cb(1, 40)
        programs = {(it.cb_bytes, it.residency_unknown, it.estimated) for it in self.process().programs or ()}
        self.assertEqual(programs, {(300, True, False), (100, True, False)})
        # Memory of programs overlaps: the largest counts, not the sum.
        self.assertEqual(self.usage().cb.registered_bytes, 300)
        first.close()
        self.assertEqual(self.usage().cb.registered_bytes, 100)

    def test_forked_child_publishes_its_own(self) -> None:
        tracker = L1Tracker()
        tracker.track_cb(1, 1000)
        child = os.fork()
        if child == 0:
            tracker.track_cb(1, 24)
            own = self.usage().cb.registered_bytes
            tracker.close()
            findings = [it for it in ttmem.snapshot(local=True).findings if it.pid == os.getpid()]
            live = ttmem.status().live
            os._exit(0 if (own, tracker.cb_total, findings, live) == (24, 1024, [], 0) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        child = os.fork()
        if child == 0:
            tracker.close()
            os._exit(0 if ttmem.status().segment is None else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.usage().cb.registered_bytes, 1000)

    def test_interpreter_exit_prints_nothing(self) -> None:
        code = "import ttmem; ttmem.enable(); tracker = ttmem.L1Tracker(); tracker.track_cb(1, 1)"
        done = run_python(code, self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        with self.assertRaises(TypeError):
            L1Tracker(device="zero")  # type: ignore[arg-type]

    def test_counting_ignores_refused_reports(self) -> None:
        tracker = L1Tracker()
        self.assertEqual(tracker.track_cb(0, 2048), 0)
        self.assertEqual(tracker.track_cb(-1, 2048), -2048)
        self.assertEqual(tracker.track_cb(1 << 70, 1), 1 << 70)
        self.assertEqual(tracker.track_kernel(0), 0)
        ttmem.close()
        tracker.track_cb(1, 1)
        tracker.close()


if __name__ == "__main__":
    unittest.main()
