"""Settings that Python imports at start in the lab: the folders of the runtime's files. Variables that are set stay."""

import os
import sys


def _prefer(variable, value):
    os.environ.setdefault(variable, value)


# The runtime finds compiled kernels by their source, in one folder for all wheels of a user. The lab's must not be mixed with
# others, nor short ones with long ones.
_prefer("TT_METAL_CACHE", os.path.join(sys.prefix, "kernels", os.environ.get("TTMEM_LAB_KERNEL_NOPS") or "0"))

# Otherwise the runtime creates a folder `generated` in the current folder.
_prefer("TT_METAL_LOGS_PATH", os.path.join(sys.prefix, "logs"))

# A single process needs no MPI transport, and the one of shared memory leaves a file in /dev/shm for every process.
_prefer("OMPI_MCA_btl", "self")
