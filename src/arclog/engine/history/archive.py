"""Runs as files: a ZIP archive with the log, the plan, the playbook and the stored results of one run.

Invariants: every part has its checksum in the manifest, and the manifest has its own. An import checks all of them
before it writes anything. Then it stores the results (gc removes unreferenced content), registers the plan and appends
the log in one transaction: the run is imported completely or not at all.

An imported run keeps its ids. It is read-only (`is_imported`), and the engine accepts no input for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, BinaryIO, cast

import msgspec
from msgspec import Meta, Struct

from arclog import __version__
from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.engine.commits.batch import approvals_of, projected
from arclog.engine.commits.engine import Engine
from arclog.engine.history.recorded_runs import read_log
from arclog.model.config.settings import Settings
from arclog.model.data.json_data import decoded_size
from arclog.model.errors import Conflict, ExpressionError, InvariantBroken, NewerLog, RequestRejected, ResultUnavailable
from arclog.model.events import LIFTS, REGISTRY, Event, is_newer, lifted
from arclog.model.ids import LATEST, MAX_ID, is_uuid, minted_at_ms, parse_id, timestamp
from arclog.plan import net
from arclog.plan.cycles import TooMuchWork
from arclog.plan.program import Program
from arclog.plan.reach import Reach
from arclog.ports.results import Results
from arclog.ports.storage.store import (
    IMPORT_PREFIX,
    Append,
    ExecutionRecord,
    NewExecution,
    RunOrigin,
    Scope,
    StoredEvent,
    is_imported,
)
from arclog.ports.storage.stored_results import ResultRecord
from arclog.ports.views.api import Origin
from arclog.ports.views.history import Imported

#: The version of the archive's layout. A newer one is refused.
FORMAT = 1
#: Path prefix of the playbooks of imported runs in the catalog, separate from local playbooks.
FOLDER = "imported/"

_MANIFEST, _MANIFEST_SUM, _LOG = "manifest.json", "manifest.sha256", "log.jsonl"
_PLAN, _PLAYBOOK, _RESULTS = "plan.json", "playbook.yaml", "results/"
_CHUNK = 256 * 1024
#: A larger export is assembled on the disk.
_IN_MEMORY = 8 * 1024 * 1024
#: Maximum size of a manifest: a line for each stored result.
_LARGEST_MANIFEST = 32 * 1024 * 1024
#: Maximum number of files in an archive, and the signature of a directory entry.
_MOST_ENTRIES = 100_000
_ENTRY = b"PK\x01\x02"
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: Upper estimate of the memory of a program per byte of its encoded plan.
_PLAN_FACTOR = 11
_LONGEST_PATH = 900
#: Limits in a plan, and the settings that they must not exceed.
_CEILINGS = {
    **{
        field: f"limits.{field}"
        for field in (
            "max_payload_bytes",
            "max_task_runs",
            "max_iterations",
            "max_events",
            "max_step_runs",
            "max_loop_results_bytes",
        )
    },
    "inline_max_bytes": "limits.max_payload_bytes",
    "max_expr_work": "expr.max_work",
    "max_expr_bytes": "expr.max_bytes",
}
#: Number of list items that are read at once.
_ITEMS = 100
#: A fixed time, so that the file is always the same.
_TIME = (2024, 1, 1, 0, 0, 0)


class Part(Struct, frozen=True):
    """A file in the archive."""

    name: str
    bytes: Annotated[int, Meta(ge=0)]
    sha256: str


class Content(Struct, frozen=True):
    """A stored result in the archive."""

    sha256: str
    content_type: str
    is_list: bool


class Manifest(Struct, frozen=True, omit_defaults=True):
    """The contents of an archive."""

    format: int
    #: the release that wrote it
    arclog: str
    exported_at: str
    execution_id: str
    run_id: str
    name: str
    path: str
    version: int
    #: hash of the plan
    plan: str
    scope: str
    created_at: Annotated[int, Meta(ge=0, le=LATEST)]
    events: int
    state: str
    parts: list[Part] = []
    results: list[Content] = []
    #: names of results that were removed before the export
    missing: list[str] = []


class Line(Struct, frozen=True, array_like=True):
    """An event in the archive: its id, the event, and for one from outside the hash of its content."""

    event_id: Annotated[int, Meta(gt=0, le=MAX_ID)]
    event: Event
    digest: str = ""


class _Format(Struct):
    """The part of a manifest that shows whether the rest can be read."""

    format: int = 0
    arclog: str = ""


_LINE = msgspec.json.Decoder(Line)
_ENCODE = msgspec.json.Encoder().encode


# -- export -----------------------------------------------------------------------------------------------------------------


async def exported(engine: Engine, results: Results, record: ExecutionRecord) -> AsyncIterator[bytes]:
    """Yield a run as the bytes of a file."""
    with SpooledTemporaryFile(_IN_MEMORY) as file:
        await write_run(engine, results, record, cast("BinaryIO", file))
        file.seek(0)
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


async def write_run(engine: Engine, results: Results, record: ExecutionRecord, target: BinaryIO) -> Manifest:
    """Write a run to a file."""
    plan = await engine.store.plan(record.new.plan)
    if plan is None:
        raise RequestRejected(f"the plan of run {record.execution_id} is not in the store")
    events = await read_log(engine, record.execution_id, record.head)
    contents, missing = await _contents(engine, results, record)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        parts = [
            await _write(archive, _LOG, _lines(events, await _digests(engine, record.execution_id, events))),
            await _write(archive, _PLAN, _once(plan.body)),
            await _write(archive, _PLAYBOOK, _once(plan.source.encode())),
        ]
        kept: list[Content] = []
        for content in contents:
            try:
                chunks = results.chunks(record.new.scope.tenant, content.sha256)
                parts.append(await _write(archive, _RESULTS + content.sha256, chunks))
            except ResultUnavailable as problem:
                raise RequestRejected(
                    f"a stored result of run {record.execution_id} cannot be read: {problem}"
                ) from problem
            kept.append(Content(content.sha256, content.content_type, content.rows is not None))
        manifest = Manifest(
            format=FORMAT,
            arclog=__version__,
            exported_at=timestamp(engine.clock.now()),
            execution_id=str(record.execution_id),
            run_id=record.new.run_id,
            name=record.new.name,
            path=record.new.path.removeprefix(FOLDER) if is_imported(record.new) else record.new.path,
            version=record.new.version,
            plan=record.new.plan,
            scope=record.new.scope.label,
            created_at=record.new.created_at,
            events=len(events),
            state=record.now.state,
            parts=parts,
            results=kept,
            missing=missing,
        )
        body = msgspec.json.format(_ENCODE(manifest), indent=1)
        await _write(archive, _MANIFEST, _once(body))
        await _write(archive, _MANIFEST_SUM, _once(hashlib.sha256(body).hexdigest().encode() + b"\n"))
    return manifest


async def _contents(engine: Engine, results: Results, record: ExecutionRecord) -> tuple[list[ResultRecord], list[str]]:
    """Return the stored results of the run, each content once, and the names of missing ones."""
    contents: dict[str, ResultRecord] = {}
    missing: list[str] = []
    after = 0
    while page := await engine.store.results(record.execution_id, after=after):
        for result in page:
            if result.sha256 in contents:
                continue
            gone = result.removed_at is not None or await results.find(record.new.scope.tenant, result.sha256) is None
            if gone:
                missing.append(result.name)
            else:
                contents[result.sha256] = result
        after = page[-1].seq
    return list(contents.values()), sorted(set(missing))


async def _digests(engine: Engine, execution_id: int, events: Sequence[StoredEvent]) -> dict[int, str]:
    own = [event.event_id for event in events if event.event.own_id]
    return {record.event_id: record.digest for record in await engine.store.ingested(execution_id, own)} if own else {}


async def _lines(events: Sequence[StoredEvent], digests: dict[int, str]) -> AsyncIterator[bytes]:
    for at in range(0, len(events), 1000):
        part = events[at : at + 1000]
        yield b"".join(
            _ENCODE(Line(stored.event_id, stored.event, digests.get(stored.event_id, ""))) + b"\n" for stored in part
        )


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _write(archive: zipfile.ZipFile, name: str, chunks: AsyncIterator[bytes]) -> Part:
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    checksum, size = hashlib.sha256(), 0
    with archive.open(info, "w", force_zip64=True) as entry:
        async for chunk in chunks:
            checksum.update(chunk)
            size += len(chunk)
            await asyncio.to_thread(entry.write, chunk) if len(chunk) > _CHUNK else entry.write(chunk)
    return Part(name, size, checksum.hexdigest())


# -- import -----------------------------------------------------------------------------------------------------------------


class Archive:
    """An opened archive, whose manifest was validated."""

    def __init__(self, file: BinaryIO, max_bytes: int, max_decoded: int) -> None:
        """Raises RequestRejected."""
        self._max_decoded = max_decoded
        try:
            if _entries(file) > _MOST_ENTRIES:
                raise RequestRejected(f"the file has more than {_MOST_ENTRIES} parts")
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, EOFError) as problem:
            raise RequestRejected(f"this is not an exported run, or the file was cut off: {problem}") from problem
        body = self._read(_MANIFEST, _LARGEST_MANIFEST)
        if hashlib.sha256(body).hexdigest() != self._read(_MANIFEST_SUM, 1000).decode("ascii", "replace").strip():
            raise _damaged(_MANIFEST)
        try:
            header = msgspec.json.decode(body, type=_Format)
            if header.format > FORMAT:
                raise RequestRejected(
                    f"the file was written by a newer release (arclog {header.arclog[:40]}, format {header.format}); "
                    f"this one reads format {FORMAT}"
                )
            self.manifest = msgspec.json.decode(body, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise RequestRejected(f"the manifest of the file cannot be read: {problem}") from problem
        self._parts = {part.name: part for part in self.manifest.parts}
        total = sum(part.bytes for part in self.manifest.parts)
        if total > max_bytes:
            raise RequestRejected(f"the run takes {total} bytes; at most {max_bytes} are imported (imports.max_bytes)")
        if _PLAN in self._parts:
            self._hold(_PLAN, self._parts[_PLAN].bytes * _PLAN_FACTOR)

    def check(self) -> None:
        """Read every part and compare it with its checksum. Raises RequestRejected, which names the part."""
        for name in self._parts:
            for _ in self.chunks(name):
                pass

    def whole(self, name: str) -> bytes:
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a part. The last bytes come only after the checksum was verified."""
        part = self._parts.get(name)
        if part is None:
            raise RequestRejected(f"the file has no part {name}")
        checksum, size = hashlib.sha256(), 0
        held = b""
        if name not in self._zip.NameToInfo:
            raise RequestRejected(f"the file is damaged: part {name} is missing; export the run again")
        with _reading(name), self._open(name) as entry:
            while chunk := entry.read(_CHUNK):
                size += len(chunk)
                if size > part.bytes:
                    raise _damaged(name)
                checksum.update(chunk)
                if held:
                    yield held
                held = chunk
        if size != part.bytes or checksum.hexdigest() != part.sha256:
            raise _damaged(name)
        if held:
            yield held

    def lines(self) -> Iterator[Line]:
        taken = 0
        for line in self.lines_of(_LOG):
            taken += decoded_size(line)
            self._hold(_LOG, taken)
            try:
                yield _LINE.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
                raise RequestRejected(f"the log in the file cannot be read: {problem}") from problem

    def items(self, name: str) -> Iterator[Any]:
        """The items of a stored list."""
        for line in self.lines_of(name):
            self._hold(name, decoded_size(line))
            try:
                yield msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
                raise RequestRejected(f"part {name} of the file cannot be read: {problem}") from problem

    def lines_of(self, name: str) -> Iterator[bytes]:
        held: list[bytes] = []
        for chunk in self.chunks(name):
            first, *rest = chunk.split(b"\n")
            held.append(first)
            for line in rest:
                yield b"".join(held)
                held = [line]
        if any(held):
            raise _damaged(name)

    def _hold(self, name: str, size: int) -> None:
        if size > self._max_decoded:
            raise RequestRejected(
                f"part {name} of the file would take about {size} bytes of memory; at most {self._max_decoded} are taken "
                "(imports.max_decoded_bytes)"
            )

    def _open(self, name: str) -> IO[bytes]:
        if self._zip.getinfo(name).compress_type not in _COMPRESSIONS:
            raise zipfile.BadZipFile(f"{name} is compressed in an unknown way")
        return self._zip.open(name)

    def _read(self, name: str, most: int) -> bytes:
        with _reading(name), self._open(name) as entry:
            body = entry.read(most + 1)
        if len(body) > most:
            raise _damaged(name)
        return body


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except KeyError:
        raise RequestRejected(f"this is not an exported run: the part {name} is missing") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as problem:
        raise _damaged(name) from problem


