"""Result refs: names of data that is stored outside the log.

A ref is minted for content that exists. Its text is `noetl://execution/<id>/result/<name>/<sha256>`: the name of the
task that made it and the hash of what was stored, so that whoever reads it can prove that nothing was changed. A ref
opens nothing by itself: a reader's tenant must own the execution.

Logs hold a reference in its stored form, whose `kind` says what it names (list or data). Readers, templates and the wire see
the published form: `kind` is `result_ref`, and `meta.shape` says what it holds. `as_ref` takes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from arclog.model.data.patterns import pattern
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
#: A local copy of a file that a task stored; templates of tasks see it, no log holds it.
FILE = "file"
#: The kind of every reference in its published form, and one more shape beside the two above: content that is neither JSON
#: nor text.
RESULT_REF = "result_ref"
BYTES = "bytes"
SHAPES = (DATA, LIST, BYTES)


class RefMeta(Struct, frozen=True, omit_defaults=True):
    """What is known of stored data without reading it."""

    #: of the content itself, before compression
    bytes: int
    sha256: str
    content_type: str = "application/json"
    compression: str = "zstd"
    #: what the content looks like: list | map | text | bytes | number …
    schema_hint: str = ""
    #: items of a list
    rows: int | None = None
    #: data | list | bytes; of the published form
    shape: str = ""
    #: of a file that a task wrote: its name, without folders
    file: str = ""


class ResultRef(Struct, frozen=True, omit_defaults=True):
    """A reference as events carry it."""

    #: list | data
    kind: str
    #: name of the result store that holds it
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
    """The parts of a ref; anything that is not exactly one is refused, whatever path it tries to name."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise RequestRejected(f"{text[:200]!r} is not a result ref (noetl://execution/<id>/result/<name>/<sha256>)")
    return ParsedRef(int(match["execution"]), match["name"], match["sha256"])


def kept_elsewhere(ref: str, store: str, here: str) -> ResultUnavailable:
    """Why a ref cannot be read where results are kept in another store than when it was made."""
    return ResultUnavailable(
        f"{ref} was stored in the result store {store!r}, and results are now stored in {here!r}; restore "
        "ARCLOG_RESULTS_URL to read it (empty for 'files'), or run the step that created it again"
    )


def as_ref(record: Any) -> ResultRef:
    """A ref from either form, in the stored one."""
    ref = convert(record, ResultRef)
    if ref.kind != RESULT_REF:
        return ref
    kind = LIST if ref.meta.shape == LIST else DATA
    return ResultRef(kind, ref.store, ref.ref, replace(ref.meta, shape=""))


def stored_form(record: Any) -> Any:
    """A ref that came from outside, as logs hold it; what is none stays as it is, for others to refuse."""
    if not isinstance(record, Mapping) or record.get("kind") != RESULT_REF:
        return record
    try:
        return as_ref(record).as_dict()
    except ValidationError:
        return record


def published_form(record: Any) -> Any:
    """A ref of a log as readers see it. A reference to the results of a loop, which are in the log, stays as it is."""
    if not isinstance(record, Mapping) or record.get("kind") not in (LIST, DATA):
        return record
    meta = record.get("meta")
    known: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
    shape = LIST if record["kind"] == LIST else _shape_of(str(known.get("content_type", _JSON)))
    return {**record, "kind": RESULT_REF, "meta": {**known, "shape": shape}}


def _shape_of(content_type: str) -> str:
    plain = content_type.partition(";")[0].strip().lower()
    return DATA if plain.startswith("text/") or plain in ("", _JSON) or plain.endswith("+json") else BYTES


# How long a stored result is kept. Pure: `arclog gc` asks with its clock.
#
# - Nothing goes while the execution that stored it has not ended.
# - `step` and `execution`: until `keep` after the execution's end. `workflow`: until `keep` after the end of the execution
# at the root of its tree. `permanent`: forever.
# - An explicit time to live counts from when it was stored, and ends any of these earlier.


#: the longer a scope lives, the higher it ranks
SCOPES = ("step", "execution", "workflow", "permanent")


def kept_until(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, keep: int
) -> int | None:
    """The moment (microseconds) from which a result may go; None while that is not known, or never. `ended_at` is that of
    the execution that stored it, None while it runs.
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
