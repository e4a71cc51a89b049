"""Commands that work with recorded runs: fork, replay, diff. (`retry --from` and `--failed`: see signals.)"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import FAILED, OK, Usage
from arclog.cli.options import change_arguments, mapping_of

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.plan.net import Plan
    from arclog.ports.views.api import Api, ForkRequest, Listed, ReplayCheck, RunsDiff

_PAGE = 200
#: Values that are shown in the text output; --json has all of them.
_MOST_SHOWN = 30


def request_of(options: Namespace, *, at: int | None = None, step: str = "", failed: bool = False) -> ForkRequest:
    """The request for the new run, from the options."""
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks.files import called_playbooks, files_beside, playbook_text, workload_of
    from arclog.ports.views.api import ForkRequest

    settings = settings_of(options)
    renamed = mapping_of(options)
    text, file, files = "", "", {}
    if options.playbook:
        text, file = playbook_text(options.playbook, settings)
        beside = FilesBeside(settings)
        files = {**called_playbooks(text, file, settings, beside), **files_beside(text, file, settings), **beside.taken}
    workload = workload_of(None, options.assignments, settings)
    return ForkRequest(at, step, failed, text, file, files, workload, renamed)


# ── fork ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fork_arguments(parser: Parser) -> None:
    from arclog.cli.history.state import seq

    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("--at", metavar="SEQ", type=seq, required=True, help="start from the state after this event")
    change_arguments(parser)
    parser.epilog = (
        "The new run starts with the events up to SEQ. Work that was in progress at that event restarts after its last\n"
        "finished task. `arclog events ID` shows the events, `arclog state ID --at SEQ` the state.\n"
        "A changed playbook must fit the recorded state. Otherwise the request is refused, and the message lists what\n"
        "does not fit and the latest event from which it would.\n\n"
        "example: arclog fork last --at 12 --playbook changed.yaml --set limit=10"
    )


def fork_command(options: Namespace) -> int:
    from arclog.cli.runs.run import forked_command

    return forked_command(options, request_of(options, at=options.at))


# ── replay ───────────────────────────────────────────────────────────────────────────────────────────────────────


def replay_arguments(parser: Parser) -> None:
    from arclog.cli.options import since

    parser.add_argument("id", metavar="ID", nargs="?", default="", help="execution id, its first digits, or last")
    parser.add_argument("--all", action="store_true", help="check every run")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=since,
        help="with --all: only runs requested since then (30s, 10m, 2h, 1d ago, or a date)",
    )
    parser.epilog = (
        "Repeats every recorded decision with this version of arclog and compares it with the log. No task runs and nothing is\n"
        "written. A difference means that this version would have continued the run differently: run `replay --all` before an\n"
        "upgrade.\n\n"
        "examples:\n"
        "  arclog replay last\n"
        "  arclog replay --all --since 7d --json\n\n"
        "exit codes: 0 no difference, 1 a difference"
    )


def replay_command(options: Namespace) -> int:
    if bool(options.id) == options.all:
        raise Usage("name a run, or use --all", "arclog replay last")
    if options.since is not None and not options.all:
        raise Usage("--since requires --all")
    return _replay_all(options) if options.all else _replay_one(options)


def _replay_one(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        check = await api.replay(execution_id)
        if out.as_json:
            out.data(check)
        else:
            _print_check(check, out)
        return OK if check.ok else FAILED

    return with_run(options, work)


def _replay_all(options: Namespace) -> int:
    import asyncio

    from arclog.cli.home import exists, nothing_yet, opened, settings_of
    from arclog.cli.render import counted, out_of
    from arclog.model.ids import timestamp

    out, settings = out_of(options), settings_of(options)
    since = timestamp(options.since) if options.since is not None else ""
    if not exists(settings):
        out.notice(nothing_yet(settings))
        return OK

    async def go() -> int:
        runs = events = different = 0
        async with opened(settings, read_only=True) as here:
            async for run in _all_runs(here.api, since):
                check = await here.api.replay(run.execution_id)
                runs, events = runs + 1, events + check.events
                different += not check.ok
                if out.as_json:
                    out.data(check)
                elif not check.ok:
                    out.print(out.paint(f"{run.name} {run.execution_id}", "bold"))
                    _print_check(check, out)
        if not out.as_json and not out.quiet:
            summary = f"{counted(runs, 'run')} checked, {counted(events, 'event')}: "
            out.print(summary + (f"{counted(different, 'difference')}" if different else "no difference"))
        return FAILED if different else OK

    return asyncio.run(go())


async def _all_runs(api: Api, since: str) -> Any:
    before = ""
    while page := await api.list(before=before, since=since, limit=_PAGE):
        run: Listed
        for run in page:
            yield run
        if len(page) < _PAGE:
            return
        before = page[-1].execution_id


def _print_check(check: ReplayCheck, out: Out) -> None:
    from arclog.cli.render import clean, counted, indented, json_text

    if check.difference is None:
        folded = f", {check.folded:,} of them not compared" if check.folded else ""
        if not out.quiet:
            out.print(
                f"{counted(check.events, 'event')}{folded}, {counted(check.decisions, 'decision')}: no difference"
            )
        return
    first = check.difference
    out.print(out.paint(f"event {first.seq} differs: {', '.join(first.fields)}", "red"))
    for label, event in (("recorded", first.recorded), ("decided today", first.decided)):
        text = "nothing" if event is None else json_text(event)
        if event is None and first.problem:
            text = f"nothing: {first.problem}" if label == "decided today" else text
        out.print(indented(f"{label:<14}{clean(text)}"))


# ── diff ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def diff_arguments(parser: Parser) -> None:
    parser.add_argument(
        "id", metavar="A", help="execution id, its first digits, or last; or a playbook: FILE or PATH@VERSION"
    )
    parser.add_argument("other", metavar="B", help="the run, or the playbook, to compare with")
    parser.epilog = (
        "Shows where two runs first diverge and why, steps that ran differently, values that differ, and durations. For runs of\n"
        "two versions of a playbook, it also shows what changed in the net. Of two playbooks it shows what changed in the net\n"
        "and in the text.\n\n"
        "examples:\n"
        "  arclog diff 3811 last\n"
        "  arclog diff daily.yaml changed.yaml\n"
        "  arclog diff reports/daily@2 reports/daily@3\n\n"
        "exit codes: 0 no difference, 1 the runs or playbooks differ"
    )


def diff_command(options: Namespace) -> int:
    from arclog.cli.home import checked, resolve, with_run
    from arclog.cli.render import out_of

    out = out_of(options)
    runs = [word for word in (options.id, options.other) if _is_run(word)]
    if not runs:
        return _playbooks_diff(options, out)
    if len(runs) == 1:
        playbook = options.other if runs[0] == options.id else options.id
        raise Usage(
            f"{runs[0]} is a run and {playbook} is a playbook; diff compares two runs or two playbooks",
            f"`arclog simulate {playbook} --from {runs[0]}` shows what the playbook would have done in the run",
        )
    if options.other != "last":
        checked(options.other)

    async def work(api: Api, execution_id: str) -> int:
        difference = await api.diff(execution_id, await resolve(api, options.other))
        if out.as_json:
            out.data(difference)
        else:
            out.print(_diff_page(difference, out))
        return OK if difference.divergence is None else FAILED

    return with_run(options, work)


def _diff_page(difference: RunsDiff, out: Out) -> str:
    from arclog.cli.render import indented, table

    parts: list[str] = []
    width = out.size()[0] - 2

    def section(title: str, text: str) -> None:
        parts.extend((*([""] if parts else []), out.paint(title, "bold"), indented(text)))

    section("first divergence", _divergence_lines(difference.divergence))
    if difference.net is not None:
        section("playbook", "\n".join(_net_lines(difference.net)))
    if difference.steps:
        rows = [_step_row(step) for step in difference.steps]
        section("steps", table(("STEP", "RUNS A", "RUNS B", "A", "B", "ONLY A TO", "ONLY B TO"), rows, width, out))
    if difference.values:
        rows = [(value["path"], _short(value["a"]), _short(value["b"])) for value in difference.values[:_MOST_SHOWN]]
        section("values", table(("PATH", "A", "B"), rows, width, out))
        if len(difference.values) > _MOST_SHOWN or difference.more_values:
            parts.append(indented(f"… more: arclog diff {difference.a} {difference.b} --json"))
    if difference.durations:
        rows = [(step["step"], _ms(step["a_ms"]), _ms(step["b_ms"])) for step in difference.durations]
        section("durations", table(("STEP", "A", "B"), rows, width, out, right=(1, 2)))
    return "\n".join(parts)


def _net_lines(net: dict[str, Any]) -> list[str]:
    words = {"steps_added": "+ step", "steps_removed": "- step", "steps_changed": "~ step"}
    words |= {"arcs_added": "+ arc", "arcs_removed": "- arc"}
    return [f"{word} {name}" for key, word in words.items() for name in net[key]]


# -- of two playbooks --------------------------------------------------------------------------------------------------------


def _is_run(word: str) -> bool:
    """Whether a word is a run and not a playbook."""
    import os

    return word == "last" or (
        word.isascii() and word.isdigit() and not os.path.exists(word)  # noqa: PTH110 - pathlib costs a start 2 ms
    )


def _playbooks_diff(options: Namespace, out: Out) -> int:
    import asyncio
    from difflib import unified_diff

    from msgspec import to_builtins

    from arclog.cli.home import exists, opened, settings_of
    from arclog.cli.playbooks.files import in_catalog, path_and_version, playbook_text
    from arclog.cli.render import clean
    from arclog.history.diff import changed_settings, net_diff

    settings = settings_of(options)
    words = (options.id, options.other)
    if words == ("-", "-"):
        raise Usage("only one of the playbooks can come from standard input")
    texts = {word: playbook_text(word, settings) for word in words if not in_catalog(word)}
    registered = {word: path_and_version(word) for word in words if word not in texts}

    async def read() -> None:
        async with opened(settings, read_only=True) as here:
            for word, (path, version) in registered.items():
                entry = await here.api.registered(path, version)
                texts[word] = (entry.source, f"{path}@{entry.version}")

    if registered:
        if not exists(settings):
            word = next(iter(registered))
            raise Usage(
                f"{word} is not a file, and nothing is registered yet in {settings.text('home')}",
                "give two files, two PATH@VERSIONs of the catalog, or two runs",
            )
        asyncio.run(read())
    (a_text, a_name), (b_text, b_name) = (texts[word] for word in words)
    a, b = (_plan_of(word, *texts[word], settings, beside=word not in registered) for word in words)
    net, changed = net_diff(a, b), changed_settings(a, b)
    lines = list(unified_diff(a_text.splitlines(), b_text.splitlines(), a_name, b_name, lineterm=""))
    parts = None if net is None else to_builtins(net)
    if out.as_json:
        out.data(
            {"a": a_name, "b": b_name, "net": parts, "settings": changed, "diff": "".join(f"{x}\n" for x in lines)}
        )
    else:
        from arclog.cli.render import indented

        known = [*([] if parts is None else _net_lines(parts)), *(f"~ {name}" for name in changed)]
        out.print(out.paint("playbook", "bold"))
        out.print(indented(clean("\n".join(known)) if known else "the same steps, arcs and settings"))
        if lines:
            colours = {"+": "green", "-": "red", "@": "dim"}
            out.print()
            out.print(out.paint("text", "bold"))
            shown = [clean(line) for line in lines]
            out.print("\n".join(out.paint(line, colours[line[0]]) if line[:1] in colours else line for line in shown))
    return FAILED if net is not None or changed else OK


def _plan_of(word: str, text: str, name: str, settings: Settings, *, beside: bool) -> Plan:
    """The plan of a playbook. Files beside one of the catalog are not here."""
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.model.errors import PlaybookError
    from arclog.plan.build import build_or_raise
    from arclog.wiring.kinds import installed_kinds

    if beside:
        return build_or_raise(text, name, installed_kinds(), settings, FilesBeside(settings).of(word))
    try:
        return build_or_raise(text, name, installed_kinds(), settings)
    except PlaybookError as error:
        path, _, version = name.rpartition("@")
        raise Usage(
            f"{name} cannot be compiled here: {error.findings[0].message}",
            f"`arclog catalog diff {path}@{version} VERSION` compares the texts of two versions",
        ) from None


def _divergence_lines(first: dict[str, Any] | None) -> str:
    from arclog.cli.render import clean

    if first is None:
        return "none"
    lines = [clean(first["cause"])]
    for label in ("a", "b"):
        seq = first[f"{label}_seq"]
        at = f"event {seq}" if seq else "no event"
        lines.append(f"{label.upper()}  {at:<12} {_short(first[label]) if first[label] is not None else ''}".rstrip())
    return "\n".join(lines)


def _step_row(step: dict[str, Any]) -> tuple[str, ...]:
    arcs = [", ".join(step[f"{side}_arcs"]) for side in ("a", "b")]
    return (
        step["step"],
        str(step["a_runs"]),
        str(step["b_runs"]),
        step["a_status"] or "–",
        step["b_status"] or "–",
        *arcs,
    )


def _ms(took: int | None) -> str:
    from arclog.cli.render import duration

    return "–" if took is None else duration(took / 1000)


def _short(value: Any) -> str:
    from arclog.cli.render import clip, json_text, one_line

    return clip(one_line(json_text(value)), 60)