def _entries(file: BinaryIO) -> int:
    """Return the maximum number of files in an archive; checked first, because the directory is read completely."""
    count, before = 0, b""
    file.seek(0)
    while chunk := file.read(_CHUNK):
        count += (before + chunk).count(_ENTRY)
        before = chunk[-len(_ENTRY) + 1 :]
    file.seek(0)
    return count


def _damaged(name: str) -> RequestRejected:
    return RequestRejected(f"the file is damaged: part {name} does not match its checksum; export the run again")


async def read_run(
    engine: Engine, results: Results, file: BinaryIO, scope: Scope, check: Callable[[net.Plan], None] | None = None
) -> Imported:
    """Import a run from a file. `check` raises for a plan that the caller may not import. Raises RequestRejected, Conflict."""
    limits = (engine.settings.integer(name) for name in ("imports.max_bytes", "imports.max_decoded_bytes"))
    archive = await asyncio.to_thread(Archive, file, *limits)
    await asyncio.to_thread(archive.check)
    manifest = archive.manifest
    execution_id = parse_id(manifest.execution_id, "the execution id in the file")
    _check_names(manifest, execution_id, engine.clock.now())
    key = IMPORT_PREFIX + hashlib.sha256(_ENCODE(manifest.parts)).hexdigest()
    existing_run = await engine.store.execution(execution_id)
    if existing_run is not None:
        existing = _again(existing_run, manifest, key, scope)
        await _note_missing(engine, existing_run.execution_id, manifest)
        return existing
    program, body = await asyncio.to_thread(_program, archive)
    if check is not None:
        check(program.plan)
    await asyncio.to_thread(_check_costs, program.plan, engine.settings)
    namesake = await engine.store.by_run_id(manifest.run_id)
    if namesake is not None and namesake.execution_id != execution_id:
        raise Conflict(f"another run has the runId {manifest.run_id} of the run in the file")
    lines = await asyncio.to_thread(list, archive.lines())
    state = await asyncio.to_thread(_folded, program, manifest, lines)
    origin = _origin(lines[0].event)
    for content in manifest.results:
        await _store(results, scope.tenant, archive, content)
    path = (FOLDER + manifest.path)[:_LONGEST_PATH]
    source = archive.whole(_PLAYBOOK).decode("utf-8", "replace")
    plan = await engine.store.register_plan(manifest.plan, path, body, source, engine.clock.now(), tenant=scope.tenant)
    new = NewExecution(
        run_id=manifest.run_id,
        name=manifest.name,
        path=plan.path,
        version=plan.version,
        plan=manifest.plan,
        scope=scope,
        created_at=manifest.created_at,
        idempotency_key=key,
        origin=origin,
    )
    now = projected(state, approvals_of(state))
    if state.terminal is None:
        # It is not continued here, so no duty must process it.
        now = msgspec.structs.replace(now, paused=True, approvals=0)
    append = Append(
        execution_id=execution_id,
        expected=0,
        events=[line.event for line in lines],
        base_id=lines[0].event_id,
        now=now,
        new=new,
        digests={line.event_id: line.digest for line in lines if line.digest},
        ids=[line.event_id for line in lines],
    )
    try:
        await engine.store.append(append)
    except Conflict:  # a concurrent import of the same file was faster
        existing_run = await engine.store.execution(execution_id)
        if existing_run is None:
            raise
        return _again(existing_run, manifest, key, scope)
    await _note_missing(engine, execution_id, manifest)
    return Imported(manifest.execution_id, manifest.run_id, len(lines), len(manifest.results), manifest.missing)


