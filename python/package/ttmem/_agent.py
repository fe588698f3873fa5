"""Loads the agent, which tracks ttnn, into this process: the same library that ``ttmem run`` preloads."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

_LIBRARY = "libttmem_agent.so"
_loaded: ctypes.CDLL | None = None


def _is_loaded() -> bool:
    """Whether the agent is in this process, preloaded or loaded here."""
    return hasattr(ctypes.CDLL(None), "ttmem_agent_yield")


def _find() -> Path | None:
    """The agent: the one that is named, in this package, or beside the program ``ttmem``."""
    if named := os.environ.get("TTMEM_AGENT"):
        return Path(named)
    folders = [Path(__file__).parent]
    if program := shutil.which("ttmem"):
        folder = Path(program).resolve().parent
        folders += [folder, folder.parent / "lib" / "ttmem", folder.parent / "lib"]
    return next((path for folder in folders if (path := folder / _LIBRARY).is_file()), None)


def absence() -> str | None:
    """Why the agent cannot be in this process; ``None`` if it is, or could be loaded."""
    if _is_loaded() or _find() is not None:
        return None
    return f"{_LIBRARY} is neither in the package nor beside the program ttmem: install ttmem, or set TTMEM_AGENT to its path"


def load(required: bool, variables: dict[str, str]) -> None:
    """Loads the agent with these variables in the environment, unless it is there already or there is none."""
    global _loaded
    if _is_loaded():
        return
    path = _find()
    if path is None:
        if required:
            raise FileNotFoundError(absence())
        return
    if "ttnn" in sys.modules:
        # The functions that it replaces are bound already.
        raise RuntimeError(
            "ttnn is imported already, so its allocations cannot be tracked: call ttmem.enable() before `import ttnn`, "
            "or start the program with `ttmem run`; to report by hand, ttmem.enable(agent=False)"
        )
    os.environ.update(variables)
    try:
        _loaded = ctypes.CDLL(os.fspath(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RuntimeError(f"cannot load the agent: {error}; set TTMEM_AGENT to the path of {_LIBRARY}") from None
