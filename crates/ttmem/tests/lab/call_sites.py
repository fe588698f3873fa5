"""Compares the agent's reading of the calling thread's frames with `sys._getframe`.

    call_sites.py walk CHECKS      reads them at calls of ctypes: needs no ttnn
    call_sites.py mixed CHECKS     compares where native frames are among those of Python
    call_sites.py ttnn CHECKS      reads them at allocations of stock ttnn
    call_sites.py flood LINES TTMEM  allocates in so many different lines of files with strange names
    call_sites.py ops TTMEM        runs every operation of ops.py and compares what `TTMEM dump` calls its outputs and programs

The first two run code of every kind in four threads, until each has made its part of the checks, and print `checked N wrong N missing N`
and the first wrong ones. The last prints `outputs N named N programs N named N`, and those without their name.
"""

import asyncio
import ctypes
import functools
import os
import signal
import sys
import threading

FRAMES = 8
AGENT = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
AGENT.ttmem_agent_site.restype = ctypes.c_size_t
AGENT.ttmem_agent_hold_texts.argtypes = [ctypes.c_bool]
AGENT.ttmem_agent_site.argtypes = [ctypes.c_bool, ctypes.c_char_p, ctypes.c_size_t]
HAS_QUALNAME = sys.version_info >= (3, 11)
sys.setswitchinterval(1e-5)


class Checker:
    """Makes checks, and counts those that fail."""

    def __init__(self, allocate, wanted):
        self.allocate, self.wanted = allocate, wanted
        self.checked = self.wrong = self.missing = 0
        self.first = []
        self.room = ctypes.create_string_buffer(1 << 16)

    def __call__(self):
        kept = None
        if self.allocate is None:
            size = AGENT.ttmem_agent_site(True, self.room, len(self.room)); line = sys._getframe().f_lineno
        else:
            kept = self.allocate(); line = sys._getframe().f_lineno
            size = AGENT.ttmem_agent_site(False, self.room, len(self.room))
        self.checked += 1
        op, *found = self.room.raw[:size].decode().split("\n")
        frame, expected = sys._getframe(), []
        while frame is not None and len(expected) < FRAMES:
            code = frame.f_code
            at = frame.f_lineno if expected else line
            name = code.co_qualname if HAS_QUALNAME else code.co_name
            expected.append(f"{code.co_filename}\t{at}\t{name}")
            frame = frame.f_back
        if not found:
            self.missing += 1
        elif found != expected or (kept is not None and op != "ttnn.empty"):
            self.wrong += 1
            self.first.append((op, found, expected))
        return kept

    @property
    def done(self):
        return self.checked >= self.wanted


CALLBACK = ctypes.CFUNCTYPE(None)


class Calls:
    """Python code that calls Python code in each way, with native code in between or without."""

    def plain(self, then):
        then()

    def instance(self, then):
        type("Made", (), {"__init__": lambda own: then()})()

    def generator(self, then):
        list(iter((lambda: (yield then()))()))

    def sorting(self, then):
        sorted([1], key=lambda it: then())

    def native(self, then):
        CALLBACK(then)()

    KINDS = [plain, instance, generator, sorting, native]


def mix(checks):
    """Prints as the others do: native frames must be where `native` is, and nowhere else."""
    import random

    AGENT.ttmem_agent_keep_native_frames(64, True)
    room, wrong, missing, calls, chosen = ctypes.create_string_buffer(1 << 16), [], 0, Calls(), random.Random(1)
    for _ in range(checks):
        kinds = [chosen.choice(Calls.KINDS) for _ in range(chosen.randrange(5))]
        found, expected = [], []

        def innermost():
            found.append(AGENT.ttmem_agent_site(True, room, len(room)))
            frame = sys._getframe()
            while frame is not None:
                expected.append(frame.f_code.co_qualname if HAS_QUALNAME else frame.f_code.co_name)
                frame = frame.f_back

        then = innermost
        for kind in kinds:
            then = functools.partial(kind, calls, then)
        then()
        frames = room.raw[: found[0]].decode().split("\n")[1:]
        missing += not frames
        # For each frame of Python, whether native ones follow. Those outside of all are the program's start.
        names = [frame.split("\t")[2] for frame in frames if "\t" in frame]
        last = max((n for n, frame in enumerate(frames) if "\t" in frame), default=0)
        follow = [n for n in range(last) if "\t" in frames[n] and "\t" not in frames[n + 1]]
        inside = [frames[n].split("\t")[2].split(".")[-1] for n in follow]
        starts_native = "\t" not in frames[0] if frames else False
        # What `native` called is the frame further inside: the innermost, or that of the next kind.
        callees = ["innermost", *(kind.__name__ for kind in kinds)]
        wanted = [callee for callee, kind in zip(callees, kinds) if kind is Calls.native]
        if names != expected or inside != wanted or not starts_native:
            wrong.append((kinds, frames, inside, wanted, expected))
    print("checked", checks, "wrong", len(wrong), "missing", missing)
    for it in wrong[:2]:
        print(*it, sep="\n  ")


