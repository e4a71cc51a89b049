"""The table of filters, and the filters that apply a filter or a test to each item.

Excluded: `attr` and `format` (access to Python), `random` and `lipsum` (not repeatable), `urlize`, `pprint`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arclog.expr.budget import ITEM, LIST, SLOT, Budget, Failure
from arclog.expr.compiler.access import called, path_getter
from arclog.expr.convert import admit, walked
from arclog.expr.filters import data, dates, encoding, extensions, regex
from arclog.expr.filters import text as texts
from arclog.expr.filters.predicates import LENIENT, PREDICATES
from arclog.expr.values import did_you_mean

Filter = Callable[..., Any]


def find_filter(name: Any) -> Filter:
    """Find a filter by name."""
    return _find(FILTERS, name, "filter")


def find_predicate(name: Any) -> Filter:
    """Find a test by name."""
    return _find(PREDICATES, name, "test")


def _find(table: dict[str, Filter], name: Any, noun: str) -> Filter:
    if isinstance(name, str) and name in table:
        return table[name]
    if noun == "filter" and name == "identifier":
        raise Failure("the filter identifier can only be the last filter in a {{ }} of a SQL command")
    raise Failure(f"there is no {noun} {str(name)[:50]!r}{did_you_mean(str(name), list(table))}")


def mapped(budget: Budget, value: Any, *args: Any, **options: Any) -> list[Any]:
    """Apply a filter to each item, or take an attribute of each."""
    items = walked(budget, value)
    budget.charge(2 * len(items))
    budget.room(LIST + ITEM * len(items))
    if not args and "attribute" in options:
        get = path_getter(budget, options.pop("attribute"), options.pop("default", None))
        if options:
            raise Failure(f"map has no option {next(iter(options))!r}")
        return [get(item) for item in items]
    if not args:
        raise Failure("map needs the name of a filter, or attribute=")
    apply, rest = find_filter(args[0]), args[1:]
    entry = _as_is if args[0] in LENIENT_FILTERS else admit
    return [called(apply, f"filter {args[0]}", budget, entry(item), *rest, **options) for item in items]


def _as_is(item: Any) -> Any:
    return item


def _chosen(budget: Budget, value: Any, attribute: Any, test: tuple[Any, ...], *, keep: bool) -> list[Any]:
    items = walked(budget, value)
    budget.charge(2 * len(items))
    budget.room(LIST + (ITEM if type(items) is range else SLOT) * len(items))
    get = path_getter(budget, attribute)
    if not test:
        return [item for item in items if bool(get(item)) is keep]
    predicate, rest = find_predicate(test[0]), test[1:]
    entry = _as_is if test[0] in LENIENT else admit
    label = f"test {test[0]}"
    return [item for item in items if called(predicate, label, budget, entry(get(item)), *rest) is keep]


def select(budget: Budget, value: Any, *test: Any) -> list[Any]:  # documented by Jinja, as all below
    return _chosen(budget, value, None, test, keep=True)


def reject(budget: Budget, value: Any, *test: Any) -> list[Any]:
    return _chosen(budget, value, None, test, keep=False)


def selectattr(budget: Budget, value: Any, attribute: Any, *test: Any) -> list[Any]:
    return _chosen(budget, value, attribute, test, keep=True)


def rejectattr(budget: Budget, value: Any, attribute: Any, *test: Any) -> list[Any]:
    return _chosen(budget, value, attribute, test, keep=False)


#: Filters that accept an undefined value.
LENIENT_FILTERS = frozenset({"default", "d"})

FILTERS: dict[str, Filter] = {
    "default": data.default,
    "d": data.default,
    "abs": data.absolute,
    "b64decode": encoding.b64decode,
    "b64encode": encoding.b64encode,
    "batch": data.batch,
    "capitalize": texts.capitalize,
    "center": texts.center,
    "count": data.length,
    "dictsort": data.dictsort,
    "e": texts.escape,
    "escape": texts.escape,
    "filesizeformat": texts.filesizeformat,
    "first": data.first,
    "float": data.to_float,
    "forceescape": texts.escape,
    "fromjson": encoding.fromjson,
    "groupby": data.groupby,
    "indent": texts.indent,
    "int": data.to_int,
    "items": data.items,
    "join": data.join,
    "last": data.last,
    "length": data.length,
    "list": data.to_list,
    "lower": texts.lower,
    "map": mapped,
    "max": data.largest,
    "min": data.smallest,
    "reject": reject,
    "rejectattr": rejectattr,
    "replace": texts.replace,
    "reverse": data.reverse,
    "round": data.rounded,
    "safe": texts.safe,
    "select": select,
    "selectattr": selectattr,
    "slice": data.slices,
    "sort": data.sort,
    "string": texts.string,
    "striptags": texts.striptags,
    "sum": data.total,
    "title": texts.title,
    "tojson": encoding.tojson,
    "trim": texts.trim,
    "truncate": texts.truncate,
    "unique": data.unique,
    "upper": texts.upper,
    "urlencode": encoding.urlencode,
    "wordcount": texts.wordcount,
    "wordwrap": texts.wordwrap,
    "xmlattr": texts.xmlattr,
}
#: Filters beyond Jinja's.
FILTERS |= {
    "average": extensions.average,
    "combine": extensions.combine,
    "compact": extensions.compact,
    "date": dates.to_date,
    "date_add": dates.date_add,
    "date_diff": dates.date_diff,
    "date_format": dates.date_format,
    "datetime": dates.to_moment,
    "difference": extensions.difference,
    "epoch": dates.epoch,
    "flatten": extensions.flatten,
    "hash": encoding.hashed,
    "hexdecode": encoding.hexdecode,
    "hexencode": encoding.hexencode,
    "hmac": encoding.hmac_of,
    "intersect": extensions.intersect,
    "lines": extensions.lines,
    "ljust": extensions.ljust,
    "omit": extensions.omit,
    "pick": extensions.pick,
    "regex_findall": regex.regex_findall,
    "regex_replace": regex.regex_replace,
    "regex_search": regex.regex_search,
    "rjust": extensions.rjust,
    "slug": extensions.slug,
    "split": extensions.split,
    "to_map": extensions.to_map,
    "to_zone": dates.to_zone,
    "union": extensions.union,
    "urldecode": encoding.urldecode,
    "zip": extensions.zipped,
}
