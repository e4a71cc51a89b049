"""A lazy property is computed at its first use, once for each object."""

from __future__ import annotations

from arclog.model.data.lazy import lazy


class _Counts:
    def __init__(self) -> None:
        self.computed = 0

    @lazy
    def value(self) -> int:
        """Documented."""
        self.computed += 1
        return 7


def test_a_lazy_property_is_computed_once_for_each_object() -> None:
    a, b = _Counts(), _Counts()
    assert (a.computed, a.value, a.value, a.computed) == (0, 7, 7, 1)
    assert b.computed == 0


def test_the_class_has_the_property_itself_with_its_docstring() -> None:
    assert _Counts.value.__doc__ == "Documented."
