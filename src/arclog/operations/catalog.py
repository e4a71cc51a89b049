"""The catalog: playbooks under paths, with versions that never change; checks of a text, and published schemas."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from arclog.model.ids import MAX_ID
from arclog.operations import examples
from arclog.operations.operation import BUILD, PRODUCE, VIEW, ByName, Count, Limit, Operation
from arclog.ports.views.api import CatalogDiff, CatalogEntry, CatalogVersion, RegisterRequest

_TAG = "catalog"

CatalogPath = Annotated[str, Meta(description="Path in the catalog", examples=["examples/hello"], min_length=1)]


class CatalogPage(Struct, frozen=True):
    """A page of registered playbooks, ordered by path."""

    playbooks: list[CatalogEntry]
    #: the `after` of the next page; null if there is none
    next: str | None


class VersionPage(Struct, frozen=True):
    """A page of the versions of a path, newest first."""

    versions: list[CatalogVersion]
    #: the `before` of the next page; null if there is none
    next: int | None


class ArchiveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to archive or restore a path."""

    path: str
    #: false restores the path
    archived: bool = True


class ListPlaybooks(Struct, frozen=True, omit_defaults=True):
    prefix: Annotated[str, Meta(description="Only paths with this prefix")] = ""
    after: Annotated[str, Meta(description="Only paths after this one")] = ""
    limit: Limit = 100
    archived: Annotated[bool, Meta(description="Include archived paths")] = False


class ListVersions(Struct, frozen=True, omit_defaults=True):
    path: CatalogPath
    before: Annotated[Count, Meta(description="Only versions before this one; 0: from the newest")] = 0
    limit: Limit = 100


class ShowVersion(Struct, frozen=True, omit_defaults=True):
    path: CatalogPath
    version: Annotated[Count, Meta(description="Version number; 0: the newest")] = 0


class DiffVersions(Struct, frozen=True, omit_defaults=True, rename={"older": "from", "newer": "to", "other": "with"}):
    path: CatalogPath
    older: Annotated[int, Meta(description="The first version", ge=1, le=MAX_ID)]
    newer: Annotated[Count, Meta(description="The second version; 0: the newest")] = 0
    other: Annotated[str, Meta(description="Path of the second version, if it is another one")] = ""


REGISTER = Operation(
    name="catalog.register",
    method="POST",
    path="/api/catalog",
    access=BUILD,
    tag=_TAG,
    text="Register a playbook under its path (metadata.path, or its name). Send it as JSON or as YAML.",
    takes=RegisterRequest,
    takes_example={"playbook": examples.PLAYBOOK},
    yaml_field="playbook",
    yaml_example=examples.PLAYBOOK,
    answer=CatalogVersion,
    example=examples.VERSION,
    status=201,
    outcome="A new version was registered.",
    also={200: "The content was already registered; the existing version is returned."},
    errors=(),
    repeatable=True,
)
LIST = Operation(
    name="catalog.list_playbooks",
    method="GET",
    path="/api/catalog",
    access=VIEW,
    tag=_TAG,
    text="List registered playbooks with their newest versions, ordered by path.",
    params=ListPlaybooks,
    answer=CatalogPage,
    example=CatalogPage([examples.ENTRY], None),
    errors=(),
)
VERSIONS = Operation(
    name="catalog.versions",
    method="GET",
    path="/api/catalog/versions",
    access=VIEW,
    tag=_TAG,
    text="List the versions of a path, newest first.",
    params=ListVersions,
    answer=VersionPage,
    example=VersionPage([examples.VERSION], None),
)
SHOW = Operation(
    name="catalog.show",
    method="GET",
    path="/api/catalog/show",
    access=VIEW,
    tag=_TAG,
    text="Get one version with its original text.",
    params=ShowVersion,
    answer=CatalogVersion,
    example=examples.VERSION,
)
DIFF = Operation(
    name="catalog.diff",
    method="GET",
    path="/api/catalog/diff",
    access=VIEW,
    tag=_TAG,
    text="Compare two versions: their texts, the steps and arcs of their nets, and their other settings.",
    params=DiffVersions,
    answer=CatalogDiff,
    example=CatalogDiff(
        "examples/hello",
        1,
        2,
        "--- …\n+++ …\n",
        {"steps_added": [], "steps_removed": [], "steps_changed": ["start"], "arcs_added": [], "arcs_removed": []},
        ["workload"],
    ),
)
ARCHIVE = Operation(
    name="catalog.archive",
    method="POST",
    path="/api/catalog/archive",
    access=BUILD,
    tag=_TAG,
    text="Archive a path, or restore it. An archived path is not listed and cannot start runs; its versions and runs are\nkept.",
    takes=ArchiveBody,
    takes_example={"path": "examples/hello"},
    answer=CatalogEntry,
    example=examples.ENTRY,
    tenant_wide=True,
    repeatable=True,
)

# -- checks ------------------------------------------------------------------------------------------------------------


class CheckBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A playbook to check."""

    playbook: str
    #: the source of the text, for messages
    file: str = ""


class CheckFinding(Struct, frozen=True):
    """A finding, as `arclog check --json` prints it."""

    #: from 1 on; 0 for the playbook as a whole
    line: int
    column: int
    #: error (the playbook cannot run) | warning | info
    severity: str
    code: str
    message: str
    hint: str


class CheckResult(Struct, frozen=True):
    """The result of a check."""

    findings: list[CheckFinding]
    #: the plan, as GET /api/executions/{execution_id}/graph has it; null when there are errors
    graph: dict[str, Any] | None


CHECK = Operation(
    name="check.check",
    method="POST",
    path="/api/check",
    access=VIEW,
    tag=_TAG,
    text="Check a playbook without registering it. Returns the findings of `arclog check` and the graph.",
    takes=CheckBody,
    takes_example={"playbook": examples.PLAYBOOK},
    yaml_field="playbook",
    yaml_example=examples.PLAYBOOK,
    answer=CheckResult,
    example=CheckResult([], {"name": "hello", "entry": "start", "steps": [{"name": "start"}]}),
    outcome="The findings. The status is 200 even if the playbook has errors.",
    errors=(),
)
CHECK_SCHEMA = Operation(
    name="check.schema",
    method="GET",
    path="/api/check/schema",
    access=VIEW,
    tag=_TAG,
    text="Get the JSON Schema of playbooks with the kinds that are installed on this server, as `arclog schema playbook` prints it.",
    answer=dict[str, Any],
    schema={"type": "object"},
    example={"type": "object", "properties": {"workflow": {}}},
    errors=(),
)

# -- published schemas -------------------------------------------------------------------------------------------------

SCHEMA_NAMES = Operation(
    name="schemas.names",
    method="GET",
    path="/api/schemas",
    access=VIEW | PRODUCE,
    tag="schemas",
    text="List the published schemas with their descriptions.",
    answer=dict[str, str],
    schema={"type": "object", "additionalProperties": {"type": "string"}},
    example={"run": "RunEventRecord: a record of the Run Events Contract"},
    errors=(),
)
SCHEMA = Operation(
    name="schemas.schema",
    method="GET",
    path="/api/schemas/{name}",
    access=VIEW | PRODUCE,
    tag="schemas",
    text="Get a JSON Schema (draft 2020-12).",
    params=ByName,
    answer=dict[str, Any],
    schema={"type": "object"},
    example={"type": "object"},
)
