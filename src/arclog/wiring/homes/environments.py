"""What `arclog gc` does about python environments: those that no task has asked for lately go, those in use never."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from arclog.model.config.settings import Settings


class Swept(Struct, frozen=True):
    """Environments that went, or would go, and the room that is free without them."""

    environments: int = 0
    environment_bytes: int = 0


def sweep_environments(settings: Settings, now: float, *, dry_run: bool) -> Swept:
    """Remove environments unused since `python.environments_keep_s`; `now` in seconds since 1970."""
    from arclog.sandbox.environments import known_environments, remove_environment
    from arclog.tools.python import environments_folder

    folder = environments_folder(settings)
    limit = now - settings.number("python.environments_keep_s")
    count = size = 0
    for known in known_environments(folder):
        if known.used_at > limit:
            break  # the rest was used later
        room = _room(known.folder)
        if dry_run or remove_environment(folder, known.digest):
            count += 1
            size += room
    return Swept(count, size)


def _room(folder: Path) -> int:
    """Bytes on the disk that are nobody else's: installers link files from their own cache."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found = (Path(place) / name).lstat()
            except OSError:
                continue  # somebody removes it at this moment
            if found.st_nlink == 1:
                size += found.st_blocks * 512
    return size
