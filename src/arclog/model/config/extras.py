"""Optional dependencies: which extra of the package installs which module, and the error for a missing module.

Invariant: code that needs a module of an extra imports it under `required(...)`; no other code catches ImportError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arclog.model.errors import MissingExtra

#: extra → modules that it installs and arclog imports
EXTRAS: dict[str, tuple[str, ...]] = {
    "postgres": ("psycopg",),
    "duckdb": ("duckdb", "pytz"),
    "object": ("obstore",),
    "nats": ("nats", "nkeys"),
    "lineage": ("sqlglot",),
    "server": (
        "argon2",
        "cronsim",
        "httptools",
        "opentelemetry",
        "requests",
        "prometheus_client",
        "jwt",
        "structlog",
        "starlette",
        "uvicorn",
        "uvloop",
    ),
}
#: the extra that includes all others
ALL = "all"

_EXTRA_OF = {module: extra for extra, modules in EXTRAS.items() for module in modules}


@contextmanager
def required(extra: str, feature: str) -> Iterator[None]:
    """Convert a failed import of an extra's module to MissingExtra, which says how to install it.

    `feature` is the subject of the message: "kind postgres", "ARCLOG_BUS_URL".
    """
    try:
        yield
    except ImportError as problem:
        error = missing(problem, feature, extra)
        if error is None:
            raise
        raise error from None


def missing(problem: ImportError, feature: str, extra: str = "") -> MissingExtra | None:
    """Return the error for a module that could not be imported; None if no extra installs it, which is a bug in arclog.

    Some packages raise a plain ImportError without a module's name if a part of them is missing (psycopg without its
    binary); the requested extra installs that part, too.
    """
    module = (problem.name or "").partition(".")[0]
    if module in _EXTRA_OF:
        extra = _EXTRA_OF[module]
        return MissingExtra(f"{feature} needs the package {module}, which is not installed", extra)
    if module or not extra:
        return None
    reason = str(problem).partition("\n")[0].rstrip(".")
    return MissingExtra(f"{feature} needs packages that cannot be loaded ({reason})", extra)
