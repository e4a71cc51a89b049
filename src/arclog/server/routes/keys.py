"""API keys of the caller's tenant. A key itself is told once, when it is made."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import NotFound, RequestRejected
from arclog.model.ids import MICROS, timestamp
from arclog.ports.access import KeyRecord
from arclog.server.access import ADMIN, allows, principal_of, services_of
from arclog.server.keys import make_key

router = APIRouter(prefix="/api/keys", tags=["access"])
_LARGEST_BODY = 64 * 1024
#: Ten years: longer is for ever.
_LONGEST_S = 10 * 366 * 86_400


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key asked for."""

    name: str
    roles: tuple[str, ...]
    project: str = ""
    environment: str = ""
    #: None: it does not expire
    expires_in_s: int | None = None


def told(record: KeyRecord) -> dict[str, Any]:
    """All of a key but its hash."""
    shown: dict[str, Any] = {
        "key_id": record.key_id,
        "name": record.name,
        "tenant": record.tenant,
        "roles": record.roles,
        "project": record.project,
        "environment": record.environment,
        "created_at": timestamp(record.created_at),
    }
    for field in ("expires_at", "revoked_at"):
        at = getattr(record, field)
        shown[field] = None if at is None else timestamp(at)
    return shown


@router.post("", dependencies=[allows(ADMIN)])
async def create(request: Request) -> Response:
    """Make a key for the caller's tenant; the answer's `key` is shown this once."""
    services = services_of(request)
    asked = _decoded(await request.body())
    now = services.clock.now()
    expires_at = None if asked.expires_in_s is None else now + min(asked.expires_in_s, _LONGEST_S) * MICROS
    tenant = principal_of(request).tenant
    text, record = await asyncio.to_thread(
        make_key,
        asked.name,
        asked.roles,
        tenant,
        now,
        project=asked.project,
        environment=asked.environment,
        expires_at=expires_at,
    )
    await services.book.add_key(record)
    return _answer({"key": text, **told(record)}, 201)


@router.get("", dependencies=[allows(ADMIN)])
async def listed(request: Request) -> Response:
    """The tenant's keys, oldest first, without their secrets."""
    found = await services_of(request).book.keys(principal_of(request).tenant)
    return _answer({"keys": [told(record) for record in found]})


@router.delete("/{key_id}", dependencies=[allows(ADMIN)])
async def revoke(key_id: str, request: Request) -> Response:
    """End a key for good; every server sees it within `auth.cache_s`."""
    services = services_of(request)
    found = await services.book.key(key_id)
    if found is None or found.tenant != principal_of(request).tenant:
        raise NotFound(f"there is no key {key_id[:64]}; GET /api/keys lists those there are")
    revoked = await services.book.revoke_key(key_id, services.clock.now())
    return _answer(told(revoked or found))


def _decoded(body: bytes) -> NewKey:
    if len(body) > _LARGEST_BODY:
        raise RequestRejected(f"a key is asked for in at most {_LARGEST_BODY} bytes")
    try:
        return msgspec.json.decode(body, type=NewKey)
    except msgspec.DecodeError as problem:
        raise RequestRejected(f"this asks for no key: {problem}") from None


def _answer(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
