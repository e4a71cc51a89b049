"""arclog inside a program: `arclog.run`, `arclog.open` and `arclog.open_async`.

Runs are kept in a home folder, the same that the `arclog` command uses: what a program ran, `arclog list` and `arclog show` know.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from arclog.authoring.beside import FilesBeside, called_playbooks
from arclog.model.errors import RequestRejected, RunFailed
from arclog.ports.tool import ToolKind
from arclog.ports.views.api import ExecuteRequest, SignalRequest, Summary
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.kinds import ToolKinds
from arclog.wiring.settings import load_settings

if TYPE_CHECKING:
    from arclog.model.config.settings import Settings

T = TypeVar("T")
#: A playbook: the path of a file, or its text. A `str` with a line break is a text.
Playbook = str | os.PathLike[str]
_PAGE = 1000


@dataclass(frozen=True)
class _RunFields:
    execution_id: str
    #: the playbook's name
    name: str
    #: PENDING RUNNING COMPLETED FAILED CANCELLED
    state: str
    #: what the playbook declares as its result, else what its last step returned
    result: Any
    #: of a run that failed or was cancelled: kind, message, code, retryable, step, task, item, traceback, cause
    error: dict[str, Any] | None
    #: the values that the run kept
    ctx: dict[str, Any]
    #: RFC 3339
    started_at: str | None
    ended_at: str | None
    #: everything that `arclog run --json` prints
    summary: Summary = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the run has completed."""
        return self.state == "COMPLETED"


