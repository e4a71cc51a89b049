"""Result refs: what is one, and what only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.model.errors import RequestRejected
from arclog.model.refs import (
    SCOPES,
    RefMeta,
    ResultRef,
    as_ref,
    kept_until,
    parse_ref,
    published_form,
    ref_text,
    stored_form,
)

SHA = "0123456789abcdef" * 4


def test_a_ref_comes_back_as_it_was() -> None:
    text = ref_text(17, "fetch.page", SHA)
    assert text == f"noetl://execution/17/result/fetch.page/{SHA}"
    parsed = parse_ref(text)
    assert (parsed.execution_id, parsed.name, parsed.sha256) == (17, "fetch.page", SHA)
    ref = ResultRef("list", "files", text, RefMeta(10, SHA, rows=3))
    assert as_ref(ref.as_dict()) == ref


@pytest.mark.parametrize(
    ("kind", "content_type", "rows", "shape"),
    [
        ("list", "application/json", 3, "list"),
        ("data", "application/json", None, "data"),
        ("data", "application/problem+json", None, "data"),
        ("data", "text/plain; charset=utf-8", None, "data"),
        ("data", "application/octet-stream", None, "bytes"),
        ("data", "image/png", None, "bytes"),
    ],
)
def test_a_ref_has_a_stored_and_a_published_form(kind: str, content_type: str, rows: int | None, shape: str) -> None:
    ref = ResultRef(kind, "files", ref_text(17, "a", SHA), RefMeta(10, SHA, content_type, rows=rows))
    seen = published_form(ref.as_dict())
    assert (seen["kind"], seen["meta"]["shape"], seen["ref"]) == ("result_ref", shape, ref.ref)
    assert published_form(seen) == seen
    assert as_ref(seen) == as_ref(ref.as_dict()) == ref
    assert stored_form(seen) == stored_form(ref.as_dict()) == ref.as_dict()


@pytest.mark.parametrize("other", [None, 5, "noetl://x", {}, {"kind": "loop", "ref": "x"}, {"kind": "result_ref"}])
def test_what_is_no_ref_stays_as_it_is(other: object) -> None:
    assert published_form(other) == other
    assert stored_form(other) == other


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noetl://execution/../../etc/passwd",
        f"noetl://execution/17/result/../{SHA}",
        f"noetl://execution/17/result/%2e%2e/{SHA}",
        f"noetl://execution/17/result/a/b/{SHA}",
        f"noetl://execution/17/result/a\0b/{SHA}",
        f"noetl://execution/17/result/.hidden/{SHA}",
        f"noetl://execution/0/result/a/{SHA}",
        f"noetl://execution/-1/result/a/{SHA}",
        f"noetl://execution/{'9' * 20}/result/a/{SHA}",
        f"noetl://execution/17/result/a/{SHA.upper()}",
        f"noetl://execution/17/result/a/{SHA}\n",
        f" noetl://execution/17/result/a/{SHA}",
        f"file://execution/17/result/a/{SHA}",
    ],
)
def test_what_is_no_ref_is_refused(text: str) -> None:
    with pytest.raises(RequestRejected, match="is not a result ref"):
        parse_ref(text)


MOMENT = st.integers(0, 1_000)
MAYBE = st.none() | MOMENT


@pytest.mark.parametrize(
    ("scope", "expires_at", "ended_at", "root_ended_at", "until"),
    [
        ("step", None, 50, 50, 150),
        ("execution", None, 50, 50, 150),
        ("execution", None, 50, None, 150),  # a child's own results go by the child
        ("execution", None, 50, 80, 150),
        ("workflow", None, 50, 80, 180),
        ("workflow", None, 50, 50, 150),
        ("workflow", None, 50, None, None),  # the root still runs
        ("permanent", None, 50, 50, None),
        # a time to live ends each of them earlier, never later
        ("step", 70, 50, 50, 70),
        ("step", 900, 50, 50, 150),
        ("workflow", 70, 50, None, 70),
        ("workflow", 900, 50, 80, 180),
        ("permanent", 900, 50, 50, 900),
        # … and never while the execution runs
        ("step", 10, 50, 50, 50),
        ("step", 10, None, None, None),
        ("permanent", 10, None, None, None),
        ("execution", None, None, None, None),
        ("workflow", None, None, None, None),
    ],
)
def test_the_rules(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, until: int | None
) -> None:
    assert kept_until(scope, expires_at, ended_at, root_ended_at, 100) == until


@given(scope=st.sampled_from(SCOPES), expires_at=MAYBE, ended_at=MAYBE, root_ended_at=MAYBE, keep=MOMENT)
def test_nothing_goes_before_its_execution_ended_and_a_ttl_only_shortens(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, keep: int
) -> None:
    until = kept_until(scope, expires_at, ended_at, root_ended_at, keep)
    without = kept_until(scope, None, ended_at, root_ended_at, keep)
    if ended_at is None:
        assert until is None
    elif until is not None:
        assert until >= min(ended_at, root_ended_at if scope == "workflow" and root_ended_at is not None else ended_at)
    if without is not None:
        assert until is not None
        assert until <= without
