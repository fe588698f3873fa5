"""Prints the cost of the package's calls as JSON, in nanoseconds of this thread's processor time, without the loop around them."""

import json
import statistics
import time

import ttmem

CALLS = 1000
ROUNDS = 300
ADDRESSES = [(1 << 40) + (n << 12) for n in range(CALLS)]


def measure(alloc, free):
    """The cost of one call of each, and of the loop: medians of many rounds."""
    now = time.thread_time_ns
    costs = []
    for _ in range(ROUNDS):
        begin = now()
        for address in ADDRESSES:
            pass
        looped = now()
        for address in ADDRESSES:
            alloc("dram", address, 4096)
        held = now()
        for address in ADDRESSES:
            free("dram", address)
        freed = now()
        loop = looped - begin
        costs.append(((held - looped - loop) / CALLS, (freed - held - loop) / CALLS, loop / CALLS))
    return [statistics.median(column) for column in zip(*costs)]


def measure_by_number(alloc, free):
    """The cost of one call of each by device number, which is one argument more."""
    now = time.thread_time_ns
    costs = []
    for _ in range(ROUNDS):
        begin = now()
        for address in ADDRESSES:
            pass
        looped = now()
        for address in ADDRESSES:
            alloc(0, "dram", address, 4096)
        held = now()
        for address in ADDRESSES:
            free(0, "dram", address)
        freed = now()
        loop = looped - begin
        costs.append(((held - looped - loop) / CALLS, (freed - held - loop) / CALLS))
    return [statistics.median(column) for column in zip(*costs)]


def nothing(*_):
    """Accepts the arguments of the others."""


assert ttmem.enable()
tracker = ttmem.Tracker(0)
for n in range(1000):
    tracker.alloc("dram", n << 20, 4096)
found = {}
found["alloc"], found["free"], found["loop"] = measure(tracker.alloc, tracker.free)
found["alloc_by_number"], found["free_by_number"] = measure_by_number(ttmem.alloc, ttmem.free)
with ttmem.track("block"):
    found["labelled_alloc"], _, _ = measure(tracker.alloc, tracker.free)
found["nothing"], _, _ = measure(nothing, nothing)
assert ttmem.status().live == 1000 and ttmem.status().lost == 0, ttmem.status()
ttmem.close()
found["alloc_off"], _, _ = measure(tracker.alloc, tracker.free)
print(json.dumps(found))
