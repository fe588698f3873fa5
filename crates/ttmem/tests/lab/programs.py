"""The runtime's own data about the programs on its chips: addresses, sizes, dispatches.

There are five sources:

* the reports of the runtime's graph capture: a normal one has the addresses of circular buffers, one without dispatch has
  sizes and cores of all parts, without addresses;
* each program's own lists of L1 regions, by which the runtime checks that programs and tensors do not clash. A region belongs
  to a range of cores and has the buffers on any core of it, so if ranges overlap, regions are on more cores than buffers;
* each program's buffers: circular ones from the runtime's functions, dataflow ones from their lists of cores and addresses,
  by which the runtime writes them to the chip;
* the size of each program's configuration, from the runtime;
* what reached the queues, recorded by queue.cpp, which must be preloaded.

The agent reads none of them but the functions for circular buffers.

The puppet imports this; `python programs.py ROWSxCOLUMNS [OP ...]` compares the sources with each other.
"""

import collections
import ctypes
import importlib.metadata
import os
import re
import struct
import sys
import time

import ttnn

import more_ops
import ops

GRAPH = ttnn._ttnn.graph  # the wrapper around it imports torch
OPS = {**ops.OPS, **ops.MESH_OPS, **more_ops.MORE_OPS}


# The runtime's memory and functions


def _runtime():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return ctypes.CDLL(next(line.split()[-1] for line in maps if "/libtt_metal.so" in line))


_LIBRARY = _runtime()
_MEMORY = os.open("/proc/self/mem", os.O_RDONLY)

_VERSION = importlib.metadata.version("ttnn")

# Offsets of fields that there is no function for, by release.
_Offsets = collections.namedtuple(
    "_Offsets",
    "regions"  # of a `ProgramImpl`: regions of circular buffers
    " dataflow_regions"  # of a `ProgramImpl`: regions of dataflow buffers and scratchpads
    " entries"  # of a `DataflowBufferImpl`: size and number of entries
    " borrows"  # of a `DataflowBufferImpl`: whether it is a view
    " groups"  # of a `DataflowBufferImpl`: groups of cores, which have a list of cores and addresses
    " scratchpad",  # size of an entry of a kernel's list of scratchpads
)
_AT = {
    "76": _Offsets(0x268, 0x3B8, 0x20, 0x6E, 0x78, 0x30),
    "78": _Offsets(0x270, 0x470, 0x28, 0x76, 0x80, 0x30),
    "80": _Offsets(0x290, 0x518, 0x28, 0x6A, 0x78, 0x60),
    "81": _Offsets(0x290, 0x518, 0x28, 0x72, 0x80, 0x60),
}[_VERSION.split(".")[1]]
_SCRATCHPADS = 0x220  # of a `Kernel`


def _function(name, result, *arguments):
    function = getattr(_LIBRARY, name)
    function.restype, function.argtypes = result, arguments
    return function


