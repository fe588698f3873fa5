"""Measures what tracking costs a model.

    model.py ROWSxCOLUMNS ROUNDS [CASE...]

Each case runs in blocks with tracking at work and paused, in turns, in one process: the placement in memory differs between
processes and matters more. Prints one line of JSON for each case:

* `plain` and `added`: nanoseconds of the process's processor time per step with tracking paused, and what tracking adds to it,
  for each round;
* `plain_wall` and `added_wall`: nanoseconds of the wall clock per step, likewise;
* `counted`: what the agent itself counted per step;
* `events`: events of the agent per step.
"""

import ctypes
import gc
import json
import os
import sys
import time

import ttnn

TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG

# Processor time of one block, about.
BLOCK_NS = 2_000_000

# The model: one token for each of 32 users.
LAYERS, USERS, WIDTH, HEADS, HEAD, CACHED, HIDDEN = 4, 32, 512, 8, 64, 128, 1024


def zeros(device, *shape, memory=DRAM, dtype=BF16):
    return ttnn.zeros(shape, dtype=dtype, layout=TILE, device=device, memory_config=memory)


def by_width(width, cores):
    """One shard of 32 rows on each of so many cores of the first row."""
    return ttnn.create_sharded_memory_config(
        shape=(32, width),
        core_grid=ttnn.CoreGrid(x=cores, y=1),
        strategy=ttnn.ShardStrategy.WIDTH,
        orientation=ttnn.ShardOrientation.ROW_MAJOR,
    )


class Layer:
    def __init__(self, device):
        weight = lambda *shape: zeros(device, *shape)
        self.norm, self.ff_norm = weight(1, WIDTH), weight(1, WIDTH)
        self.qkv, self.out = weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH)
        self.up, self.gate, self.down = weight(WIDTH, HIDDEN), weight(WIDTH, HIDDEN), weight(HIDDEN, WIDTH)
        self.keys, self.values = weight(1, HEADS, CACHED, HEAD), weight(1, HEADS, CACHED, HEAD)

    def attend(self, x, position):
        normed = ttnn.layer_norm(x, weight=self.norm)
        qkv = ttnn.matmul(normed, self.qkv, memory_config=L1)
        q, k, v = (ttnn.slice(qkv, (0, 0, 0, n * WIDTH), (1, 1, USERS, (n + 1) * WIDTH)) for n in range(3))
        q, k, v = (ttnn.permute(ttnn.reshape(it, (1, USERS, HEADS, HEAD)), (0, 2, 1, 3)) for it in (q, k, v))
        ttnn.fill_cache(self.keys, k, 0)
        ttnn.fill_cache(self.values, v, 0)
        scores = ttnn.matmul(q, ttnn.permute(self.keys, (0, 1, 3, 2)))
        shares = ttnn.softmax(ttnn.multiply(scores, 0.125), dim=-1)
        mixed = ttnn.permute(ttnn.matmul(shares, self.values), (0, 2, 1, 3))
        return ttnn.matmul(ttnn.reshape(mixed, (1, 1, USERS, WIDTH)), self.out)

    def feed_forward(self, x, sharded):
        normed = ttnn.layer_norm(x, weight=self.ff_norm)
        up = ttnn.to_memory_config(ttnn.matmul(normed, self.up, memory_config=L1), sharded)
        gate = ttnn.to_memory_config(ttnn.matmul(normed, self.gate, memory_config=L1), sharded)
        hidden = ttnn.multiply(ttnn.silu(gate), up, memory_config=sharded)
        return ttnn.matmul(ttnn.to_memory_config(hidden, L1), self.down)

    def run(self, x, position, sharded):
        x = ttnn.add(x, self.attend(x, position))
        return ttnn.add(x, self.feed_forward(x, sharded))


def decode(device):
    layers = [Layer(device) for _ in range(LAYERS)]
    token, sharded = zeros(device, 1, 1, USERS, WIDTH), by_width(HIDDEN, 8)

    def step():
        x = token
        for layer in layers:
            x = layer.run(x, 0, sharded)

    return step