@dataclass(frozen=True)
class Run(_RunFields):
    """A run, as it was when it was looked at."""

    _settings: Settings = field(repr=False, compare=False)

    def events(self, *, types: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """The events of the run's log, in order; with `types`, only those.

        Each is a map with `event_id`, `event_type`, `timestamp`, `entity`, `payload` and so on: docs/events.md.
        """
        with _Loop() as loop:
            here = loop.do(_opened(self._settings, (), reads=True))
            try:
                after = 0
                while page := loop.do(here.here.api.events(self.execution_id, after=after, limit=_PAGE, types=types)):
                    yield from page
                    after = int(page[-1]["seq"])
            finally:
                loop.do(here.close())


@dataclass(frozen=True)
class AsyncRun(_RunFields):
    """A run, as it was when it was looked at."""

    _app: AsyncArclog = field(repr=False, compare=False)

    async def events(self, *, types: Sequence[str] = ()) -> AsyncIterator[dict[str, Any]]:
        """The events of the run's log, in order; with `types`, only those."""
        after = 0
        while page := await self._app.here.api.events(self.execution_id, after=after, limit=_PAGE, types=types):
            for event in page:
                yield event
            after = int(page[-1]["seq"])


def run(
    playbook: Playbook,
    *,
    workload: Mapping[str, Any] | None = None,
    home: str | os.PathLike[str] | None = None,
    kinds: Sequence[ToolKind | type[Any]] = (),
    settings: Mapping[str, Any] | None = None,
    check: bool = False,
) -> Run:
    """Run a playbook in this process, and wait for its end.

        run = arclog.run("flow.yaml", workload={"name": "Ada"})
        if run.ok:
            print(run.result)

    Args:
        playbook: The path of a file, or the text of a playbook. A `str` with a line break is a text.
        workload: Laid over the playbook's own workload, as `--set` is.
        home: The folder that keeps the runs. Default: as for the `arclog` command (`ARCLOG_HOME`, else `.arclog`).
        kinds: Tool kinds of this program, made by `arclog.kind`.
        settings: Settings by name, such as `{"worker.slots": 2}`; they come before those of environment and file.
        check: Raise RunFailed unless the run completes.

    Returns:
        The run, whatever became of it: a task that fails is data, not an exception.

    Raises:
        PlaybookError: The playbook has errors; `findings` has all of them.
        InputsRefused: The workload does not fit the playbook's inputs.
        RunFailed: With `check`, the run failed or was cancelled.
        StoreUnavailable: The home cannot be written.

    """
    with _Loop() as loop:
        app = loop.do(_opened(_settings(home, settings), kinds, serves=False))
        try:
            return loop.do(_run_alone(app, playbook, workload, check=check))
        finally:
            loop.do(app.close())


async def _run_alone(app: AsyncArclog, playbook: Playbook, workload: Mapping[str, Any] | None, *, check: bool) -> Run:
    """A run for which this process is alone responsible, whatever pools its steps name."""
    execution_id = await app.start(playbook, workload=workload)
    await app.here.start_worker(execution_id)
    ended = await app.wait(execution_id)
    if check and not ended.ok:
        raise RunFailed(ended.summary)
    return _blocking(ended, app)


def open(  # noqa: A001 - `arclog.open` is its public name
    home: str | os.PathLike[str] | None = None,
    *,
    kinds: Sequence[ToolKind | type[Any]] = (),
    settings: Mapping[str, Any] | None = None,
) -> Arclog:
    """Open a home: start, watch and steer many runs from one program.

        with arclog.open("runs") as app:
            first = app.start("flow.yaml", workload={"n": 1})
            second = app.start("flow.yaml", workload={"n": 2})
            print(app.wait(first).result, app.wait(second).result)

    Runs that were begun and not ended in this home continue. The arguments are those of `arclog.run`.
    """
    return Arclog(_settings(home, settings), kinds)


def open_async(
    home: str | os.PathLike[str] | None = None,
    *,
    kinds: Sequence[ToolKind | type[Any]] = (),
    settings: Mapping[str, Any] | None = None,
) -> _Opening:
    """`arclog.open` for asyncio: `async with arclog.open_async() as app: run = await app.run("flow.yaml")`."""
    return _Opening(_settings(home, settings), kinds)


class AsyncArclog:
    """An open home, for asyncio."""

    def __init__(self, here: Embedded, settings: Settings, stack: AsyncExitStack) -> None:
        #: private: store, engine and worker, and their settings
        self.here = here
        self.settings = settings
        self._stack = stack

    async def start(
        self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, idempotency_key: str = ""
    ) -> str:
        """Start a run and return its execution id.

        The same idempotency key again is the same run. Raises PlaybookError and InputsRefused.
        """
        text, file = _text_of(playbook)
        beside = FilesBeside(self.settings).of(file)
        files = called_playbooks(text, file, self.settings, beside, self.here.kinds, _read)
        request = ExecuteRequest(text, file, dict(workload or {}), files | beside.taken, idempotency_key)
        self.here.open_tools(text)
        return (await self.here.api.execute(request)).execution_id

    async def run(
        self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> AsyncRun:
        """Start a run and wait for its end, at most `timeout_s` seconds: then its `state` is RUNNING, and it continues."""
        return await self.wait(await self.start(playbook, workload=workload), timeout_s=timeout_s)

    async def wait(self, execution_id: str, *, timeout_s: float | None = None) -> AsyncRun:
        """Wait for the end of a run, at most `timeout_s` seconds. Raises NotFound."""
        await self.here.api.ended(execution_id, timeout_s=timeout_s)
        return await self.get(execution_id)

    async def get(self, execution_id: str) -> AsyncRun:
        """A run as it is now. Raises NotFound."""
        summary_now = await self.here.api.summary(execution_id)
        return AsyncRun(**_fields(summary_now), _app=self)

    async def signal(
        self, execution_id: str, signal: str, *, step: str = "", data: Any = None, reason: str = "", by: str = ""
    ) -> None:
        """Send a signal: PAUSE, RESUME, CANCEL, APPROVE, REJECT, RETRY_STEP, SKIP_STEP, or the name that a `wait` task has.

        CANCEL, REJECT and SKIP_STEP need a reason. Raises NotFound, and RequestRejected when the run does not take it.
        """
        answer = await self.here.api.signal(
            execution_id, SignalRequest(signal, step=step, data=data, reason=reason, by=by)
        )
        if not answer.accepted:
            raise RequestRejected(answer.message)

    async def close(self) -> None:
        """Stop the worker and close the home. A second call does nothing."""
        await self._stack.aclose()


class Arclog:
    """An open home. It may be used by many threads, and is closed by `close()` or at the end of `with`."""

    def __init__(self, settings: Settings, kinds: Sequence[ToolKind | type[Any]]) -> None:
        self._loop = _Loop()
        try:
            self._app = self._loop.do(_opened(settings, kinds))
        except BaseException:
            self._loop.close()
            raise

    def start(self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, idempotency_key: str = "") -> str:
        """Start a run and return its execution id.

        The same idempotency key again is the same run. Raises PlaybookError and InputsRefused.
        """
        return self._loop.do(self._app.start(playbook, workload=workload, idempotency_key=idempotency_key))

    def run(
        self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Run:
        """Start a run and wait for its end, at most `timeout_s` seconds: then its `state` is RUNNING, and it continues."""
        return self.wait(self.start(playbook, workload=workload), timeout_s=timeout_s)

    def wait(self, execution_id: str, *, timeout_s: float | None = None) -> Run:
        """Wait for the end of a run, at most `timeout_s` seconds. Raises NotFound."""
        return _blocking(self._loop.do(self._app.wait(execution_id, timeout_s=timeout_s)), self._app)

    def get(self, execution_id: str) -> Run:
        """A run as it is now. Raises NotFound."""
        return _blocking(self._loop.do(self._app.get(execution_id)), self._app)

    def signal(
        self, execution_id: str, signal: str, *, step: str = "", data: Any = None, reason: str = "", by: str = ""
    ) -> None:
        """Send a signal: PAUSE, RESUME, CANCEL, APPROVE, REJECT, RETRY_STEP, SKIP_STEP, or the name that a `wait` task has.

        CANCEL, REJECT and SKIP_STEP need a reason. Raises NotFound, and RequestRejected when the run does not take it.
        """
        self._loop.do(self._app.signal(execution_id, signal, step=step, data=data, reason=reason, by=by))

    def close(self) -> None:
        """Stop the worker and close the home. A second call does nothing."""
        if not self._loop.is_closed:
            self._loop.do(self._app.close())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Opening:
    """What `async with arclog.open_async()` opens."""

    def __init__(self, settings: Settings, kinds: Sequence[ToolKind | type[Any]]) -> None:
        self._settings = settings
        self._kinds = kinds
        self._app: AsyncArclog | None = None

    async def __aenter__(self) -> AsyncArclog:
        self._app = await _opened(self._settings, self._kinds)
        return self._app

    async def __aexit__(self, *_: object) -> None:
        if self._app is not None:
            await self._app.close()


class _Loop:
    """An event loop in a thread of its own, so that blocking calls work anywhere, inside a running loop too."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="arclog", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _opened(
    settings: Settings, kinds: Sequence[ToolKind | type[Any]], *, serves: bool = True, reads: bool = False
) -> AsyncArclog:
    """Open a home. Unless it `serves`, no worker is started; with `reads` nothing is written."""
    stack = AsyncExitStack()
    here = await stack.enter_async_context(embedded(settings, read_only=reads, kinds=ToolKinds(kinds)))
    try:
        if serves and not reads:
            await here.free_dead()
            await here.start_worker(on_its_own=True)
    except BaseException:
        await stack.aclose()
        raise
    return AsyncArclog(here, settings, stack)


def _settings(home: str | os.PathLike[str] | None, given: Mapping[str, Any] | None) -> Settings:
    overrides = {} if home is None else {"home": os.fspath(home)}
    return load_settings({**(given or {}), **overrides})


def _text_of(playbook: Playbook) -> tuple[str, str]:
    """The text of a playbook, and the name of its file."""
    if isinstance(playbook, str) and "\n" in playbook:
        return playbook, ""
    file = os.fspath(playbook)
    return _read(file), file


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise RequestRejected(f"cannot read {file}: {why}") from None


def _fields(summary: Summary) -> dict[str, Any]:
    return {
        "execution_id": summary.execution_id,
        "name": summary.name,
        "state": summary.state,
        "result": summary.result,
        "error": summary.error,
        "ctx": summary.ctx,
        "started_at": summary.started_at,
        "ended_at": summary.ended_at,
        "summary": summary,
    }


def _blocking(run: AsyncRun, app: AsyncArclog) -> Run:
    return Run(**_fields(run.summary), _settings=app.settings)
