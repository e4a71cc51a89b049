"""The expression engine: Jinja's syntax over plain data, without access to Python, limited by counted work."""

from arclog.expr.budget import DEFAULT_LIMITS, Limits, Meter, OutOfTurn
from arclog.expr.convert import plain
from arclog.expr.frame import Scope
from arclog.expr.stored import Reader, Stored, Unread, path_of_text, path_text
from arclog.expr.template import Template, Tree, compile_condition, compile_text, compile_tree, nowhere
from arclog.expr.values import MISSING, Lookup, Undefined, View, undefined

__all__ = [
    "DEFAULT_LIMITS",
    "MISSING",
    "Limits",
    "Lookup",
    "Meter",
    "OutOfTurn",
    "Reader",
    "Scope",
    "Stored",
    "Template",
    "Tree",
    "Undefined",
    "Unread",
    "View",
    "compile_condition",
    "compile_text",
    "compile_tree",
    "nowhere",
    "path_of_text",
    "path_text",
    "plain",
    "undefined",
]
