"""Handlers of `operations.server`."""

from __future__ import annotations

import logging
from typing import Any

from starlette.responses import HTMLResponse, Response

from arclog import __version__
from arclog.drivers.addresses import HIDDEN, shown
from arclog.model.config.settings import TABLE
from arclog.operations import server as ops
from arclog.operations.operation import ADMIN, JSON, OPERATE, VIEW
from arclog.ports.views.checks import Diagnosis
from arclog.server.call import Call
from arclog.server.dispatch import handles
from arclog.server.pages.openapi import document_bytes, document_of_all
from arclog.server.pages.reference import reference_page, security_policy, welcome_page
from arclog.server.problems import problem

log = logging.getLogger("arclog.server")

_SEEN_BY = {"viewer": VIEW, "operator": OPERATE, "admin": ADMIN}
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
#: The address in examples. It is not taken from the request, whose Host header can contain anything.
_ADDRESS = "http://127.0.0.1:{port}"


@handles(ops.HEALTH)
async def health(_: Call) -> dict[str, str]:
    return {"status": "ok"}


@handles(ops.READY)
async def ready(call: Call) -> dict[str, str] | Response:
    if call.services.draining():
        return problem(503, "NotReady", "the server is draining")
    wrong = await call.services.ready()
    if wrong:
        # This needs no authentication, so the details of the store are only in the server's log.
        log.warning("not ready: %s", wrong)
        return problem(503, "NotReady", "the store is not available; see the server's log")
    return {"status": "ready"}


@handles(ops.METRICS)
async def metrics(call: Call) -> Response:
    role = call.services.settings.text("server.metrics_role")
    if role != "public":
        await call.admit(_SEEN_BY[role])
    return Response(await call.services.metrics(), media_type=_PROMETHEUS)


@handles(ops.SETTINGS)
async def settings(call: Call) -> ops.SettingList:
    values = call.services.settings
    return ops.SettingList(
        [
            ops.SettingInfo(row.name, _safe(row.name, values[row.name]), row.default, row.unit, row.help, row.variable)
            for row in TABLE
        ]
    )


def _safe(name: str, value: Any) -> Any:
    if name == "lineage.auth" and value and not value.startswith("secret:"):
        return HIDDEN
    if not isinstance(value, str) or not ("://" in value or "@" in value or "password" in value.lower()):
        return value
    return shown(value)


@handles(ops.DOCTOR)
async def doctor(call: Call) -> Diagnosis:
    return await call.workspace.diagnosis()


# -- pages -------------------------------------------------------------------------------------------------------------


@handles(ops.ROOT)
async def root(call: Call) -> Response:
    return _page(welcome_page(__version__, ops.DOCS.path, ops.DOCUMENT.path, _address(call)))


@handles(ops.DOCS)
async def docs(call: Call) -> Response:
    return _page(reference_page(document_of_all(), ops.DOCUMENT.path, _address(call)))


@handles(ops.DOCUMENT)
async def document(_: Call) -> Response:
    return Response(document_bytes(), media_type=JSON)


def _address(call: Call) -> str:
    """The server's own address, as seen from this machine."""
    server = call.scope.get("server") or ("", 8420)
    return _ADDRESS.format(port=server[1])


def _page(text: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": security_policy()})
