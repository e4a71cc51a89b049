"""Carries out checks side by side, each within its time: one that hangs or breaks is a finding, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from arclog.model.errors import ArclogError
from arclog.ports.views.checks import FAIL, Check

#: a check's name, and the look at it
Probe = tuple[str, Callable[[], Awaitable[Sequence[Check]]]]


async def examined(probes: Sequence[Probe], limit_s: float) -> list[Check]:
    """What all of them found, in their order."""
    found = await asyncio.gather(*(_looked(name, look, limit_s) for name, look in probes))
    return [check for each in found for check in each]


async def _looked(name: str, look: Callable[[], Awaitable[Sequence[Check]]], limit_s: float) -> Sequence[Check]:
    try:
        async with asyncio.timeout(limit_s):
            return await look()
    except TimeoutError:
        remedy = "the checked service hangs or is overloaded; see the other checks and the server's log, then try again"
        return [Check(name, FAIL, f"no answer within {limit_s:g} s (doctor.check_s)", remedy)]
    except ArclogError as problem:
        return [failed(name, problem)]
    except Exception as bug:  # noqa: BLE001 - the other checks are needed most when something unforeseen is wrong
        return [Check(name, FAIL, f"{type(bug).__name__}: {bug}", "this is a bug in arclog; please report it")]


def failed(name: str, problem: ArclogError) -> Check:
    """Our errors say what, where and, behind the last semicolon, what to do."""
    what, _, remedy = str(problem).rpartition("; ")
    return Check(name, FAIL, what or remedy, remedy if what else "fix the reported problem, then try again")
