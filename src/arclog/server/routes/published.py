"""The published JSON Schemas of events and records."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from arclog.dialects.schemas import SCHEMAS
from arclog.model.errors import NotFound
from arclog.server.auth.access import PRODUCE, VIEW, allows
from arclog.server.bodies import answered
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/schemas", tags=["schemas"])

_NAMED = {"type": "object", "additionalProperties": {"type": "string"}}


@router.get(
    "",
    dependencies=[allows(VIEW | PRODUCE)],
    **documented(answer=_NAMED, example={"run": SCHEMAS["run"][0]}, errors=()),
)
async def names() -> Response:
    """List the published schemas with their descriptions."""
    return answered({name: about for name, (about, _) in SCHEMAS.items()})


@router.get(
    "/{name}",
    dependencies=[allows(VIEW | PRODUCE)],
    **documented(answer={"type": "object"}, example={"type": "object"}),
)
async def schema(name: str) -> Response:
    """Get a JSON Schema (draft 2020-12)."""
    if name not in SCHEMAS:
        raise NotFound(f"there is no schema {name[:100]!r}; there are {', '.join(SCHEMAS)}")
    return answered(SCHEMAS[name][1]())
