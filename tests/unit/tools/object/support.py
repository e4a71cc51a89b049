"""What the tests of kind object share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from arclog.model.outcome import Outcome, TaskError
from arclog.model.refs import DATA, LIST, RefMeta, ResultRef, ref_text
from arclog.ports.results import Content
from arclog.ports.secrets import Credential
from arclog.results.memory import MemoryResults
from arclog.testing.tools import Recorder, task_context
from arclog.tools.object.kind import ObjectConfig, ObjectTool

KEYS = Credential("aws", "secret", {"access_key_id": "AK", "secret_access_key": "SK"}, ("SK",))

#: The scratch folder of a tool that makes no files there.
NOWHERE = Path("/nonexistent/scratch")


class Runner:
    """Runs tasks with one tool, one result store and, by default, one server."""

    def __init__(self, tool: ObjectTool, **defaults: Any) -> None:
        self.tool = tool
        self.defaults = defaults
        self.auth: Credential | None = KEYS
        self.results = MemoryResults()
        self.recorder = Recorder()
        self.inline_max_bytes = 1000
        #: what a name begins with
        self.base = ""

    async def __call__(self, action: str, url: str, **config: Any) -> Outcome:
        typed = msgspec.convert({"action": action, "url": url, **self.defaults, **config}, ObjectConfig)
        context = task_context(
            self.recorder, results=self.results, inline_max_bytes=self.inline_max_bytes, auth=self.auth
        )
        return await self.tool.run(typed, context)

    async def data(self, action: str, url: str, **config: Any) -> Any:
        outcome = await self(action, url, **config)
        assert outcome.error is None, outcome.error
        return outcome.result["data"]

    async def failure(self, action: str, url: str, **config: Any) -> TaskError:
        outcome = await self(action, url, **config)
        assert outcome.error is not None, outcome.result
        return outcome.error

    async def stored(self, outcome: Outcome) -> bytes:
        return b"".join([chunk async for chunk in self.results.chunks("default", outcome.stored.sha256)])

    async def ref(self, body: bytes | list[Any], content_type: str = "application/json") -> ResultRef:
        """A stored result, as a template would hand it to the task."""
        writer = self.results.writer("default", listed=isinstance(body, list), content_type=content_type)
        if isinstance(body, list):
            await writer.add(body)
        else:
            await writer.write(body)
        return ref_of(await writer.commit())


def ref_of(content: Content) -> ResultRef:
    meta = RefMeta(content.bytes, content.sha256, content.content_type, rows=content.rows)
    return ResultRef(DATA if content.rows is None else LIST, "memory", ref_text(1, "made", content.sha256), meta)
