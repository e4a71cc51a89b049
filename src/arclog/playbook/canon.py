"""The canonical form of a playbook: one form for every way to write the same thing, each part with its path.

`normalize` builds it from a document, `plan.compile` turns it into a plan.
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
    #: path of the rule
    path: Path
    #: path of the map of `then`
    then_path: Path
    #: whether its condition is invalid, which is reported separately
    flawed: bool = False


class Task(Struct):
    name: str
    kind: KindSpec
    #: config keys as written
    config: dict[str, Any]
    path: Path
    #: document paths of parts of the config that are not below `path`; the longest prefix of the config path wins
    roots: dict[Path, Path] = {}
    #: config keys that contain the text of a file beside the playbook: key → path
    files: dict[str, str] = {}
    #: effective spec, without `policy`
    spec: dict[str, Any] = {}
    timeout_s: float = 3600.0
    #: None if there is no policy
    rules: list[Rule] | None = None
    on_unmatched: str = "continue"

    def locate(self, inner: Path) -> Path:
        """Return the document path of a part of the config."""
        for length in range(len(inner), 0, -1):
            root = self.roots.get(inner[:length])
            if root is not None:
                return (*root, *inner[length:])
        return (*self.path, *inner)


class Branch(Struct):
    """Tasks of a block by index, and their condition; `when` None is the else."""

    when: str | bool | None
    body: list[int | Block]
    #: path of the map that has the condition
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
    #: the order of the tasks if blocks guard some of them; [] for sequential order
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
    #: completed | failed: the state that a token that ends here gives the run; '' for none
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
    #: files beside the playbook that its tasks contain: path → sha256
    files: dict[str, str] = {}
    #: declarations of the typed inputs; their defaults are in the workload
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