async def _note_missing(engine: Engine, execution_id: int, manifest: Manifest) -> None:
    """Record results that the file does not have as removed, as they were where the run was exported."""
    if not manifest.missing:
        return
    in_file = {content.sha256 for content in manifest.results}
    after = 0
    while page := await engine.store.results(execution_id, after=after):
        gone = [result for result in page if result.sha256 not in in_file and result.removed_at is None]
        if gone:
            await engine.store.remove_results(gone, engine.clock.now())
        after = page[-1].seq


def _again(record: ExecutionRecord, manifest: Manifest, key: str, scope: Scope) -> Imported:
    if record.new.scope.tenant != scope.tenant:  # the importer cannot open it
        raise Conflict(
            f"another run of this store has the id of the run in the file, {record.execution_id}; import it into another store"
        )
    if record.new.idempotency_key != key or record.new.scope != scope:
        raise Conflict(f"run {record.execution_id} is in this store already and is not the same import; open it there")
    return Imported(
        manifest.execution_id, manifest.run_id, record.head, len(manifest.results), manifest.missing, created=False
    )


def _program(archive: Archive) -> tuple[Program, bytes]:
    body = archive.whole(_PLAN)
    if net.digest(body) != archive.manifest.plan:
        raise _damaged(_PLAN)
    try:
        plan = net.decode(body)
        # Work on a plan grows with the square of the steps that have one name.
        if len({step.name for step in plan.steps}) < len(plan.steps):
            raise RequestRejected("the plan in the file has two steps with the same name")
        return Program(plan, archive.manifest.plan), body
    except NewerLog as problem:
        raise _newer(archive.manifest, str(problem)) from problem
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ExpressionError) as problem:
        raise RequestRejected(f"the plan in the file cannot be read: {problem}") from problem


