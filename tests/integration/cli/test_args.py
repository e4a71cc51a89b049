"""The command line itself: help, mistakes, where options may stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from arclog import __version__
from arclog.cli.args import COMMANDS, parser_of

ROOT = Path(__file__).parents[3]


def test_help_names_every_command_and_the_exit_codes(arclog):
    done = arclog("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.out, re.MULTILINE)
    assert "0 completed, 1 failed, 2 invalid playbook or usage, 3 cancelled" in done.out


def test_no_command_is_a_usage_error_that_helps(arclog):
    done = arclog()
    assert (done.code, done.out) == (2, "")
    assert "usage: arclog COMMAND" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_the_global_options(arclog, command):
    for words in ((command, "--help"), ("help", command), ("--help", command)):
        done = arclog(*words)
        assert done.code == 0
        assert f"usage: arclog {command}" in done.out
        assert all(option in done.out for option in ("--json", "--home", "--quiet"))


def test_an_unknown_command_is_answered_with_what_was_meant(arclog):
    done = arclog("evnets", "last")
    assert (done.code, done.out) == (2, "")
    assert "unknown command 'evnets'; did you mean events?" in done.err


def test_a_file_without_a_command_is_told_how_to_run_it(arclog):
    assert "arclog run flow.yaml" in arclog("flow.yaml").err


@pytest.mark.parametrize(
    "words, text",
    [
        (("run", "x", "--jsno"), "unknown option --jsno; did you mean --json?"),
        (("run",), "required: FILE"),
        (("status", "last", "extra"), "'extra' is not expected here"),
        (("list", "--state", "bad"), "invalid choice"),
        (("list", "--limit", "0"), "above 0"),
        (("list", "--limit", "-1"), "above 0"),
        (("events", "last", "--after", "x"), "not a seq"),
        (("events", "last", "--type", "step.don"), "did you mean step.done?"),
        (("run", "x", "--set", "a"), "no '='"),
        (("run", "x", "--js"), "unknown option --js"),
        (("--verbose", "list"), "unknown option --verbose before the command"),
        (("plan", "x", "--format", "png"), "invalid choice"),
        (("run", "-", "--workload", "-"), "cannot both come from standard input"),
    ],
)
def test_mistakes_are_exit_code_2_and_say_what(arclog, playbook, words, text):
    words = tuple(playbook if word == "x" else word for word in words)
    done = arclog(*words)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert done.err.startswith("arclog: error: ")


def test_with_json_an_error_is_json_on_stderr(arclog):
    done = arclog("show", "x", "--json")
    assert (done.code, done.out) == (2, "")
    assert set(json.loads(done.err)["error"]) == {"kind", "message"}
    done = arclog("--json", "lst")
    assert json.loads(done.err)["error"]["kind"] == "Usage"


def test_global_options_may_stand_before_the_command(arclog):
    assert arclog("--json", "list").out == "[]\n"
    assert arclog("--home", "elsewhere", "--json", "list").out == "[]\n"
    assert arclog("--home=elsewhere", "list", "--json").out == "[]\n"


def test_version(arclog):
    for words in (("--version",), ("version",), ("-V",), ("--quiet", "version"), ("--quiet", "--version")):
        assert arclog(*words).out == f"arclog {__version__}\n"
    assert json.loads(arclog("version", "--json").out) == {"version": __version__}


def test_the_version_starts_without_anything_heavy():
    heavy = ["asyncio", "msgspec", "yaml", "jinja2", "apsw", "argparse", "json", "re", "typing"]
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\nfrom arclog.cli.main import command\n"
    code += f"command(['--version']); print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"arclog {__version__}", "[]"], done.stderr


def test_a_run_imports_only_the_kinds_that_its_playbook_names(tmp_path):
    """Also where outer specs may hold task keys of every kind: those are asked for only when such a key stands there."""
    heavy = ["httpx2", "httpcore2", "cryptography", "psycopg", "duckdb", "obstore", "starlette", "importlib.metadata"]
    code = "import sys\nfrom arclog.cli.main import command\n"
    code += f"code = command(['run', '--quiet', {str(ROOT / 'examples/hello.yaml')!r}])\n"
    code += (
        f"print(code, sorted(name for name in sys.modules if name.startswith('arclog.tools.') or name in {heavy!r}))"
    )
    surroundings = {**os.environ, "ARCLOG_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=surroundings)
    assert done.stdout.splitlines()[-1] == "0 ['arclog.tools.noop', 'arclog.tools.python']", done.stderr


def test_docs_tell_of_every_command_and_option():
    text = (ROOT / "docs/cli.md").read_text()
    for command in COMMANDS:
        assert f"## {command}" in text, f"docs/cli.md has no section on {command}"
        section = text.split(f"## {command}")[1].split("\n## ")[0]
        for action in parser_of(command)._actions:
            option = action.option_strings[0] if action.option_strings else ""
            if option not in ("", "-h", "--json", "--home", "--quiet", "--server", "--token-file"):
                assert option in section, f"docs/cli.md does not tell of {command} {option}"


def test_a_server_is_named_once_and_where_it_is_of_use(arclog):
    for words, message in (
        (("list", "--server", "http://x", "--home", "y"), "use either --home or --server"),
        (("--server", "http://x", "check", "demo.yaml"), "does not take --server"),
        (("run", "demo.yaml", "--detach"), "--detach requires a server"),
    ):
        done = arclog(*words)
        assert (done.code, message in done.err) == (2, True), done.err


def test_a_run_in_this_process_loads_no_client():
    playbook = ROOT / "examples/hello.yaml"
    code = "import sys\nfrom arclog.cli.main import command\n"
    code += f"command(['run', {str(playbook)!r}, '--quiet'])\n"
    code += "print([name for name in sys.modules if name.startswith(('arclog.client', 'httpx2', 'starlette', 'arclog.server'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
