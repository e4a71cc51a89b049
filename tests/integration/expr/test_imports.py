"""The start-up budget: Jinja comes with the first template, and only its lexer and parser."""

import subprocess
import sys

PROGRAM = """
import sys
from arclog.expr import compile_text
assert not any("jinja2" in name for name in sys.modules), "jinja2 is loaded too early"
assert compile_text("{{ a.b | upper }}!").evaluate({"a": {"b": "x"}}) == "X!"
assert "jinja2" not in sys.modules, "the whole of jinja2 is loaded"
import jinja2
assert jinja2.Environment().from_string("{{ 1 }}").render() == "1"
assert compile_text("{{ 1 + 1 }}").evaluate({}) == 2
"""


def test_only_the_parser_is_loaded_and_only_when_needed():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.returncode == 0, done.stderr
