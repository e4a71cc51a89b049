"""Where a value came from: each node has its event and its line, and the leaves are where values came into the run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected
from arclog.ports.views.api import ExecuteRequest, ForkRequest, SignalRequest
from arclog.ports.views.history import Trace, TraceNode
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from arclog.wiring.embedded import embedded

TEXT = """
metadata: {name: traced}
workload: {base: 10, ids: [1, 2, 3]}
executor: {spec: {result: {total: "{{ ctx.sum }}", first: "{{ each.results[0] }}", fixed: 5}}}
workflow:
  - step: fetch
    tool: {kind: act, returns: {factor: "{{ workload.base }}"}}
    next: {arcs: [{step: each, args: {factor: "{{ fetch.data.factor }}"}}]}
  - step: each
    loop: {in: "{{ workload.ids }}", iterator: id}
    tool:
      - {name: calc, kind: act, returns: "{{ iter.id * args.factor }}"}
      - name: add
        kind: noop
        data: "{{ _prev.data + (ctx.sum | default(0)) }}"
        spec: {set_ctx: {sum: "{{ outcome.data }}"}}
"""


async def traced(path: str, text: str = TEXT, **world: Any) -> Trace:
    async with World(text, **world) as simulated:
        await simulated.run()
        return await simulated.current_life.api.trace(str(simulated.execution_id), path)


def leaves(node: TraceNode) -> Iterator[TraceNode]:
    if not node.sources and not node.is_repeated:
        yield node
    for source in node.sources:
        yield from leaves(source)


def below(node: TraceNode, *names: str) -> TraceNode:
    for name in names:
        node = next(source for source in node.sources if source.name == name)
    return node


def test_a_number_is_followed_through_ctx_items_args_and_outcomes_to_the_workload() -> None:
    outcome = run_virtually(traced("result.total", workload={"ids": [4, 5]}))
    root = outcome.node
    assert (root.what, root.value, root.template, root.source) == ("result", 90, "{{ ctx.sum }}", "4:36")
    added = below(root, "ctx.sum", "each.add.set_ctx.sum", "each.add.data")
    assert (added.value, added.item, added.kind, added.source) == (90, [1], "noop", "15:16")
    answered = below(added, "each.calc.data")
    assert (answered.value, answered.kind, answered.seq > 0, answered.source) == (50, "act", True, "12:9")
    assert below(answered, "each.args.factor", "fetch.fetch_task.data.factor", "workload.base").what == "default"
    item = below(answered, "each.loop[1]")
    assert (item.value, item.template, item.source) == (5, "{{ workload.ids }}", "10:17")
    assert below(item, "workload.ids[1]").what == "workload"
    assert {leaf.what for leaf in leaves(root)} == {"default", "workload", "ctx"}


@pytest.mark.parametrize("takes", [[3, 1, 2], [1, 3, 2], [1, 2, 3]])
def test_the_data_of_a_parallel_loop_are_those_of_its_last_item_whichever_ended_last(takes: list[int]) -> None:
    text = f"""
metadata: {{name: parallel}}
executor: {{spec: {{result: "{{{{ each.data.n }}}}"}}}}
workflow:
  - step: each
    loop: {{in: {takes}, iterator: s, spec: {{mode: parallel, max_in_flight: 3}}}}
    tool: [{{name: rest, kind: wait, for_s: "{{{{ iter.s }}}}"}}, {{name: take, kind: noop, data: {{n: "{{{{ iter.index }}}}"}}}}]
"""
    root = run_virtually(traced("result", text)).node
    loop = below(root, "each.data.n")
    assert (root.value, loop.value, below(loop, "each.take.data.n").item) == (2, 2, [2])


def test_the_data_of_a_loop_that_failed_are_those_of_the_item_that_failed_it() -> None:
    text = """
metadata: {name: broken}
workflow:
  - step: each
    loop: {in: [5, 0, 7], iterator: n}
    tool: {name: divide, kind: noop, data: "{{ 1 / iter.n }}"}
