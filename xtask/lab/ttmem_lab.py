"""Python imports this when it starts in the lab: it tells the runtime where to leave things. What is set already stays."""

import os
import sys


def _prefer(variable, value):
    os.environ.setdefault(variable, value)


# The runtime looks for compiled kernels by their source, in one place for all wheels of a user. Ours must not be mixed
# with anyone else's, nor short ones with long ones.
_prefer("TT_METAL_CACHE", os.path.join(sys.prefix, "kernels", os.environ.get("TTMEM_LAB_KERNEL_NOPS") or "0"))

# Otherwise it makes a folder `generated` wherever it is started.
_prefer("TT_METAL_LOGS_PATH", os.path.join(sys.prefix, "logs"))

# A process alone needs no MPI transport, and the one of shared memory leaves a file in /dev/shm for every process.
_prefer("OMPI_MCA_btl", "self")
