"""An operation of the HTTP API: a row of the table from which routes, OpenAPI, reference page and clients are
generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct

from arclog.model.ids import MAX_ID

A = TypeVar("A")

#: Roles that an operation can require. An admin has every role.
VIEW = frozenset({"viewer", "operator", "engineer"})
OPERATE = frozenset({"operator", "engineer"})
BUILD = frozenset({"engineer"})
ADMIN = frozenset({"admin"})
WORK = frozenset({"worker"})
PRODUCE = frozenset({"producer", "worker"})

JSON = "application/json"
YAML = "application/yaml"
TEXT = "text/plain"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
OCTETS = "application/octet-stream"

#: The reader of the body: the dispatcher, which decodes it by `takes`, or the handler, piece by piece.
DECODED, BY_HANDLER = "decoded", "by handler"

#: Header of a request that was sent before and not answered: which attempt this is, counted from 1. A server may have died of it.
ATTEMPT_HEADER = "Arclog-Attempt"
#: The response header of workers' operations that names the process which answered. Several processes may share an
#: address, and a worker reports a command over a connection to the process that granted it. In a request, it names the
#: only process that may carry it out.
SERVER_HEADER = "Arclog-Server"

_NAMES = re.compile(r"\{(\w+)\}")


class NoParams(Struct, frozen=True):
    """The operation has no parameters."""


class Operation(Struct, Generic[A], frozen=True, eq=False, kw_only=True):
    """One operation. `A` is the type that a client decodes the answer to."""

    #: GROUP.NAME, unique
    name: str
    method: str
    #: with {names} of path parameters
    path: str
    #: roles of which a caller needs one; None if everyone may call it
    access: frozenset[str] | None
    #: heading in the OpenAPI document; '': the operation is not listed
    tag: str
    #: the description for the OpenAPI document and the reference page
    text: str
    #: path and query parameters: a field whose name occurs in the path is a path parameter
    params: type[Struct] = NoParams
    #: type of the body; None if there is none, or if it is not JSON
    takes: Any = None
    takes_example: Any = None
    takes_media: str = JSON
    #: schema of the body in the document, if the type is not specific enough: a JSON Schema, or a function that returns
    #: it
    takes_schema: Any = None
    #: the field of `takes` whose text a YAML body is; '' if YAML is not accepted
    yaml_field: str = ""
    yaml_example: str = ""
    #: the reader of the body
    reading: str = DECODED
    #: the setting that limits the body's size
    limit: str = "server.max_body_bytes"
    #: numbers of the body may be strings: some JSON readers round large ids
    lax: bool = False
    #: type of the answer
    answer: type[A] | None = None
    #: schema of the answer in the document, as `takes_schema`; a tuple of types: any of them
    schema: Any = None
    example: Any = None
    media: str = JSON
    status: int = 200
    outcome: str = "Success."
    #: other successful statuses, and their meanings
    also: Mapping[int, str] = {}
    #: statuses of errors in addition to those of every operation
    errors: tuple[int, ...] = (404,)
    #: the caller must not be bound to a project or an environment
    tenant_wide: bool = False
    #: has reserved places when the server is busy, because it is short and keeps runs under control
    urgent: bool = False
    #: whether a client may send it twice; None means if it is a GET
    repeatable: bool | None = None
    #: additional time limit for the server in seconds
    extra_s: float = 0.0

    @property
    def path_names(self) -> list[str]:
        return _NAMES.findall(self.path)

    @property
    def operation_id(self) -> str:
        """Its name in the OpenAPI document."""
        return re.sub(r"\W", "_", f"{self.name.rpartition('.')[2]}{self.path}_{self.method.lower()}")


# -- parameters that many operations have ------------------------------------------------------------------------------

#: A whole number that a store can count to.
Count = Annotated[int, Meta(ge=0, le=MAX_ID)]
ExecutionId = Annotated[str, Meta(description="Execution id, decimal", examples=["7392145190625280001"], max_length=32)]
Limit = Annotated[int, Meta(description="Maximum number of items", ge=1, le=1000)]
Types = Annotated[list[str], Meta(description="Only events of these types, named in any dialect", max_length=100)]


class OfExecution(Struct, frozen=True):
    execution_id: ExecutionId


class ByName(Struct, frozen=True):
    name: str
