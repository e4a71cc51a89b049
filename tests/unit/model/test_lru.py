from __future__ import annotations

from arclog.model.data.lru import LruCache


def test_the_one_that_was_not_asked_for_the_longest_goes_first() -> None:
    kept: LruCache[str, int] = LruCache(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert (kept.get("b"), kept.get("a"), kept.get("c"), len(kept)) == (None, 1, 3, 2)
    assert kept.put("a", 9) == 1


def test_a_value_is_kept_as_it_was_first_or_as_it_is_now() -> None:
    kept: LruCache[str, int] = LruCache(2)
    kept.put("a", 1)
    kept.put("b", 2)
    kept.replace("a", 3)
    kept.replace("c", 4)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (3, None, 4)