def _check_names(manifest: Manifest, execution_id: int, now: int) -> None:
    """Refuse an id of a future time, which a run here may get later."""
    if minted_at_ms(execution_id) * 1000 > now:
        raise RequestRejected(
            f"the id of the run in the file, {execution_id}, is of a moment that has not come; compare the clocks of both machines"
        )
    if not is_uuid(manifest.run_id):
        raise RequestRejected("the runId in the file is not a UUID")
    for field, text in (("name", manifest.name), ("path", manifest.path)):
        if not text or not text.isprintable():
            raise RequestRejected(
                f"the {field} of the run in the file is empty, or has characters that cannot be shown"
            )


def _check_costs(plan: net.Plan, settings: Settings) -> None:
    """Apply the limits of this machine to a plan in a file, which was compiled elsewhere or forged. It can be run here,
    by a fork and from the catalog.
    """
    for field, name in _CEILINGS.items():
        asked, most = getattr(plan.limits, field), settings.integer(name)
        if asked > most:
            raise RequestRejected(
                f"the plan in the file has {field} = {asked}, and this machine allows {most} ({name}); raise the setting to "
                "import the run"
            )
    try:
        Reach(plan.entry, plan.steps, settings.integer("playbook.max_join_work"))
    except TooMuchWork:
        raise RequestRejected("the joins of the plan in the file take too long to work out") from None
    except (LookupError, ValueError) as problem:
        raise RequestRejected(f"the plan in the file cannot be read: {problem!r}") from problem


