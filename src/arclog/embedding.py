"""arclog inside a program: `arclog.run`, `arclog.open` and `arclog.open_async`.

Runs are stored in a home folder, by default that of the `arclog` command, so `arclog list` and `arclog show` work on them.
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

from arclog.authoring.playbook_files import FilesBeside, called_playbooks
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
    #: the result that the playbook declares, else the data of its last step
    result: Any
    #: for a run that failed or was cancelled: kind, message, code, retryable, step, task, item, traceback, cause
    error: dict[str, Any] | None
    #: the values that steps set with `set_ctx`
    ctx: dict[str, Any]
    #: RFC 3339
    started_at: str | None
    ended_at: str | None
    #: everything that `arclog run --json` prints
    summary: Summary = field(repr=False)

    @property
    def ok(self) -> bool:
        """Return whether the run has completed."""
        return self.state == "COMPLETED"


@dataclass(frozen=True)
class Run(_RunFields):
    """A snapshot of a run."""

    _settings: Settings = field(repr=False, compare=False)

    def events(self, *, types: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """Read the events of the run's log, in order. Works after the home is closed, too.

        Args:
            types: Only events of these types, such as `task.done`.

        Returns:
            The events as maps with `event_id`, `event_type`, `timestamp`, `entity`, `payload` and so on: docs/events.md.

        """
        with _Loop() as loop:
            app = loop.do(_opened(self._settings, (), reads=True))
            try:
                after = 0
                while page := loop.do(app.runtime.api.events(self.execution_id, after=after, limit=_PAGE, types=types)):
                    yield from page
                    after = int(page[-1]["seq"])
            finally:
                loop.do(app.close())


@dataclass(frozen=True)
class AsyncRun(_RunFields):
    """A snapshot of a run."""

    _app: AsyncArclog = field(repr=False, compare=False)

    async def events(self, *, types: Sequence[str] = ()) -> AsyncIterator[dict[str, Any]]:
        """Read the events of the run's log, in order. The home must be open.

        Args:
            types: Only events of these types, such as `task.done`.

        Returns:
            The events as maps with `event_id`, `event_type`, `timestamp`, `entity`, `payload` and so on: docs/events.md.

        """
        after = 0
        while page := await self._app.runtime.api.events(self.execution_id, after=after, limit=_PAGE, types=types):
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
        workload: Merged deeply over the playbook's own workload, like `--set`.
        home: The folder that keeps the runs. Default: as for the `arclog` command (`ARCLOG_HOME`, else `.arclog`).
        kinds: Tool kinds of this program, made by `arclog.kind`.
        settings: Settings by name, such as `{"worker.slots": 2}`; they take precedence over environment and file.
        check: Raise RunFailed unless the run completes.

    Returns:
        The run in its final state. A failed run is returned as well, unless `check` is set.

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
    """Run a playbook with a worker for this run only, which serves all pools that its steps name."""
    execution_id = await app.start(playbook, workload=workload)
    await app.runtime.start_worker(execution_id)
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
    """Open a home: start, watch and control many runs from one program.

        with arclog.open("runs") as app:
            first = app.start("flow.yaml", workload={"n": 1})
            second = app.start("flow.yaml", workload={"n": 2})
            print(app.wait(first).result, app.wait(second).result)

    The worker of an open home resumes unfinished runs: those that an earlier process left continue at once.

    Args:
        home: The folder that keeps the runs. Default: as for the `arclog` command (`ARCLOG_HOME`, else `.arclog`).
        kinds: Tool kinds of this program, made by `arclog.kind`.
        settings: Settings by name, such as `{"worker.slots": 2}`; they take precedence over environment and file.

    Returns:
        The open home, to be closed by `close()` or at the end of `with`.

    Raises:
        SettingsError: A setting is wrong.
        StoreUnavailable: The home cannot be opened.

    """
    return Arclog(_settings(home, settings), kinds)


def open_async(
    home: str | os.PathLike[str] | None = None,
    *,
    kinds: Sequence[ToolKind | type[Any]] = (),
    settings: Mapping[str, Any] | None = None,
) -> _Opening:
    """Open a home in asyncio; the arguments and errors are those of `arclog.open`.

        async with arclog.open_async() as app:
            run = await app.run("flow.yaml")

    Returns:
        An asynchronous context manager that returns an `AsyncArclog`.

    """
    return _Opening(_settings(home, settings), kinds)


class AsyncArclog:
    """An open home, for asyncio."""

    def __init__(self, runtime: Embedded, settings: Settings, stack: AsyncExitStack) -> None:
        #: private: store, engine and worker, and their settings
        self.runtime = runtime
        self.settings = settings
        self._stack = stack

    async def start(
        self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, idempotency_key: str = ""
    ) -> str:
        """Start a run.

        Args:
            playbook: The path of a file, or the text of a playbook. A `str` with a line break is a text.
            workload: Merged deeply over the playbook's own workload.
            idempotency_key: A second start with the same key returns the id of the first run. With another playbook or
                workload it raises an ArclogError.

        Returns:
            The execution id of the run.

        Raises:
            PlaybookError: The playbook has errors; `findings` has all of them.
            InputsRefused: The workload does not fit the playbook's inputs.

        """
        text, file = _text_of(playbook)
        beside = FilesBeside(self.settings).of(file)
        files = called_playbooks(text, file, self.settings, beside, self.runtime.kinds, _read)
        request = ExecuteRequest(text, file, dict(workload or {}), files | beside.taken, idempotency_key)
        self.runtime.open_tools(text)
        return (await self.runtime.api.execute(request)).execution_id

    async def run(
        self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> AsyncRun:
        """Start a run and wait for its end.

        Args:
            playbook: The path of a file, or the text of a playbook. A `str` with a line break is a text.
            workload: Merged deeply over the playbook's own workload.
            timeout_s: The longest time to wait. Default: until the run ends.

        Returns:
            The run. After the timeout its `state` is PENDING or RUNNING, and it continues.

        Raises:
            PlaybookError: The playbook has errors; `findings` has all of them.
            InputsRefused: The workload does not fit the playbook's inputs.

        """
        return await self.wait(await self.start(playbook, workload=workload), timeout_s=timeout_s)

    async def wait(self, execution_id: str, *, timeout_s: float | None = None) -> AsyncRun:
        """Wait for the end of a run.

        Args:
            execution_id: The id that `start` returned.
            timeout_s: The longest time to wait. Default: until the run ends.

        Returns:
            The run. After the timeout its `state` is PENDING or RUNNING, and it continues.

        Raises:
            NotFound: There is no such run in this home.

        """
        await self.runtime.api.ended(execution_id, timeout_s=timeout_s)
        return await self.get(execution_id)

    async def get(self, execution_id: str) -> AsyncRun:
        """Read a run.

        Args:
            execution_id: The id of the run.

        Returns:
            The run in its current state.

        Raises:
            NotFound: There is no such run in this home.

        """
        summary_now = await self.runtime.api.summary(execution_id)
        return AsyncRun(**_fields(summary_now), _app=self)

    async def signal(
        self, execution_id: str, signal: str, *, step: str = "", data: Any = None, reason: str = "", by: str = ""
    ) -> None:
        """Send a signal to a run.

        Args:
            execution_id: The id of the run.
            signal: PAUSE, RESUME, CANCEL, APPROVE, REJECT, RETRY_STEP, SKIP_STEP, or the name of a signal that a `wait`
                task waits for.
            step: The step that the signal is for, where it needs one.
            data: Passed to the task that waits for the signal.
            reason: Recorded in the log; CANCEL, REJECT and SKIP_STEP require it.
            by: The name of the sender, recorded in the log.

        Raises:
            NotFound: There is no such run in this home.
            RequestRejected: The run cannot apply the signal in its state.

        """
        answer = await self.runtime.api.signal(
            execution_id, SignalRequest(signal, step=step, data=data, reason=reason, by=by)
        )
        if not answer.accepted:
            raise RequestRejected(answer.message)

    async def close(self) -> None:
        """Stop the worker and close the home. A second call does nothing."""
        await self._stack.aclose()


class Arclog:
    """An open home. Threads can share it. It is closed by `close()` or at the end of `with`."""

    def __init__(self, settings: Settings, kinds: Sequence[ToolKind | type[Any]]) -> None:
        self._loop = _Loop()
        try:
            self._app = self._loop.do(_opened(settings, kinds))
        except BaseException:
            self._loop.close()
            raise

    def start(self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, idempotency_key: str = "") -> str:
        """Start a run.

        Args:
            playbook: The path of a file, or the text of a playbook. A `str` with a line break is a text.
            workload: Merged deeply over the playbook's own workload.
            idempotency_key: A second start with the same key returns the id of the first run. With another playbook or
                workload it raises an ArclogError.

        Returns:
            The execution id of the run.

        Raises:
            PlaybookError: The playbook has errors; `findings` has all of them.
            InputsRefused: The workload does not fit the playbook's inputs.

        """
        return self._loop.do(self._app.start(playbook, workload=workload, idempotency_key=idempotency_key))

    def run(
        self, playbook: Playbook, *, workload: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Run:
        """Start a run and wait for its end.

        Args:
            playbook: The path of a file, or the text of a playbook. A `str` with a line break is a text.
            workload: Merged deeply over the playbook's own workload.
            timeout_s: The longest time to wait. Default: until the run ends.

        Returns:
            The run. After the timeout its `state` is PENDING or RUNNING, and it continues.

        Raises:
            PlaybookError: The playbook has errors; `findings` has all of them.
            InputsRefused: The workload does not fit the playbook's inputs.

        """
        return self.wait(self.start(playbook, workload=workload), timeout_s=timeout_s)

    def wait(self, execution_id: str, *, timeout_s: float | None = None) -> Run:
        """Wait for the end of a run.

        Args:
            execution_id: The id that `start` returned.
            timeout_s: The longest time to wait. Default: until the run ends.

        Returns:
            The run. After the timeout its `state` is PENDING or RUNNING, and it continues.

        Raises:
            NotFound: There is no such run in this home.

        """
        return _blocking(self._loop.do(self._app.wait(execution_id, timeout_s=timeout_s)), self._app)

    def get(self, execution_id: str) -> Run:
        """Read a run.

        Args:
            execution_id: The id of the run.

        Returns:
            The run in its current state.

        Raises:
            NotFound: There is no such run in this home.

        """
        return _blocking(self._loop.do(self._app.get(execution_id)), self._app)

    def signal(
        self, execution_id: str, signal: str, *, step: str = "", data: Any = None, reason: str = "", by: str = ""
    ) -> None:
        """Send a signal to a run.

        Args:
            execution_id: The id of the run.
            signal: PAUSE, RESUME, CANCEL, APPROVE, REJECT, RETRY_STEP, SKIP_STEP, or the name of a signal that a `wait`
                task waits for.
            step: The step that the signal is for, where it needs one.
            data: Passed to the task that waits for the signal.
            reason: Recorded in the log; CANCEL, REJECT and SKIP_STEP require it.
            by: The name of the sender, recorded in the log.

        Raises:
            NotFound: There is no such run in this home.
            RequestRejected: The run cannot apply the signal in its state.

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
    """The context manager of `arclog.open_async`."""

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
    """An event loop in a separate thread, so that blocking calls work everywhere, also inside a running loop."""

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
    runtime = await stack.enter_async_context(embedded(settings, read_only=reads, kinds=ToolKinds(kinds)))
    try:
        if serves and not reads:
            await runtime.free_dead()
            await runtime.start_worker(unattended=True)
    except BaseException:
        await stack.aclose()
        raise
    return AsyncArclog(runtime, settings, stack)


def _settings(home: str | os.PathLike[str] | None, values: Mapping[str, Any] | None) -> Settings:
    overrides = {} if home is None else {"home": os.fspath(home)}
    return load_settings({**(values or {}), **overrides})


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
