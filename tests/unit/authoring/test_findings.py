"""`arclog check` over planted mistakes: found on the right line, with a remedy; nothing on the examples."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from arclog.authoring.findings import as_github, as_sarif, fixed
from arclog.authoring.playbook_files import FilesBeside
from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.model.errors import Finding, Position
from arclog.plan.build import build
from arclog.wiring.kinds import installed_kinds
from tests.unit.authoring.planted import PLANTED
from tests.unit.authoring.planted_tools import FROM_OTHER_TOOLS
from tests.unit.authoring.planted_values import VALUES

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
MISTAKES = [*PLANTED, *VALUES]
#: A message that says what would be right needs no hint beside it.
_REMEDY = re.compile(
    r"is none of |must be more than |value allowed, |is needed$|exclude each other|did you mean|; (?:write|bind) |write '"
    r"|is 'ok' or 'error'|belongs? to |identifier \}\}|is reserved: iter has it|; a name in parts is "
)


def findings_of(text: str) -> list[Finding]:
    beside = FilesBeside(Settings()).of(str(ROOT / "examples/p.yaml"))
    return build(text, "p.yaml", installed_kinds(), None, beside, thorough=True).findings


def planted_code(text: str) -> str:
    (code,) = re.findall(r"#! ([a-z-]+)", text)
    return str(code)


def test_there_are_enough_planted_mistakes_of_many_kinds() -> None:
    assert len(set(MISTAKES)) == len(MISTAKES)
    others = [code for text in MISTAKES if (code := planted_code(text)) not in ("unknown-key", "legacy-form")]
    assert len(others) >= 100, "unknown words are easily found; these are mistakes of other kinds"
    assert len(set(others)) >= 40


@pytest.mark.parametrize("text", MISTAKES, ids=range(len(MISTAKES)))
def test_a_planted_mistake_is_found_on_its_line_with_a_remedy(text: str) -> None:
    lines = text.splitlines()
    number = next(at for at, line in enumerate(lines, 1) if "#!" in line)
    code = planted_code(text)
    findings = [finding for finding in findings_of(text) if finding.at.line == number and finding.code == code]
    assert findings, f"no {code} on line {number} of\n{text}\nbut {[str(other) for other in findings_of(text)]}"
    assert findings[0].hint or _REMEDY.search(findings[0].message), findings[0]


@pytest.mark.parametrize(("text", "remedy"), FROM_OTHER_TOOLS, ids=range(len(FROM_OTHER_TOOLS)))
def test_a_word_of_another_tool_is_found_on_its_line_with_the_word_of_arclog(text: str, remedy: str) -> None:
    number = next(at for at, line in enumerate(text.splitlines(), 1) if "#!" in line)
    there = [
        finding
        for finding in findings_of(text)
        if finding.at.line == number and finding.code == planted_code(text) and finding.severity != "info"
    ]
    assert there, f"nothing on line {number} of\n{text}\nbut {[str(finding) for finding in findings_of(text)]}"
    assert any(remedy in finding.hint for finding in there), [(finding.message, finding.hint) for finding in there]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_nothing_is_reported_on_the_examples(path: Path) -> None:
    beside = FilesBeside(Settings()).of(str(path))
    findings = build(path.read_text(), str(path), installed_kinds(), None, beside, thorough=True).findings
    assert [str(finding) for finding in findings] == []


@pytest.mark.parametrize(
    "text",
    [
        'tool: {kind: noop, data: "{{ iter.page | default(1) }}"}',
        'tool: {kind: noop, data: "{{ iter.page if iter.page is defined else 1 }}"}',
        ("tool: [{name: a, kind: noop, data: 1, spec: {policy: {rules: [{else: {then: {do: continue, set_iter: {page: 2}}}}]}}},"
         ' {name: b, kind: noop, data: "{{ iter.page }}"}]'),
        'args: {a: 1}\n    tool: {kind: noop, data: "{{ args }}"}',
        'tool: {kind: noop, data: "{{ workload.other | default(1) }}"}',
        'tool: {kind: python, args: {n: 1}, code: "def main(n, m=2, **more): return n + m"}',
        'tool: {kind: python, args: "{{ workload.ids }}", code: "def main(n): return n"}',
        'tool: {kind: python, code: "def main(input_data): return input_data"}',
        'tool: {kind: python, code: "from math import *; result = sqrt(4)"}',
        'tool: {kind: python, code: "result = [x for x in range(3)]; y: int = 1; result.append(y)"}',
        'tool: {kind: python, libs: {np: math}, code: "result = np.sqrt(4); print(context.step, input_data, __name__)"}',
        'tool: {kind: http, url: "{{ workload.ids }}/x", headers: {Authorization: "Bearer {{ ctx.t }}"}}',
        'tool: {kind: http, url: "https://{{ workload.ids }}:x@y", method: "{{ workload.ids }}"}',
    ],
)  # fmt: skip
def test_what_an_author_may_mean_is_left_alone(text: str) -> None:
    findings = findings_of(f"metadata: {{name: p}}\nworkload: {{ids: [1]}}\nworkflow:\n  - step: start\n    {text}\n")
    assert [str(finding) for finding in findings if finding.severity != "info"] == []


def test_an_else_that_swallows_errors_is_worth_knowing() -> None:
    task = "kind: http\n      url: https://x.org\n      spec: {policy: {rules: [RULES{else: {then: {do: continue}}}]}}"
    text = f"metadata: {{name: p}}\nworkflow:\n  - step: start\n    tool:\n      {task}\n"
    (finding,) = findings_of(text.replace("RULES", ""))
    assert (finding.code, finding.severity) == ("error-swallowed", "info")
    error = "{when: \"{{ outcome.status == 'error' }}\", then: {do: fail}}, "
    assert findings_of(text.replace("RULES", error)) == []


def test_misspelt_names_are_corrected_and_everything_else_stays() -> None:
    text = """\
