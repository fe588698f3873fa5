"""The manual tracker of the guide "Tracking CB + Kernel Memory", with both of its interfaces."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

from . import _ttmem
from ._errors import Error
from ._types import DeviceLike

#: Size of a kernel on one core, as the guide estimates it.
KERNEL_BYTES = 50 * 1024


class L1Tracker:
    """Adds up circular buffers and kernels, and prints the totals.

    ``track_cb``, ``track_kernel`` and ``summary`` are the guide's first interface, ``cb_alloc``, ``kernel_add`` and ``show`` its
    second; both use the same counters. While tracking is enabled, the memory is also reported, as a program called ``L1Tracker``
    on ``device``: circular buffers without addresses, and kernels with estimated sizes. :meth:`close`, or the end of a ``with``
    block, removes them. Only methods that are documented to print do so.
    """

    cb_total: int
    """Bytes of circular buffers."""
    kernel_est: int
    """Bytes of kernels, estimated."""
    num_kernels: int
    """Number of kernels."""

    def __init__(self, device: DeviceLike = 0) -> None:
        self._program: _ttmem.Program | None = None
        self._pid = 0
        self._tracker = _ttmem.Tracker(device)
        self.cb_total = 0
        self.kernel_est = 0
        self.num_kernels = 0

    @property
    def cb(self) -> int:
        """Bytes of circular buffers, as the second interface calls them."""
        return self.cb_total

    @property
    def kern(self) -> int:
        """Bytes of kernels, estimated, as the second interface calls them."""
        return self.kernel_est

    def track_cb(self, num_tiles: int, tile_size: int) -> int:
        """Counts a circular buffer; returns its bytes."""
        size = num_tiles * tile_size
        self.cb_total += size
        self._publish(lambda program: program.cb(size))
        return size

    def track_kernel(self, num_cores: int = 1) -> int:
        """Counts a kernel at 50 KiB per core; returns its bytes on all cores."""
        total = KERNEL_BYTES * num_cores
        self.kernel_est += total
        self.num_kernels += 1
        self._publish(lambda program: program.kernel(total, estimated=True))
        return total

    def summary(self) -> None:
        """Prints the breakdown."""
        print(f"\n{'=' * 60}")
        print("L1 Memory Usage Breakdown")
        print(f"{'=' * 60}")
        print(f"Circular Buffers:  {self.cb_total / 1024 / 1024:8.1f} MB")
        print(f"Kernel Code (est): {self.kernel_est / 1024 / 1024:8.1f} MB")
        print(f"  ({self.num_kernels} kernels)")
        print(f"Total L1 Overhead: {(self.cb_total + self.kernel_est) / 1024 / 1024:8.1f} MB")
        print(f"{'=' * 60}\n")

    def cb_alloc(self, tiles: int, tile_size: int) -> None:
        """Counts a circular buffer as :meth:`track_cb`, and prints its size."""
        size = self.track_cb(tiles, tile_size)
        print(f"CB: +{size / 1024 / 1024:.1f}MB")

    def kernel_add(self, cores: int = 1) -> None:
        """Counts a kernel as :meth:`track_kernel`."""
        self.track_kernel(cores)

    def show(self) -> None:
        """Prints both totals in one line."""
        print(f"\nL1: CBs={self.cb_total / 1024 / 1024:.1f}MB, Kernels={self.kernel_est / 1024 / 1024:.1f}MB")

    def _publish(self, report: Callable[[_ttmem.Program], object]) -> None:
        # Counting does not depend on the report: a size of zero is refused, for example.
        try:
            if _ttmem.is_enabled():
                if self._program is None or self._pid != os.getpid():
                    self._program = self._tracker.program("L1Tracker", dispatches=False)
                    self._pid = os.getpid()
                report(self._program)
        except (Error, OverflowError, TypeError):
            pass

    def close(self) -> None:
        """Removes what was reported. The counters stay."""
        program, self._program = self._program, None
        # In a forked child, the program is its parent's.
        if program is not None and self._pid == os.getpid():
            try:
                program.end()
            except Error:
                # Tracking was closed meanwhile, which removed it.
                pass

    def __enter__(self) -> L1Tracker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            # Construction failed, or the interpreter is shutting down.
            pass
