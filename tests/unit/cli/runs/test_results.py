"""`arclog result` and `arclog gc` over a fake API: words, refusals, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from arclog.cli.runs.results import size_text
from arclog.model.errors import ResultUnavailable
from arclog.ports.views.api import Collected, StoredResult
from tests.unit.cli.fake import completed

SHA = "ab" * 32
REF = f"noetl://execution/7/result/start.fetch/{SHA}"
ONE = StoredResult(
    ref=REF,
    execution_id="7",
    name="start.fetch",
    step="start",
    run=1,
    task="fetch",
    kind="list",
    content_type="application/json",
    bytes=3_000_000,
    rows=12_345,
    sha256=SHA,
    scope="execution",
    stored_at="2026-01-31T12:00:00Z",
    expires_at=None,
    removed_at=None,
    seq=9,
    preview='[1, "\x1b[2J"]',
    stored_bytes=500_000,
    kept_until="2026-03-01T12:00:00Z",
)


@pytest.fixture(autouse=True)
def stored(api):
    api.runs["7"] = completed("start")
    api.stored = [ONE, replace(ONE, ref=REF.replace("fetch", "other"), name="start.other", rows=None, seq=11)]
    api.body = b"0123456789abcdefghij\x00\x1b[2Jend"
    return api


def test_list_shows_refs_whole(arclog):
    done = arclog("result", "list", "7")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["NAME", "STORED", "SIZE", "ITEMS", "SCOPE", "REF"]
    assert REF in lines[1]
    assert "12,345" in lines[1]
    assert "2.9 MiB" in lines[1]
    assert len(lines) == 3


def test_list_as_json_and_of_the_last_run(arclog):
    matching = json.loads(arclog("result", "list", "last", "--json").out)
    assert [entry["seq"] for entry in matching] == [9, 11]
    assert matching[0]["ref"] == REF


def test_a_run_that_stored_nothing(arclog, api):
    api.stored = []
    assert "has no stored results" in arclog("result", "list", "7").out
    assert arclog("result", "list", "7", "--json").out == "[]\n"


def test_show_is_clean_and_says_how_long_it_is_kept(arclog):
    done = arclog("result", "show", REF)
    assert done.code == 0
    for word in ("start.fetch", "12,345", SHA, "until 2026-03-01", "scope execution", '[1, "\\x1b[2J"]'):
        assert word in done.out
    assert "\x1b" not in done.out
    assert json.loads(arclog("result", "show", REF, "--json").out)["stored_bytes"] == 500_000


@pytest.mark.parametrize(
    ("scope", "expires_at", "words"),
    [
        ("permanent", None, "for ever (scope permanent)"),
        ("permanent", "2026-02-01T00:00:00Z", "while its run is active"),
        ("step", None, "while its run is active (scope step)"),
    ],
)
def test_show_of_one_whose_end_is_not_known(arclog, api, scope, expires_at, words):
    api.stored = [replace(ONE, scope=scope, expires_at=expires_at, kept_until=None)]
    assert words in arclog("result", "show", REF).out


def test_show_of_a_removed_one(arclog, api):
    api.stored = [replace(ONE, removed_at="2026-02-01T00:00:00Z", stored_bytes=None)]
    done = arclog("result", "show", REF)
    assert "by gc" in done.out
    assert "result save" not in done.out
    assert "removed" in arclog("result", "list", "7").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("save", REF), "needs REF and FILE"),
        (("get", REF, "file"), "FILE is an argument of result save"),
        (("show", REF, "--range", "1-2"), "--range is an option of result get"),
        (("get", REF, "--force"), "--force is an option of result save"),
        (("get", REF, "--range", "x"), "is not A-B"),
        (("get", REF, "--range", "5"), "is not A-B"),
        (("get", REF, "--range", "9-3"), "ends before it starts"),
        (("drop", REF), "invalid choice"),
        (("get",), "required"),
        (("show", "noetl://execution/../x"), "is not a result ref"),
        (("show", REF.replace("ab", "cd")), "no stored result"),
        (("list", "x"), "execution id"),
        (("list", "99"), "no execution has the id 99"),
    ],
)
def test_what_makes_no_sense_is_refused(arclog, words, message):
    done = arclog("result", *words)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_save_writes_a_file_once(arclog, api):
    done = arclog("result", "save", REF, "out.bin")
    assert (done.code, done.out) == (0, "saved 28 B to out.bin\n")
    assert Path("out.bin").read_bytes() == api.body
    api.body = b"other"
    again = arclog("result", "save", REF, "out.bin")
    assert again.code == 2
    assert "--force" in again.err
    assert Path("out.bin").read_bytes() != b"other"
    assert json.loads(arclog("result", "save", REF, "out.bin", "--force", "--json").out)["bytes"] == 5
    assert Path("out.bin").read_bytes() == b"other"
    assert sorted(entry.name for entry in Path().iterdir()) == [".arclog", "out.bin"]


def test_save_that_fails_leaves_nothing(arclog, api):
    api.refusal = ResultUnavailable("it is damaged")
    done = arclog("result", "save", REF, "out.bin")
    assert done.code == 1
    assert "it is damaged" in done.err
    assert sorted(entry.name for entry in Path().iterdir()) == [".arclog"]
    Path("folder").mkdir()
    assert arclog("result", "save", REF, "folder").code == 2
    api.refusal = None
    done = arclog("result", "save", REF, "no/such/file")
    assert done.code == 1
    assert "cannot save to no/such/file" in done.err


def test_gc_says_what_it_did(arclog, home):
    done = arclog("gc")
    assert done.out == (
        "let go of 3 results and removed 1 file, which freed 4.8 MiB; removed 2 unfinished files; removed 4 runs "
        "past retention\n"
    )
    assert "would remove 4 runs" in arclog("gc", "--dry-run").out
    assert "would let go of 3 results and remove 1 file, to free 4.8 MiB" in arclog("gc", "--dry-run").out
    assert json.loads(arclog("gc", "--json").out) == {
        "dry_run": False, "results": 3, "contents": 1, "bytes": 5_000_000, "leftovers": 2, "executions": 4,
        "reclaimed": 0, "environments": 0, "environment_bytes": 0,
    }  # fmt: skip
    assert home.opened == [False, True, True, False]


def test_gc_compacts_the_file_of_a_home_alone(arclog, monkeypatch):
    assert "not both" in arclog("gc", "--compact", "--dry-run").err
    assert "for the SQLite file of a home" in arclog("gc", "--compact", "--server", "http://a:1").err
    monkeypatch.setattr("arclog.wiring.backends.compact", lambda _: 3 << 20)
    assert "reduced the store by 3.0 MiB" in arclog("gc", "--compact").out


def test_gc_that_finds_nothing(arclog, api, monkeypatch):
    async def collect(*, dry_run: bool = False) -> Collected:
        return Collected(dry_run, 0, 0, 0, 0)

    monkeypatch.setattr(api, "collect", collect)
    assert arclog("gc").out == "nothing to remove\n"


def test_where_there_is_no_home(arclog):
    Path(".arclog/arclog.db").unlink()
    for words in (("gc",), ("result", "get", REF), ("result", "list", "7")):
        done = arclog(*words)
        assert done.code == 2
        assert "no runs yet" in done.err
    assert list(Path(".arclog").iterdir()) == []


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (5 << 40, "5,120.0 GiB"),
    ],
)
def test_sizes(size, text):
    assert size_text(size) == text
