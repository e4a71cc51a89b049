"""What a look at one part of an arclog came to. A check that is not `ok` says what to do about it."""

from __future__ import annotations

from msgspec import Struct

OK = "ok"
#: it works, and something is not as it should be
WARN = "warn"
#: something does not work
FAIL = "fail"

SECRETS = "secrets"
CONFINEMENT = "confinement"
#: Checks that each server has its own answer to: its key and its kernel are its own.
OWN = frozenset({SECRETS, CONFINEMENT})


class Check(Struct, frozen=True, omit_defaults=True):
    #: what was looked at: `store`, `pool gpu`
    name: str
    #: ok | warn | fail
    status: str
    #: what was found
    detail: str
    #: what to do; '' when all is well
    remedy: str = ""


class Diagnosis(Struct, frozen=True):
    """What a server finds out about itself."""

    version: str
    #: of workers, see ports.work
    protocol: int
    #: the server's clock, microseconds since 1970
    now: int
    checks: list[Check]
