"""SQL in a plan: findings where they stand, and programs that give statements with their values."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

import pytest

from arclog.model.config.kinds import KindSpec
from arclog.model.errors import ExpressionError
from arclog.plan.build import build
from arclog.plan.program import Program
from arclog.tools import duckdb, noop, postgres, sqlite

KINDS: dict[str, KindSpec] = {kind.KIND.spec.name: kind.KIND.spec for kind in (noop, sqlite, postgres, duckdb)}


def playbook(task: str, before: str = "") -> str:
    return dedent("""\
        metadata: {name: p}
        workload: {a: 1, t: orders, rows: [1, 2]}
        %s
        workflow:
          - step: start
            tool:
        """) % before + indent(dedent(task), "      ")


def findings(task: str, before: str = "") -> list[tuple[str, str]]:
    return [(finding.code, str(finding.at)) for finding in build(playbook(task, before), "p.yaml", KINDS).findings]


def config_of(task: str, scope: dict[str, Any], before: str = "") -> Any:
    made = build(playbook(task, before), "p.yaml", KINDS)
    assert made.findings == []
    assert made.plan is not None
    return Program(made.plan, "").steps["start"].tasks[0].config.evaluate(scope)


def test_a_command_is_rendered_as_statements_with_their_values():
    task = """\
        kind: sqlite
        database: "{{ workload.t }}.db"
        command: |
          INSERT INTO {{ workload.t | identifier }} VALUES ({{ workload.a }}, :b);
          SELECT 1
        params: {b: ["{{ workload.a + 1 }}"]}
        """
    assert config_of(task, {"workload": {"a": 1, "t": "orders"}}) == {
        "database": "orders.db",
        "command": [
            {"sql": 'INSERT INTO "orders" VALUES (?1, ?2)', "params": [1, [2]]},
            {"sql": "SELECT 1", "params": []},
        ],
    }


def test_a_command_names_what_it_needs():
    made = build(
        playbook(
            '{kind: duckdb, command: "SELECT {{ ctx.x.y }}, :b, {{ t | identifier }}", params: {b: "{{ workload.rows }}"}}'
        ),
        "p.yaml",
        KINDS,
    )
    assert made.plan is not None
    needs = Program(made.plan, "").steps["start"].needs
    assert (needs.ctx, needs.workload, needs.bare) == ({"x"}, {"rows"}, {"t"})


def test_a_workbook_entry_with_sql():
    before = "workbook: [{name: q, kind: duckdb, command: 'SELECT {{ workload.a }}'}]"
    assert config_of("{kind: workbook, name: q}", {"workload": {"a": 7}}, before) == {
        "command": [{"sql": "SELECT $1", "params": [7]}]
    }


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("kind: duckdb\ncommand: |\n  SELECT 1,\n    '%{{ workload.a }}'\n", ("sql-template", "10:13")),
        ("kind: duckdb\ncommand: \"SELECT '%{{ workload.a }}'\"\n", ("sql-template", "8:26")),
        ("kind: duckdb\ncommand: SELECT {{ workload.a + }}\n", ("template-syntax", "8:23")),
        ("kind: duckdb\ncommand: |\n  SELECT 1,\n    {{ nowhere }}\n", ("unknown-name", "10:14")),
        ("kind: duckdb\ncommand: SELECT {{ event.name }}\n", ("unknown-name", "8:26")),
        ("kind: duckdb\ncommand: 'SELECT 1; COMMIT'\n", ("sql-template", "8:27")),
        ("kind: duckdb\ncommand: SELECT :a\nparams: {a: 1, b: 2}\n", ("sql-template", "8:16")),
        ("kind: duckdb\ncommand: SELECT 1\nparams: '{{ workload.rows }}'\n", ("wrong-type", "9:15")),
        ("kind: duckdb\ncommand: 5\n", ("wrong-type", "8:16")),
        ("kind: duckdb\ncommand: SELECT :a\nparams: {a: '{{ x + }}'}\n", ("template-syntax", "9:20")),
        ("kind: sqlite\ncommand: SELECT 1\n", ("missing-key", "7:7")),
    ],
)
def test_findings_stand_where_the_fault_is(task, found):
    assert findings(task) == [found]


def test_a_task_without_sql_has_nothing_of_it_in_the_plan():
    made = build(playbook("{kind: noop}"), "p.yaml", KINDS)
    assert made.plan is not None
    (task,) = made.plan.steps[0].tasks
    assert (task.sql, task.dialect) == ((), "")


PLACES = {
    "double quotes with a line break inside": (
        r"""- {kind: sqlite, database: x, command: "select {{ a }};\nselect 'a {{ ! }} b', {{ a }}"}"""
    ),
    "double quotes with escapes": r"""- {kind: sqlite, database: x, command: "select \"a\", \u0041, 'b {{ ! }}'"}""",
    "double quotes over lines": """
- kind: sqlite
  database: x
  command: "select {{ a }},
    {{ a }},

    'b {{ ! }}'"
""",
    "single quotes": """- {kind: sqlite, database: x, command: 'select {{ a }}, ''b {{ ! }}'''}""",
    "a block": """
- kind: sqlite
  database: x
  command: |
    select {{ a }},
      'b {{ ! }}'
""",
    "a folded block": """
- kind: sqlite
  database: x
  command: >-
    select {{ a }},
    {{ a }},
    'b {{ ! }}'
""",
}


@pytest.mark.parametrize("style", PLACES)
def test_a_finding_points_at_its_template_however_the_text_is_written(style: str) -> None:
    text = playbook("") + indent(PLACES[style].strip("\n"), "      ") + "\n"
    line, column = next(
        (number, row.index("{{ !") + 1) for number, row in enumerate(text.splitlines(), 1) if "{{ !" in row
    )
    # The same width, but a name: what is refused is its place inside a longer text.
    result = build(text.replace("{{ !", "{{ a"), "p.yaml", KINDS).findings
    assert [(finding.code, str(finding.at)) for finding in result] == [("sql-template", f"{line}:{column}")]


def test_an_error_at_run_time_names_the_same_place() -> None:
    task = r"""- {kind: sqlite, database: x, command: "select 1;\nselect {{ ctx.missing }}"}"""
    text = playbook("") + indent(task, "      ") + "\n"
    made = build(text, "p.yaml", KINDS)
    assert made.plan is not None
    line, column = next(
        (number, row.index("{{ ctx") + 1) for number, row in enumerate(text.splitlines(), 1) if "{{ ctx" in row
    )
    with pytest.raises(ExpressionError, match=rf"'ctx.missing' is undefined .* at {line}:{column}$"):
        Program(made.plan, "").steps["start"].tasks[0].config.evaluate({"ctx": {}})


def test_a_template_cannot_be_the_statement() -> None:
    made = build(playbook("- {kind: postgres, dsn: x, command: '{{ a }}'}"), "p.yaml", KINDS)
    assert [finding.code for finding in made.findings] == ["sql-template"]
    assert "cannot be the statement itself" in made.findings[0].message
    assert "identifier" not in made.findings[0].message + made.findings[0].hint


def test_other_words_for_a_command() -> None:
    for word in ("query", "sql", "statement"):
        made = build(playbook(f"- {{kind: postgres, dsn: x, {word}: select 1}}"), "p.yaml", KINDS)
        assert [(finding.code, finding.hint) for finding in made.findings] == [("unknown-key", "did you mean command?")]
