"""The python runner reads one task after another from its socket, and answers each with one frame.

Only imported modules stay between tasks: globals, standard streams and the scratch folder are new for each. If that is
impossible (threads or processes still run, streams were closed), the answer has `retire`, and the worker kills the
runner.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH102, PTH108, PTH123, PTH208, TID252

from __future__ import annotations

import _socket
import errno
import importlib.util
import io
import json
import linecache
import os
import sys
import traceback
import types
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, NoReturn

from . import kernel, reports, trees, values, wire
from .reports import Reporter

# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The folders of a runner: prepared for each task, and cleared after it.
#
# `sandbox.folders` is the worker's side.


class RunnerFolders:
    """The folders in which the tasks of one runner run."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._scratch: str = spec["scratch"]
        self._workdir: str = spec["workdir"]
        self._fresh: bool = spec["fresh"]

    def enter(self) -> str:
        """Change to the working directory. Return the reason if that fails, else ''."""
        try:
            if self._fresh:
                os.mkdir(self._workdir, 0o700)
            os.chdir(self._workdir)
        except OSError as problem:
            return (
                f"the working directory {self._workdir} cannot be entered: {problem.strerror} (setting worker.workdir)"
            )
        return ""

    def clear(self) -> str:
        """Remove the files that the task left. Return the reason if that fails, else ''."""
        try:
            os.chdir(self._scratch)
            if self._fresh:
                trees.remove_tree(self._workdir)
            if os.listdir(self._scratch):
                with os.scandir(self._scratch) as listing:
                    entries = list(listing)
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        trees.remove_tree(entry.path)
                    else:
                        os.unlink(entry.path)
        except (OSError, RecursionError):
            return "its folder could not be emptied"
        return ""


# ── modules ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Modules that come with a task. They are imported from memory, and removed after the task.


