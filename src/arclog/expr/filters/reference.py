"""Every filter, test and function of templates with a description and an example, for docs/templates.md.

An example is an expression and its value; the tests evaluate all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One filter, test or function."""

    #: its signature: `round(precision=0, method='common')`
    call: str
    summary: str
    example: str
    value: Any

    @property
    def name(self) -> str:
        return self.call.partition("(")[0]


def _entries(*rows: tuple[str, str, str, Any]) -> tuple[Entry, ...]:
    return tuple(Entry(*row) for row in rows)


# fmt: off
#: heading → filters
FILTERS: dict[str, tuple[Entry, ...]] = {
    "Values": _entries(
        ("default(value='', boolean=false)", "The value, or the default if it is undefined; with `boolean` also if it is false or empty.", "missing | default(3)", 3),
        ("d(value='', boolean=false)", "The same as `default`.", "missing | d('x')", "x"),
        ("int(default=0, base=10)", "Converts to a whole number; returns the default if that is not possible.", "'42' | int", 42),
        ("float(default=0.0)", "Converts to a number; returns the default if that is not possible.", "'1.5' | float", 1.5),
        ("string", "The value as text.", "12 | string", "12"),
        ("list", "A list of the items, keys or characters.", "'abc' | list", ["a", "b", "c"]),
        ("tojson(indent=none)", "JSON text with sorted keys.", "{'b': 1, 'a': [true]} | tojson", '{"a": [true], "b": 1}'),
        ("fromjson", "The value of a JSON text.", "'[1, 2]' | fromjson", [1, 2]),
    ),
    "Numbers": _entries(
        ("abs", "The absolute value.", "-3 | abs", 3),
        ("round(precision=0, method='common')", "Rounded; the method is common, ceil or floor.", "2.345 | round(1)", 2.3),
        ("sum(attribute=none, start=0)", "The sum of the items.", "[{'n': 1}, {'n': 2}] | sum(attribute='n')", 3),
        ("average(attribute=none)", "The mean of the items; an empty list is an error.", "[1, 2, 6] | average", 3.0),
        ("min(case_sensitive=false, attribute=none)", "The smallest item.", "[3, 1, 2] | min", 1),
        ("max(case_sensitive=false, attribute=none)", "The largest item.", "[3, 1, 2] | max", 3),
        ("filesizeformat(binary=false)", "A number of bytes in a readable form.", "1500000 | filesizeformat", "1.5 MB"),
    ),
    "Text": _entries(
        ("lower", "In lower case.", "'Ada' | lower", "ada"),
        ("upper", "In upper case.", "'Ada' | upper", "ADA"),
        ("capitalize", "The first character in upper case, the rest in lower case.", "'ada LOVELACE' | capitalize", "Ada lovelace"),
        ("title", "Every word capitalized.", "'ada lovelace' | title", "Ada Lovelace"),
        ("trim(chars=none)", "Without white space (or these characters) at both ends.", "'  x ' | trim", "x"),
        ("replace(old, new, count=none)", "Replaces one text by another.", "'a-b-c' | replace('-', '+')", "a+b+c"),
        ("split(sep=none, maxsplit=-1)", "The parts between separators, or between white space.", "'a,b,c' | split(',')", ["a", "b", "c"]),
        ("lines", "The lines.", "'a\\nb' | lines", ["a", "b"]),
        ("join(d='', attribute=none)", "The items as one text.", "[1, 2] | join(', ')", "1, 2"),
        ("truncate(length=255, killwords=false, end='...', leeway=none)", "Cut to a length.", "'one two three' | truncate(9, leeway=0)", "one..."),
        ("wordcount", "The number of words.", "'one two' | wordcount", 2),
        ("wordwrap(width=79, break_long_words=true, wrapstring=none, break_on_hyphens=true)", "Wrapped into lines.", "'one two' | wordwrap(4)", "one\ntwo"),
        ("indent(width=4, first=false, blank=false)", "Indents all lines except the first.", "'a\\nb' | indent(2)", "a\n  b"),
        ("center(width=80)", "Centered in a field.", "'x' | center(5)", "  x  "),
        ("ljust(width, fill=' ')", "Left-aligned in a field.", "'x' | ljust(3, '.')", "x.."),
        ("rjust(width, fill=' ')", "Right-aligned in a field.", "7 | rjust(3, '0')", "007"),
        ("slug(sep='-')", "Lower-case ASCII letters and digits, for names in paths.", "'Über uns!' | slug", "uber-uns"),
        ("striptags", "Without HTML tags and comments.", "'<b>x</b> y' | striptags", "x y"),
        ("escape", "With `&`, `<`, `>` and quotes as HTML entities.", "'<a>' | escape", "&lt;a&gt;"),
        ("e", "The same as `escape`.", "'&' | e", "&amp;"),
        ("forceescape", "The same as `escape`.", "'&' | forceescape", "&amp;"),
        ("safe", "The text unchanged: nothing is escaped automatically.", "'<a>' | safe", "<a>"),
        ("xmlattr(autospace=true)", "A map as XML attributes.", "{'id': 7} | xmlattr", ' id="7"'),
    ),
    "Regular expressions": _entries(
        ("regex_search(pattern, group=none)", "The first match, or one of its groups by number or name; null without a match.", "'order 17' | regex_search('[0-9]+')", "17"),
        ("regex_findall(pattern)", "All matches; with groups, the text of the groups.", "'a1 b22' | regex_findall('[0-9]+')", ["1", "22"]),
        ("regex_replace(pattern, replacement='', count=0)", "Replaces matches; `\\\\1` and `\\\\g<name>` refer to groups.", "'Ada Lovelace' | regex_replace('(\\\\w+) (\\\\w+)', '\\\\2, \\\\1')", "Lovelace, Ada"),
    ),
    "Lists": _entries(
        ("length", "The number of items, keys or characters.", "[1, 2] | length", 2),
        ("count", "The same as `length`.", "'abc' | count", 3),
        ("first", "The first item.", "[1, 2] | first", 1),
        ("last", "The last item.", "[1, 2] | last", 2),
        ("reverse", "In reverse order.", "[1, 2] | reverse", [2, 1]),
        ("sort(reverse=false, case_sensitive=false, attribute=none)", "Sorted.", "[3, 1, 2] | sort", [1, 2, 3]),
        ("unique(case_sensitive=false, attribute=none)", "Each item once.", "[1, 2, 1] | unique", [1, 2]),
        ("compact", "Without nulls and empty texts.", "[1, none, '', 2] | compact", [1, 2]),
        ("flatten(levels=none)", "Replaces nested lists by their items.", "[1, [2, [3]]] | flatten", [1, 2, 3]),
        ("zip(*others)", "Combines the items of several lists, up to the length of the shortest.", "[1, 2] | zip(['a', 'b'])", [[1, "a"], [2, "b"]]),
        ("batch(linecount, fill_with=none)", "Lists of `linecount` items.", "[1, 2, 3] | batch(2)", [[1, 2], [3]]),
        ("slice(slices, fill_with=none)", "A list of `slices` lists of about the same length.", "[1, 2, 3] | slice(2)", [[1, 2], [3]]),
        ("union(other)", "The items of both, each once.", "[1, 2] | union([2, 3])", [1, 2, 3]),
        ("intersect(other)", "The items that are in both.", "[1, 2] | intersect([2, 3])", [2]),
        ("difference(other)", "The items that are not in the other.", "[1, 2] | difference([2, 3])", [1]),
        ("map(filter, …) or map(attribute=…)", "Applies a filter to each item, or takes an attribute of each.", "[{'n': 1}, {'n': 2}] | map(attribute='n')", [1, 2]),
        ("select(test='', …)", "The items that pass a test, or are true.", "[1, 2, 3] | select('odd')", [1, 3]),
        ("reject(test='', …)", "The items that do not pass a test, or are false.", "[1, 2, 3] | reject('odd')", [2]),
        ("selectattr(attribute, test='', …)", "The items whose attribute passes a test, or is true.", "[{'n': 1}, {'n': 2}] | selectattr('n', 'gt', 1)", [{"n": 2}]),
        ("rejectattr(attribute, test='', …)", "The items whose attribute does not pass a test, or is false.", "[{'n': 1}, {'n': 2}] | rejectattr('n', 'gt', 1)", [{"n": 1}]),
        ("groupby(attribute, default=none, case_sensitive=false)", "Pairs of a value and the items that have it.", "([{'k': 'a'}, {'k': 'a'}] | groupby('k') | first).grouper", "a"),
    ),
    "Maps": _entries(
        ("items", "Pairs of key and value.", "{'a': 1} | items", [["a", 1]]),
        ("dictsort(case_sensitive=false, by='key', reverse=false)", "Pairs, sorted.", "{'b': 1, 'a': 2} | dictsort", [["a", 2], ["b", 1]]),
        ("combine(*others)", "Merges maps deeply; later ones win.", "{'a': {'x': 1}} | combine({'a': {'y': 2}})", {"a": {"x": 1, "y": 2}}),
        ("pick(*keys)", "Only these keys.", "{'a': 1, 'b': 2} | pick('a')", {"a": 1}),
        ("omit(*keys)", "Without these keys.", "{'a': 1, 'b': 2} | omit('a')", {"b": 2}),
        ("to_map(key=none, val=none)", "A map from a list of pairs, or from items by one of their keys.", "[{'id': 'x', 'n': 1}] | to_map('id', 'n')", {"x": 1}),
    ),
    "Dates": _entries(
        ("date", "The day of a moment.", "'2027-01-31T23:00:00Z' | date", "2027-01-31"),
        ("datetime", "A moment as ISO 8601 text, also from seconds since 1970.", "1800000000 | datetime", "2027-01-15T08:00:00Z"),
        ("epoch", "A moment as seconds since 1970.", "'2027-01-15T08:00:00Z' | epoch", 1800000000),
        ("date_format(pattern='%Y-%m-%d')", "A moment as text, by `%Y %m %d %H %M %S` and the like; names are English.", "'2027-01-31' | date_format('%a %d %b %Y')", "Sun 31 Jan 2027"),
        ("date_add(days=0, hours=0, minutes=0, seconds=0, weeks=0, months=0)", "A later (or earlier) moment. Adding months never goes past the last day of a month.", "'2027-01-31' | date_add(months=1)", "2027-02-28"),
        ("date_diff(other, unit='seconds')", "The time since another moment, in weeks, days, hours, minutes or seconds.", "'2027-03-01' | date_diff('2027-02-01', 'days')", 28),
        ("to_zone(zone)", "The same moment in a time zone.", "'2027-01-31T09:00:00Z' | to_zone('Europe/Vienna')", "2027-01-31T10:00:00+01:00"),
    ),
    "Hashes and encodings": _entries(
        ("hash(algorithm='sha256')", "Hexadecimal hash of the UTF-8 text: md5, sha1, sha256, sha384 or sha512.", "'abc' | hash('md5')", "900150983cd24fb0d6963f7d28e17f72"),
        ("hmac(key, algorithm='sha256')", "Hexadecimal HMAC of the text.", "'abc' | hmac('k', 'md5')", "75972c9c6569f2f407752ddb02ac79de"),
        ("b64encode", "Base64 of the UTF-8 text.", "'hi' | b64encode", "aGk="),
        ("b64decode", "The text of base64.", "'aGk=' | b64decode", "hi"),
        ("hexencode", "Hexadecimal digits of the UTF-8 text.", "'hi' | hexencode", "6869"),
        ("hexdecode", "The text of hexadecimal digits.", "'6869' | hexdecode", "hi"),
        ("urlencode", "Percent-encoded; a map or list of pairs as a query.", "{'q': 'a b'} | urlencode", "q=a+b"),
        ("urldecode", "The text of percent-encoding.", "'a%20b+c' | urldecode", "a b c"),
    ),
}

