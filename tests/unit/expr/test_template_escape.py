"""Nothing of Python is reachable from a template."""

import pytest

from arclog.expr import View, compile_condition, compile_text
from arclog.expr.filters.methods import NAMES
from arclog.expr.filters.table import FILTERS
from arclog.model.errors import ExpressionError

SCOPE = {"x": "text", "n": 1, "xs": [1, 2], "m": {"a": 1}, "view": View({"status": "ok", "data": {}})}


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''|attr('format') }}",
        "{{ x|attr('__class__') }}",
        "{{ '{}'|format(1) }}",
        "{{ '%s'|format(1) }}",
        "{{ '%s' % x }}",
        "{{ '%(a)s' % m }}",
        "{{ ().__class__ }}",
        "{{ x.__class__.__mro__ }}",
        "{{ x['__class__'] }}",
        "{{ xs.__len__() }}",
        "{{ m.__init__.__globals__ }}",
        "{{ m.__getitem__('a') }}",
        "{{ xs.append(1) }}",
        "{{ xs.append }}",
        "{{ m.update({'a': 2}) }}",
        "{{ m.pop('a') }}",
        "{{ m.keys }}",
        "{{ n.bit_length() }}",
        "{{ n.real }}",
        "{{ (1.5).hex() }}",
        "{{ ''.format }}",
        "{{ ''.format() }}",
        "{{ '{0.__class__}'.format(x) }}",
        "{{ ''.format_map({}) }}",
        "{{ ''.encode() }}",
        "{{ ''.join.__self__ }}",
        "{{ range.__class__ }}",
        "{{ range(1).__class__ }}",
        "{{ range }}",
        "{{ dict.__subclasses__() }}",
        "{{ dict.mro() }}",
        "{{ namespace().__class__ }}",
        "{{ namespace() }}",
        "{{ namespace(a=1).cells }}",
        "{{ loop }}",
        "{% for i in xs %}{{ loop }}{% endfor %}",
        "{% for i in xs %}{{ loop._items }}{% endfor %}",
        "{% for i in xs %}{{ [loop] | tojson }}{% endfor %}",
        "{{ view.outcome }}",
        "{{ view._outcome }}",
        "{{ view.lookup('a') }}",
        "{{ view.plain() }}",
        "{{ view.__class__ }}",
        "{{ cycler }}",
        "{{ cycler('a').next() }}",
        "{{ joiner() }}",
        "{{ lipsum() }}",
        "{{ lipsum.__globals__ }}",
        "{{ self }}",
        "{{ self.__init__ }}",
        "{{ context }}",
        "{{ config }}",
        "{{ environment }}",
        "{{ caller() }}",
        "{{ super() }}",
        "{{ open('/etc/passwd') }}",
        "{{ __import__('os') }}",
        "{{ __builtins__ }}",
        "{{ x|random }}",
        "{{ xs|random }}",
        "{{ x|pprint }}",
        "{{ xs|map('attr', '__class__')|list }}",
        "{{ xs|map(attribute='__class__')|list }}",
        "{{ xs|sum(attribute='__class__') }}",
        "{{ xs|groupby('__class__') }}",
        "{{ xs|selectattr('__class__', 'eq', 1)|list }}",
        "{{ xs|map('format')|list }}",
        "{{ range(*xs) }}",
        "{{ dict(**m) }}",
        "{{ (x)() }}",
        "{{ x() }}",
        "{{ m.a() }}",
        "{{ xs[0]() }}",
        "{{ x|upper() () }}",
        "{{ m.items()() }}",
        "{% macro f() %}{% endmacro %}",
        "{% include 'a' %}",
        "{% import 'a' as b %}",
        "{% from 'a' import b %}",
        "{% extends 'a' %}",
        "{% block a %}{% endblock %}",
        "{% call x() %}{% endcall %}",
        "{% filter upper %}{% endfilter %}",
        "{% with %}{% endwith %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% do x %}",
        "{% print x %}",
        "{% trans %}{% endtrans %}",
        "{% debug %}",
        "{% break %}",
        "{% for i in xs recursive %}{{ loop(xs) }}{% endfor %}",
        "{% set x.y = 1 %}",
        "{% set view.status = 1 %}",
        "{% set x['y'] = 1 %}",
    ],
)
def test_escape_is_refused(source):
    with pytest.raises(ExpressionError):
        compile_text(source).evaluate(SCOPE)


def test_scope_is_not_changed_by_a_template():
    scope = {"m": {"a": [1]}, "ns": {"x": 1}}
    compile_text("{% set m = 2 %}{% for a in [1] %}{% set ns = 3 %}{% endfor %}").evaluate(scope)
    assert scope == {"m": {"a": [1]}, "ns": {"x": 1}}


def test_nothing_dangerous_is_listed():
    assert not {"attr", "format", "random", "lipsum", "pprint", "xmlattr_", "map_"} & set(FILTERS)
    assert not {"format", "format_map", "encode", "append", "update", "pop"} & NAMES
    assert not any(name.startswith("_") for name in NAMES)


def test_a_python_object_in_scope_stays_closed():
    class Thing:
        secret = "x"

        def method(self):
            return "called"

    for source in ("{{ t.secret }}", "{{ t.method() }}", "{{ t }}", "{{ t ~ '' }}", "{{ [t] }}", "{{ t | list }}"):
        with pytest.raises(ExpressionError):
            compile_text(source).evaluate({"t": Thing()})


@pytest.mark.parametrize(
    "source",
    ["a {{ x }}", "{{ x }} == 1", "{{ x }}{{ x }}", "{% if x %}1{% endif %}", "", "  ", "x y", "1 +", "x }}", "x, y"],
)
def test_a_condition_is_never_mixed_text(source):
    with pytest.raises(ExpressionError):
        compile_condition(source)


def test_errors_hold_no_values():
    secret = "hunter2"
    for source in (
        "{{ s + 1 }}",
        "{{ s | int + s }}",
        "{{ s.index('q') }}",
        "{{ s | fromjson }}",
        "{{ s | b64decode }}",
        "{{ s < 1 }}",
        "{{ s * s }}",
        "{{ s | round }}",
        "{{ [s] | sum }}",
        "{{ s.zfill('a') }}",
        "{{ -s }}",
    ):
        with pytest.raises(ExpressionError) as caught:
            compile_text(source).evaluate({"s": secret})
        assert secret not in str(caught.value)
