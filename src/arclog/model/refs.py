"""Result refs: names of data that is stored outside the log.

A ref is created for existing content. Its text is `noetl://execution/<id>/result/<name>/<sha256>`: the name of the task
that produced it and the hash of the content, so that a reader can verify that nothing was changed. A ref grants no
access: the reader's tenant must own the execution.

Logs contain the stored form of a reference, whose `kind` is list or data. Readers, templates and the wire see the
published form: `kind` is `result_ref`, and `meta.shape` describes the content. `as_ref` accepts both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from arclog.model.data.lazy import pattern
from arclog.model.errors import RequestRejected, ResultUnavailable

_FORM = pattern(
    r"noetl://execution/(?P<execution>[1-9][0-9]{0,18})/result"
    r"/(?P<name>[A-Za-z_][A-Za-z0-9_.]{0,300})/(?P<sha256>[0-9a-f]{64})"
)

_JSON = "application/json"

#: A list whose items can be read one by one.
LIST = "list"
#: Any other value, or bytes.
DATA = "data"
#: A local copy of a file that a task stored. Templates of tasks see it; logs never contain it.
FILE = "file"
#: The kind of every published reference, and a third shape: content that is neither JSON nor text.
RESULT_REF = "result_ref"
BYTES = "bytes"


class RefMeta(Struct, frozen=True, omit_defaults=True):
    """The description of stored data."""

    #: size of the content before compression
    bytes: int
    sha256: str
    content_type: str = "application/json"
    compression: str = "zstd"
    #: type of the content: list | map | text | bytes | number …
    schema_hint: str = ""
    #: number of items of a list
    rows: int | None = None
    #: data | list | bytes; only in the published form
    shape: str = ""
    #: for a file that a task wrote: its name, without folders
    file: str = ""


class ResultRef(Struct, frozen=True, omit_defaults=True):
    """A reference as events carry it."""

    #: list | data
    kind: str
    #: name of the result store that contains it
    store: str
    ref: str
    meta: RefMeta

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = to_builtins(self)
        return fields


class ParsedRef(Struct, frozen=True):
    """The parts of a ref's text."""

    execution_id: int
    name: str
    sha256: str


def ref_text(execution_id: int | str, name: str, sha256: str) -> str:
    return f"noetl://execution/{execution_id}/result/{name}/{sha256}"


def parse_ref(text: str) -> ParsedRef:
    """Parse a ref. Raises RequestRejected for any other text, whatever path it tries to name."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise RequestRejected(f"{text[:200]!r} is not a result ref (noetl://execution/<id>/result/<name>/<sha256>)")
    return ParsedRef(int(match["execution"]), match["name"], match["sha256"])


def kept_elsewhere(ref: str, store: str, current: str) -> ResultUnavailable:
    """Return the error for a ref whose content is in another result store than the current one."""
    return ResultUnavailable(
        f"{ref} was stored in the result store {store!r}, and results are now stored in {current!r}; restore "
        "ARCLOG_RESULTS_URL to read it (empty for 'files'), or run the step that created it again"
    )


def as_ref(record: Any) -> ResultRef:
    """Return a ref of either form in the stored form."""
    ref = convert(record, ResultRef)
    if ref.kind != RESULT_REF:
        return ref
    kind = LIST if ref.meta.shape == LIST else DATA
    return ResultRef(kind, ref.store, ref.ref, replace(ref.meta, shape=""))


def stored_form(record: Any) -> Any:
    """Return a ref from outside in the stored form; anything else unchanged, for later checks to refuse."""
    if not isinstance(record, Mapping) or record.get("kind") != RESULT_REF:
        return record
    try:
        return as_ref(record).as_dict()
    except ValidationError:
        return record


def published_form(record: Any) -> Any:
    """Return a ref of a log in the published form.

    A reference to a loop's results, which are in the log, is not changed.
    """
    if not isinstance(record, Mapping) or record.get("kind") not in (LIST, DATA):
        return record
    meta = record.get("meta")
    fields: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
    shape = LIST if record["kind"] == LIST else _shape_of(str(fields.get("content_type", _JSON)))
    return {**record, "kind": RESULT_REF, "meta": {**fields, "shape": shape}}


def _shape_of(content_type: str) -> str:
    plain = content_type.partition(";")[0].strip().lower()
    return DATA if plain.startswith("text/") or plain in ("", _JSON) or plain.endswith("+json") else BYTES


# Retention of stored results. No I/O: `arclog gc` passes the time.
#
# - Nothing is removed before the execution that stored it has ended.
# - `step` and `execution`: until `keep` after the end of the execution. `workflow`: until `keep` after the end of the
#   execution at the root of its tree. `permanent`: forever.
# - An explicit time to live counts from the time of storing, and ends any of these earlier.


#: Scopes in order of their lifetime.
SCOPES = ("step", "execution", "workflow", "permanent")


def kept_until(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, keep: int
) -> int | None:
    """Return the moment (microseconds) from which a result may be removed; None if that is unknown, or never.

    `ended_at` is the end of the execution that stored it; None while it runs.
    """
    if ended_at is None:
        return None
    by_scope: int | None = None
    if scope in ("step", "execution"):
        by_scope = ended_at + keep
    elif scope == "workflow" and root_ended_at is not None:
        by_scope = root_ended_at + keep
    if expires_at is None:
        return by_scope
    by_ttl = max(expires_at, ended_at)
    return by_ttl if by_scope is None else min(by_ttl, by_scope)
