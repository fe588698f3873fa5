"""Plants leaks and innocent growth in stock ttnn, and marks the end of each step or replays a trace there.

    leaks.py STEPS SEED marks|replays

Functions called `leak_…` leak, those called `ok_…` do not. Sizes and periods depend on the seed. Prints `leaks NAME…`: the functions
whose lines must be found.
"""

import collections
import ctypes
import functools
import gc
import os
import random
import sys
import threading

import ttnn

STEPS, SEED, HAS_MARKS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "marks"
AGENT = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1), trace_region_size=0 if HAS_MARKS else 1 << 20)
device.enable_program_cache()
chance = random.Random(SEED)
ROWS, EVERY, RING = 32 * chance.randint(1, 4), chance.randint(2, 5), chance.randint(3, 16)
LAZY, PERIOD = chance.randint(3, 10), chance.randint(5, 13)


def in_memory(memory, rows=32):
    # This adds no frame.
    return functools.partial(ttnn.empty, ttnn.Shape((rows, 32)), BF16, TILE, device, memory)


empty, in_l1 = in_memory(ttnn.DRAM_MEMORY_CONFIG, ROWS), in_memory(ttnn.L1_MEMORY_CONFIG)
cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))})
shards = ttnn.ShardSpec(cores, (32, 32), ttnn.ShardOrientation.ROW_MAJOR)
layout = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
in_shards = in_memory(ttnn.MemoryConfig(layout, ttnn.BufferType.L1, shards), 128)
one = ttnn.zeros((1, 1, 32, 32), dtype=BF16, layout=TILE, device=device)
kept = collections.defaultdict(list)
# Cycles stay until they are collected on purpose.
gc.disable()


def leak_every_step(step):
    kept[1].append(empty())


def leak_three_a_step(step):
    kept[2].extend(empty() for _ in range(3))


def leak_every_second(step):
    step % 2 or kept[3].append(empty())


def leak_every_third(step):
    step % 3 or kept[4].append(empty())


def leak_every_fourth(step):
    step % 4 or kept[5].append(empty())


def leak_at_even_steps(step):
    step % 2 or kept[6].append(empty())


def leak_at_other_steps(step):
    step % 2 and kept[6].append(empty())


class Node:
    pass


def leak_in_a_cycle(step):
    node = Node()
    node.itself, node.tensor = node, empty()


def leak_in_a_traceback(step):
    try:
        tensor = empty()
        raise ValueError
    except ValueError as error:
        kept[8].append(error)


def leak_in_a_dictionary(step, cache={}):
    cache[step] = empty()


@functools.lru_cache(maxsize=None)
def leak_in_a_cache(step):
    return empty()


def leak_in_a_thread(step):
    def run():
        kept[11].append(empty())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def leak_in_l1(step):
    kept[12].append(in_l1())


def leak_in_shards(step):
    step % 2 or kept[13].append(in_shards())


def leak_from_the_tenth_step(step):
    step > 10 and kept[14].append(empty())


def leak_of_many_shapes(step):
    kept[15].append(ttnn.empty(ttnn.Shape((32 * step, 32)), BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG))


def leak_in_a_generator(step):
    tensor = empty()
    yield


def leak_in_generators(step):
    generator = leak_in_a_generator(step)
    next(generator)
    kept[16].append(generator)


def leak_in_a_closure(step):
    tensor = empty()
    kept[17].append(lambda: tensor)


def leak_of_a_result(step):
    kept[18].append(ttnn.add(one, one))


def leak_by_chance(step):
    chance.random() < 0.5 and kept[19].append(empty())


def leak_beside_weights(step):
    kept[20].extend(empty() for _ in range(20 if step == 1 else 1))


def leak_every_so_many(step):
    step % EVERY or kept[41].append(empty())


def leak_in_frames(step):
    try:
        tensor = empty()
        raise ValueError
    except ValueError as error:
        kept[42].append(error.__traceback__)


def leak_on_a_class(step):
    Node.all = [*getattr(Node, "all", []), empty()]


def ok_temporary(step):
    for _ in range(3):
        ttnn.deallocate(empty())


def ok_weights(step):
    step == 1 and kept[21].extend(empty() for _ in range(24))


def ok_weights_when_used(step):
    step <= 6 and kept[22].extend(empty() for _ in range(4))


