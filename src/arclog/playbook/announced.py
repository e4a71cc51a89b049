"""What a playbook says of the time before and after its runs: schedules, and who is told of an end."""

from __future__ import annotations

import re
from typing import Any

from arclog.playbook.canon import Playbook, Webhook
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings
from arclog.playbook.yaml.document import Path
from arclog.playbook.yaml.lenient import as_list, as_map, as_text

#: key of executor.spec → the end that it stands for
NOTIFICATIONS = {"on_failure": "failed", "on_success": "completed"}
SCHEDULE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
ADDRESS = r"^[^@\s,;<>\"?&]+@[^@\s,;<>\"?&]+$"


def read_notifications(findings: Findings, spec: dict[str, Any], path: Path) -> list[Webhook]:
    """`on_failure` and `on_success` as the webhooks that they stand for; an e-mail is one to a mailto: address."""
    found: list[Webhook] = []
    for key, end in NOTIFICATIONS.items():
        for index, raw in enumerate(as_list(spec.get(key))):
            entry, here = as_map(raw), (*path, key, index)
            if not isinstance(raw, dict):
                continue
            if ("webhook" in entry) == ("email" in entry):
                message = f"{key}: an entry has either webhook or email"
                findings.value("one-of", message, here, "{webhook: https://…} or {email: name@example.org}")
            elif "webhook" in entry:
                url = as_text(entry["webhook"])
                if has_template(url) or not url.startswith(("http://", "https://")):
                    message = f"{key}: webhook is not an http:// or https:// address"
                    hint = "write the address itself; it cannot depend on the run"
                    findings.value("bad-value", message, (*here, "webhook"), hint)
                found.append(Webhook(url, as_text(entry.get("secret")), (end,), here))
            else:
                found.append(Webhook(f"mailto:{','.join(_addresses(findings, key, entry, here))}", "", (end,), here))
    return found


def _addresses(findings: Findings, key: str, entry: dict[str, Any], path: Path) -> list[str]:
    given = entry["email"] if isinstance(entry["email"], list) else [entry["email"]]
    if "secret" in entry:
        findings.key("unknown-key", f"{key}: secret signs a webhook; an e-mail has none", (*path, "secret"))
    if not given:
        findings.value("bad-value", f"{key}: email has no address", (*path, "email"), "email: name@example.org")
    for address in given:
        if isinstance(address, str) and not re.fullmatch(ADDRESS, address):
            message = f"{key}: {address[:80]!r} is not an e-mail address"
            findings.value("bad-value", message, (*path, "email"), "email: name@example.org")
    return [address for address in given if isinstance(address, str)]


def read_schedules(findings: Findings, given: list[Any], path: Path, playbook: Playbook) -> list[dict[str, Any]]:
    """The schedules with their names; what can never fire is a finding."""
    made: list[dict[str, Any]] = []
    names: dict[str, Path] = {}
    for index, raw in enumerate(given):
        if not isinstance(raw, dict):
            continue
        here = (*path, index)
        own = {key: value for key, value in raw.items() if not key.startswith("x-")}
        name = as_text(own.get("name")) or (playbook.path or playbook.name).strip("/").replace("/", ".")
        if not re.fullmatch(SCHEDULE_NAME, name):
            message = f"schedules: {name[:80]!r} is not a valid name of a schedule"
            hint = "letters, digits, '.', '_' and '-', at most 128: name: nightly"
            findings.value("bad-name", message, (*here, "name") if "name" in own else here, hint)
        findings.unique(name, (*here, "name") if "name" in own else here, names, "schedule")
        if wrong := cron_fault(as_text(own.get("cron"))):
            findings.value("bad-value", f"schedules: cron: {wrong}", (*here, "cron"), "as in '0 6 * * 1-5'")
        if wrong := zone_fault(as_text(own.get("tz"), "UTC")):
            findings.value("bad-value", f"schedules: tz: {wrong}", (*here, "tz"), "as in Europe/Berlin")
        made.append({**own, "name": name})
    return made


def cron_fault(cron: str) -> str:
    """The problem of a cron expression; '' if there is none., or nobody here can tell."""
    if not cron:
        return ""  # that it is missing is said elsewhere
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:  # what fires schedules has it
        return ""
    from datetime import UTC, datetime

    try:
        next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)))
    except StopIteration:
        return f"{cron[:80]!r} never comes"
    except (CronSimError, ValueError, AssertionError) as problem:
        return f"{cron[:80]!r}: {problem}; five fields are needed (minute hour day month weekday)"
    return ""


def zone_fault(name: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"there is no time zone {name[:80]!r}"
    return ""