"""
    root = run_virtually(traced("each.error", text)).node
    assert below(root, "each.divide.error").item == [1]


def test_an_item_and_a_constant_are_followed_alone() -> None:
    first = run_virtually(traced("result.first")).node
    assert below(first, "each.add").item == [0]
    fixed = run_virtually(traced("result.fixed")).node
    assert (fixed.value, fixed.sources) == (5, [])


def test_without_a_template_the_result_is_that_of_the_last_step() -> None:
    text = TEXT.replace(TEXT.splitlines()[3] + "\n", "")
    assert [source.name for source in run_virtually(traced("result", text)).node.sources] == ["each"]
    assert run_virtually(traced("workload.base")).node.value == 10
    assert run_virtually(traced("fetch.factor")).node.name == "fetch.fetch_task.factor"


def test_a_called_run_is_followed_into() -> None:
    child = "metadata: {name: inner}\nworkload: {n: 1}\nworkflow: [{step: a, tool: {kind: noop, data: {m: '{{ workload.n }}'}}}]\n"
    text = "metadata: {name: outer}\nworkflow: [{step: call, tool: {kind: playbook, path: inner, args: {n: 7}}}]\n"

    async def go() -> Trace:
        async with World(text) as world:
            world.begin_life()
            await world.register(child)
            await world.run()
            return await world.current_life.api.trace(str(world.execution_id), "result.m")

    call = below(run_virtually(go()).node, "call.call_task.m")
    inner = call.sources[0]
    assert (call.origin["execution_id"], inner.execution_id) == (inner.execution_id, call.origin["execution_id"])
    assert (inner.name, inner.value) == ("result.m", 7)
    assert [leaf.name for leaf in leaves(inner)] == ["workload.n"]


def test_what_a_run_does_not_have_is_refused_and_many_sources_are_cut() -> None:
    with pytest.raises(RequestRejected, match=r"has no value 'nowhere\.x'"):
        run_virtually(traced("nowhere.x"))
    many = TEXT.replace("ids: [1, 2, 3]", f"ids: {list(range(120))}")
    outcome = run_virtually(traced("result.total", many))
    assert outcome.is_cut


LEAVES = """
metadata: {name: leaves}
workload: {least: 2}
executor: {spec: {result: {total: "{{ sum.data[0].total }}", text: "{{ read.data.text }}"}}}
workflow:
  - step: sum
    tool: {kind: sqlite, database: 'FOLDER/a.db', command: "select sum(n) as total from orders where n >= {{ workload.least }}"}
    next: {arcs: [{step: read}]}
  - step: read
    tool: {kind: object, action: get, url: 'file://FOLDER/notes.json'}
"""


async def test_a_number_is_followed_to_its_query_and_a_text_to_its_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("create table orders (n integer)")
        connection.executemany("insert into orders values (?)", [(1,), (20,), (22,)])
    (tmp_path / "notes.json").write_text('{"text": "fine"}', encoding="utf-8")
    settings = Settings({"home": str(tmp_path / "home"), "object.file_root": str(tmp_path)})
    async with embedded(settings) as runtime:
        await runtime.start_worker()
        started = await runtime.api.execute(ExecuteRequest(LEAVES.replace("FOLDER", str(tmp_path))))
        assert await runtime.api.ended(started.execution_id, timeout_s=60)
        total, text = [
            (await runtime.api.trace(started.execution_id, path)).node for path in ("result.total", "result.text")
        ]
    query_node = below(total, "sum.sum_task.data[0].total")
    assert (total.value, query_node.value, query_node.kind, query_node.source) == (42, 42, "sqlite", "7:11")
    assert "sum(n) as total from orders" in str(query_node.origin["command"])
    assert query_node.seq > 0
    assert {leaf.name for leaf in leaves(query_node)} == {"workload.least"}
    got = below(text, "read.read_task.data.text")
    assert (text.value, got.value, got.kind, got.sources) == ("fine", "fine", "object", [])
    assert got.origin["url"] == f"file://{tmp_path}/notes.json"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("result.totl", "result has total, first, fixed"),
        ("result.total.cents", "result.total is a number"),
        ("ctx.smu", "ctx has sum"),
        ("each.results[3]", r"each\.results has items 0 to 2"),
        ("each.results.1", r"each\.results has items 0 to 2"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_what_is_there(path: str, there: str) -> None:
    with pytest.raises(RequestRejected, match=rf"has no value '{re.escape(path)}'; {there}"):
        run_virtually(traced(path))


ITEMS = """
metadata: {name: items}
workflow:
  - {step: start, tool: {kind: noop, data: 2}, next: {arcs: [{step: each}]}}
  - step: each
    loop: {in: "{{ [1, 0, 4] }}", iterator: n}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: noop, data: "{{ start.data / iter.n }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: "{{ each.results }}"}}