def recurse(check, depth):
    return check() if depth == 0 else recurse(check, depth - 1)


def generate(check):
    for _ in range(3):
        yield check()


async def wait(check):
    check()
    await asyncio.sleep(0)
    check()


async def gather(check):
    await asyncio.gather(*(wait(check) for _ in range(3)))


def fail(check):
    try:
        check()
        raise ValueError
    except ValueError:
        check()
    finally:
        check()


def decorated(function):
    @functools.wraps(function)
    def wrapper(check):
        return function(check)

    return wrapper


@decorated
def with_decorator(check):
    check()


class Model:
    def __call__(self, check):
        return [check() for _ in range(2)]

    @property
    def value(self):
        return self.check()

    @staticmethod
    def run(check):
        (lambda: check())()


def through_c(check):
    sorted([3, 1, 2], key=lambda it: (check(), it)[1])
    functools.reduce(lambda a, b: check(), [1, 2])
    list(map(lambda it: check(), range(2)))
    max([1, 2], key=lambda it: (check(), it)[1])


def fresh_code(check, n):
    """Code that is made, runs and is freed, so that the next takes its address: of another file, under another name, at another line."""
    lines = "\n" * (n % 7)
    space = {"check": check}
    name = f"made_{n * 7919 % 100003:06}"
    code = compile(f"{lines}def {name}():\n{lines}    check()\n{name}()\n", f"<{name}>", "exec")
    exec(code, space)
    # Code that differs in its file only, and in a late line only.
    exec(compile("check()", f"<{name} again>", "exec"), space)
    body = "\n".join(["pass"] * 8 + [""] * (n % 3) + ["check()"] + [""] * (3 - n % 3) + ["pass"])
    exec(compile(body, "<again>", "exec"), space)
    exec(f"{lines}check()", {"check": check})
    eval(compile("(lambda: check())()", f"<eval {name}>", "eval"), {"check": check})


def in_every_way(check):
    n = 0
    model = Model()
    model.check = check
    while not check.done:
        n += 1
        check()
        recurse(check, n % 40)
        for _ in generate(check):
            pass
        asyncio.run(gather(check)) if n % 8 == 0 else None
        fail(check)
        with_decorator(check)
        model(check)
        model.value
        Model.run(check)
        through_c(check)
        for k in range(3):
            fresh_code(check, n + k)


def in_fresh_code(check):
    """Nothing else comes between, so that all addresses are used again."""
    n = 0
    while not check.done:
        n += 1
        exec(compile("check()\n" * 3, f"/m/{n:06}.py", "exec"), {"check": check})


def interpret_in_another():
    """Another interpreter in this process: its frames may be unknown, but nothing may crash."""
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        return
    code = f"import ctypes; a = ctypes.CDLL({AGENT._name!r}); b = ctypes.create_string_buffer(9999); a.ttmem_agent_site(True, b, 9999)"
    # Since 3.12, an isolated one cannot load ctypes.
    shared = {"isolated": False} if sys.version_info >= (3, 12) else {}
    try:
        other = interpreters.create(**shared)
        interpreters.run_string(other, code)
        interpreters.destroy(other)
    except Exception as e:
        print("another interpreter:", type(e).__name__)


def disturb(allocate, others):
    """Makes checks in signal handlers 1,000 times a second, in children, and in threads that end, until the others have made theirs.

    Returns its checkers: each has a buffer of its own, since a handler runs within whatever the main thread does.
    """
    handled, ended, forked = (Checker(allocate, 0) for _ in range(3))
    in_handler = False

    def handle(*_):
        nonlocal in_handler
        if not in_handler:
            in_handler = True
            handled()
            in_handler = False

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while not all(it.done for it in others):
        thread = threading.Thread(target=ended)
        thread.start()
        thread.join()
        in_handler = True
        AGENT.ttmem_agent_hold_texts(True)
        child = os.fork()
        AGENT.ttmem_agent_hold_texts(False)
        in_handler = child == 0
        if child == 0:
            # A child may not use the device.
            forked() if allocate is None else None
            os._exit(forked.wrong + forked.missing)
        forked.checked += 1
        forked.wrong += os.waitpid(child, 0)[1] != 0
    signal.setitimer(signal.ITIMER_REAL, 0)
    return handled, ended, forked


def tensors_in(value):
    if isinstance(value, (list, tuple)):
        return [it for part in value for it in tensors_in(part)]
    return [value] if hasattr(value, "buffer_address") else []


