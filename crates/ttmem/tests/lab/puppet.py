"""Does what it is told, a line of Python at a time, and answers each with a line of JSON.

`ttnn` is imported when it is first needed, so that a puppet without it is one that never loads the runtime.
"""

import json
import os
import struct
import sys
import threading
import traceback

ANSWER = "puppet: "


def view(device, space):
    """What the runtime's own call says is allocated, over all banks."""
    it = ttnn.get_memory_view(device, getattr(ttnn.BufferType, space))
    return it.total_bytes_allocated_per_bank * it.num_banks


def region(space):
    """What tt-metal's own counters say, of the only chip there is: dram, l1, l1_small, trace or cb."""
    files = [name for name in os.listdir("/dev/shm") if name.startswith("tt_device_")]
    with open(f"/dev/shm/{files[0]}", "rb") as file:
        totals = struct.unpack_from("<5Q", file.read(), 48)
    return totals[("dram", "l1", "l1_small", "trace", "cb").index(space)]


def tiles(device, count, memory=None):
    """A tensor of so many tiles of 2 KiB."""
    memory = memory or ttnn.DRAM_MEMORY_CONFIG
    return ttnn.empty(
        (32 * count, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device, memory_config=memory
    )


def across(cores):
    """8 KiB of L1 on so many cores in a row."""
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores - 1, 0))})
    spec = ttnn.ShardSpec(grid, (32, 32), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)


def on_another_thread(work):
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


def main():
    for line in sys.stdin:
        try:
            code = json.loads(line)
            try:
                answer = eval(compile(code, "<told>", "eval"), globals())
            except SyntaxError:
                exec(compile(code, "<told>", "exec"), globals())
                answer = None
            if not isinstance(answer, (int, float, str, list, dict, bool)):
                answer = None
            told = {"ok": answer}
        except Exception:
            told = {"failed": traceback.format_exc()}
        print(ANSWER + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
