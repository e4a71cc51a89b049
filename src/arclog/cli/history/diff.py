"""`arclog diff`: compare two runs or two playbooks."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import FAILED, OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.plan.net import Plan
    from arclog.ports.views.api import Api, CatalogDiff, CatalogVersion, RunsDiff

#: Values that are shown in the text output; --json has all of them.
_MOST_SHOWN = 30


def diff_arguments(parser: Parser) -> None:
    parser.add_argument(
        "id", metavar="A", help="execution id, its first digits, or last; or a playbook: FILE or PATH@VERSION"
    )
    parser.add_argument("other", metavar="B", help="the run, or the playbook, to compare with")
    parser.epilog = (
        "Shows where two runs first diverge and why, steps that ran differently, values that differ, and durations. For runs of\n"
        "two versions of a playbook, it also shows what changed in the net. Of two playbooks it shows what changed in the net\n"
        "and in the text. Digits alone are a run; a file with such a name is written ./NAME.\n\n"
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
    from arclog.cli.render import indented, milliseconds, table

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
        rows = [(step["step"], milliseconds(step["a_ms"]), milliseconds(step["b_ms"])) for step in difference.durations]
        section("durations", table(("STEP", "A", "B"), rows, width, out, right=(1, 2)))
    return "\n".join(parts)


def _net_lines(net: dict[str, Any]) -> list[str]:
    words = {"steps_added": "+ step", "steps_removed": "- step", "steps_changed": "~ step"}
    words |= {"arcs_added": "+ arc", "arcs_removed": "- arc"}
    return [f"{word} {name}" for key, word in words.items() for name in net[key]]


# -- of two playbooks --------------------------------------------------------------------------------------------------------


def _is_run(word: str) -> bool:
    """Return whether a word is a run and not a playbook. `./2024` is a file with such a name."""
    return word == "last" or (word.isascii() and word.isdigit())


def _playbooks_diff(options: Namespace, out: Out) -> int:
    import asyncio
    from difflib import unified_diff

    from msgspec import to_builtins

    from arclog.cli.home import exists, opened, server_of, settings_of
    from arclog.cli.playbooks.files import in_catalog, path_and_version, playbook_text
    from arclog.cli.render import clean
    from arclog.history.diff import changed_settings, net_diff

    settings = settings_of(options)
    words = (options.id, options.other)
    if words == ("-", "-"):
        raise Usage("only one of the playbooks can come from standard input")
    texts = {word: playbook_text(word, settings) for word in words if not in_catalog(word)}
    registered = {word: path_and_version(word) for word in words if word not in texts}
    plans: dict[str, Plan] = {}

    async def read() -> CatalogDiff | None:
        async with opened(settings, read_only=True) as runtime:
            versions: dict[str, CatalogVersion] = {}
            for word, (path, version) in registered.items():
                entry = versions[word] = await runtime.api.registered(path, version)
                texts[word] = (entry.source, f"{path}@{entry.version}")
            if all(word in versions for word in words):
                a, b = (versions[word] for word in words)
                api: Api = runtime.api
                return await api.difference(a.path, a.version, b.version, b.path)
            if not server_of(settings):
                for word, entry in versions.items():
                    # A stored plan has the files that were beside the playbook when it was registered.
                    plans[word] = (await runtime.engine.live.program(entry.digest)).plan
            return None

    compared: CatalogDiff | None = None
    if registered:
        if not exists(settings):
            word = next(iter(registered))
            raise Usage(
                f"{word} is not a file, and nothing is registered yet in {settings.text('home')}",
                "give two files, two PATH@VERSIONs of the catalog, or two runs",
            )
        compared = asyncio.run(read())
    (a_text, a_name), (b_text, b_name) = (texts[word] for word in words)
    if compared is not None and compared.settings is not None:
        parts, changed = compared.net, compared.settings
    else:
        a, b = (
            plans.get(word) or _plan_of(word, *texts[word], settings, beside=word not in registered) for word in words
        )
        net, changed = net_diff(a, b), changed_settings(a, b)
        parts = None if net is None else to_builtins(net)
    lines = list(unified_diff(a_text.splitlines(), b_text.splitlines(), a_name, b_name, lineterm=""))
    if out.as_json:
        out.data(
            {"a": a_name, "b": b_name, "net": parts, "settings": changed, "diff": "".join(f"{x}\n" for x in lines)}
        )
    else:
        from arclog.cli.render import indented

        changes = [*([] if parts is None else _net_lines(parts)), *(f"~ {name}" for name in changed)]
        out.print(out.paint("playbook", "bold"))
        out.print(indented(clean("\n".join(changes)) if changes else "the same steps, arcs and settings"))
        if lines:
            colours = {"+": "green", "-": "red", "@": "dim"}
            out.print()
            out.print(out.paint("text", "bold"))
            shown = [clean(line) for line in lines]
            out.print("\n".join(out.paint(line, colours[line[0]]) if line[:1] in colours else line for line in shown))
    return FAILED if parts is not None or changed else OK


def _plan_of(word: str, text: str, name: str, settings: Settings, *, beside: bool) -> Plan:
    """Compile a playbook. The files beside a playbook of a server's catalog are not available."""
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
            f"`arclog catalog diff {path}@{version} VERSION` compares the texts of two versions; on the server itself, "
            "`arclog diff` compares their nets as well",
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


def _short(value: Any) -> str:
    from arclog.cli.render import clip, json_text, one_line

    return clip(one_line(json_text(value)), 60)
