"""Files beside a playbook: taken in when it is compiled, by checksum, and never from outside of its folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from arclog.authoring.playbook_files import FilesBeside
from arclog.cli.playbooks.files import files_beside
from arclog.engine.runs.compile_cache import Compiler
from arclog.model.config.settings import Settings
from arclog.plan.build import Build, build
from arclog.wiring.kinds import installed_kinds

KINDS = installed_kinds()
PY, SQL = "jobs/clean.py", "sql/load.sql"
TEXTS = {
    PY: "def run(rows):\n    return rows\n",
    SQL: "SELECT {{ workload.n }},\n  {{ ctx.m }}\n",
    "jobs/hi.sh": '#!/usr/bin/env bash\necho "{{ no template }}"\n',
    "jobs/perl.sh": "#!/usr/bin/perl\n",
    "pack/__init__.py": "from .inner import deep\n",
    "pack/inner.py": "import json\nimport pack.other\nfrom . import cycle\ndef deep(): pass\n",
    "pack/other.py": "",
    "pack/cycle.py": "import pack.inner\n",
    "pack/json.py": "",
    "json.py": "",
}


def made(task: dict[str, Any], texts: dict[str, str] | None = None, **settings: Any) -> Build:
    book = {"metadata": {"name": "p"}, "workload": {"n": 1}, "workflow": [{"step": "start", "tool": task}]}
    files = TEXTS if texts is None else texts
    beside = {f"flows/{name}": text for name, text in files.items()}
    return build(json.dumps(book), "flows/p.yaml", KINDS, Settings().replaced(**settings), beside)


def config(task: dict[str, Any]) -> dict[str, Any]:
    built = made(task)
    assert built.plan is not None, built.findings
    return built.plan.steps[0].tasks[0].config


def test_a_file_stands_for_the_text_and_its_checksum_is_kept() -> None:
    built = made({"kind": "sqlite", "database": ":memory:", "file": SQL})
    assert built.plan is not None
    task = built.plan.steps[0].tasks[0]
    assert (task.config["command"], task.sql, task.files) == (TEXTS[SQL], ("command",), {"command": SQL})
    assert built.plan.files == {SQL: hashlib.sha256(TEXTS[SQL].encode()).hexdigest()}
    assert built.plan.format == 3
    assert [finding.code for finding in built.findings] == []


def test_python_files_and_functions() -> None:
    assert config({"kind": "python", "file": PY, "function": "run"})["code"].endswith("\n\n\nmain = run\n")
    assert config({"kind": "python", "file": PY})["code"] == TEXTS[PY]
    module = config({"kind": "python", "module": "pack.inner", "function": "deep"})
    assert module["code"] == "from pack.inner import deep as main\n"
    assert sorted(module["modules"]) == ["pack", "pack.cycle", "pack.inner", "pack.other"]
    assert module["modules"]["pack"] == {"path": "pack/__init__.py", "source": TEXTS["pack/__init__.py"]}


def test_a_shell_file_is_no_template_and_names_its_shell() -> None:
    built = made({"kind": "shell", "file": "jobs/hi.sh"})
    assert built.plan is not None
    task = built.plan.steps[0].tasks[0]
    assert task.config["command"] == ["/usr/bin/env", "bash", "-c", TEXTS["jobs/hi.sh"]]
    assert task.verbatim == ("command",)


def test_a_workbook_entry_may_have_a_file() -> None:
    book = {
        "metadata": {"name": "p"},
        "workbook": [{"name": "clean", "kind": "python", "file": PY, "function": "run"}],
        "workflow": [{"step": "start", "tool": {"kind": "workbook", "name": "clean", "args": {"rows": []}}}],
    }
    plan = build(json.dumps(book), "p.yaml", KINDS, None, TEXTS).plan
    assert plan is not None
    assert plan.steps[0].tasks[0].config["code"].startswith("def run")


@pytest.mark.parametrize(
    ("task", "code", "why"),
    [
        ({"kind": "python", "file": "jobs/none.py"}, "missing-file", "does not exist"),
        ({"kind": "python", "file": "../secret.py"}, "bad-file", "leads out"),
        ({"kind": "python", "file": "jobs/../../secret.py"}, "bad-file", "leads out"),
        ({"kind": "python", "file": "/etc/passwd"}, "bad-file", "relative"),
        ({"kind": "python", "file": "~/x.py"}, "bad-file", "relative"),
        ({"kind": "python", "file": "jobs\\clean.py"}, "bad-file", "with /"),
        ({"kind": "python", "file": ""}, "bad-file", "not a path"),
        ({"kind": "python", "file": "{{ x }}.py"}, "bad-file", "without a template"),
        ({"kind": "python", "file": PY, "code": "result = 1"}, "bad-file", "exclude each other"),
        ({"kind": "python", "file": PY, "module": "pack"}, "bad-file", "exclude each other"),
        ({"kind": "python", "file": PY, "function": "walk"}, "bad-file", "defines no function 'walk'"),
        ({"kind": "python", "module": "pack.inner"}, "bad-file", "defines no function 'main'"),
        ({"kind": "python", "module": "pack.none"}, "bad-file", "neither pack/none.py nor pack/none/__init__.py"),
        ({"kind": "python", "module": "../x"}, "bad-file", "not a valid name of a module"),
        ({"kind": "python", "code": "x", "function": "run"}, "bad-file", "function names one in"),
        ({"kind": "shell", "module": "pack"}, "bad-file", "belong to kind python"),
        ({"kind": "shell", "file": "jobs/perl.sh"}, "bad-file", "not a shell"),
        ({"kind": "sqlite", "database": "x", "file": SQL, "function": "f"}, "bad-file", "belong to kind python"),
        ({"kind": "http", "url": "http://x", "file": "a.json"}, "unknown-key", "file"),
    ],
)
def test_what_cannot_be_taken_in_is_one_finding(task: dict[str, Any], code: str, why: str) -> None:
    (finding,) = [finding for finding in made(task).findings if finding.severity == "error"]
    assert (finding.code, why in finding.message) == (code, True), finding


def test_files_are_bounded() -> None:
    task = {"kind": "python", "file": PY}
    big = {PY: "x" * 11}
    (finding,) = made(task, big, **{"playbook.max_file_bytes": 10}).errors
    assert "playbook.max_file_bytes" in finding.message
    (finding,) = made(task, big, **{"playbook.max_files_bytes": 10}).errors
    assert "playbook.max_files_bytes" in finding.message


def test_a_mistake_in_a_file_is_named_with_its_line() -> None:
    (finding,) = made({"kind": "sqlite", "database": "x", "file": SQL}, {SQL: "SELECT 1,\n  'a {{ x }}'\n"}).errors
    assert finding.message.startswith("sql/load.sql:2: ")


async def test_other_content_is_another_plan() -> None:
    compiler = Compiler(KINDS, Settings())
    text = json.dumps(
        {"metadata": {"name": "p"}, "workflow": [{"step": "start", "tool": {"kind": "python", "file": PY}}]}
    )
    first = await compiler.compile(text, "p.yaml", "t", {PY: "result = 1"})
    assert await compiler.compile(text, "p.yaml", "t", {PY: "result = 1"}) is first
    assert (await compiler.compile(text, "p.yaml", "t", {PY: "result = 2"})).digest != first.digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "flows"
    (inside / "jobs").mkdir(parents=True)
    (inside / PY).write_text(TEXTS[PY])
    (tmp_path / "secret.py").write_text("result = 1")
    (inside / "linked.py").symlink_to(tmp_path / "secret.py")
    (inside / "fine.py").symlink_to(inside / PY)
    (inside / "latin.py").write_bytes(b"# \xff")
    return inside


def test_files_are_read_from_the_folder_of_the_playbook(folder: Path) -> None:
    task = {"kind": "python", "file": PY}
    text = json.dumps({"metadata": {"name": "p"}, "workflow": [{"step": "start", "tool": task}]})
    taken = files_beside(text, str(folder / "p.yaml"), Settings())
    assert taken == {str(folder / PY): TEXTS[PY]}


@pytest.mark.parametrize(
    ("name", "why"),
    [("linked.py", "leads out"), ("latin.py", "not UTF-8"), ("jobs", "does not exist"), ("fine.py", "")],
)
def test_links_and_other_things_are_looked_through(folder: Path, name: str, why: str) -> None:
    file = str(folder / "p.yaml")
    text = json.dumps(
        {"metadata": {"name": "p"}, "workflow": [{"step": "start", "tool": {"kind": "python", "file": name}}]}
    )
    errors = build(text, file, KINDS, None, FilesBeside(Settings()).of(file)).errors
    assert [why in finding.message for finding in errors] == ([True] if why else [])
