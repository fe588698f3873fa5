"""Exceptions. Every class is a subclass of :class:`Error`; its ``kind`` is its name in snake case.

Generated from crates/ttmem-types by ``cargo xtask gen``; edit it there or in xtask/src/exceptions.rs.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """A report was refused, or recorded differently. Each class documents its effect on the figures."""

    kind: ClassVar[str] = "error"


class UnknownChip(Error):
    """The device does not exist or was never defined. Nothing changes."""

    kind = "unknown_chip"


class UnknownAllocator(Error):
    """The allocator was never defined or is closed. Nothing changes."""

    kind = "unknown_allocator"


class UnknownProgram(Error):
    """The program was never begun or has ended. Nothing changes."""

    kind = "unknown_program"


class ZeroSize(Error):
    """The size is zero. Nothing changes."""

    kind = "zero_size"


class TooLarge(Error):
    """The size exceeds any device. Nothing changes."""

    kind = "too_large"


class BeyondAddresses(Error):
    """Address plus size exceeds 64 bits. Nothing changes."""

    kind = "beyond_addresses"


class DoubleFree(Error):
    """Double free: the buffer was freed before. Nothing changes."""

    kind = "double_free"


class UnknownFree(Error):
    """The freed buffer is unknown; it may predate tracking. Nothing changes."""

    kind = "unknown_free"


class StillHeld(Error):
    """The address was already allocated with the same size: its free was missed. The buffer counts once."""

    kind = "still_held"


class Replaced(Error):
    """The address was already allocated with another size. The old buffer counts as freed, the new one as allocated."""

    kind = "replaced"


class InheritedFree(Error):
    """A forked child freed a buffer that its parent allocated. Nothing changes."""

    kind = "inherited_free"


class Lost(Error):
    """Not recorded: a signal handler interrupted another report of its own thread, or the host is out of memory."""

    kind = "lost"


class DefinitionsFull(Error):
    """No room for another definition. Records that refer to it are not described."""

    kind = "definitions_full"


class WrongSpace(Error):
    """The memory space or buffer type is unknown or not valid for this call. Nothing changes."""

    kind = "wrong_space"


class NotTracked(Error):
    """This process is not tracked, so its memory is unknown, not zero."""

    kind = "not_tracked"


class ReadError(Error):
    """The machine could not be read, or the daemon could not be queried."""

    kind = "read_error"
