"""Kind python: what code means, what comes back, how errors read. Real processes throughout."""

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
from arclog.ports.tool import ToolServices
from arclog.tools.python import KIND, PythonConfig, PythonTool
from tests.unit.sandbox.support import Log, context, may_isolate, offspring

WRAPPED = """
import functools
def decorated(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner
@decorated
def main(a):
    return a
"""
DATACLASS = """
from __future__ import annotations
from dataclasses import asdict, dataclass
@dataclass
class Point:
    x: int
result = asdict(Point(a))
"""


class Python:
    """A tool with a shorter call."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.tool = KIND.open(ToolServices(Settings(), scratch))

    async def __call__(
        self, code: str, args: dict[str, Any] | None = None, log: Log | None = None, **more: Any
    ) -> Outcome:
        libs = more.pop("libs", {})
        return await self.tool.run(PythonConfig(code=code, args=args or {}, libs=libs), context(log, **more))

    async def value(self, code: str, args: dict[str, Any] | None = None, **more: Any) -> Any:
        outcome = await self(code, args, **more)
        assert outcome.status == "ok", outcome.error
        return outcome.result


@pytest.fixture
async def python(tmp_path: Path) -> AsyncIterator[Python]:
    python = Python(tmp_path / "scratch")
    yield python
    await python.tool.close()
    assert not list(python.scratch.iterdir())


SPINNING = """
import time, threading

def wait_for(it):
    IT