# a flow
metadata: {name: p}   # named
workload: {ids: [1]}
workflow:
  - step: start
    tool: {kind: nop}   # nothing
    nxet: {arcs: [{step: secnd}]}
  - step: second
    tool:
      kind: http
      method: GTE
      url: "https://x.org/{{ workload.idz }}"  # ids
"""
    good, done = fixed(text, findings_of)
    assert [finding.code for finding in done]
    assert findings_of(good) == []
    wanted = text.replace("nop}", "noop}").replace("nxet", "next").replace("secnd", "second")
    assert good == wanted.replace("GTE", "GET").replace("idz", "ids")
    assert fixed(good, findings_of) == (good, [])


def test_fixing_keeps_line_ends_and_gives_up_on_what_it_cannot_repair() -> None:
    text = "metadata: {name: p}\r\nworkflow:\r\n  - step: start\r\n    tool: {kind: nop}\r\n"
    assert fixed(text, findings_of)[0] == text.replace("nop}", "noop}")
    for broken in ("metadata: [", "a: 1\nb: 2\n", "", "workflow: 1\n"):
        assert fixed(broken, findings_of)[0] == broken


def test_the_formats_of_other_programs() -> None:
    finding = Finding("unknown-key", "step has no key 'a%b'", Position(3, 5), "warning", "line\none")
    assert as_github(finding, "a,b.yaml") == (
        "::warning file=a%2Cb.yaml,line=3,col=5,title=unknown-key::step has no key 'a%25b'. line%0Aone"
    )
    (run,) = as_sarif([(finding, "a.yaml"), (finding, "b.yaml")])["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["unknown-key"]
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "b.yaml"
    assert place["region"] == {"startLine": 3, "startColumn": 5}
    assert run["results"][0]["level"] == "warning"
    odd = as_sarif([(finding, file) for file in ("my flows/ü#1.yaml", "/tmp/a b.yaml")])["runs"][0]["results"]
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in odd]
    assert uris == ["my%20flows/%C3%BC%231.yaml", "file:///tmp/a%20b.yaml"]


def test_the_command_fixes_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("metadata: {name: p}\nworkflow:\n  - step: start # first\n    tool: {kind: nop}\n")
    assert command(["check", str(file), "--format", "sarif"]) == 2
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"][0]["ruleId"] == "unknown-kind"
    assert command(["check", str(file), "--format", "github"]) == 2
    assert capsys.readouterr().out.startswith("::error file=")
    assert command(["check", str(file), "--fix"]) == 0
    captured = capsys.readouterr()
    assert "corrected" in captured.err
    assert "no problems found" in captured.out
    assert "kind: noop" in file.read_text()
    assert "# first" in file.read_text()


def test_five_hundred_steps_are_checked_quickly() -> None:
    step = """\
  - step: s{at}
    tool:
      kind: python
      args: {{n: "{{{{ workload.n | default({at}) }}}}"}}
      code: |
        def main(n):
            return {{"n": n}}
    next: {{arcs: [{{step: s{next}, when: "{{{{ s{at}.n > 1 }}}}"}}]}}
"""
    steps = "".join(step.format(at=at, next=at + 1) for at in range(499))
    text = f"metadata: {{name: p}}\nworkflow:\n{steps}  - step: s499\n    tool: {{kind: noop}}\n"
    assert findings_of(text) == []
    began = time.process_time()
    findings_of(text)
    assert time.process_time() - began < 1.5, "the goal is 0.3 s on a machine that does nothing else"
