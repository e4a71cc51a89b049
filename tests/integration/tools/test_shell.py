"""Kind shell: results, errors, output, environment, and that no process stays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.plan.build import build
from arclog.ports.tool import ToolServices
from arclog.tools.shell import KIND, ShellConfig, ShellTool
from arclog.wiring.kinds import installed_kinds
from tests.unit.sandbox.support import PATIENCE_S, Log, context, marker, offspring, processes_with


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[ShellTool]:
    settings = Settings({"shell.max_output_bytes": 1000, "logs.max_task_bytes": 5000, "tasks.kill_grace_s": 60.0})
    tool = ShellTool(settings, tmp_path / "scratch")
    yield tool
    await tool.close()


async def run(tool: ShellTool, command: str | list[str], log: Any = None, **config: Any) -> Outcome:
    return await tool.run(ShellConfig(command=command, **config), context(log))


async def failure(tool: ShellTool, command: str | list[str], **config: Any) -> tuple[str, str | None, str]:
    problem = (await run(tool, command, **config)).error
    assert problem is not None
    return problem.kind, problem.code, problem.message


def test_the_kind_says_what_the_config_takes() -> None:
    declared = {field.name: field.required for field in KIND.spec.fields}
    assert declared == {field.name: field.required for field in msgspec.structs.fields(ShellConfig)}
    assert KIND.spec.empty_helper() == {"sh": {"exit_code": None}}


async def test_both_forms_of_a_command(tool: ShellTool) -> None:
    line = await run(tool, "echo $((1 + 1)); echo two >&2")
    assert line.result == {"exit_code": 0, "stdout": "2\n", "stderr": "two\n"}
    assert (line.status, line.helper) == ("ok", {"sh": {"exit_code": 0}})

    listed = await run(tool, ["printf", "%s|", "$HOME", "; ls", "a b"])
    assert listed.result["stdout"] == "$HOME|; ls|a b|"


async def test_an_exit_code_is_an_error_with_the_last_words(tool: ShellTool) -> None:
    outcome = await run(tool, "echo out; echo first >&2; echo 'no such thing' >&2; exit 7")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("exception", "EXIT_7")
    assert outcome.error.message == "exit code 7: no such thing"
    assert outcome.result == {"exit_code": 7, "stdout": "out\n", "stderr": "first\nno such thing\n"}
    assert outcome.helper == {"sh": {"exit_code": 7}}


async def test_unchecked_exit_codes_are_results(tool: ShellTool) -> None:
    outcome = await run(tool, "exit 7", check=False)
    assert (outcome.status, outcome.result["exit_code"]) == ("ok", 7)


async def test_death_by_signal_is_killed_even_unchecked(tool: ShellTool) -> None:
    assert (await failure(tool, "kill -SEGV $$", check=False))[:2] == ("killed", "SIGSEGV")


async def test_what_cannot_be_started_is_a_config_error(tool: ShellTool, tmp_path: Path) -> None:
    kind, _, message = await failure(tool, ["no-such-program-at-all", "x"])
    assert kind == "config"
    assert "no-such-program-at-all" in message
    assert "No such file" in message

    kind, _, message = await failure(tool, "true", cwd=str(tmp_path / "nowhere"))
    assert kind == "config"
    assert "nowhere" in message
    # in a line, the shell itself says so
    assert (await failure(tool, "no-such-program-at-all"))[:2] == ("exception", "EXIT_127")


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"command": ["echo", "a\0b"]}, "command[1]"),
        ({"command": "echo a\0b"}, "command contains"),
        ({"command": "true", "env": {"X": "a\0"}}, "env.X"),
        ({"command": "true", "env": {"A=B": ""}}, "A=B"),
        ({"command": "true", "cwd": "\0"}, "cwd"),
        ({"command": ["echo", None]}, "command[1] is null"),
        ({"command": ["echo", "x", [1]]}, "command[2] is a list, and must be text: write `{{ … | tojson }}`"),
        ({"command": {"a": 1}}, "command is a map"),
        ({"command": "true", "env": {"X": {"a": 1}}}, "env.X is a map"),
        ({"command": "true", "env": {"X": None}}, "env.X is null, and must be text: write `{{ … | default("),
        ({"command": "true", "input": [1]}, "input is a list"),
        ({"command": None}, "empty"),
        ({"command": []}, "empty"),
        ({"command": ""}, "empty"),
    ],
)
async def test_what_no_program_can_be_given(tool: ShellTool, config: dict[str, Any], word: str) -> None:
    outcome = await tool.run(ShellConfig(**config), context())
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert word in outcome.error.message
    assert outcome.helper == {"sh": {"exit_code": None}}


async def test_scalars_become_text(tool: ShellTool) -> None:
    values: list[Any] = [1, -2.5, 1e300, True, False, 10**30, "x y", ""]
    outcome = await run(tool, ["printf", "<%s>", *values], env={"N": 7, "B": True})
    assert outcome.result["stdout"] == f"<1><-2.5><1e+300><true><false><{10**30}><x y><>"
    assert (await run(tool, "echo $N $B", env={"N": 0.5, "B": False})).result["stdout"] == "0.5 false\n"
    assert (await run(tool, "cat", input=42)).result["stdout"] == "42"
    assert (await run(tool, ["env"], env={"ARCLOG_STEP": 1})).result["stdout"].count("ARCLOG_STEP=fetch") == 1


def test_check_takes_scalars_as_arguments() -> None:
    text = "metadata: {name: p}\nworkflow: [{step: start, tool: {kind: shell, env: {N: 5}, input: 1.5, command: %s}}]\n"
    assert build(text % "[head, -n, 5, true, 1.5]", "p.yaml", installed_kinds()).findings == []
    for command in ("[head, null]", "[head, [1]]", "[head, {a: 1}]"):
        (finding,) = build(text % command, "p.yaml", installed_kinds()).findings
        assert finding.code == "wrong-type"


async def test_the_environment_is_short(tool: ShellTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary-77aa")
    monkeypatch.setenv("TZ", "UTC")
    outcome = await run(tool, ["env"], env={"GREETING": "hällo", "ARCLOG_STEP": "forged"})

    variables = dict(line.split("=", 1) for line in outcome.result["stdout"].splitlines())
    assert set(variables) - {"HOME", "LANG"} == {
        "PATH", "TZ", "GREETING",
        "ARCLOG_EXECUTION_ID", "ARCLOG_STEP", "ARCLOG_TASK", "ARCLOG_ATTEMPT", "ARCLOG_KEY", "ARCLOG_SCRATCH",
    }  # fmt: skip
    assert variables["GREETING"] == "hällo"
    assert (variables["ARCLOG_EXECUTION_ID"], variables["ARCLOG_STEP"], variables["ARCLOG_TASK"]) == (
        "11",
        "fetch",
        "parse",
    )
    assert (variables["ARCLOG_ATTEMPT"], variables["ARCLOG_KEY"], variables["TZ"]) == ("2", "key-1", "UTC")


async def test_where_it_runs(tool: ShellTool, tmp_path: Path) -> None:
    assert (await run(tool, "pwd")).result["stdout"].strip() == str(Path.cwd())
    assert (await run(tool, "pwd", cwd=str(tmp_path))).result["stdout"].strip() == str(tmp_path)


async def test_input_is_read_in_full_in_part_or_not_at_all(tool: ShellTool) -> None:
    text = "zeile ü\n" * 100_000
    assert (await run(tool, "wc -c", input=text)).result["stdout"].strip() == str(len(text.encode()))
    assert (await run(tool, "head -n 1", input=text)).result["stdout"] == "zeile ü\n"
    assert (await run(tool, "true", input=text)).status == "ok"
    assert (await run(tool, "cat")).result["stdout"] == ""


async def test_json_on_stdout(tool: ShellTool) -> None:
    assert (await run(tool, """echo '{"a": [1, 2.0]}'""", parse="json")).result["json"] == {"a": [1, 2.0]}
    assert (await failure(tool, "echo nope", parse="json"))[:2] == ("exception", "NotJSON")
    assert (await failure(tool, "echo 1 2", parse="json"))[:2] == ("exception", "NotJSON")
    big = await failure(tool, "printf '\"%01000d\"' 1", parse="json")
    assert big[:2] == ("limit", "shell.max_output_bytes")


async def test_output_beyond_the_cap_is_counted_and_said(tool: ShellTool) -> None:
    log = Log()
    outcome = await run(tool, "head -c 3000 /dev/zero | tr '\\0' x", log)

    assert outcome.status == "ok"
    assert outcome.result["stdout"] == "x" * 1000
    assert (outcome.result["truncated"], outcome.result["stdout_bytes"]) == (True, 3000)
    assert log.of("log") == ["stdout: 1000 of 3000 bytes are in the result (shell.max_output_bytes)"]


async def test_a_flood_is_counted(tool: ShellTool) -> None:
    log = Log()
    outcome = await run(tool, "head -c 50000000 /dev/zero", log)

    assert outcome.result["stdout_bytes"] == 50_000_000
    assert "stdout: 49995000 bytes more were printed and not kept (logs.max_task_bytes = 5000 bytes)" in log.of("log")


async def test_output_that_is_not_utf8_is_replaced(tool: ShellTool) -> None:
    log = Log()
    outcome = await run(tool, "printf 'a\\377b\\n'", log)

    assert outcome.result["stdout"] == "a\ufffdb\n"
    assert log.of("stdout") == ["a\ufffdb"]


async def test_output_is_live(tool: ShellTool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    printed = asyncio.Event()
    running = asyncio.create_task(run(tool, f"echo first; cat {gate}", lambda *_: printed.set()))
    await asyncio.wait_for(printed.wait(), PATIENCE_S)
    assert not running.done()

    await asyncio.to_thread(gate.write_text, "second")
    assert (await running).result["stdout"] == "first\nsecond"


async def test_background_processes_neither_hold_the_task_nor_survive_it(tool: ShellTool) -> None:
    mark, log = marker(), Log()
    # The sleepers hold stdout open; one has left the session.
    outcome = await asyncio.wait_for(run(tool, f"sleep {mark} & setsid sleep {mark} & echo done", log), PATIENCE_S)

    assert outcome.result["stdout"] == "done\n"
    assert processes_with(mark) == []
    assert log.of("log") == ["2 background processes of the command were killed"]


async def test_cancel_asks_first(tool: ShellTool) -> None:
    """The grace is a minute here: a test that ends at once shows that asking was enough."""
    ready, log = asyncio.Event(), Log()

    def listen(stream: str, text: str) -> None:
        log(stream, text)
        ready.set()

    command = "trap 'echo cleaning up; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    running = asyncio.create_task(run(tool, command, listen))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE_S)
    assert log.of("stdout") == ["ready", "cleaning up"]


async def test_cancel_lets_children_of_the_shell_finish_within_the_grace(tool: ShellTool, tmp_path: Path) -> None:
    ready, done = asyncio.Event(), tmp_path / "done"
    inner = f"trap 'echo > {done}; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    running = asyncio.create_task(run(tool, f'/bin/sh -c "{inner}"; true', lambda *_: ready.set()))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE_S)
    assert done.exists()


async def test_cancel_kills_what_does_not_listen(tmp_path: Path) -> None:
    tool = ShellTool(Settings({"tasks.kill_grace_s": 0.05}), tmp_path)
    mark, ready = marker(), asyncio.Event()
    command = f"trap '' TERM; setsid sleep {mark} & sleep {mark} & echo ready; wait; wait; sleep {mark}"
    running = asyncio.create_task(run(tool, command, lambda *_: ready.set()))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, PATIENCE_S)
    assert processes_with(mark) == []
    await tool.close()


async def test_closing_kills_running_commands(tmp_path: Path) -> None:
    before = offspring()
    tool = KIND.open(ToolServices(Settings(), tmp_path))
    ready = asyncio.Event()
    running = asyncio.create_task(
        tool.run(ShellConfig(command="echo ready; sleep 1000"), context(lambda *_: ready.set()))
    )
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    await tool.close()

    outcome = await running
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("killed", "SIGKILL")
    assert offspring() == before
