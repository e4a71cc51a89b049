"""Rules of the catalog: versions by content and forever; a run pins one; what is put away starts no run."""

from __future__ import annotations

import pytest

from arclog.model.errors import NotFound, PlaybookError, RequestRejected
from arclog.ports.views.api import Api, ExecuteRequest, RegisterRequest
from arclog.testing.conformance.api.base import Rules, over


def _playbook(result: int, path: str = "team/answer") -> str:
    return (
        f"metadata: {{name: answer, path: {path}}}\nworkflow: [{{step: start, tool: {{kind: noop, data: {result}}}}}]\n"
    )


async def _register(api: Api, result: int, path: str = "team/answer") -> int:
    return (await api.register(RegisterRequest(_playbook(result, path)))).version


class CatalogRules(Rules):
    async def test_new_content_is_the_next_version_and_known_content_the_one_that_it_was(self, api: Api) -> None:
        first = await api.register(RegisterRequest(_playbook(1), file="answer.yaml"))
        assert (first.path, first.version, first.created) == ("team/answer", 1, True)
        again = await api.register(RegisterRequest(_playbook(1)))
        assert (again.version, again.created) == (1, False)
        assert await _register(api, 2) == 2
        assert [each.version for each in await api.versions("team/answer")] == [2, 1]
        assert [each.version for each in await api.versions("team/answer", before=2)] == [1]
        assert [each.version for each in await api.versions("team/answer", limit=1)] == [2]
        assert (await api.registered("team/answer")).source == _playbook(2)
        assert (await api.registered("team/answer", 1)).source == _playbook(1)

    async def test_a_path_is_run_in_its_newest_or_a_named_version(self, api: Api) -> None:
        for result in (10, 20):
            await _register(api, result)
        for version, result in ((0, 20), (1, 10), (2, 20)):
            started = await api.execute(ExecuteRequest(path="team/answer", version=version))
            await over(api, started.execution_id)
            assert (await api.summary(started.execution_id)).result == result
        assert {run.version for run in await api.list(path="team/answer")} == {"1", "2"}

    async def test_paths_are_listed_in_order_and_in_pages(self, api: Api) -> None:
        for path in ("b/one", "a/two", "a/one", "odd path/ü&?=%2F#"):
            await _register(api, 1, path)
        assert [each.path for each in await api.catalog()] == ["a/one", "a/two", "b/one", "odd path/ü&?=%2F#"]
        assert [each.path for each in await api.catalog(prefix="a/")] == ["a/one", "a/two"]
        assert [each.path for each in await api.catalog(after="a/one", limit=2)] == ["a/two", "b/one"]
        assert (await api.registered("odd path/ü&?=%2F#")).version == 1

    async def test_two_versions_are_compared(self, api: Api) -> None:
        for result in (1, 2):
            await _register(api, result)
        told = await api.difference("team/answer", 1)
        assert (told.path, told.older, told.newer) == ("team/answer", 1, 2)
        changed = [line for line in told.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        assert [line[0] for line in changed] == ["-", "+"]
        assert (await api.difference("team/answer", 2, 2)).diff == ""
        with pytest.raises(NotFound):
            await api.difference("team/answer", 7)

    async def test_what_is_put_away_is_not_listed_and_starts_no_run_until_it_is_brought_back(self, api: Api) -> None:
        await _register(api, 1)
        assert (await api.archive("team/answer")).archived_at is not None
        assert await api.catalog() == []
        assert [each.path for each in await api.catalog(archived=True)] == ["team/answer"]
        with pytest.raises(RequestRejected):
            await api.execute(ExecuteRequest(path="team/answer"))
        assert (await api.archive("team/answer", archived=False)).archived_at is None
        started = await api.execute(ExecuteRequest(path="team/answer"))
        assert (await over(api, started.execution_id)).state == "COMPLETED"

    async def test_what_is_not_registered_is_not_found_and_what_cannot_run_is_not_registered(self, api: Api) -> None:
        for call in (
            api.registered("no/such"),
            api.versions("no/such"),
            api.difference("no/such", 1),
            api.archive("no/such"),
            api.execute(ExecuteRequest(path="no/such")),
        ):
            with pytest.raises(NotFound):
                await call
        bad = "metadata: {name: bad}\nworkflow: [{step: start, tool: {kind: nosuch}}]\n"
        with pytest.raises(PlaybookError) as caught:
            await api.register(RegisterRequest(bad, file="bad.yaml"))
        assert (caught.value.source, caught.value.file) == (bad, "bad.yaml")
        assert await api.catalog() == []
