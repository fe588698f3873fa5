"""A stand-in for the kernel compiler that the ttnn wheel calls but does not contain.

A mock chip never runs a kernel: the runtime only loads each kernel's ELF file, makes it position independent and adds
up its bytes. So every kernel becomes a series of nops, linked with the wheel's own linker scripts. Its length depends on
the kernel's name and its processor: sizes differ between kernels and are the same on every machine.
TTMEM_LAB_KERNEL_NOPS=N makes every kernel N instructions longer.

The runtime calls it in four ways: for its version, for precompiled headers, to compile (`-c`) and to link.
"""

import hashlib
import os
import subprocess
import sys

# Filled in when this is installed: the runtime uses the wheel's precompiled firmware only if the version is the same.
VERSION = "@VERSION@"

# Instructions of four bytes. At most 5 KiB for one of a core's five processors is far below the 69 KiB of the kernel config
# buffer, and below the 16 KiB of instruction memory of one Wormhole processor.
SHORTEST, SPREAD = 160, 1024

# The runtime refuses a kernel without relocations, since a real one always has some; the jump has one. Firmware is linked
# from several objects, any of which may be the one that starts it.
PROGRAM = """
    .option norelax
    .section .start, "ax"
    .weak _start
_start:
    tail body
    .text
body:
    .fill {nops}, 4, 0x00000013
    ret
"""


def nops(output):
    """Length of the kernel for .../KERNEL/HASH/PROCESSOR/FILE.o, or of the firmware for .../firmware/PROCESSOR/FILE.o."""
    kernel, parent, processor, _file = os.path.abspath(output).split(os.sep)[-4:]
    if parent == "firmware":
        # The wheel has no firmware for some settings. Firmware has little space, and its size does not matter.
        return 0
    digest = hashlib.sha256(f"{kernel} {processor}".encode()).digest()
    extra = int(os.environ.get("TTMEM_LAB_KERNEL_NOPS") or 0)
    return SHORTEST + int.from_bytes(digest[:4], "big") % SPREAD + extra


def compile_source(output, dependencies):
    program = PROGRAM.format(nops=nops(output))
    assembler = ["riscv64-unknown-elf-as", "-march=rv32im", "-mabi=ilp32", "-o", output]
    status = subprocess.run(assembler, input=program.encode(), check=False).returncode
    # The runtime compiles again when a dependency changes, and every kernel depends on this file.
    with open(dependencies, "w", encoding="utf-8") as rule:
        rule.write(f"{output}: {os.path.abspath(__file__)}\n")
    return status


def link(args, output):
    linker = ["riscv64-unknown-elf-ld", "-m", "elf32lriscv", "-o", output]
    for arg in args:
        if arg.startswith("-Wl,"):
            linker += arg.removeprefix("-Wl,").split(",")
        elif arg.startswith(("-T", "-L")):
            linker.append(arg)
        # The wheel's own objects are for a processor variant that this linker does not support, and are not needed.
        elif arg.endswith(".o") and arg != output and f"{os.sep}runtime{os.sep}hw{os.sep}" not in arg:
            linker.append(arg)
    return subprocess.run(linker, check=False).returncode


def main(args):
    if "--version" in args:
        print(f"riscv-tt-elf-g++ {VERSION}")
        return 0
    following = dict(zip(args, args[1:]))
    output = following.get("-o")
    if output is None:
        print("the stand-in kernel compiler has nothing to write", file=sys.stderr)
        return 1
    if "-c" in args:
        return compile_source(output, following.get("-MF", os.path.splitext(output)[0] + ".d"))
    if "c++-header" in args:
        # Only this program reads it.
        open(output, "wb").close()
        return 0
    return link(args, output)


sys.exit(main(sys.argv[1:]))
