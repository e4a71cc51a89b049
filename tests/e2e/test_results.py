"""`arclog result` and `arclog gc` as people meet them: real processes on a real home."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.model.refs import RefMeta, ResultRef, ref_text
from arclog.ports.storage.store import Append
from arclog.wiring.embedded import embedded
from tests.servers.commands import ARCLOG, run_bytes

PLAYBOOK = "metadata: {name: demo}\nworkflow:\n  - {step: start, tool: {kind: noop}}\n"
ITEMS = [{"id": number, "text": "some text" * 5} for number in range(30_000)]


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_") or name in ("NO_COLOR", "PYTHONUNBUFFERED"):
            monkeypatch.delenv(name)
    (tmp_path / "demo.yaml").write_text(PLAYBOOK)
    return tmp_path


def arclog(*words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return run_bytes(*words, env={**os.environ, **env})


async def _store(home: Path, execution_id: str, name: str, items: list[Any] | None, body: bytes, more: Any) -> str:
    """Store a result and say so in the run's log, as a task does."""
    number = int(execution_id)
    async with embedded(Settings({"home": str(home)})) as runtime:
        writer = runtime.results.writer("default", listed=items is not None)
        if items is not None:
            await writer.add(items)
        else:
            await writer.write(body)
        done = await writer.commit()
        store = runtime.engine.store
        record = await store.execution(number)
        assert record is not None
        meta = RefMeta(done.bytes, done.sha256, done.content_type, rows=done.rows)
        ref = ResultRef("data" if items is None else "list", "files", ref_text(number, name, done.sha256), meta)
        payload = {"result_ref": ref.as_dict(), "preview": done.preview, **more}
        event = Event("result.stored", 1, "start", 1, task="start_task", payload=payload)
        await store.append(Append(number, record.head, [event], number + 1000, record.now))
        return ref.ref


def stored(where: Path, execution_id: str, name: str, items: Any = None, body: bytes = b"", **more: Any) -> str:
    return asyncio.run(_store(where / ".arclog", execution_id, name, items, body, more))


def run(where: Path) -> str:
    done = arclog("run", "demo.yaml", "--json")
    assert done.returncode == 0, done.stderr
    execution_id: str = json.loads(done.stdout)["execution_id"]
    return execution_id


def blobs(where: Path) -> list[Path]:
    return sorted((where / ".arclog" / "results").glob("*/*/*.zst"))


def test_a_run_without_large_results_makes_no_folder(where):
    run(where)
    assert not (where / ".arclog" / "results").exists()


def test_list_show_get_save(where):
    execution_id = run(where)
    ref = stored(where, execution_id, "start.start_task", ITEMS)
    odd = stored(where, execution_id, "start.odd", None, b"\x00\xff\x1b[2J odd \xc3")
    lines = b"".join(json.dumps(item, separators=(",", ":")).encode() + b"\n" for item in ITEMS)

    assert ref in arclog("result", "list", execution_id).stdout.decode()
    listed = json.loads(arclog("result", "list", "last", "--json").stdout)
    assert [(row["ref"], row["rows"]) for row in listed] == [(ref, 30_000), (odd, None)]

    shown = arclog("result", "show", ref).stdout.decode()
    assert "30,000" in shown
    assert '{"id":0,' in shown

    got = arclog("result", "get", ref)
    assert (got.returncode, got.stdout) == (0, lines)
    assert arclog("result", "get", ref, "--range", "1000000-1000099").stdout == lines[1_000_000:1_000_100]
    assert arclog("result", "get", ref, "--range", f"{len(lines) - 5}-").stdout == lines[-5:]
    assert arclog("result", "get", odd).stdout == b"\x00\xff\x1b[2J odd \xc3"

    saved = arclog("result", "save", ref, "rows.ndjson")
    assert saved.returncode == 0, saved.stderr
    assert (where / "rows.ndjson").read_bytes() == lines
    assert arclog("result", "save", ref, "rows.ndjson").returncode == 2


