"""What is missing: chainable where the author asks about it, an error that names it everywhere else."""

import pytest

from arclog.expr import MISSING, Scope, View, compile_condition, compile_text, undefined
from arclog.model.errors import ExpressionError

SCOPE = {"ctx": {"total": 1, "nothing": None}, "rows": [1, 2]}
#: `a` and `other` are steps that have not run
EARLY = Scope(SCOPE, absent={"a": "step a has not run", "other": "step other has not run"})


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ a.b.c | default(7) }}", 7),
        ("{{ a['b'][0].c | d('x') }}", "x"),
        ("{{ ctx.foo.bar | default(ctx.total) }}", 1),
        ("{{ ctx.nothing | default(3) }}", None),
        ("{{ ctx.nothing | default(3, true) }}", 3),
        ("{{ ctx.nothing | default(3, boolean=true) }}", 3),
        ("{{ a | default(b) | default(5) }}", 5),
        ("{{ a.b is defined }}", False),
        ("{{ a.b is undefined }}", True),
        ("{{ ctx.total is defined }}", True),
        ("{{ a.b is not defined }}", True),
        ("{{ a.x or 'b' }}", "b"),
        ("{{ a.x if a else ctx.total }}", 1),
        ("{{ not a.x }}", True),
        ("{{ (a and a.x) is defined }}", False),
        ("{{ rows[5] | default(0) }}", 0),
        ("{{ [] | first | default(0) }}", 0),
        ("{{ (1 if false) | default(2) }}", 2),
        ("{% if a.b %}yes{% else %}no{% endif %}", "no"),
    ],
)
def test_undefined_is_chainable_and_falsy(source, value):
    assert compile_text(source).evaluate(EARLY) == value


@pytest.mark.parametrize(
    ("when", "value"),
    [
        ("a", False),
        ("a.x", False),
        ("a.x.y[0]", False),
        ("not a", True),
        ("a and a.x", False),
        ("a and a.x == 1", False),
        ("a or ctx.total", True),
        ("a or other", False),
        ("not a and not other.x", True),
        ("(a.x == 1) if a else true", True),
        ("a is defined", False),
        ("a.x | default(true)", True),
    ],
)
def test_a_step_that_has_not_run_is_false_in_a_condition(when, value):
    assert compile_condition(when).evaluate(EARLY) is value
    assert compile_condition("{{ " + when + " }}").evaluate(EARLY) is value


@pytest.mark.parametrize(
    "use", ["{{ a }}", "{{ a.x == 1 }}", "{{ a.x + 1 }}", "-{{ a.x }}-", "{{ [a] }}", "{{ a or other.x }}"]
)
def test_any_other_use_of_it_says_that_it_has_not_run(use):
    with pytest.raises(ExpressionError, match=r"is undefined: step (a|other) has not run"):
        compile_text(use).evaluate(EARLY)


@pytest.mark.parametrize(
    "use",
    [
        "{{ b }}",
        "{{ not b }}",
        "{{ b and b.x }}",
        "{{ b.x or 1 }}",
        "{{ 1 if b else 2 }}",
        "{% if b.x %}{% endif %}",
        "{% for x in rows if b %}{% endfor %}",
    ],
)
def test_any_use_of_an_unknown_name_is_an_error(use):
    with pytest.raises(ExpressionError, match=r"'b(\.x)?' is undefined"):
        compile_text(use).evaluate(EARLY)
    if use.startswith("{{"):
        with pytest.raises(ExpressionError, match=r"'b(\.x)?' is undefined"):
            compile_condition(use).evaluate(EARLY)


def test_an_unknown_name_can_still_be_asked_after():
    assert compile_text("{{ b | default(1) }}{{ b.x is defined }}").evaluate(EARLY) == "1False"


def test_suggestions_name_steps_too_and_never_for_a_step_that_has_not_run():
    with pytest.raises(ExpressionError, match="did you mean 'other'"):
        compile_text("{{ othr.x }}").evaluate(EARLY)
    scope = Scope({"event": {}}, absent={"vent": "step vent has not run"})
    with pytest.raises(ExpressionError) as caught:
        compile_text("{{ vent.x }}").evaluate(scope)
    assert "did you mean" not in caught.value.message


