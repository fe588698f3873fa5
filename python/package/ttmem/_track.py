"""``with ttmem.track("name")`` and ``@ttmem.track("name")``."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar, cast

from . import _memory, _ttmem
from ._types import DeviceLike

_F = TypeVar("_F", bound=Callable[..., Any])

_label: ContextVar[_ttmem.Label | None] = ContextVar("ttmem_label", default=None)
_ttmem.set_label_variable(_label)


def _is_in_task() -> bool:
    """Whether an event loop runs in this thread. It may change to another task at any time, which the agent does not see."""
    return "asyncio" in sys.modules and sys.modules["asyncio"]._get_running_loop() is not None


class _Named:
    """Names allocations of this thread and task. May be entered repeatedly, but not nested."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._token: Token[_ttmem.Label | None] | None = None

    def __enter__(self) -> None:
        self._token = _label.set(_ttmem.Label(self._name, _label.get()))
        _ttmem.label_entered(_is_in_task())

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                _label.reset(token)
            except ValueError:
                # Exited in another context than entered, such as a generator that is finished elsewhere: it is not set there.
                pass
        _ttmem.label_left(_is_in_task())


class track:
    """Names the allocations of a block or function, and measures its memory.

    As a context manager::

        with ttmem.track("prefill") as block:
            ...
        print(block.peak_bytes["dram"], block.allocated_bytes["dram"])

    As a decorator of functions, coroutines and generators, ``peak_bytes`` is the maximum over all calls so far; the object is the
    function's attribute ``track``.

    Enables tracking if it is disabled. Allocations in the block have its name as their track; nested blocks are joined, as in
    ``decode / attention``. Names are per thread and task; those of tasks are known of reports through this package only, not of what
    the agent tracks. The measured memory is that of the
    whole process on ``device``, as in :func:`ttmem.memory_allocated`, including other threads. Exceptions pass through.
    """

    name: str
    """Name of the block."""
    peak_bytes: dict[str, int]
    """Peak of allocated bytes by space. Empty before the end, and if nothing could be measured: unknown is not 0, so use
    ``.get("dram")`` where that is possible."""
    allocated_bytes: dict[str, int]
    """Allocated bytes at the end minus those at the begin, by space. Empty if ``peak_bytes`` is."""

    def __init__(self, name: str, *, device: DeviceLike | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError("name must be a string")
        self.name = name
        self.peak_bytes = {}
        self.allocated_bytes = {}
        # Resolved now: at the end of the block the device may be closed.
        self._device = None if device is None else _memory.numbers(device)
        self._named = _Named(name)
        self._gauge: _memory.Gauge | None = None

    def __enter__(self) -> track:
        if self._gauge is not None:
            raise RuntimeError(f"block {self.name!r} is already entered; use one track object per block")
        self._begin()
        self._named.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._named.__exit__()
        self._end()

    def _begin(self) -> None:
        if not _ttmem.is_enabled():
            _ttmem.enable()
        self._gauge = _memory.begin()

    def _end(self) -> None:
        gauge, self._gauge = self._gauge, None
        measured = None if gauge is None else _memory.end(gauge, self._device)
        self.peak_bytes, self.allocated_bytes = measured or ({}, {})

    def _copy(self) -> track:
        return track(self.name, device=self._device)

    def _add_call(self, call: track) -> None:
        """Adds the measurement of one call of a decorated function."""
        for space, peak in call.peak_bytes.items():
            self.peak_bytes[space] = max(peak, self.peak_bytes.get(space, 0))
        self.allocated_bytes = call.allocated_bytes

    def __call__(self, function: _F) -> _F:
        if inspect.isasyncgenfunction(function):
            wrapper: Any = self._wrap_async_generator(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._wrap_generator(function)
        elif inspect.iscoroutinefunction(function):
            wrapper = self._wrap_coroutine(function)
        else:
            wrapper = self._wrap_function(function)
        wrapper.track = self
        return cast(_F, wrapper)

    def _wrap_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            call = self._copy()
            try:
                with call:
                    return function(*args, **kwargs)
            finally:
                self._add_call(call)

        return wrapper

    def _wrap_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            call = self._copy()
            try:
                with call:
                    return await function(*args, **kwargs)
            finally:
                self._add_call(call)

        return wrapper

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # Between its steps, a generator runs in its caller's context: the name is set for each step only.
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            call = self._copy()
            call._begin()
            try:
                generator = function(*args, **kwargs)
                try:
                    step, value = generator.send, None
                    while True:
                        try:
                            with call._named:
                                item = step(value)
                        except StopIteration as stop:
                            return stop.value
                        try:
                            step, value = generator.send, (yield item)
                        except GeneratorExit:
                            raise
                        except BaseException as thrown:
                            step, value = generator.throw, thrown
                finally:
                    with call._named:
                        generator.close()
            finally:
                call._end()
                self._add_call(call)

        return wrapper

    def _wrap_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            call = self._copy()
            call._begin()
            try:
                generator = function(*args, **kwargs)
                try:
                    step, value = generator.asend, None
                    while True:
                        try:
                            with call._named:
                                item = await step(value)
                        except StopAsyncIteration:
                            return
                        try:
                            step, value = generator.asend, (yield item)
                        except GeneratorExit:
                            raise
                        except BaseException as thrown:
                            step, value = generator.athrow, thrown
                finally:
                    await generator.aclose()
            finally:
                call._end()
                self._add_call(call)

        return wrapper
