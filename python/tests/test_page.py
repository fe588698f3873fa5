"""The page of the documentation does what it says."""

from __future__ import annotations

import contextlib
import io
import re
import unittest

import ttmem

from .support import TrackedCase, repository


class Page(TrackedCase):
    def test_the_page_runs_and_prints_what_it_shows(self) -> None:
        text = (repository() / "docs/python.md").read_text()
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
        names: dict[str, object] = {}
        compared = 0
        ttmem.close()
        printed = None
        for kind, block in blocks:
            if kind == "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(block, "docs/python.md", "exec"), names)
                printed = out.getvalue()
            elif kind == "text":
                self.assertEqual(block, printed)
                compared += 1
        self.assertEqual(compared, 3)

    def test_everything_public_is_on_the_page(self) -> None:
        text = (repository() / "docs/python.md").read_text()
        words = set(re.findall(r"\w+", text))
        self.assertEqual({name for name in ttmem.__all__ if name not in words} - {"__version__"}, set())


if __name__ == "__main__":
    unittest.main()
