"""What can go wrong. Every class here is a :class:`Error`, and its ``kind`` is its name in snake case.

Made from crates/ttmem-types by ``cargo xtask gen``; changes belong there, or in xtask/src/exceptions.rs.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """A report that was refused, or recorded otherwise than meant. Each class says what that did to the figures."""

    kind: ClassVar[str] = "error"


class UnknownChip(Error):
    """A chip or device that does not exist, or was never defined. Nothing changes."""

    kind = "unknown_chip"


class UnknownAllocator(Error):
    """An allocator that was never defined, or is closed. Nothing changes."""

    kind = "unknown_allocator"


class UnknownProgram(Error):
    """A program that was never begun, or has ended. Nothing changes."""

    kind = "unknown_program"


class ZeroSize(Error):
    """A size of zero. Nothing changes."""

    kind = "zero_size"


class TooLarge(Error):
    """A size larger than any device. Nothing changes."""

    kind = "too_large"


class BeyondAddresses(Error):
    """An address and a size that together exceed 64 bits. Nothing changes."""

    kind = "beyond_addresses"


class DoubleFree(Error):
    """Freed twice. Nothing changes."""

    kind = "double_free"


class UnknownFree(Error):
    """A free of an unknown buffer, which may predate tracking. Nothing changes."""

    kind = "unknown_free"


class StillHeld(Error):
    """The address was still allocated, with the same size: its free was missed. It counts once."""

    kind = "still_held"


class Replaced(Error):
    """The address was still allocated, with another size. That one counts as freed, this one as allocated."""

    kind = "replaced"


class InheritedFree(Error):
    """A free in a forked child of what its parent allocated. Nothing changes."""

    kind = "inherited_free"


class Lost(Error):
    """Not recorded: a signal handler interrupted its own thread in another event, or there is no memory for it."""

    kind = "lost"


class DefinitionsFull(Error):
    """No room for a definition. What refers to it is not described."""

    kind = "definitions_full"


class WrongSpace(Error):
    """A space or buffer type that does not exist, or does not fit the call. Nothing changes."""

    kind = "wrong_space"


class NotTracked(Error):
    """Nothing of this process is tracked where it could be read, so what it holds is not known. It is not zero."""

    kind = "not_tracked"


class ReadError(Error):
    """The machine could not be read, or the daemon not be asked."""

    kind = "read_error"
