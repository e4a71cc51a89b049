"""`arclog pool`, `resource`, `workers` and priorities on the command line, in a home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arclog.cli.main import command


class Home:
    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = command([*words, "--home", str(self.path / "home")])
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def file(self, text: str) -> str:
        file = self.path / "play.yaml"
        file.write_text(text)
        return str(file)


@pytest.fixture
def arclog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("ARCLOG_SERVER", raising=False)
    return Home(tmp_path, capsys)


def test_what_only_reads_makes_no_home(arclog: Home) -> None:
    assert arclog("pool", "list") == (0, "no pools: there is no waiting work, no worker and no limit\n", "")
    assert arclog("resource", "list", "--json") == (0, "[]\n", "")
    assert arclog("workers", "--quiet") == (0, "", "")
    assert not (arclog.path / "home").exists()


def test_limits(arclog: Home) -> None:
    assert arclog("pool", "set", "gpu", "--concurrency", "8") == (
        0,
        "gpu  0 waiting, 0 busy; 0 workers, 0 slots; all tenants at most 8\n",
        "",
    )
    assert arclog("pool", "set", "gpu", "--each-tenant", "--concurrency", "2")[0] == 0
    assert arclog("pool", "set", "--all", "--tenant", "acme", "--concurrency", "5")[0] == 0
    assert arclog("pool", "list")[1] == (
        "(all pools)  0 waiting, 0 busy; 0 workers, 0 slots; tenant acme at most 5\n"
        "gpu  0 waiting, 0 busy; 0 workers, 0 slots; all tenants at most 8, each tenant at most 2\n"
    )
    assert [load["name"] for load in json.loads(arclog("pool", "list", "--json")[1])] == ["", "gpu"]
    assert "each tenant" not in arclog("pool", "rm", "gpu", "--each-tenant")[1]
    code, _, err = arclog("pool", "rm", "gpu", "--each-tenant")
    assert (code, "each tenant in pool gpu has no limit; `arclog pool list`" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pool set gpu", "--concurrency is required"),
        ("pool set --concurrency 3", "either NAME or --all is required"),
        ("pool set gpu --all --concurrency 3", "either NAME or --all is required"),
        ("pool set gpu --concurrency 3 --tenant a --each-tenant", "use either --tenant or --each-tenant"),
        ("pool set gpu --concurrency 3 --tenant *", "'*' is not a tenant"),
        ("pool rm gpu --concurrency 3", "of `pool set`"),
        ("pool list gpu", "pool list takes no arguments"),
        ("resource set api", "--rate or --concurrency is required"),
        ("resource set --rate 1/s", "a NAME is required"),
        ("resource rm api --rate 1/s", "takes only a NAME"),
        ("resource list api", "resource list takes no arguments"),
    ],
)
def test_what_makes_no_sense_is_said(arclog: Home, words: str, said: str) -> None:
    code, _, err = arclog(*words.split())
    assert (code, said in err) == (2, True), err


def test_a_wrong_rate_is_said(arclog: Home) -> None:
    code, _, err = arclog("resource", "set", "api", "--rate", "fast")
    assert (code, "'fast' is not a rate; write 10/s" in err) == (2, True), err


def test_resources(arclog: Home) -> None:
    made = arclog("resource", "set", "api", "--rate", "10/s", "--burst", "20", "--concurrency", "4")
    assert made == (0, "api  10/s, burst 20: 20 tokens; 0 of 4 in use\n", "")
    assert arclog("resource", "set", "db", "--concurrency", "2")[1] == "db  0 of 2 in use\n"
    assert arclog("resource", "list")[1].count("\n") == 2
    assert arclog("resource", "rm", "db") == (0, "db no longer has a limit\n", "")
    assert arclog("workers")[1].startswith("no workers")


RATED = """\
metadata: {name: rated}
workflow:
  - step: start
    spec: {resources: [api], priority: 3}
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
    tool: {kind: noop}
"""


def test_a_run_waits_for_tokens(arclog: Home) -> None:
    arclog("resource", "set", "api", "--rate", "1/h", "--burst", "3")
    code, _, err = arclog("run", arclog.file(RATED), "--priority", "7", "--json")
    assert code == 0, err
    left = json.loads(arclog("resource", "list", "--json")[1])[0]
    assert (left["tokens"], left["next_token_s"] > 3000) == (0, True)
    first = json.loads(arclog("events", "last", "--json")[1].splitlines()[0])
    assert first["payload"]["priority"] == 7


def test_check_names_resources_and_refuses_what_is_no_priority(arclog: Home) -> None:
    code, out, _ = arclog("check", arclog.file(RATED))
    assert (code, "resource api has no limit unless operators set one" in out) == (0, True), out
    for bad in ("priority: 101", "priority: high", "resources: api", "resources: [a b]"):
        assert arclog("check", arclog.file(RATED.replace("priority: 3", bad).replace("resources: [api], ", "")))[0] == 2
    code, _, err = arclog("run", arclog.file(RATED), "--priority", "101")
    assert (code, "101 is not between -100 and 100" in err) == (2, True), err
