"""Makes allocations fail in stock ttnn, and compares the post-mortem with what the runtime says and does.

    failures.py TTMEM FOLDER ROWSxCOLUMNS [CASE...]

Each case makes one kind of failure, reads `ttmem postmortem --json`, compares its figures with those of the exception, and does what it
proposes: then the same request has to succeed. With `uncaught` as the last argument, the last case ends the process instead.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import threading

import ttnn

TTMEM, FOLDER = sys.argv[1:3]
SHAPE = [int(side) for side in sys.argv[3].split("x")]
TILE, BF16 = ttnn.TILE_LAYOUT, ttnn.bfloat16
L1, DRAM = ttnn.L1_MEMORY_CONFIG, ttnn.DRAM_MEMORY_CONFIG
UNIT = 32 << 10

device = None
held = []


def post_mortem(*more):
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [TTMEM, "postmortem", "--json", "--shm-dir", FOLDER, str(os.getpid()), *more]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def view(space):
    return ttnn.get_memory_view(device, getattr(ttnn.BufferType, space))


def in_banks(bytes_per_bank, memory):
    """A tensor with so many bytes in each bank."""
    banks = view("L1" if memory is L1 else "DRAM").num_banks
    shape = ttnn.Shape((32 * banks * (bytes_per_bank // 2048), 32))
    return ttnn.empty(shape, BF16, TILE, device, memory)


def keep(tensor):
    held.append(tensor)
    return tensor


def drop(addresses):
    """Frees the tensors at these addresses."""
    gone = [it for it in held if it.buffer_address() in addresses]
    assert len(gone) == len(set(addresses)), (addresses, [it.buffer_address() for it in held])
    # Tensors are compared by an operation.
    held[:] = [it for it in held if not any(it is tensor for tensor in gone)]
    for tensor in gone:
        ttnn.deallocate(tensor)


def clear():
    for tensor in held:
        ttnn.deallocate(tensor)
    held.clear()


def fill(bytes_per_bank, memory):
    """Allocates until nothing more fits, and returns the exception's text."""
    while True:
        text = failing(lambda: keep(in_banks(bytes_per_bank, memory)))
        if text:
            return text


def failing(request):
    try:
        request()
    except RuntimeError as error:
        return str(error)


def number(text, before):
    return int(re.search(re.escape(before) + r"(\d+)", text).group(1))


def expect(actual, expected, what):
    assert actual == expected, f"{what}: {actual}, not {expected}"


def read(text, kind, function, exact=True):
    """The post-mortem of the failure that has just happened: its kind, and that it names the line that asked."""
    found = post_mortem()
    failure = found["failure"]
    expect(failure["kind"], kind, text)
    expect(found["exact"], exact, found.get("inexact_reason"))
    assert failure["file"].endswith("failures.py"), failure
    expect(failure["function"], function, failure)
    expect(len(failure["indexes"]), SHAPE[0] * SHAPE[1], "devices")
    return found


def compare_bank(text, found):
    """Compares the figures of an exception with those of the post-mortem, and with the sum of all holders."""
    bank = found["bank"]
    for name, before in [("used", "allocated: "), ("free", "free: "), ("largest_free", "largest free block: ")]:
        expect(bank[f"{name}_bytes_per_bank"], number(text, before), name)
    expect(sum(it["bytes_per_bank"] for it in found["holders"]), number(text, "allocated: "), "holders")
    expect(found["failure"]["needed_bytes_per_bank"], number(text, "needs to store "), "needed")
    return bank


def addresses(buffers):
    return [int(it["id"], 16) for it in buffers]


def make_room(found, request):
    """Frees the proposed buffers; then the request succeeds."""
    room = found["make_room"]
    drop(addresses(room["buffers"]))
    keep(request())


def full_dram():
    step = view("DRAM").total_bytes_per_bank // 8 // 2048 * 2048
    text = fill(step, DRAM)
    found = read(text, "out_of_memory", "in_banks")
    expect(compare_bank(text, found)["shortage"], "full", text)
    make_room(found, lambda: in_banks(step, DRAM))


def full_l1():
    text = fill(UNIT, L1)
    found = read(text, "out_of_memory", "in_banks")
    expect(compare_bank(text, found)["shortage"], "full", text)
    make_room(found, lambda: in_banks(UNIT, L1))


