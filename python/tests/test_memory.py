"""Memory of this process, as in torch.cuda."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import unittest

import ttmem
from ttmem import _memory

from .support import PROGRAM, TrackedCase, environment, run_python


class Memory(TrackedCase):
    def test_figures_are_per_device_and_space(self) -> None:
        ttmem.alloc(4, "dram", 0, 100)
        ttmem.alloc(4, "l1", 0, 30)
        ttmem.alloc([4, 5], "dram", 1 << 20, 1000)
        self.assertEqual(ttmem.memory_allocated(), 1100)
        self.assertEqual(ttmem.memory_allocated(5), 1000)
        self.assertEqual(ttmem.memory_allocated([4, 5]), 2100)
        self.assertEqual(ttmem.memory_allocated(4, "l1"), 30)
        self.assertEqual(ttmem.memory_allocated(4, ttmem.Space.L1), 30)
        self.assertEqual(ttmem.memory_allocated(77), 0)
        ttmem.free(4, "dram", 0)
        self.assertEqual((ttmem.memory_allocated(4), ttmem.peak(4)), (1000, 1100))
        self.assertIs(ttmem.max_memory_allocated, ttmem.peak)

    def test_reset_peak_selects_devices_and_spaces(self) -> None:
        for device in (0, 1):
            for space in ("dram", "l1"):
                ttmem.alloc(device, space, 0, 100)
                ttmem.alloc(device, space, 4096, 900)
                ttmem.free(device, space, 4096)

        def peaks() -> list[int]:
            return [ttmem.peak(device, space) for device in (0, 1) for space in ("dram", "l1")]

        self.assertEqual(peaks(), [1000] * 4)
        ttmem.reset_peak(1, "l1")
        self.assertEqual(peaks(), [1000, 1000, 1000, 100])
        ttmem.reset_peak(1)
        self.assertEqual(peaks(), [1000, 1000, 100, 100])
        ttmem.reset_peak(space="l1")
        self.assertEqual(peaks(), [1000, 100, 100, 100])
        ttmem.reset_peak()
        self.assertEqual(peaks(), [100] * 4)
        ttmem.alloc(0, "dram", 4096, 50)
        self.assertEqual(ttmem.peak(), 150)

    def test_peak_of_a_closed_device_is_kept_until_reset(self) -> None:
        for size in (64, 16):
            tracker = ttmem.Tracker(0, [ttmem.Banks("dram", 1, 0, 1 << 30)])
            tracker.alloc("dram", 0, size, bytes_per_bank=size)
            tracker.close()
            self.assertEqual(ttmem.peak(0), 64)
        self.assertEqual((ttmem.memory_allocated(0), ttmem.peak(0)), (0, 64))
        ttmem.reset_peak()
        self.assertEqual(ttmem.peak(0), 0)

    def test_child_does_not_wait_for_a_thread_of_its_parent(self) -> None:
        ttmem.alloc(0, "dram", 0, 100)
        with _memory._lock:
            child = os.fork()
            if child == 0:
                # Ends the child if it waits forever.
                signal.alarm(30)
                ttmem.alloc(0, "dram", 0, 7)
                os._exit(0 if ttmem.peak() == 7 else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(ttmem.peak(), 100)

    def test_untracked_is_not_zero(self) -> None:
        ttmem.close()
        for query in (ttmem.memory_allocated, ttmem.peak, ttmem.reset_peak):
            with self.assertRaises(ttmem.NotTracked):
                query()
        ttmem.enable(folder="/nowhere/at/all")
        ttmem.alloc(0, "dram", 0, 64)
        with self.assertRaisesRegex(ttmem.NotTracked, "cannot"):
            ttmem.memory_allocated()

    def test_wrong_arguments_are_refused(self) -> None:
        ttmem.alloc(0, "dram", 0, 64)
        for space in ("cb", "kernel", "", "DRAM"):
            with self.assertRaises(ValueError):
                ttmem.memory_allocated(0, space)
        with self.assertRaises(TypeError):
            ttmem.memory_allocated("0")  # type: ignore[arg-type]
        with self.assertRaises(OverflowError):
            ttmem.peak(-1)

    def test_reading_own_segments_keeps_the_lock(self) -> None:
        ttmem.alloc(0, "dram", 0, 64)
        path = os.path.join(self.folder, ttmem.status().segment or "")
        probe = (
            "import fcntl, sys\n"
            "with open(sys.argv[1], 'r+b') as file:\n"
            "    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
            "    except OSError: print('locked')"
        )

        def is_locked() -> bool:
            done = subprocess.run([sys.executable, "-c", probe, path], capture_output=True, text=True, timeout=60)
            return done.stdout == "locked\n"

        self.assertTrue(is_locked())
        ttmem.memory_allocated()
        ttmem.reset_peak()
        ttmem.snapshot(local=True)
        ttmem.allocations(local=True)
        with ttmem.track("block"):
            pass
        self.assertTrue(is_locked())
        # The lock can be lost: opening and closing the file is enough.
        with open(path, "rb") as file:
            fcntl.fcntl(file, fcntl.F_GETFD)
        self.assertFalse(is_locked())

    def test_sandbox_without_unshare_can_be_read(self) -> None:
        # As in containers: a filter that refuses unshare (272 on x86-64). The lock is lost then, and readers identify the process by
        # other means.
        code = (
            "import ctypes, os, struct, subprocess, json, ttmem\n"
            "steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 272), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]\n"
            "code = b''.join(struct.pack('<HBBI', *step) for step in steps)\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "buffer = ctypes.create_string_buffer(code)\n"
            "program = ctypes.create_string_buffer(struct.pack('<HxxxxxxQ', len(steps), ctypes.addressof(buffer)))\n"
            "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0\n"
            "assert libc.unshare(0x400) == -1 and ctypes.get_errno() == 1\n"
            "ttmem.alloc(0, 'dram', 0, 64)\n"
            "for _ in range(2):\n"
            "    (own,) = (it for it in ttmem.snapshot(local=True).processes if it.pid == os.getpid())\n"
            "    assert own.summary.dram_bytes == 64, own\n"
            f"seen = json.loads(subprocess.run([{PROGRAM!r}, '--json', '--local'], capture_output=True).stdout)\n"
            "assert [it['summary']['dram_bytes'] for it in seen['processes'] if it['pid'] == os.getpid()] == [64], seen\n"
        )
        done = run_python(code, self.folder, TTMEM="1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_other_segments_of_this_process_count(self) -> None:
        # A second copy of the library in one process, such as that of a program in C: the shared object under another name.
        code = (
            "import importlib.machinery, importlib.util, shutil, sys, tempfile, ttmem, ttmem._ttmem as first\n"
            "folder = tempfile.mkdtemp()\n"
            "copy = shutil.copy(first.__file__, folder + '/_ttmem.abi3.so')\n"
            "loader = importlib.machinery.ExtensionFileLoader('_ttmem', copy)\n"
            "spec = importlib.util.spec_from_file_location('_ttmem', copy, loader=loader)\n"
            "second = importlib.util.module_from_spec(spec)\n"
            "loader.exec_module(second)\n"
            "shutil.rmtree(folder)\n"
            "assert second.enable() and ttmem.enable()\n"
            "second.alloc(0, 'dram', 0, 1000)\n"
            "assert ttmem.memory_allocated() == 1000\n"
            "ttmem.alloc(0, 'dram', 0, 24)\n"
            "assert ttmem.memory_allocated() == 1024, ttmem.memory_allocated()\n"
            "second.alloc(0, 'dram', 4096, 1000)\n"
            "second.free(0, 'dram', 4096)\n"
            "assert ttmem.peak() == 2024, ttmem.peak()\n"
            "try: ttmem.reset_peak(); print('reset')\n"
            "except ttmem.Error as e: print(e)\n"
        )
        done = run_python(code, self.folder)
        self.assertEqual(done.stderr, "")
        self.assertIn("cannot reset peaks", done.stdout)

    def test_unmapped_segment_with_own_pid_is_ignored(self) -> None:
        # A segment with this process's pid in its name that the process has not mapped.
        ttmem.alloc(0, "dram", 0, 64)
        own = os.path.join(self.folder, ttmem.status().segment or "")
        with open(os.path.join(self.folder, f"ttmem.{os.getpid()}.{'0' * 16}"), "wb") as other:
            subprocess.run(["cat", own], stdout=other, check=True, env=environment(self.folder))
        self.assertEqual(ttmem.memory_allocated(), 64)


if __name__ == "__main__":
    unittest.main()
