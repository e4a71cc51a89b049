"""The settings that this server runs with."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.drivers.addresses import HIDDEN, shown
from arclog.model.config.settings import TABLE, row_of
from arclog.server.auth.access import ADMIN, allows, services_of
from arclog.server.bodies import answered
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/settings", tags=["operations"])


class SettingShown(Struct, frozen=True):
    name: str
    #: passwords in addresses are left out
    value: Any
    default: Any
    unit: str
    help: str
    #: its environment variable
    variable: str


class SettingList(Struct, frozen=True):
    settings: list[SettingShown]


_EXAMPLE = row_of("server.port")


@router.get(
    "",
    dependencies=[allows(ADMIN)],
    **documented(
        answer=SettingList,
        example=SettingList([SettingShown(_EXAMPLE.name, 8421, 8420, _EXAMPLE.unit, _EXAMPLE.help, _EXAMPLE.variable)]),
        errors=(),
    ),
)
async def settings(request: Request) -> Response:
    """List all settings with their values on this server, defaults and descriptions."""
    known = services_of(request).settings
    rows = [
        SettingShown(row.name, _safe(row.name, known[row.name]), row.default, row.unit, row.help, row.variable)
        for row in TABLE
    ]
    return answered(SettingList(rows))


def _safe(name: str, value: Any) -> Any:
    if name == "lineage.auth" and value and not value.startswith("secret:"):
        return HIDDEN
    if not isinstance(value, str) or not ("://" in value or "@" in value or "password" in value.lower()):
        return value
    return shown(value)
