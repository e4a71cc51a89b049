"""Jinja's own lexer and parser, restricted to the part of the language that a playbook may use.

Invariant: size and nesting of a source are checked before the recursive parser runs, so whether a template compiles
never depends on the depth of the caller's stack.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from arclog.expr.budget import Failure
from arclog.model.data.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import nodes
    from jinja2.lexer import Lexer, Token, TokenStream


# A fast path to the tokens of plain expressions, which most templates are: the result of Jinja's lexer, in one pass.
#
# Invariant: it returns exactly the tokens of Jinja's lexer, or None. Everything that is not plain (another line, an
# escape, a float, a letter beyond ASCII, unbalanced brackets) is left to that lexer, and so is every message.


_PLAIN = pattern(
    r"[ \t]*(?:([A-Za-z_][A-Za-z0-9_]*)|(0|[1-9][0-9]*)(?![\w.])|'([^'\\]*)'|\"([^\"\\]*)\""
    r"|(//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,])|$)"
)
_NAME, _INTEGER, _OPERATOR = 1, 2, 5
_CLOSES = {")": "(", "]": "[", "}": "{"}
#: Maximum length for the fast path; longer texts are rare.
_LONGEST = 512


def lone(source: str) -> str | None:
    """Return the content of a text that is a single `{{ expression }}` on one line; None if that is not obvious."""
    text = source.strip()
    if len(text) > _LONGEST or not text.startswith("{{") or not text.endswith("}}") or "\n" in source:
        return None
    inside = text[2:-2]
    if not inside or inside[0] in "-+" or inside[-1] in "-+":  # these strip the surrounding white space
        return None
    if "}}" in inside or "{{" in inside or "{%" in inside or "{#" in inside:
        return None
    return inside


def plain_tokens(source: str, operators: dict[str, str], token: Any) -> list[Any] | None:
    """Return the tokens of a plain expression. `operators` and `token` are Jinja's own."""
    if len(source) > _LONGEST or not source.isascii() or "\n" in source or "\r" in source:
        return None
    tokens: list[Any] = []
    open_brackets: list[str] = []
    at, end, match = 0, len(source), _PLAIN.match
    while at < end:
        part = match(source, at)
        if part is None:
            return None
        at = part.end()
        group = part.lastindex
        if group is None:
            break
        value = part[group]
        if group == _NAME:
            tokens.append(token(1, "name", value))
        elif group == _OPERATOR:
            if value in "([{":
                open_brackets.append(value)
            elif value in _CLOSES and (not open_brackets or open_brackets.pop() != _CLOSES[value]):
                return None
            tokens.append(token(1, operators[value], value))
        elif group == _INTEGER:
            tokens.append(token(1, "integer", int(value)))
        else:
            tokens.append(token(1, "string", value))
    return None if open_brackets else tokens


MAX_SOURCE = 256 * 1024
MAX_TOKENS = 50_000
#: Maximum number of stack frames that the parser may need, as counted below.
_MAX_FRAMES = 450
#: Frames of Jinja's parser for one bracket, and for one nested statement.
_BRACKET_FRAMES, _STATEMENT_FRAMES = 15, 5
#: An expression with at most this many tokens cannot exceed the frames.
_HARMLESS = _MAX_FRAMES // _BRACKET_FRAMES

_STATEMENTS = frozenset({"if", "elif", "else", "endif", "for", "endfor", "set", "endset"})
_NESTING = {"if": 1, "endif": -1, "for": 1, "endfor": -1, "set": 1, "endset": -1}
_EDGES = frozenset({"variable_begin", "variable_end", "block_begin", "block_end"})
_OPENING, _CLOSING = frozenset({"lparen", "lbracket", "lbrace"}), frozenset({"rparen", "rbracket", "rbrace"})
_VALUES = frozenset({"integer", "float", "string"}) | _CLOSING
_WORDS = frozenset({"not", "and", "or", "in", "is", "if", "else"})


class Syntax:
    """The parts of an environment that Jinja's lexer and parser use: no filters, no globals, no loader."""

    block_start_string, block_end_string = "{%", "%}"
    variable_start_string, variable_end_string = "{{", "}}"
    comment_start_string, comment_end_string = "{#", "#}"
    line_statement_prefix = line_comment_prefix = None
    trim_blocks = lstrip_blocks = False
    newline_sequence = "\n"
    keep_trailing_newline = True

    def __init__(self) -> None:
        package = _package()
        self._parser = import_module(f"{package}.parser")
        self._lexing = import_module(f"{package}.lexer")
        self._lexer: Lexer = self._lexing.get_lexer(self)
        self.syntax_error: type[Exception] = import_module(f"{package}.exceptions").TemplateSyntaxError

    def iter_extensions(self) -> Iterator[Any]:
        """Return the syntax extensions: none."""
        return iter(())

    def _tokenize(self, source: str, name: str | None, filename: str | None, state: str | None) -> TokenStream:
        tokens = None
        if state == "variable":
            tokens = plain_tokens(source, self._lexing.operators, self._lexing.Token)
        if tokens is None:
            tokens = list(self._lexer.wrap(self._lexer.tokeniter(source, name, filename, state), name, filename))
        if state != "variable" or len(tokens) > _HARMLESS:
            _fence(tokens)
        stream: TokenStream = self._lexing.TokenStream(iter(tokens), name, filename)
        return stream

    def template(self, source: str) -> list[nodes.Node]:
        """Parse text with markers."""
        body: list[nodes.Node] = self._parser.Parser(self, source).subparse()
        return body

    def expression(self, source: str) -> nodes.Expr:
        """Parse a bare expression."""
        parser = self._parser.Parser(self, source, state="variable")
        node: nodes.Expr = parser.parse_expression()
        if not parser.stream.eos:
            raise Failure(
                f"unexpected {str(parser.stream.current)[:50]!r} after the expression", parser.stream.current.lineno
            )
        return node


