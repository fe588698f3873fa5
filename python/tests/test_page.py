"""The pages of the documentation run and print what they show."""

from __future__ import annotations

import contextlib
import io
import re
import unittest

import ttmem

from .support import TrackedCase, repository


PAGES = ("docs/python.md", "docs/python-reference.md")


class Page(TrackedCase):
    def run_page(self, page: str) -> int:
        """Runs a page's blocks and compares their output; returns how many were compared."""
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (repository() / page).read_text(), re.M | re.S)
        names: dict[str, object] = {"__file__": "model.py"}
        compared = 0
        ttmem.close()
        printed = None
        for kind, block in blocks:
            if kind == "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(block, page, "exec"), names)
                printed = out.getvalue()
            elif kind == "text":
                self.assertEqual(block, printed)
                compared += 1
        self.assertIsNotNone(printed, f"{page} has no example")
        return compared

    def test_pages_print_what_they_show(self) -> None:
        self.assertEqual([self.run_page(page) for page in PAGES], [3, 0])

    def test_public_names_are_on_a_page(self) -> None:
        words = {word for page in PAGES for word in re.findall(r"\w+", (repository() / page).read_text())}
        self.assertEqual({name for name in ttmem.__all__ if name not in words} - {"__version__"}, set())


if __name__ == "__main__":
    unittest.main()
