"""Lint of python tasks: code that does not compile, missing arguments, and undefined names."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from arclog.model.errors import Position
from arclog.playbook.canon import Task
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings

#: Names that a task's code can use besides its args and libs.
_GIVEN = frozenset({"context", "input_data", "__name__", "__builtins__", "__file__", "__doc__", "__annotations__"})
_BUILTINS = frozenset(dir(builtins))
_MODULE_NAMES = frozenset(
    {"__name__", "__builtins__", "__file__", "__doc__", "__annotations__", "__spec__", "__path__", "__package__"}
)


class _Source:
    """Python source and its location: in the playbook (`path` is ''), or in a file that a task names."""

    def __init__(self, text: str, path: str, task: Task, findings: Findings) -> None:
        self.text, self.path, self.task, self.findings = text, path, task, findings

    def add(self, code: str, message: str, line: int, column: int, hint: str, severity: str = "error") -> None:
        """Add a finding at a line (from 1) and column (from 0) of the source."""
        if self.path:  # findings belong to the playbook: report the line of the key that names the file
            at = self.findings.document.at(self.task.locate(("code",)))
            message = f"{self.path}:{line}: {message}"
        else:
            at = _line_at(self.task, self.text, line, column, self.findings)
        self.findings.add(code, message, at, hint, severity)


def lint_python(task: Task, findings: Findings, seen: set[str]) -> None:
    """Report mistakes in the code of a python task. `seen` has the files that were linted for an earlier task."""
    code = task.config.get("code")
    if task.kind.name != "python" or not isinstance(code, str) or not code:
        return
    modules = task.config.get("modules") or {}
    for module in modules.values():
        source = _Source(module["source"], module["path"], task, findings)
        tree = None if source.path in seen else _parsed(source)
        seen.add(source.path)
        if tree is not None:
            _names(tree, _BUILTINS | _MODULE_NAMES, source)
    source = _Source(code, task.files.get("code", ""), task, findings)
    tree = _parsed(source)
    if tree is None:
        return
    args = task.config.get("args")
    arg_names = set(args) if isinstance(args, dict) else set()
    is_open = args is not None and not isinstance(args, dict)  # a template: its keys are known only at run time
    libs = task.config.get("libs")
    main, home = _main(tree, source, modules)
    if main is not None and not is_open:
        _arguments(main, arg_names, home)
    if main is None and not _assigns_result(tree):
        message = "the code neither defines main() nor sets result: the task gives null"
        hint, severity = "def main(): return … or result = …", "info"
        if all(isinstance(node, _DEFINITIONS) for node in tree.body):
            # Nothing in it is ever called, which cannot be intended.
            message, severity = f"{message}, and nothing that it defines is called", "warning"
            hint = "the function that the task calls is main: def main(…): return …"
        source.add("python-no-result", message, 1, 0, hint, severity)
    if not is_open:
        defined = _BUILTINS | _GIVEN | arg_names | set(libs if isinstance(libs, dict) else ())
        _names(tree, defined, source)


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def _main(tree: ast.Module, source: _Source, modules: dict[str, dict[str, str]]) -> tuple[Any, _Source]:
    """Return the function that the task calls and the source that contains it; None if that cannot be determined."""
    name = "main"
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Assign) and isinstance(last.value, ast.Name):
        if any(isinstance(target, ast.Name) and target.id == "main" for target in last.targets):
            name = last.value.id  # `function:` of a file
    elif isinstance(last, ast.ImportFrom) and last.module in modules and last.names[0].asname == "main":
        module = modules[last.module]  # `module:`
        source = _Source(module["source"], module["path"], source.task, source.findings)
        name = last.names[0].name
        try:
            tree = ast.parse(source.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None, source
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((node for node in functions if node.name == name), None), source


def _parsed(source: _Source) -> ast.Module | None:
    """Return the tree of a source. Code that Python cannot compile is a finding, and None is returned."""
    try:
        tree = ast.parse(source.text)
        compile(tree, "<task>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        _broken(problem, source)
        return None
    return tree


def _broken(problem: Exception, source: _Source) -> None:
    line, column = getattr(problem, "lineno", None) or 1, getattr(problem, "offset", None) or 1
    message = getattr(problem, "msg", None) or str(problem) or type(problem).__name__
    hint = ""
    if "'return' outside function" in message:
        hint = "set `result = …`, or put the code into `def main():`"
    elif "'await' outside" in message or "'yield' outside" in message:
        hint = "put the code into `def main():` (`async def` to await)"
    elif has_template(source.text):
        hint = 'code is not a template: give values as args: {x: "{{ … }}"} and use x'
    hint = hint or "correct the code: Python cannot compile this line"
    source.add("python-syntax", f"python: {message}", line, column - 1, hint)


def _arguments(main: Any, arg_names: set[str], source: _Source) -> None:
    """Report arguments of main() that have no default and are not in args."""
    arguments = main.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    required += [
        arg for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    ]
    names = [arg.arg for arg in required]
    if names == ["input_data"]:
        return
    for arg in required:
        if arg.arg not in arg_names and arg.arg != "context":
            near = source.findings.nearest(arg.arg, arg_names - set(names))
            hint = f"did you mean {near}?" if near else f'args: {{{arg.arg}: "{{{{ … }}}}"}}'
            message = f"{main.name}() needs {arg.arg!r}, which args does not give"
            source.add("python-args", message, arg.lineno, arg.col_offset, hint, "warning")
    if arguments.kwarg is None:
        taken = {arg.arg for arg in [*positional, *arguments.kwonlyargs]}
        used = taken | {node.id for node in ast.walk(main) if isinstance(node, ast.Name)}
        for name in sorted(arg_names - used):
            if name not in source.text:
                message = f"{main.name}() does not take {name!r}"
                hint = f"add it to def {main.name}(…), or remove it from args"
                source.findings.key("python-args", message, source.task.locate(("args", name)), hint, "info")


def _assigns_result(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.Name) and node.id in ("result", "main") for node in ast.walk(tree)) or any(
        isinstance(node, ast.ImportFrom | ast.Import)
        and any((alias.asname or alias.name) in ("result", "main") for alias in node.names)
        for node in ast.walk(tree)
    )


def _names(tree: ast.Module, defined: frozenset[str] | set[str], source: _Source) -> None:
    """Report names that no scope of the code defines. Where a name is bound does not matter, to avoid false alarms."""
    bound: set[str] = set(defined)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
        ):
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            bound.update(node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "exec",
            "eval",
            "globals",
            "locals",
            "vars",
        ):
            return
    seen: set[str] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id not in bound
            and node.id not in seen
        ):
            seen.add(node.id)
            near = source.findings.nearest(node.id, bound - _GIVEN)
            hint = f"did you mean {near}?" if near else f'import it, or give it: args: {{{node.id}: "{{{{ … }}}}"}}'
            message = f"python: the name {node.id!r} is not defined"
            source.add("python-name", message, node.lineno, node.col_offset, hint, "warning")


def _line_at(task: Task, code: str, line: int, column: int, findings: Findings) -> Position:
    """Return the location of a line of the code in the file."""
    places = findings.document.places(task.locate(("code",)), code)
    lines = code.split("\n")
    line = min(max(line, 1), len(lines))
    text = lines[line - 1]
    return places.at(
        sum(len(part) + 1 for part in lines[: line - 1]) + min(max(column, 0), max(len(text.rstrip()) - 1, 0))
    )