_syntax: list[Syntax] = []


def has_markers(source: str) -> bool:
    """Return whether a text is a template."""
    return "{{" in source or "{%" in source or "{#" in source


def parse_template(source: str) -> list[nodes.Node]:
    """Parse a text with markers into Jinja's nodes."""
    body: list[nodes.Node] = _parsed(source, bare=False)
    return body


def parse_lone(source: str) -> nodes.Expr | None:
    """Return the expression of a text that is one plain `{{ expression }}`; None if the whole text must be parsed."""
    inside = lone(source)
    if inside is None:
        return None
    try:
        expression: nodes.Expr = _parsed(inside, bare=True)
    except Failure:
        return None  # the error message must be about the whole text
    return expression


def parse_expression(source: str) -> nodes.Expr:
    """Parse a bare expression into Jinja's node."""
    expression: nodes.Expr = _parsed(source, bare=True)
    return expression


def _parsed(source: str, *, bare: bool) -> Any:
    if len(source) > MAX_SOURCE:
        raise Failure(f"a template is at most {MAX_SOURCE} characters")
    if not _syntax:
        _syntax.append(Syntax())
    syntax = _syntax[0]
    try:
        return syntax.expression(source) if bare else syntax.template(source)
    except Failure:
        raise
    except RecursionError:
        raise Failure(_TOO_DEEP) from None
    except syntax.syntax_error as error:
        raise Failure(str(getattr(error, "message", error)), getattr(error, "lineno", 0) or 0) from None
    except Exception as error:  # noqa: BLE001  # see below
        # Jinja's lexer raises a few Python errors, for example for a number with too many digits.
        raise Failure(f"the template cannot be read ({type(error).__name__})") from None


_TOO_DEEP = "the expression is nested too deeply; take it apart with args or set"


def _fence(tokens: list[Token]) -> None:
    # Count the frames that the recursive parser needs: for statements, and for brackets and prefixes in each
    # expression.
    if len(tokens) > MAX_TOKENS:
        raise Failure(f"a template is at most {MAX_TOKENS} tokens", tokens[-1].lineno)
    statements = frames = 0
    brackets: list[int] = []
    after_value = False
    statement = ""
    for at, token in enumerate(tokens):
        kind, word = token.type, token.value
        if kind in _OPENING:
            brackets.append(frames)
            frames += _BRACKET_FRAMES
        elif kind in _CLOSING:
            frames = brackets.pop() if brackets else frames
        elif (kind in ("sub", "add") and not after_value) or (kind == "name" and word in ("not", "else")):
            frames += 1
        elif kind == "comma":
            frames = brackets[-1] + _BRACKET_FRAMES if brackets else 0
        elif kind == "assign" and not brackets:
            statement = statement.replace("set", "")  # `set x = 1` opens no block
        elif kind in _EDGES:
            frames = 0
            brackets.clear()
            if kind == "block_begin":
                statement = _statement(tokens, at)
            elif kind == "block_end":
                statements += _STATEMENT_FRAMES * _NESTING.get(statement, 0)
        after_value = kind in _VALUES or (kind == "name" and word not in _WORDS)
        if statements + frames > _MAX_FRAMES:
            raise Failure(_TOO_DEEP, token.lineno)


def _statement(tokens: list[Token], at: int) -> str:
    token = tokens[at + 1] if at + 1 < len(tokens) else None
    if token is None or token.type != "name" or token.value not in _STATEMENTS:
        name = "" if token is None else str(token.value)[:50]
        raise Failure(
            f"{{% {name} %}} is not part of the template language; there are if, for and set", tokens[at].lineno
        )
    return str(token.value)


def _package() -> str:
    # `import jinja2` also loads its compiler, loaders and caches (hashlib, tempfile, pickle …), which doubles the
    # start-up time. The lexer and the parser are self-contained, so they are loaded as a separate package.
    if "jinja2" in sys.modules:
        return "jinja2"
    spec = find_spec("jinja2")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("jinja2 is not installed")
    alias = ModuleType("arclog.expr._jinja2")
    alias.__path__ = list(spec.submodule_search_locations)
    sys.modules.setdefault(alias.__name__, alias)
    return alias.__name__
