"""The result of a health check of one part of an installation. A check that is not `ok` has a remedy."""

from __future__ import annotations

from msgspec import Struct

OK = "ok"
#: it works, but needs attention
WARN = "warn"
#: it does not work
FAIL = "fail"

SECRETS = "secrets"
CONFINEMENT = "confinement"
LOCAL_FILES = "local files"
#: Checks with a separate answer per server, since each has its own key, kernel and files.
OWN = frozenset({SECRETS, CONFINEMENT, LOCAL_FILES})


class Check(Struct, frozen=True, omit_defaults=True):
    #: the checked part: `store`, `pool gpu`
    name: str
    #: ok | warn | fail
    status: str
    #: the finding
    detail: str
    #: the remedy; '' if everything is fine
    remedy: str = ""


class Diagnosis(Struct, frozen=True):
    """The health checks of a server."""

    version: str
    #: protocol of workers, see ports.work
    protocol: int
    #: the server's clock, microseconds since 1970
    now: int
    checks: list[Check]
