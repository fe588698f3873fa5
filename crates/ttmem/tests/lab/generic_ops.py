"""Programs of the caller's own, with circular buffers on ranges of cores that overlap: GENERIC, by name, a function of the
device.
"""
import ttnn

from ops import BF16, H, grid, sharded, z

KERNEL = "void kernel_main() {}"


def cores_of(*rectangles):
    """A set of cores: rectangles, each from column, row to column, row."""
    ranges = [(ttnn.CoreCoord(*it[:2]), ttnn.CoreCoord(*it[2:])) for it in rectangles]
    return ttnn.CoreRangeSet({ttnn.CoreRange(*it) for it in ranges})


def circular_buffer(index, cores, bytes, page=2048):
    form = ttnn.CBFormatDescriptor(buffer_index=index, data_format=BF16, page_size=page)
    return ttnn.CBDescriptor(total_size=bytes, core_ranges=cores, format_descriptors=[form])


def generic(d, ranges, kernels=None, tensors=None, views=()):
    """A program with a circular buffer of n pages on each of some sets of cores."""
    kernels = kernels or [grid(8, 8)]
    cbs = [circular_buffer(n, cores, pages * 2048) for n, (cores, pages) in enumerate(ranges)]
    tensors = tensors or [z(d, 32, 32), z(d, 32, 32)]
    for tensor in views:
        cbs.append(ttnn.cb_descriptor_from_sharded_tensor(len(cbs), tensor))
    made = [
        ttnn.KernelDescriptor(
            kernel_source=KERNEL, source_type=ttnn.KernelDescriptor.SourceType.SOURCE_CODE, core_ranges=cores,
            compile_time_args=[], config=config(),
        )
        for cores in kernels
        for config in (ttnn.ReaderConfigDescriptor, ttnn.WriterConfigDescriptor)
    ]
    return ttnn.generic_op(tensors, ttnn.ProgramDescriptor(kernels=made, semaphores=[], cbs=cbs))


def generic_views(d):
    mem = sharded((256, 64), 4, 2, H)
    a, b = z(d, 256, 64, mem=mem), z(d, 256, 64, mem=mem)
    return generic(d, [(grid(4, 2), 1), (grid(2, 2), 3)], [grid(4, 2)], [a, b], [a, b])


GENERIC = {
    "generic_one_range": lambda d: generic(d, [(grid(8, 8), 2), (grid(8, 8), 1)]),
    "generic_nested": lambda d: generic(d, [(grid(8, 8), 2), (grid(4, 4), 3), (grid(2, 2), 1)]),
    "generic_nested_inside_out": lambda d: generic(d, [(grid(2, 2), 1), (grid(4, 4), 3), (grid(8, 8), 2)]),
    "generic_overlapping": lambda d: generic(d, [(cores_of((0, 0, 4, 4)), 2), (cores_of((3, 3, 7, 7)), 1)]),
    "generic_corners": lambda d: generic(d, [(cores_of((0, 0, 0, 0), (7, 7, 7, 7)), 4), (grid(8, 8), 1), (cores_of((7, 0, 7, 7)), 2)]),
    "generic_rows_and_columns": lambda d: generic(d, [(cores_of((0, n, 7, n)), n + 1) for n in range(4)] + [(cores_of((n, 0, n, 7)), 1) for n in range(4)]),
    "generic_disjoint": lambda d: generic(d, [(cores_of((0, 0, 3, 7)), 1), (cores_of((4, 0, 7, 7)), 5), (grid(8, 8), 1)]),
    "generic_two_kernel_ranges": lambda d: generic(d, [(grid(4, 1), 2), (cores_of((4, 0, 7, 0)), 3)], [grid(4, 1), cores_of((4, 0, 7, 0))]),
    "generic_views": generic_views,
    "generic_without_buffers": lambda d: generic(d, [], [grid(3, 3)]),
}
