"""Commands that send a signal to a run: pause, cancel, retry, skip, approve, reject, signal. (`resume` is in `run`.)"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import INVALID, OK, Usage
from arclog.cli.options import change_arguments
from arclog.model.status import RESERVED_SIGNALS

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api, SignalAnswer


def _arguments(parser: Parser, *, step: str = "", reason: str = "recorded in the log") -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    if step:
        parser.add_argument("step", metavar="STEP", help=step)
    parser.add_argument("--reason", metavar="TEXT", default="", help=reason)
    signal_id_argument(parser)


def signal_id_argument(parser: Parser) -> None:
    parser.add_argument(
        "--signal-id", metavar="ID", default="", help="idempotency id: a repeated id has no further effect"
    )


def pause_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.epilog = "Starts no new tasks; running tasks finish first. `arclog resume ID` continues the run."


def pause_command(options: Namespace) -> int:
    return _send(options, "PAUSE", "pausing; running tasks finish first")


def cancel_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.add_argument("--now", action="store_true", help="kill running tasks immediately (EMERGENCY_STOP)")


def cancel_command(options: Namespace) -> int:
    options.reason = options.reason or "cancelled from the command line"
    return _send(options, "EMERGENCY_STOP" if options.now else "CANCEL", "cancelled", expected_state="CANCELLED")


def retry_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("step", metavar="STEP", nargs="?", default="", help="the step whose latest run is retried")
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log")
    signal_id_argument(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--from",
        dest="from_step",
        metavar="STEP",
        default="",
        help="start a new run that repeats STEP and everything after it",
    )
    which.add_argument(
        "--failed", action="store_true", help="start a new run that repeats only what failed, down to loop items"
    )
    change_arguments(parser)
    parser.epilog = (
        "With STEP: restarts the attempt in progress, or runs a failed step again with the same args.\n"
        "With --from or --failed: continues a finished run as a new run; steps that succeeded do not run again.\n"
        "Without either: runs a finished run again from the start, with the same plan and workload.\n\n"
        "examples:\n"
        "  arclog retry last --failed --playbook fixed.yaml\n"
        "  arclog retry last --from load --set batch=100"
    )


def retry_command(options: Namespace) -> int:
    if options.from_step or options.failed:
        from arclog.cli.history.fork import request_of as fork_request
        from arclog.cli.runs.run import forked_command

        if options.step:
            raise Usage("STEP retries a step of an active run; omit it with --from or --failed")
        return forked_command(options, fork_request(options, step=options.from_step, failed=options.failed))
    if options.playbook or options.assignments or options.mapped:
        raise Usage("--playbook, --set and --map require --from STEP or --failed")
    if options.step:
        return _send(options, "RETRY_STEP", f"retrying step {options.step}", step=options.step)
    from arclog.cli.runs.run import again_command

    return again_command(options)


def skip_arguments(parser: Parser) -> None:
    _arguments(parser, step="the step whose open run is skipped", reason="required; recorded in the log")


def skip_command(options: Namespace) -> int:
    return _send(options, "SKIP_STEP", f"skipped step {options.step}", step=options.step)


def approve_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.add_argument(
        "--step",
        metavar="STEP",
        default="",
        help="which approval, if several are waiting: a step, or a task as listed in the error message",
    )
    parser.add_argument("--data", metavar="JSON", help="data for the waiting task")


def approve_command(options: Namespace) -> int:
    return _send(options, "APPROVE", "approved", step=options.step, data=_data(options))


def reject_arguments(parser: Parser) -> None:
    _arguments(parser, reason="required; recorded in the log")
    parser.add_argument(
        "--step",
        metavar="STEP",
        default="",
        help="which approval, if several are waiting: a step, or a task as listed in the error message",
    )


def reject_command(options: Namespace) -> int:
    return _send(options, "REJECT", "rejected", step=options.step)


def signal_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("name", metavar="NAME", help="the signal: a name that a task waits for, or a built-in signal")
    parser.add_argument("--data", metavar="JSON", help="data of the signal")
    parser.add_argument("--step", metavar="STEP", default="", help="the step that the signal is for")
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log")
    signal_id_argument(parser)
    parser.epilog = (
        "built-in signals: PAUSE RESUME CANCEL APPROVE REJECT RETRY_STEP SKIP_STEP UPDATE_PARAMS EMERGENCY_STOP\n"
        "example: arclog signal last UPDATE_PARAMS --data '{\"limit\": 10}'"
    )


def signal_command(options: Namespace) -> int:
    if options.name == "RETRY_RUN":
        raise Usage("RETRY_RUN starts a new run", f"to start it: arclog retry {options.id}")
    own = options.name not in RESERVED_SIGNALS
    kept_text = (
        f"signal {options.name} was recorded; no task is waiting for it yet, so the next task that waits for it receives it"
        if own
        else ""
    )
    done = f"signal {options.name} was recorded" + ("; a task was waiting for it" if own else "")
    return _send(options, options.name, done, step=options.step, data=_data(options), kept_text=kept_text)


def _data(options: Namespace) -> Any:
    if options.data is None:
        return None
    import msgspec

    try:
        return msgspec.json.decode(options.data.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise Usage(f"--data is not JSON: {problem}", "text needs its quotes: --data '\"text\"'") from None


def _send(
    options: Namespace,
    signal: str,
    done: str,
    *,
    step: str = "",
    data: Any = None,
    expected_state: str = "",
    kept_text: str = "",
) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        answer = await api.signal(execution_id, request_of(options, signal, step, data))
        return print_answer(answer, done if answer.waiting or not kept_text else kept_text, out, expected_state)

    return with_run(options, work, read_only=False)


def request_of(options: Namespace, signal: str, step: str = "", data: Any = None) -> Any:
    from arclog.ports.views.api import SignalRequest

    return SignalRequest(
        signal=signal,
        signal_id=_text(options.signal_id),
        reason=_text(options.reason),
        step=step,
        data=data,
        by=user(),
    )


def print_answer(answer: SignalAnswer, done: str, out: Out, expected_state: str = "") -> int:
    """Print the result of a signal; returns the exit code. A run that is in the requested state already counts as
    success.
    """
    well = answer.accepted or answer.state == expected_state
    if out.as_json:
        out.data(answer)
    elif not well:
        from arclog.model.errors import RequestRejected

        raise RequestRejected(f"run {answer.execution_id}: {answer.message}")
    elif not out.quiet:
        out.print(f"{out.state(answer.state)} run {answer.execution_id}: {done}")
    return OK if well else INVALID


def _text(word: str) -> str:
    """A word of the command line; invalid bytes are replaced."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this uid
        return ""
