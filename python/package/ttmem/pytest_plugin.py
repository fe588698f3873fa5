"""Limits of device memory in tests: a plugin of pytest, on with ``pytest --ttmem``.

``@pytest.mark.limit_device_memory("2 GiB")`` limits the peak of a test above what was allocated before, and
``@pytest.mark.limit_device_leaks("0 B")`` what each line still has when the test has returned. Fixtures are not counted.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.unittest import TestCaseFunction

from . import _agent, _memory, _ttmem, _who
from ._control import enable, status
from ._errors import Error
from ._leaks import count_buffers, describe_site, format_size, join_site, list_names
from ._schema import Allocation

_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_ROWS = 20
_LINES = 3
_PROPERTY = "ttmem"
_PREFIX = "limit_device_"
_UNTRACKED = pytest.StashKey["str | None"]()


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
    held_by: tuple[str, ...] = ()
    """The variables that hold them, as :func:`ttmem.who` names them."""


def parse_size(given: object) -> int:
    """Returns the bytes of a size such as ``"2 GiB"``, or of a number of bytes."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", given) if isinstance(given, str) else None
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"unknown size {given!r}; expected a number of bytes or a text such as '2 GiB', in {', '.join(_UNITS)}")
    return int(float(found[1]) * _UNITS[found[2]])


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


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # A conftest.py may import ttnn.
    options = early_config.known_args_namespace
    if options.ttmem or options.ttmem_baseline or options.ttmem_fail_on_increase:
        _load_agent(early_config)


def pytest_configure(config: pytest.Config) -> None:
    for _, text in _MARKS.values():
        config.addinivalue_line("markers", text)
    baseline, increase = config.getoption("--ttmem-baseline"), config.getoption("--ttmem-fail-on-increase")
    if config.getoption("--ttmem") or baseline or increase:
        config.pluginmanager.register(_Limits(config, baseline, increase), "ttmem-limits")


