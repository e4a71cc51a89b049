"""The catalog part of the store: plans by hash, and playbooks by tenant, path and version.

A version is identified by its content and never changes; registering the same content again returns the same version.
An archived path cannot be used until it is registered again; runs of its versions continue.

A version is valid in the whole tenant, or in the projects and environments for which it was registered. Registering the
same content for the whole tenant makes it valid there. Reads with a project or an environment return the versions that
are valid there; '' is any.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class PlanRecord(Struct, frozen=True):
    digest: str
    path: str
    version: int
    body: bytes
    #: the playbook as written
    source: str
    created_at: int


class CatalogRecord(Struct, frozen=True):
    """A path of the catalog with its newest version."""

    path: str
    version: int
    digest: str
    created_at: int
    #: None while it is in use
    archived_at: int | None


class CatalogStore(Protocol):
    """Durable plans and the catalog."""

    async def register_plan(
        self,
        digest: str,
        path: str,
        body: bytes,
        source: str,
        at: int,
        *,
        tenant: str,
        project: str = "",
        environment: str = "",
    ) -> PlanRecord:
        """Return the record of this content under a path of a tenant: the existing version, or the next one.

        With a project or an environment it becomes valid only there.
        """

    async def plan(self, digest: str) -> PlanRecord | None:
        """Return a plan by its hash. Its path, version and source are those of the first registration."""

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        """Return the playbook that a tenant registered under a path: the given version, or the newest."""

    async def catalog(
        self,
        *,
        tenant: str,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
        archived: bool = False,
        project: str = "",
        environment: str = "",
    ) -> list[CatalogRecord]:
        """Return a tenant's paths with this prefix, in order, after `after`; archived ones only on request."""

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        """Return one path, archived or not."""

    async def versions(
        self,
        path: str,
        *,
        tenant: str,
        before: int = 0,
        limit: int = 100,
        project: str = "",
        environment: str = "",
    ) -> list[PlanRecord]:
        """Return the versions of a path, newest first, older than `before` if given; without their bodies."""

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        """Archive a path (at a time), or restore it (None)."""
