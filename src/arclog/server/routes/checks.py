"""Checks of a playbook's text, for editors."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from msgspec import Raw, Struct
from starlette.responses import Response

from arclog.model.errors import Finding
from arclog.server.auth.access import VIEW, allows, principal_of, services_of
from arclog.server.bodies import YAML, answered, body_of, yaml_of
from arclog.server.openapi import examples
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/check", tags=["catalog"])


class CheckBody(Struct, frozen=True, forbid_unknown_fields=True):
    playbook: str
    #: where the text came from, for messages
    file: str = ""


class CheckFinding(Struct, frozen=True):
    """A finding, as `arclog check --json` prints it."""

    #: from 1 on; 0: of the playbook as a whole
    line: int
    column: int
    #: error (the playbook cannot run) | warning | info
    severity: str
    code: str
    message: str
    hint: str


class Checked(Struct, frozen=True):
    findings: list[CheckFinding]
    #: the plan, as GET /api/executions/{execution_id}/graph has it; null when there are errors
    graph: dict[str, Any] | None


class _Answer(Struct, frozen=True):
    """The same; the graph was encoded where the playbook was checked."""

    findings: list[CheckFinding]
    graph: Raw


@router.post(
    "",
    dependencies=[allows(VIEW)],
    **documented(
        takes=CheckBody,
        takes_example={"playbook": examples.PLAYBOOK},
        takes_text=(YAML[0], examples.PLAYBOOK),
        answer=Checked,
        example=Checked([], {"name": "hello", "entry": "start", "steps": [{"name": "start"}]}),
        text="The findings. The status is 200 even if the playbook has errors.",
        errors=(),
    ),
)
async def check(request: Request) -> Response:
    """Check a playbook without registering it. Returns the findings of `arclog check` and the graph."""
    text = await yaml_of(request)
    body = await body_of(request, CheckBody) if text is None else CheckBody(text)
    services, tenant = services_of(request), principal_of(request).tenant
    findings, graph = await services.check(body.playbook, body.file or "playbook.yaml", tenant)
    return answered(_Answer([_shown(finding) for finding in findings], Raw(graph or b"null")))


@router.get(
    "/schema",
    dependencies=[allows(VIEW)],
    **documented(answer={"type": "object"}, example={"type": "object", "properties": {"workflow": {}}}, errors=()),
)
async def schema(request: Request) -> Response:
    """The JSON Schema of playbooks with the kinds that are installed here, as `arclog schema playbook` prints it."""
    return answered(services_of(request).schema())


def _shown(finding: Finding) -> CheckFinding:
    at = finding.at
    return CheckFinding(at.line, at.column, finding.severity, finding.code, finding.message, finding.hint)