def sharded_add(device, sets):
    """Adds tensors whose circular buffers are the tensors themselves, of so many sets in turn."""
    memory = by_width(512, 8)
    tensors = [[zeros(device, 1, 1, 32, 512, memory=memory) for _ in "abc"] for _ in range(sets)]

    def step(n=[0]):
        a, b, out = tensors[n[0] % sets]
        n[0] += 1
        ttnn.add(a, b, output_tensor=out)

    return step


def pair(device):
    shape = ttnn.Shape((64, 64))
    return lambda: ttnn.deallocate(ttnn.empty(shape, BF16, TILE, device, DRAM))


def with_tensors(device, run, *shapes):
    tensors = [zeros(device, *shape) for shape in shapes]
    return lambda: run(*tensors)


CASES = {
    "pair": pair,
    "add": lambda d: with_tensors(d, ttnn.add, (1, 1, 64, 512), (1, 1, 64, 512)),
    "add_in_place": lambda d: with_tensors(d, lambda a, b, c: ttnn.add(a, b, output_tensor=c), *[(1, 1, 64, 512)] * 3),
    "matmul": lambda d: with_tensors(d, ttnn.matmul, (1, 1, 32, 512), (512, 512)),
    "softmax": lambda d: with_tensors(d, lambda x: ttnn.softmax(x, dim=-1), (1, 8, 32, 128)),
    "layer_norm": lambda d: with_tensors(d, ttnn.layer_norm, (1, 1, 32, 512)),
    "sharded_add": lambda d: sharded_add(d, 1),
    "moving_add": lambda d: sharded_add(d, 2),
    "many_addresses": lambda d: sharded_add(d, 8),
    "decode": decode,
}
COLLECTIVES = {
    "all_gather": lambda d: with_tensors(
        d, lambda x: ttnn.all_gather(x, dim=3, num_links=1, topology=ttnn.Topology.Linear), (1, 1, 32, 64)
    ),
    "all_reduce": lambda d: with_tensors(d, ttnn.all_reduce, (1, 1, 32, 512)),
}


def measure(case, step, agent, rounds):
    for _ in range(20):
        step()
    begin = time.process_time_ns()
    for _ in range(20):
        step()
    steps = max(1, int(BLOCK_NS * 20 / max(1, time.process_time_ns() - begin)))

    def block():
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(steps):
            step()
        return (time.process_time_ns() - cpu) / steps, (time.perf_counter_ns() - wall) / steps

    result = {"case": case, "steps": steps, "plain": [], "added": [], "plain_wall": [], "added_wall": []}
    counted, events = 0, 0
    for round in range(rounds):
        measured = {}
        for on in [False, True] if round % 2 else [True, False]:
            agent.ttmem_agent_switch(on)
            before = agent.ttmem_agent_cost(), agent.ttmem_agent_events()
            measured[on] = block()
            if on:
                counted += agent.ttmem_agent_cost() - before[0]
                events += agent.ttmem_agent_events() - before[1]
        (plain, plain_wall), (tracked, tracked_wall) = measured[False], measured[True]
        result["plain"].append(plain)
        result["added"].append(tracked - plain)
        result["plain_wall"].append(plain_wall)
        result["added_wall"].append(tracked_wall - plain_wall)
    agent.ttmem_agent_switch(True)
    return result | {"counted": counted / rounds / steps, "events": events / rounds / steps}


def main():
    mesh, rounds, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    agent = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
    agent.ttmem_agent_cost.restype = agent.ttmem_agent_events.restype = ctypes.c_uint64
    rows, columns = (int(n) for n in mesh.split("x"))
    cases = CASES if columns * rows == 1 else CASES | COLLECTIVES
    if any(name in COLLECTIVES for name in wanted or cases):
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    device = ttnn.open_mesh_device(ttnn.MeshShape(rows, columns))
    device.enable_program_cache()
    gc.disable()
    for case in wanted or cases:
        step = cases[case](device)
        print(json.dumps(measure(case, step, agent, rounds)), flush=True)
        del step
        gc.collect()


main()
