"""Protects this process from others of the same user."""

from __future__ import annotations

from arclog.model.config.settings import Settings
from arclog.sandbox.child import kernel


def protect_process(settings: Settings) -> None:
    """Keep other processes of this user from this one's memory, environment and files, also where there is neither
    Landlock nor a namespace. Debuggers need root then.
    """
    if settings.text("tasks.confinement") != "off":
        kernel.prctl(kernel.DUMPABLE, 0)
