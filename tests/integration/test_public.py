"""The line between public and private: what `import arclog` offers, and what it does."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import arclog
import arclog.client
import arclog.errors
import arclog.testing
from arclog.errors import NotFound, PlaybookError, RequestRejected, RunFailed, SettingsError, TaskFailed
from arclog.model import errors as model_errors
from arclog.testing import MockMismatch, play

HELLO = 'metadata: {name: hello}\nworkload: {name: world}\nworkflow:\n  - {step: start, tool: {kind: noop, data: "hello {{ workload.name }}"}}\n'
FAILS = "metadata: {name: fails}\nworkflow:\n  - {step: start, tool: {kind: assert, that: 1 > 2, message: no}}\n"
WAITS = "metadata: {name: waits}\nworkflow:\n  - {step: start, tool: {kind: wait, signal: go}}\n"


def with_task(task: str) -> str:
    return f"metadata: {{name: custom}}\nworkflow:\n  - {{step: start, tool: {task}}}\n"


# -- the names ----------------------------------------------------------------------------------------------------------


def test_the_public_names() -> None:
    assert set(arclog.__all__) == {
        "Arclog", "AsyncArclog", "AsyncClient", "AsyncRun", "Client", "Run", "TaskContext", "errors", "kind", "open", "open_async",
        "run", "testing",
    }  # fmt: skip
    assert set(arclog.testing.__all__) == {"Call", "MockMismatch", "Play", "play"}
    with pytest.raises(AttributeError, match="public names"):
        _ = arclog.engine_of_the_past


def test_every_public_method_has_a_docstring() -> None:
    classes = [arclog.Arclog, arclog.AsyncArclog, arclog.AsyncClient, arclog.AsyncRun, arclog.Client, arclog.Run]
    methods = [(kind, name) for kind in classes for name, _ in inspect.getmembers(kind, callable) if name[0] != "_"]
    assert len(methods) > 90
    assert [f"{kind.__name__}.{name}" for kind, name in methods if not inspect.getdoc(getattr(kind, name))] == []


@pytest.mark.parametrize("kind", [arclog.Arclog, arclog.AsyncArclog])
@pytest.mark.parametrize("name", ["start", "run", "wait", "get", "signal"])
def test_arguments_and_errors_of_an_open_home_are_documented(kind: type[Any], name: str) -> None:
    doc = inspect.getdoc(getattr(kind, name)) or ""
    arguments = [argument for argument in inspect.signature(getattr(kind, name)).parameters if argument != "self"]
    assert [argument for argument in arguments if f"{argument}: " not in doc] == []
    assert "Raises:" in doc


@pytest.mark.parametrize("module", [arclog, arclog.client, arclog.errors, arclog.testing])
def test_every_public_name_and_method_is_typed_and_described(module: Any) -> None:
    for name in module.__all__:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        members = [thing] if inspect.isfunction(thing) else []
        if inspect.isclass(thing) and thing.__module__ in ("arclog.embedding", "arclog.testing.play"):
            members += [
                attribute
                for key, attribute in vars(thing).items()
                if inspect.isfunction(attribute) and not key.startswith("_")
            ]
        for member in members:
            assert inspect.getdoc(member), (name, member)
            for parameter in inspect.signature(member).parameters.values():
                typed = parameter.annotation is not parameter.empty or parameter.name == "self"
                assert typed, (name, member, parameter)


#: Errors that no public function raises, and why.
INTERNAL = {
    "ExpressionError": "a template that fails is data of the run, and a search with a bad expression is a RequestRejected",
    "EventDiffers": "only producers that post events get it, as an answer over HTTP",
    "StaleFence": "part of the protocol between worker and engine",
    "NotHolder": "part of the protocol between worker and engine",
    "ReportGap": "part of the protocol between worker and engine",
    "LeaseLost": "part of the protocol between worker and engine",
    "BusUnavailable": "servers continue without a bus",
}


def test_every_error_is_public_or_internal_for_a_reason() -> None:
    errors = {
        name for name, thing in vars(model_errors).items() if inspect.isclass(thing) and issubclass(thing, Exception)
    }
    assert errors - set(arclog.errors.__all__) == INTERNAL.keys()


def test_an_error_defined_elsewhere_has_a_public_base() -> None:
    """Stores, drivers and expressions refine errors; a program catches them by the public class."""
    for module in pkgutil.walk_packages(arclog.__path__, "arclog."):
        if module.name.startswith(
            ("arclog.stores", "arclog.ports", "arclog.secrets", "arclog.client", "arclog.server")
        ):
            importlib.import_module(module.name)
    public = tuple(getattr(arclog.errors, name) for name in arclog.errors.__all__ if name != "ArclogError")
    pending: list[type[Exception]] = [model_errors.ArclogError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__ != model_errors.__name__:
            assert issubclass(kind, (*public, model_errors.ExpressionError)), kind


def test_every_error_that_a_docstring_names_is_public() -> None:
    public = {*arclog.errors.__all__, *arclog.testing.__all__, "TypeError", "ValueError"}
    classes = (arclog.Arclog, arclog.AsyncArclog, arclog.AsyncClient, arclog.Client)
    members = [arclog.run, arclog.open, arclog.open_async, arclog.kind, arclog.testing.play]
    members += [thing for kind in classes for name, thing in inspect.getmembers(kind, callable) if name[0] != "_"]
    documented = "\n".join(inspect.getdoc(member) or "" for member in members)
    named = {name for text in re.findall(r"Raises:?\s([^.]*)", documented) for name in re.findall(r"\b[A-Z]\w+", text)}
    errors = {name for name in named if name in vars(model_errors)}
    assert {"PlaybookError", "NotFound", "RunFailed"} <= errors
    assert errors <= public


def test_the_python_page_describes_every_error() -> None:
    page = (Path(__file__).parents[2] / "docs/python.md").read_text(encoding="utf-8")
    section = page.partition("\n## Errors\n")[2].partition("\n## ")[0]
    assert [name for name in arclog.errors.__all__ if f"`{name}`" not in section] == []


def test_importing_arclog_imports_nothing_else() -> None:
    code = "import sys, arclog; print([name for name in sys.modules if name.startswith('arclog.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- runs ---------------------------------------------------------------------------------------------------------------


def test_a_run_has_its_state_result_error_and_events(tmp_path: Path) -> None:
    run = arclog.run(HELLO, workload={"name": "Ada"}, home=tmp_path)
    assert (run.state, run.result, run.error, run.ok, run.name) == ("COMPLETED", "hello Ada", None, True, "hello")
    types = [event["event_type"] for event in run.events()]
    assert (types[0], types[-1]) == ("playbook.execution.requested", "playbook.processed")
    assert [event["event_type"] for event in run.events(types=["task.done"])] == ["task.done"]
    failed = arclog.run(FAILS, home=tmp_path)
    assert failed.state == "FAILED"
    assert failed.error is not None
    assert failed.error["message"] == "no"
    with pytest.raises(RunFailed, match="no"):
        arclog.run(FAILS, home=tmp_path, check=True)


def test_a_playbook_is_a_file_with_what_stands_beside_it(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text("metadata: {name: f}\nworkflow:\n  - {step: start, tool: {kind: playbook, file: child.yaml}}\n")
    (tmp_path / "child.yaml").write_text(HELLO)
    assert arclog.run(flow, home=tmp_path / "home").result == "hello world"
    assert arclog.run(str(flow), home=tmp_path / "home").ok
    with pytest.raises(RequestRejected, match="cannot read nowhere"):
        arclog.run("nowhere.yaml", home=tmp_path / "home")


async def test_a_blocking_call_works_inside_a_running_loop(tmp_path: Path) -> None:
    assert arclog.run(HELLO, home=tmp_path).ok


def test_settings_and_playbooks_with_errors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no_such"):
        arclog.run(HELLO, home=tmp_path, settings={"no_such.setting": 1})
    with pytest.raises(PlaybookError, match="nobody_has_this"):
        arclog.run(with_task("{kind: nobody_has_this}"), home=tmp_path)


def test_an_open_home_starts_waits_and_signals(tmp_path: Path) -> None:
    with arclog.open(tmp_path) as app:
        waiting = app.start(WAITS, idempotency_key="a")
        assert app.start(WAITS, idempotency_key="a") == waiting
        assert app.wait(waiting, timeout_s=0.05).state == "RUNNING"
        app.signal(waiting, "go", data={"n": 1})
        assert app.wait(waiting).state == "COMPLETED"
        with pytest.raises(RequestRejected):
            app.signal(waiting, "go")
        assert app.run(HELLO).result == "hello world"
        cancelled = app.start(WAITS)
        app.signal(cancelled, "CANCEL", reason="enough")
        assert app.wait(cancelled).state == "CANCELLED"
        with pytest.raises(NotFound):
            app.get("123456789012345678")
    app.close()  # a second time does nothing


async def test_the_same_for_asyncio(tmp_path: Path) -> None:
    async with arclog.open_async(tmp_path) as app:
        run = await app.run(HELLO, workload={"name": "Bob"})
        assert run.result == "hello Bob"
        assert [event["event_type"] async for event in run.events()][-1] == "playbook.processed"


def test_runs_of_a_home_that_was_closed_go_on_when_it_is_opened_again(tmp_path: Path) -> None:
    with arclog.open(tmp_path) as app:
        waiting = app.start(WAITS)
    with arclog.open(tmp_path) as app:
        app.signal(waiting, "go")
        assert app.wait(waiting, timeout_s=30).state == "COMPLETED"


# -- kinds --------------------------------------------------------------------------------------------------------------


class Order(msgspec.Struct):
    sku: str
    count: int = 1


def test_a_kind_from_a_function(tmp_path: Path) -> None:
    @arclog.kind
    def add(a: int, b: int = 2, *, context: arclog.TaskContext) -> dict[str, Any]:
        """Adds two numbers."""
        context.log("stdout", "adding")
        return {"sum": a + b, "step": context.step}

    assert add.spec.summary == "Adds two numbers."
    assert arclog.run(with_task('{kind: add, a: "{{ 40 }}"}'), home=tmp_path, kinds=[add]).result == {
        "sum": 42,
        "step": "start",
    }
    for task, message in (
        ("{kind: add}", "needs the key 'a'"),
        ("{kind: add, a: x}", "expected an integer"),
        ("{kind: add, a: 1, c: 2}", "no key 'c'"),
    ):
        with pytest.raises(PlaybookError, match=message):
            arclog.run(with_task(task), home=tmp_path, kinds=[add])
    rendered = arclog.run(with_task("{kind: add, a: \"{{ 'x' }}\"}"), home=tmp_path, kinds=[add])
    assert rendered.error is not None
    assert rendered.error["kind"] == "config"


def test_a_kind_takes_a_struct_and_may_be_a_coroutine(tmp_path: Path) -> None:
    @arclog.kind(name="order")
    async def place(order: Order) -> Order:
        return order

    run = arclog.run(with_task("{kind: order, sku: A-1}"), home=tmp_path, kinds=[place])
    assert run.result == {"sku": "A-1", "count": 1}


def test_a_kind_from_a_class_is_opened_once_and_closed(tmp_path: Path) -> None:
    happened: list[str] = []

    @arclog.kind
    class Till:
        def __init__(self) -> None:
            happened.append("open")

        def run(self, config: Order, context: arclog.TaskContext) -> int:
            happened.append(config.sku)
            return config.count

        def close(self) -> None:
            happened.append("close")

    flow = "metadata: {name: t}\nworkflow:\n  - {step: start, loop: {in: [a, b], iterator: s}, tool: {kind: till, sku: '{{ iter.s }}'}}\n"
    assert arclog.run(flow, home=tmp_path, kinds=[Till]).ok
    assert happened == ["open", "a", "b", "close"]


def test_what_user_code_raises_is_the_tasks_error(tmp_path: Path) -> None:
    @arclog.kind
    def breaks(how: str) -> None:
        if how == "plain":
            raise ValueError("not today")
        raise TaskFailed("later", kind="rate_limit", code="FULL")

    plain = arclog.run(with_task("{kind: breaks, how: plain}"), home=tmp_path, kinds=[breaks]).error
    assert plain is not None
    assert (plain["kind"], plain["message"], plain["retryable"]) == ("exception", "ValueError: not today", False)
    chosen = arclog.run(with_task("{kind: breaks, how: chosen}"), home=tmp_path, kinds=[breaks]).error
    assert chosen is not None
    assert (chosen["kind"], chosen["code"], chosen["retryable"]) == ("rate_limit", "FULL", True)


def test_what_cannot_be_a_kind_is_refused_where_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="parameter a has no type"):
        arclog.kind(lambda a: a)
    with pytest.raises(TypeError, match="cannot be a key"):

        @arclog.kind
        def spread(*values: int) -> None: ...

    with pytest.raises(TypeError, match="key of every task"):

        @arclog.kind
        def named(name: str) -> None: ...

    with pytest.raises(TypeError, match="needs a method run"):

        @arclog.kind
        class Empty: ...

    @arclog.kind(name="noop")
    def mine(a: int) -> int:
        return a

    with pytest.raises(SettingsError, match="there is a kind noop already"):
        arclog.run(HELLO, home=tmp_path, kinds=[mine])


# -- plays --------------------------------------------------------------------------------------------------------------

FLOW = """
metadata: {name: flow}
workflow:
  - step: fetch
    tool: {kind: http, url: "https://shop.example/{{ workload.id }}"}
    next: {arcs: [{step: ask}]}
  - step: ask
    tool: {kind: approval, prompt: "Ship it?"}
    next: {arcs: [{step: store}]}
  - step: store
    tool: {kind: postgres, dsn: "postgresql://nowhere", command: "INSERT INTO t VALUES ({{ fetch.data.id }})"}
workload: {id: 7}
"""


def test_a_playbook_is_played_with_mocks_and_virtual_time() -> None:
    played = play(
        FLOW,
        mocks={"fetch": {"id": 7}, "store": []},
        workload={"id": 8},
        signals=[{"signal": "APPROVE", "step": "ask", "at": 86_400}],
    )
    assert (played.state, played.path) == ("completed", ["fetch", "ask", "store"])
    assert played.duration_s == 86_400
    assert played.calls[0].config["url"] == "https://shop.example/8"


async def test_a_call_without_a_mock_and_a_mock_without_a_call_are_mistakes() -> None:
    approve = [{"signal": "APPROVE", "step": "ask"}]
    with pytest.raises(MockMismatch, match=r"store\.store_task was called and no mock answers it"):
        play(FLOW, mocks={"fetch": {"id": 7}}, signals=approve)
    with pytest.raises(MockMismatch, match="no step 'other'"):
        play(FLOW, mocks={"other": 1})
    reject = [{"signal": "REJECT", "step": "ask", "reason": "no"}]
    with pytest.raises(MockMismatch, match="the mock of store answered nothing"):
        play(FLOW, mocks={"fetch": {"id": 7}, "store": []}, signals=reject)