class TaskModules:
    """Finds and loads the modules of one task."""

    def __init__(self, modules: dict[str, dict[str, str]]) -> None:
        self._modules = modules
        self.paths = frozenset(module["path"] for module in modules.values())
        #: modules whose code is running now, the outermost first
        self._loading: list[str] = []

    def enter(self) -> None:
        """Make the modules importable."""
        if self._modules:
            sys.meta_path.insert(0, self)

    def leave(self) -> None:
        """Remove the modules again."""
        if not self._modules:
            return
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        for name in self._modules:
            sys.modules.pop(name, None)
        for path in self.paths:
            linecache.cache.pop(path, None)

    # -- called by the import system ----------------------------------------------------------------------------------

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if name not in self._modules and not self._is_folder(name):
            return None
        module = self._modules.get(name)
        is_package = module is None or module["path"].endswith("/__init__.py")
        origin = None if module is None else module["path"]
        loader: Any = self
        return importlib.util.spec_from_loader(name, loader, origin=origin, is_package=is_package)

    def create_module(self, _spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module_spec = self._modules.get(module.__name__)
        if module_spec is None:
            return  # a folder without __init__.py
        path, source = module_spec["path"], module_spec["source"]
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        program: CodeType = compile(source, path, "exec", dont_inherit=True)
        self._loading.append(module.__name__)
        try:
            exec(program, module.__dict__)
        except ImportError as error:
            if error.name in self._loading and " (unknown location)" in error.msg:
                way = [*self._loading[self._loading.index(error.name) :], error.name]
                error.msg = (
                    f"{error.msg.replace(' (unknown location)', '')}, which is still being imported ({' → '.join(way)}); "
                    "import it inside the function that needs it"
                )
            raise
        finally:
            self._loading.pop()

    def is_package(self, name: str) -> bool:
        return name not in self._modules or self._modules[name]["path"].endswith("/__init__.py")

    def _is_folder(self, name: str) -> bool:
        return any(module.startswith(f"{name}.") for module in self._modules)


# ── runner ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_COMPILED_MAX = 256
_MESSAGE_MAX = 16 * 1024
_TRACEBACK_MAX = 64 * 1024
#: Maximum number of chained exceptions that are searched for a system error.
_CAUSES = 10
_COROUTINE = 0x80
_VAR_KEYWORDS = 0x08

Fault = dict[str, Any]


class Context:
    """Data about the run, by attribute or by item. The values are copies for this task."""

    __slots__ = ("_json", "_reporter", "_values")
    _lazy = ("workload", "ctx")

    def __init__(self, values: dict[str, Any], workload: bytes, ctx: bytes, reporter: Reporter) -> None:
        self._values = values
        self._json = {"workload": workload, "ctx": ctx}
        self._reporter = reporter

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Report the progress of the task: `done` of `total` (None if unknown), counted in `unit`. It may be called
        often.
        """
        self._reporter.progress(done, total, unit)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values and name in self._json:
            self._values[name] = json.loads(self._json[name])
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"context has no {name!r}; it has {', '.join(self.keys())}") from None

    def __iter__(self) -> Any:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> list[str]:
        return list(dict.fromkeys([*self._values, *self._json]))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is that get

    def __repr__(self) -> str:
        return f"<context of {self._values.get('step')}.{self._values.get('task')}>"


def serve(tasks: _socket.socket, places: RunnerFolders, max_result_bytes: int, limits: dict[str, str]) -> NoReturn:
    """Run tasks until the worker closes the socket."""
    me = os.getpid()
    out = _stream(1)
    err = _stream(2)
    workload = b"{}"
    compiled: dict[tuple[str, str], types.CodeType] = {}
    null = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    while True:
        frame = wire.receive(tasks)
        if frame is None:
            os._exit(0)
        request = json.loads(frame[0])
        workload = frame[2] or workload
        sys.stdin, sys.stdout, sys.stderr = null, out, err
        if len(compiled) > _COMPILED_MAX:
            compiled.clear()
        reporter = Reporter(tasks)
        context = Context(request["context"], workload, frame[1], reporter)
        lost = places.enter()
        if lost:
            header, body = _fault("config", lost, "WORKDIR"), b""
        else:
            header, body = _attempt(request, context, compiled, limits, reporter, max_result_bytes)
        if os.getpid() != me:  # user code forked, and its child returned here
            os._exit(0)
        if len(body) > max_result_bytes:
            header, body = _too_large(f"the result has {len(body)} bytes as JSON", max_result_bytes), b""
        if header["ok"] and request.get("outputs"):
            reporter.outputs()
            if wire.receive(tasks) is None:
                os._exit(0)
        retire = header.get("retire") or _leftovers(out, err) or places.clear()
        if retire:
            header["retire"] = retire
        reporter.last(header, body)


def _attempt(
    request: dict[str, Any],
    context: Context,
    compiled: dict[tuple[str, str], types.CodeType],
    limits: dict[str, str],
    reporter: Reporter,
    max_result_bytes: int,
) -> tuple[Fault, bytes]:
    """Run one task. Return the header and the result."""
    name, code, args = request["name"], request["code"], request["args"]
    module = types.ModuleType("__task__")
    space = module.__dict__
    sys.modules["__task__"] = module
    brought = TaskModules(request.get("modules") or {})
    brought.enter()
    try:
        program = compiled.get((name, code))
        if program is None:
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            program = compile(code, name, "exec", dont_inherit=True)
            compiled[name, code] = program
        space.update(context=context, input_data=args)
        space.update(args)  # args with these names take precedence
        space.update(__name__="__task__", __builtins__=__builtins__)
        for alias, path in request["libs"].items():
            __import__(path)
            space[alias] = sys.modules[path]
        exec(program, space)
        main = space.get("main")
        value = call_main(main, args, context) if callable(main) and not isinstance(main, type) else space.get("result")
        stream = reports.stream_of(value)
        if stream is not None:
            inline = min(request["inline_max_bytes"], max_result_bytes)
            items, body = reports.streamed(stream, reporter, inline, max_result_bytes)
            return {"ok": True, "items": items}, body
        return {"ok": True}, values.encoded(value)
    except values.NotJSON as problem:
        return _fault("exception", str(problem), "NotJSON"), b""
    except reports.TooLarge as problem:
        return _too_large(str(problem), max_result_bytes), b""
    except BaseException as problem:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are user code's as well
        try:
            return _explained(problem, {name, *brought.paths}, limits), b""
        except BaseException:  # noqa: BLE001 - an exception that cannot even be looked at
            return {
                **_fault("exception", type(problem).__name__, type(problem).__name__),
                "retire": "it is broken",
            }, b""
    finally:
        brought.leave()
        space.clear()
        sys.modules.pop("__task__", None)


def call_main(main: Any, args: dict[str, Any], context: Any) -> Any:
    """Call main(…) with the args that it declares, and `context` for a parameter of that name."""
    positional: list[Any] = []
    code = getattr(main, "__code__", None)
    if code is None or hasattr(main, "__wrapped__"):
        positional, keywords, flags = _by_signature(main, args)
    else:
        count = code.co_argcount + code.co_kwonlyargcount
        declared, flags = code.co_varnames[:count], code.co_flags
        if declared == ("input_data",) and not flags & _VAR_KEYWORDS and "input_data" not in args:
            positional, keywords = [args], {}
        elif flags & _VAR_KEYWORDS and not code.co_posonlyargcount:
            keywords = args
        else:
            first = declared[: code.co_posonlyargcount]
            positional = [args[key] for key in first if key in args]
            wanted = args if flags & _VAR_KEYWORDS else declared
            keywords = {key: args[key] for key in wanted if key in args and key not in first}
            if "context" in declared and "context" not in args and "context" not in first:
                keywords["context"] = context
    value = main(*positional, **keywords)
    if flags & _COROUTINE:
        import asyncio

        return asyncio.run(value)
    return value


def _by_signature(main: Any, args: dict[str, Any]) -> tuple[list[Any], dict[str, Any], int]:
    """Apply the same rule to callables that are not plain functions."""
    import inspect

    flags = _COROUTINE if inspect.iscoroutinefunction(main) else 0
    parameters = inspect.signature(main).parameters
    whole = list(parameters) == ["input_data"] and "input_data" not in args
    if whole and parameters["input_data"].kind is not inspect.Parameter.VAR_KEYWORD:
        return [args], {}, flags
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return [], args, flags
    return [], {key: args[key] for key in parameters if key in args}, flags


def _explained(problem: BaseException, names: set[str], limits: dict[str, str]) -> Fault:
    """Return the error header for an exception of user code."""
    kind = type(problem).__name__
    summary = traceback.TracebackException.from_exception(problem, limit=None, compact=True)
    _keep_own_lines(summary, names, set())
    text = "".join(summary.format())
    try:
        problem_text = str(problem)
    except Exception:  # noqa: BLE001 - user code again
        problem_text = "(no text available)"
    message = f"{kind}: {problem_text}" if problem_text else kind
    fault = _fault("exception", _shortened(message, _MESSAGE_MAX), kind)
    if isinstance(problem, MemoryError):
        fault = _fault("limit", f"MemoryError: the task needs more memory than {limits['memory']}", kind)
        fault["retire"] = "it reached its memory limit"
    elif isinstance(problem, OSError) and problem.errno == errno.EFBIG:
        fault = _fault("limit", f"{message}: a file grew larger than {limits['file']}", kind)
    fault["py"] = {"exception": kind, "traceback": _shortened(text, _TRACEBACK_MAX)}
    fault["refused"] = _refused(problem) or None
    return fault


def _refused(problem: BaseException) -> list[Any]:
    """Return number, class and file of the first system error among an exception and its causes."""
    cause: BaseException | None = problem
    for _ in range(_CAUSES):
        if isinstance(cause, OSError) and isinstance(cause.errno, int):
            name = cause.filename
            return [cause.errno, type(cause).__name__, name[:4096] if isinstance(name, str) else ""]
        cause = None if cause is None else cause.__cause__ or cause.__context__
    return []


def _keep_own_lines(summary: traceback.TracebackException, names: set[str], seen: set[int]) -> None:
    """Drop frames that are not the task's code, in all causes."""
    if id(summary) in seen:
        return
    seen.add(id(summary))
    summary.stack = traceback.StackSummary.from_list([frame for frame in summary.stack if frame.filename in names])
    nested = [summary.__cause__, summary.__context__, *(getattr(summary, "exceptions", None) or ())]
    for other in nested:
        if other is not None:
            _keep_own_lines(other, names, seen)


def _fault(kind: str, message: str, code: str) -> Fault:
    return {"ok": False, "kind": kind, "message": message, "code": code}


def _too_large(noun: str, most: int) -> Fault:
    return _fault(
        "limit",
        f"{noun}; at most {most} are allowed (setting python.max_result_bytes): return less, yield it in smaller "
        "items, or write it to a store and return where it is",
        "python.max_result_bytes",
    )


def _shortened(text: str, limit: int) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"


def _leftovers(out: io.TextIOWrapper, err: io.TextIOWrapper) -> str:
    """Return why this process cannot serve another task, or '' if it can."""
    try:
        for stream in {sys.stdout, sys.stderr, out, err}:
            stream.flush()
        kernel.flush()
    except Exception:  # noqa: BLE001 - closed, replaced, whatever user code made of them
        return "its standard streams were closed"
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    else:
        return "it left processes running"
    if len(sys._current_frames()) > 1:  # noqa: SLF001 - counts threads that `threading` does not know, too
        return "it left threads running"
    return ""


def _stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
