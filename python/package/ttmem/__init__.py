"""Device memory of Tenstorrent accelerators: report what a program allocates, and read what all processes use.

Reporting: :func:`enable`, then :class:`Tracker` for a device or mesh (or :func:`alloc` and :func:`free` by device number), and
:class:`track` to name and measure a block, :class:`CallSite` to name a line, :func:`mark` to mark a moment; :class:`L1Tracker` adds up
circular buffers and kernels. With the agent (``ttmem run -- python model.py``) no reports are needed.

Reading: :func:`memory_allocated`, :func:`peak` and :func:`reset_peak` are about this process, as in ``torch.cuda``;
:func:`snapshot` and :func:`allocations` about all processes of this machine; :func:`who` names the variables that hold tensors, and
:func:`leaks` the lines that leak, with what holds their buffers.

Errors are subclasses of :class:`Error`, listed in ``ttmem.errors``.
"""

from __future__ import annotations

from . import _errors as errors
from . import _schema as schema
from ._control import close, enable, is_enabled, refresh, status
from ._errors import DoubleFree, Error, NotTracked, ReadError, UnknownFree
from ._l1 import L1Tracker
from ._leaks import LeakingSite, leaks
from ._memory import memory_allocated, peak, reset_peak
from ._schema import Allocation, Snapshot, Space
from ._snapshot import allocations, snapshot
from ._track import track
from ._ttmem import VERSION as __version__
from ._ttmem import CallSite, Kernel, Placement, Program, Tracker, alloc, free, mark
from ._types import Banks, Chip, Status
from ._who import NamedBuffer, who

max_memory_allocated = peak

__all__ = [
    "Allocation",
    "Banks",
    "CallSite",
    "Chip",
    "DoubleFree",
    "Error",
    "Kernel",
    "L1Tracker",
    "LeakingSite",
    "NamedBuffer",
    "NotTracked",
    "Placement",
    "Program",
    "ReadError",
    "Snapshot",
    "Space",
    "Status",
    "Tracker",
    "UnknownFree",
    "__version__",
    "alloc",
    "allocations",
    "close",
    "enable",
    "errors",
    "free",
    "is_enabled",
    "leaks",
    "mark",
    "max_memory_allocated",
    "memory_allocated",
    "peak",
    "refresh",
    "reset_peak",
    "schema",
    "snapshot",
    "status",
    "track",
    "who",
]
