"""Result refs: names of data that is stored outside the log.

A ref is minted for content that exists. Its text is `noetl://execution/<id>/result/<name>/<sha256>`: the name of the
task that made it and the hash of what was stored, so that whoever reads it can prove that nothing was changed. A ref
opens nothing by itself: a reader's tenant must own the execution.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, convert, to_builtins

from arclog.model.errors import RequestRejected, ResultUnavailable

_FORM = re.compile(
    r"noetl://execution/(?P<execution>[1-9][0-9]{0,18})/result"
    r"/(?P<name>[A-Za-z_][A-Za-z0-9_.]{0,300})/(?P<sha256>[0-9a-f]{64})"
)

#: A list whose items can be read one by one.
LIST = "list"
#: Any other value, or bytes.
DATA = "data"


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


class ResultRef(Struct, frozen=True, omit_defaults=True):
    """A reference as events carry it."""

    #: list | data
    kind: str
    #: name of the result store that holds it
    store: str
    ref: str
    meta: RefMeta

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = to_builtins(self)
        return found


class ParsedRef(Struct, frozen=True):
    """The parts of a ref's text."""

    execution_id: int
    name: str
    sha256: str


def ref_text(execution_id: int | str, name: str, sha256: str) -> str:
    return f"noetl://execution/{execution_id}/result/{name}/{sha256}"


def parse_ref(text: str) -> ParsedRef:
    """The parts of a ref; anything that is not exactly one is refused, whatever path it tries to name."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise RequestRejected(f"{text[:200]!r} is no result ref (noetl://execution/<id>/result/<name>/<sha256>)")
    return ParsedRef(int(found["execution"]), found["name"], found["sha256"])


def kept_elsewhere(ref: str, store: str, here: str) -> ResultUnavailable:
    """Why a ref cannot be read where results are kept in another store than when it was made."""
    return ResultUnavailable(
        f"{ref} was stored in the result store {store!r}, and results are kept in {here!r} now; set ARCLOG_RESULTS_URL back "
        "to read it (empty for 'files'), or run again what made it"
    )


def as_ref(record: Any) -> ResultRef:
    """A ref from the form that events carry."""
    return convert(record, ResultRef)
