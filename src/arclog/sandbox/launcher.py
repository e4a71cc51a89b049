"""Keeps one zygote and requests guards from it. A request is one message and does not wait.

The zygote starts with a clean environment. It ends when its socket to this process is closed, however this process
ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

_FOLDER = str(Path(__file__).parent)
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from child import zygote; del sys.path[0]; "
    "zygote.main(int(sys.argv[2]), sys.argv[4:], sys.argv[3])"
)
_CLOSE_S = 5.0


def clean_environment(folder: str, packages: Path | None = None) -> dict[str, str]:
    """Return the environment variables of a sandboxed process. Only the search path is inherited; with `packages`, it
    begins with that environment's programs.
    """
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": path if packages is None else f"{packages / 'bin'}{os.pathsep}{path}",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
    }


def package_paths() -> list[str]:
    """Return the folders of third-party modules: site-packages and PYTHONPATH, not the current folder."""
    declared = {str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}
    return [path for path in sys.path if path in declared or Path(path).name in {"site-packages", "dist-packages"}]


class Launcher:
    """One zygote. It is started on first use, and again if it dies."""

    def __init__(self, *, bare: bool = False, library: str = "") -> None:
        """With `bare`, the runners do not have our packages; each loads those of the environment in its spec. With
        `library` ("duckdb" or "sqlite"), the runners serve its databases.
        """
        self._paths = [] if bare else package_paths()
        self._library = library
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Start the zygote if there is none. This takes a millisecond or two."""
        if self._control is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", "-c", _BOOT, _FOLDER, str(theirs.fileno()), self._library, *self._paths]
        with theirs:
            try:
                self._zygote = subprocess.Popen(
                    command,
                    pass_fds=(theirs.fileno(),),
                    env=clean_environment("/"),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._control = ours

    def launch(self, files: list[int], *, isolated: bool) -> None:
        """Request a guard that owns copies of these four files."""
        letter = b"i" if isolated else b"p"
        for last in (False, True):
            self.start()
            assert self._control is not None  # noqa: S101 - start() just set it
            try:
                socket.send_fds(self._control, [letter], files)
            except OSError:
                self._drop()
                if last:
                    raise
            else:
                return

    async def close(self) -> None:
        """End the zygote. Guards end through their own channels."""
        zygote = self._zygote
        self._drop(kill=False)
        if zygote is None:
            return
        try:
            await asyncio.to_thread(zygote.wait, _CLOSE_S)
        except (subprocess.TimeoutExpired, asyncio.CancelledError) as problem:
            zygote.kill()
            zygote.wait()
            if isinstance(problem, asyncio.CancelledError):
                raise

    def _drop(self, *, kill: bool = True) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._zygote is not None and kill:
            self._zygote.kill()
            self._zygote.wait()
        self._zygote = None
