"""Limits of device memory in tests: a plugin of pytest, on with ``pytest --ttmem``.

``@pytest.mark.limit_device_memory("2 GiB")`` limits the peak of a test above what was allocated before, and
``@pytest.mark.limit_device_leaks("0 B")`` what each line still has when the test has returned. Fixtures are not counted.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import _memory, _snapshot
from ._control import enable, status
from ._errors import Error

_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ROWS = 20
_PROPERTY = "ttmem"


@dataclass(frozen=True)
class Leak:
    """Buffers that one line still had after a test, and not before."""

    site: str
    file: str | None
    line: int | None
    function: str | None
    op: str | None
    space: str
    count: int
    bytes: int
    """Allocated bytes on each of its devices."""


def parse_size(given: object) -> int:
    """Returns the bytes of a size such as ``"2 GiB"``, or of a number of bytes."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", given) if isinstance(given, str) else None
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"unknown size {given!r}; expected a number of bytes or a text such as '2 GiB', in {', '.join(_UNITS)}")
    return int(float(found[1]) * _UNITS[found[2]])


def _format_size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _memory_limit(limit: object, space: str = "dram", device: Any = None) -> tuple[int, str, Any]:
    return parse_size(limit), _memory._buffer_space(space), device


def _leak_limit(limit: object = 0, *, warmup: int = 0, filter_fn: Callable[[Leak], bool] | None = None) -> tuple[int, int, Any]:
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ValueError(f"warmup must be a number of runs, not {warmup!r}")
    return parse_size(limit), warmup, filter_fn


