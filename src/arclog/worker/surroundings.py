"""What every command of one worker is carried out with."""

from __future__ import annotations

from dataclasses import dataclass

from arclog.model.config.settings import Settings
from arclog.ports.clock import Clock
from arclog.ports.control import Control
from arclog.ports.results import Results
from arclog.ports.secrets import Secrets
from arclog.worker.data.loop_results import Ordered
from arclog.worker.data.reading import ReadLately
from arclog.worker.logs import LogSink
from arclog.worker.templates.sync_reader import Bridge
from arclog.worker.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Surroundings:
    toolbox: Toolbox
    results: Results
    #: None: no keychain can be resolved here
    secrets: Secrets | None
    logs: LogSink
    clock: Clock
    settings: Settings
    control: Control
    bridge: Bridge
    kept: ReadLately
    ordered: Ordered
