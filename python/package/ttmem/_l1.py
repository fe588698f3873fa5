"""The manual tracker of the guide "Tracking CB + Kernel Memory", with both of its interfaces."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

from . import _ttmem
from ._errors import Error
from ._types import DeviceLike

#: A kernel on one core, by the guide's estimate.
KERNEL_BYTES = 50 * 1024


class L1Tracker:
    """Adds up circular buffers and kernels by hand, and prints what they come to.

    ``track_cb``, ``track_kernel`` and ``summary`` are the guide's first interface, ``cb_alloc``, ``kernel_add`` and ``show`` its
    second; they count the same things. While tracking is on, what is counted is also published, as a program called ``L1Tracker`` on
    ``device``: circular buffers of which nobody knows where they lie, and kernels whose size is estimated. :meth:`close`, or
    the end of a ``with`` block, takes that back. Nothing is printed but by the methods that say so.
    """

    cb_total: int
    """Bytes of circular buffers."""
    kernel_est: int
    """Bytes of kernels, estimated."""
    num_kernels: int
    """How many kernels."""

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
        """Call this when creating circular buffers. Returns the bytes."""
        size = num_tiles * tile_size
        self.cb_total += size
        self._publish(lambda program: program.cb(size))
        return size

    def track_kernel(self, num_cores: int = 1) -> int:
        """Call this when adding kernels. Returns the bytes on all cores, at 50 KiB each."""
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
        """The same as :meth:`track_cb`; prints how much."""
        size = self.track_cb(tiles, tile_size)
        print(f"CB: +{size / 1024 / 1024:.1f}MB")

    def kernel_add(self, cores: int = 1) -> None:
        """The same as :meth:`track_kernel`."""
        self.track_kernel(cores)

    def show(self) -> None:
        """Prints both sums in a line."""
        print(f"\nL1: CBs={self.cb_total / 1024 / 1024:.1f}MB, Kernels={self.kernel_est / 1024 / 1024:.1f}MB")

    def _publish(self, tell: Callable[[_ttmem.Program], object]) -> None:
        # Counting goes on whatever comes of this: sizes of zero, say, are nothing to publish.
        try:
            if _ttmem.is_enabled():
                if self._program is None or self._pid != os.getpid():
                    self._program = self._tracker.program("L1Tracker", dispatches=False)
                    self._pid = os.getpid()
                tell(self._program)
        except (Error, OverflowError, TypeError):
            pass

    def close(self) -> None:
        """Takes back what was published. What was counted stays."""
        program, self._program = self._program, None
        # A forked child has none of its parent's.
        if program is not None and self._pid == os.getpid():
            try:
                program.end()
            except Error:
                # Tracking was closed meanwhile, and it is gone already.
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
            # It was never made, or the interpreter is half gone.
            pass