_MARKS: dict[str, tuple[Callable[..., Any], str]] = {
    "limit_device_memory": (
        _memory_limit,
        "limit_device_memory(limit, space='dram', device=None): the most device memory that the test may use beyond what was allocated "
        "before, as '2 GiB'",
    ),
    "limit_device_leaks": (
        _leak_limit,
        "limit_device_leaks(limit='0 B', *, warmup=0, filter_fn=None): the most device memory that each line may still have when the test "
        "has returned; warmup runs of the test come first",
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ttmem", "device memory of Tenstorrent accelerators (ttmem)")
    group.addoption("--ttmem", action="store_true", help="measure device memory, check limits, and print a table at the end")
    group.addoption("--ttmem-baseline", metavar="FILE", help="compare the peak of each test with FILE, which is written if it is not there")
    group.addoption(
        "--ttmem-fail-on-increase", metavar="PERCENT", help="with a baseline: fail if the peak of a test is higher by more, as 2%%"
    )


def pytest_configure(config: pytest.Config) -> None:
    for _, text in _MARKS.values():
        config.addinivalue_line("markers", text)
    baseline, increase = config.getoption("--ttmem-baseline"), config.getoption("--ttmem-fail-on-increase")
    if config.getoption("--ttmem") or baseline or increase:
        config.pluginmanager.register(_Limits(config, baseline, increase), "ttmem-limits")


def _parse_percent(given: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", given)
    if found is None:
        raise pytest.UsageError(f"--ttmem-fail-on-increase: {given!r} is not a percentage, such as 2%")
    return float(found[1])


class _Limits:
    """Measures each test, checks its limits, and prints a table."""

    def __init__(self, config: pytest.Config, baseline: str | None, increase: str | None) -> None:
        self.increase = None if increase is None else _parse_percent(increase)
        if increase is not None and baseline is None:
            raise pytest.UsageError("--ttmem-fail-on-increase needs --ttmem-baseline FILE")
        self.baseline = None if baseline is None else Path(baseline).resolve()
        self.known: dict[str, dict[str, int]] = {}
        if self.baseline is not None and self.baseline.exists():
            self.known = _read_baseline(self.baseline)
        self.is_worker = hasattr(config, "workerinput")
        self.reason: str | None = None
        self.results: dict[str, dict[str, Any]] = {}
        try:
            # Before test modules import ttnn.
            enable()
        except RuntimeError as error:
            self.reason = str(error)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for name, _ in _MARKS.items():
                for mark in item.iter_markers(name):
                    _arguments(item, mark)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
        mark = pyfuncitem.get_closest_marker("limit_device_leaks")
        warmup = 0 if mark is None else _arguments(pyfuncitem, mark)[1]
        names = pyfuncitem._fixtureinfo.argnames
        for _ in range(warmup):
            pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        measurement = _Measurement(with_sites=mark is not None)
        yield
        pyfuncitem.stash[_RESULT] = measurement.end(pyfuncitem)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        outcome = yield
        report: pytest.TestReport = outcome.get_result()
        result = item.stash.get(_RESULT, None)
        if call.when != "call" or result is None:
            return
        report.user_properties.append((_PROPERTY, {**result.properties, "name": self._name(item)}))
        try:
            problems = result.problems(item, self.reason)
        except Exception as error:
            problems = [f"ttmem: cannot check the limits of this test: {error}"]
        # What failed by itself is shown as it failed.
        if problems and report.passed:
            report.outcome = "failed"
            report.longrepr = "\n".join(problems)
        elif problems:
            report.sections.append(("ttmem", "\n".join(problems)))

    def _name(self, item: pytest.Item) -> str:
        """The name of a test in a baseline: its file is relative to the baseline, since pytest's root depends on the arguments."""
        _, separator, name = item.nodeid.partition("::")
        if self.baseline is None or not separator:
            return item.nodeid
        return os.path.relpath(item.path, self.baseline.parent) + "::" + name

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, dict):
                self.results[value["name"]] = value

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_worker or self.baseline is None:
            return
        if not self.known:
            peaks = {name: result["peak"] for name, result in self.results.items() if result["peak"]}
            self.baseline.write_text(json.dumps(peaks, indent=1, sort_keys=True) + "\n")
        elif self.increase is not None and self._increases() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _increases(self) -> list[str]:
        """Tests whose peak is higher than in the baseline by more than is allowed."""
        found = []
        for name, result in sorted(self.results.items()):
            for space, peak in sorted(result["peak"].items()):
                before = self.known.get(name, {}).get(space)
                if before is not None and peak > before * (1 + (self.increase or 0) / 100):
                    grown = f"+{(peak - before) * 100 / before:.1f} %" if before else "from 0"
                    found.append(f"{name}: peak of {space} {_format_size(before)} -> {_format_size(peak)} ({grown})")
        return found

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.is_worker:
            return
        write = terminalreporter.write_line
        terminalreporter.write_sep("=", "device memory (ttmem)")
        if self.reason is not None:
            write(f"not measured: {self.reason}")
        spaces = sorted({space for result in self.results.values() for space, peak in result["peak"].items() if peak})
        rows = sorted(self.results.items(), key=lambda row: -sum(row[1]["peak"].values()))
        if not spaces:
            write(_absence())
        else:
            write("".join(f"{'PEAK ' + space.upper():>14}" for space in spaces) + f"{'LEFT':>12}  TEST")
            for name, result in rows[:_ROWS]:
                peaks = "".join(f"{_format_size(result['peak'].get(space, 0)):>14}" for space in spaces)
                write(f"{peaks}{_format_size(sum(result['left'].values())):>12}  {name}")
            if len(rows) > _ROWS:
                write(f"{len(rows) - _ROWS} more tests")
            write("peaks are above what was allocated before each test; fixtures are not counted")
        if self.baseline is not None and self.known:
            increases = self._increases()
            new = sum(1 for name, result in self.results.items() if result["peak"] and name not in self.known)
            higher = f"{len(increases)} higher" if increases else "none is higher"
            write(f"compared with {self.baseline}: {higher}" + (f", {new} not in it" if new else ""))
            for line in increases:
                write(f"  {line}")
        elif self.baseline is not None:
            write(f"wrote {self.baseline}")


def _read_baseline(path: Path) -> dict[str, dict[str, int]]:
    try:
        read = json.loads(path.read_text())
        return {str(name): {str(space): int(peak) for space, peak in peaks.items()} for name, peaks in read.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise pytest.UsageError(f"--ttmem-baseline: cannot read {path}: {error}") from None


def _arguments(item: pytest.Item, mark: pytest.Mark) -> Any:
    try:
        return _MARKS[mark.name][0](*mark.args, **mark.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: {mark.name}: {error}") from None


def _absence() -> str:
    reason = status().reason
    detail = f": {reason}" if reason else ""
    return f"no device memory was tracked{detail}; tests need a device, and ttnn must be imported after the plugin has loaded the agent"


@dataclass(frozen=True)
class _Result:
    """What a test used."""

    properties: dict[str, Any]
    leaks: tuple[Leak, ...]
    in_cycles: int
    """Bytes that were freed only when cycles were collected."""
    peaks_of: Callable[[Any], dict[str, int]]

    def problems(self, item: pytest.Item, reason: str | None) -> list[str]:
        problems = []
        for mark in item.iter_markers("limit_device_memory"):
            limit, space, device = _arguments(item, mark)
            peaks = self.peaks_of(device)
            if not self.properties["tracked"]:
                problems.append(f"limit_device_memory: not measured: {reason or _absence()}")
            elif peaks.get(space, 0) > limit:
                problems.append(
                    f"limit_device_memory: peak of {space} {_format_size(peaks[space])} above the start of the test, limit {_format_size(limit)}"
                )
        of_leaks = item.get_closest_marker("limit_device_leaks")
        if of_leaks is not None:
            limit, _, filter_fn = _arguments(item, of_leaks)
            if not self.properties["tracked"]:
                problems.append(f"limit_device_leaks: not measured: {reason or _absence()}")
            for leak in self.leaks:
                if leak.bytes > limit and (filter_fn is None or filter_fn(leak)):
                    buffers = f"{leak.count} buffer{'' if leak.count == 1 else 's'}"
                    problems.append(
                        f"limit_device_leaks: {_format_size(leak.bytes)} of {leak.space} in {buffers} left by {leak.site}, limit {_format_size(limit)}"
                    )
            if problems and self.in_cycles:
                problems.append(f"a further {_format_size(self.in_cycles)} was held in reference cycles until these were collected")
        return problems


_RESULT = pytest.StashKey[_Result]()


class _Measurement:
    """Measures the body of a test."""

    def __init__(self, with_sites: bool) -> None:
        self.before = _sites() if with_sites else None
        self.gauge = _memory.begin()

    def end(self, item: pytest.Item) -> _Result:
        # What a cycle holds is freed by the next collection: no leak, but worth a word.
        first = _allocated()
        gc.collect()
        gc.collect()
        in_cycles = max(first - _allocated(), 0)
        measured = _memory.end(self.gauge, None)
        peaks, left = measured or ({}, {})
        above = _memory.peaks_above(self.gauge, None)
        properties = {"tracked": measured is not None and bool(self.gauge.peaks), "peak": above if peaks else {}, "left": left}
        leaks = () if self.before is None else tuple(_difference(self.before, _sites()))
        gauge = self.gauge
        return _Result(properties, leaks, in_cycles, lambda device: _memory.peaks_above(gauge, device))


def _allocated() -> int:
    try:
        return sum(row.allocated * max(len(row.devices), 1) for row in _memory.rows())
    except Error:
        return 0


_Site = tuple[str, str | None, int | None, str | None, str | None, str]


def _sites() -> dict[_Site, tuple[int, int]]:
    """Number and bytes of this process's buffers by line and operation. What caches of programs and traces hold is no leak."""
    sums: dict[_Site, tuple[int, int]] = {}
    pid = os.getpid()
    try:
        found: Iterable[Any] = _snapshot.allocations(local=True)
    except Error:
        return sums
    for it in found:
        if it.pid != pid or str(it.space) not in _memory.BUFFERS or it.purpose in ("kernels", "trace"):
            continue
        name = it.site_name or "an unknown line"
        site = name if it.op is None or it.op == it.site_name else f"{it.op}, {name}"
        key = (site, it.file, it.line, it.function, it.op, str(it.space))
        count, size = sums.get(key, (0, 0))
        sums[key] = (count + 1, size + (it.requested_bytes if it.allocated_bytes is None else it.allocated_bytes))
    return sums


def _difference(before: dict[_Site, tuple[int, int]], after: dict[_Site, tuple[int, int]]) -> list[Leak]:
    leaks = []
    for key, (count, size) in after.items():
        old_count, old_size = before.get(key, (0, 0))
        if size > old_size:
            leaks.append(Leak(*key, count=max(count - old_count, 1), bytes=size - old_size))
    return sorted(leaks, key=lambda leak: -leak.bytes)
