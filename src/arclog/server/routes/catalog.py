"""The catalog: playbooks under paths, with versions that never change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.ports.views.api import CatalogDiff, CatalogEntry, CatalogVersion, RegisterRequest
from arclog.server.auth.access import BUILD, VIEW, allows, api_of
from arclog.server.bodies import YAML, answered, body_of, yaml_of
from arclog.server.openapi import examples
from arclog.server.openapi.params import Count, Limit
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/catalog", tags=["catalog"])

CatalogPath = Annotated[str, Query(description="Path in the catalog", examples=["examples/hello"], min_length=1)]
Version = Annotated[Count, Query(description="0 = the newest")]


class CatalogPage(Struct, frozen=True):
    """By path."""

    playbooks: list[CatalogEntry]
    #: ask for more with `after=`; null when there are none
    next: str | None


class VersionPage(Struct, frozen=True):
    """Newest first."""

    versions: list[CatalogVersion]
    #: ask for older ones with `before=`; null when there are none
    next: int | None


class ArchiveBody(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    #: false brings it back
    archived: bool = True


@router.post(
    "",
    dependencies=[allows(BUILD)],
    **documented(
        takes=RegisterRequest,
        takes_example={"playbook": examples.PLAYBOOK},
        takes_text=(YAML[0], examples.PLAYBOOK),
        answer=CatalogVersion,
        example=examples.VERSION,
        status=201,
        text="A new version.",
        also={200: "The content was already registered: its existing version."},
        errors=(),
    ),
)
async def register(request: Request) -> Response:
    """Register a playbook under its path (metadata.path, or its name). Send it as JSON or as YAML."""
    text = await yaml_of(request)
    asked = await body_of(request, RegisterRequest) if text is None else RegisterRequest(text)
    version = await api_of(request).register(asked)
    return answered(version, 201 if version.created else 200)


@router.get(
    "",
    dependencies=[allows(VIEW)],
    **documented(answer=CatalogPage, example=CatalogPage([examples.ENTRY], None), errors=()),
)
async def list_playbooks(
    request: Request,
    prefix: Annotated[str, Query(description="Only paths with this prefix")] = "",
    after: Annotated[str, Query(description="Only paths after this one")] = "",
    limit: Limit = 100,
    archived: Annotated[bool, Query(description="Include archived paths")] = False,
) -> Response:
    """List registered playbooks with their newest versions."""
    found = await api_of(request).catalog(prefix=prefix, after=after, limit=limit, archived=archived)
    return answered(CatalogPage(found, found[-1].path if len(found) == limit else None))


@router.get(
    "/versions",
    dependencies=[allows(VIEW)],
    **documented(answer=VersionPage, example=VersionPage([examples.VERSION], None)),
)
async def versions(request: Request, path: CatalogPath, before: Count = 0, limit: Limit = 100) -> Response:
    """List the versions of a path."""
    found = await api_of(request).versions(path, before=before, limit=limit)
    return answered(VersionPage(found, found[-1].version if len(found) == limit else None))


@router.get("/show", dependencies=[allows(VIEW)], **documented(answer=CatalogVersion, example=examples.VERSION))
async def show(request: Request, path: CatalogPath, version: Version = 0) -> Response:
    """Get one version with its original text."""
    return answered(await api_of(request).registered(path, version))


@router.get(
    "/diff",
    dependencies=[allows(VIEW)],
    **documented(answer=CatalogDiff, example=CatalogDiff("examples/hello", 1, 2, "--- …\n+++ …\n")),
)
async def diff(
    request: Request,
    path: CatalogPath,
    older: Annotated[Count, Query(alias="from", ge=1)],
    newer: Annotated[Count, Query(alias="to", description="0 = the newest")] = 0,
) -> Response:
    """Compare two versions."""
    return answered(await api_of(request).difference(path, older, newer))


@router.post(
    "/archive",
    dependencies=[allows(BUILD, tenant_wide=True)],
    **documented(
        takes=ArchiveBody, takes_example={"path": "examples/hello"}, answer=CatalogEntry, example=examples.ENTRY
    ),
)
async def archive(request: Request) -> Response:
    """Archive a path, or restore it. An archived path is not listed and cannot start runs; its versions and runs are
    kept.
    """
    body = await body_of(request, ArchiveBody)
    return answered(await api_of(request).archive(body.path, archived=body.archived))
