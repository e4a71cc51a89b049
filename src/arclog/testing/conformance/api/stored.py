"""Rules of stored results: listed by the run that made them, read whole or in part, gone only when gc says so."""

from __future__ import annotations

import hashlib

import pytest

from arclog.model.errors import NotFound, RequestRejected
from arclog.ports.views.api import Api
from arclog.testing.conformance.api.base import Rules, done

_STORING = """\
metadata: {name: storing}
workflow:
  - step: start
    tool:
      - {name: many, kind: python, code: "result = list(range(20_000))"}
      - {name: more, kind: python, code: "result = {'text': 'x' * 200_000}"}
"""


async def _read(api: Api, ref: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in api.content(ref, start, end)])


class StoredRules(Rules):
    async def test_a_run_lists_what_it_stored_and_each_is_read_whole_or_in_part(self, api: Api) -> None:
        execution_id = await done(api, _STORING)
        many, more = await api.results(execution_id)
        assert (many.name, many.rows, more.rows) == ("start.many", 20_000, None)
        assert await api.results(execution_id, limit=1) == [many]
        assert await api.results(execution_id, after=many.seq) == [more]
        whole = await _read(api, many.ref)
        assert (len(whole), hashlib.sha256(whole).hexdigest()) == (many.bytes, many.sha256)
        assert whole.split(b"\n")[:3] == [b"0", b"1", b"2"]
        size = len(whole)
        for start, end in ((0, 10), (5, None), (7, 8), (3, 3), (size - 1, None), (size - 5, size + 100), (0, size)):
            assert await _read(api, many.ref, start, end) == whole[start:end], (start, end)

    async def test_one_result_is_described(self, api: Api) -> None:
        execution_id = await done(api, _STORING)
        many, _ = await api.results(execution_id)
        told = await api.result(many.ref)
        assert (told.ref, told.bytes, told.sha256) == (many.ref, many.bytes, many.sha256)
        assert told.stored_bytes
        assert told.preview

    async def test_a_ref_that_nobody_has_is_not_found_and_one_that_is_none_is_refused(self, api: Api) -> None:
        execution_id = await done(api, _STORING)
        unknown = f"noetl://execution/{execution_id}/result/start.many/{'0' * 64}"
        for wrong, kind in ((unknown, NotFound), ("noetl://execution/../../etc/passwd", RequestRejected)):
            with pytest.raises(kind):
                await api.result(wrong)
            with pytest.raises(kind):
                await _read(api, wrong)
            with pytest.raises(kind):
                await _read(api, wrong, 1, 1)

    async def test_gc_removes_nothing_that_is_still_needed(self, api: Api) -> None:
        execution_id = await done(api, _STORING)
        for dry_run in (True, False):
            did = await api.collect(dry_run=dry_run)
            assert (did.dry_run, did.results, did.contents) == (dry_run, 0, 0)
        assert len(await _read(api, (await api.results(execution_id))[0].ref)) > 0
