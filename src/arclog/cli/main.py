"""The program `arclog`: finds the command, runs it, and turns errors into a message and an exit code.

A run of one task takes less than 0.3 s, start-up included, so this module imports nothing that `arclog version` does not need.
The module of a command is imported when that command is called.
"""

from __future__ import annotations

import gc
import os
import sys

from arclog.cli import importer
from arclog.cli.exits import FAILED, INVALID, OK, Usage


def main() -> None:
    """The entry point: run the command line and exit."""
    # Imports create many objects that live on and little garbage: the default thresholds cost 10 ms at start-up.
    gc.set_threshold(50_000, 20, 100)
    importer.install()
    _open_closed_streams()
    code = command(sys.argv[1:])
    # Finalizing the interpreter takes 25 ms and has no effect outside this process.
    sys.stderr.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """If stdout or stderr is closed (`>&-`), discard its output and run the command anyway."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open until the end


def command(words: list[str]) -> int:
    """Run one command line and return its exit code."""
    # Found without parsing, so that an error in the command line itself is reported as JSON, too.
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_stdout()
        return OK
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - every unexpected error is reported here
        return _report(error, as_json)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"], ["version"]):
        from arclog import __version__

        print(f"arclog {__version__}")
        return OK
    from arclog.cli.startup import import_packages

    import_packages()
    from arclog.cli import args

    try:
        return args.dispatch(words)
    except SystemExit:  # argparse, after --help
        return OK


def _report(error: Exception, as_json: bool) -> int:
    """Print the error to stderr and return the exit code."""
    if isinstance(error, Usage):
        _print_error(as_json, "Usage", str(error), error.hint)
        return error.code
    from arclog.model import errors

    if isinstance(error, errors.PlaybookError):
        from arclog.cli.playbooks.findings import complain

        complain(error, as_json)
        return INVALID
    if isinstance(error, errors.InvariantBroken):
        return _bug(error, as_json)
    if isinstance(error, errors.ArclogError):
        _print_error(as_json, type(error).__name__, str(error))
        refused = isinstance(error, errors.RequestRejected | errors.SettingsError | errors.ExpressionError)
        return INVALID if refused else FAILED
    if isinstance(error, OSError):
        # The operating system's message: stdout is on a full disk, a folder may not be read.
        _print_error(as_json, "OSError", str(error))
        return FAILED
    if isinstance(error, ImportError):
        from arclog.model.config.extras import missing

        extra = missing(error, "this command")
        if extra is not None:
            _print_error(as_json, type(extra).__name__, str(extra))
            return INVALID
    return _bug(error, as_json)


def _bug(error: Exception, as_json: bool) -> int:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if os.environ.get("ARCLOG_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    _print_error(as_json, "Bug", text, "this is a bug in arclog; please report it with the output of ARCLOG_DEBUG=1")
    return FAILED


def _print_error(as_json: bool, kind: str, message: str, hint: str = "") -> None:
    if as_json:
        import json

        body = {"kind": kind, "message": message, "hint": hint}
        print(json.dumps({"error": {key: value for key, value in body.items() if value}}), file=sys.stderr)
        return
    from arclog.cli.render import clean, printable

    sys.stderr.write(printable(f"arclog: error: {clean(message)}\n", sys.stderr))
    if hint:
        sys.stderr.write(printable(f"  {clean(hint)}\n", sys.stderr))


def _forget_stdout() -> None:
    """Discard the buffered output after the reader closed the pipe, so that the last flush raises no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


if __name__ == "__main__":
    main()
