"""Requests about recorded runs and their answers: simulations, imports and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class SimulateRequest(Struct, frozen=True, omit_defaults=True):
    """A playbook to run against recorded outcomes."""

    #: YAML or JSON text of the playbook
    playbook: str
    file: str = ""
    #: texts of the included files
    files: Mapping[str, str] = {}
    #: execution ids of the recorded runs; empty for the latest of the playbook's path
    runs: Sequence[str] = ()
    #: number of latest runs
    last: int = 100
    #: merged over the workload of each run
    workload: Mapping[str, Any] = {}
    #: steps that have another name in the new playbook: old → new
    map: Mapping[str, str] = {}
    #: whether a call with other inputs or code has no answer
    strict: bool = False


#: Maximum number of calls of a run in `unanswered`, and in `assumed`.
MOST_CALLS = 100


class SimulatedCall(Struct, frozen=True):
    """A call of a simulated run that the log does not answer, or only with other inputs or code."""

    step: str
    run: int
    #: indexes of the loop item, outermost first
    item: list[int]
    task: str
    kind: str
    attempt: int
    reason: str
    inputs: Any = None


class SimulatedRun(Struct, frozen=True):
    """The simulation of one run."""

    execution_id: str
    #: same | result (the same path, another result) | path | unanswered | refused (it would not have started) | cut (no
    #: end within history.simulate_max_events)
    verdict: str
    #: state of the recorded run, and of the simulated one: COMPLETED FAILED CANCELLED OPEN
    recorded: str
    simulated: str
    #: number of simulated step runs
    steps: int
    #: the first difference of the paths: step, run, what, cause, seq, recorded, simulated; None if there is none
    divergence: dict[str, Any] | None
    #: the results, if they differ: recorded, simulated; None if they are equal
    result: dict[str, Any] | None
    #: calls without a recorded answer
    unanswered: list[SimulatedCall]
    #: calls that got the recorded answer although their inputs or code differ
    assumed: list[SimulatedCall]
    #: why it was refused
    problem: str = ""


class SimulationReport(Struct, frozen=True):
    """The simulation of several runs."""

    #: whether every run takes the same path to the same result
    ok: bool
    #: number of runs by verdict
    verdicts: dict[str, int]
    steps: int
    runs: list[SimulatedRun]


class Imported(Struct, frozen=True):
    """A run that was imported from a file."""

    execution_id: str
    run_id: str
    events: int
    #: number of stored results that were imported with it
    results: int
    #: names of results that were removed before the export
    missing: list[str] = []
    #: False if it had been imported before
    created: bool = True


class TraceNode(Struct, frozen=True, omit_defaults=True):
    """A value and its origin."""

    #: result | ctx | step | task | item | args | workload (of the request) | default (of the playbook) | constant | keychain | run
    what: str
    #: its name there, e.g. `fetch.fetch_task.data.total`
    name: str
    #: None for a secret or a value that is not in the log; {ref} for stored data
    value: Any = None
    #: sequence number of the event that has it; 0 if there is none
    seq: int = 0
    step: str = ""
    task: str = ""
    #: indexes of the loop item
    item: list[int] = []
    #: kind of the task
    kind: str = ""
    #: file:line:column in the playbook
    source: str = ""
    #: the template in the playbook
    template: str = ""
    #: for a task that called another system: url, status, command …; for a child run: execution_id; for a value that a
    #: step computed before a fork or retry changed it: kept_from, the run whose playbook has its template
    origin: dict[str, Any] = {}
    #: id of the run, if it is another one than the requested
    execution_id: str = ""
    #: whether it occurs earlier in the tree, where its sources are listed
    is_repeated: bool = False
    #: the values that it was computed from
    sources: list[TraceNode] = []


class Lineage(Struct, frozen=True):
    """OpenLineage events of a run, in order of time."""

    events: list[dict[str, Any]]


class Trace(Struct, frozen=True):
    """The origin of a value of a run."""

    execution_id: str
    path: str
    node: TraceNode
    #: whether there are more sources than history.trace_max_nodes, or more than 100 templates in a row
    is_cut: bool = False
