"""A seeded random workload on any machine. After every step it prints each allocator's own statistics, and waits until they
are compared with ttmem's.

    drift.py SEED STEPS ROWSxCOLUMNS [submeshes] [hybrid]

It writes one line of JSON for each step, and reads one line before the next.
"""

import ctypes
import json
import os
import random
import sys
import threading

import ttnn

SPACES = {0: ttnn.BufferType.DRAM, 1: ttnn.BufferType.L1, 3: ttnn.BufferType.L1_SMALL, 4: ttnn.BufferType.TRACE}
L1_SMALL, TRACE_REGION = 24 * 1024, 4 * 1024 * 1024


class Figure(ctypes.Structure):
    """`Figure` of the agent (probe.rs)."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("allocator", "space", "banks", "allocated", "free", "largest")]


AGENT = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
AGENT.ttmem_agent_figures.restype = ctypes.c_size_t
FIGURES = (Figure * 8192)()


def figures():
    """The statistics of every allocator, through the agent's shim."""
    count = AGENT.ttmem_agent_figures(FIGURES, len(FIGURES))
    names = [name for name, _ in Figure._fields_]
    return [[getattr(FIGURES[n], name) for name in names] for n in range(count)]


def view_of(device):
    """The statistics of one device from the runtime's Python call, which does not use the shim."""
    rows = []
    for number, space in SPACES.items():
        view = ttnn.get_memory_view(device, space)
        rows.append(
            [
                number,
                view.num_banks,
                view.total_bytes_allocated_per_bank * view.num_banks,
                view.total_bytes_free_per_bank * view.num_banks,
                view.largest_contiguous_bytes_free_per_bank,
            ]
        )
    return rows


