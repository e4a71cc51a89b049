"""Files beside a playbook: `file:`, `module:` and `function:` of a task, replaced by their text.

Invariant: a plan contains the texts that were captured at compile time, with their checksums; no file is read when a
task runs. A path is relative to the playbook's folder and never leads out of it. The caller of the compiler passes the
texts, by path.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.data.digest import sha256
from arclog.model.data.lazy import pattern
from arclog.model.data.shapes import Field

#: Keys that stand for the text of a file.
FIELDS = (
    Field(
        "file",
        "string",
        "A file relative to the playbook that contains the text; included when the playbook is compiled.",
    ),
    Field(
        "module",
        "string",
        "A Python module in the playbook's folder, as in `jobs.clean`; included with everything that it imports from there.",
    ),
    Field("function", "string", "The function of `file` or `module` that is called. Default: `main`."),
)
KEYS = tuple(field.name for field in FIELDS)
_MODULE = pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
#: Maximum number of modules that one task may import from the playbook's folder.
_MAX_MODULES = 200


class FileRefused(Exception):
    """A file cannot be included; the message says why."""


class FileMissing(FileRefused):
    """The file does not exist."""


def beside(file: str, called: str) -> str:
    """Return the path of a file that a playbook names, relative to the same folder as the path of the playbook."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), called))


def misplaced(path: str) -> str:
    """Return why a path cannot name a file beside a playbook, or ''."""
    if not path.strip() or "\0" in path or "\\" in path:
        return "it is not a path; write it with /, relative to the playbook"
    if path.startswith(("/", "~")):
        return "it must be relative to the playbook's folder"
    if posixpath.normpath(path).split("/")[0] in ("..", "."):
        return "it leads out of the playbook's folder"
    return ""


class Files:
    """The texts that one playbook includes from the files beside it."""

    def __init__(self, playbook: str, texts: Mapping[str, str], settings: Settings) -> None:
        self._playbook = playbook
        self._texts = texts
        self._most = settings.integer("playbook.max_file_bytes")
        self._most_together = settings.integer("playbook.max_files_bytes")
        #: captured files: path → sha256
        self.captured: dict[str, str] = {}
        self._bytes = 0

    def text(self, path: str) -> str:
        """Return the text of a file. Raises FileRefused."""
        if wrong := misplaced(path):
            raise FileRefused(f"file {path[:200]!r}: {wrong}")
        path = posixpath.normpath(path)
        try:
            text = self._texts[beside(self._playbook, path)]
        except KeyError:
            raise FileMissing(f"file {path!r} does not exist, or was not sent with the playbook") from None
        body = text.encode()
        if len(body) > self._most:
            raise FileRefused(f"file {path!r} has more than {self._most:,} bytes (setting playbook.max_file_bytes)")
        if path not in self.captured:
            self._bytes += len(body)
            if self._bytes > self._most_together:
                most = f"{self._most_together:,} bytes (setting playbook.max_files_bytes)"
                raise FileRefused(f"the files of the playbook have more than {most}")
            self.captured[path] = sha256(body)
        return text

    def has(self, path: str) -> bool:
        return not misplaced(path) and beside(self._playbook, posixpath.normpath(path)) in self._texts

    def module(self, name: str) -> dict[str, tuple[str, str]]:
        """Return a module of the playbook's folder with all modules that it imports from there: name → (path, text).

        Raises FileRefused.
        """
        if not _MODULE.match(name):
            raise FileRefused(f"{name[:200]!r} is not a valid name of a module; write it like jobs.clean")
        modules: dict[str, tuple[str, str]] = {}
        if self._existing(name) is None:
            raise FileRefused(f"module {name}: neither {self._path(name)} nor {self._path(name, package=True)} exists")
        pending = [name]
        while pending:
            current = pending.pop()
            path = self._existing(current)
            if path is None or current in modules:
                continue
            if len(modules) >= _MAX_MODULES:
                raise FileRefused(f"module {name} imports more than {_MAX_MODULES} modules of the playbook's folder")
            modules[current] = (path, self.text(path))
            parents = [current.rsplit(".", count)[0] for count in range(1, current.count(".") + 1)]
            is_package = path.endswith("/__init__.py")
            pending += [*parents, *_imported(modules[current][1], current, is_package=is_package)]
        return modules

    def imports(self, source: str) -> dict[str, tuple[str, str]]:
        """Return the modules of the playbook's folder that a script imports."""
        modules: dict[str, tuple[str, str]] = {}
        for name in _imported(source, "", is_package=False):
            if name not in modules and self._existing(name) is not None:
                modules |= self.module(name)
        return modules

    def _existing(self, name: str) -> str | None:
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        paths = (self._path(name), self._path(name, package=True))
        return next((path for path in paths if self.has(path)), None)

    @staticmethod
    def _path(name: str, *, package: bool = False) -> str:
        return name.replace(".", "/") + ("/__init__.py" if package else ".py")


def _imported(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Return the names of modules that a source may import."""
    import ast  # few playbooks have modules

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # running it reports the error
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: package.count(".") + 2 - node.level]
                base = ".".join(part for part in (*above, base) if part)
            if base:
                yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")


def functions(source: str) -> set[str] | None:
    """Return the names that a source defines at its top level; None if that is undecidable."""
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif not isinstance(node, ast.Expr | ast.AnnAssign):
            return None  # a name may be defined in many ways
    return None if "*" in names else names


def shell_command(source: str) -> str | list[str]:
    """Return the command of a shell script: run by the shell that its first line names, else by /bin/sh."""
    first, _, _ = source.partition("\n")
    words = first[2:].split() if first.startswith("#!") else []
    if not words:
        return source
    shell = words[1] if posixpath.basename(words[0]) == "env" and len(words) > 1 else words[0]
    if posixpath.basename(shell) not in _SHELLS:
        raise FileRefused(
            f"its first line names {shell!r}, which is not a shell; use kind python, or name it in `command`"
        )
    return [*words, "-c", source]


def script(source: str, function: str) -> str:
    """Return the script with the named function as its `main`."""
    return f"{source.rstrip()}\n\n\nmain = {function}\n" if function and function != "main" else source


def entry(module: str, function: str) -> str:
    """Return code that imports its `main` from a module."""
    return f"from {module} import {function or 'main'} as main\n"


def as_config(modules: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Return modules in the form of a python task's config: name → {path, source}."""
    return {name: {"path": path, "source": source} for name, (path, source) in sorted(modules.items())}
