"""The errors that arclog's public functions raise. `ArclogError` is the base of all except `TaskFailed`.

    ArclogError
    ├── PlaybookError        the playbook has errors
    ├── RequestRejected      the request cannot succeed in this form
    │   ├── NotFound, Unauthenticated, NotAllowed, TooManyRequests
    │   ├── InputsRefused    the workload does not fit the playbook's inputs
    │   ├── RequestTooLarge, EventTooLarge
    │   ├── RunEnded         the run has ended and accepts no more signals
    │   └── DoesNotFit       a fork or retry: the recorded state does not fit the playbook
    ├── RunFailed            the run failed or was cancelled
    ├── SettingsError
    │   └── MissingExtra     an optional dependency is not installed
    ├── StoreError
    │   ├── Conflict         an idempotency key was used for another request, or another writer was faster
    │   └── StoreUnavailable the home or the database cannot be read or written
    │       └── NewerLog     a newer arclog wrote to this run
    │           └── Poisoned the run is in quarantine
    ├── ResultUnavailable    a stored result cannot be read or written
    │   ├── ResultTooLarge
    │   └── ResultStoreAway  the result store does not answer
    ├── SecretUnavailable    a secret cannot be stored or read
    ├── ServerUnavailable    the server cannot be reached
    │   └── ServerFailed     the server failed because of a bug
    └── InvariantBroken      a bug in arclog
    TaskFailed               raised by the code of a tool kind

A task that fails is not an exception: its error is data of the run. The code of a tool kind raises `TaskFailed` to fail a
task with an error kind of its choice.
"""

from arclog.model.errors import (
    ArclogError,
    Conflict,
    DoesNotFit,
    EventTooLarge,
    InputsRefused,
    InvariantBroken,
    MissingExtra,
    NewerLog,
    NotAllowed,
    NotFound,
    PlaybookError,
    Poisoned,
    RequestRejected,
    RequestTooLarge,
    ResultStoreAway,
    ResultTooLarge,
    ResultUnavailable,
    RunEnded,
    RunFailed,
    SecretUnavailable,
    ServerFailed,
    ServerUnavailable,
    SettingsError,
    StoreError,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from arclog.ports.tool import TaskFailed

__all__ = [
    "ArclogError",
    "Conflict",
    "DoesNotFit",
    "EventTooLarge",
    "InputsRefused",
    "InvariantBroken",
    "MissingExtra",
    "NewerLog",
    "NotAllowed",
    "NotFound",
    "PlaybookError",
    "Poisoned",
    "RequestRejected",
    "RequestTooLarge",
    "ResultStoreAway",
    "ResultTooLarge",
    "ResultUnavailable",
    "RunEnded",
    "RunFailed",
    "SecretUnavailable",
    "ServerFailed",
    "ServerUnavailable",
    "SettingsError",
    "StoreError",
    "StoreUnavailable",
    "TaskFailed",
    "TooManyRequests",
    "Unauthenticated",
]
