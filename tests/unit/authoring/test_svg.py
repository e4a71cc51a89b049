"""Plans as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from arclog.authoring.playbook_files import FilesBeside
from arclog.authoring.svg import as_svg
from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.plan.build import build_or_raise
from arclog.wiring.kinds import installed_kinds

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_picture_has_every_step_and_arc(path: Path) -> None:
    beside = FilesBeside(Settings()).of(str(path))
    plan = build_or_raise(path.read_text(), str(path), installed_kinds(), None, beside)
    root = ET.fromstring(as_svg(plan))
    rects = root.findall(f"{SVG}rect")
    assert len(rects) == len(plan.steps)
    assert len(root.findall(f"{SVG}path")) == sum(len(step.arcs) for step in plan.steps)
    names = {text.text for text in root.findall(f"{SVG}text") if text.get("class") == "name"}
    assert names == {step.name for step in plan.steps}
    boxes = [[float(rect.attrib[key]) for key in ("x", "y", "width", "height")] for rect in rects]
    for index, (x, y, width, height) in enumerate(boxes):
        for other in boxes[index + 1 :]:
            assert (
                x + width <= other[0] or other[0] + other[2] <= x or y + height <= other[1] or other[1] + other[3] <= y
            )


def test_what_an_author_wrote_cannot_break_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "metadata: {name: 'a\"<&'}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
        "    next: {arcs: [{step: start, when: \"{{ ctx.x < 3 and '</svg>' }}\"}, {step: lost}]}\n  - step: lost\n    tool: {kind: noop}\n"
    )
    assert command(["plan", str(file), "--format", "svg"]) == 0
    root = ET.fromstring(capsys.readouterr().out)
    assert root.attrib["aria-label"] == 'a"<&'