def _newer(manifest: Manifest, problem: str) -> RequestRejected:
    return RequestRejected(
        f"the file was written by a newer release (arclog {manifest.arclog}; this one is {__version__}): {problem}; "
        "update arclog to import it"
    )


def _folded(program: Program, manifest: Manifest, lines: Sequence[Line]) -> State:
    """Return the state at the end of the log. Raises RequestRejected if the log cannot be folded."""
    state = State(execution_id=int(manifest.execution_id))
    if not lines or lines[0].event.type != "playbook.execution.requested":
        raise RequestRejected("the log in the file does not start with the request of a run")
    if len(lines) != manifest.events:
        raise RequestRejected(f"the log in the file has {len(lines)} events, and its manifest {manifest.events}")
    for seq, line in enumerate(lines, 1):
        event = lifted(line.event) if LIFTS else line.event
        if event.type not in REGISTRY or (event.version != 1 and is_newer(event)):
            version = f"in version {event.version}, which" if event.type in REGISTRY else "which"
            raise _newer(manifest, f"event {seq} is {event.type[:60]} {version} this one does not know")
        try:
            apply(program, state, event)
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            InvariantBroken,
        ) as problem:
            raise RequestRejected(f"event {seq} of the log in the file does not fit its plan: {problem!r}") from problem
    return state


def _origin(requested: Event) -> RunOrigin | None:
    """The origin of a retry or a fork, as its first event has it."""
    recorded = requested.payload.get("origin")
    if recorded is None:
        return None
    try:
        origin = Origin.of(recorded)
        source = RunOrigin(parse_id(origin.execution_id, "its execution id"), origin.seq, origin.how)
    except (msgspec.ValidationError, RequestRejected) as problem:
        raise RequestRejected(f"event 1 of the log in the file has no valid origin: {problem}") from problem
    if not 0 < source.seq <= MAX_ID or not 0 <= origin.events <= MAX_ID or source.how not in ("retry", "fork"):
        raise RequestRejected(
            "event 1 of the log in the file has no valid origin: seq, events or how is none that there is"
        )
    return source


async def _store(results: Results, tenant: str, archive: Archive, content: Content) -> None:
    writer = results.writer(tenant, listed=content.is_list, content_type=content.content_type)
    try:
        if content.is_list:
            items = archive.items(_RESULTS + content.sha256)
            while piece := await asyncio.to_thread(lambda: list(islice(items, _ITEMS))):
                await writer.add(piece)
        else:
            for chunk in archive.chunks(_RESULTS + content.sha256):
                await writer.write(chunk)
        stored = await writer.commit()
    except BaseException:
        await writer.abandon()
        raise
    if stored.sha256 != content.sha256:
        raise _damaged(_RESULTS + content.sha256)
