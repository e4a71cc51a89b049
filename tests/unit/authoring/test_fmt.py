"""`arclog fmt`: indentation, order of keys and empty lines; values and comments stay, and formatted texts too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.authoring.fmt import formatted
from arclog.cli.main import command
from arclog.playbook.load import load
from tests.unit.authoring.planted import PLANTED

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))

BAD = """\
# top
workflow:
# the first
- step:   start   # here
  tool:
        # a task
        spec:
            timeout: 5
        code: |
              x = 1
              if x:
                  # no comment of ours
                  y = 2

        kind: python
        args: {a: 1,
            b: [1, 2,
              3]}   # two
  # where to
  next:
      arcs:
      -   when: "{{ ctx.a }}"
          # the second
          step: b
      -   step: c

  # why
  desc: 'the first'
- step: b
  tool: {kind: noop}
-   tool: {kind: noop}
    # its name
    step: c
metadata: {name: p}
"""

GOOD = """\
# top
metadata: {name: p}
workflow:
  # the first
  - step:   start   # here
    # why
    desc: 'the first'
    tool:
      # a task
      kind: python
      code: |
            x = 1
            if x:
                # no comment of ours
                y = 2

      args: {a: 1,
          b: [1, 2,
            3]}   # two
      spec:
        timeout: 5

    # where to
    next:
      arcs:
        # the second
        - step: b
          when: "{{ ctx.a }}"
        - step: c

  - step: b
    tool: {kind: noop}

  # its name
  - step: c
    tool: {kind: noop}
"""


def test_a_playbook_is_indented_and_its_keys_are_put_into_order() -> None:
    assert formatted(BAD) == GOOD
    assert formatted(GOOD) == GOOD


def stays_the_same(text: str) -> None:
    made = formatted(text)
    assert load(made, "p.yaml").value == load(text, "p.yaml").value
    assert formatted(made) == made
    assert sorted(line.strip() for line in made.split("\n") if line.strip().startswith("#")) == sorted(
        line.strip() for line in text.split("\n") if line.strip().startswith("#")
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_mean_the_same(path: Path) -> None:
    stays_the_same(path.read_text())


def test_playbooks_with_mistakes_mean_the_same() -> None:
    for text in PLANTED:
        try:
            load(text, "p.yaml")
        except Exception:
            continue
        stays_the_same(text)


SCALARS = st.one_of(
    st.integers(0, 9), st.booleans(), st.none(), st.sampled_from(["a", "{{ ctx.x }}", "a: b", "# no", "two\nlines\n", "  x", ""])
)  # fmt: skip
KEYS = st.sampled_from(
    ["kind", "name", "spec", "args", "code", "step", "desc", "when", "then", "x-a", "policy", "rules"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
STEPS = st.lists(
    st.dictionaries(st.sampled_from(["step", "desc", "tool", "next", "loop", "args", "spec"]), VALUES, min_size=1, max_size=5),
    min_size=1,
    max_size=3,
)  # fmt: skip


@settings(max_examples=60)
@given(
    STEPS, st.integers(2, 6), st.booleans(), st.sampled_from([False, None]), st.lists(st.integers(0, 60), max_size=4)
)
def test_any_text_means_the_same(
    steps: list[dict[str, Any]], indent: int, sort: bool, flow: bool | None, comments: list[int]
) -> None:
    whole = {"workflow": steps, "workload": {"b": 1, "a": 2}, "metadata": {"name": "p"}}
    text = yaml.safe_dump(whole, indent=indent, sort_keys=sort, default_flow_style=flow)
    value = load(text, "p.yaml").value
    lines = text.split("\n")
    for at in comments:
        with_one = [*lines[: at % len(lines)], f"{' ' * (at % 7)}# comment {at}", *lines[at % len(lines) :]]
        try:
            if load("\n".join(with_one), "p.yaml").value == value:
                lines = with_one
        except Exception:
            continue
    made = formatted("\n".join(lines))
    assert load(made, "p.yaml").value == value
    assert formatted(made) == made
    assert list(load(made, "p.yaml").value["workload"]) == list(load(text, "p.yaml").value["workload"])


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nworkflow: []\nb: *x\n",
        "workflow:\n  - &one\n    tool: {kind: noop}\n    step: a\n  - *one\n",
        "workflow:\n  -\n      step: a\n",
        "? a\n: b\nworkflow: [1]\n",
        "workflow:\n- - a\n  - b\n- !!str c\n",
        "workflow:\n  - {step: a}\n  - {step: b}\n",
        "workflow:\r\n  - step: a\r\n    desc: |\r\n      x\r\n",
        "workflow:\n  - step: a\n    tool: {kind: noop}\n    step: b\n",
        "a: [",
        "",
    ],
)
def test_odd_texts_stay_valid(text: str) -> None:
    made = formatted(text)
    assert formatted(made) == made
    try:
        value = load(text, "p.yaml").value
    except Exception:
        assert made == text
        return
    assert load(made, "p.yaml").value == value


def test_check_and_diff_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(BAD)
    assert command(["fmt", str(file), "--check"]) == 1
    assert "p.yaml: is not formatted" in capsys.readouterr().out
    assert command(["fmt", str(file), "--diff"]) == 0
    assert "+metadata: {name: p}\n" in capsys.readouterr().out
    assert command(["fmt", str(file), "--diff", "--check"]) == 1
    assert file.read_text() == BAD
    assert command(["fmt", str(file)]) == 0
    assert file.read_text() == GOOD
    assert command(["fmt", str(file), "--check"]) == 0


def test_a_comment_beside_a_key_that_moves_behind_the_dash_moves_along() -> None:
    text = (
        "metadata: {name: p}\nworkflow:\n  - tool:   # of the first\n      url: https://x.org   # where\n      kind: http\n"
        "    step: start   # the name\n"
    )
    assert formatted(text) == (
        "metadata: {name: p}\nworkflow:\n  - step: start   # the name\n    tool:   # of the first\n      kind: http\n"
        "      url: https://x.org   # where\n"
    )
    assert formatted(formatted(text)) == formatted(text)
