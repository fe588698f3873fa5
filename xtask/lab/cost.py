"""What tracking costs.

    cost.py ROWSxCOLUMNS

Told `pairs N`, it takes and gives back a tensor N times and says how many nanoseconds of its thread's processor time a pair
took. Told `added N`, it does so in short blocks with the agent at work and only calling through, in turns, and says what N
pairs of blocks differ by. Told `programs N`, it makes N programs and says how much processor time the process has used. Told
`dispatches N`, it caches N programs that take no memory and runs one of them, in the same way, and says what a dispatch differs
by; before those, how many programs are cached and what a dispatch takes with the agent only calling through. Told `turns N`, the
same with all of them in turn.
"""

import ctypes
import os
import sys
import time

import ttnn

SHORT = 400
# Dispatches of a block, at least, and of all blocks of one kind.
BLOCK = 20
DISPATCHES = 60000


def pairs(device, count):
    shape = ttnn.Shape((64, 64))
    begin = time.thread_time_ns()
    for _ in range(count):
        ttnn.deallocate(ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG))
    return [(time.thread_time_ns() - begin) / count]


def added(device, count):
    """Where things lie in memory is worth more than what is measured, and differs from process to process: so both are
    measured in one."""
    switch = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0]).ttmem_agent_switch
    differences = []
    for _ in range(count):
        switch(False)
        without = pairs(device, SHORT)[0]
        switch(True)
        differences.append(pairs(device, SHORT)[0] - without)
    return differences


def programs(device, count):
    """Products of different shapes are different programs; each runs three times, as in a model that repeats itself."""
    for repeat in range(3):
        for n in range(count):
            rows, columns = 32 * (1 + n % 16), 32 * (1 + n // 16)
            a = ttnn.zeros((rows, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            b = ttnn.zeros((64, columns), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            ttnn.matmul(a, b)
    return [device.num_program_cache_entries(), time.process_time_ns()]


def dispatches(device, count, turns=False):
    """As `added`: programs of different shapes, each into a tensor that is there already."""
    switch = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0]).ttmem_agent_switch
    device.clear_program_cache()
    runs = []
    for n in range(count):
        rows, columns = 32 * (1 + n % 16), 32 * (1 + n // 16)
        zeros = lambda *shape: ttnn.zeros(shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        runs.append((zeros(rows, 64), zeros(64, columns), zeros(rows, columns)))
        ttnn.matmul(runs[n][0], runs[n][1], optional_output_tensor=runs[n][2])
    # All of them in each block, so that none finds warm what the other block has warmed.
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


def main():
    device = ttnn.open_mesh_device(ttnn.MeshShape(*(int(n) for n in sys.argv[1].split("x"))))
    device.enable_program_cache()
    for line in sys.stdin:
        what, count = line.split()
        print("cost:", *{"pairs": pairs, "added": added, "programs": programs, "dispatches": dispatches, "turns": turns}[what](device, int(count)), flush=True)


main()
