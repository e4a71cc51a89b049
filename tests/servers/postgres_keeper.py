"""Holds one PostgreSQL server for a test process, and outlives it only long enough to clean up.

Run as a program. It takes `start`, `kill`, `freeze`, `thaw` and `stop` on stdin, one a line, and answers each with one line. When stdin
ends (the test process is done, was interrupted or was killed), the server is killed and its folder removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PASSWORD = "correct horse"
INITDB = (
    *("--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256"),
    *("--encoding=UTF8", "--no-locale", "--no-sync"),
)


class Keeper:
    def __init__(self, binaries: Path, folder: Path, port: int, uid: int, options: list[str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        #: None: we are no superuser, the server runs as ourselves
        self.user = uid if os.geteuid() == 0 else None
        self.options = options
        self.server: subprocess.Popen[bytes] | None = None
        if self.user is not None:
            os.chown(folder, uid, uid)
        self.binaries, self.version = self._reachable(binaries)
        self._make_data()

    def _reachable(self, binaries: Path) -> tuple[Path, str]:
        """The binaries, where the server's user can run them, and their version: a virtual environment may lie in a closed home."""
        try:
            return binaries, self._version(binaries)
        except (OSError, subprocess.CalledProcessError):
            shutil.copytree(binaries.parent, self.folder / "install", symlinks=True)
            return self.folder / "install" / "bin", self._version(self.folder / "install" / "bin")

    def _version(self, binaries: Path) -> str:
        command = [str(binaries / "postgres"), "--version"]
        return str(subprocess.run(command, check=True, capture_output=True, text=True, **self._as_user()).stdout)

    def _as_user(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        return {**own, "cwd": self.folder, "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}}

    def _make_data(self) -> None:
        """A new database cluster. `initdb` takes ten times as long as a copy of what it made before, which the environment keeps."""
        made_of = f"{self.version} {self.user} {' '.join(INITDB)} {PASSWORD}"
        kept = Path(sys.prefix) / f"postgres-data-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
        if kept.is_dir() and _copied(kept, self.data):
            return
        shutil.rmtree(self.data, ignore_errors=True)
        self._initdb()
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        try:
            if _copied(self.data, new):
                new.rename(kept)
        except OSError:
            pass  # another process was faster, or the environment is not ours
        shutil.rmtree(new, ignore_errors=True)

    def _initdb(self) -> None:
        words = self.folder / "password"
        words.write_text(f"{PASSWORD}\n")
        if self.user is not None:
            os.chown(words, self.user, self.user)
        done = subprocess.run(
            [self.binaries / "initdb", f"--pgdata={self.data}", f"--pwfile={words}", *INITDB],
            check=False,
            capture_output=True,
            **self._as_user(),
        )
        if done.returncode:
            raise SystemExit(f"initdb failed: {done.stderr.decode()}")

    def start(self) -> str:
        with (self.folder / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                [
                    self.binaries / "postgres",
                    *("-D", self.data, "-p", str(self.port), "-k", self.folder),
                    *("-c", "listen_addresses=127.0.0.1"),
                    *(part for option in self.options for part in ("-c", option)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user(),
            )
        return "started"

    def kill(self) -> str:
        """End every process of the server at once, as a power cut would."""
        if self.server is not None:
            self.server.send_signal(signal.SIGSTOP)  # it starts no further process
            children = _children(self.server.pid)
            self.server.kill()
            for child in children:
                _signal(child, signal.SIGKILL)
            self.server.wait()
            self.server = None
            while any(map(_runs, children)):  # the memory that they share is theirs until the last has ended
                time.sleep(0.001)
            (self.data / "postmaster.pid").unlink(missing_ok=True)
        return "killed"

    def freeze(self) -> str:
        """Every process stands still; the kernel goes on to take connections for them."""
        self._all(signal.SIGSTOP)
        return "frozen"

    def thaw(self) -> str:
        self._all(signal.SIGCONT)
        return "thawed"

    def _all(self, number: signal.Signals) -> None:
        if self.server is not None:
            for pid in (self.server.pid, *_children(self.server.pid)):
                _signal(pid, number)

    def stop(self) -> str:
        """Shut down in order; connections are broken off."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            try:
                self.server.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
            self.server = None
        return "stopped"

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _copied(source: Path, target: Path) -> bool:
    """Whether a folder was copied, with its owners and modes."""
    return subprocess.run(["cp", "-a", source, target], check=False, capture_output=True).returncode == 0


def _children(pid: int) -> list[int]:
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
            if parent == pid:
                children.append(int(entry.name))
    return children


def _runs(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def main() -> None:
    binaries, folder, port, uid, *options = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # stdin says when it is over, whatever the terminal sends
    try:
        keeper = Keeper(Path(binaries), Path(folder), int(port), int(uid), options)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        print("ready", flush=True)
        for line in sys.stdin:
            print(getattr(keeper, line.strip())(), flush=True)
    except BrokenPipeError:
        pass
    finally:
        keeper.end()


if __name__ == "__main__":
    main()
