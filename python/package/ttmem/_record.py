"""Decodes JSON into the dataclasses of ``_schema.py``, by their annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum
from typing import Any, TypeVar

from ._errors import ReadError

_R = TypeVar("_R", bound="Record")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base class of decoded objects."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The JSON object, with all its keys."""


class Word(str, Enum):
    """An enumeration whose values are plain strings."""

    def __str__(self) -> str:
        return str(self.value)


def make(record: type[_R], raw: Any) -> _R:
    """Decodes a JSON object into a dataclass."""
    if not isinstance(raw, dict):
        raise ReadError(f"expected a {record.__name__} object, got {raw!r}")
    values = {name: decode(raw.get(key)) for name, key, decode in _decoders(record)}
    return record(raw=raw, **values)


_Decoders = tuple[tuple[str, str, Callable[[Any], Any]], ...]
_decoders_by_class: dict[str, _Decoders] = {}


def _decoders(record: type[Record]) -> _Decoders:
    """Fields of a class, their keys and decoders."""
    if record.__name__ not in _decoders_by_class:
        hints = typing.get_type_hints(record)
        names = (member.name for member in fields(record) if member.name != "raw")
        # A key that is a Python keyword has a trailing underscore here.
        _decoders_by_class[record.__name__] = tuple((name, name.removesuffix("_"), _decoder(hints[name])) for name in names)
    return _decoders_by_class[record.__name__]


def _decoder(hint: Any) -> Callable[[Any], Any]:
    """Decoder for a type. An absent value is ``None`` if that is allowed, else empty."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (inner,) = (_decoder(part) for part in parts if part is not type(None))
        return lambda raw: None if raw is None else inner(raw)
    if typing.get_origin(hint) is tuple:
        each = _decoder(parts[0])
        return lambda raw: tuple(each(item) for item in raw or ())
    if typing.get_origin(hint) is dict:
        return lambda raw: dict(raw or {})
    if hint is datetime:
        return _time
    if isinstance(hint, type) and issubclass(hint, Record):
        return lambda raw: make(hint, {} if raw is None else raw)
    return lambda raw: hint() if raw is None else raw


def _time(raw: Any) -> datetime:
    # Older Pythons read neither the Z nor nanoseconds.
    text = str(raw or "1970-01-01T00:00:00Z").removesuffix("Z")
    seconds, _, fraction = text.partition(".")
    parsed = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S")
    return parsed.replace(microsecond=int(f"{fraction[:6]:0<6}"), tzinfo=timezone.utc)
