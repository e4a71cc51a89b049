"""The folder with local files of tasks (`object.file_root`), on workers that run tasks of others."""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.sandbox.confinement_settings import OFF, check_settings_file, data_root
from arclog.wiring.homes.folders import prepare_home

log = logging.getLogger("arclog.worker")


def prepare_file_root(settings: Settings) -> None:
    """Create the folder before tasks of others use it. Raises SettingsError if they could change how arclog starts the next
    time.
    """
    root = data_root(settings)
    if root is None:
        return
    if settings.text("tasks.confinement") != OFF:
        check_settings_file("object.file_root", [root])
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SettingsError(f"object.file_root: cannot make the folder {root}: {problem.strerror}") from None
    home = Path(settings.text("home")).absolute()
    if Path(os.path.realpath(home)).is_relative_to(root):
        prepare_home(home)  # only an existing folder can be hidden from tasks
    if danger := danger_of_file_root(settings):
        log.warning("%s", danger)


def danger_of_file_root(settings: Settings) -> str:
    """Return a warning if tasks can write to the home folder of the worker's user; '' if they cannot."""
    root = data_root(settings)
    if root is None:
        return ""
    for home in _home_folders():
        if Path(home).is_relative_to(root):
            how = "is" if home == root else f"contains {home},"
            return (
                f"object.file_root ({root}) {how} the home folder of this user: every engineer of every tenant can write "
                "files there that run programs and open logins, such as .bashrc and .ssh/authorized_keys"
            )
    return ""


def _home_folders() -> Iterator[str]:
    """Yield the home folders of this user, by the environment and by the list of users."""
    named = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises an error if there is none
    if named != "~":
        yield os.path.realpath(named)
    with suppress(KeyError):
        yield os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir)
