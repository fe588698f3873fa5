"""Seeded random states of the runtime's allocators, and requests in each of them.

    fit.py SEED STATES ROWSxCOLUMNS [hybrid]

After the steps to a state it makes requests, each of which is undone at once, and prints one line of JSON with the address that
each got, or null if it was out of memory. It reads one line before the next state: buffers to free, after which a request that
failed is made again.
"""

import ctypes
import json
import os
import sys

import drift
import ttnn

SPACES = {ttnn.BufferType.DRAM: "dram", ttnn.BufferType.L1: "l1", ttnn.BufferType.L1_SMALL: "l1_small"}
DIRECTION = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["TTMEM_LAB_DIRECTION"]), "lab_is_other_direction")


class States(drift.Workload):
    def fill(self):
        """Allocates until memory is short, then frees some buffers here and there."""
        rng = self.random
        space = rng.choice((ttnn.BufferType.L1, ttnn.BufferType.L1, ttnn.BufferType.DRAM))
        config = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, space)
        cores = self.grid[0] * self.grid[1]
        # Tiles in each bank.
        most = 96 if space == ttnn.BufferType.L1 else 100_000
        banks = cores if space == ttnn.BufferType.L1 else 12
        taken = []
        for _ in range(rng.randrange(4, 60)):
            tiles = banks * rng.randrange(1, most)
            try:
                DIRECTION.value = rng.random() < 0.15
                taken.append(
                    ttnn.empty(
                        (32 * tiles, 32),
                        dtype=rng.choice((ttnn.bfloat16, ttnn.bfloat8_b, ttnn.float32)),
                        layout=ttnn.TILE_LAYOUT,
                        device=self.mesh,
                        memory_config=config,
                    )
                )
            except RuntimeError:
                break
            finally:
                DIRECTION.value = 0
        rng.shuffle(taken)
        self.held += taken[: rng.randrange(len(taken) + 1)]

    def next_state(self):
        rng = self.random
        for _ in range(rng.randrange(1, 5)):
            if rng.random() < 0.4:
                self.fill()
            else:
                self.step()
        # Otherwise states would only grow fuller until everything is freed.
        while len(self.held) > 120:
            self.free(rng, 40)

    def draw(self):
        """A request: its shape, type, layout, and memory."""
        rng = self.random
        draw = rng.random()
        if draw < 0.25:
            return self.interleaved(rng, ttnn.BufferType.DRAM)
        if draw < 0.45:
            return self.interleaved(rng, ttnn.BufferType.L1)
        if draw < 0.60:
            return self.sharded(rng, ttnn.BufferType.L1)
        if draw < 0.70:
            return self.sharded(rng, ttnn.BufferType.L1_SMALL)
        # Large ones, of which many do not fit.
        is_l1 = rng.random() < 0.6
        banks = self.grid[0] * self.grid[1] if is_l1 else 12
        tiles = banks * (rng.randrange(1, 700) if is_l1 else rng.randrange(1, 400_000))
        space = ttnn.BufferType.L1 if is_l1 else ttnn.BufferType.DRAM
        kind = rng.choice((ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.uint8, ttnn.uint16, ttnn.int32))
        return (32 * tiles, 32), ttnn.TILE_LAYOUT, kind, ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, space)

    def allocate_now(self, request, other_direction):
        """The buffer's address, null if it is out of memory, or why it is refused."""
        shape, form, kind, config = request
        DIRECTION.value = other_direction
        try:
            tensor = ttnn.empty(shape, dtype=kind, layout=form, device=self.mesh, memory_config=config)
        except RuntimeError as why:
            return None if "Out of Memory" in str(why) else str(why)[:200]
        finally:
            DIRECTION.value = 0
        address = tensor.buffer_address()
        ttnn.deallocate(tensor)
        return address

    def request_and_undo(self):
        # Buffers on single cores are part of states only.
        is_hybrid, self.hybrid = self.hybrid, False
        request, other_direction = self.draw(), self.random.random() < 0.25
        self.hybrid = is_hybrid
        shape, form, kind, config = request
        shard = list(config.shard_spec.shape) if config.shard_spec else None
        described = {
            "space": SPACES[config.buffer_type],
            "shape": list(shape),
            "data_type": str(kind).split(".")[-1].lower(),
            "layout": "tile" if form == ttnn.TILE_LAYOUT else "row_major",
            "shard": shard,
            "other_direction": other_direction,
            "address": self.allocate_now(request, other_direction),
        }
        return request, described

    def free_and_retry(self, request, other_direction, addresses):
        """Frees the tensors at these addresses. Returns the address of a request afterwards."""
        space = request[3].buffer_type
        wanted = set(addresses)
        at = lambda it: (
            isinstance(it, ttnn.Tensor)
            and it.is_allocated()
            and it.memory_config().buffer_type == space
            and it.buffer_address() in wanted
        )
        found = [it for it in self.held if at(it)]
        self.held = [it for it in self.held if not at(it)]
        for tensor in found:
            ttnn.deallocate(tensor)
        return {"freed": len(found), "address": self.allocate_now(request, other_direction)}


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    shape = tuple(int(n) for n in sys.argv[3].split("x"))
    states = States(seed, shape, False, "hybrid" in sys.argv[4:])
    retried = None
    for _ in range(count):
        states.next_state()
        made = [states.request_and_undo() for _ in range(4)]
        line = {"what": "state", "requests": [described for _, described in made], "retried": retried}
        print(json.dumps(line), flush=True)
        answer = json.loads(sys.stdin.readline())
        retried = None
        if answer["free"]:
            request, described = made[answer["request"]]
            retried = states.free_and_retry(request, described["other_direction"], answer["free"])
    print(json.dumps({"what": "closed", "requests": [], "retried": retried}), flush=True)
    sys.stdin.readline()
    states.close()


main()
