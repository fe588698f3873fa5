"""Compares the agent's reading of the calling thread's frames with `sys._getframe`.

    call_sites.py walk CHECKS      reads them at calls of ctypes: needs no ttnn
    call_sites.py ttnn CHECKS      reads them at allocations of stock ttnn
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
    """Code that is made, runs and is freed, so that the next takes its address: at another line, under another name, of another file."""
    lines = "\n" * (n % 7)
    space = {"check": check}
    code = compile(f"{lines}def made_{n % 3}():\n{lines}    check()\nmade_{n % 3}()\n", f"<made {n % 5}>", "exec")
    exec(code, space)
    exec(f"{lines}check()", {"check": check})
    eval(compile("(lambda: check())()", f"<eval {n % 2}>", "eval"), {"check": check})


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


def interpret_in_another():
    """Another interpreter in this process: its frames may be unknown, but nothing may crash."""
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        return
    code = f"import ctypes; a = ctypes.CDLL({AGENT._name!r}); b = ctypes.create_string_buffer(9999); a.ttmem_agent_site(True, b, 9999)"
    try:
        other = interpreters.create()
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
    import json
    import subprocess
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
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    ask = lambda *arguments: json.loads(subprocess.check_output([ttmem, "dump", *arguments, "--json", "--local"], env=environment))
    found = {(it["space"], it["id"]): it.get("op") for it in ask()["allocations"]}
    wrong = [(name, words, found.get(where)) for where, (name, words, _) in expected.items() if found.get(where) not in words[-1:]]
    # The agent's own thread names operations after their first use.
    end = time.monotonic() + 60
    while True:
        programs = ask("--programs")["programs"]
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


def main():
    if sys.argv[1] == "ops":
        return name_ops(sys.argv[2])
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
    if kind == "walk":
        interpret_in_another()
    print(*(f"{name} {sum(getattr(it, name) for it in checkers)}" for name in ("checked", "wrong", "missing")))
    for it in checkers:
        for op, found, expected in it.first[:2]:
            at = next((n for n, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), len(found))
            print(op, f"from frame {at}:", found[at : at + 2], expected[at : at + 2], sep="\n  ")


main()
