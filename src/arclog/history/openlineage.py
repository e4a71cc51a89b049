"""OpenLineage run events (spec 2-0-2) for a recorded run: one job run for the playbook, and one for each task that
moves data.

Everything comes from the log and the plan. Of an address only the parts that name the data are used: no login, no
query, no parameter values.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from arclog.history.sql_lineage import Statement, Table, read_sql
from arclog.model.errors import MissingExtra
from arclog.model.events import TERMINAL, Event, status_of
from arclog.model.ids import timestamp
from arclog.plan.net import Plan, TaskPlan

#: Kinds whose tasks have their own job runs.
SQL_KINDS = ("sqlite", "postgres", "duckdb")
KINDS = frozenset({*SQL_KINDS, "transfer", "object", "http"})

_SPEC = "https://openlineage.io/spec"
_SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "parent": "1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "sql": "1-1-0/SQLJobFacet.json#/$defs/SQLJobFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet.json#/$defs/InputStatisticsInputDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet",
}
_ENDS = frozenset({"task.done", "task.failed"})
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"<>]*@")
_DSN_PART = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)")
_READING = ("GET", "HEAD", "OPTIONS")
#: The default schema of a table.
_SCHEMAS = {"sqlite": "main", "duckdb": "main", "postgres": "public"}

#: Namespace and name.
Dataset = tuple[str, str]


class Subject(Struct, frozen=True):
    """The run that the events describe."""

    #: a UUID
    run_id: str
    #: path of the playbook, or its name
    name: str
    #: namespace of the jobs
    namespace: str
    #: version of arclog
    version: str
    #: longer SQL texts are not parsed
    max_sql: int = 100_000


class _Moved(Struct):
    """The data that a task read and wrote."""

    inputs: list[Dataset] = []
    outputs: list[Dataset] = []
    columns: dict[str, list[tuple[Dataset, str]]] = {}
    sql: str = ""
    dialect: str = ""
    #: whether the outcome counts the written rows
    is_counted: bool = True


class _TaskRun(Struct):
    plan: TaskPlan
    started: Event
    #: the latest rendered inputs
    inputs: Mapping[str, Any] = {}
    end: Event | None = None


def run_events(subject: Subject, plan: Plan, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the OpenLineage events of a run as far as its log goes, in order of time. Tasks that were taken over from
    another run belong to that run. SQL is parsed only if the extra `lineage` is installed.
    """
    return [event for _, event in sorted(_Maker(subject, plan, events).events(), key=lambda pair: pair[0])]