TESTS: tuple[Entry, ...] = _entries(
    ("defined", "The name exists.", "missing is defined", False),
    ("undefined", "The name does not exist.", "missing is undefined", True),
    ("none", "It is null.", "none is none", True),
    ("boolean", "It is true or false.", "true is boolean", True),
    ("true", "It is true.", "1 is true", False),
    ("false", "It is false.", "false is false", True),
    ("number", "It is a number.", "1.5 is number", True),
    ("integer", "It is a whole number.", "1.5 is integer", False),
    ("float", "It is a number with a fraction.", "1.5 is float", True),
    ("string", "It is text.", "'x' is string", True),
    ("mapping", "It is a map.", "{} is mapping", True),
    ("sequence", "It has items: a list, text or map.", "[] is sequence", True),
    ("iterable", "The same as `sequence`.", "1 is iterable", False),
    ("callable", "Never: nothing can be called.", "1 is callable", False),
    ("lower", "It is in lower case.", "'a' is lower", True),
    ("upper", "It is in upper case.", "'a' is upper", False),
    ("odd", "It is an odd number.", "3 is odd", True),
    ("even", "It is an even number.", "3 is even", False),
    ("divisibleby(num)", "It is divisible by the number.", "6 is divisibleby(3)", True),
    ("sameas(other)", "Both are the same, of the same type.", "1 is sameas(1.0)", False),
    ("in(seq)", "It is in a list, map or text.", "2 is in([1, 2])", True),
    ("match(pattern)", "The text starts with a match of a regular expression.", "'a1' is match('[a-z]')", True),
    ("search(pattern)", "The text contains a match of a regular expression.", "'a1' is search('[0-9]$')", True),
    ("eq(other)", "Both are equal; also `equalto` and `==`.", "1 is eq(1)", True),
    ("equalto(other)", "The same as `eq`.", "1 is equalto(2)", False),
    ("==(other)", "The same as `eq`, for `select` and the like.", "[1, 2] | select('==', 2)", [2]),
    ("ne(other)", "Both differ; also `!=`.", "1 is ne(2)", True),
    ("!=(other)", "The same as `ne`.", "[1, 2] | select('!=', 2)", [1]),
    ("lt(other)", "It is less; also `lessthan` and `<`.", "1 is lt(2)", True),
    ("lessthan(other)", "The same as `lt`.", "2 is lessthan(2)", False),
    ("<(other)", "The same as `lt`.", "[1, 2] | select('<', 2)", [1]),
    ("le(other)", "It is less or equal; also `<=`.", "2 is le(2)", True),
    ("<=(other)", "The same as `le`.", "[1, 2, 3] | select('<=', 2)", [1, 2]),
    ("gt(other)", "It is greater; also `greaterthan` and `>`.", "3 is gt(2)", True),
    ("greaterthan(other)", "The same as `gt`.", "2 is greaterthan(2)", False),
    (">(other)", "The same as `gt`.", "[1, 2, 3] | select('>', 2)", [3]),
    ("ge(other)", "It is greater or equal; also `>=`.", "2 is ge(2)", True),
    (">=(other)", "The same as `ge`.", "[1, 2, 3] | select('>=', 2)", [2, 3]),
)

FUNCTIONS: tuple[Entry, ...] = _entries(
    ("range(start, stop=none, step=1)", "Integers, computed when they are used.", "range(1, 4) | list", [1, 2, 3]),
    ("dict(**values)", "A map.", "dict(a=1)", {"a": 1}),
    ("namespace(**values)", "A map that `set` can change inside a `for`.", "namespace(n=1).n", 1),
)
# fmt: on
