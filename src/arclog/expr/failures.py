"""How an error finds its words and its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.expr.budget import Failure
from arclog.expr.values import Undefined

if TYPE_CHECKING:
    from arclog.expr.frame import Expression, Frame


def located(made: Expression, line: int) -> Expression:
    """Note on a failure the line of the template that it came from."""

    def at_line(frame: Frame) -> Any:
        try:
            value = made(frame)
        except Failure as failure:
            failure.line = failure.line or line
            raise
        except Exception as error:  # noqa: BLE001  # whatever Python refuses is the author's error
            raised = translated(error, line)
            raise raised from raised.__cause__
        return value.at_line(line) if type(value) is Undefined and not value.line else value

    return at_line


def translated(error: Exception, line: int = 0) -> Failure:
    """Say in the author's words what Python refused; never with the values at hand, which may be secrets."""
    match error:
        case Failure():
            error.line = error.line or line
            return error
        case ZeroDivisionError():
            message = "division by zero"
        case OverflowError():
            message = "the number is too large"
        case RecursionError():
            message = "the value or expression is nested too deeply"
        case MemoryError():
            message = "the value is too large for the memory"
        case TypeError():
            message = f"the values do not fit: {error}"
        case _:
            message = f"the expression cannot be evaluated ({type(error).__name__})"
    failure = Failure(message, line)
    if type(error).__module__ != "builtins":
        failure.__cause__ = error  # a Lookup's own, for instance a store that is unavailable
    return failure