_PROGRAM = "_ZN2tt8tt_metal6detail11ProgramImpl"
_config_size = _function(_PROGRAM + "23get_program_config_sizeEj", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
_groups = _function(_PROGRAM + "17get_kernel_groupsEj", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
_kernels = _function(_PROGRAM + "11get_kernelsEj", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
_id = _function("_ZNK2tt8tt_metal6detail11ProgramImpl6get_idEv", ctypes.c_uint64, ctypes.c_void_p)
_kernel_cores = _function("_ZNK2tt8tt_metal6Kernel18logical_corerangesEv", None, ctypes.c_void_p, ctypes.c_void_p)
_buffers = _function("_ZNK2tt8tt_metal6detail11ProgramImpl16dataflow_buffersEv", ctypes.c_void_p, ctypes.c_void_p)
_circular_cores = _function("_ZNK2tt8tt_metal14CircularBuffer11core_rangesEv", ctypes.c_void_p, ctypes.c_void_p)
_circular_size = _function("_ZNK2tt8tt_metal14CircularBuffer4sizeEv", ctypes.c_uint32, ctypes.c_void_p)
_is_global = _function("_ZNK2tt8tt_metal14CircularBuffer18globally_allocatedEv", ctypes.c_bool, ctypes.c_void_p)
_circular_address = _function("_ZNK2tt8tt_metal18CircularBufferImpl7addressEv", ctypes.c_uint32, ctypes.c_void_p)
_COMPUTE = ctypes.addressof(ctypes.c_char.in_dll(_LIBRARY, "_ZTVN2tt8tt_metal13ComputeKernelE")) + 16


def _words(address, count):
    return struct.unpack(f"<{count}Q", os.pread(_MEMORY, 8 * count, address))


def _vector(address, size):
    """Addresses of a vector's elements."""
    begin, end = _words(address, 2)
    assert (end - begin) % size == 0 and end - begin < 1 << 20, "this is no such vector"
    return range(begin, end, size)


def _rectangles(address):
    return [list(_words(it, 4)) for it in _vector(address, 32)]


def cores(rectangles):
    return {(x, y) for x0, y0, x1, y1 in rectangles for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)}


def _regions(program, offset):
    """[x0, y0, x1, y1, begin, end] of each interval of a rectangle of cores."""
    found = []
    for rectangle in _vector(program + offset, 56):
        for pair in _vector(rectangle + 32, 16):
            found.append([*_words(rectangle, 4), *_words(pair, 2)])
    return found


def _kernels_of(program):
    """Each kernel and its rectangles of cores."""
    (node,) = _words(_kernels(program, 0) + 16, 1)
    while node:
        node, _, kernel = _words(node, 3)
        out = (ctypes.c_uint64 * 3)()
        _kernel_cores(ctypes.addressof(out), kernel)
        yield kernel, _rectangles(ctypes.addressof(out))


def _processors(program):
    """Number of processors with a kernel on the busiest core: three for a compute kernel, one for data movement."""
    busy = collections.Counter()
    for kernel, rectangles in _kernels_of(program):
        (table,) = _words(kernel, 1)
        for core in cores(rectangles):
            busy[core] += 3 if table == _COMPUTE else 1
    return max(busy.values(), default=0)


# A C++ function that returns a pointer and a length in registers. ctypes returns structs of 16 bytes in the same way.
class _Span(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_uint64), ("len", ctypes.c_uint64)]


_circular_buffers = _function("_ZNK2tt8tt_metal6detail11ProgramImpl16circular_buffersEv", _Span, ctypes.c_void_p)


def _circular(program):
    """Whether it is a view, and [x0, y0, x1, y1, begin, end], of each rectangle of each circular buffer."""
    found = _circular_buffers(program)
    for pair in range(found.begin, found.begin + 16 * found.len, 16):
        (implementation,) = _words(pair, 1)
        # A `CircularBuffer` is a pointer to its implementation, as is an entry of this list.
        address, size = _circular_address(implementation), _circular_size(pair)
        for rectangle in _rectangles(_circular_cores(pair)):
            yield _is_global(pair), [*rectangle, address, address + size]


def _dataflow(program):
    """Whether it is a view, and [x, y, x, y, begin, end], of each core of each dataflow buffer."""
    for pair in _vector(_buffers(program), 16):
        (buffer,) = _words(pair, 1)
        (entries,) = _words(buffer + _AT.entries, 1)
        view = os.pread(_MEMORY, 1, buffer + _AT.borrows)[0] == 1
        for group in _vector(buffer + _AT.groups, 72):
            for core in _vector(group + 48, 24):
                x, y, address = _words(core, 3)
                begin = address & 0xFFFFFFFF
                yield view, [x, y, x, y, begin, begin + (entries & 0xFFFFFFFF) * (entries >> 32)]


def _scratchpads(program):
    for kernel, rectangles in _kernels_of(program):
        for pad in _vector(kernel + _SCRATCHPADS, _AT.scratchpad):
            size, address = (it & 0xFFFFFFFF for it in _words(pad + 32, 2))
            yield from ([*rectangle, address, address + size] for rectangle in rectangles)


def describe(program):
    """The runtime's data about a program that was dispatched and still exists."""
    circular, dataflow = list(_circular(program)), list(_dataflow(program))
    return {
        "id": _id(program),
        "config_bytes": ctypes.c_uint32.from_address(_config_size(program, 0)).value,
        "processors": _processors(program),
        "cores": [it for group in _vector(_groups(program, 0), 16) for it in _rectangles(_words(group, 1)[0] + 8)],
        "cb": [it for view, it in circular if not view],
        "cb_views": [it for view, it in circular if view],
        "cb_regions": _regions(program, _AT.regions),
        "dataflow": [*(it for view, it in dataflow if not view), *_scratchpads(program)],
        "dfb_views": [it for view, it in dataflow if view],
        "dataflow_regions": _regions(program, _AT.dataflow_regions),
    }


# What reached the queues


class _Note(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint64),
        ("trace", ctypes.c_uint64),
        ("program", ctypes.c_void_p),
        ("id", ctypes.c_uint64),
        ("mesh", ctypes.c_int64),
        ("dimensions", ctypes.c_uint64),
        ("first", ctypes.c_uint32 * 4),
        ("last", ctypes.c_uint32 * 4),
    ]


_take = ctypes.CDLL(None).lab_queue_take
_take.restype, _take.argtypes = ctypes.c_long, (ctypes.c_void_p, ctypes.c_size_t)
_NOTES = (_Note * 65536)()
_MESHES = {}