class _Maker:
    def __init__(self, subject: Subject, plan: Plan, events: Sequence[Event]) -> None:
        self._subject = subject
        self._plan = plan
        self._events = events
        self._producer = f"urn:arclog:{subject.version}"
        self._job = {"namespace": subject.namespace, "name": subject.name}

    def events(self) -> Iterator[tuple[int, dict[str, Any]]]:
        started = next((event for event in self._events if event.type == "workflow.started"), None)
        if started is None:
            return
        end = next((event for event in self._events if event.type in TERMINAL and not event.informative), None)
        job = {**self._job, "facets": {"jobType": self._facet("jobType", **_job_type("PLAYBOOK"))}}
        yield started.at, self._event("START", started.at, self._run(self._subject.run_id, None), job)
        for task_run in self._task_runs():
            yield from self._task_events(task_run, end)
        if end is not None:
            kind = "ABORT" if end.type != "playbook.finished" else "FAIL" if status_of(end) == "error" else "COMPLETE"
            run = self._run(self._subject.run_id, None, end.payload.get("error") if kind != "COMPLETE" else None)
            yield end.at, self._event(kind, end.at, run, job)

    def _task_runs(self) -> Iterator[_TaskRun]:
        tasks = {(step.name, task.name): task for step in self._plan.steps for task in step.tasks if task.kind in KINDS}
        origin = self._events[0].payload.get("origin") or {}
        runs: dict[tuple[Any, ...], _TaskRun] = {}
        for index, event in enumerate(self._events):
            plan = tasks.get((event.step, event.task))
            if plan is None or event.informative or index < origin.get("events", 0):
                continue
            key = (event.step, event.run, event.iteration, event.task, event.task_run)
            if event.type == "task.started":
                inputs = event.payload.get("inputs")
                task_run = runs.setdefault(key, _TaskRun(plan, event))
                if isinstance(inputs, Mapping):
                    task_run.inputs = inputs
            elif event.type in _ENDS and key in runs:
                runs[key].end = event
        yield from runs.values()

    def _task_events(self, task_run: _TaskRun, run_end: Event | None) -> Iterator[tuple[int, dict[str, Any]]]:
        plan, started, end = task_run.plan, task_run.started, task_run.end
        moved = _moved(plan, _with_places(plan.kind, task_run.inputs, end), self._subject.max_sql)
        facets = {"jobType": self._facet("jobType", **_job_type("QUERY" if moved.sql else "TASK"))}
        if moved.sql:
            facets["sql"] = self._facet("sql", query=_LOGIN.sub(r"\1…@", moved.sql), dialect=moved.dialect)
        job = {**self._job, "name": f"{self._subject.name}.{started.step}.{started.task}", "facets": facets}
        item = ".".join(map(str, started.iteration or ()))
        where = f"{started.step}/{started.run}/{item}/{started.task}/{started.task_run}"
        run_id = _uuid(self._subject.run_id, where)
        sets = self._inputs(moved, {}), self._outputs(moved, {}, is_done=False)
        yield started.at, self._event("START", started.at, self._run(run_id, self._job), job, *sets)
        last = end if end is not None else run_end
        if last is None:
            return
        outcome = {} if end is None else end.payload.get("outcome") or {}
        problem = outcome.get("error") or (None if end is None else end.payload.get("error"))
        is_done = end is not None and end.type == "task.done" and not problem
        kind = "COMPLETE" if is_done else "FAIL"
        if end is None or (isinstance(problem, Mapping) and problem.get("kind") == "cancelled"):
            kind = "ABORT"
        sets = self._inputs(moved, outcome), self._outputs(moved, outcome, is_done=is_done)
        yield last.at, self._event(kind, last.at, self._run(run_id, self._job, problem), job, *sets)

    def _event(
        self,
        kind: str,
        at: int,
        run: dict[str, Any],
        job: dict[str, Any],
        inputs: Sequence[dict[str, Any]] = (),
        outputs: Sequence[dict[str, Any]] = (),
    ) -> dict[str, Any]:
        return {
            "eventType": kind,
            "eventTime": timestamp(at),
            "run": run,
            "job": job,
            "inputs": list(inputs),
            "outputs": list(outputs),
            "producer": self._producer,
            "schemaURL": _SCHEMA,
        }

    def _run(self, run_id: str, parent: dict[str, Any] | None, problem: Any = None) -> dict[str, Any]:
        facets = {"processing_engine": self._facet("processing_engine", name="arclog", version=self._subject.version)}
        if parent is not None:
            facets["parent"] = self._facet("parent", run={"runId": self._subject.run_id}, job=parent)
        if isinstance(problem, Mapping):
            message = _LOGIN.sub(r"\1…@", str(problem.get("message") or problem.get("kind") or "failed"))
            facets["errorMessage"] = self._facet("errorMessage", message=message, programmingLanguage="Python")
        return {"runId": run_id, "facets": facets}

    def _facet(self, facet: str, /, **fields: Any) -> dict[str, Any]:
        return {"_producer": self._producer, "_schemaURL": f"{_SPEC}/facets/{_FACETS[facet]}", **fields}

    def _inputs(self, moved: _Moved, outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
        datasets: list[dict[str, Any]] = [{"namespace": space, "name": name} for space, name in moved.inputs]
        rows = _counted(outcome, "rows") if moved.outputs and len(datasets) == 1 else None
        if rows is not None:
            datasets[0]["inputFacets"] = {"inputStatistics": self._facet("inputStatistics", rowCount=rows)}
        return datasets

    def _outputs(self, moved: _Moved, outcome: Mapping[str, Any], *, is_done: bool) -> list[dict[str, Any]]:
        datasets: list[dict[str, Any]] = [{"namespace": space, "name": name} for space, name in moved.outputs]
        if len(datasets) != 1:
            return datasets
        if moved.columns:
            fields = {
                column: {
                    "inputFields": [
                        {"namespace": space, "name": name, "field": field} for (space, name), field in sources
                    ]
                }
                for column, sources in moved.columns.items()
            }
            datasets[0]["facets"] = {"columnLineage": self._facet("columnLineage", fields=fields)}
        if is_done and moved.is_counted:
            counts = {"rowCount": _counted(outcome, "rows", "row_count"), "size": _counted(outcome, "bytes", "size")}
            statistics = {name: count for name, count in counts.items() if count is not None}
            if statistics:
                datasets[0]["outputFacets"] = {"outputStatistics": self._facet("outputStatistics", **statistics)}
        return datasets


def _job_type(kind: str) -> dict[str, str]:
    return {"processingType": "BATCH", "integration": "ARCLOG", "jobType": kind}


def _uuid(run_id: str, name: str) -> str:
    """Return a UUID of version 8 that is always the same for a task run."""
    raw = bytearray(hashlib.sha256(f"{run_id}/{name}".encode()).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _counted(outcome: Mapping[str, Any], *names: str) -> int | None:
    result = outcome.get("result")
    if not isinstance(result, Mapping):
        return None
    for name in names:
        count = result.get(name)
        if isinstance(count, int) and not isinstance(count, bool):
            return count
    return None


# -- the data of each kind --------------------------------------------------------------------------------------------


def _moved(plan: TaskPlan, inputs: Mapping[str, Any], max_sql: int) -> _Moved:
    if plan.kind in SQL_KINDS:
        return _by_sql(plan.kind, inputs, _sql_text(inputs.get("command")), max_sql)
    if plan.kind == "transfer":
        return _by_transfer(inputs, max_sql)
    moved = _Moved(inputs=[], outputs=[], columns={})
    url = inputs.get("url")
    dataset = _by_url(url) if isinstance(url, str) else None
    if dataset is None:
        return moved
    if plan.kind == "http":
        reads = str(inputs.get("method", plan.config.get("method", "GET"))).upper() in _READING
    else:
        reads = inputs.get("action", plan.config.get("action")) not in ("put", "delete")
    (moved.inputs if reads else moved.outputs).append(dataset)
    return moved


def _with_places(kind: str, inputs: Mapping[str, Any], end: Event | None) -> Mapping[str, Any]:
    """Add the servers of PostgreSQL databases that the worker recorded to the inputs; addresses from a keychain are not
    recorded.
    """
    meta = {} if end is None else (end.payload.get("outcome") or {}).get("meta") or {}
    if kind == "postgres" and "server" in meta:
        return {**inputs, **_place(meta["server"])}
    if kind != "transfer" or not isinstance(meta.get("servers"), Mapping):
        return inputs
    ends = {side: inputs[side] for side in meta["servers"] if isinstance(inputs.get(side), Mapping)}
    return {**inputs, **{side: {**side_inputs, **_place(meta["servers"][side])} for side, side_inputs in ends.items()}}


def _place(server: Any) -> dict[str, str]:
    """Return the parts of a server's address; {} if one of them was redacted."""
    if not isinstance(server, Mapping):
        return {}
    parts = {name: str(server.get(name, "")) for name in ("host", "port", "dbname")}
    return parts if all(parts.values()) and not any("[redacted:" in part for part in parts.values()) else {}


def _by_sql(kind: str, place: Mapping[str, Any], text: str, max_sql: int) -> _Moved:
    moved = _Moved(inputs=[], outputs=[], columns={}, sql=text, dialect=kind)
    statements = _read(text, kind, max_sql)
    for statement in statements:
        moved.inputs += [dataset for table in statement.reads if (dataset := _table(kind, place, table)) is not None]
        moved.inputs += [("file", path) for path in statement.files]
        moved.outputs += [dataset for table in statement.writes if (dataset := _table(kind, place, table)) is not None]
    if len(statements) == 1 and len(moved.outputs) == 1:
        files = {path.lower(): path for path in statements[0].files}
        for column, sources in statements[0].columns.items():
            pairs = [
                (("file", files[table[2]]) if table[2] in files else _table(kind, place, table), field)
                for table, field in sources
            ]
            origins = [(dataset, field) for dataset, field in pairs if dataset is not None]
            if len(origins) == len(pairs):
                moved.columns[column] = origins
    moved.is_counted = len(statements) == 1 and statements[0].is_counted
    moved.inputs = list(dict.fromkeys(moved.inputs))
    moved.outputs = list(dict.fromkeys(moved.outputs))
    return moved


def _read(text: str, kind: str, max_sql: int) -> list[Statement]:
    if not text or len(text) > max_sql:
        return []
    try:
        return read_sql(text, kind)
    except MissingExtra:
        return []


def _by_transfer(inputs: Mapping[str, Any], max_sql: int) -> _Moved:
    moved = _Moved(inputs=[], outputs=[], columns={})
    source, target = inputs.get("source"), inputs.get("target")
    if isinstance(source, Mapping):
        query = _sql_text(source.get("query"))
        if query:
            moved = _by_sql(str(source.get("kind")), source, query, max_sql)
            moved.outputs, moved.columns, moved.is_counted = [], {}, True
        else:
            moved.inputs += _ends(source)
    if isinstance(target, Mapping):
        moved.outputs += _ends(target)
    return moved


def _ends(end: Mapping[str, Any]) -> list[Dataset]:
    """Return the dataset of a transfer's source or target, if it is a table or a file."""
    kind = str(end.get("kind"))
    if kind in SQL_KINDS:
        table = end.get("table")
        dataset = _table(kind, end, ("", str(end.get("schema") or ""), table)) if isinstance(table, str) else None
    else:
        dataset = _by_url(end["path"]) if isinstance(end.get("path"), str) else None
    return [] if dataset is None else [dataset]


def _sql_text(command: Any) -> str:
    """Return the SQL of a recorded command, without its values."""
    if isinstance(command, str):
        return command
    if isinstance(command, Mapping):
        return str(command.get("sql") or "")
    if isinstance(command, list | tuple):
        return ";\n".join(text for statement in command if (text := _sql_text(statement)))
    return ""


def _table(kind: str, place: Mapping[str, Any], table: Table) -> Dataset | None:
    """Return OpenLineage's name of a table; None if its database is unknown or temporary."""
    catalog, schema, name = table
    qualified = f"{schema or _SCHEMAS[kind]}.{name}"
    if kind != "postgres":
        database = place.get("database")
        if not isinstance(database, str) or not database or database == ":memory:" or catalog:
            return None
        return f"{kind}://{database}", qualified
    host, port, database = _postgres(place)
    return (f"postgres://{host}:{port}", f"{catalog or database}.{qualified}") if host and database else None


def _postgres(place: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return host, port and database of a connection, from its address or its parts."""
    host, port, database = "", "", ""
    dsn = place.get("dsn")
    if isinstance(dsn, str) and "://" in dsn:
        try:
            parts = urlsplit(dsn)
            host, port = parts.hostname or "", str(parts.port or "")
        except ValueError:
            return "", "", ""
        database = parts.path.lstrip("/")
    elif isinstance(dsn, str):
        words = {key: value.strip("'") for key, value in _DSN_PART.findall(dsn)}
        host, port, database = words.get("host", ""), words.get("port", ""), words.get("dbname", "")
    host, database = str(place.get("host") or host), str(place.get("dbname") or database)
    return host, str(place.get("port") or port or 5432), database


def _by_url(url: str) -> Dataset | None:
    """Return the dataset of an object, a file or a web address, without login, query and fragment."""
    if "://" not in url:
        return "file", url
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if parts.scheme == "file":
        return "file", parts.path
    if not host:
        return None
    if parts.scheme in ("http", "https"):
        return f"{parts.scheme}://{host}{f':{port}' if port else ''}", parts.path or "/"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.lstrip("/")
