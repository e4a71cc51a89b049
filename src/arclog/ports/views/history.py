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
    #: texts of the files that it names
    files: Mapping[str, str] = {}
    #: execution ids of the recorded runs; none: the latest of the playbook's path
    runs: Sequence[str] = ()
    #: number of latest runs
    last: int = 100
    #: laid over the workload of each run
    workload: Mapping[str, Any] = {}
    #: steps that have another name in the new playbook: old → new
    map: Mapping[str, str] = {}
    #: a call whose inputs or code were others has no answer
    strict: bool = False


class SimulatedCall(Struct, frozen=True):
    """A call of a simulated run that the log does not answer, or that it answers for another question."""

    step: str
    run: int
    #: indexes of the loop item, the outermost first
    item: list[int]
    task: str
    kind: str
    attempt: int
    reason: str
    inputs: Any = None


class SimulatedRun(Struct, frozen=True):
    """The simulated course of a run."""

    execution_id: str
    #: same | result (the same path, another result) | path | unanswered | refused (it would not have started) | cut (no end
    #: within history.simulate_max_events)
    verdict: str
    #: of the recorded run, and of the simulated one: COMPLETED FAILED CANCELLED OPEN
    recorded: str
    simulated: str
    #: step runs that were simulated
    steps: int
    #: the first difference of the paths: step, run, what, cause, seq, recorded, simulated; None: it does not
    divergence: dict[str, Any] | None
    #: the results, if they differ: recorded, simulated; None: they are equal
    result: dict[str, Any] | None
    #: calls that have no recorded answer
    unanswered: list[SimulatedCall]
    #: calls that got the recorded answer though their inputs or their code were others
    assumed: list[SimulatedCall]
    #: why it was refused
    problem: str = ""


class SimulationReport(Struct, frozen=True):
    """The simulated course of several runs."""

    #: every run takes the same path to the same result
    ok: bool
    #: runs by verdict
    verdicts: dict[str, int]
    steps: int
    runs: list[SimulatedRun]


class Imported(Struct, frozen=True):
    """A run that was imported from a file."""

    execution_id: str
    run_id: str
    events: int
    #: stored results that came with it
    results: int
    #: names of results that were removed before the export
    missing: list[str] = []
    #: False when it had been imported before
    created: bool = True


class TraceNode(Struct, frozen=True, omit_defaults=True):
    """A value, and where it came from."""

    #: result | ctx | step | task | item | args | workload (of the request) | default (of the playbook) | constant | keychain | run
    what: str
    #: its name there, e.g. `fetch.fetch_task.data.total`
    name: str
    #: None of what is secret, or not in the log; {ref} of what is stored outside the log
    value: Any = None
    #: of the event that brought it; 0: none did
    seq: int = 0
    step: str = ""
    task: str = ""
    #: indexes of the loop item
    item: list[int] = []
    #: kind of the task
    kind: str = ""
    #: file:line:column in the playbook
    source: str = ""
    #: as the playbook has it
    template: str = ""
    #: of a task that asked an outside system: url, status, command …; of a called run: execution_id
    origin: dict[str, Any] = {}
    #: of another run than the one that was asked about: its id
    execution_id: str = ""
    #: it occurs earlier in the tree, where its sources are listed
    is_repeated: bool = False
    #: the values that it was made from
    sources: list[TraceNode] = []


class Lineage(Struct, frozen=True):
    """OpenLineage events of a run, in order of their time."""

    events: list[dict[str, Any]]


class Trace(Struct, frozen=True):
    """The origin of a value of a run."""

    execution_id: str
    path: str
    node: TraceNode
    #: there are more sources than history.trace_max_nodes, or more than 100 templates in a row
    is_cut: bool = False
