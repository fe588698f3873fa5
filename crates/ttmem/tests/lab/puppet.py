"""Runs Python code from standard input, one line each, and answers with lines of JSON.

`ttnn` is imported on request, so that a puppet can be a process that never loads the runtime.
"""

import ctypes
import json
import os
import struct
import sys
import threading
import traceback

ANSWER = "puppet: "


def view(device, space):
    """Allocated bytes over all banks, from the runtime's own call."""
    statistics = ttnn.get_memory_view(device, getattr(ttnn.BufferType, space))
    return statistics.total_bytes_allocated_per_bank * statistics.num_banks


def region(space):
    """tt-metal's own counter of the only chip: dram, l1, l1_small, trace or cb."""
    files = [name for name in os.listdir("/dev/shm") if name.startswith("tt_device_")]
    with open(f"/dev/shm/{files[0]}", "rb") as file:
        totals = struct.unpack_from("<5Q", file.read(), 48)
    return totals[("dram", "l1", "l1_small", "trace", "cb").index(space)]


def tiles(device, count, memory=None):
    """A tensor of `count` tiles of 2 KiB."""
    memory = memory or ttnn.DRAM_MEMORY_CONFIG
    return ttnn.empty(
        (32 * count, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device, memory_config=memory
    )


def across(cores):
    """A memory configuration with one tile of L1 on each of `cores` cores in a row."""
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(cores - 1, 0))})
    spec = ttnn.ShardSpec(grid, (32, 32), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.WIDTH_SHARDED, ttnn.BufferType.L1, spec)


def on_another_thread(work):
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


def become(user):
    """Continues as another user, who may still read all files: the lab may be in a folder that other users cannot enter."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(user, user, user)
    assert libc.prctl(8, 1, 0, 0, 0) == 0  # PR_SET_KEEPCAPS
    os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    reading = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, (ctypes.c_uint32 * 6)(reading, reading, reading)) == 0
    for capability in (1, 2):  # the runtime starts a compiler
        assert libc.prctl(47, 2, capability, 0, 0) == 0  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE
    assert libc.prctl(4, 1, 0, 0, 0) == 0  # PR_SET_DUMPABLE


def main():
    for line in sys.stdin:
        try:
            code = json.loads(line)
            try:
                answer = eval(compile(code, "<request>", "eval"), globals())
            except SyntaxError:
                exec(compile(code, "<request>", "exec"), globals())
                answer = None
            if not isinstance(answer, (int, float, str, list, dict, bool)):
                answer = None
            reply = {"ok": answer}
        except Exception:
            reply = {"failed": traceback.format_exc()}
        print(ANSWER + json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