"""


def test_a_value_that_a_changed_step_computed_before_a_retry_is_not_given_the_new_template() -> None:
    async def main() -> tuple[list[str], list[Trace]]:
        async with World(ITEMS) as world:
            await world.run()
            api, runs = world.current_life.api, [str(world.execution_id)]
            fixed = ITEMS.replace("start.data / iter.n", "start.data + iter.n")
            # The fork has the playbook of the retry, and events that are older than that playbook.
            for request in (ForkRequest(failed=True, playbook=fixed), ForkRequest(step="end")):
                runs.append((await api.fork(runs[-1], request)).execution_id)
                await api.ended(runs[-1])
            return runs, [await api.trace(run, "result") for run in runs]

    runs, traces = run_virtually(main())
    first, retry, fork = (below(trace.node, "end.end_task", "each.results").sources for trace in traces)
    assert [(item.value, item.template) for item in first] == [
        (2.0, "{{ start.data / iter.n }}"),
        (None, "{{ start.data / iter.n }}"),
        (0.5, "{{ start.data / iter.n }}"),
    ]
    assert [(item.value, item.template, item.origin, item.source != "") for item in retry] == [
        (2.0, "", {"kept_from": runs[0]}, False),
        (2, "{{ start.data + iter.n }}", {}, True),
        (0.5, "", {"kept_from": runs[0]}, False),
    ]
    assert [item.origin for item in fork] == [{"kept_from": runs[1]}] * 3


REDUCED = """
metadata: {name: reduced}
workload: {ids: [3, 1, 2], unit: kg}
executor: {spec: {ctx: {total: {reducer: sum, initial: 10}, rows: {reducer: append}, mode: {reducer: last, initial: slow}}}}
workflow:
  - step: each
    loop: {in: "{{ workload.ids }}", iterator: id, spec: {mode: parallel, max_in_flight: 3}}
    tool:
      kind: act
      takes: "{{ iter.id }}"
      returns: "{{ iter.id }}"
      spec: {set_ctx: {total: "{{ outcome.data }}", rows: "{{ outcome.data }}"}}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: 1, spec: {set_ctx: {done: true}}}}
"""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("ctx", {"total": 16, "rows": [3, 1, 2], "mode": "slow", "done": True}),
        ("ctx.total", 16),
        ("ctx.rows", [3, 1, 2]),
        ("ctx.rows[1]", 1),
        ("ctx.mode", "slow"),
        ("workload", {"ids": [3, 1, 2], "unit": "kg"}),
    ],
)
def test_the_traced_value_is_the_one_that_the_run_has(path: str, value: Any) -> None:
    """Reduced keys are combined in item order, whichever item ended first; ctx and workload are there as a whole."""
    node = run_virtually(traced(path, REDUCED)).node
    assert node.value == value
    if path == "ctx":
        assert {source.name: source.value for source in node.sources} == {f"ctx.{key}": value[key] for key in value}
    if path == "ctx.rows":
        assert sorted(leaf.name for leaf in leaves(node)) == ["workload.ids[0]", "workload.ids[1]", "workload.ids[2]"]


def test_ctx_is_there_as_a_whole_where_its_sources_are_cut() -> None:
    many = REDUCED.replace("[3, 1, 2]", f"{list(range(120))}")
    trace = run_virtually(traced("ctx", many, settings=Settings({"history.trace_max_nodes": "20"})))
    assert trace.is_cut
    assert (trace.node.value["total"], trace.node.value["done"]) == (10 + sum(range(120)), True)


def test_a_signal_that_set_ctx_is_the_value_of_its_key() -> None:
    async def main() -> Trace:
        async with World("metadata: {name: held}\nworkflow: [{step: a, tool: {kind: wait, signal: go}}]\n") as world:
            await world.start()
            await world.current_life.api.signal(
                str(world.execution_id), SignalRequest("UPDATE_PARAMS", data={"n": {"m": 4}})
            )
            return await world.current_life.api.trace(str(world.execution_id), "ctx.n.m")

    trace = run_virtually(main())
    assert (trace.node.value, trace.node.seq > 0) == (4, True)


def test_a_run_without_a_result_says_so() -> None:
    async def main() -> None:
        async with World("metadata: {name: held}\nworkflow: [{step: a, tool: {kind: wait, signal: go}}]\n") as world:
            await world.start()
            await world.current_life.api.trace(str(world.execution_id), "result")

    with pytest.raises(RequestRejected, match="has no value 'result'; the run has not recorded a result"):
        run_virtually(main())


def test_a_loop_as_a_whole_is_no_item() -> None:
    node = run_virtually(traced("each.results")).node
    assert (node.item, node.task, [source.item for source in node.sources]) == ([], "", [[0], [1], [2]])