def fragmented_l1():
    fill(UNIT, L1)
    drop(sorted(it.buffer_address() for it in held)[::2])
    request = lambda: in_banks(4 * UNIT, L1)
    text = failing(request)
    found = read(text, "out_of_memory", "in_banks")
    bank = compare_bank(text, found)
    expect(bank["shortage"], "fragmented", text)
    assert bank["free_bytes_per_bank"] > 4 * UNIT > bank["largest_free_bytes_per_bank"], bank
    expect(found["make_room"]["count"], 2, found["make_room"])
    make_room(found, request)


def too_large():
    text = failing(lambda: in_banks(2 * view("L1").total_bytes_per_bank // 2048 * 2048, L1))
    found = read(text, "out_of_memory", "in_banks")
    expect(compare_bank(text, found)["shortage"], "too_large", text)
    expect(found["make_room"], None, text)


def in_a_thread():
    texts = []
    thread = threading.Thread(target=lambda: texts.append(fill(UNIT, L1)))
    thread.start()
    thread.join()
    found = read(texts[0], "out_of_memory", "in_banks")
    compare_bank(texts[0], found)
    make_room(found, lambda: in_banks(UNIT, L1))


def sharded(memory, rows, columns, width=32, first=(0, 0)):
    """A memory config with a shard of `rows` x `width` on each core of a rectangle of 1 x `columns` cores."""
    corner = ttnn.CoreCoord(*first)
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(corner, ttnn.CoreCoord(first[0] + columns - 1, first[1]))})
    spec = ttnn.ShardSpec(cores, (rows, width), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, memory, spec)


def in_shards(rows, columns, memory, first=(0, 0)):
    shape = ttnn.Shape((rows * columns, 32))
    return ttnn.empty(shape, BF16, TILE, device, sharded(memory, rows, columns, first=first))


def full_l1_small():
    request = lambda: keep(in_shards(32, 8, ttnn.BufferType.L1_SMALL))
    while not (text := failing(request)):
        pass
    found = read(text, "out_of_memory", "in_shards")
    expect(found["failure"]["space"], "l1_small", text)
    compare_bank(text, found)
    size = {"parameter": "l1_small_size", "bytes": L1_SMALL + 2048}
    expect(found["open_with"], size, text)
    make_room(found, lambda: in_shards(32, 8, ttnn.BufferType.L1_SMALL))


def unsupported_l1_small():
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, ttnn.BufferType.L1_SMALL)
    text = failing(lambda: ttnn.empty(ttnn.Shape((32, 32)), BF16, TILE, device, memory))
    found = read(text, "unsupported", "<lambda>")
    expect((found["bank"], found["make_room"], found["open_with"]), (None, None, None), text)


