"""The folders of a runner: made ready for each task, and cleared after it.

What the worker decided about them is `sandbox.folders`.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH102, PTH108, PTH208, TID252

from __future__ import annotations

import os
from typing import Any

from . import trees


class Places:
    """Where the tasks of one runner run."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._scratch: str = spec["scratch"]
        self._workdir: str = spec["workdir"]
        self._fresh: bool = spec["fresh"]

    def enter(self) -> str:
        """Go to the working directory; returns why that was not possible."""
        try:
            if self._fresh:
                os.mkdir(self._workdir, 0o700)
            os.chdir(self._workdir)
        except OSError as problem:
            return (
                f"the working directory {self._workdir} cannot be entered: {problem.strerror} (setting worker.workdir)"
            )
        return ""

    def clear(self) -> str:
        """Remove what the task left; returns why that was not possible."""
        try:
            os.chdir(self._scratch)
            if self._fresh:
                trees.remove_tree(self._workdir)
            if os.listdir(self._scratch):
                with os.scandir(self._scratch) as listing:
                    entries = list(listing)
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        trees.remove_tree(entry.path)
                    else:
                        os.unlink(entry.path)
        except (OSError, RecursionError):
            return "its folder could not be emptied"
        return ""