def ok_ring_of_four(step):
    kept[23] = [*kept[23], empty()][-4:]


def ok_ring(step):
    kept[24] = [*kept[24], empty()][-RING:]


def ok_bounded_cache(step):
    if step % 2:
        kept[25] = [*kept[25], empty()][-10:]


def ok_two_in_turn(step):
    kept[26] = [empty() for _ in range(1 + step % 2)]


def ok_emptied_every_ten(step):
    kept[27] = [] if step % 10 == 0 else [*kept[27], empty()]


def ok_emptied_at_times(step):
    kept[28] = [] if step % PERIOD == 0 else [*kept[28], empty()]


@functools.lru_cache(maxsize=6)
def ok_in_a_limited_cache(step):
    return empty()


def ok_checkpoint(step):
    kept[43] = [empty() for _ in range(4)] if step % PERIOD == 0 else []


def ok_weights_in_a_step(step):
    step == LAZY and kept[44].extend(empty() for _ in range(6))


def ok_warm_up(step):
    step <= LAZY and kept[45].append(empty())


def ok_moved_between_spaces(step):
    memory = [ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG][step % 2]
    kept[46] = [ttnn.to_memory_config((kept[46] or [one])[0], memory)]


def ok_generator_that_ends(step):
    for tensor in (empty() for _ in range(2)):
        pass


def ok_shapes_in_turn(step):
    kept[29] = [empty() for _ in range([3, 5, 4][step % 3])]


def ok_cache_in_place(step):
    step == 1 and kept[30].append(ttnn.zeros((1, 4, 128, 64), dtype=BF16, layout=TILE, device=device))
    ttnn.fill_cache(kept[30][0], ttnn.zeros((1, 4, 32, 64), dtype=BF16, layout=TILE, device=device), 0)


def ok_cache_that_is_replaced(step):
    kept[31] = [ttnn.empty(ttnn.Shape((32 * step, 32)), BF16, TILE, device, ttnn.DRAM_MEMORY_CONFIG)]


def ok_collected_cycle(step):
    node = Node()
    node.itself, node.tensor, node.is_collected = node, empty(), True


def ok_in_the_fifth_step(step):
    kept[33] = [empty()] if step == 5 else []


def ok_from_the_twentieth_step(step):
    step == 20 and kept[34].extend(empty() for _ in range(8))


def ok_less_and_less(step):
    kept[35] = [empty() for _ in range(STEPS)] if step == 1 else kept[35][1:]


def ok_two_phases(step):
    step in (1, STEPS // 2) and kept[36].extend(empty() for _ in range(4))


def ok_handled_exception(step):
    try:
        tensor = empty()
        raise ValueError
    except ValueError:
        pass


def ok_programs(step):
    if step <= 12:
        wide = ttnn.zeros((1, 1, 32, 32 * step), dtype=BF16, layout=TILE, device=device)
        ttnn.add(wide, wide)


def ok_by_chance(step):
    kept[40] = [empty() for _ in range(chance.randrange(6))]


LEAKS = [it for name, it in list(globals().items()) if name.startswith("leak_") and name != "leak_in_a_generator"]
INNOCENT = [it for name, it in list(globals().items()) if name.startswith("ok_")]


def collect_cycles():
    """Frees what `ok_collected_cycle` leaves, and keeps what `leak_in_a_cycle` does."""
    for it in gc.get_objects():
        if isinstance(it, Node) and "is_collected" in vars(it):
            vars(it).clear()


assert len(LEAKS) >= 20 and len(INNOCENT) >= 20, (len(LEAKS), len(INNOCENT))
if not HAS_MARKS:
    # What is captured must be in the program cache.
    captured = [ttnn.add(one, one)]
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    captured.append(ttnn.add(one, one))
    ttnn.end_trace_capture(device, trace, cq_id=0)
for step in range(1, STEPS + 1):
    for function in LEAKS + INNOCENT:
        function(step)
    step % 4 or collect_cycles()
    if HAS_MARKS:
        AGENT.ttmem_agent_mark(b"step", 4, ctypes.byref(ctypes.c_uint64(step)))
    else:
        ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
print("seed", SEED)
# The generator's own line allocates.
names = {it.__name__ for it in LEAKS} - {"leak_in_generators"} | {"leak_in_a_generator"}
print("leaks", *sorted(names))
