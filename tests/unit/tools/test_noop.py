"""Kind noop."""

from __future__ import annotations

from pathlib import Path

from arclog.model.config.settings import Settings
from arclog.ports.tool import ToolServices
from arclog.tools.noop import KIND, NoopConfig
from tests.unit.sandbox.support import context


async def test_it_returns_its_data(tmp_path: Path) -> None:
    tool = KIND.open(ToolServices(Settings(), tmp_path))

    assert (await tool.run(NoopConfig(), context())).as_record() == {"status": "ok"}
    assert (await tool.run(NoopConfig(data={"a": [1]}), context())).result == {"a": [1]}
    await tool.close()


def test_it_is_not_effectful() -> None:
    assert not KIND.spec.effectful
    assert [field.name for field in KIND.spec.fields] == ["data"]