def main():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    wait_for(1)
"""


@pytest.mark.parametrize("line", ['print("here") or time.sleep(60)', 'print("here") or any(iter(int, 1))'])
async def test_a_task_that_is_stopped_says_where_it_was(python: Python, line: str) -> None:
    """Asleep in the kernel, and inside C code that never lets Python look at signals."""
    reported = asyncio.Event()

    def log(_stream: str, text: str) -> None:
        if "here" in text:
            reported.set()

    around = context(log)
    code = SPINNING.replace("IT", line)
    running = asyncio.ensure_future(python.tool.run(PythonConfig(code=code), around))
    await reported.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    traceback = around.stopped["py"]["traceback"]
    assert traceback.splitlines() == [
        "Stack when it was stopped (most recent call last):",
        '  File "<fetch.parse>", line 9, in main',
        "    wait_for(1)",
        '  File "<fetch.parse>", line 5, in wait_for',
        f"    {line}",
    ]


def test_the_kind_says_what_the_config_takes() -> None:
    declared = {field.name: field.required for field in KIND.spec.fields}
    taken = {field.name: field.required for field in msgspec.structs.fields(PythonConfig)}
    assert declared == {"code": True, "args": False, "libs": False, "requirements": False, "outputs": False}
    assert taken == {**declared, "modules": False}  # which the compiler fills
    assert KIND.spec.verbatim == ("code", "requirements", "modules")
    assert KIND.spec.empty_helper() == {"py": {"exception": None, "traceback": None}}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("result = a + b", 5),
        ("result = input_data", {"a": 2, "b": 3}),
        ("def main(**args):\n    return args", {"a": 2, "b": 3}),
        ("def main(a):\n    return a", 2),
        ("def main(b, missing=9):\n    return [b, missing]", [3, 9]),
        ("def main(input_data):\n    return input_data", {"a": 2, "b": 3}),
        ("def main(a, /, *, b):\n    return [a, b]", [2, 3]),
        ("def main(a, **rest):\n    return [a, rest]", [2, {"b": 3}]),
        ("def main():\n    return a * b", 6),
        ("result = 1\ndef main():\n    return 2", 2),
        ("async def main(a):\n    import asyncio\n    await asyncio.sleep(0)\n    return a", 2),
        (WRAPPED, 2),
        ("pass", None),
        (DATACLASS, {"x": 2}),
    ],
)
async def test_how_code_gives_its_value(python: Python, code: str, expected: Any) -> None:
    outcome = await python(code, {"a": 2, "b": 3})

    assert outcome.error is None
    assert outcome.result == expected
    assert outcome.helper == {"py": {"exception": None, "traceback": None}}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("result = [input_data, context]", [5, "mine"]),
        ("def main():\n    return [input_data, context]", [5, "mine"]),
        ("def main(input_data):\n    return input_data", 5),
        ("def main(context):\n    return context", "mine"),
        ("def main(input_data, context):\n    return [input_data, context]", [5, "mine"]),
        ("def main(**args):\n    return args", {"input_data": 5, "context": "mine"}),
        ("class Main:\n    def __call__(self, input_data):\n        return input_data\nmain = Main()", 5),
    ],
)
async def test_args_called_input_data_and_context_take_the_place_of_arclogs(
    python: Python, code: str, expected: Any
) -> None:
    assert await python.value(code, {"input_data": 5, "context": "mine"}) == expected


async def test_one_of_them_leaves_the_other(python: Python) -> None:
    assert await python.value("result = [input_data, context.step]", {"input_data": [1]}) == [[1], "fetch"]
    assert await python.value("result = [input_data['context'], context]", {"context": 2}) == [2, 2]


async def test_main_that_lacks_an_argument_is_the_users_type_error(python: Python) -> None:
    outcome = await python("def main(a, needed):\n    return a", {"a": 1})

    assert outcome.error is not None
    assert outcome.error.code == "TypeError"
    assert "needed" in outcome.error.message


async def test_context_by_attribute_and_by_item(python: Python) -> None:
    names = ["execution_id", "step", "task", "attempt", "key", "workload", "ctx"]
    code = f"result = [[getattr(context, n), context[n]] for n in {names}]"
    expected = ["11", "fetch", "parse", 2, "key-1", {"region": "eu", "nested": {"a": [1]}}, {"total": 7}]

    assert await python.value(code) == [[value, value] for value in expected]
    assert await python.value("result = sorted(dict(context))") == sorted(names)
    assert await python.value("result = [context.get('nope', 1), 'ctx' in context]") == [1, True]


async def test_context_holds_copies(python: Python) -> None:
    await python.value("context.workload['nested']['a'].append(2); context.ctx.clear()")

    assert await python.value("result = [context.workload, context.ctx]") == [
        {"region": "eu", "nested": {"a": [1]}},
        {"total": 7},
    ]


async def test_libs_are_imports_under_an_alias(python: Python) -> None:
    libs = {"j": "json", "p": "os.path"}
    assert await python.value("result = [j.dumps([1]), p.join('a', 'b')]", libs=libs) == ["[1]", "a/b"]

    outcome = await python("result = 1", libs={"x": "no_such_module_at_all"})
    assert outcome.error is not None
    assert outcome.error.code == "ModuleNotFoundError"


async def test_third_party_packages_can_be_imported(python: Python) -> None:
    assert await python.value("import msgspec\nresult = msgspec.json.encode([1]).decode()") == "[1]"


async def test_arclog_is_not_loaded_inside(python: Python) -> None:
    code = "import sys\nresult = sorted(m for m in sys.modules if m.startswith(('arclog', 'child')))"
    assert await python.value(code) == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(1, (2, 3))", [1, [2, 3]]),
        ("{'a': None, 'b': True, 'c': 1.5, 'd': 'ü€😀'}", {"a": None, "b": True, "c": 1.5, "d": "ü€😀"}),
        ("2**70", 2**70),
        ("__import__('enum').IntEnum('E', 'A')(1)", 1),
        ("__import__('collections').OrderedDict(x=1)", {"x": 1}),
        ("1.0", 1.0),
        ("'\\x00\\u2028'", "\x00\u2028"),
    ],
)
async def test_json_values_come_back_as_they_are(python: Python, expression: str, expected: Any) -> None:
    value = await python.value(f"result = {expression}")
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "{'rows': [0, 1, 2, {'when': b''}]}",
            "result.rows[3].when: bytes is not JSON; convert it, e.g. with .decode() or base64",
        ),
        ("['ok', 'a\\ud800']", "result[1]: the text holds a lone surrogate (\\ud800 at 1)"),
        ("{'\\ud800': 1}", "result: the key '\\ud800': the text holds a lone surrogate"),
        ("print", "result: builtin_function_or_method is not JSON; return the value of its call"),
        ("{'a': (x for x in ())}", "result.a: generator is not JSON; convert it, e.g. with list()"),
        ("object()", "result: object is not JSON; convert it, e.g. to a dict, a list or a string"),
    ],
)
async def test_what_is_not_json_is_named_with_its_path(python: Python, expression: str, message: str) -> None:
    outcome = await python(f"result = {expression}")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("exception", "NotJSON")
    assert outcome.error.message.startswith(message)


async def test_a_value_that_holds_itself_is_refused(python: Python) -> None:
    outcome = await python("result = {'a': []}\nresult['a'].append(result)")
    assert outcome.error is not None
    assert outcome.error.message == "result.a[0]: the dict contains itself, which JSON cannot represent"

    outcome = await python("result = []\nfor _ in range(100_000):\n    result = [result]")
    assert outcome.error is not None
    assert "nested deeper than 200 levels" in outcome.error.message


async def test_an_exception_is_told_with_the_users_lines_only(python: Python) -> None:
    code = "import json\n\ndef main(a):\n    return parse(a)\n\ndef parse(a):\n    return json.loads(a)\n"
    outcome = await python(code, {"a": "{"})

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("exception", "JSONDecodeError")
    assert outcome.error.message.startswith("JSONDecodeError: Expecting property name")
    assert not outcome.error.retryable
    trace = outcome.helper["py"]["traceback"]
    assert outcome.helper["py"]["exception"] == "JSONDecodeError"
    assert 'File "<fetch.parse>", line 4, in main\n    return parse(a)' in trace
    assert 'File "<fetch.parse>", line 7, in parse\n    return json.loads(a)' in trace
    assert trace.count("File ") == 2


async def test_causes_are_told_too(python: Python) -> None:
    outcome = await python("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('second') from e")

    trace = outcome.helper["py"]["traceback"]
    assert "ZeroDivisionError: division by zero" in trace
    assert "line 2, in <module>" in trace
    assert "direct cause" in trace
    assert outcome.error is not None
    assert outcome.error.message == "ValueError: second"


async def test_a_syntax_error_names_its_line(python: Python) -> None:
    outcome = await python("x = 1\ny = (\n")

    assert outcome.error is not None
    assert outcome.error.code == "SyntaxError"
    assert "line 2" in outcome.error.message
    assert 'File "<fetch.parse>", line 2' in outcome.helper["py"]["traceback"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import sys; sys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E", "E"),
        ("raise ExceptionGroup('many', [ValueError(1), TypeError(2)])", "ExceptionGroup"),
    ],
)
async def test_every_way_to_raise_is_an_exception(python: Python, code: str, name: str) -> None:
    outcome = await python(code)

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("exception", name)
    assert outcome.error.message.startswith(name)
    assert await python.value("result = 'alive'") == "alive"


async def test_a_huge_message_is_shortened_and_says_so(python: Python) -> None:
    outcome = await python("raise ValueError('x' * 10_000_000)")

    assert outcome.error is not None
    assert len(outcome.error.message) < 20_000
    assert "characters left out" in outcome.error.message


async def test_prints_of_python_c_and_grandchildren_are_logged_in_order(python: Python) -> None:
    log = Log()
    code = (
        "import os, sys, subprocess, ctypes\n"
        "print('one')\nprint('two', end='')\nsys.stdout.flush()\nos.write(1, b' raw\\n')\n"
        "subprocess.run(['echo', 'three'])\n"
        "ctypes.CDLL(None).puts(b'four')\n"
        "print('oops \\udc00', file=sys.stderr)\n"
    )
    await python.value(code, log=log)

    assert log.of("stdout") == ["one", "two raw", "three", "four"]
    assert log.of("stderr") == ["oops \\udc00"]


async def test_a_replaced_or_closed_stdout_does_not_reach_the_next_task(python: Python) -> None:
    log = Log()
    await python.value("import sys, io\nsys.stdout = io.StringIO()\nprint('lost')")
    await python.value("print('kept')", log=log)
    await python.value("import sys\nsys.stdout.close()")
    await python.value("print('kept again')", log=log)

    assert log.of("stdout") == ["kept", "kept again"]


async def test_logs_arrive_while_the_task_runs(python: Python, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    printed = asyncio.Event()
    running = asyncio.create_task(
        python.tool.run(
            PythonConfig(code="print('first')\nopen(gate).read()\nprint('second')", args={"gate": str(gate)}),
            context(lambda _, text: printed.set() if text == "first" else None),
        )
    )
    await asyncio.wait_for(printed.wait(), 30)
    assert not running.done()
    await asyncio.to_thread(gate.write_text, "go")
    assert (await running).status == "ok"


async def test_a_line_without_end_comes_in_pieces(python: Python) -> None:
    log = Log()
    await python.value("print('é' * 100_000, end='')", log=log)

    assert [len(text.encode()) for text in log.of("stdout")] == [65536, 65536, 65536, 3392]
    assert "".join(log.of("stdout")) == "é" * 100_000


async def test_globals_and_files_do_not_reach_the_next_task_but_modules_stay(python: Python) -> None:
    first = await python.value(
        "import os, json, decimal\nleak = 1\njson.mark = 1\nos.chdir(os.environ['ARCLOG_SCRATCH'])\n"
        "open('f', 'w').close()\nos.makedirs('a/b')\nresult = os.getpid()",
        {"arg": 1},
    )
    second = await python.value(
        "import os, sys, json\n"
        "result = [os.getpid(), 'leak' in globals(), 'arg' in globals(), os.listdir(os.environ['ARCLOG_SCRATCH']), json.mark, 'decimal' in sys.modules]"
    )
    assert second == [first, False, False, [], 1, True]


async def test_the_environment_is_clean(python: Python, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-5f1c"
    monkeypatch.setenv("SECRET_TOKEN", canary)
    tool = PythonTool(Settings(), python.scratch / "second")
    code = (
        "import os, subprocess\n"
        "result = [dict(os.environ), subprocess.check_output('env', text=True), os.getcwd(), os.umask(0),\n"
        "          open('/proc/self/environ').read(), os.listdir('/proc/self/fd')]"
    )
    outcome = await tool.run(PythonConfig(code=code), context())
    await tool.close()
    (python.scratch / "second").rmdir()

    assert canary not in repr(outcome.result)
    environment, _, cwd, umask, _, files = outcome.result
    assert set(environment) == {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "ARCLOG_SCRATCH"}
    assert environment["HOME"] == environment["TMPDIR"] == environment["ARCLOG_SCRATCH"]
    assert Path(environment["ARCLOG_SCRATCH"]).is_relative_to(python.scratch / "second")
    assert cwd == str(Path.cwd())
    os.umask(mask := os.umask(0o022))
    assert umask == mask
    # stdin, stdout, stderr, the null device, the task socket, the pipe for its stack, and the listing itself
    assert len(files) == 7


@pytest.mark.skipif(not may_isolate(), reason="needs the right to make namespaces")
async def test_other_processes_cannot_be_seen(python: Python) -> None:
    code = "import os\nresult = sorted(int(n) for n in os.listdir('/proc') if n.isdigit())"
    assert await python.value(code) == [1, 2]


async def test_bad_args_are_a_config_error(python: Python) -> None:
    outcome = await python("result = 1", {"a": object()})
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert outcome.helper == {"py": {"exception": None, "traceback": None}}


async def test_large_args_and_results_pass(python: Python) -> None:
    text = "ü" * 5_000_000
    assert await python.value("result = [x, len(x)]", {"x": text}) == [text, 5_000_000]


async def test_closing_leaves_no_process(tmp_path: Path) -> None:
    before = offspring()
    python = Python(tmp_path / "scratch")
    await asyncio.gather(*(python.value("result = 1", execution_id=str(n)) for n in range(3)))
    assert len(offspring()) > len(before)

    await python.tool.close()
    assert offspring() == before
