"""Files that are replaced by links, again and again, while arclog looks at them and opens them: nothing outside is ever read.

Another process swaps a name between a file of its own and a link to a secret, as a task with a folder of its own could. The same reads
succeed while the name is a file, which shows that they take place.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from arclog.authoring.playbook_files import FilesBeside
from arclog.model.config.settings import Settings
from arclog.playbook.files import FileRefused
from arclog.sandbox.child.reach import Reach
from arclog.sandbox.child.sql.sqlite_database import open_file
from arclog.sandbox.child.sql_errors import Refused as RefusedSql
from arclog.tools.object.folder import Folder
from arclog.tools.object.location import Refused

SECRET, OWN = "the secret of others", "what is one's own"
SECONDS = 3.0
#: Swaps a file (or folder) and a link in one step each: rename is atomic, so that the name is always there.
SWAPPING = """
import os, sys
name, own, link = sys.argv[1:4]
print("swapping", flush=True)
while True:
    os.rename(link, name + ".next"); os.rename(name, own + ".kept"); os.rename(name + ".next", name)
    os.rename(name, link); os.rename(own + ".kept", name)
"""


@contextmanager
def swapped(name: Path, link_to: Path) -> Iterator[None]:
    link = name.with_name("link")
    link.symlink_to(link_to)
    command = [sys.executable, "-c", SWAPPING, str(name), str(name.with_name("own")), str(link)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def outcomes(read: Callable[[], str]) -> set[str]:
    """What was read in some seconds; '' where it was refused."""
    got: set[str] = set()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or OWN not in got:
        assert time.monotonic() < end + 30, "nothing was ever read"
        got.add(read())
    return got


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "file.sql").write_text(SECRET)
    return folder


def test_a_file_beside_a_playbook(inside: Path, outside: Path) -> None:
    (inside / "file.sql").write_text(OWN)

    def read() -> str:
        try:
            return FilesBeside(Settings()).of(str(inside / "flow.yaml"))[str(inside / "file.sql")]
        except (FileRefused, KeyError):
            return ""

    with swapped(inside / "file.sql", outside / "file.sql"):
        assert SECRET not in outcomes(read)


def test_a_folder_beside_a_playbook(inside: Path, outside: Path) -> None:
    (inside / "sql").mkdir()
    (inside / "sql" / "file.sql").write_text(OWN)

    def read() -> str:
        try:
            return FilesBeside(Settings()).of(str(inside / "flow.yaml"))[str(inside / "sql" / "file.sql")]
        except (FileRefused, KeyError):
            return ""

    with swapped(inside / "sql", outside):
        assert SECRET not in outcomes(read)


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(inside: Path) -> None:
    (inside / "file.sql").write_text(OWN)
    files = FilesBeside(Settings()).of(str(inside / "flow.yaml"))
    look = files._is_inside

    def replaced(path: str) -> bool:
        answer = look(path)
        with suppress(FileNotFoundError):
            (inside / "file.sql").unlink()
        os.mkfifo(inside / "file.sql")
        files._is_inside = look  # type: ignore[method-assign]  # once
        return answer

    files._is_inside = replaced  # type: ignore[method-assign]  # the moment between
    with pytest.raises(FileRefused):
        files[str(inside / "file.sql")]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_an_object_in_a_folder(inside: Path, outside: Path, what: str) -> None:
    (inside / "data").mkdir()
    (inside / "data" / "file.sql").write_text(OWN)
    folder = Folder(inside, Reach(str(outside), (), None, None))

    async def content() -> str:
        opened = await folder.get("data/file.sql", None)
        return b"".join([piece async for piece in opened.pieces]).decode()

    def read() -> str:
        try:
            return asyncio.run(content())
        except (Refused, OSError):
            return ""

    name, target = {
        "file": (inside / "data" / "file.sql", outside / "file.sql"),
        "folder": (inside / "data", outside),
    }[what]
    with swapped(name, target):
        assert SECRET not in outcomes(read)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_database(inside: Path, outside: Path, what: str) -> None:
    (inside / "data").mkdir()
    for path, text in ((inside / "data" / "a.db", OWN), (outside / "a.db", SECRET)):
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE words (word TEXT)")
        connection.execute("INSERT INTO words VALUES (?)", (text,))
        connection.commit()
        connection.close()
    roots = (str(inside),)
    reach = Reach(str(outside), (), roots, roots)

    def read() -> str:
        try:
            database = open_file(str(inside / "data" / "a.db"), reach)
        except (RefusedSql, apsw.Error, OSError):  # what SQLite makes of a name that is a link, or not there
            return ""
        try:
            return str(database.execute("SELECT word FROM words").fetchall()[0][0])
        except apsw.Error:  # a database that was made anew, or moved away
            return ""
        finally:
            database.close()

    name, target = {
        "file": (inside / "data" / "a.db", outside / "a.db"),
        "folder": (inside / "data", outside),
    }[what]
    with swapped(name, target):
        assert SECRET not in outcomes(read)
