"""Reads playbook and workload files, and builds the workload of a command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import Usage
from arclog.model.config.settings import Settings

if TYPE_CHECKING:
    from arclog.authoring.playbook_files import FilesBeside

_INT_LOW, _INT_HIGH = -(2**63), 2**63 - 1


def playbook_text(file: str, settings: Settings) -> tuple[str, str]:
    """The playbook's text and its name in messages."""
    body, name = read(file, settings)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.strip():
        from arclog.playbook.load import load

        load(body, name, settings)  # raises an error with the position of the invalid byte, or for an empty file
    return text, name


def rewrite(file: str, text: str) -> None:
    """Replace the content of a file. Whatever fails, a full disk too, the file has its old content or the new one."""
    import os
    import tempfile

    target = os.path.realpath(file)  # a link stays a link
    descriptor, unfinished = tempfile.mkstemp(prefix=".arclog-", dir=os.path.dirname(target))  # noqa: PTH120 - pathlib costs a start 2 ms
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as body:  # noqa: PTH123
            body.write(text)
        os.chmod(unfinished, os.stat(target).st_mode & 0o7777)  # noqa: PTH101, PTH116
        os.replace(unfinished, target)  # noqa: PTH105
    except BaseException:
        os.unlink(unfinished)  # noqa: PTH108
        raise


def in_catalog(word: str) -> bool:
    """Return whether a word is a path of the catalog: no file of that name exists, and it does not look like a file
    name.
    """
    import os

    return (
        word != "-"
        and word.strip() != ""
        and not word.endswith((".yaml", ".yml", ".json"))
        and not word.startswith((".", "/", "~"))
        and not os.path.exists(word)  # noqa: PTH110 - pathlib costs a start 2 ms
    )


def path_and_version(word: str) -> tuple[str, int]:
    """`reports/daily@3` is version 3 of reports/daily; without a version it is the newest."""
    path, mark, version = word.rpartition("@")
    if not mark:
        return word, 0
    if not (version.isascii() and version.isdigit() and 0 < len(version) <= 9 and int(version)):
        raise Usage(f"{version!r} is not a version; write it like {path or 'reports/daily'}@3")
    return path, int(version)


def files_beside(text: str, file: str, settings: Settings) -> dict[str, str]:
    """Return the files that the tasks of a playbook use, by path."""
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.plan.build import build
    from arclog.wiring.kinds import installed_kinds

    beside_it = FilesBeside(settings).of(file)
    if any(f"{key}:" in text or f'"{key}"' in text for key in ("file", "module")):
        build(text, file, installed_kinds(), settings, beside_it)
    return beside_it.taken


def called_playbooks(text: str, file: str, settings: Settings, beside_them: FilesBeside) -> dict[str, str]:
    """Return the texts of the playbooks that this one and its callees call by file. Files that their tasks use are
    added to `beside_them`.
    """
    if "playbook" not in text or "file" not in text:
        return {}
    from arclog.authoring import playbook_files
    from arclog.wiring.kinds import installed_kinds

    return playbook_files.called_playbooks(
        text, file, settings, beside_them, installed_kinds(), lambda where: playbook_text(where, settings)[0]
    )


def workload_of(file: str | None, assignments: Sequence[str], settings: Settings) -> dict[str, Any]:
    """The workload of a request: that of the file, with the values of `--set`."""
    workload = {} if file is None else _workload_file(file, settings)
    for path, value in assigned(assignments):
        _put(workload, path, value)
    return workload


def assigned(assignments: Sequence[str]) -> list[tuple[tuple[str, ...], Any]]:
    """The paths and values of `--set a.b=VALUE`; refuses assignments that contradict each other."""
    values: dict[tuple[str, ...], Any] = {}
    for text in assignments:
        path, value = _assignment(text)
        for other, before in values.items():
            shorter, longer = sorted((path, other), key=len)
            if len(shorter) < len(longer) and longer[: len(shorter)] == shorter:
                # A key of a map that was assigned before adds to it; anything else would undo an assignment.
                if shorter == other and isinstance(before, dict):
                    continue
                raise Usage(f"--set {'.'.join(path)} and --set {'.'.join(other)} conflict: one is inside the other")
        values[path] = value
    return list(values.items())


def _assignment(text: str) -> tuple[tuple[str, ...], Any]:
    name, equals, raw = text.partition("=")
    if not equals:
        raise Usage(f"--set {text!r} has no '='", "write --set a.b=VALUE; VALUE is JSON, otherwise text")
    if not _is_utf8(name):
        raise Usage(f"--set {text!r}: the path is not UTF-8")
    path = tuple(name.split("."))
    if not all(path):
        raise Usage(f"--set {text!r}: a path is names joined by dots, such as user.name")
    for part in path:
        if part.isdigit() or part.endswith("]"):
            hint = f"give the whole list: --set '{'.'.join(path[: path.index(part)]) or 'items'}=[1, 2]', or --workload FILE"
            raise Usage(f"--set {name}: {part!r} is a list index; single items cannot be set", hint)
    return path, _value(name, raw)


def _value(name: str, raw: str) -> Any:
    import msgspec

    try:
        value = msgspec.json.decode(raw.encode("utf-8", "surrogateescape"))
    except msgspec.ValidationError as error:
        raise Usage(f"--set {name}: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        if not _is_utf8(raw):
            raise Usage(f"--set {name}: the value is not UTF-8") from None
        return raw
    _check_numbers(value, f"--set {name}")
    return value


def _is_utf8(word: str) -> bool:
    """Return whether a word of the command line is valid text; invalid bytes are lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _put(workload: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    place = workload
    for depth, part in enumerate(path[:-1]):
        below = place.get(part)
        if isinstance(below, list):
            where = ".".join(path[: depth + 1])
            raise Usage(f"--set {'.'.join(path)}: {where} is a list", f"give the whole list: --set '{where}=[…]'")
        if not isinstance(below, dict):
            below = place[part] = {}
        place = below
    place[path[-1]] = value


def _workload_file(file: str, settings: Settings) -> dict[str, Any]:
    import msgspec

    body, name = read(file, settings)
    if not body.strip():
        raise Usage(f"{name}: the workload is empty", 'e.g. {"user": {"name": "Ada"}}')
    try:
        value = msgspec.json.decode(body)
        _check_numbers(value, name)
    except (msgspec.DecodeError, RecursionError):
        from arclog.playbook.load import load

        value = load(body, name, settings).value
    if not isinstance(value, dict):
        raise Usage(f"{name}: a workload is a map, not {_kind(value)}", 'e.g. {"user": {"name": "Ada"}}')
    return value


def read(file: str, settings: Settings) -> tuple[bytes, str]:
    """A file's bytes and its name in messages; '-' is standard input."""
    most = settings.integer("playbook.max_bytes")
    try:
        if file == "-":
            body, name = sys.stdin.buffer.read(most + 1), "<stdin>"
        else:
            with open(file, "rb") as source:  # noqa: PTH123 - pathlib costs a start 2 ms
                # A file name as text for messages and the log, since it may contain any bytes.
                body, name = source.read(most + 1), file.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Usage(f"cannot read {file}: {reason}") from None
    if len(body) > most:
        raise Usage(f"{name} has more than {most:,} bytes (setting playbook.max_bytes)")
    return body, name


def _check_numbers(value: Any, where: str) -> None:
    """Refuse integers that the log cannot store."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, int) and not _INT_LOW <= item <= _INT_HIGH:
            raise Usage(f"{where}: {item} does not fit into 64 bits; write it as text, in quotes")


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", type(None): "empty", bool: "a boolean"}.get(type(value), "a number")
