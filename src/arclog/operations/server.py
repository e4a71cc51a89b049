"""The server itself: its health, its settings and its pages."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog import __version__
from arclog.model.config.settings import row_of
from arclog.operations.operation import ADMIN, TEXT, Operation
from arclog.ports import work
from arclog.ports.views.checks import FAIL, OK, Check, Diagnosis

_TAG = "operations"
_STATUS = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}

HEALTH = Operation(
    name="server.health",
    method="GET",
    path="/health",
    access=None,
    tag=_TAG,
    text="Check that the process is alive.",
    answer=dict[str, str],
    schema=_STATUS,
    example={"status": "ok"},
    errors=(),
)
READY = Operation(
    name="server.ready",
    method="GET",
    path="/ready",
    access=None,
    tag=_TAG,
    text="Check that the server can take requests: the store is available and the server is not draining.",
    answer=dict[str, str],
    schema=_STATUS,
    example={"status": "ready"},
    errors=(),
)
METRICS: Operation[None] = Operation(
    name="server.metrics",
    method="GET",
    path="/metrics",
    access=None,
    tag=_TAG,
    text="Get metrics in Prometheus text format. Public, unless `server.metrics_role` requires a role.",
    example="arclog_http_requests_open 3.0\n",
    media=TEXT,
    errors=(),
)


class SettingInfo(Struct, frozen=True):
    name: str
    #: passwords in addresses are left out
    value: Any
    default: Any
    unit: str
    help: str
    #: its environment variable
    variable: str


class SettingList(Struct, frozen=True):
    settings: list[SettingInfo]


_PORT = row_of("server.port")

SETTINGS = Operation(
    name="server.settings",
    method="GET",
    path="/api/settings",
    access=ADMIN,
    tag=_TAG,
    text="List all settings with their values on this server, defaults and descriptions.",
    answer=SettingList,
    example=SettingList([SettingInfo(_PORT.name, 8421, 8420, _PORT.unit, _PORT.help, _PORT.variable)]),
    errors=(),
)
DOCTOR = Operation(
    name="server.doctor",
    method="GET",
    path="/api/doctor",
    access=ADMIN,
    tag=_TAG,
    text="Check store, bus, results, clock and pending work, as `arclog doctor --server` does. Each check may take\n`doctor.check_s`.",
    answer=Diagnosis,
    example=Diagnosis(
        version=__version__,
        protocol=work.PROTOCOL,
        now=1_767_323_045_000_000,
        checks=[
            Check("timers", OK, "none is overdue"),
            Check(
                "pool gpu",
                FAIL,
                "3 waiting, 0 with workers; the oldest has been waiting for 94 s",
                "no worker takes these commands: start one (arclog worker --server URL --pool gpu)",
            ),
        ],
    ),
    tenant_wide=True,
)

# -- pages, which the OpenAPI document does not list -------------------------------------------------------------------

ROOT: Operation[None] = Operation(
    name="pages.root",
    method="GET",
    path="/",
    access=None,
    tag="",
    text="A page with the product name and a link to the API description.",
)
DOCS: Operation[None] = Operation(
    name="pages.docs",
    method="GET",
    path="/api/docs",
    access=None,
    tag="",
    text="The reference of the API.",
)
DOCUMENT: Operation[None] = Operation(
    name="pages.document",
    method="GET",
    path="/api/openapi.json",
    access=None,
    tag="",
    text="The OpenAPI document.",
)
