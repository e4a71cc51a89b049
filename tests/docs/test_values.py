"""docs/values.md says what templates see: its examples are run, its lists are compared with the code."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arclog.expr import View
from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.plan.lint.check import SCOPES
from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.kinds import installed_kinds

PAGE = (Path(__file__).parents[2] / "docs" / "values.md").read_text(encoding="utf-8")
EXAMPLES = {
    re.findall(r"name: (\w+)", playbook)[0]: (playbook, json.loads(result))
    for playbook, result in re.findall(r"```yaml\n(.*?)```\n\n```json\n(.*?)```", PAGE, re.DOTALL)
}
KINDS = {**ENGINE_KINDS, **installed_kinds()}

in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded_runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Embedded]:
    home = tmp_path_factory.mktemp("values") / "home"
    async with embedded(Settings({"home": str(home)})) as runtime:
        await runtime.start_worker()
        yield runtime


async def result_of(embedded_runtime: Embedded, playbook: str) -> Any:
    started = await embedded_runtime.api.execute(ExecuteRequest(playbook, "example.yaml"))
    await embedded_runtime.api.ended(started.execution_id)
    summary = await embedded_runtime.api.summary(started.execution_id)
    assert summary.state == "COMPLETED", summary.error
    return summary.result


def test_every_playbook_has_its_result() -> None:
    assert len(EXAMPLES) == PAGE.count("```yaml") == PAGE.count("```json") > 5


@in_one_loop
@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_gives_what_the_page_says(embedded_runtime: Embedded, name: str) -> None:
    playbook, expected = EXAMPLES[name]
    assert build(playbook, "example.yaml", KINDS).findings == []
    assert await result_of(embedded_runtime, playbook) == expected


def test_the_page_names_every_name_in_scope() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|", PAGE.split("## A view")[0])
    assert set(rows) == {name for names in SCOPES.values() for name in names}


def test_the_page_names_what_the_view_keeps_for_itself() -> None:
    text = PAGE.split("### Names that the view keeps for itself")[1].split("A key of the data")[0]
    helpers = {spec.helper for spec in KINDS.values() if spec.helper}
    assert set(re.findall(r"`(\w+)`", text)) == {*View.FIELDS, *helpers, "results"}


def test_the_page_tells_of_every_kind() -> None:
    table = PAGE.split("### Data by kind")[1].split("\n\n")[1]
    for kind, spec in KINDS.items():
        (row,) = [row for row in table.splitlines() if f"`{kind}`" in row.split("|")[1]]
        for word in (spec.helper, *spec.helper_fields):
            assert not word or f"`{word}`" in row.rsplit("|", 2)[1], (kind, word)


SAME = """
metadata: {{name: same}}
executor: {{spec: {{result: "{{{{ [end.data, start.extracted, start.note] }}}}"}}}}
workflow:
  - step: start
    tool:
      kind: python
      code: |
        keys = ("status", "error", "extracted", "result_ref", "left_out", "results_in_log", "results", "note")
        result = {{**{{key: "mine" for key in keys}}, "text": "x" * {size}}}
    next: {{arcs: [{{step: end, when: "{{{{ start.result_ref == 'mine' }}}}"}}]}}
  - step: end
    tool:
      kind: noop
      data:
        - "{{{{ start.status }}}}"
        - "{{{{ start.data.status }}}}"
        - "{{{{ start.extracted }}}}"
        - "{{{{ start.result_ref }}}}"
        - "{{{{ start.left_out }}}}"
        - "{{{{ start.results_in_log }}}}"
        - "{{{{ start.results }}}}"
"""


@in_one_loop
@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_view_is_the_same_whatever_the_size_of_the_data(embedded_runtime: Embedded, size: int) -> None:
    assert await result_of(embedded_runtime, SAME.format(size=size)) == [["ok", *["mine"] * 6], "mine", "mine"]
