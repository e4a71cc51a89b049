"""The errors that arclog's public functions raise. `ArclogError` is the base of all of them.

A task that fails is not an exception: its error is data of the run. `TaskFailed` is for the code of tool kinds, which raises it
to fail a task with an error kind of its choice.
"""

from arclog.model.errors import (
    ArclogError,
    InputsRefused,
    MissingExtra,
    NotAllowed,
    NotFound,
    PlaybookError,
    RequestRejected,
    RunFailed,
    ServerUnavailable,
    SettingsError,
    StoreUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from arclog.ports.tool import TaskFailed

__all__ = [
    "ArclogError",
    "InputsRefused",
    "MissingExtra",
    "NotAllowed",
    "NotFound",
    "PlaybookError",
    "RequestRejected",
    "RunFailed",
    "ServerUnavailable",
    "SettingsError",
    "StoreUnavailable",
    "TaskFailed",
    "TooManyRequests",
    "Unauthenticated",
]
