"""Opens a mesh of mock chips, allocates, runs an op, frees and closes; prints the allocator's statistics as one JSON line.

    TT_METAL_MOCK_CLUSTER_DESC_PATH=DESCRIPTOR python smoke.py ROWSxCOLUMNS
"""

import contextlib
import importlib.metadata
import json
import os
import sys

# Set before the import: the runtime reads it once, and a line of its log on standard output would not be JSON.
os.environ.setdefault("TT_LOGGER_LEVEL", "error")
os.environ.setdefault("LOGURU_LEVEL", "ERROR")

import ttnn  # noqa: E402


def spaces(device):
    """Statistics of a device's allocator, by kind of memory."""
    statistics = {}
    for kind in (ttnn.BufferType.DRAM, ttnn.BufferType.L1):
        view = ttnn.get_memory_view(device, kind)
        statistics[kind.name] = {
            "banks": view.num_banks,
            "bytes_per_bank": view.total_bytes_per_bank,
            "allocated_per_bank": view.total_bytes_allocated_per_bank,
        }
    return statistics


@contextlib.contextmanager
def opened(rows, columns):
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(rows, columns))
    try:
        yield mesh
    finally:
        ttnn.close_mesh_device(mesh)


def exercise(device):
    """Allocates a tensor in each kind of memory and the sum of two, and frees them; returns the statistics before and after."""
    about = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
    tensors = [ttnn.zeros((512, 512), memory_config=ttnn.L1_MEMORY_CONFIG, **about), ttnn.zeros((1024, 1024), **about)]
    tensors.append(ttnn.add(tensors[1], tensors[1]))
    held = spaces(device)
    for tensor in tensors:
        ttnn.deallocate(tensor)
    return held, spaces(device)


def main():
    rows, columns = (int(n) for n in sys.argv[1].split("x"))
    with opened(rows, columns) as mesh:
        before = spaces(mesh)
        held, freed = exercise(mesh)
        result = {
            "ttnn": importlib.metadata.version("ttnn"),
            "mesh": [rows, columns],
            "chips": mesh.get_num_devices(),
            "opened": before,
            "held": held,
            "freed": freed,
        }
    # One chip of the same machine, which needs no links.
    with opened(1, 1) as mesh:
        result["one_chip"] = exercise(mesh)[1]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
