"""Fixtures of the tests: folders of their own, other interpreters, the program, and a daemon with simulated chips."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ttmem

#: The program, as `cargo xtask python` builds it.
PROGRAM = os.environ.get("TTMEM_PROGRAM", "")

_OURS = ("TTMEM", "TT_ALLOC_TRACKING_ENABLED")


def environment(folder: str, **more: str) -> dict[str, str]:
    """Returns an environment without ttmem's variables, except those given here."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**plain, "TTMEM_SHM_DIR": folder, "TTMEM_QUERY_SOCKET": f"{folder}/no.sock", **more}


class TrackedCase(unittest.TestCase):
    """A test with tracking enabled, in a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        old = {name: os.environ.get(name) for name in ("TTMEM_SHM_DIR", "TTMEM_QUERY_SOCKET")}
        self.addCleanup(_restore, old)
        os.environ["TTMEM_SHM_DIR"] = self.folder
        os.environ.pop("TTMEM_QUERY_SOCKET", None)
        ttmem.close()
        self.addCleanup(ttmem.close)
        self.assertTrue(ttmem.enable())

    def process(self) -> ttmem.schema.Process:
        """Returns this process in a snapshot."""
        found = [it for it in ttmem.snapshot(local=True, programs=True).processes if it.pid == os.getpid()]
        self.assertEqual(len(found), 1)
        return found[0]

    def usage(self, index: int = 0) -> ttmem.schema.ProcessUsage:
        """Returns the memory of this process on one device."""
        snapshot = ttmem.snapshot(local=True)
        device = next(it.id for it in snapshot.devices if it.index == index)
        process = next(it for it in snapshot.processes if it.pid == os.getpid())
        return next(it for it in process.usage if it.device == device)

    def sites(self) -> dict[str, str | None]:
        """Returns the call sites of this process's live allocations, by address."""
        return {it.id: it.site_name for it in ttmem.allocations(local=True) if it.pid == os.getpid()}


def _restore(old: dict[str, str | None]) -> None:
    for name, value in old.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def run_python(code: str, folder: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs code in another interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(folder, **more), capture_output=True, text=True, timeout=60
    )


def run_program(*args: str, folder: str, **more: str) -> Any:
    """Returns the JSON that the program prints."""
    assert PROGRAM, "TTMEM_PROGRAM must name the program; `cargo xtask python` does that"
    answer = subprocess.run(
        [PROGRAM, *args], env=environment(folder, **more), capture_output=True, text=True, timeout=60
    )
    if not answer.stdout:
        raise AssertionError(f"{args} printed nothing: {answer.stderr}")
    return json.loads(answer.stdout)


@contextlib.contextmanager
def daemon(folder: str, *args: str) -> Iterator[dict[str, str]]:
    """Runs a daemon, and yields the environment variables with its sockets."""
    assert PROGRAM, "TTMEM_PROGRAM must name the program; `cargo xtask python` does that"
    places = {"TTMEM_QUERY_SOCKET": f"{folder}/query.sock", "TTMEM_LEGACY_SOCKET": f"{folder}/legacy.sock"}
    env = {**environment(folder), **places}
    with subprocess.Popen([PROGRAM, "serve", *args], env=env, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(places["TTMEM_QUERY_SOCKET"], server)
            yield places
        finally:
            server.terminate()


def _wait_for(path: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(path)
            return
        if server.poll() is not None:
            raise AssertionError(f"the daemon ended with {server.returncode}")
        time.sleep(0.1)
    raise AssertionError("the daemon does not answer")


def repository() -> Path:
    """Returns the project's folder."""
    return Path(__file__).resolve().parents[2]
