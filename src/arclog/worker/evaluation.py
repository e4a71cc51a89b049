"""Evaluates a task's templates: its config before it runs, its policy afterwards.

Templates that may read stored data are evaluated through a sync reader, so that they do not block the event loop; all
others are evaluated directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.flow import pipeline as core
from arclog.core.flow.pipeline import Frame, Over, Run
from arclog.core.flow.scopes import task_scope
from arclog.expr import Stored, Tree
from arclog.model.commands import Pipeline
from arclog.model.errors import ExpressionError, ResultUnavailable
from arclog.model.events import Event
from arclog.model.outcome import TaskError, error, result_error
from arclog.model.refs import DATA, FILE, LIST, ResultRef, as_ref, published_form
from arclog.plan.program import StepProgram
from arclog.worker.reading import SyncReader
from arclog.worker.storing import Storing, TaskResults

if TYPE_CHECKING:
    from arclog.worker.local_files import LocalFiles

T = TypeVar("T")

#: The fields of a record that refer to stored data.
_KEPT_OUTSIDE = frozenset({"result_ref", "results_in_log", "files"})


class Evaluating:
    """The templates of one command's tasks."""

    def __init__(self, sync_reader: SyncReader, storing: Storing, results: TaskResults) -> None:
        self._sync_reader = sync_reader
        self._storing = storing
        self._results = results

    async def guards(self, pipeline: Pipeline, step: StepProgram, frame: Frame, max_task_runs: int) -> Run | Over:
        """Return the next move when `choose`, `while` or `until` decide; see `core.flow.pipeline.guarded_move`."""
        return await self._evaluated(
            lambda: core.guarded_move(pipeline, step, frame, max_task_runs), stored=_reads_stored(pipeline, frame)
        )

    async def config(
        self, pipeline: Pipeline, move: Run, frame: Frame, keychain: Any, files: LocalFiles | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the task's config, and separately the values that may be refs.

        `files` copies the files that the config names.
        """
        if files is not None:
            frame = replace(frame, read=files)
        scope = task_scope(pipeline, frame, move, keychain=keychain)

        def evaluate() -> tuple[dict[str, Any], dict[str, Any]]:
            by_ref = {name: _as_ref(tree, scope) for name, tree in move.task.by_ref.items()}
            return move.task.config.evaluate(scope), by_ref

        return await self._evaluated(evaluate, stored=_reads_stored(pipeline, frame))

    async def conclude(
        self,
        pipeline: Pipeline,
        move: Run,
        frame: Frame,
        record: dict[str, Any],
        now: int,
        roll: float,
        max_set_bytes: int,
        longest_sleep_s: float,
    ) -> list[Event]:
        """Return the events of an ended attempt, see `core.flow.pipeline.conclude`. Large values in iter are stored."""

        def conclude() -> list[Event]:
            given = (pipeline, move, frame, record, now, roll, max_set_bytes, longest_sleep_s)
            return core.conclude(*given, stores_iter=True)

        if move.task.plan.policy is None:
            return conclude()
        stored = "result_ref" in record or _reads_stored(pipeline, frame)
        return await self._with_stored_iter(move, frame, await self._evaluated(conclude, stored=stored))

    async def _evaluated(self, evaluate: Callable[[], T], *, stored: bool) -> T:
        return await self._sync_reader.run(evaluate) if stored else evaluate()

    async def _with_stored_iter(self, move: Run, frame: Frame, events: list[Event]) -> list[Event]:
        """Move large values that the policy sets in iter to the result store."""
        last = events[-1]
        if not last.payload.get("set_iter"):
            return events
        beside = len(encode({key: value for key, value in last.payload.items() if key != "set_iter"}))
        try:
            small, refs, stored_events = await self._storing.set_iter(
                move, frame, last.payload["set_iter"], self._results, last.at, frame.event_room - beside
            )
        except ResultUnavailable as problem:
            # The pipeline fails, as with any rule that cannot be applied.
            refused = result_error(problem).as_dict()
            last.payload = {"matched_rule_index": None, "action": {"do": "fail"}, "error": refused}
            last.status = "error"
            return events
        if refs:
            del last.payload["set_iter"]
            last.payload |= {"set_iter": small, "set_iter_refs": refs} if small else {"set_iter_refs": refs}
        return [*stored_events, *events]


def template_error(failure: ExpressionError) -> TaskError:
    """Return the error of a failed evaluation: a mistake in the template, or data that cannot be read."""
    if isinstance(failure.__cause__, ResultUnavailable):
        return replace(result_error(failure.__cause__), message=str(failure))
    return error("template", str(failure))


def shown(by_ref: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that may be refs in the form that an event shows."""
    return {
        name: published_form(value.as_dict()) if isinstance(value, ResultRef) else value
        for name, value in by_ref.items()
    }


def _reads_stored(pipeline: Pipeline, frame: Frame) -> bool:
    """Return whether the templates may read stored data."""
    if pipeline.stored:
        return True
    records = (*pipeline.results.values(), *frame.captured.steps.values())
    return any(not _KEPT_OUTSIDE.isdisjoint(record) for record in records)


def names_files(pipeline: Pipeline, frame: Frame) -> bool:
    """Return whether the templates may name files of other tasks."""
    return any("files" in record for record in (*pipeline.results.values(), *frame.captured.steps.values()))


def _as_ref(tree: Tree, scope: Mapping[str, Any]) -> Any:
    """Return the value of a field. Stored data that is the whole value is passed on as its ref."""
    value = tree.evaluate_items(scope)
    if isinstance(value, range):
        return list(value)
    if not isinstance(value, Stored):
        return value
    if value.is_whole and value.ref["kind"] in (DATA, LIST):
        return as_ref(value.ref)
    if value.is_whole and value.ref["kind"] == FILE:
        from arclog.worker.local_files import file_ref

        try:
            return file_ref(value.ref)
        except ResultUnavailable as problem:
            raise ExpressionError(str(problem)) from problem
    # Read like any other template: results of a loop, which may contain stored items, or an item of a list.
    return tree.evaluate(scope)
