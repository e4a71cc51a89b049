"""Result refs: what is one, and what only looks like one."""

from __future__ import annotations

import pytest

from arclog.model.errors import RequestRejected
from arclog.model.refs import RefMeta, ResultRef, as_ref, parse_ref, ref_text

SHA = "0123456789abcdef" * 4


def test_a_ref_comes_back_as_it_was() -> None:
    text = ref_text(17, "fetch.page", SHA)
    assert text == f"noetl://execution/17/result/fetch.page/{SHA}"
    parsed = parse_ref(text)
    assert (parsed.execution_id, parsed.name, parsed.sha256) == (17, "fetch.page", SHA)
    ref = ResultRef("list", "files", text, RefMeta(10, SHA, rows=3))
    assert as_ref(ref.as_dict()) == ref


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
    with pytest.raises(RequestRejected, match="is no result ref"):
        parse_ref(text)