def _chips(note):
    """The chips of a range of a mesh, by their numbers."""
    mesh = _MESHES[note.mesh]
    rows, columns = mesh.shape
    ids = list(mesh.get_device_ids())
    (r0, c0), (r1, c1) = note.first[:2], note.last[:2]
    assert note.dimensions == 2 and len(ids) == rows * columns
    return sorted(ids[r * columns + c] for r in range(r0, r1 + 1) for c in range(c0, c1 + 1))


def take_dispatched():
    """What reached the queues since the last call."""
    count = _take(ctypes.addressof(_NOTES), len(_NOTES))
    assert count >= 0, "too much was dispatched"
    found = []
    for note in _NOTES[:count]:
        event = {"kind": ("dispatched", "captured", "replayed")[note.kind], "trace": note.trace}
        if note.kind != 2:
            event.update(id=note.id, pointer=note.program, chips=_chips(note))
        found.append(event)
    return found


def dispatched_programs():
    """What reached the queues since the last call, with the runtime's data about each program, which must still exist."""
    found = take_dispatched()
    for event in found:
        if "pointer" in event:
            event.update(describe(event.pop("pointer")))
    return found


# Devices


def register_mesh(mesh):
    _MESHES[mesh.id()] = mesh
    return mesh


def open_mesh(rows, columns, fabric=False, **options):
    if fabric:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    options.setdefault("l1_small_size", 24576)
    return register_mesh(ttnn.open_mesh_device(ttnn.MeshShape(rows, columns), **options))


# Graph capture


def _text(rectangles):
    """{[0-0 - 7-7], [0-8 - 3-8]}"""
    return [[int(n) for n in it] for it in re.findall(r"\[(\d+)-(\d+) - (\d+)-(\d+)\]", rectangles)]


_KINDS = {"circular_buffer_allocate": "cb", "dataflow_buffer_allocate": "dfb", "scratchpad_allocate": "scratch"}


def capture_report(op, device, mode):
    """Programs' memory in the runtime's report: kind, chip, address, bytes, whether it is a view, cores."""
    GRAPH.begin_graph_capture(getattr(GRAPH.RunMode, mode))
    try:
        op(device)
    finally:
        nodes = GRAPH.end_graph_capture()
    found = []
    for node in nodes:
        kind, about = _KINDS.get(node["node_type"]), node["params"]
        if kind:
            view = about.get("globally_allocated", about.get("borrows_memory", "0")) == "1"
            part = {"space": kind, "chip": about["device_id"], "address": about["address"], "bytes": about["size"]}
            found.append({**part, "view": view, "cores": _text(about["core_range_set"])})
    return found


# Without addresses nothing overlaps, so these ops leave out a program that moves a tensor.
_MOVES = {"conv2d_3x3", "max_pool2d", "move_l1", *more_ops.WINDOWS}


def run_or_refuse(name, device):
    """Like `run`, but returns the runtime's reason if it refuses the op."""
    if more_ops.CRASHES.get(name) == (_VERSION, ttnn.get_arch_name()):
        return {"op": name, "refused": "it crashes, also without the agent"}
    try:
        return run(name, device)
    except Exception as why:
        # The message after the place and the condition, without the stack.
        text = str(why).split("backtrace:")[0].split("info:")[-1]
        return {"op": name, "refused": " ".join(text.split())[:160] or type(why).__name__}


def run(name, device):
    """Runs an op, the only one whose programs are cached afterwards, and returns the runtime's reports of it."""
    op = OPS[name]
    sizes = None if name in _MOVES else capture_report(op, device, "NO_DISPATCH")
    device.clear_program_cache()
    take_dispatched()
    report = capture_report(op, device, "NORMAL")
    programs = [it for it in dispatched_programs() if it["kind"] == "dispatched"]
    # The programs of a workload with several are compiled in threads that the report does not include.
    alone = all(it["chips"] == sorted(device.get_device_ids()) for it in programs)
    return {"op": name, "programs": programs, "report": report if alone else None, "sizes": sizes}


# Tensors, and many programs