def name_ops(ttmem):
    import time

    import ttnn

    import ops

    words = []

    def note(frame, event, _):
        """The operations that ops.py itself calls, as the interpreter sees them."""
        code, caller = frame.f_code, frame.f_back
        if event == "call" and code.co_name == "__call__" and code.co_filename.endswith("ttnn/decorators.py"):
            if caller.f_code.co_filename.endswith("ops.py"):
                words.append(frame.f_locals["self"].python_fully_qualified_name)

    device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1), l1_small_size=16384)
    device.enable_program_cache()
    expected = {}
    for name, run in ops.OPS.items():
        words.clear()
        before = set(expected)
        sys.setprofile(note)
        result = run(device)
        sys.setprofile(None)
        for tensor in tensors_in(result):
            if ttnn.is_tensor_storage_on_device(tensor):
                where = "l1" if "L1" in str(tensor.memory_config().buffer_type) else "dram", hex(tensor.buffer_address())
                # What an operation returns may be one of its arguments.
                if where not in before:
                    expected[where] = (name, list(words), tensor)
    found = {(it["space"], it["id"]): it.get("op") for it in run_ttmem(ttmem, "dump")["allocations"]}
    wrong = [(name, words, found.get(where)) for where, (name, words, _) in expected.items() if found.get(where) not in words[-1:]]
    # The agent's own thread names operations after their first use.
    end = time.monotonic() + 60
    while True:
        programs = run_ttmem(ttmem, "dump", "--programs")["programs"]
        unnamed = [it for it in programs if not it.get("kernels")]
        if not unnamed or time.monotonic() > end:
            break
        time.sleep(0.1)
    print(f"outputs {len(expected)} named {len(expected) - len(wrong)} programs {len(programs)} named {len(programs) - len(unnamed)}")
    for it in wrong:
        print(*it)
    for it in unnamed:
        print(it["id"], it["name"])
    print(sorted({it["name"] for it in programs}))


def run_ttmem(ttmem, *arguments):
    import json
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return json.loads(subprocess.check_output([ttmem, *arguments, "--json", "--local"], env=environment))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def flood(lines, ttmem):
    """Prints `named N left_out N grown N`: buffers with the right file and line, definitions without space, and bytes of this process."""
    import ttnn

    device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
    empty = functools.partial(ttnn.empty, ttnn.Shape((32, 32)), ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    kept = {}

    def keep_at(file, line):
        space = {"empty": empty}
        exec(compile("\n" * (line - 1) + "kept = empty()", file, "exec"), space)
        # Of a long name, its end is kept.
        end = os.fsencode(file)[-1024:].decode(errors="ignore")
        kept[hex(space["kept"].buffer_address())] = end, line, space["kept"]

    names = ["/m/été/模型.py", "/m/\N{SNAKE}.py", "/" + "n" * 4095 + ".py", "/" + "é" * 2047 + ".py", "line\nbreak\x1b[31m.py", "<string>", "x"]
    for number, name in enumerate(names):
        keep_at(name, 7 + number)
    size, before = os.path.getsize(segment()), resident()
    code = "\n".join(["free(empty())"] * 1000)
    for number in range(lines // 1000):
        exec(compile(code, f"/m/{number}.py", "exec"), {"empty": empty, "free": ttnn.deallocate})
    grown = resident() - before
    assert os.path.getsize(segment()) == size, "the segment has grown"
    # Lines that are known stay known, and an unknown one is no other.
    for number, name in enumerate(names):
        keep_at(name, 7 + number)
    keep_at("/m/late.py", 1)
    found = {it["id"]: it for it in run_ttmem(ttmem, "dump")["allocations"]}
    named = 0
    for address, (file, line, _) in kept.items():
        it = found[address]
        if file == "/m/late.py" and it.get("file") is None:
            continue
        assert (it.get("file"), it.get("line")) == (file, line), (file, line, it)
        named += 1
    (process,) = (it for it in run_ttmem(ttmem)["processes"] if it["pid"] == os.getpid())
    print(f"named {named} left_out {process['tracker']['left_out']} grown {grown}")


def segment():
    (name,) = (name for name in os.listdir(os.environ["TTMEM_SHM_DIR"]) if name.startswith(f"ttmem.{os.getpid()}."))
    return os.path.join(os.environ["TTMEM_SHM_DIR"], name)


def main():
    if sys.argv[1] == "ops":
        return name_ops(sys.argv[2])
    if sys.argv[1] == "mixed":
        return mix(int(sys.argv[2]))
    if sys.argv[1] == "flood":
        return flood(int(sys.argv[2]), sys.argv[3])
    kind, wanted = sys.argv[1], int(sys.argv[2])
    allocate = None
    if kind == "ttnn":
        import ttnn

        device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
        shape = ttnn.Shape((32, 32))
        # This adds no frame.
        allocate = functools.partial(ttnn.empty, shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    AGENT.ttmem_agent_keep_sites(FRAMES, True)
    checkers = [Checker(allocate, wanted // 4) for _ in range(4)]
    threads = [threading.Thread(target=in_every_way, args=(it,)) for it in checkers]
    for it in threads:
        it.start()
    checkers.extend(disturb(allocate, checkers[:4]))
    for it in threads:
        it.join()
    checkers.append(Checker(allocate, wanted // 10))
    in_fresh_code(checkers[-1])
    if kind == "walk":
        interpret_in_another()
    print(*(f"{name} {sum(getattr(it, name) for it in checkers)}" for name in ("checked", "wrong", "missing")))
    for it in checkers:
        for op, found, expected in it.first[:2]:
            at = next((n for n, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), len(found))
            print(op, f"from frame {at}:", found[at : at + 2], expected[at : at + 2], sep="\n  ")


main()
