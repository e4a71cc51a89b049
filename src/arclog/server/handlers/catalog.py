"""Handlers of `operations.catalog`."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from arclog.dialects.schemas import SCHEMAS
from arclog.model.errors import Finding, NotFound
from arclog.operations import catalog as ops
from arclog.operations.operation import ByName
from arclog.ports.views.api import CatalogDiff, CatalogEntry, CatalogVersion, RegisterRequest
from arclog.server.call import Call
from arclog.server.dispatch import Reply, handles


@handles(ops.REGISTER)
async def register(call: Call, body: RegisterRequest) -> Reply:
    version = await call.workspace.api.register(body)
    return Reply(version, 201 if version.created else 200)


@handles(ops.LIST)
async def list_playbooks(call: Call, request: ops.ListPlaybooks) -> ops.CatalogPage:
    entries = await call.workspace.api.catalog(
        prefix=request.prefix, after=request.after, limit=request.limit, archived=request.archived
    )
    return ops.CatalogPage(entries, entries[-1].path if len(entries) == request.limit else None)


@handles(ops.VERSIONS)
async def versions(call: Call, request: ops.ListVersions) -> ops.VersionPage:
    entries = await call.workspace.api.versions(request.path, before=request.before, limit=request.limit)
    return ops.VersionPage(entries, entries[-1].version if len(entries) == request.limit else None)


@handles(ops.SHOW)
async def show(call: Call, request: ops.ShowVersion) -> CatalogVersion:
    return await call.workspace.api.registered(request.path, request.version)


@handles(ops.DIFF)
async def diff(call: Call, request: ops.DiffVersions) -> CatalogDiff:
    return await call.workspace.api.difference(request.path, request.older, request.newer, request.other)


@handles(ops.ARCHIVE)
async def archive(call: Call, body: ops.ArchiveBody) -> CatalogEntry:
    return await call.workspace.api.archive(body.path, archived=body.archived)


# -- checks ------------------------------------------------------------------------------------------------------------


class _Checked(Struct, frozen=True):
    """`CheckResult`, with the graph already encoded by the process that checked the playbook."""

    findings: list[ops.CheckFinding]
    graph: Raw


@handles(ops.CHECK)
async def check(call: Call, body: ops.CheckBody) -> _Checked:
    findings, graph = await call.workspace.check_playbook(body.playbook, body.file or "playbook.yaml")
    return _Checked([_shown(finding) for finding in findings], Raw(graph or b"null"))


@handles(ops.CHECK_SCHEMA)
async def check_schema(call: Call) -> dict[str, Any]:
    return call.services.schema()


def _shown(finding: Finding) -> ops.CheckFinding:
    at = finding.at
    return ops.CheckFinding(at.line, at.column, finding.severity, finding.code, finding.message, finding.hint)


# -- published schemas -------------------------------------------------------------------------------------------------


@handles(ops.SCHEMA_NAMES)
async def schema_names(_: Call) -> dict[str, str]:
    return {name: about for name, (about, _) in SCHEMAS.items()}


@handles(ops.SCHEMA)
async def schema(_: Call, request: ByName) -> dict[str, Any]:
    if request.name not in SCHEMAS:
        raise NotFound(f"there is no schema {request.name[:100]!r}; there are {', '.join(SCHEMAS)}")
    return SCHEMAS[request.name][1]()
