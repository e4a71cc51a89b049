"""The command `doctor`: what is wrong with a server, or with the arclog that these settings describe, and what to do.

A server is first looked at from here (is it there, does it let us in, do versions and clocks fit), then asked for what it
finds itself. Exit code 1 when something does not work.
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
        out.say(f"{word}  {clean(check.name):<{wide}}  {clean(check.detail)}")
        if check.remedy:
            out.say(f"      {'':<{wide}}  → {clean(check.remedy)}")
    if not out.quiet:
        told = [f"{failed} failed" if failed else "", f"{warned} to review" if warned else ""]
        out.say(f"{counted(len(checks), 'check')}: {', '.join(filter(None, told)) or 'no problems found'}")
    return FAILED if failed else OK


async def _of_settings(settings: Settings) -> list[Check]:
    from arclog.engine.duties.doctor import examined, failed
    from arclog.model.errors import ArclogError
    from arclog.wiring.doctor import backend_probes, can_be_opened, diagnosed, opened

    found = await examined(backend_probes(settings), settings.number("doctor.check_s"))
    if not can_be_opened(found):
        return found
    try:
        async with opened(settings) as here:
            return (await diagnosed(settings, here, served=False)).checks
    except ArclogError as problem:
        return [*found, failed("open", problem)]


async def _of_servers(settings: Settings, urls: str) -> list[Check]:
    """Each server from outside, and its own key; what they share, as the first that answers tells it."""
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
            seen, found = await _examined(connection, settings)
        finally:
            await connection.close()
        where = f"{url.partition('://')[2]} " if len(several) > 1 else ""
        if where:
            seen += [check for check in found if check.name in OWN]
            found = [check for check in found if check.name not in OWN]
        outside += [replace(check, name=f"{where}{check.name}") for check in seen]
        shared = shared or found
    return outside + shared


async def _examined(connection: Connection, settings: Settings) -> tuple[list[Check], list[Check]]:
    """One server from the outside in (what a later check needs was found to work), and what it found itself."""
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
        found = msgspec.json.decode(raw, type=Diagnosis)
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
    checks.append(_version(found))
    checks.append(_skew(found.now, before, after, settings.number("doctor.max_skew_s")))
    return checks, found.checks


def _version(found: Diagnosis) -> Check:
    from arclog import __version__
    from arclog.ports import work
    from arclog.ports.views.checks import FAIL, OK, WARN, Check

    detail = f"server {found.version}, protocol {found.protocol}; here {__version__}, protocol {work.PROTOCOL}"
    if found.protocol != work.PROTOCOL:
        return Check(
            "version",
            FAIL,
            detail,
            "workers of this version are not compatible with it: install the same version on both",
        )
    if found.version != __version__:
        return Check(
            "version", WARN, detail, "the versions are compatible; install the same version on both when possible"
        )
    return Check("version", OK, detail)


def _skew(there: int, before: int, after: int, most_s: float) -> Check:
    """How far the server's clock is from ours, at least: it was read at some moment between the two of ours."""
    from arclog.ports.views.checks import OK, WARN, Check

    apart = max(before - there, there - after, 0) / 1_000_000
    name = "server's clock"
    if apart <= most_s:
        return Check(name, OK, f"within {max(apart, (after - before) / 1_000_000):.3f} s of this machine's")
    way = "behind" if there < before else "ahead of"
    return Check(
        name, WARN, f"{apart:.1f} s {way} this machine's", "one of the clocks is wrong: run chrony or systemd-timesyncd"
    )
