"""Scans SQL as far as needed to bind templates: quotes, comments, statements, placeholders.

Invariant: every character of the text is in exactly one piece, and a template's own characters are never in a piece of
SQL. Templates that could make a value part of the SQL text (inside a literal, adjacent to a name, in a quoted name) are
refused.
"""

from __future__ import annotations

import re

from msgspec import Struct

from arclog.expr.budget import Failure

# The SQL syntax of each database, as data: its quotes, comments and placeholders.


class Dialect(Struct, frozen=True):
    """The SQL syntax of one database."""

    name: str
    #: format of a placeholder, from its number
    placeholder: str
    nested_comments: bool = False
    dollar_quotes: bool = False
    #: whether E'…' has backslash escapes
    escape_strings: bool = False
    #: whether [name] and `name` are quoted names
    brackets: bool = False
    #: whether ? is a placeholder, not an operator
    question_marks: bool = False
    #: whether $name and :name can only be placeholders
    named_marks: bool = False
    #: what CREATE makes whose statements, from BEGIN to END, belong to it
    bodies: str = ""
    #: maximum bytes of a name; the database would silently cut a longer one
    max_name_bytes: int = 0
    #: expression that tests whether a value is in a bound list
    membership: str = ""


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "sqlite",
            "?{}",
            brackets=True,
            question_marks=True,
            named_marks=True,
            bodies="trigger",
            membership="IN (SELECT value FROM json_each({{ … }}))",
        ),
        Dialect(
            "postgres",
            "${}",
            nested_comments=True,
            dollar_quotes=True,
            escape_strings=True,
            bodies="function",
            max_name_bytes=63,
            membership="= ANY({{ … }})",
        ),
        Dialect(
            "duckdb",
            "${}",
            nested_comments=True,
            dollar_quotes=True,
            escape_strings=True,
            question_marks=True,
            membership="IN (SELECT unnest({{ … }}))",
        ),
    )
}


