"""How long a stored result is kept. Pure: `arclog gc` asks with its clock.

- Nothing goes while the execution that stored it has not ended.
- `step` and `execution`: until `keep` after the execution's end. `workflow`: until `keep` after the end of the execution
  at the root of its tree. `permanent`: forever.
- An explicit time to live counts from when it was stored, and ends any of these earlier.
"""

from __future__ import annotations

#: the longer a scope lives, the higher it ranks
SCOPES = ("step", "execution", "workflow", "permanent")


def kept_until(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, keep: int
) -> int | None:
    """The moment (microseconds) from which a result may go; None while that is not known, or never. `ended_at` is that of
    the execution that stored it, None while it runs.
    """
    if ended_at is None:
        return None
    by_scope: int | None = None
    if scope in ("step", "execution"):
        by_scope = ended_at + keep
    elif scope == "workflow" and root_ended_at is not None:
        by_scope = root_ended_at + keep
    if expires_at is None:
        return by_scope
    by_ttl = max(expires_at, ended_at)
    return by_ttl if by_scope is None else min(by_ttl, by_scope)