def test_a_terminal_is_not_steered_by_what_was_stored(where):
    ref = stored(where, run(where), "start.odd", None, b"\x1b[2J wiped?")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*ARCLOG, "result", "get", ref], stdout=theirs, stderr=theirs, cwd=where)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 1000):
            shown += chunk
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    assert shown == b"\\x1b[2J wiped?"


def test_a_reader_that_leaves_early_is_no_error(where):
    ref = stored(where, run(where), "start.start_task", ITEMS)
    with subprocess.Popen([*ARCLOG, "result", "get", ref], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_damage_and_loss_are_told(where):
    ref = stored(where, run(where), "start.start_task", ITEMS)
    (file,) = blobs(where)
    body = bytearray(file.read_bytes())
    body[100] ^= 1
    file.write_bytes(body)
    done = arclog("result", "save", ref, "out")
    assert done.returncode == 1
    assert b"is damaged" in done.stderr
    assert not (where / "out").exists()
    file.unlink()
    done = arclog("result", "get", ref, "--json")
    assert done.returncode == 1
    assert "is missing" in json.loads(done.stderr)["error"]["message"]
    assert b"missing" in arclog("result", "show", ref).stdout


def test_another_tenants_ref_does_not_exist(where):
    execution_id = run(where)
    ref = stored(where, execution_id, "start.start_task", None, b"secret")
    done = arclog("result", "get", ref, ARCLOG_SCOPE_TENANT="acme")
    assert done.returncode == 2
    assert b"there is no stored result" in done.stderr
    assert arclog("result", "list", execution_id, ARCLOG_SCOPE_TENANT="acme").returncode == 2


def test_gc_lets_go_of_what_is_over(where):
    execution_id = run(where)
    short = stored(where, execution_id, "start.short", None, b"short-lived " * 1000, ttl_s=0)
    kept = stored(where, execution_id, "start.kept", None, b"kept")
    forever = stored(where, execution_id, "start.forever", None, b"for ever", scope="permanent")
    first = json.loads(arclog("gc", "--json").stdout)
    assert (first["results"], first["contents"]) == (1, 0)  # the file is too young
    assert len(blobs(where)) == 3

    quick = {"ARCLOG_RESULTS_ORPHAN_GRACE_S": "0"}
    size = sum(file.stat().st_size for file in blobs(where))
    would = json.loads(arclog("gc", "--dry-run", "--json", **quick).stdout)
    assert (would["results"], would["contents"], would["dry_run"]) == (0, 1, True)
    assert len(blobs(where)) == 3
    done = json.loads(arclog("gc", "--json", **quick).stdout)
    assert {**done, "dry_run": True} == would
    assert sum(file.stat().st_size for file in blobs(where)) == size - done["bytes"]
    gone = arclog("result", "get", short)
    assert gone.returncode == 1
    assert b"was removed by gc on 2" in gone.stderr
    assert arclog("result", "get", kept).stdout == b"kept"

    text = arclog("gc", **quick, ARCLOG_RESULTS_KEEP_S="0").stdout.decode()
    assert text.startswith("let go of 1 result and removed 1 file, which freed ")
    assert arclog("result", "get", kept).returncode == 1
    assert arclog("result", "get", forever).stdout == b"for ever"
    assert len(blobs(where)) == 1


def test_gc_clears_what_killed_writers_left(where):
    run(where)
    script = (
        "import asyncio, os, signal, sys\n"
        "from arclog.results.blobs.files import FileBlobs\nfrom arclog.results.store import BlobResults\n"
        "async def main():\n"
        "    writer = BlobResults(FileBlobs('.arclog/results')).writer('default')\n"
        "    for _ in range(20):\n"
        "        await writer.write(os.urandom(1 << 20))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=where).returncode == -9
    assert len(list((where / ".arclog/results/.new").iterdir())) == 1
    done = json.loads(arclog("gc", "--json", ARCLOG_RESULTS_ORPHAN_GRACE_S="0").stdout)
    assert done["leftovers"] == 1
    assert list((where / ".arclog/results/.new").iterdir()) == []
