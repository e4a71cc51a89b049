"""Tasks of several tenants run beside each other only where they are kept apart, and kinds are for whom the operator says."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.ports.tool import ToolServices
from arclog.sandbox.probe import PROMISES
from arclog.wiring.isolation import isolate
from arclog.wiring.kinds import tool_kinds
from arclog.worker.toolbox import Toolbox
from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import running

OFF: dict[str, Any] = {"tasks.confinement": "off"}
SHELL = "metadata: {name: a, path: flows/a}\nworkflow: [{step: start, tool: {kind: shell, command: 'true'}}]\n"


async def serves_one_tenant(tmp_path: Path, *, several: bool, **settings: object) -> bool:
    values = Settings({name.replace("__", "."): value for name, value in settings.items()})
    toolbox = Toolbox(tool_kinds(), ToolServices(values, tmp_path))
    await isolate(values, toolbox, several=several)
    return toolbox.serves_one_tenant


async def test_a_worker_of_several_tenants_must_keep_them_apart(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"several tenants.*not confined.*tasks\.share_unconfined"):
        await serves_one_tenant(tmp_path, several=True, tasks__confinement="off")
    assert await serves_one_tenant(tmp_path, several=False, tasks__confinement="off")
    assert not await serves_one_tenant(tmp_path, several=True, tasks__confinement="off", tasks__share_unconfined=True)
    assert not await serves_one_tenant(tmp_path, several=True)


async def test_a_server_with_keys_of_two_tenants_does_not_start_unconfined(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await make_keys(home, [("default", "engineer"), ("acme", "engineer")])
    with pytest.raises(SettingsError, match="several tenants"):
        async with running(home, **OFF):
            pass
    async with running(home, **{**OFF, "tasks.share_unconfined": True}):
        pass


async def test_kinds_by_tenant_and_role(tmp_path: Path) -> None:
    home = tmp_path / "home"
    callers = [("default", "engineer"), ("acme", "engineer"), ("acme", "admin")]
    keys = await make_keys(home, callers)
    for rule, allowed in {
        "shell: none": set(),
        "shell: acme": {("acme", "engineer"), ("acme", "admin")},
        "shell: role:admin": {("acme", "admin")},
    }.items():
        async with running(home, worker=False, **{"tasks.kinds": rule}) as server, server.client() as client:
            for caller in callers:
                for path, body in (("execute", {"playbook": SHELL}), ("catalog", {"playbook": SHELL})):
                    answer = await client.post(f"/api/{path}", json=body, headers=bearer(keys[caller]))
                    wanted = (200, 201) if caller in allowed else (403,)
                    assert answer.status_code in wanted, (rule, caller, path, answer.text)


def test_doctor_says_what_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path))

    def checks() -> list[dict[str, str]]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command(["doctor", "--json"])
        return [check for check in json.loads(out.getvalue())["checks"] if check["name"] == "confinement"]

    first, *lacking = checks()
    assert first["status"] == "ok"
    assert first["detail"].startswith("standard, as ")
    for promise in PROMISES:
        assert f"; {promise.name}: " in first["detail"] or any(promise.text in check["detail"] for check in lacking)
    monkeypatch.setenv("ARCLOG_TASKS_CONFINEMENT", "off")
    (only,) = checks()
    assert only["status"] == "warn"
    assert "not confined" in only["detail"]
