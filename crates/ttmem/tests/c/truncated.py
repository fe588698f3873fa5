"""Reports allocations while another program truncates the segment: truncated.py LIBRARY FAULTHANDLER DAMAGE."""

import ctypes
import faulthandler
import glob
import mmap
import os
import sys
import tempfile

library = ctypes.CDLL(sys.argv[1])
DRAM = 0


def report(count: int) -> None:
    for n in range(1, count):
        library.ttmem_report_allocation(0, ctypes.c_uint64(64), DRAM, ctypes.c_uint64(n * 64))


if sys.argv[2] == "before":
    faulthandler.enable()
report(1000)
if sys.argv[2] == "after":
    faulthandler.enable()
[segment] = glob.glob(os.environ["TTMEM_SHM_DIR"] + "/ttmem.[0-9]*")
size = os.path.getsize(segment)
if sys.argv[3] == "all":
    os.truncate(segment, 0)
elif sys.argv[3] == "half":
    os.truncate(segment, size // 2)
elif sys.argv[3] == "holes":
    with open(segment, "r+b") as file:
        keep_size, punch_hole = 1, 2
        nothing, all_of_it = ctypes.c_long(0), ctypes.c_long(size)
        ctypes.CDLL(None).fallocate(file.fileno(), keep_size | punch_hole, nothing, all_of_it)
else:
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        own = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        own[0] = 1
report(20000)
print("alive")
