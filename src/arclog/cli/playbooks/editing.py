"""Commands for authors of playbooks: init, fmt, dev, lsp, completion. None needs a home."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import FAILED, OK, Usage
from arclog.model.errors import ArclogError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings

# ── init ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The command `init`: creates a playbook and its tests from a template.


def init_arguments(parser: Parser) -> None:
    parser.add_argument(
        "starter", metavar="TEMPLATE", nargs="?", help="name of a template; without it, templates are listed"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the playbook (default: the template's)")
    parser.add_argument(
        "--folder", metavar="DIR", default=".", help="folder for the files (default: the working directory)"
    )
    parser.epilog = "example: arclog init etl orders && arclog test"


def init_command(options: Namespace) -> int:
    from pathlib import Path

    from arclog.authoring.templates import STARTERS
    from arclog.cli.render import out_of
    from arclog.model.data.suggestions import did_you_mean
    from arclog.playbook.schema import NAME

    out = out_of(options)
    if options.starter is None:
        if out.as_json:
            out.data({name: starter.summary for name, starter in STARTERS.items()})
        else:
            out.print("\n".join(f"{name:<10}{starter.summary}" for name, starter in STARTERS.items()))
        return OK
    if options.starter not in STARTERS:
        suggestion = did_you_mean(options.starter, STARTERS)
        raise Usage(f"there is no template {options.starter!r}{suggestion}", f"there are: {', '.join(STARTERS)}")
    name = options.name or options.starter
    if NAME.match(name) is None:
        raise Usage(f"{name[:60]!r} is not a valid name: use letters, digits and _, and do not start with a digit")
    starter = STARTERS[options.starter]
    texts = {f"{name}.yaml": starter.playbook, f"{name}.test.yaml": starter.tests}
    folder = Path(options.folder)
    paths = {folder / file: text.replace("NAME", name) for file, text in texts.items()}
    for path in paths:
        if path.exists() or path.is_symlink():
            raise Usage(f"{path} already exists", "choose another name: arclog init TEMPLATE NAME")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        with path.open("x", encoding="utf-8") as target:
            target.write(text)
        out.print(f"{out.mark('done')} {path}")
    if not out.quiet and not out.as_json:
        first, second = paths
        out.print(f"next: arclog check {first}; arclog test {second}; arclog run {first}")
    return OK


# ── editing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Commands for those who write playbooks: fmt, dev, lsp, completion. None needs a home.

#: The interval at which `dev` checks whether a file was saved.
_LOOK_S = 0.3
_SETTLE_S = 0.05


def fmt_arguments(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="playbook or test file; - is standard input")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a file is not formatted")
    parser.add_argument("--diff", action="store_true", help="change nothing; print what would change")
    parser.epilog = "example: arclog fmt flows/*.yaml"


def fmt_command(options: Namespace) -> int:
    from arclog.authoring.fmt import formatted
    from arclog.cli.home import settings_of
    from arclog.cli.playbooks.files import playbook_text, rewrite
    from arclog.cli.playbooks.migrate import difference
    from arclog.cli.render import out_of
    from arclog.playbook.load import load

    out = out_of(options)
    settings = settings_of(options)
    changed: list[str] = []
    for file in options.files:
        text, name = playbook_text(file, settings)
        load(text, name, settings)  # a file that is not YAML is reported and not changed
        result = formatted(text)
        if file == "-" and not (options.check or options.diff):
            out.write(result)
        elif result != text:
            changed.append(name)
            if options.diff and not out.as_json:
                out.write(difference(text, result, name, "formatted"))
            if not (options.check or options.diff):
                rewrite(file, result)
    if out.as_json:
        out.data({"changed": changed})
    elif not out.quiet and not options.diff:
        for name in changed:
            out.print(f"{name}: {'is not formatted' if options.check else 'formatted'}")
    return FAILED if options.check and changed else OK


def dev_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="playbook file")
    parser.add_argument("--no-run", action="store_true", help="check and test only")
    parser.add_argument("--once", action="store_true", help="run one round; the exit code is that of the first failure")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="as in `arclog run`")
    parser.epilog = "example: arclog dev flow.yaml --set name=Ada"


def dev_command(options: Namespace) -> int:
    from pathlib import Path

    from arclog.cli.render import out_of
    from arclog.testing.playbook_tests.cases import SUFFIXES

    out = out_of(options)
    file = Path(options.file)
    if not file.is_file():
        raise Usage(f"cannot read {options.file}: no such file")
    tests = [file.with_name(file.stem + suffix) for suffix in SUFFIXES]

    def go() -> int:
        return _round(options, [test for test in tests if test.is_file()], out)

    if options.once:
        return go()
    import time

    from arclog.cli.home import settings_of

    settings = settings_of(options)
    watched: set[Path] = {file, *tests}
    stamps: dict[Path, int] = {}
    while True:
        if _stamps(watched) != stamps:
            time.sleep(_SETTLE_S)  # an editor may write a file in several parts
            # Taken before the round, so that a file that is saved meanwhile starts the next one.
            watched = {file, *tests, *_files_of(file, settings)}
            stamps = _stamps(watched)
            go()
            others = len(watched) - 1 - len(tests)
            beside = f" and {others} file{'s' if others > 1 else ''} beside it" if others else ""
            out.print(f"watching {options.file}{beside}; press Ctrl-C to stop")
        time.sleep(_LOOK_S)


def _stamps(paths: Iterable[Path]) -> dict[Path, int]:
    """The modification time of each existing file."""
    stamps: dict[Path, int] = {}
    for path in paths:
        try:
            stamps[path] = path.stat().st_mtime_ns
        except OSError:
            continue
    return stamps


def _files_of(file: Path, settings: Settings) -> set[Path]:
    """The files that a playbook uses: code, and the playbooks that it calls."""
    from pathlib import Path

    from arclog.authoring.playbook_files import FilesBeside, called_playbooks
    from arclog.wiring.kinds import installed_kinds

    files = FilesBeside(settings)
    called: dict[str, str] = {}

    def read(path: str) -> str:
        called[path] = Path(path).read_text(encoding="utf-8", errors="replace")
        return called[path]

    try:
        called_playbooks(read(str(file)), str(file), settings, files, installed_kinds(), read)
    except (OSError, ArclogError):
        pass  # `check` reports it; the files read so far are watched
    return {Path(path) for path in (*files.taken, *called)} - {file}


def _round(options: Namespace, tests: Iterable[object], out: Out) -> int:
    """Check, then test, then run; a failure ends the round."""
    from arclog.cli.main import command

    shared = ["--home", options.home] if options.home else []
    commands = [["check", options.file]]
    commands += [["test", str(test), *shared] for test in tests]
    if not options.no_run:
        commands.append(
            ["run", options.file, *[word for assignment in options.set for word in ("--set", assignment)], *shared]
        )
    for words in commands:
        out.print(out.paint(f"── arclog {' '.join(words)}", "dim"))
        code = command(words)
        if code != OK:
            return code
    return OK


def lsp_arguments(parser: Parser) -> None:
    parser.epilog = "Started by editors; docs/editors.md describes the setup for VS Code, Neovim and JetBrains."


def lsp_command(options: Namespace) -> int:
    from arclog.authoring.lsp.server import Server
    from arclog.cli.home import settings_of
    from arclog.wiring.kinds import installed_kinds

    return Server(sys.stdin.buffer, sys.stdout.buffer, installed_kinds(), settings_of(options)).run()


# --- completion ---------------------------------------------------------------------------------------------------------

_BASH = """\
_arclog() {
  local IFS=$'\\n' found
  found=$(arclog completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _arclog arclog
"""
_ZSH = """\
#compdef arclog
_arclog() {
  local -a found
  found=("${(@f)$(arclog completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a found
  _files
}
compdef _arclog arclog
"""
_FISH = """\
complete -c arclog -a '(arclog completion words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
#: Commands whose first argument is a run.
_OF_RUNS = frozenset(
    {
        "show", "status", "events", "logs", "result", "state", "why", "pause", "resume", "cancel", "retry", "skip",
        "approve", "reject", "signal", "fork", "replay", "diff", "export", "trace", "lineage",
    }
)  # fmt: skip
_RUNS_SHOWN = 20


def completion_arguments(parser: Parser) -> None:
    import argparse

    parser.add_argument("shell", metavar="SHELL", choices=(*SCRIPTS, "words"), help="bash, zsh or fish")
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.epilog = """\
bash: eval "$(arclog completion bash)" in ~/.bashrc
zsh:  eval "$(arclog completion zsh)" in ~/.zshrc, after compinit
fish: arclog completion fish > ~/.config/fish/completions/arclog.fish"""


def completion_command(options: Namespace) -> int:
    if options.shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[options.shell])
        return OK
    words = list(options.words)
    for word in candidates(
        words[:-1], words[-1] if words else "", lambda: _runs(options), lambda before: _steps(options, before)
    ):
        sys.stdout.write(word + "\n")
    return OK


def candidates(
    before: list[str], begun: str, runs: Callable[[], list[str]], steps: Callable[[list[str]], list[str]]
) -> list[str]:
    """The words that may follow some words; files are left to the shell."""
    from arclog.cli.args import COMMANDS, parser_of

    command = next((word for word in before if not word.startswith("-")), "")
    if not command:
        words = list(COMMANDS)
    elif command not in COMMANDS:
        words = []
    elif begun.startswith("-"):
        words = [word for action in parser_of(command)._actions for word in action.option_strings]  # noqa: SLF001 - argparse has no other way
    elif _is_step(command, before[-1]):
        words = steps(before)
    elif before[-1] == "init":
        from arclog.authoring.templates import STARTERS

        words = list(STARTERS)
    elif (command in _OF_RUNS and before[-1] == command) or (before[-1] == "record" and command == "test"):
        words = ["last", *runs()]
    else:
        words = _choices(command, before[-1])
    return [word for word in words if word.startswith(begun)]


def _is_step(command: str, word: str) -> bool:
    """Return whether a word is followed by the name of a step: an option that takes one, or the run of a command that
    does.
    """
    from arclog.cli.args import parser_of

    actions = [action for action in parser_of(command)._actions if action.metavar == "STEP"]  # noqa: SLF001 - argparse has no other way
    if _is_run(word):
        return any(not action.option_strings for action in actions)
    return word == "--step" or any(word in action.option_strings for action in actions)


def _is_run(word: str) -> bool:
    return word == "last" or word.isdigit()


def _choices(command: str, option: str) -> list[str]:
    """The values that an option, or the command's first word, may have."""
    from arclog.cli.args import parser_of

    for action in parser_of(command)._actions:  # noqa: SLF001 - argparse has no other way
        if action.choices and (option in action.option_strings or (option == command and not action.option_strings)):
            return [str(choice) for choice in action.choices]
    return []


def _runs(options: Namespace) -> list[str]:
    """Return ids of the newest runs; none if they are not available."""

    async def newest(api: Any) -> list[str]:
        return [run.execution_id for run in await api.list(limit=_RUNS_SHOWN)]

    return _answer_of(options, newest)


def _answer_of(options: Namespace, question: Callable[[Any], Awaitable[list[str]]]) -> list[str]:
    """Return the answer of the home or the server; nothing if it fails."""
    import asyncio

    from arclog.cli.home import exists, opened, settings_of

    async def answer() -> list[str]:
        async with opened(settings, read_only=True) as runtime:
            return await question(runtime.api)

    try:
        settings = settings_of(options)
        return asyncio.run(answer()) if exists(settings) else []
    except Exception:  # noqa: BLE001 - a shell that completes a word shows no errors
        return []


def _steps(options: Namespace, before: list[str]) -> list[str]:
    """Names of the steps of the playbook files, or of the run, among some words."""
    run = next((word for word in before[1:] if _is_run(word)), "")
    if run:
        from arclog.cli.home import resolve

        async def of_run(api: Any) -> list[str]:
            return [step["name"] for step in (await api.graph(await resolve(api, run)))["steps"]]

        return _answer_of(options, of_run)
    from pathlib import Path

    from arclog.authoring.spans import compose, entry, items, scalar

    names: list[str] = []
    for word in before:
        if word.endswith((".yaml", ".yml")) and Path(word).is_file():
            root = compose(Path(word).read_text(encoding="utf-8", errors="replace"))
            names += [name for node in items(entry(root, "workflow")) if (name := scalar(entry(node, "step")))]
    return names
