"""`list`: lines that fit, filters, and the first digits of ids."""

from __future__ import annotations

import io
import json

import pytest

from arclog.cli.render import Out, width_of
from arclog.cli.runs.listing import list_table
from arclog.ports.views.api import ListedRun
from arclog.ports.views.overview import ListedOrigin
from tests.unit.cli.conftest import Arclog
from tests.unit.cli.fake import RUN_ID, FakeApi, FakeRun, completed, failed

AT, END = "2026-01-02T03:04:05.000000Z", "2026-01-02T04:04:06.000000Z"
OLD = "381192014401900544"
ERROR = "step load, item 5, task fetch: exception: ValueError: a long story about a row that could not be read at all"


def rows() -> list[ListedRun]:
    name = "a_playbook_whose_name_is_longer_than_any_column_should_be"
    base = (RUN_ID, name, "p", "1")
    return [
        ListedRun("380452616754167808", *base, "FAILED", "load", AT, AT, END, ERROR),
        ListedRun("3804526167541678089", *base, "RUNNING", "load", AT, AT, None, None, paused=True),
        ListedRun("380452616754167807", *base, "COMPLETED", "load", AT, AT, END, None, warning="step load: 997 ok, 3 failed"),
        ListedRun("380452616754167806", *base, "CANCELLED", "x", AT, AT, END, "enough"),
        ListedRun("380452616754167805", *base, "PENDING", None, AT, None, None, None),
        ListedRun("380452616754167804", *base, "FAILED", "load", AT, AT, END, ERROR, origin=ListedOrigin(OLD, 57, "retry")),
        ListedRun("380452616754167803", *base, "COMPLETED", "load", AT, AT, END, None, origin=ListedOrigin(OLD, 57, "fork")),
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [70, 80, 100, 119, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    out = Out(stream=io.StringIO())
    out.size = lambda: (columns, 40)  # type: ignore[method-assign]  # a terminal of that width
    lines = list_table(rows(), out).splitlines()
    assert max(map(width_of, lines)) <= columns
    text = "\n".join(lines)
    assert text.count("38045261675416780") == 7, "ids are whole: they are what the other commands take"
    assert "997 ok, 3 failed" in text
    assert "‖ paused" in text
    assert "retry of 3811" in text
    assert f"fork of {OLD} at 57" in text
    assert text.count("step load, item 5") == 2, "an error is not pushed out by where its run comes from"


def test_in_80_columns_what_went_wrong_has_a_line_of_its_own() -> None:
    out = Out(stream=io.StringIO())
    out.size = lambda: (80, 40)  # type: ignore[method-assign]  # a terminal of that width
    head, first, below, *_ = list_table(rows(), out).splitlines()
    assert head.split() == ["EXECUTION", "STATE", "PLAYBOOK", "STARTED", "TOOK"]
    assert "✗ failed" in first
    assert below.startswith("  step load, item 5, task fetch: exception: ValueError:")


def test_filters(arclog: Arclog, api: FakeApi) -> None:
    api.runs = {"11": completed("start"), "12": failed()}

    def ids(*words: str) -> list[str]:
        return [row["execution_id"] for row in json.loads(arclog("list", "--json", *words).out)]

    assert ids("--name", "emo") == ["12", "11"]
    assert ids("--name", "other") == []
    assert ids("--since", "2020-01-01") == ["12", "11"]
    assert ids("--since", "2100-01-01") == []
    assert ids("--name", "demo", "--state", "failed") == ["12"]
    assert ids("--origin", "11") == ["12"]
    assert ids("--origin", "last") == []
    assert arclog("list", "--origin", "77").code == 2
    assert arclog("list", "--name", "other").out == "no runs match\n"
    assert arclog("list", "--name", "other", "--state", "failed").out == "no failed runs match\n"
    done = arclog("list", "--since", "soon")
    assert (done.code, "'soon' is not a time" in done.err) == (2, True)


def test_an_id_may_be_cut_where_it_is_the_only_one(arclog: Arclog, api: FakeApi) -> None:
    first, second = "380452616754167808", "380452616799999999"
    api.runs = {first: completed("start"), second: failed()}
    assert json.loads(arclog("status", "3804526167541", "--json").out)["execution_id"] == first
    assert json.loads(arclog("status", first, "--json").out)["execution_id"] == first
    done = arclog("status", "3804526167")
    assert done.code == 2
    assert "3804526167 matches several ids:" in done.err
    assert done.err.index(second) < done.err.index(first), "the newest first"
    assert "(demo, failed," in done.err
    done = arclog("show", "99")
    assert (done.code, "no execution has the id 99" in done.err) == (2, True)


def test_an_id_that_is_also_the_beginning_of_others_is_meant_itself(arclog: Arclog, api: FakeApi) -> None:
    api.runs = {"38": completed("start"), "380452616754167808": failed()}
    assert json.loads(arclog("status", "38", "--json").out)["execution_id"] == "38"


def test_many_candidates_are_not_all_named(arclog: Arclog, api: FakeApi) -> None:
    api.runs = {f"38045261675416{number:04}": FakeRun(("playbook.started", {})) for number in range(9)}
    message = arclog("why", "380452").err
    assert message.count("(demo,") == 5
    assert ", …" in message
