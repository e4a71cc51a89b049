"""Reads stored data for templates. Recently read values stay in memory, up to `results.cache_bytes`."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from threading import Lock
from typing import Any, Protocol, TypeVar

import msgspec

from arclog.expr import MISSING, Stored
from arclog.expr.stored import is_json
from arclog.model.errors import InvariantBroken, ResultStoreAway, ResultUnavailable
from arclog.model.refs import LIST, as_ref, kept_elsewhere, parse_ref
from arclog.plan.reads import Path, value_at
from arclog.ports.results import Results
from arclog.worker.loop_results import STORED_ITEM, LoopResults

# Templates are evaluated synchronously, and stored data is read asynchronously. A sync reader connects the two.


T = TypeVar("T")


class SyncReader(Protocol):
    async def run(self, compute: Callable[[], T]) -> T:
        """Run a computation that may call `wait`."""

    def wait(self, reading: Coroutine[Any, Any, T]) -> T:
        """Return the value of a coroutine. Must be called inside `run`."""


class ThreadReader:
    """Computes in a thread, so that reading does not block the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    async def run(self, compute: Callable[[], T]) -> T:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        return await asyncio.to_thread(compute)

    def wait(self, reading: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or threading.get_ident() == self._thread:
            # On the event loop itself it would deadlock.
            reading.close()
            raise InvariantBroken("stored data was read outside a synchronous reader")
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result()


class DirectReader:
    """For stores whose reads never wait, such as one in memory, and for simulations: everything runs directly."""

    async def run(self, compute: Callable[[], T]) -> T:
        return compute()

    def wait(self, reading: Coroutine[Any, Any, T]) -> T:
        try:
            reading.send(None)
        except StopIteration as over:
            value: T = over.value
            return value
        reading.close()
        raise InvariantBroken("a direct reader cannot wait for data")


class Fetching:
    """Reads stored content of one tenant by reference. An error names the store if the content is in another one."""

    def __init__(self, results: Results, tenant: str) -> None:
        self._results = results
        self._tenant = tenant

    async def chunks(self, ref: Mapping[str, Any], sha256: str) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._results.chunks(self._tenant, sha256):
                yield chunk
        except ResultUnavailable as problem:
            raise self._meant(ref, problem) from problem

    async def items(self, ref: Mapping[str, Any], sha256: str, first: int, last: int) -> list[Any]:
        try:
            return await self._results.items(self._tenant, sha256, first, last)
        except ResultUnavailable as problem:
            raise self._meant(ref, problem) from problem

    def _meant(self, ref: Mapping[str, Any], problem: ResultUnavailable) -> ResultUnavailable:
        store = ref.get("store") or self._results.name
        if store == self._results.name or isinstance(problem, ResultStoreAway):
            return problem
        return kept_elsewhere(str(ref.get("ref")), store, self._results.name)


class ReadLately:
    """Recently read values, shared by all commands of one worker. Callers must not change them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        #: held during a read, so that a value that several iterations need is read once
        self.lock = Lock()

    def get(self, name: str) -> Any:
        entry = self._values.get(name)
        if entry is None:
            return MISSING
        self._values.move_to_end(name)
        return entry[1]

    def put(self, name: str, size: int, value: Any) -> None:
        if size > self._max_bytes:
            return
        self._values[name] = (size, value)
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (freed, _) = self._values.popitem(last=False)
            self._bytes -= freed


class StoredReader:
    """The `expr.Reader` of one command."""

    opens_files = False

    def __init__(
        self,
        results: Results,
        tenant: str,
        sync_reader: SyncReader,
        kept: ReadLately,
        loops: LoopResults,
        max_bytes: int,
    ) -> None:
        """`max_bytes` is the maximum size of a value that a template reads as a whole."""
        self._fetching = Fetching(results, tenant)
        self._sync_reader = sync_reader
        self._kept = kept
        self._loops = loops
        self.max_bytes = max_bytes

    def whole(self, ref: Mapping[str, Any]) -> Any:
        if ref["kind"] == "item":
            items = self._sync_reader.wait(self.part(ref["of"], ref["index"], ref["index"] + 1))
            if not items:
                raise ResultUnavailable(f"{ref['of'].get('ref')} has no item {ref['index']}")
            return items[0].plain() if isinstance(items[0], Stored) else items[0]
        name, size, rows, listed = self._described(ref)
        with self._kept.lock:
            value = self._kept.get(name)
            if value is not MISSING:
                return value
            if size > self.max_bytes:
                raise ResultUnavailable(
                    f"{ref.get('ref') or name} is {size} bytes; a template reads at most {self.max_bytes} as a whole "
                    "(results.read_max_bytes): loop over it, or name a part of it"
                )
            if listed:
                value = [self._opened(ref, item) for item in self._sync_reader.wait(self._items(ref, name, 0, rows))]
            else:
                value = self._decoded(ref, self._sync_reader.wait(self._content(ref, name)))
            self._kept.put(name, size, value)
            return value

    def item(self, ref: Mapping[str, Any], index: int) -> Any:
        name, size, rows, _ = self._described(ref)
        index += rows if index < 0 else 0
        if not 0 <= index < rows:
            return MISSING
        if size <= self.max_bytes // 8:
            return self.whole(ref)[index]
        items = self._sync_reader.wait(self._items(ref, name, index, index + 1))
        if not items:
            raise ResultUnavailable(f"{ref.get('ref') or name} has no item {index} of {rows}")
        return self._opened(ref, items[0])

    def length(self, value: Any) -> int:
        """Return the number of items of a list, stored or not."""
        return self._described(value.ref)[2] if isinstance(value, Stored) else len(value)

    async def part(self, ref: Mapping[str, Any], first: int, last: int) -> list[Any]:
        """Return the items [first, last) of a list, for a loop over them."""
        if ref["kind"] == "loop":
            content = await self._loops.manifest(ref)
            return [self._opened(ref, item) for item in await self._items(ref, content.sha256, first, last)]
        return await self._items(ref, parse_ref(ref["ref"]).sha256, first, last)

    def can_look_into(self, ref: Mapping[str, Any]) -> bool:
        """Return whether parts of stored data can be read: items of a list always, other data up to `max_bytes`."""
        return bool(ref["kind"] == LIST or ref["meta"]["bytes"] <= self.max_bytes)

    async def at(self, ref: Mapping[str, Any], path: Path) -> Any:
        """Return the value at a path of stored data, or MISSING."""
        known = as_ref(ref)
        sha256 = parse_ref(known.ref).sha256
        if known.kind == LIST:
            index, rows = path[0], known.meta.rows or 0
            if not isinstance(index, int) or not -rows <= index < rows:
                return MISSING
            index %= rows
            return value_at((await self._items(ref, sha256, index, index + 1))[0], path[1:], MISSING)
        if not is_json(known.meta.content_type):
            return MISSING
        return value_at(self._decoded(ref, await self._content(ref, sha256)), path, MISSING)

    def _described(self, ref: Mapping[str, Any]) -> tuple[str, int, int, bool]:
        """Return the content hash, the size in bytes, the number of items, and whether it is a list."""
        if ref["kind"] == "loop":
            content = self._sync_reader.wait(self._loops.manifest(ref))
            return content.sha256, content.bytes, content.rows or 0, True
        known = as_ref(ref)
        return parse_ref(known.ref).sha256, known.meta.bytes, known.meta.rows or 0, known.kind == LIST

    def _opened(self, ref: Mapping[str, Any], item: Any) -> Any:
        """Decode an item of a loop's results, which may itself be stored data."""
        if ref["kind"] != "loop":
            return item
        mark, value = item
        return Stored(value, self) if mark == STORED_ITEM else value

    def _decoded(self, ref: Mapping[str, Any], body: bytes) -> Any:
        kind = ref["meta"].get("content_type", "application/json")
        if is_json(kind):
            try:
                return msgspec.json.decode(body)
            except (msgspec.DecodeError, RecursionError) as problem:
                raise ResultUnavailable(f"{ref['ref']} is not JSON: {problem}") from None
        if kind.startswith("text/"):
            return body.decode("utf-8", "replace")
        raise ResultUnavailable(f"{ref['ref']} is {kind}, which a template cannot read; give it to a task by reference")

    async def _content(self, ref: Mapping[str, Any], sha256: str) -> bytes:
        return b"".join([chunk async for chunk in self._fetching.chunks(ref, sha256)])

    async def _items(self, ref: Mapping[str, Any], sha256: str, first: int, last: int) -> list[Any]:
        return await self._fetching.items(ref, sha256, first, last)