def run_many(device, count):
    """Runs ops with `count` different programs, on few cores and on many, with few kernels, so that little is compiled."""

    def tall(n, **options):
        return ops.z(device, 32 * n, 64, **options)

    kinds = [
        lambda n: ttnn.clone(tall(n)),
        lambda n: ttnn.where(tall(n), tall(n), tall(n)),
        lambda n: ttnn.softmax(tall(n), dim=-1),
        lambda n: ttnn.concat([tall(n), tall(n)], dim=0),
        lambda n: ttnn.typecast(tall(n), ttnn.float32),
        lambda n: ttnn.tilize(tall(n, layout=ops.RM), use_multicore=True),
        lambda n: ttnn.copy(tall(n), tall(n)),
        lambda n: ttnn.transpose(ops.z(device, 1, 1, 32 * n, 64), -2, -1),
    ]
    for n in range(count):
        kinds[n % len(kinds)](n // len(kinds) + 1)


def fill_l1(device, left):
    """A tensor that leaves at most `left` bytes of each core's L1, where programs begin."""
    statistics = ttnn.get_memory_view(device, ttnn.BufferType.L1)
    rows = (statistics.largest_contiguous_bytes_free_per_bank - left) // 2048
    shape = (1, 1, statistics.num_banks * 32 * rows, 32)
    return ttnn.empty(shape, dtype=ops.BF16, layout=ops.TILE, device=device, memory_config=ops.L1)


def refusal_of(work):
    """The error with which the runtime refuses to do something."""
    try:
        work()
    except RuntimeError as why:
        return str(why)
    raise AssertionError("it was not refused")


def allocate_mixture(device):
    """Tensors of every kind in L1 and L1_SMALL, with a hole."""
    # L1_SMALL has no interleaved ones.
    spec = ttnn.ShardSpec(ops.grid(4, 2), (32, 32), ttnn.ShardOrientation.ROW_MAJOR)
    small = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1_SMALL, spec)
    held = {
        "interleaved": ops.z(device, 512, 512, mem=ops.L1),
        "one tile": ops.z(device, 32, 32, mem=ops.L1),
        "hole": ops.z(device, 256, 512, mem=ops.L1),
        "height": ops.z(device, 256, 64, mem=ops.sharded((256, 64), 4, 2, ops.H)),
        "width": ops.z(device, 64, 256, mem=ops.sharded((64, 256), 4, 2, ops.W)),
        "block": ops.z(device, 256, 256, mem=ops.sharded((256, 256), 4, 4, ops.B)),
        "small": ops.z(device, 256, 32, mem=small),
    }
    ttnn.deallocate(held.pop("hole"))
    return held


def shards_of(held):
    """Address, bytes on a core and cores of sharded tensors."""
    found = []
    for tensor in held.values():
        spec = tensor.memory_config().shard_spec
        if spec is not None:
            height, width = spec.shape
            boxes = [[it.start.x, it.start.y, it.end.x, it.end.y] for it in spec.grid.ranges()]
            found.append([tensor.buffer_address(), height * width * 2, boxes])
    return found


def read_bank(device, space):
    """The allocator's own statistics of a bank: allocated intervals, relative to the begin of the space, and sizes."""
    statistics = ttnn.get_memory_view(device, getattr(ttnn.BufferType, space))
    blocks = [(int(b["address"]), int(b["size"])) for b in statistics.block_table if b["allocated"] == "yes"]
    taken = [[address, address + size] for address, size in blocks]
    total = sum(end - begin for begin, end in taken)
    assert total == statistics.total_bytes_allocated_per_bank, statistics.block_table
    return {
        "taken": taken,
        "bytes": statistics.total_bytes_per_bank,
        "allocated": statistics.total_bytes_allocated_per_bank,
        "banks": statistics.num_banks,
    }


# Comparison


def union(ranges):
    """The merged intervals of each core, from [(rectangles, begin, end)]."""
    by_core = collections.defaultdict(list)
    for rectangles, begin, end in ranges:
        for core in cores(rectangles):
            by_core[core].append((begin, end))
    for core, intervals in by_core.items():
        merged = []
        for begin, end in sorted(intervals):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        by_core[core] = merged
    return dict(by_core)


def find_disagreements(op_report):
    """Differences between the sources about an op."""
    wrong = []
    regions = union(([it[:4]], *it[4:]) for program in op_report["programs"] for it in program["cb"])
    if op_report["report"] is not None:
        chip = min((it["chip"] for it in op_report["report"]), default=0)
        local = [it for it in op_report["report"] if it["space"] == "cb" and not it["view"] and it["chip"] == chip]
        report = union((it["cores"], it["address"], it["address"] + it["bytes"]) for it in local)
        if report != regions:
            wrong.append(f"circular buffers: the report has {report}, the regions {regions}")
    return wrong


def main():
    rows, columns = (int(n) for n in sys.argv[1].split("x"))
    device = open_mesh(rows, columns, fabric=rows * columns > 1)
    names = sys.argv[2:] or {**ops.OPS, **(ops.MESH_OPS if rows * columns > 1 else {})}
    counts = collections.Counter()
    for name in names:
        begin = time.monotonic()
        op_report = run(name, device)
        wrong = find_disagreements(op_report)
        programs = op_report["programs"]
        counts["wrong" if wrong else "right"] += 1
        counts["programs"] += len(programs)
        counts["reports"] += op_report["report"] is not None
        ends = max((it[5] for p in programs for it in p["cb"] + p["dataflow"]), default=0)
        sizes = [(p["id"], p["config_bytes"], p["processors"]) for p in programs]
        print(f"{name:24} {time.monotonic() - begin:6.2f} s", sizes[:3], ends, *wrong)
    print(dict(counts))
    ttnn.close_mesh_device(device)


if __name__ == "__main__":
    main()
