"""API keys of the caller's tenant. A key itself is told once, when it is made."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import NotFound
from arclog.model.ids import MICROS
from arclog.server.access import ADMIN, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.keys import KeyShown, make_key, shown
from arclog.server.schemas import documented

router = APIRouter(prefix="/api/keys", tags=["access"])
#: Ten years: longer is for ever.
_LONGEST_S = 10 * 366 * 86_400


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key asked for. It is of the caller's own tenant."""

    name: str
    roles: tuple[str, ...]
    project: str = ""
    environment: str = ""
    #: None: it does not expire
    expires_in_s: int | None = None


class KeyMade(Struct, frozen=True):
    #: the key itself: shown this once, and kept nowhere
    key: str
    about: KeyShown


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
        example=KeyMade("ark_4k2m7q9x1c5v8b3n_…", _SHOWN),
        takes=NewKey,
        takes_example=NewKey("ci", ("operator",)),
        errors=(),
    ),
)
async def create(request: Request) -> Response:
    """Make a key for the caller's tenant; the answer's `key` is shown this once."""
    services = services_of(request)
    asked = await body_of(request, NewKey)
    now = services.clock.now()
    text, record = await asyncio.to_thread(
        make_key,
        asked.name,
        asked.roles,
        principal_of(request).tenant,
        now,
        project=asked.project,
        environment=asked.environment,
        expires_at=None if asked.expires_in_s is None else now + min(asked.expires_in_s, _LONGEST_S) * MICROS,
    )
    await services.book.add_key(record)
    return answered(KeyMade(text, shown(record)), 201)


@router.get("", dependencies=[allows(ADMIN)], **documented(answer=KeyList, example=KeyList([_SHOWN]), errors=()))
async def listed(request: Request) -> Response:
    """The tenant's keys, oldest first, without their secrets."""
    found = await services_of(request).book.keys(principal_of(request).tenant)
    return answered(KeyList([shown(record) for record in found]))


@router.delete("/{key_id}", dependencies=[allows(ADMIN)], **documented(answer=KeyShown, example=_SHOWN))
async def revoke(key_id: str, request: Request) -> Response:
    """End a key for good; every server sees it within `auth.cache_s`."""
    services = services_of(request)
    found = await services.book.key(key_id)
    if found is None or found.tenant != principal_of(request).tenant:
        raise NotFound(f"there is no key {key_id[:64]}; GET /api/keys lists those there are")
    revoked = await services.book.revoke_key(key_id, services.clock.now())
    return answered(shown(revoked or found))