def _load_agent(config: pytest.Config) -> str | None:
    """Loads the agent, once, and returns why that is impossible."""
    if _UNTRACKED not in config.stash:
        try:
            enable()
            config.stash[_UNTRACKED] = None
        except RuntimeError as error:
            config.stash[_UNTRACKED] = str(error)
    return config.stash[_UNTRACKED]


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
        self.reason = _load_agent(config)
        self.follower: _ttmem.Follower | None = None
        self.unwritten: str | None = None
        self.results: dict[str, dict[str, Any]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # In a worker of pytest-xdist an error here would be an internal one. There, the test fails.
        for item in items if not self.is_worker else ():
            _check_marks(item)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        mark = item.get_closest_marker("limit_device_leaks")
        try:
            _check_marks(item)
            warmup = 0 if mark is None else _arguments(item, mark)[1]
            if warmup:
                _check_warmup(item)
        except pytest.UsageError as error:
            pytest.fail(str(error), pytrace=False)
        for _ in range(warmup):
            _warm_up(item)
        # An error here must not hide how the test itself ends.
        measurement: _Measurement | None = None
        try:
            has_limit = item.get_closest_marker("limit_device_memory") is not None
            measurement = _Measurement(mark is not None, self._follow() if has_limit else None)
        except Exception as error:
            item.stash[_RESULT] = error
        yield
        try:
            if measurement is not None:
                item.stash[_RESULT] = measurement.end()
        except Exception as error:
            item.stash[_RESULT] = error

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        outcome = yield
        report: pytest.TestReport = outcome.get_result()
        result = item.stash.get(_RESULT, None)
        if call.when != "call" or result is None:
            return
        try:
            if isinstance(result, Exception):
                raise result
            report.user_properties.append((_PROPERTY, {**result.properties, "name": self._name(item)}))
            problems = result.problems(item, self.reason)
        except Exception as error:
            has_limit = any(mark.name in _MARKS for mark in item.iter_markers())
            problems = [f"ttmem: cannot check the limits of this test: {type(error).__name__}: {error}"] if has_limit else []
        # What failed by itself is shown as it failed.
        if problems and report.passed:
            report.outcome = "failed"
            report.longrepr = "\n".join(problems)
        elif problems:
            report.sections.append(("ttmem", "\n".join(problems)))

    def _follow(self) -> _ttmem.Follower:
        if self.follower is None:
            self.follower = _ttmem.Follower()
        return self.follower

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
            try:
                self.baseline.write_text(json.dumps(peaks, indent=1, sort_keys=True) + "\n")
            except OSError as error:
                self.unwritten = str(error)
                session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
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
                    found.append(f"{name}: peak of {space} {format_size(before)} -> {format_size(peak)} ({grown})")
        return found

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if self.is_worker or exitstatus in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
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
                peaks = "".join(f"{format_size(result['peak'].get(space, 0)):>14}" for space in spaces)
                write(f"{peaks}{format_size(sum(result['left'].values())):>12}  {name}")
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
            write(f"wrote {self.baseline}" if self.unwritten is None else f"cannot write the baseline: {self.unwritten}")


def _read_baseline(path: Path) -> dict[str, dict[str, int]]:
    try:
        read = json.loads(path.read_text())
        return {str(name): {str(space): int(peak) for space, peak in peaks.items()} for name, peaks in read.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise pytest.UsageError(f"--ttmem-baseline: cannot read {path}: {error}") from None


def _arguments(item: pytest.Item, mark: pytest.Mark) -> Any:
    if mark.name not in _MARKS:
        raise pytest.UsageError(f"{item.nodeid}: unknown mark {mark.name}; expected one of: {', '.join(_MARKS)}")
    parse = _MARKS[mark.name][0]
    try:
        given = inspect.signature(parse).bind(*mark.args, **mark.kwargs)
        return parse(*given.args, **given.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: {mark.name}: {error}") from None


def _check_marks(item: pytest.Item) -> None:
    for mark in item.iter_markers():
        if mark.name.startswith(_PREFIX):
            _arguments(item, mark)


def _check_warmup(item: pytest.Item) -> None:
    if not isinstance(item, pytest.Function) or isinstance(item, TestCaseFunction) or inspect.iscoroutinefunction(item.obj):
        raise pytest.UsageError(f"{item.nodeid}: limit_device_leaks: only plain functions can have warmup runs")


def _warm_up(item: pytest.Item) -> None:
    """Runs a test before it is measured. What it raises is the test's own failure."""
    assert isinstance(item, pytest.Function)
    item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})


def _absence() -> str:
    reason = _agent.absence() or status().reason
    detail = f": {reason}" if reason else ""
    return f"no device memory was tracked{detail}; tests need a device, and ttnn must be imported after the plugin has loaded the agent"


@dataclass(frozen=True)
class _Result:
    """What a test used."""

    properties: dict[str, Any]
    leaks: tuple[Leak, ...]
    in_cycles: tuple[Leak, ...]
    """What was freed only when cycles were collected."""
    peaks_of: Callable[[Any], dict[str, int]]
    unknown_peaks: str | None
    """Why the peaks are unknown."""
    at_peak: dict[str, str]
    """The lines that had more at the peak than at the start, largest first, by space."""

    def problems(self, item: pytest.Item, reason: str | None) -> list[str]:
        problems = []
        for mark in item.iter_markers("limit_device_memory"):
            limit, space, device = _arguments(item, mark)
            if not self.properties["tracked"]:
                problems.append(f"limit_device_memory: not measured: {reason or _absence()}")
                continue
            if self.unknown_peaks is not None:
                problems.append(f"limit_device_memory: not measured: {self.unknown_peaks}")
                continue
            peaks = self.peaks_of(device)
            if device is not None and not peaks:
                problems.append(f"limit_device_memory: not measured: this process has not used device {device!r}")
            elif peaks.get(space, 0) > limit:
                lines = self.at_peak.get(space, "lines at the peak are unknown")
                problems.append(
                    f"limit_device_memory: peak of {space} {format_size(peaks[space])} above the start of the test, limit {format_size(limit)}: {lines}"
                )
        of_leaks = item.get_closest_marker("limit_device_leaks")
        if of_leaks is not None:
            limit, _, filter_fn = _arguments(item, of_leaks)
            if not self.properties["tracked"]:
                problems.append(f"limit_device_leaks: not measured: {reason or _absence()}")
            above = [leak for leak in self.leaks if leak.bytes > limit and (filter_fn is None or filter_fn(leak))]
            for leak in above:
                holders = f", held by {list_names(leak.held_by)}" if leak.held_by else ""
                problems.append(f"limit_device_leaks: {_describe(leak)} left by {leak.site}{holders}, limit {format_size(limit)}")
            if above:
                problems += [
                    f"limit_device_leaks: not counted: {_describe(leak)} of {leak.site}, held in reference cycles until these were collected"
                    for leak in self.in_cycles
                ]
        return problems


def _describe(leak: Leak) -> str:
    return f"{format_size(leak.bytes)} of {leak.space} in {count_buffers(leak.count)}"


_RESULT = pytest.StashKey["_Result | Exception"]()
_Sites = dict[tuple[str, str], list[Allocation]]


class _Measurement:
    """Measures the body of a test."""

    def __init__(self, with_sites: bool, follower: _ttmem.Follower | None) -> None:
        # What the failure of an earlier test holds, and cycles, would be freed by this test and hide what it leaves.
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        if with_sites:
            gc.collect()
        self.before = _sites() if with_sites else None
        self.gauge = _memory.begin()
        self.follower = follower
        # The reader follows from here on.
        self.held: dict[str, dict[str, int]] = {} if follower is None else _lines(follower, "left")

    def end(self) -> _Result:
        at_peak = {}
        if self.follower is not None:
            for space, lines in _lines(self.follower, "at_peak").items():
                more = {line: size - self.held.get(space, {}).get(line, 0) for line, size in lines.items()}
                largest = sorted(((size, line) for line, size in more.items() if size > 0), reverse=True)
                at_peak[space] = ", ".join(f"{format_size(size)} by {line}" for size, line in largest[:_LINES])
        # What a cycle holds is freed by the next collection: no leak, but worth a word.
        first = {} if self.before is None else _sites()
        gc.collect()
        gc.collect()
        measured = _memory.end(self.gauge, None)
        peaks, left = measured or ({}, {})
        above = _memory.peaks_above(self.gauge, None)
        properties = {"tracked": measured is not None and bool(self.gauge.peaks), "peak": above if peaks else {}, "left": left}
        leaks: tuple[Leak, ...] = ()
        in_cycles: tuple[Leak, ...] = ()
        if self.before is not None:
            last = _sites()
            in_cycles = tuple(_difference(last, first, {}))
            leaks = tuple(_difference(self.before, last, {}))
            if leaks:
                names = {(it.space, it.address): it.names for it in _who.who()}
                leaks = tuple(_difference(self.before, last, names))
        gauge = self.gauge
        return _Result(properties, leaks, in_cycles, lambda device: _memory.peaks_above(gauge, device), gauge.reason, at_peak)


def _lines(follower: _ttmem.Follower, when: str) -> dict[str, dict[str, int]]:
    """Bytes by line and operation in each space of this process: ``left`` is now, ``at_peak`` at the peak, if that was followed."""
    lines: dict[str, dict[str, int]] = {}
    report = json.loads(follower.report() or b"{}")
    own = [it for it in report.get("processes", ()) if it["pid"] == os.getpid()]
    for space in (space for process in own for space in process["spaces"]):
        for held in space[when] or ():
            sizes = lines.setdefault(space["space"], {})
            line = join_site(held.get("op"), held["site_name"])
            sizes[line] = sizes.get(line, 0) + held["used_bytes"]
    return lines


def _sites() -> _Sites:
    """This process's buffers by line and operation, and by space. What caches of programs and traces hold is no leak."""
    sites: _Sites = {}
    try:
        found = _who.own_buffers()
    except Error:
        return sites
    for it in found:
        if it.purpose not in ("kernels", "trace"):
            sites.setdefault((describe_site(it), str(it.space)), []).append(it)
    return sites


def _difference(before: _Sites, after: _Sites, names: Mapping[tuple[str, int], tuple[str, ...]]) -> list[Leak]:
    """What each site has more, with the names of the variables that hold what is new."""
    leaks = []
    for (site, space), buffers in after.items():
        old = before.get((site, space), [])
        more = sum(map(_who.allocated_bytes, buffers)) - sum(map(_who.allocated_bytes, old))
        if more > 0:
            known = {it.id for it in old}
            held_by = {name for it in buffers if it.id not in known for name in names.get((space, int(it.id, 16)), ())}
            first, count = buffers[0], max(len(buffers) - len(old), 1)
            leaks.append(Leak(site, first.file, first.line, first.function, first.op, space, count, more, tuple(sorted(held_by))))
    return sorted(leaks, key=lambda leak: -leak.bytes)
