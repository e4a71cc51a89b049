"""`retry --failed`, `fork`, `replay` and `diff` at the command line, on a home of this machine."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from arclog.cli.main import command
from tests.servers.web import Web

ITEMS = """
metadata: {name: items}
workflow:
  - step: start
    tool: {kind: noop, data: {rows: 1000}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(start.rows) }}", iterator: n, spec: {mode: parallel, max_in_flight: 8}}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: noop, data: "{{ 1000 // (iter.n - 3) + 1000 // (iter.n - 500) + 1000 // (iter.n - 999) }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: "{{ each.results | length }}"}}
"""
FIXED = ITEMS.replace("(iter.n - 3)", "3").replace("(iter.n - 500)", "5").replace("(iter.n - 999)", "9")


class Home:
    """A home, and what commands on it print."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def output_of(self, *words: str, code: int = 0) -> str:
        search = command([*words, "--home", str(self.folder / "home")])
        output = self._capsys.readouterr()
        assert search == code, output
        return output.out + output.err

    def json(self, *words: str, code: int = 0) -> Any:
        search = command([*words, "--json", "--home", str(self.folder / "home")])
        output = self._capsys.readouterr()
        assert search == code, output
        return json.loads(output.out or output.err)


@pytest.fixture
def home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capsys)


def test_of_a_thousand_items_the_three_that_failed_run_again_with_a_fixed_playbook(home: Home) -> None:
    first = home.json("run", home.file("items.yaml", ITEMS))
    assert first["steps"]["each"]["items"]["failed"] == 3
    fixed = home.file("fixed.yaml", FIXED)
    again = home.json("retry", first["execution_id"], "--failed", "--playbook", fixed)
    assert (again["state"], again["result"]) == ("COMPLETED", 1000)
    assert again["steps"]["each"]["items"] == {"total": 1000, "ok": 1000, "failed": 0}
    origin = again["origin"]
    assert (origin["execution_id"], origin["how"]) == (first["execution_id"], "retry")
    ran = [
        json.loads(line)
        for line in home.output_of("events", again["execution_id"], "--json").splitlines()
        if json.loads(line)["seq"] > origin["events"]
    ]
    items = [event["iteration"] for event in ran if event["event_type"] == "task.started" and event["step"] == "each"]
    assert sorted(items) == [3, 500, 999]
    assert f"retry of {first['execution_id']}" in home.output_of("show", again["execution_id"])
    assert "2 runs checked" in home.output_of("replay", "--all", "--since", "1h")
    body = home.json("diff", first["execution_id"], again["execution_id"], code=1)
    assert body["divergence"]["step"] == "each"
    assert body["net"]["steps_changed"] == ["each"]
    assert "each.results[3]" in {value["path"] for value in body["values"]}


SMALL = """
metadata: {name: small}
workload: {n: 1}
workflow:
  - step: start
    tool: {kind: noop, data: "{{ workload.n }}"}
    next: {arcs: [{step: low, when: "{{ start.data < 5 }}"}, {step: high}]}
  - {step: low, tool: {kind: noop, data: low}}
  - {step: high, tool: {kind: noop, data: high}}
"""


def test_a_fork_goes_on_from_an_event_and_a_verdict_says_what_has_no_place(home: Home) -> None:
    run = home.json("run", home.file("small.yaml", SMALL))
    events = [json.loads(line) for line in home.output_of("events", "last", "--json").splitlines()]
    ended = next(event["seq"] for event in events if event["event_type"] == "step.done")
    forked = home.json("fork", run["execution_id"], "--at", str(ended), "--set", "n=9")
    assert (forked["result"], forked["origin"]["seq"]) == ("low", ended), "the step before had ended"
    began = next(event["seq"] for event in events if event["event_type"] == "task.started")
    assert home.json("fork", run["execution_id"], "--at", str(began), "--set", "n=9")["result"] == "high"
    renamed = home.file("renamed.yaml", SMALL.replace("step: low", "step: small"))
    output = home.output_of("fork", run["execution_id"], "--at", str(ended + 1), "--playbook", renamed, code=2)
    assert "the token that step start (run 1) gave to step low has no arc" in output
    assert f"it fits up to event {ended}" in output
    there = ("fork", run["execution_id"], "--at", str(ended + 1), "--playbook", renamed, "--map", "low=small")
    assert home.json(*there)["result"] == "low"
    assert "has events 1 to" in home.output_of("fork", run["execution_id"], "--at", "999", code=2)


def test_a_log_that_this_arclog_would_not_write_is_a_difference(home: Home) -> None:
    """The planted change: a log in which another arc was taken than its condition says."""
    run = home.json("run", home.file("small.yaml", SMALL))
    assert "no difference" in home.output_of("replay", "last")
    with sqlite3.connect(home.folder / "home" / "arclog.db") as database:
        rows = database.execute("SELECT rowid, body FROM log").fetchall()
        for row, body in rows:
            changed = body.replace(b'"result":1', b'"result":7')
            database.execute("UPDATE log SET body = ? WHERE rowid = ?", (changed, row))
    database.close()
    search = home.json("replay", run["execution_id"], code=1)
    assert not search["ok"]
    assert search["difference"]["recorded"]["payload"]["selected"][0]["step"] == "low"
    assert search["difference"]["decided"]["payload"]["selected"][0]["step"] == "high"
    assert search["difference"]["fields"] == ["payload"]
    output = home.output_of("replay", "--all", code=1)
    assert f"small {run['execution_id']}" in output
    assert "1 run checked" in output
    assert "1 differ" in output


def test_events_of_all_runs_are_searched_by_type_entity_and_condition(home: Home) -> None:
    file = home.file("small.yaml", SMALL)
    low, high = home.json("run", file), home.json("run", file, "--set", "n=9")

    def search(*words: str) -> list[tuple[str, str, str]]:
        lines = [json.loads(line) for line in home.output_of("events", *words, "--json").splitlines()]
        return [(line["execution_id"], line["event_type"], line.get("step", "")) for line in lines]

    both = [low["execution_id"], high["execution_id"]]
    assert search("--type", "playbook.finished") == [(run_id, "playbook.finished", "") for run_id in both]
    assert search("--type", "playbook.finished", "--where", "payload.result == 'high'")[0][0] == both[1]
    assert search("--entity", "step:high", "--where", "event_type == 'step.done'") == [(both[1], "step.done", "high")]
    assert search("--entity", "step", "--where", "step == 'low'", "--since", "1h")[0][0] == both[0]
    assert len(search("--limit", "3")) == 3
    assert search("--where", "payload.nowhere.at_all > 3") == []
    assert search("--type", "playbook.failed") == []
    assert len(search("--entity", "step", "--limit", "1")) == 1
    assert search(both[0], "--entity", "step:low", "--where", "status == 'success'") == [(both[0], "step.done", "low")]
    assert both[1] in home.output_of("events", "--type", "playbook.finished", "--where", "payload.result == 'high'")
    listed = home.json("list", "--where", f"execution_id == '{both[1]}' and not error")
    assert [run["execution_id"] for run in listed] == [both[1]]
    assert "no runs match" in home.output_of("list", "--where", "name == 'other' or nowhere > 3")
    stats = home.json("stats", "small")
    assert (stats["runs"], stats["success_rate"]) == (2, 1.0)
    assert "2 runs: 2 completed" in home.output_of("stats", "small")


MANY = """
metadata: {name: many}
workflow:
  - step: each
    loop: {in: "{{ range(200) }}", iterator: n, spec: {mode: parallel, max_in_flight: 20}}
    tool: {kind: playbook, file: small.yaml, args: {n: "{{ iter.n % 10 }}"}}
"""


def test_a_changed_condition_is_simulated_over_two_hundred_runs(home: Home) -> None:
    file = home.file("small.yaml", SMALL)
    home.output_of("run", home.file("many.yaml", MANY), "--quiet")
    changed = home.file("changed.yaml", SMALL.replace("< 5", "< 4"))
    body = home.json("simulate", changed, "--last", "200", code=1)
    assert body["verdicts"] == {"path": 20, "same": 180}
    assert {run["divergence"]["step"] for run in body["runs"] if run["verdict"] == "path"} == {"start"}
    output = home.output_of("simulate", changed, "--last", "200", code=1)
    assert "after step start the run went to low; it would go to high (event" in output, "the reason is not cut off"
    assert "200 runs, 400 steps simulated: 20 path, 180 same" in output
    assert "1 run, 2 steps simulated: 1 same" in home.output_of(
        "simulate", file, "--from", body["runs"][0]["execution_id"]
    )


def test_calls_that_are_listed_in_part_are_not_counted_as_all(home: Home) -> None:
    text = (
        "metadata: {name: many}\nworkflow:\n"
        '  - {step: a, loop: {in: "{{ range(120) }}", iterator: n}, tool: {kind: python, args: {n: "{{ iter.n }}"}, code: result = n}}\n'
    )
    home.output_of("run", home.file("many.yaml", text), "--quiet")
    changed = home.file("changed.yaml", text.replace("{{ iter.n }}", "{{ iter.n + 1 }}"))
    assert "its inputs were others then (at least 100 times)" in home.output_of("simulate", changed, "--from", "last")


SECRET = """
metadata: {name: secret}
keychain: [{name: pass, kind: env, var: HISTORY_TEST_SECRET}]
workflow:
  - step: start
    tool: {kind: noop, data: {given: "{{ keychain.pass.value }}", rows: "{{ range(30000) | list }}"}}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: "{{ start.rows | length }}"}}
"""


def test_an_exported_run_is_opened_in_an_empty_home_and_has_no_secret(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HISTORY_TEST_SECRET", "correct-horse-battery")
    run = home.json("run", home.file("secret.yaml", SECRET))
    file = str(tmp_path / "run.arclog")
    written = home.json("export", "last", "-o", file)
    assert written == {"execution_id": run["execution_id"], "file": file, "bytes": Path(file).stat().st_size}
    with ZipFile(file) as archive:
        assert not [name for name in archive.namelist() if b"correct-horse" in archive.read(name)]
    monkeypatch.delenv("HISTORY_TEST_SECRET")
    other_home = Home(tmp_path / "there", home._capsys)
    assert other_home.json("import", file)["results"] == 1
    assert [run["imported"] for run in other_home.json("list")] == [True]
    assert "imported" in other_home.output_of("list")
    assert "recorded elsewhere; read-only" in other_home.output_of("show", "last")
    assert other_home.json("show", run["execution_id"][:8])["result"] == 30000
    assert "no difference" in other_home.output_of("replay", "last")
    assert home.output_of("events", "last") == other_home.output_of("events", "last")
    ((mine,), (theirs,)) = (place.json("result", "list", "last") for place in (home, other_home))
    assert (mine["ref"], mine["bytes"]) == (theirs["ref"], theirs["bytes"])
    assert "is read-only" in other_home.output_of("cancel", "last", "--reason", "no", code=2)
    assert other_home.json("simulate", home.file("secret.yaml", SECRET), "--from", "last")["verdicts"] == {"same": 1}
    monkeypatch.setenv("HISTORY_TEST_SECRET", "correct-horse-battery")
    assert other_home.json("retry", "last", "--from", "end")["result"] == 30000
    assert "cannot write" in home.output_of("export", "last", "-o", str(tmp_path / "nowhere" / "run.arclog"), code=2)
    damaged = bytearray(Path(file).read_bytes())
    damaged[100] ^= 1
    Path(file).write_bytes(damaged)
    assert "part log.jsonl does not match its checksum" in other_home.output_of("import", file, code=2)
    assert "cannot read" in other_home.output_of("import", file + "x", code=2)


TRACED = """
metadata: {name: traced}
workload: {host: "", id: 3}
executor: {spec: {result: {total: "{{ ctx.total }}"}}}
workflow:
  - step: fetch
    tool: {kind: http, method: GET, url: "http://{{ workload.host }}/orders/{{ workload.id }}"}
    next: {arcs: [{step: sum, args: {prices: "{{ fetch.data.prices }}"}}]}
  - step: sum
    tool:
      name: add
      kind: python
      args: {prices: "{{ args.prices }}"}
      code: result = sum(prices)
      spec: {set_ctx: {total: "{{ outcome.data }}"}}
"""


def test_a_number_is_traced_to_the_http_response_that_it_came_from(home: Home) -> None:
    with Web() as web:
        web.answers("/orders/3", json={"prices": [4, 5]})
        host = web.url().removeprefix("http://").rstrip("/")
        run = home.json("run", home.file("traced.yaml", TRACED), "--set", f"host={host}")
    assert run["result"] == {"total": 9}
    output = home.output_of("trace", "last", "--value", "result.total")
    (line,) = [line for line in output.splitlines() if "fetch.fetch_task.data.prices" in line]
    assert f"[4,5] · http · url http://{host}/orders/3 · method GET · status 200 · event 8" in line
    assert line.endswith("traced.yaml:7:11")
    assert "workload.id = 3 · the playbook's default" in output
    node = home.json("trace", "last", "--value", "result.total")["node"]
    assert (node["value"], node["source"].rpartition("/")[2]) == (9, "traced.yaml:4:36")
    assert "has no value 'nothing'" in home.output_of("trace", "last", "--value", "nothing", code=2)
    # A retry whose playbook asks elsewhere kept the old response: the log still has its address.
    elsewhere = home.file("elsewhere.yaml", TRACED.replace("/orders/", "/v2/orders/"))
    home.output_of("retry", run["execution_id"], "--from", "sum", "--playbook", elsewhere)
    output = home.output_of("trace", "last", "--value", "fetch.data.prices")
    assert f"url http://{host}/orders/3 · status 200 · kept from run {run['execution_id']} · event 8" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("simulate", "x.yaml", "--from", "last", "--last", "3"), "not both"),
        (("list", "--where", "1 +"), "--where is not an expression"),
        (("import", __file__), "not an exported run"),
        (("simulate", "x.yaml", "--last", "0"), "is not a number of 1 or more"),
        (("retry", "last", "start", "--failed"), "omit it with --from"),
        (("retry", "last", "--playbook", "x.yaml"), "require --from STEP or --failed"),
        (("retry", "last", "--failed", "--from", "start"), "not allowed with"),
        (("fork", "last"), "--at"),
        (("fork", "last", "--at", "5", "--map", "a=b"), "give it with --playbook"),
        (("fork", "last", "--at", "5", "--playbook", "x.yaml", "--map", "a"), "is not of the form OLD=NEW"),
        (("events", "--follow"), "require the ID of a run"),
        (("events", "--entity", "nothing"), "there is no entity_type 'nothing'"),
        (("events", "--where", "1 +"), "1 +"),
        (("events", "last", "--since", "1h"), "omit the ID"),
        (("stats", "small", "--last", "0"), "is not between 1 and 1000"),
        (("replay",), "name a run, or use --all"),
        (("replay", "last", "--since", "1d"), "requires --all"),
    ],
)
def test_what_makes_no_sense_is_refused(home: Home, words: tuple[str, ...], said: str) -> None:
    assert said in home.output_of(*words, code=2)


