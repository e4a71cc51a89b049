"""`ports.results` over HTTP.

Content is collected here first, in memory and then in a file, and sent to the server with its hash when it is
committed: a server that is unavailable for a while only delays it, and never receives partial content. Content that is
read completely is verified here.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import IO, Any

from arclog.client.calls import address_of
from arclog.client.transport import Transport, decoded, is_passing
from arclog.model.data.lines import encoded
from arclog.model.errors import ArclogError, InvariantBroken, ResultTooLarge, ResultUnavailable
from arclog.operations import workers as ops
from arclog.ports.results import Content, ResultWriter, StoredBlob

#: Content up to this size stays in memory until it is sent.
_IN_MEMORY = 1 << 20
_PIECE = 256 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RemoteResults:
    """Implements `ports.results.Results`."""

    def __init__(self, transport: Transport, name: str, max_bytes: int) -> None:
        """`name` and `max_bytes` are the server's."""
        self.name = name
        self.max_bytes = max_bytes
        self.transport = transport

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        return RemoteWriter(self, tenant, listed, content_type)

    async def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        _check_name(sha256)
        at = max(start, 0)
        whole = hashlib.sha256() if at == 0 and end is None else None
        while True:
            path, query = address_of(ops.DOWNLOAD, ops.DownloadContent(tenant, sha256, at, end))
            try:
                async with self.transport.connection.streamed(path, params=query) as answer:
                    async for chunk in answer.aiter_raw():
                        at += len(chunk)
                        if whole is not None:
                            whole.update(chunk)
                        yield chunk
                break
            except ArclogError as problem:
                if not is_passing(problem):
                    raise
                # Received data is valid; the rest is requested when the server responds again.
                self.transport.failed(problem)
                await self.find(tenant, sha256)
        if whole is not None and whole.hexdigest() != sha256:
            raise ResultUnavailable(f"the stored result {sha256[:80]} was changed in transit; run it again")

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        _check_name(sha256)
        items: list[Any] = []
        first = max(first, 0)
        while True:
            page = await self.transport.call(ops.ITEMS, ops.ItemsOf(tenant, sha256, first + len(items), last))
            items += page.items
            if not page.more:
                return items

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        if not _SHA256.fullmatch(sha256):
            return None
        stored: StoredBlob | None = await self.transport.call(ops.ABOUT, ops.OfContent(tenant, sha256))
        return stored

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        if not _SHA256.fullmatch(sha256):
            return False
        asked = ops.RemoveContent(tenant, sha256, stored_at)
        return bool((await self.transport.sent(ops.REMOVE, asked)).removed)

    async def all(self) -> AsyncIterator[StoredBlob]:
        async with self.transport.connection.streamed(ops.EVERYTHING.path) as answer:
            async for line in answer.aiter_lines():
                yield decoded(line.encode(), ops.EVERYTHING)

    async def leftovers(self, older_than: int) -> int:
        return (await self.transport.sent(ops.LEFTOVERS, ops.OlderThan(older_than))).removed

    async def close(self) -> None:
        """The owner of the connection closes it."""


class RemoteWriter:
    """See `ports.results.ResultWriter`."""

    def __init__(self, results: RemoteResults, tenant: str, listed: bool, content_type: str) -> None:
        self._results = results
        self._tenant = tenant
        self._listed = listed
        self._content_type = content_type
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by commit or abandon
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._rows = 0
        #: the reason why it can no longer be used; '' while it can
        self._over = ""

    async def write(self, chunk: bytes) -> None:
        if self._listed:
            raise TypeError("a list takes items, not bytes")
        self._check()
        try:
            await self._take(chunk)
        except BaseException as problem:
            self._fail(problem)
            raise

    async def add(self, items: Sequence[Any]) -> None:
        if not self._listed:
            raise TypeError("bytes were begun, not a list")
        self._check()
        try:
            for lines, rows in await asyncio.to_thread(encoded, items, self._rows, _PIECE):
                self._rows += rows
                await self._take(lines)
        except BaseException as problem:
            self._fail(problem)
            raise

    async def commit(self) -> Content:
        self._check()
        try:
            asked = ops.UploadContent(self._tenant, self._hash.hexdigest(), self._listed, self._content_type)
            path, query = address_of(ops.UPLOAD, asked)
            transport = self._results.transport
            send = transport.connection.sent
            answer = await transport.until_answered(lambda: send(path, self._pieces(), params=query))
            content = decoded(answer, ops.UPLOAD)
        except BaseException as problem:
            self._fail(problem)
            raise
        self._end("it is committed")
        return content

    async def abandon(self) -> None:
        if not self._over:
            self._end("it was abandoned")

    async def _take(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > self._results.max_bytes:
            raise ResultTooLarge(
                f"the result has more than {self._results.max_bytes} bytes; nothing of it is kept: make it smaller, or "
                "raise ARCLOG_RESULTS_MAX_BYTES on the server"
            )
        self._hash.update(chunk)
        if self._bytes > _IN_MEMORY:
            try:
                await asyncio.to_thread(self._file.write, chunk)
            except OSError as problem:
                raise ResultUnavailable(
                    f"a result could not be gathered in {tempfile.gettempdir()} ({problem.strerror}), and nothing of it is "
                    "kept; free space there, or set TMPDIR"
                ) from problem
        else:
            self._file.write(chunk)

    async def _pieces(self) -> AsyncIterator[bytes]:
        self._file.seek(0)
        while piece := await asyncio.to_thread(self._file.read, _PIECE):
            yield piece

    def _check(self) -> None:
        if self._over:
            raise InvariantBroken(f"nothing can be added to a result or committed: {self._over}")

    def _fail(self, problem: BaseException) -> None:
        self._end(f"it failed before ({type(problem).__name__}: {problem})")

    def _end(self, why: str) -> None:
        self._over = why
        self._file.close()


def _check_name(sha256: str) -> None:
    """Servers accept no other names, so there is no such content."""
    if not _SHA256.fullmatch(sha256):
        raise ResultUnavailable(f"there is no stored result {sha256[:80]!r}: a name is 64 hexadecimal digits")