class Misplaced(Failure):
    """A part of the SQL cannot be bound; `offset` is its position."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Hole(Struct, frozen=True):
    """A `{{ … }}` for a value or a name."""

    source: str
    offset: int
    #: whether it was in exact quotes: the value is bound as text
    quoted: bool = False
    #: whether it is alone after `IN (`, where a list would be compared as one value
    member: bool = False
    #: whether JSON is required here, by a cast or a function
    json: bool = False


class Mark(Struct, frozen=True):
    """A placeholder for an entry of `params`."""

    #: a key of the map, or the index in the list
    key: str | int
    offset: int
    json: bool = False


Piece = str | Hole | Mark


class Statement(Struct):
    """One statement: its pieces, and its first words in capitals."""

    pieces: list[Piece] = []
    words: list[str] = []
    offset: int = 0


_KEPT_WORDS = 6
_TOKENS = r"""(?P<space>SPACE+)
      | (?P<word>LETTER(?:PART|\$)*)
      | (?P<number>\d(?:PART|\.)*)
      | (?P<comment>--[^\n]*)
      | (?P<block>/\*)
      | (?P<dollar>\$(?:LETTERPART*)?\$)
      | (?P<numbered>[$?]\d+)
      | (?P<cast>::)
      | (?P<named>NAMED)
      | (?P<open>\{[{%\#])
      | (?P<other>.)"""


def _token(*, space: str, letter: str, part: str, named: str) -> re.Pattern[str]:
    """Return the pattern of a token, from those of a space, of a name's first character and of its other ones."""
    pattern = _TOKENS.replace("NAMED", named).replace("SPACE", space).replace("LETTER", letter).replace("PART", part)
    return re.compile(pattern, re.VERBOSE | re.DOTALL)


_TOKEN = _token(space=r"\s", letter=r"[^\W\d]", part=r"\w", named="[:@$]LETTERPART*")
#: For SQLite, every character outside of ASCII is part of a name, also a space or sign; except a byte order mark, which
#: is a space where no name precedes it. If other rules were used, a part of a name could be taken for a word such as
#: CASE, and a bracket after a placeholder, which belongs to it, for the beginning of a text.
_SQLITE_TOKEN = _token(
    space=r"[ \t\n\r\f\v\ufeff]",
    letter=r"[A-Za-z_\x80-\U0010ffff]",
    part=r"[A-Za-z0-9_\x80-\U0010ffff]",
    named=r"[:@$\#](?:::)*(?:PART|\$)+",
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_PART = re.compile(r"[\w$]")
_MEMBER = re.compile(r"\bIN\s*\(\s*\Z", re.IGNORECASE)
_LOOK_BACK = 40
#: Casts that convert the value before them to JSON; and functions that take JSON, for which an empty list is JSON, too.
_TO_JSON = re.compile(r"\s*(?:::|\bAS\b)\s*jsonb?\b(?!\s*\[)", re.IGNORECASE)
_TAKE_JSON = re.compile(
    r"(FROM_JSON|JSONB?_(ARRAY_\w+|TO_RECORD(SET)?|POPULATE_RECORD(SET)?|EACH(_TEXT)?|OBJECT_KEYS|TYPEOF|TRANSFORM))"
)
#: Functions with their own FROM before a value.
_FROM_CALLS = frozenset({"EXTRACT", "SUBSTRING", "TRIM", "OVERLAY", "POSITION"})
_TABLE_COMES = re.compile(r"(?<!distinct)\s+from\s+$", re.IGNORECASE)
#: Words that a name follows, never a value.
_BEFORE_NAMES = frozenset({"INTO", "JOIN", "TABLE", "UPDATE", "VIEW", "INDEX", "SCHEMA", "COLUMN"})
#: Words that make a quoted text after them a constant of that type.
_TYPES = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ", "INTERVAL", "JSON", "JSONB", "UUID"})
_CONTROL = frozenset({"BEGIN", "COMMIT", "END", "ABORT", "START", "ROLLBACK"})


def statements(source: str, dialect: Dialect, names: frozenset[str] = frozenset(), count: int = 0) -> list[Statement]:
    """Split SQL into statements; `names` and `count` describe `params`. Raises `Misplaced`."""
    return _Scan(source, dialect, names, count).run()


class _Scan:
    def __init__(self, source: str, dialect: Dialect, names: frozenset[str], count: int) -> None:
        self.source = source
        self.dialect = dialect
        self.token = _SQLITE_TOKEN if dialect.name == "sqlite" else _TOKEN
        self.names = names
        self.count = count
        self.marks = 0
        self.at = 0
        self.done: list[Statement] = []
        self.statement = Statement()
        #: number of END that a body of statements (of a trigger or function) still needs
        self.depth = 0
        self.word = ""
        #: for each open bracket, the word before it
        self.calls: list[str] = []

    def run(self) -> list[Statement]:
        while self.at < len(self.source):
            match = self.token.match(self.source, self.at)
            if match is None:  # pragma: no cover - `other` takes any character
                break
            kind = str(match.lastgroup)
            getattr(self, f"_{kind}")(match[0], self.at)
            if kind not in ("space", "comment", "block", "word"):
                self.word = ""
        if self.depth:
            raise Misplaced("the BEGIN of this statement has no END", self.statement.offset)
        self._end()
        if not self.done:
            raise Misplaced("the command has no SQL statement", 0)
        return self.done

    # --- tokens: each moves `at` past itself ----------------------------------------------------------------------

    def _text(self, text: str) -> None:
        pieces = self.statement.pieces
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += text
        else:
            pieces.append(text)
        self.at += len(text)

    def _space(self, token: str, _: int) -> None:
        self._text(token)

    _comment = _number = _cast = _space

    def _word(self, token: str, at: int) -> None:
        # No database takes another letter for one of ASCII, as `upper` does ("ſ").
        word = token.upper() if token.isascii() else token
        statement = self.statement
        if not statement.words:
            statement.offset = at
        if self.depth:
            self.depth += (word == "CASE") - (word == "END")
        elif self._opens_body(word):
            self.depth = 1
        if len(statement.words) < _KEPT_WORDS:
            statement.words.append(word)
        self.word = word
        self._text(token)

    def _opens_body(self, word: str) -> bool:
        """Return whether a body of statements begins with a word. Elsewhere, these words are names."""
        words = self.statement.words
        if words[:1] != ["CREATE"]:
            return False
        if self.dialect.bodies == "trigger":
            made = words[2:3] if words[1:2] in (["TEMP"], ["TEMPORARY"]) else words[1:2]
            return word == "BEGIN" and made == ["TRIGGER"]
        made = words[3:4] if words[1:3] == ["OR", "REPLACE"] else words[1:2]
        return (
            self.dialect.bodies == "function"
            and (self.word, word) == ("BEGIN", "ATOMIC")
            and made in (["FUNCTION"], ["PROCEDURE"])
        )

    def _block(self, _: str, at: int) -> None:
        if not self.dialect.nested_comments:
            # The first end counts, also that of `/* /*/`.
            end = self.source.find("*/", at + 2) + 2
            if end < 2:
                raise Misplaced("this comment has no end", at)
            return self._text(self.source[at:end])
        level, end = 0, at
        while True:
            edge = _BLOCK_EDGE.search(self.source, end)
            if edge is None:
                raise Misplaced("this comment has no end", at)
            end = edge.end()
            level += 1 if edge[0] == "/*" else -1
            if level == 0:
                return self._text(self.source[at:end])

    def _dollar(self, token: str, at: int) -> None:
        if self.dialect.named_marks:
            return self._named(token, at)
        end = self.source.find(token, at + len(token))
        if end < 0:
            raise Misplaced(f"the text that {token} begins has no end", at)
        inner = self.source.find("{{", at, end)
        if inner >= 0:
            raise Misplaced(
                f"a template cannot be used in text between {token}: it would become part of the code there; "
                "pass the value as an argument or in a table",
                inner,
            )
        return self._text(self.source[at : end + len(token)])

    def _numbered(self, token: str, at: int) -> None:
        if token[0] == "?" and not self.dialect.question_marks:
            return self._text(token)
        number = int(token[1:])
        if not 1 <= number <= self.count:
            raise Misplaced(f"{token} has no value: params is a list of {self.count}", at)
        return self._mark(Mark(number - 1, at), token)

    def _named(self, token: str, at: int) -> None:
        name, before = token[1:], self.source[at - 1 : at]
        if token[0] == ":" and name in self.names and not _PART.match(before) and before != "]":
            return self._mark(Mark(name, at), token)
        if self.dialect.named_marks or token[0] == "$":
            raise Misplaced(f"{token} has no value: give params: {{{name}: …}} and write :{name}", at)
        return self._text(token)

    def _other(self, sign: str, at: int) -> None:
        if sign == "(":
            self.calls.append(self.word)
        elif sign == ")" and self.calls:
            self.calls.pop()
        match sign:
            case "'":
                return self._literal(at)
            case '"':
                return self._quoted_name(at, '"')
            case "[" if self.dialect.brackets:
                return self._quoted_name(at, "]")
            case "`" if self.dialect.brackets:
                return self._quoted_name(at, "`")
            case ";" if not self.depth:
                self.at += 1
                return self._end()
            case "?" if self.dialect.question_marks:
                self.marks += 1
                if self.marks > self.count:
                    raise Misplaced(f"this ? has no value: params is a list of {self.count}", at)
                return self._mark(Mark(self.marks - 1, at), sign)
        return self._text(sign)

    def _mark(self, mark: Mark, token: str) -> None:
        self.at += len(token)
        self.statement.pieces.append(Mark(mark.key, mark.offset, json=self._wants_json(self.at)))

    def _open(self, opener: str, at: int) -> None:
        if opener == "{#":
            end = self.source.find("#}", at)
            if end < 0:
                raise Misplaced("this {# has no #}", at)
            self._text(" ")  # a comment separates words
            self.at = end + 2
            return
        if opener == "{%":
            self._no_statements(at)
        end = self._template_end(at)
        if self.source[at - 1 : at] == "}" or _PART.match(self.source[at - 1 : at]) or self._glued(end):
            raise Misplaced(
                "a {{ }} is a whole value and cannot be joined to the text next to it; "
                "write a name in parts as {{ ('part_' ~ x) | identifier }}, and text in parts as 'part' || {{ x }}",
                at,
            )
        if (self.word in _BEFORE_NAMES or self._is_from(at)) and not _is_name(self.source[at:end]):
            raise Misplaced(
                f"after {self.word} a name is expected, not a value: {{{{ … | identifier }}}} quotes one", at
            )
        member = _MEMBER.search(self.source, max(0, at - _LOOK_BACK), at) is not None
        self.statement.pieces.append(Hole(self.source[at:end], at, member=member, json=self._wants_json(end)))
        self.at = end

    def _is_from(self, at: int) -> bool:
        """Return whether a template is where FROM expects a table.

        FROM of a function or of a comparison takes a value.
        """
        if self.word != "FROM" or (self.calls and self.calls[-1] in _FROM_CALLS):
            return False
        before = self.source[max(0, at - _LOOK_BACK) : at]
        return self.statement.words[:1] != ["COPY"] and _TABLE_COMES.search(before) is not None

    def _wants_json(self, end: int) -> bool:
        return _TO_JSON.match(self.source, end) is not None or bool(self.calls and _TAKE_JSON.fullmatch(self.calls[-1]))

    def _glued(self, end: int) -> bool:
        return bool(_PART.match(self.source, end)) or self.source.startswith("{{", end)

    # --- quotes ---------------------------------------------------------------------------------------------------

    def _literal(self, at: int) -> None:
        """Scan a text in single quotes."""
        prefix = self._prefix(at)
        escapes = prefix == "E" and self.dialect.escape_strings
        spans: list[tuple[int, int]] = []
        end = at + 1
        while True:
            if end >= len(self.source):
                raise Misplaced("this quote has no end", at)
            if self.source.startswith("{{", end):
                spans.append((end, self._template_end(end)))
                end = spans[-1][1]
            elif self.source.startswith(("{%", "{#"), end):
                self._no_statements(end)
            elif (self.source[end] == "\\" and escapes) or self.source.startswith("''", end):
                end += 2
            elif self.source[end] == "'":
                break
            else:
                end += 1
        if not spans:
            return self._text(self.source[at : end + 1])
        first, last = spans[0]
        if spans != [(at + 1, end)]:
            raise Misplaced(
                f"a template cannot be used inside a longer text; write {self._joined(at, end, spans)}", first
            )
        if prefix:
            raise Misplaced(f"leave out the {prefix} and the quotes: a {{{{ }}}} is bound as a value", first)
        if self.word in _TYPES and self.dialect.name != "sqlite":
            raise Misplaced(
                f"{self.word} before quotes makes a constant, which cannot be a value; "
                f"write CAST({self.source[first:last]} AS {self.word.lower()})",
                first,
            )
        self.statement.pieces.append(Hole(self.source[first:last], first, quoted=True))
        self.at = end + 1
        return None

    def _prefix(self, at: int) -> str:
        """Return the letters directly before the quote, as in E'…'."""
        start = at
        while start and (_PART.match(self.source[start - 1]) or self.source[start - 1] == "&"):
            start -= 1
        return self.source[start:at].upper()

    def _joined(self, at: int, end: int, spans: list[tuple[int, int]]) -> str:
        parts: list[str] = []
        before = at + 1
        for first, last in spans:
            parts += [f"'{self.source[before:first]}'" if before < first else "", self.source[first:last]]
            before = last
        parts.append(f"'{self.source[before:end]}'" if before < end else "")
        joined = " || ".join(part for part in parts if part)
        return joined if len(joined) <= 200 else "'…' || {{ … }} || '…'"

    def _quoted_name(self, at: int, closing: str) -> None:
        end = at + 1
        while True:
            end = self.source.find(closing, end)
            if end < 0:
                raise Misplaced("this quoted name has no end", at)
            if closing != "]" and self.source.startswith(closing * 2, end):
                end += 2
                continue
            break
        inner = self.source.find("{{", at, end)
        if inner >= 0:
            raise Misplaced(
                "a template cannot be used in a quoted name; write {{ … | identifier }}, without quotes", inner
            )
        self._text(self.source[at : end + 1])

    # --- templates and statements ---------------------------------------------------------------------------------

    def _template_end(self, at: int) -> int:
        """Return the end of the `{{` at a position, as the template language reads it, with quotes and brackets."""
        end, depth, source = at + 2, 0, self.source
        while end < len(source):
            char = source[end]
            if char in "'\"":
                closing = end + 1
                while closing < len(source) and source[closing] != char:
                    closing += 2 if source[closing] == "\\" else 1
                end = closing
            elif char in "([{":
                depth += 1
            elif not depth and source.startswith("}}", end):
                return end + 2
            elif char in ")]}":
                depth = max(0, depth - 1)
            end += 1
        raise Misplaced("this {{ has no }}", at)

    def _no_statements(self, at: int) -> None:
        raise Misplaced(
            "{% %} and {# #} cannot be used here in SQL, because its text never depends on values; bind a value with {{ }}, "
            "choose with CASE, or use one task for each form",
            at,
        )

    def _end(self) -> None:
        statement, self.statement, self.word, self.calls = self.statement, Statement(), "", []
        if not statement.words and not any(isinstance(piece, Hole) for piece in statement.pieces):
            return
        self._refuse(statement)
        self.done.append(statement)

    def _refuse(self, statement: Statement) -> None:
        words, first = statement.words, statement.words[0] if statement.words else ""
        if not words:
            hole = next(piece for piece in statement.pieces if isinstance(piece, Hole))
            raise Misplaced(
                "a {{ }} is bound as a value, so it cannot be the statement itself; write the SQL here, with a {{ }} for "
                "each value",
                hole.offset,
            )
        if (first in _CONTROL and not (first == "ROLLBACK" and "TO" in words)) or words[:2] == [
            "PREPARE",
            "TRANSACTION",
        ]:
            raise Misplaced(
                f"{first} cannot be used in a command: its statements are one transaction, "
                "or separate transactions with transaction: false",
                statement.offset,
            )
        if self.dialect.name == "duckdb" and "INSTALL" in words[:2]:
            raise Misplaced(
                "extensions are not installed by a task; use the built-in ones (parquet, json, icu), or LOAD one that is "
                "in the folder of the setting duckdb.extensions",
                statement.offset,
            )


def _is_name(hole: str) -> bool:
    return re.search(r"\|\s*identifier\b", hole) is not None
