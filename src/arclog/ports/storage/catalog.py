"""The catalog half of the store: plans by their hash, and playbooks by tenant, path and version.

A version is named by its content and never changes; the same content registered again is the same version. An archived
path is out of use until it is registered again; runs of its versions continue.

A version is valid in the whole tenant, or in the projects and environments for which it was registered. Whoever registers
the same content for the whole tenant makes it valid there. Reading with a project or an environment finds what is valid
there; '' is any.
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
    """Plans and the catalog, durable."""

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
        """The record of this content under this path of a tenant: the existing version, or the next one. With a project or an
        environment it is made valid there only.
        """

    async def plan(self, digest: str) -> PlanRecord | None:
        """A plan by its hash. Its path, version and source are those of the first registration."""

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        """The playbook that a tenant registered under a path: the given version, or the newest."""

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
        """A tenant's paths with this prefix, in order, behind `after`; archived ones only if asked for."""

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        """One path, archived or not."""

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
        """The versions of a path, newest first, older than `before` when that is given; without their bodies."""

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        """Put a path away (at a time), or bring it back (None)."""
