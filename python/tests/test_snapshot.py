"""Snapshots as objects: all that the schema has, and what it may have one day."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import threading
import typing
import unittest
from typing import Any

import ttmem
from ttmem import schema
from ttmem._record import Record, make

from .support import TrackedCase, daemon, repository

def classes() -> dict[str, type[Record]]:
    """Every class of the schema."""
    found = {name: it for name, it in vars(schema).items() if isinstance(it, type) and issubclass(it, Record)}
    del found["Record"]
    return found


def keys_of(record: type[Record]) -> set[str]:
    """The keys that a class knows."""
    return {it.name.removesuffix("_") for it in dataclasses.fields(record)} - {"raw"}


class Schema(unittest.TestCase):
    def test_there_is_a_field_for_every_key_of_the_schema(self) -> None:
        # So that a key which no test's machine happens to show is not forgotten, either.
        root = json.loads((repository() / "docs/snapshot.schema.json").read_text())
        objects = {name: it for name, it in root["$defs"].items() if "properties" in it}
        objects[root["title"]] = root
        # That is what `ttmem.allocations` takes the list out of.
        del objects["Dump"]

        def keys(name: str) -> set[str]:
            bases = [it["$ref"].rpartition("/")[2] for it in objects[name].get("allOf", ())]
            return set(objects[name]["properties"]).union(*map(keys, bases))

        self.assertEqual({name: keys_of(it) for name, it in classes().items()}, {name: keys(name) for name in objects})

    def test_what_is_not_known_is_none_and_what_is_new_is_kept(self) -> None:
        snapshot = make(schema.Snapshot, {"schema": 2, "at": "2026-11-15T04:00:00.1234567Z", "novelty": [1]})
        self.assertEqual(snapshot.raw["novelty"], [1])
        self.assertEqual((snapshot.schema, snapshot.devices, snapshot.events), (2, (), None))
        self.assertEqual(
            snapshot.at, datetime.datetime(2026, 11, 15, 4, 0, 0, 123456, tzinfo=datetime.timezone.utc)
        )
        for text, microsecond in (("04:00:00.5Z", 500_000), ("04:00:00Z", 0), ("04:00:00.000007Z", 7)):
            at = make(schema.Snapshot, {"at": f"2026-11-15T{text}"}).at
            self.assertEqual((at.hour, at.microsecond), (4, microsecond))
        self.assertIsNone(snapshot.host.name)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            snapshot.schema = 3  # type: ignore[misc]
        with self.assertRaises(ttmem.ReadError):
            make(schema.Snapshot, {"devices": [7]})

    def test_every_field_says_what_it_is(self) -> None:
        for name, it in classes().items():
            self.assertTrue(it.__doc__, name)
            self.assertNotIn(f"{name}(", it.__doc__ or "", "that is what dataclasses make up")
            hints = typing.get_type_hints(it)
            for field in dataclasses.fields(it):
                self.assertIn(field.name, hints)


class Machine(TrackedCase):
    def compare(self, record: Record, path: str) -> int:
        """Every key that was read has a field, and every value is the one that was read. Returns how many objects there are."""
        unknown = set(record.raw) - keys_of(type(record))
        self.assertEqual(unknown, set(), f"{path} has keys that {type(record).__name__} does not know")
        count = 1
        for field in dataclasses.fields(record):
            if field.name == "raw":
                continue
            value, raw = getattr(record, field.name), record.raw.get(field.name.removesuffix("_"))
            count += self.compare_value(value, raw, f"{path}.{field.name}")
        return count

    def compare_value(self, value: Any, raw: Any, path: str) -> int:
        if isinstance(value, Record):
            return self.compare(value, path) if raw is not None else 0
        if isinstance(value, tuple):
            self.assertEqual(len(value), len(raw or ()), path)
            return sum(self.compare_value(*pair, f"{path}[{n}]") for n, pair in enumerate(zip(value, raw or ())))
        if isinstance(value, datetime.datetime):
            self.assertEqual(value.isoformat()[:19], raw[:19], path)
        elif raw is not None:
            self.assertEqual(value, raw, path)
        else:
            self.assertFalse(value, path)
        return 0

    def test_simulated_chips_are_read_whole(self) -> None:
        with daemon(self.folder, "--sim", "n300", "--quiet") as places:
            os.environ.update(places)
            layout = {"kernel_config": 0x8000, "unreserved": 0x19D60, "l1_bytes_per_core": 1499136, "grid": (8, 8)}
            chip = ttmem.Chip(index=0, unique_id=0x5100000000, cores=64, **layout)  # type: ignore[arg-type]
            tracker = ttmem.Tracker(chip, [ttmem.Banks("l1", 64, 0x19D60, 1 << 20)])
            tracker.alloc("l1", 0x40000, 2048, bytes_per_bank=2048, cores=[(0, 0, 1, 1)], site="here")
            with ttmem.Tracker(0).program("matmul") as program, self.assertRaises(ttmem.DoubleFree):
                program.cb(2048, 0x20000, [(0, 0, 3, 3)])
                program.kernel(4096, [(0, 0, 3, 3)])
                program.dispatch()
                snapshot = ttmem.snapshot(history=True, events=True, cores=True, programs=True, buffers=10)
                self.assertGreater(self.compare(snapshot, "snapshot"), 100)
                self.assertEqual((snapshot.health.source, snapshot.simulated), ("daemon", True))
                self.assertEqual(len(snapshot.devices[0].cores.list), 64)
                self.assertEqual([it.board for it in snapshot.devices], ["n300", "n300"])
                self.assertEqual(snapshot.devices[0].capacity.dram_bytes, 12 << 30)
                self.assertGreater(snapshot.devices[0].sensors.asic_celsius, 0)
                self.assertEqual(snapshot.buffers.count, 3)
                listed = ttmem.allocations()
                self.assertEqual(len(listed), 3)
                for it in listed:
                    self.compare(it, "allocation")
                tracker.free("l1", 0x40000)
                tracker.free("l1", 0x40000)
            self.assertIn("double_free", [it.kind for it in ttmem.snapshot().findings])

    def test_the_daemon_is_asked_first(self) -> None:
        ttmem.alloc(0, "dram", 0, 64)
        with daemon(self.folder, "--sim", "n150", "--quiet") as places:
            os.environ.update(places)
            self.assertEqual(ttmem.snapshot().health.source, "daemon")
            self.assertEqual(ttmem.snapshot(local=True).health.source, "local")
        os.environ["TTMEM_QUERY_SOCKET"] = f"{self.folder}/nobody.sock"
        with self.assertRaisesRegex(ttmem.ReadError, "no daemon answers at .*nobody.sock"):
            ttmem.snapshot()
        with self.assertRaises(ttmem.ReadError):
            ttmem.allocations()
        self.assertEqual(ttmem.snapshot(local=True).health.source, "local")

    def test_only_what_is_asked_for_is_there(self) -> None:
        ttmem.alloc(0, "dram", 0, 64)
        snapshot = ttmem.snapshot(local=True)
        self.assertEqual((snapshot.events, snapshot.buffers, snapshot.programs), (None, None, None))
        self.assertIsNone(snapshot.devices[0].cores)
        self.assertIsNotNone(ttmem.snapshot(local=True, events=True).events)
        for wrong in (-1, "x", 1 << 40):
            with self.assertRaises(ValueError):
                ttmem.snapshot(local=True, buffers=wrong)  # type: ignore[arg-type]

    def test_other_threads_run_meanwhile(self) -> None:
        ttmem.alloc(0, "dram", 0, 64)
        failures: list[BaseException] = []

        def look() -> None:
            try:
                for _ in range(5):
                    ttmem.snapshot(local=True)
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(1000):
            ttmem.alloc(0, "dram", 4096 + n * 64, 64)
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.usage().dram.count, 1001)


if __name__ == "__main__":
    unittest.main()