def test_a_retried_run_has_its_final_step_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "final.yaml"
    file.write_text(
        "metadata: {name: final}\nworkload: {bad: true}\nexecutor: {spec: {final_step: last}}\nworkflow:\n"
        "  - {step: start, tool: {kind: noop, data: 1}, next: {arcs: [{step: work}]}}\n"
        "  - {step: work, tool: {kind: assert, that: not workload.bad, message: boom}}\n"
        '  - {step: last, tool: {kind: noop, data: "{{ outcome.state }}", spec: {set_ctx: {end: "{{ outcome.data }}"}}}}\n'
    )
    options = ["--json", "--home", str(tmp_path / "home")]
    assert command(["run", str(file), *options]) == 1
    first = json.loads(capsys.readouterr().out)
    assert first["ctx"] == {"end": "failed"}
    assert f"arclog retry {first['execution_id']} --failed" in first["next"]
    assert command(["retry", first["execution_id"], "--failed", "--set", "bad=false", *options]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["state"], again["ctx"]) == ("COMPLETED", {"end": "completed"})
    assert command(["replay", "--all", *options]) == 0


def test_lineage_is_written_as_openlineage_events(home: Home, tmp_path: Path) -> None:
    text = "metadata: {name: lake}\nworkflow:\n  - step: start\n    tool: {kind: duckdb, command: 'select 1 as x'}\n"
    home.json("run", home.file("lake.yaml", text))
    assert "no task of this run" in home.output_of("lineage", "last")
    file = tmp_path / "events.jsonl"
    assert "wrote 4 OpenLineage events" in home.output_of("lineage", "last", "--openlineage", str(file))
    kinds = [json.loads(line)["eventType"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert kinds == ["START", "START", "COMPLETE", "COMPLETE"]
    assert "nowhere" in home.output_of("lineage", "last", "--openlineage", str(tmp_path / "nowhere" / "x"), code=2)


def test_two_playbooks_are_compared_by_their_nets_and_their_texts(home: Home) -> None:
    changed = ITEMS.replace("- {step: end,", "- {step: finish,").replace("step: end}", "step: finish}")
    changed = changed.replace("metadata: {name: items}", "metadata: {name: items}\nworkload: {at: 1}")
    a, b = home.file("a.yaml", ITEMS), home.file("b.yaml", changed)
    body = home.json("diff", a, b, code=1)
    assert body["net"] == {
        "steps_added": ["finish"],
        "steps_removed": ["end"],
        "steps_changed": [],
        "arcs_added": ["each → finish"],
        "arcs_removed": ["each → end"],
    }
    assert body["settings"] == ["workload"]
    assert "+workload: {at: 1}\n" in body["diff"]
    output = home.output_of("diff", a, b, code=1)
    assert all(line in output for line in ("+ step finish", "- step end", "+ arc each → finish", "~ workload"))
    commented = home.file("c.yaml", "# the same\n\n" + ITEMS)
    assert "the same steps, arcs and settings" in home.output_of("diff", a, commented)
    other = home.file("d.yaml", changed.replace("{at: 1}", "{at: 2}"))
    assert home.json("diff", b, other, code=1)["settings"] == ["workload"], "a key of one's own, and no place in a file"


def test_two_versions_of_the_catalog_and_a_file_are_compared(home: Home) -> None:
    for text in (ITEMS, FIXED):
        home.output_of("catalog", "register", home.file("items.yaml", text))
    body = home.json("diff", "items@1", "items@2", code=1)
    assert (body["a"], body["b"], body["net"]["steps_changed"]) == ("items@1", "items@2", ["each"])
    assert body["diff"] == home.json("catalog", "diff", "items@1", "2")["diff"].replace("items ", "items@")
    assert home.json("diff", home.file("own.yaml", FIXED), "items@2")["net"] is None
    assert "nothing is registered under" in home.output_of("diff", "other@1", "items@2", code=2)


def test_versions_of_the_catalog_that_need_files_are_compared(home: Home) -> None:
    file = home.file(
        "report.yaml", "metadata: {name: report}\nworkflow: [{step: a, tool: {kind: shell, file: a.sh}}]\n"
    )
    for script in ("echo 1", "echo 2"):
        home.file("a.sh", script)
        home.output_of("catalog", "register", file)
    (home.folder / "a.sh").unlink()
    body = home.json("diff", "report@1", "report@2", code=1)
    assert (body["net"]["steps_changed"], body["diff"]) == (["a"], "")


def test_digits_are_a_run_even_where_a_file_has_that_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.folder)
    home.file("2024", "metadata: {name: a}\nworkflow: [{step: a, tool: {kind: noop}}]\n")
    assert "no difference" not in home.output_of("diff", "./2024", "./2024")
    home.output_of("run", "./2024")
    assert "2024" in home.output_of("diff", "2024", "last", code=2)


def test_a_run_that_is_repeated_from_its_start_has_its_origin(home: Home) -> None:
    file = home.file("a.yaml", "metadata: {name: a}\nworkflow: [{step: a, tool: {kind: noop}}]\n")
    first = home.json("run", file)
    again = home.json("retry", "last")
    head = home.json("replay", first["execution_id"])["events"]
    assert again["origin"] == {"execution_id": first["execution_id"], "seq": head, "how": "retry", "events": 0}
    assert f"retry of {first['execution_id']} from its start" in home.output_of("show", "last")
    assert [run["execution_id"] for run in home.json("list", "--origin", first["execution_id"])] == [
        again["execution_id"]
    ]
    assert home.json("replay", "last")["ok"]


def test_a_run_and_a_playbook_are_not_compared(home: Home) -> None:
    file = home.file("a.yaml", "metadata: {name: a}\nworkflow: [{step: a, tool: {kind: noop}}]\n")
    home.output_of("run", file)
    for words in (("last", file), (file, "last")):
        output = home.output_of("diff", *words, code=2)
        assert f"last is a run and {file} is a playbook" in output
        assert f"arclog simulate {file} --from last" in output
    assert "cannot read" in home.output_of("diff", file, str(home.folder / "none.yaml"), code=2)


@pytest.mark.parametrize("words", [("show",), ("why",), ("state",), ("retry", "--from", "a")])
def test_a_log_of_a_newer_release_is_one_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    """In a process of its own: pytest takes log records away from standard error."""
    file = tmp_path / "a.yaml"
    file.write_text("metadata: {name: a}\nworkflow: [{step: a, tool: {kind: noop}}]\n", encoding="utf-8")
    home = str(tmp_path / "home")
    assert command(["run", str(file), "--home", home]) == 0
    with sqlite3.connect(tmp_path / "home" / "arclog.db") as database:
        database.execute(
            """UPDATE log SET body = CAST(replace(CAST(body AS TEXT), 'step.done', 'step.dreamt') AS BLOB)"""
        )
    database.close()
    name, *rest = words
    arclog = [sys.executable, "-m", "arclog", name, "last", *rest, "--home", home]
    done = subprocess.run(arclog, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert (done.stdout, done.stderr.count("newer arclog wrote")) == ("", 1)
    assert done.stderr.startswith("arclog: error: event ")
