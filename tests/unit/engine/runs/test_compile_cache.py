"""Which playbooks a server compiles on its event loop."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from arclog.engine.runs.compile_cache import Compiler
from arclog.model.config.settings import Settings
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.wiring.kinds import installed_kinds

PLAYBOOK = "metadata: {name: a}\nworkflow: [{step: start, tool: {kind: noop}}]\n"


def padded(text: str, length: int) -> str:
    return text + "#" * (length - len(text))


@pytest.mark.parametrize(
    ("text", "files", "is_elsewhere"),
    [
        (padded(PLAYBOOK, 1_024), {}, False),
        (padded(PLAYBOOK, 1_025), {}, True),
        (PLAYBOOK, {"a.sql": "x" * 1_024}, False),
        (PLAYBOOK, {"a.sql": "x" * 1_000, "b.sql": "x" * 25}, True),
        (PLAYBOOK.replace("name: a", "name: &a a") + "workload: {b: *a}\n", {}, True),
    ],
    ids=["small", "large", "small file", "large files", "aliases"],
)
async def test_what_may_take_long_is_compiled_elsewhere(
    text: str, files: Mapping[str, str], is_elsewhere: bool
) -> None:
    kinds, settings = installed_kinds(), Settings()
    asked: list[str] = []

    async def elsewhere(text: str, file: str, tenant: str, files: Mapping[str, str]) -> bytes:
        asked.append(tenant)
        return net.encode(build_or_raise(text, file, kinds, settings, files))

    compiler = Compiler(kinds, settings)
    compiler.elsewhere = elsewhere
    compiled = await compiler.compile(text, "a.yaml", "acme", files)
    assert compiled.plan.name == "a"
    assert asked == (["acme"] if is_elsewhere else [])
    assert (await compiler.compile(text, "a.yaml", "acme", files)) is compiled
    assert len(asked) <= 1, "a plan is cached"
