"""What the routes work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from arclog.model.principal import Principal
from arclog.model.settings import Settings
from arclog.ports.api import Api
from arclog.ports.control import Control
from arclog.ports.results import Results

#: Tells who sends a request with these headers (names in lower case). Raises NotAllowed, or Unauthenticated.
Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal]]


@dataclass(slots=True)
class Services:
    settings: Settings
    #: the API as one principal sees it: what belongs to another tenant is not there
    api: Callable[[Principal], Api]
    control: Control
    results: Results
    authenticate: Authenticate
    #: says '' when all is well, else what is wrong; `/ready` asks it
    ready: Callable[[], Awaitable[str]]
    #: set while the server drains: long polls and streams end
    draining: Callable[[], bool] = field(default=lambda: False)
