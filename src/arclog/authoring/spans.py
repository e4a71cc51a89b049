"""A YAML text with the position of every node, and edits of that text. Text outside of the edits is unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import yaml

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Untagged(_FAST):  # type: ignore[misc] # one of two classes, by what is installed
    """Leaves out the type of each scalar, which takes a fifth of the time and is rarely needed (`tag_of`).

    The parser calls these for every node. `"".format` is a built-in function that accepts anything and returns an empty
    text.
    """

    resolve = descend_resolver = ascend_resolver = "".format


class Alias(yaml.Node):
    """`*name`: a node with its own position that refers to a value elsewhere."""

    id = "alias"


class _WithAliases(yaml.SafeLoader):
    """Keeps aliases as nodes, since the nodes that they refer to have other positions."""

    def resolve(self, *_: Any) -> str:
        return ""

    def descend_resolver(self, *_: Any) -> None: ...

    def ascend_resolver(self) -> None: ...

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call] # its stubs have no types here
            return Alias("", None, event.start_mark, event.end_mark)
        return super().compose_node(parent, index)


_ANCHOR = re.compile(r"(?:^|[\s\[{,])[&*][^\s&*,\]}]")


def tag_of(node: Any) -> str:
    """The YAML type of a scalar: `tag:yaml.org,2002:int` and so on."""
    plain = not node.style
    resolver: Any = yaml.resolver.Resolver()
    return node.tag or str(resolver.resolve(yaml.ScalarNode, node.value, (plain, not plain)))


class Edit(NamedTuple):
    """Put `text` in the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def compose(text: str) -> Any:
    """The node tree of a text; None when it is not YAML, or no map."""
    try:
        anchored = "&" in text and _ANCHOR.search(text) is not None
        root = yaml.compose(text, Loader=_WithAliases if anchored else _Untagged)
    except (yaml.YAMLError, RecursionError):
        return None
    if anchored:
        _without_anchors(text, root)
    return root if isinstance(root, yaml.MappingNode) else None


def _without_anchors(text: str, root: Any) -> None:
    """Let block maps and lists begin at their first key or dash, not at the anchor on the line before."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.MappingNode):
            pending += [part for pair in node.value for part in pair]
            if node.value and not node.flow_style:
                node.start_mark = node.value[0][0].start_mark
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value
            if node.value and not node.flow_style:
                at = node.value[0].start_mark.index
                dash = text.rfind("-", 0, at)
                line = text.count("\n", 0, dash)
                node.start_mark = yaml.Mark("", dash, line, dash - line_start(text, dash), None, 0)


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with some edits; of two that overlap the first wins."""
    taken: list[Edit] = []
    for edit in sorted(edits, key=itemgetter(0, 1)):
        if not taken or edit.start >= taken[-1].end:
            taken.append(edit)
    parts: list[str] = []
    at = 0
    for edit in taken:
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join([*parts, text[at:]])


def entries(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, key node and value node of a map; nothing for other nodes."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, key, value


def entry(node: Any, *path: str) -> Any:
    """Return the value node below some keys; None if it does not exist."""
    for part in path:
        nodes = getattr(node, "by_name", None)
        node = (by_name(node) if nodes is None else nodes).get(part)
        if node is None:
            return None
    return node


def by_name(node: Any) -> dict[str, Any]:
    """Return the value nodes of a map by key, the first one for equal keys; empty for other nodes.

    Most maps are read several times, and a tree does not change, so the result is cached in the map.
    """
    nodes: dict[str, Any] | None = getattr(node, "by_name", None)
    if nodes is None:
        if not isinstance(node, yaml.MappingNode):
            return {}
        nodes = {key.value: value for key, value in reversed(node.value) if isinstance(key, yaml.ScalarNode)}
        vars(node)["by_name"] = nodes
    return nodes


def items(node: Any) -> list[Any]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def scalar(node: Any) -> str | None:
    """Return the text of a scalar; None for other nodes."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def is_map(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode)


def is_list(node: Any) -> bool:
    return isinstance(node, yaml.SequenceNode)


def is_flow(node: Any) -> bool:
    return bool(getattr(node, "flow_style", False))


def start(node: Any) -> int:
    return int(node.start_mark.index)


def end(text: str, node: Any) -> int:
    """Return the end of a node's own text. Block nodes reach to the next token, so white space and comments are left
    out.
    """
    stop = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return start(node) + len(text[start(node) : stop].rstrip())
    if isinstance(node, yaml.ScalarNode | Alias) or is_flow(node):
        return stop
    last: Any = node.value[-1] if node.value else None
    if last is None:
        return stop
    return end(text, last[1] if is_map(node) else last)


def raw(text: str, node: Any) -> str:
    return text[start(node) : end(text, node)]


def line_of(node: Any) -> int:
    return int(node.start_mark.line) + 1


def column_of(node: Any) -> int:
    return int(node.start_mark.column)


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Return the end of the line that contains a position, including its line break."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def scalars(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every scalar value below a node, with its path."""
    if isinstance(node, yaml.ScalarNode):
        yield path, node
    elif isinstance(node, yaml.MappingNode):
        for name, _, value in entries(node):
            yield from scalars(value, (*path, name))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from scalars(value, (*path, index))


def templates(node: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    """Return every scalar value with a template below a node, with its path. Most scalars have none, and all rules use
    this.
    """
    places: list[tuple[tuple[str | int, ...], Any]] | None = getattr(node, "templates", None)
    if places is None:
        places = []
        if node is not None:
            _add_templates(node, [], places)
            vars(node)["templates"] = places
    return places


def _add_templates(node: Any, path: list[str | int], places: list[tuple[tuple[str | int, ...], Any]]) -> None:
    if isinstance(node, yaml.ScalarNode):
        if "{{" in node.value or "{%" in node.value:
            places.append((tuple(path), node))
    elif isinstance(node, yaml.MappingNode):
        path.append("")
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                path[-1] = key.value
                _add_templates(value, path, places)
        path.pop()
    elif isinstance(node, yaml.SequenceNode):
        path.append(0)
        for index, value in enumerate(node.value):
            path[-1] = index
            _add_templates(value, path, places)
        path.pop()
