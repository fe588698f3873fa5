"""What tracking costs. Told `pairs N`, takes and gives back a tensor N times and says how many nanoseconds of its thread's
processor time a pair took; told `programs N`, makes N programs and says how much processor time the process has used.

    cost.py ROWSxCOLUMNS
"""

import sys
import time

import ttnn


def pairs(device, count):
    shape = ttnn.Shape((64, 64))
    begin = time.thread_time_ns()
    for _ in range(count):
        ttnn.deallocate(ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG))
    return (time.thread_time_ns() - begin) / count


def programs(device, count):
    """Products of different shapes are different programs; each runs three times, as in a model that repeats itself."""
    for repeat in range(3):
        for n in range(count):
            rows, columns = 32 * (1 + n % 16), 32 * (1 + n // 16)
            a = ttnn.zeros((rows, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            b = ttnn.zeros((64, columns), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            ttnn.matmul(a, b)
    return [device.num_program_cache_entries(), time.process_time_ns()]


def main():
    device = ttnn.open_mesh_device(ttnn.MeshShape(*(int(n) for n in sys.argv[1].split("x"))))
    device.enable_program_cache()
    for line in sys.stdin:
        what, count = line.split()
        answer = {"pairs": pairs, "programs": programs}[what](device, int(count))
        print("cost:", *(answer if isinstance(answer, list) else [answer]), flush=True)


main()