def program(bytes_per_core, columns=4, rows=4):
    """Runs a program with a circular buffer of so many bytes on a rectangle of cores."""
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(columns - 1, rows - 1))})
    form = ttnn.CBFormatDescriptor(buffer_index=0, data_format=BF16, page_size=2048)
    buffer = ttnn.CBDescriptor(total_size=bytes_per_core // 2048 * 2048, core_ranges=cores, format_descriptors=[form])
    kernel = ttnn.KernelDescriptor(
        kernel_source="void kernel_main() {}",
        source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE,
        core_ranges=cores,
        compile_time_args=[],
        config=ttnn.ReaderConfigDescriptor(),
    )
    tensors = [ttnn.empty(ttnn.Shape((32, 32)), BF16, TILE, device, DRAM) for _ in "io"]
    return ttnn.generic_op(tensors, ttnn.ProgramDescriptor(kernels=[kernel], semaphores=[], cbs=[buffer]))


def clash():
    """Two buffers are in the way of a program; above them is a hole that both fit into."""
    bank = view("L1").total_bytes_per_bank // UNIT
    large, small = bank // 3, 2
    hole = keep(in_banks((large + small) * UNIT, L1))
    keep(in_banks(small * UNIT, L1))
    keep(in_banks(large * UNIT, L1))
    drop([hole.buffer_address()])
    request = lambda: program((bank - large - small - 1) * UNIT)
    text = failing(request)
    found = read(text, "clash", "program")
    failure, gap = found["failure"], found["gaps"][0]
    expect(failure["lowest_buffer"], number(text, "L1 buffer allocated at "), text)
    expect(failure["program_end"], number(text, "buffer region ends at "), text)
    expect((failure["cores"], gap["cores"]), ([[0, 0, 3, 3]], [[0, 0, 3, 3]]), text)
    expect(gap["lowest_reserved"], failure["lowest_buffer"], gap)
    moved = found["in_the_way"]
    expect([it["only_by_lockstep"] for it in moved], [False, False], moved)
    expect(sorted(addresses(it["buffer"] for it in moved)), sorted(it.buffer_address() for it in held), moved)
    drop(addresses(it["buffer"] for it in moved))
    for it in moved:
        tensor = keep(in_banks(it["buffer"]["bytes_per_bank"], L1))
        expect(tensor.buffer_address(), it["new_address"], it)
    request()


def clash_with_other_cores():
    """A buffer that is on none of the program's cores is in the way all the same."""
    rows = view("L1").total_bytes_per_bank // 2 // 2048 * 32
    keep(in_shards(rows, 2, ttnn.BufferType.L1, first=(4, 5)))
    request = lambda: program(view("L1").total_bytes_per_bank * 3 // 4)
    text = failing(request)
    found = read(text, "clash", "program")
    (only,) = found["in_the_way"]
    expect(only["only_by_lockstep"], True, only)
    expect((found["gaps"][0]["lowest_buffer"], only["new_address"]), (None, None), found["gaps"])
    drop(addresses([only["buffer"]]))
    request()


def clash_of_an_operation():
    """A program of the runtime's own, also when it is cached: it is checked with every dispatch."""
    row = ttnn.zeros((1, 1, 32, 8192), dtype=BF16, layout=TILE, device=device)
    ttnn.softmax(row, dim=-1)
    keep(in_banks(view("L1").total_bytes_per_bank * 7 // 8 // 2048 * 2048, L1))
    text = failing(lambda: ttnn.softmax(row, dim=-1))
    found = read(text, "clash", "<lambda>")
    expect(found["failure"]["op"], "ttnn.softmax", found["failure"])
    assert "oftmax" in found["failure"]["program_name"], found["failure"]
    drop(addresses(it["buffer"] for it in found["in_the_way"]))
    ttnn.softmax(row, dim=-1)


def beyond_l1():
    text = failing(lambda: program(2 << 20))
    found = read(text, "beyond_l1", "program")
    expect(found["failure"]["program_end"], number(text, "grow to "), text)
    expect(found["failure"]["limit_bytes"], number(text, "beyond max L1 size of "), text)


def kernel_config():
    """Needs kernels that together are longer than the buffer."""
    tensor = ttnn.zeros((1, 1, 32, 32), dtype=BF16, layout=TILE, device=device)
    text = failing(lambda: ttnn.add(tensor, tensor))
    found = read(text, "kernel_config", "<lambda>")
    expect(found["failure"]["requested_bytes"], number(text, "Program size ("), text)
    expect(found["failure"]["limit_bytes"], number(text, "kernel config buffer ("), text)


def many_in_a_row():
    """Only few of many failures are saved: of the others, what has happened since is undone."""
    fill(UNIT, L1)
    for _ in range(20):
        text = failing(lambda: in_banks(UNIT, L1))
    found = read(text, "out_of_memory", "in_banks")
    compare_bank(text, found)
    failing(lambda: in_banks(2 * UNIT, L1))
    text = failing(lambda: in_banks(4 * UNIT, L1))
    clear()
    found = read(text, "out_of_memory", "in_banks")
    compare_bank(text, found)
    first = post_mortem("--first")
    assert first["failure"]["sequence"] < found["failure"]["sequence"], first["failure"]


L1_SMALL = 8192
CASES = [it for name, it in list(globals().items()) if inspect.isfunction(it) and name in (
    "full_dram full_l1 fragmented_l1 too_large in_a_thread full_l1_small unsupported_l1_small clash clash_with_other_cores"
    " clash_of_an_operation beyond_l1 many_in_a_row").split()]


def main():
    global device
    names = [name for name in sys.argv[4:] if name != "uncaught"]
    device = ttnn.open_mesh_device(ttnn.MeshShape(*SHAPE), l1_small_size=L1_SMALL)
    cases = [globals()[name] for name in names] or CASES
    for case in cases:
        case()
        clear()
        print("case", case.__name__, flush=True)
    if sys.argv[-1] == "uncaught":
        weights = keep(in_banks(10 * UNIT, DRAM))
        while True:
            keep(in_banks(UNIT, L1))


if __name__ == "__main__":
    main()