@pytest.mark.parametrize(
    "use",
    [
        "{{ NAME }}",
        "-{{ NAME }}-",
        "{{ NAME == 1 }}",
        "{{ 1 == NAME }}",
        "{{ NAME != none }}",
        "{{ rows == NAME }}",
        "{{ NAME < 1 }}",
        "{{ 1 < NAME < 2 }}",
        "{{ NAME in rows }}",
        "{{ 1 in NAME }}",
        "{{ NAME + 1 }}",
        "{{ 1 - NAME }}",
        "{{ 'a' * NAME }}",
        "{{ -NAME }}",
        "{{ 'a' ~ NAME }}",
        "{{ NAME | upper }}",
        "{{ NAME | length }}",
        "{{ 'a' | replace('a', NAME) }}",
        "{{ NAME is string }}",
        "{{ NAME is none }}",
        "{{ NAME.items() }}",
        "{{ NAME[0:1] }}",
        "{{ rows[NAME] }}",
        "{{ range(NAME) }}",
        "{{ [NAME] }}",
        "{{ {'a': [NAME]} }}",
        "{{ {NAME: 1} }}",
        "{{ [1, NAME] | join }}",
        "{{ [NAME, 1] | sum }}",
        "{{ [2, NAME] | sort }}",
        "{{ [NAME] | tojson }}",
        "{{ [NAME] == [1] }}",
        "{{ NAME or NAME }}",
        "{% for x in NAME %}{% endfor %}",
        "{% set x = NAME %}{{ x }}",
    ],
)
def test_any_other_use_names_the_full_path(use):
    with pytest.raises(ExpressionError, match=r"'ctx\.foo\.bar' is undefined"):
        compile_text(use.replace("NAME", "ctx.foo.bar")).evaluate(SCOPE)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ ctx.totla }}", "'ctx.totla' is undefined; did you mean 'total'?"),
        ("{{ ctxt.total }}", "'ctxt.total' is undefined; did you mean 'ctx'?"),
        ("{{ rows.first }}", "a list has no 'first'"),
        ("{{ rows[9] }}", "'rows[9]' is undefined"),
        ("{{ ctx['a-b'] }}", """"ctx['a-b']" is undefined"""),
        ("{{ ctx.total.x }}", "a number has no 'x'"),
        ("{{ 1 if false }}", "there is no else"),
        ("{{ [] | max }}", "the list was empty"),
    ],
)
def test_the_message_helps(source, words):
    with pytest.raises(ExpressionError) as caught:
        compile_text(source).evaluate(Scope({}, SCOPE))
    assert words in caught.value.message


def test_an_undefined_condition_is_an_error():
    with pytest.raises(ExpressionError, match=r"'a\.b' is undefined"):
        compile_condition("a.b").evaluate({})
    assert compile_condition("a.b | default(false)").evaluate({}) is False


def test_undefined_in_a_scope_acts_like_a_missing_name():
    scope = {"a": undefined("a")}
    assert compile_text("{{ a.x if a else 1 }}").evaluate(scope) == 1
    with pytest.raises(ExpressionError, match=r"'a\.b' is undefined"):
        compile_text("{{ a.b }}").evaluate(scope)


def test_view_looks_into_the_outcome_then_into_the_data():
    outcome = {"status": "ok", "data": {"rows": [1], "status": "inner", "error": "inner"}, "http": {"status": 200}}
    scope = {"fetch": View(outcome)}

    def value(source):
        return compile_text(source).evaluate(scope)

    assert value("{{ fetch.status }}") == "ok"
    assert value("{{ fetch.rows[0] }}") == 1
    assert value("{{ fetch.data.status }}") == "inner"
    assert value("{{ fetch.error }}") is None
    assert value("{{ fetch.http.status == 200 }}") is True
    assert value("{{ 1 if fetch else 2 }}") == 1
    assert value("{{ fetch }}") == outcome
    assert type(value("{{ fetch }}")) is dict
    assert value("{{ [fetch] }}") == [outcome]
    assert value("{{ fetch | tojson }}")
    assert value("{{ 'rows' in fetch }}") is True
    assert value("{{ 'nope' in fetch }}") is False
    assert value("{{ fetch.nope.deeper | default(3) }}") == 3
    assert value("{{ fetch.get('status') }}") == "ok"
    assert value("{{ fetch == fetch }}") is True
    assert value("{{ fetch is mapping }}") is True
    with pytest.raises(ExpressionError, match=r"'fetch\.nope' is undefined"):
        value("{{ fetch.nope }}")


class Ref:
    """A stored result that is read when it is used."""

    def __init__(self, value, broken=None):
        self.value, self.broken = value, broken

    def lookup(self, key):
        return self.value.get(key, MISSING) if isinstance(self.value, dict) else MISSING

    def plain(self):
        if self.broken:
            raise self.broken
        return self.value


def test_the_lookup_door():
    scope = {"big": View({"status": "ok", "data": Ref({"rows": [1, 2]})}), "list": Ref([3, 4]), "deep": {"a": [Ref(5)]}}
    assert compile_text("{{ big.rows }}").evaluate(scope) == [1, 2]
    assert compile_text("{{ big.data }}").evaluate(scope) == {"rows": [1, 2]}
    assert compile_text("{{ big }}").evaluate(scope) == {"status": "ok", "data": {"rows": [1, 2]}}
    assert compile_text("{{ list | sum }}").evaluate(scope) == 7
    assert compile_text("{% for x in list %}{{ x }}{% endfor %}").evaluate(scope) == "34"
    assert compile_text("{{ deep }}").evaluate(scope) == {"a": [5]}


def test_a_lookup_that_fails_is_the_cause():
    class StoreAway(Exception):
        pass

    with pytest.raises(ExpressionError) as caught:
        compile_text("{{ x | length }}").evaluate({"x": Ref(None, StoreAway("secret"))})
    assert isinstance(caught.value.__cause__, StoreAway)
    assert "secret" not in str(caught.value)
