"""The canonical form of a playbook: one shape for every way to write the same thing, each part with its path.

`normalize` makes it from a document, `plan.compile` turns it into a plan.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.model.config.kinds import KindSpec
from arclog.playbook.document import Path


class Rule(Struct):
    """`{when, then}`; `when` None is the else."""

    when: str | bool | None
    then: dict[str, Any]
    #: of the rule
    path: Path
    #: of `then`'s map
    then_path: Path
    #: its condition is not a condition, which is an error of its own
    flawed: bool = False


class Task(Struct):
    name: str
    kind: KindSpec
    #: config keys as written
    config: dict[str, Any]
    path: Path
    #: where parts of the config stand when that is not below `path`: longest prefix of the config path wins
    roots: dict[Path, Path] = {}
    #: config keys that hold the text of a file beside the playbook: key → path
    files: dict[str, str] = {}
    #: effective spec, without `policy`
    spec: dict[str, Any] = {}
    timeout_s: float = 3600.0
    #: None: no policy
    rules: list[Rule] | None = None
    on_unmatched: str = "continue"

    def locate(self, inner: Path) -> Path:
        """The document path of a part of the config."""
        for length in range(len(inner), 0, -1):
            root = self.roots.get(inner[:length])
            if root is not None:
                return (*root, *inner[length:])
        return (*self.path, *inner)


class Branch(Struct):
    """Tasks of a block by their index, and when they run; `when` None is the else."""

    when: str | bool | None
    body: list[int | Block]
    #: of the map that has the condition
    path: Path


class Block(Struct):
    """A `choose`, `while` or `until`."""

    word: str
    name: str
    branches: list[Branch]
    max: int | None
    path: Path


class Loop(Struct):
    items: Any
    iterator: str
    mode: str
    max_in_flight: int
    exec: str
    inner: Loop | None
    path: Path


class Arc(Struct):
    target: str
    when: str | bool | None
    args: dict[str, Any]
    path: Path


class Step(Struct):
    name: str
    path: Path
    tasks: list[Task] = []
    #: the order of the tasks where blocks guard some of them; []: one after the other
    flow: list[int | Block] = []
    desc: str = ""
    args: dict[str, Any] = {}
    admit: list[Rule] | None = None
    loop: Loop | None = None
    arcs: list[Arc] = []
    mode: str = "exclusive"
    on_no_match: str = "end"
    join: str = "any"
    join_count: int = 0
    #: completed | failed: what a token that ends here makes of the run; '' leaves it open
    end: str = ""
    timeout_s: float | None = None
    deadline_s: float | None = None
    failure_mode: str = "fail_fast"
    pool: str = "default"
    priority: int | None = None
    resources: tuple[str, ...] = ()
    emit: tuple[str, ...] = ()


class Webhook(Struct):
    url: str
    secret: str
    on: tuple[str, ...]
    path: Path


class Playbook(Struct):
    name: str = ""
    path: str = ""
    description: str = ""
    labels: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    workload: dict[str, Any] = {}
    #: files beside it that its tasks hold: path → sha256
    files: dict[str, str] = {}
    #: declarations of the typed inputs; their defaults stand in the workload
    inputs: dict[str, Any] = {}
    keychain: list[dict[str, Any]] = []
    webhooks: list[Webhook] = []
    schedules: list[dict[str, Any]] = []
    entry: str = ""
    final_step: str = ""
    result: Any = None
    timeout_s: float | None = None
    concurrency: int | None = None
    on_excess: str = "queue"
    priority: int = 0
    approval: bool = False
    ctx: dict[str, Any] = {}
    limits: dict[str, int] = {}
    emit: tuple[str, ...] = ()
    steps: list[Step] = []