class Workload:
    def __init__(self, seed, shape, submeshes, hybrid):
        self.random = random.Random(seed)
        self.shape, self.with_submeshes, self.hybrid = shape, submeshes, hybrid
        self.held, self.lock = [], threading.Lock()
        self.oom = self.allocated = self.freed = 0
        self.refused = []
        self.open()

    def open(self):
        self.mesh = ttnn.open_mesh_device(
            ttnn.MeshShape(*self.shape), l1_small_size=L1_SMALL, trace_region_size=TRACE_REGION
        )
        self.devices = [self.mesh]
        if self.with_submeshes:
            rows, columns = self.shape
            self.devices += self.mesh.create_submeshes(ttnn.MeshShape(rows, columns // 2))
        grid = self.mesh.compute_with_storage_grid_size()
        self.grid = (grid.x, grid.y)

    def close(self):
        """Closes all devices, sometimes with tensors still allocated."""
        held, self.held = self.held, []
        if self.random.random() < 0.5:
            held.clear()
        for submesh in self.devices[1:]:
            ttnn.close_mesh_device(submesh)
        ttnn.close_mesh_device(self.mesh)
        self.devices, self.mesh = [], None
        held.clear()

    # Requests.

    def grid_of(self, rng, width, height):
        x, y = rng.randrange(self.grid[0] - width + 1), rng.randrange(self.grid[1] - height + 1)
        corner = ttnn.CoreCoord(x + width - 1, y + height - 1)
        return ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(x, y), corner)})

    def interleaved(self, rng, kind):
        config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, kind)
        if rng.random() < 0.3:
            # Rows whose pages are no multiple of the allocator's unit.
            shape = (rng.randrange(1, 200), rng.choice((1, 3, 8, 24, 100, 333, 1000)))
            return shape, ttnn.ROW_MAJOR_LAYOUT, rng.choice((ttnn.bfloat16, ttnn.float32, ttnn.uint32)), config
        tiles = rng.choice((1, 2, 3, 7, 30, 200, 800))
        return (32 * tiles, 32 * rng.randrange(1, 9)), ttnn.TILE_LAYOUT, ttnn.bfloat16, config

    def sharded(self, rng, kind):
        layout = rng.choice(
            (
                ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
                ttnn.TensorMemoryLayout.WIDTH_SHARDED,
                ttnn.TensorMemoryLayout.BLOCK_SHARDED,
            )
        )
        width, height = rng.randrange(1, self.grid[0] + 1), rng.randrange(1, self.grid[1] + 1)
        order = rng.choice((ttnn.ShardOrientation.ROW_MAJOR, ttnn.ShardOrientation.COL_MAJOR))
        tile = (32, 32)
        if kind == ttnn.BufferType.L1_SMALL or rng.random() < 0.3:
            # A row of 8 or 24 numbers is a page of 16 or 48 bytes.
            tile = (1, rng.choice((8, 16, 24)))
        shard = (tile[0] * rng.randrange(1, 4), tile[1])
        cores = width * height
        if layout == ttnn.TensorMemoryLayout.HEIGHT_SHARDED:
            # Some cores of the grid may stay empty.
            shape = (shard[0] * rng.randrange(1, cores + 1), shard[1])
        elif layout == ttnn.TensorMemoryLayout.WIDTH_SHARDED:
            shape = (shard[0], shard[1] * rng.randrange(1, cores + 1))
        else:
            across, down = (width, height) if order == ttnn.ShardOrientation.ROW_MAJOR else (height, width)
            shape = (shard[0] * down, shard[1] * across)
        spec = ttnn.ShardSpec(self.grid_of(rng, width, height), shard, order)
        config = ttnn.MemoryConfig(layout, kind, spec)
        if self.hybrid and kind == ttnn.BufferType.L1 and rng.random() < 0.4:
            config.experimental_set_per_core_allocation(True)
        form = ttnn.TILE_LAYOUT if tile == (32, 32) else ttnn.ROW_MAJOR_LAYOUT
        return shape, form, ttnn.bfloat16, config

    def nd_sharded(self, rng, kind):
        shape = (rng.randrange(1, 5), 32 * rng.randrange(1, 5), 32 * rng.randrange(1, 5))
        width, height = rng.randrange(1, self.grid[0] + 1), rng.randrange(1, self.grid[1] + 1)
        spec = ttnn.NdShardSpec((1, 32, 32), self.grid_of(rng, width, height))
        return shape, ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.MemoryConfig(kind, spec)

    def request(self, rng):
        draw = rng.random()
        if draw < 0.25:
            return self.interleaved(rng, ttnn.BufferType.DRAM)
        if draw < 0.45:
            return self.interleaved(rng, ttnn.BufferType.L1)
        if draw < 0.80:
            return self.sharded(rng, ttnn.BufferType.L1)
        if draw < 0.85:
            return self.nd_sharded(rng, ttnn.BufferType.L1)
        if draw < 0.93:
            return self.sharded(rng, ttnn.BufferType.L1_SMALL)
        return self.interleaved(rng, ttnn.BufferType.TRACE)

    def allocate(self, rng):
        device = rng.choice(self.devices)
        shape, form, kind, config = self.request(rng)
        try:
            tensor = ttnn.empty(shape, dtype=kind, layout=form, device=device, memory_config=config)
        except RuntimeError as why:
            # Out of memory, or not supported by this version: nothing was allocated.
            if "Out of Memory" in str(why):
                self.oom += 1
            else:
                self.refused.append(str(why)[:300])
            return
        with self.lock:
            self.allocated += 1
            self.held.append(tensor)

    def free(self, rng, count=1):
        for _ in range(count):
            with self.lock:
                if not self.held:
                    return
                tensor = self.held.pop(rng.randrange(len(self.held)))
            self.freed += 1
            if rng.random() < 0.5 and isinstance(tensor, ttnn.Tensor):
                ttnn.deallocate(tensor)
            del tensor

    # Steps.

    def step(self):
        rng = self.random
        draw = rng.random()
        if draw < 0.50:
            self.allocate(rng)
            return "allocate"
        if draw < 0.80:
            self.free(rng)
            return "free"
        if draw < 0.86:
            # More than fits, in one piece or in many.
            shape = (32, 32, 1024, 64) if rng.random() < 0.5 else (1, 1, 32 * 1024, 1024)
            kind = rng.choice((ttnn.L1_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG))
            greedy = []
            try:
                for _ in range(3 if kind == ttnn.DRAM_MEMORY_CONFIG else 40):
                    greedy.append(
                        ttnn.empty(
                            shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=self.mesh, memory_config=kind
                        )
                    )
            except RuntimeError:
                self.oom += 1
            self.held += greedy[: rng.randrange(0, 2)]
            return "greedy"
        if draw < 0.92:
            self.threads(rng)
            return "threads"
        if draw < 0.95:
            self.free(rng, len(self.held))
            return "free all"
        if draw < 0.97:
            cores = self.grid_of(rng, rng.randrange(1, self.grid[0]), rng.randrange(1, self.grid[1]))
            try:
                self.held.append(ttnn.create_global_semaphore(self.mesh, cores, 0))
            except RuntimeError:
                self.oom += 1
            return "semaphore"
        if draw < 0.985 or self.with_submeshes:
            ones = ttnn.empty((64, 64), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=self.devices[-1])
            try:
                self.held.append(ttnn.add(ones, ones))
            except RuntimeError:
                self.oom += 1
            return "op"
        self.close()
        self.open()
        return "close and open"

    def threads(self, rng):
        def work(seed):
            own = random.Random(seed)
            for _ in range(own.randrange(1, 12)):
                if own.random() < 0.6:
                    self.allocate(own)
                else:
                    self.free(own)

        seeds = [rng.randrange(1 << 30) for _ in range(4)]
        workers = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def report(what, workload, extra=None):
    print(json.dumps({"what": what, "figures": figures(), "held": len(workload.held)} | (extra or {})), flush=True)
    if not sys.stdin.readline():
        sys.exit(1)


def main():
    seed, steps = int(sys.argv[1]), int(sys.argv[2])
    shape = tuple(int(n) for n in sys.argv[3].split("x"))
    workload = Workload(seed, shape, "submeshes" in sys.argv[4:], "hybrid" in sys.argv[4:])
    report("open", workload, {"view": view_of(workload.mesh)})
    for n in range(steps):
        what = workload.step()
        # Slow with many buffers, so not at every step.
        extra = {"view": view_of(workload.mesh)} if n % 16 == 0 else None
        report(what, workload, extra)
    workload.close()
    counts = {name: getattr(workload, name) for name in ("allocated", "freed", "oom")}
    report("closed", workload, {"counts": counts, "refused": workload.refused})


if __name__ == "__main__":
    main()
