"""Protects this process from others of the same user."""

from __future__ import annotations

from arclog.model.config.settings import Settings
from arclog.sandbox.child import kernel


def protect_process(settings: Settings) -> None:
    """Protect the memory, environment and files of this process from other processes of the same user, also without
    Landlock or namespaces. Debuggers then need root.
    """
    if settings.text("tasks.confinement") != "off":
        kernel.prctl(kernel.DUMPABLE, 0)
