"""What can go wrong. Every class here is a :class:`Error`, and its ``kind`` is its name in snake case."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Something was not taken, or not as it was meant. What that did to the figures stands with each class."""

    kind: ClassVar[str] = "error"


class UnknownChip(Error):
    """A device that no runtime numbers so. Nothing changes."""

    kind = "unknown_chip"


class UnknownAllocator(Error):
    """A device or mesh that is closed. Nothing changes."""

    kind = "unknown_allocator"


class UnknownProgram(Error):
    """A program that was never begun, or has ended. Nothing changes."""

    kind = "unknown_program"


class ZeroSize(Error):
    """A size of zero. Nothing changes."""

    kind = "zero_size"


class TooLarge(Error):
    """A size that no device has. Nothing changes."""

    kind = "too_large"


class BeyondAddresses(Error):
    """An address and a size that together leave 64 bits. Nothing changes."""

    kind = "beyond_addresses"


class DoubleFree(Error):
    """It was freed a moment ago. Nothing changes."""

    kind = "double_free"


class UnknownFree(Error):
    """It was never seen allocated, perhaps because that was before tracking began. Nothing changes."""

    kind = "unknown_free"


class StillHeld(Error):
    """Its address was still held, with the same size: its free was missed. It counts once."""

    kind = "still_held"


class Replaced(Error):
    """Its address was still held, with another size. That one counts as freed, this one is held."""

    kind = "replaced"


class InheritedFree(Error):
    """This process was forked, and its parent holds it. Nothing changes."""

    kind = "inherited_free"


class DefinitionsFull(Error):
    """There is no room for a further device, set of cores or name."""

    kind = "definitions_full"


class WrongSpace(Error):
    """A space that does not fit the call. Nothing changes."""

    kind = "wrong_space"


class Lost(Error):
    """It could not be recorded; figures are not exact from now on, and readers are told so."""

    kind = "lost"


class NotTracked(Error):
    """Nothing of this process is tracked where it could be read, so what it holds is not known. It is not zero."""

    kind = "not_tracked"


class ReadError(Error):
    """The machine could not be read, or the daemon not be asked."""

    kind = "read_error"
