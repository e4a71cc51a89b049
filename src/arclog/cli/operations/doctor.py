"""The command `doctor`: checks a server, or the installation that these settings describe, and suggests remedies.

A server is first checked from here (reachable, credentials, versions, clocks), then asked for its own checks. The exit
code is 1 if a check fails.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import FAILED, OK

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.client.connection import Connection
    from arclog.model.config.settings import Settings
    from arclog.ports.views.checks import Check, Diagnosis

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor_arguments(parser: Parser) -> None:
    parser.epilog = (
        "With --server, the server checks itself (requires the role admin). Otherwise the store, bus and results of the current\n"
        "settings are checked from this machine. Nothing is changed. The exit code is 1 if a check fails.\n\n"
        "examples: arclog doctor --server https://arclog.example.org --token-file admin.key\n"
        "          ARCLOG_STORE_URL=postgresql://… ARCLOG_BUS_URL=nats://… arclog doctor"
    )


def doctor_command(options: Namespace) -> int:
    import asyncio

    from arclog.cli.home import server_of, settings_of
    from arclog.cli.render import out_of

    settings, out = settings_of(options), out_of(options)
    checks = asyncio.run(_of_servers(settings, server_of(settings)) if server_of(settings) else _of_settings(settings))
    return _print_checks(checks, out)


def _print_checks(checks: list[Check], out: Out) -> int:
    from arclog.cli.render import clean, counted

    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    if out.as_json:
        out.data({"status": "fail" if failed else "warn" if warned else "ok", "checks": checks})
        return FAILED if failed else OK
    wide = max(len(check.name) for check in checks)
    for check in checks:
        if out.quiet and check.status == "ok":
            continue
        word = out.paint(f"{check.status:<4}", _STYLES[check.status])
        out.print(f"{word}  {clean(check.name):<{wide}}  {clean(check.detail)}")
        if check.remedy:
            out.print(f"      {'':<{wide}}  → {clean(check.remedy)}")
    if not out.quiet:
        summary = [f"{failed} failed" if failed else "", f"{warned} to review" if warned else ""]
        out.print(f"{counted(len(checks), 'check')}: {', '.join(filter(None, summary)) or 'no problems found'}")
    return FAILED if failed else OK


async def _of_settings(settings: Settings) -> list[Check]:
    from arclog.engine.duties.doctor import examined, failed
    from arclog.model.errors import ArclogError
    from arclog.wiring.doctor import backend_probes, can_be_opened, diagnosed, opened

    checks = await examined(backend_probes(settings), settings.number("doctor.check_s"))
    if not can_be_opened(checks):
        return checks
    try:
        async with opened(settings) as runtime:
            return (await diagnosed(settings, runtime, served=False)).checks
    except ArclogError as problem:
        return [*checks, failed("open", problem)]


async def _of_servers(settings: Settings, urls: str) -> list[Check]:
    """Return checks of each server from outside, and of its own key; shared checks from the first server that
    responds.
    """
    from msgspec.structs import replace

    from arclog.client.asynchronous import token_of
    from arclog.client.connection import Connection, checked_urls
    from arclog.ports.views.checks import OWN

    several = checked_urls(urls)
    limit_s = min(settings.number("client.timeout_s"), settings.number("doctor.check_s"))
    hasty = settings.replaced(client__patience_s=0.0, client__timeout_s=limit_s)
    outside: list[Check] = []
    shared: list[Check] = []
    for url in several:
        connection = Connection(url, hasty, token=token_of(settings))
        try:
            server_checks, checks = await _examined(connection, settings)
        finally:
            await connection.close()
        where = f"{url.partition('://')[2]} " if len(several) > 1 else ""
        if where:
            server_checks += [check for check in checks if check.name in OWN]
            checks = [check for check in checks if check.name not in OWN]
        outside += [replace(check, name=f"{where}{check.name}") for check in server_checks]
        shared = shared or checks
    return outside + shared


async def _examined(connection: Connection, settings: Settings) -> tuple[list[Check], list[Check]]:
    """The checks of one server from outside, in the order of their dependencies, and its own checks."""
    import time

    import msgspec

    from arclog.model.errors import (
        ArclogError,
        NotAllowed,
        NotFound,
        TooManyRequests,
        Unauthenticated,
    )
    from arclog.ports.views.checks import FAIL, OK, Check, Diagnosis

    try:
        await connection.ask("GET", "/health")
    except ArclogError as problem:
        remedy = "start it, or check the address, DNS, firewalls and proxies"
        return [Check("server", FAIL, str(problem), remedy)], []
    checks = [Check("server", OK, f"{connection.url} answers")]
    try:
        await connection.ask("GET", "/ready")
        checks.append(Check("ready", OK, "it accepts work"))
    except ArclogError as problem:
        remedy = "the server is shutting down, or cannot reach its store: see the checks below"
        checks.append(Check("ready", FAIL, str(problem), remedy))
    before = time.time_ns() // 1000
    try:
        raw = await connection.ask("GET", "/api/doctor", extra_s=settings.number("doctor.check_s"))
        diagnosis = msgspec.json.decode(raw, type=Diagnosis)
    except (Unauthenticated, NotAllowed, TooManyRequests) as problem:
        remedy = "these checks require a key with the role admin: arclog key create --name doctor --role admin, on the server's store"
        return [*checks, Check("access", FAIL, str(problem), remedy)], []
    except NotFound as problem:
        return [*checks, Check("version", FAIL, str(problem), "the server is older than this arclog: update it")], []
    except ArclogError as problem:
        remedy = (
            "the server cannot authenticate callers without its store: run `arclog doctor` on its machine with "
            "its settings (ARCLOG_STORE_URL), and read its log"
        )
        return [*checks, Check("findings", FAIL, str(problem), remedy)], []
    except msgspec.DecodeError as problem:
        remedy = "server and client have different versions, or a proxy answered: update both, check the address"
        return [*checks, Check("version", FAIL, f"its report cannot be read: {problem}", remedy)], []
    after = time.time_ns() // 1000
    checks.append(Check("access", OK, "access granted as admin"))
    checks.append(_version(diagnosis))
    checks.append(_skew(diagnosis.now, before, after, settings.number("doctor.max_skew_s")))
    return checks, diagnosis.checks


def _version(diagnosis: Diagnosis) -> Check:
    from arclog import __version__
    from arclog.ports import work
    from arclog.ports.views.checks import FAIL, OK, WARN, Check

    detail = f"server {diagnosis.version}, protocol {diagnosis.protocol}; here {__version__}, protocol {work.PROTOCOL}"
    if diagnosis.protocol != work.PROTOCOL:
        return Check(
            "version",
            FAIL,
            detail,
            "workers of this version are not compatible with it: install the same version on both",
        )
    if diagnosis.version != __version__:
        return Check(
            "version", WARN, detail, "the versions are compatible; install the same version on both when possible"
        )
    return Check("version", OK, detail)


def _skew(reference: int, before: int, after: int, most_s: float) -> Check:
    """The minimum difference between the server's clock and this machine's; the former was read between the two
    times.
    """
    from arclog.ports.views.checks import OK, WARN, Check

    apart = max(before - reference, reference - after, 0) / 1_000_000
    name = "server's clock"
    if apart <= most_s:
        return Check(name, OK, f"within {max(apart, (after - before) / 1_000_000):.3f} s of this machine's")
    way = "behind" if reference < before else "ahead of"
    return Check(
        name, WARN, f"{apart:.1f} s {way} this machine's", "one of the clocks is wrong: run chrony or systemd-timesyncd"
    )
