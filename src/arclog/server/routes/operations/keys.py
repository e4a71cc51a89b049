"""API keys of the caller's tenant. A key itself is told once, when it is made."""

from __future__ import annotations

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.ports.storage.access import KeyMade, KeyShown, NewKey
from arclog.server.auth.access import ADMIN, allows, principal_of, services_of
from arclog.server.auth.key_book import KeyBook
from arclog.server.bodies import answered, body_of
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/keys", tags=["access"])


class KeyList(Struct, frozen=True):
    keys: list[KeyShown]


_SHOWN = KeyShown(
    key_id="4k2m7q9x1c5v8b3n",
    name="ci",
    tenant="acme",
    roles=("operator",),
    project="",
    environment="",
    created_at="2026-01-02T03:04:05.000000Z",
    expires_at=None,
    revoked_at=None,
)


@router.post(
    "",
    dependencies=[allows(ADMIN)],
    **documented(
        status=201,
        answer=KeyMade,
        example=KeyMade("ark_4k2m7q9x1c5v8b3n_…", _SHOWN, first=False),
        takes=NewKey,
        takes_example=NewKey("ci", ("operator",)),
        errors=(),
    ),
)
async def create(request: Request) -> Response:
    """Create a key for the caller's tenant. The `key` is returned only once."""
    made = await _keys(request).create(await body_of(request, NewKey))
    services_of(request).key_made()
    return answered(made, 201)


@router.get("", dependencies=[allows(ADMIN)], **documented(answer=KeyList, example=KeyList([_SHOWN]), errors=()))
async def listed(request: Request) -> Response:
    """List the tenant's keys, oldest first, without their secrets."""
    return answered(KeyList(await _keys(request).list()))


@router.delete("/{key_id}", dependencies=[allows(ADMIN)], **documented(answer=KeyShown, example=_SHOWN))
async def revoke(key_id: str, request: Request) -> Response:
    """Revoke a key permanently. Every server applies this within `auth.cache_s`."""
    return answered(await _keys(request).revoke(key_id))


def _keys(request: Request) -> KeyBook:
    services = services_of(request)
    caller = principal_of(request)
    return KeyBook(services.book, services.clock, caller.tenant, project=caller.project, environment=caller.environment)
