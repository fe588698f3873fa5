"""The legacy transport sends the old protocol."""

from __future__ import annotations

import socket
import struct
import unittest

import ttmem

from .support import TrackedCase, daemon, run_program, run_python

CODE = """
import sys, ttmem
assert ttmem.is_enabled()
ttmem.alloc(1, "dram", 0x1000, 4096)
ttmem.alloc(1, "l1", 0x2000, 2048)
ttmem.alloc(1, "dram", 0x3000, 512)
ttmem.free(1, "dram", 0x3000)
ttmem.Tracker(1).program("p").cb(1024, 0x4000)
try:
    ttmem.memory_allocated()
    raise AssertionError("there is no segment to read")
except ttmem.NotTracked:
    pass
with ttmem.track("step") as block:
    ttmem.alloc(1, "dram", 0x5000, 64)
    ttmem.free(1, "dram", 0x5000)
# Unknown is not 0.
assert block.peak_bytes == {} and block.allocated_bytes == {}, block.peak_bytes
assert block.peak_bytes.get("dram") is None
ttmem.refresh()
assert ttmem.status().queued == 0, ttmem.status()
print("sent", flush=True)
sys.stdin.readline()
"""


class Legacy(TrackedCase):
    def test_events_arrive_at_a_server(self) -> None:
        import subprocess
        import sys

        from .support import environment

        for switch in ("TTMEM", "TT_ALLOC_TRACKING_ENABLED"):
            with self.subTest(switch=switch), daemon(self.folder, "--sim", "n150x2", "--quiet") as places:
                env = environment(self.folder, TTMEM_TRANSPORT="legacy", **{switch: "1"}, **places)
                with subprocess.Popen(
                    [sys.executable, "-c", CODE], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                ) as workload:
                    assert workload.stdin and workload.stdout
                    self.assertEqual(workload.stdout.readline(), "sent\n")
                    snapshot = run_program("--json", folder=self.folder, **places)
                    (process,) = snapshot["processes"]
                    self.assertEqual((process["pid"], process["basis"]), (workload.pid, "reported"))
                    (usage,) = process["usage"]
                    self.assertEqual(usage["dram"]["requested_bytes"], 4096)
                    self.assertEqual(usage["l1"]["requested_bytes"], 2048)
                    self.assertEqual(usage["cb"]["registered_bytes"], 1024)
                    workload.stdin.write("\n")
                    workload.stdin.close()
                    self.assertEqual(workload.wait(60), 0)

    def test_messages_have_the_old_bytes(self) -> None:
        path = f"{self.folder}/old.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            listener.settimeout(60)
            code = (
                "import ttmem\n"
                f"ttmem.enable(legacy_socket={path!r})\n"
                "ttmem.alloc(1, 'dram', 0x1000, 4096); ttmem.free(1, 'dram', 0x1000); ttmem.refresh()\n"
                "assert ttmem.status().queued == 0, ttmem.status()\n"
            )
            done = run_python(code, self.folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                stream = b""
                while part := connection.recv(65536):
                    stream += part
        self.assertEqual(len(stream), 2 * 144)
        for message, kind in ((stream[:144], 1), (stream[144:], 2)):
            found, device, size, buffer_type = struct.unpack_from("<B3xiQB", message)
            self.assertEqual((found, device), (kind, 1))
            (address,) = struct.unpack_from("<Q", message, 24)
            self.assertEqual(address, 0x1000)
            if kind == 1:
                self.assertEqual((size, buffer_type), (4096, 0))
            self.assertEqual(message[72:], bytes(72))


if __name__ == "__main__":
    unittest.main()
