"""Measures the cost of tracking.

    cost.py ROWSxCOLUMNS

It reads commands from standard input, and prints numbers for each:

* `pairs N` allocates and frees a tensor N times: nanoseconds of the thread's processor time per pair;
* `added N` does so in short blocks with tracking on and paused, in turns: the differences of N pairs of blocks;
* `programs N` creates N programs: the number of cached programs, and the processor time of the process;
* `dispatches N` caches N programs that allocate nothing and runs one of them, with tracking on and paused, in turns: the number
  of cached programs, the cost of a dispatch with tracking paused, and the differences of pairs of blocks;
* `turns N` does as `dispatches N`, but runs all N programs in turn;
* `sites N` allocates and frees a tensor under N calls, with call sites off, with lines and with whole stacks, in turns: what lines
  add and what stacks add to a pair, for each round;
* `native N` does as `sites N`, with lines and with native stacks of 32 frames: what these add to a pair with lines, at one place and at
  three in turns, whose stacks differ in all inner frames;
* `first N` allocates at N lines that were never seen, with lines, with stacks of 32 frames and with native stacks: what the first
  allocation costs more than the second.
"""

import ctypes
import os
import sys
import time

import ttnn

SHORT = 400
# Dispatches of a block, at least.
BLOCK = 20
# Dispatches of all blocks of one kind.
DISPATCHES = 60000


def pairs(device, count):
    shape = ttnn.Shape((64, 64))
    begin = time.thread_time_ns()
    for _ in range(count):
        ttnn.deallocate(ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG))
    return [(time.thread_time_ns() - begin) / count]


def added(device, count):
    """Both are measured in one process, since the placement in memory differs between processes and matters more."""
    switch = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0]).ttmem_agent_switch
    differences = []
    for _ in range(count):
        switch(False)
        without = pairs(device, SHORT)[0]
        switch(True)
        differences.append(pairs(device, SHORT)[0] - without)
    return differences


def programs(device, count):
    """Products of different shapes are different programs; each runs three times, as in a model."""
    for repeat in range(3):
        for n in range(count):
            rows, columns = 32 * (1 + n % 16), 32 * (1 + n // 16)
            a = ttnn.zeros((rows, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            b = ttnn.zeros((64, columns), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            ttnn.matmul(a, b)
    return [device.num_program_cache_entries(), time.process_time_ns()]


def dispatches(device, count, turns=False):
    """Measures as `added` does: programs of different shapes, each into an existing tensor."""
    switch = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0]).ttmem_agent_switch
    device.clear_program_cache()
    runs = []
    for n in range(count):
        rows, columns = 32 * (1 + n % 16), 32 * (1 + n // 16)
        zeros = lambda *shape: ttnn.zeros(shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        runs.append((zeros(rows, 64), zeros(64, columns), zeros(rows, columns)))
        ttnn.matmul(runs[n][0], runs[n][1], optional_output_tensor=runs[n][2])
    # All programs in each block, so that no block profits from caches that the other has filled.
    block = runs * max(1, BLOCK // count) if turns else [runs[0]] * BLOCK

    def run():
        started = time.thread_time_ns()
        for a, b, c in block:
            ttnn.matmul(a, b, optional_output_tensor=c)
        return (time.thread_time_ns() - started) / len(block)

    run()
    plain, differences = [], []
    for n in range(DISPATCHES // len(block)):
        cost = {}
        for on in [False, True] if n % 2 else [True, False]:
            switch(on)
            cost[on] = run()
        plain.append(cost[False])
        differences.append(cost[True] - cost[False])
    switch(True)
    return [device.num_program_cache_entries(), sorted(plain)[len(plain) // 2], *differences]


def turns(device, count):
    return dispatches(device, count, turns=True)


def agent():
    return ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])


def below(calls, run):
    """Runs something under so many calls of Python."""
    return run() if calls == 0 else below(calls - 1, run)


def sites(device, calls):
    keep = agent().ttmem_agent_keep_sites
    block = lambda: pairs(device, SHORT // 4)[0]
    lines, stacks = [], []
    for n in range(600):
        cost = {}
        kinds = [0, 1, 32]
        for frames in kinds[n % 3 :] + kinds[: n % 3]:
            keep(frames, False)
            cost[frames] = below(calls, block)
        lines.append(cost[1] - cost[0])
        stacks.append(cost[32] - cost[0])
    keep(1, False)
    return [sorted(it)[len(it) // 2] for it in (lines, stacks)]


def native(device, calls):
    keep, keep_native = agent().ttmem_agent_keep_sites, agent().ttmem_agent_keep_native_frames
    one = lambda: pairs(device, SHORT // 4)[0]
    turns = lambda: sum(below(n % 3, lambda: pairs(device, 1)[0]) for n in range(SHORT // 4)) / (SHORT // 4)
    medians = []
    for block in (one, turns):
        differences = []
        for n in range(400):
            cost = {}
            for frames in [1, 32] if n % 2 else [32, 1]:
                keep(1, False) if frames == 1 else keep_native(32, False)
                cost[frames] = below(calls, block)
            differences.append(cost[32] - cost[1])
        medians.append(sorted(differences)[len(differences) // 2])
    keep(1, False)
    return medians


def first(device, count):
    keep, keep_native = agent().ttmem_agent_keep_sites, agent().ttmem_agent_keep_native_frames
    costs = []
    for frames in (1, 32, "native"):
        keep_native(32, False) if frames == "native" else keep(frames, False)
        first, second = [], []
        for n in range(count):
            space = {}
            code = f"def made_{n}(ttnn, d, s, t):\n  b = t(); ttnn.deallocate(ttnn.empty(s, ttnn.bfloat16, ttnn.TILE_LAYOUT, d)); return t() - b"
            exec(compile(code, f"made_{frames}_{n}.py", "exec"), space)
            run = lambda: space[f"made_{n}"](ttnn, device, ttnn.Shape((64, 64)), time.thread_time_ns)
            first.append(below(24, run))
            second.append(below(24, run))
        costs.append(sorted(first)[count // 2] - sorted(second)[count // 2])
    keep(1, False)
    return costs


def main():
    device = ttnn.open_mesh_device(ttnn.MeshShape(*(int(n) for n in sys.argv[1].split("x"))))
    device.enable_program_cache()
    for line in sys.stdin:
        what, count = line.split()
        commands = {"pairs": pairs, "added": added, "programs": programs, "dispatches": dispatches, "turns": turns}
        commands |= {"sites": sites, "native": native, "first": first}
        print("cost:", *commands[what](device, int(count)), flush=True)


main()
