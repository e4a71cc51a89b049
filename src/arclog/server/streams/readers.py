"""Where readers of a dialect were, so that the next page is not told from the log's beginning again.

What is kept can be made again: without it a page costs more, and says the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from arclog.dialects.names import state_of
from arclog.dialects.rendering import Reader
from arclog.model.data.kept import Kept

#: Runs, each in one dialect and by one filter, of which places are kept; and so many places of each.
_MOST = 1000
_PLACES = 8
#: A reader that remembers more bytes than this (very much work is open at once) is not kept.
_LARGEST = 256 * 1024


class Place(Struct, frozen=True):
    """A reader that was given the log up to `at`, and of what it was to show had told nothing behind `told`."""

    at: int
    told: int
    state: bytes


class Readings:
    def __init__(self) -> None:
        self._places: Kept[tuple[str, str, tuple[str, ...]], list[Place]] = Kept(_MOST)

    def best(self, execution_id: str, dialect: str, names: Sequence[str], after: int) -> Place | None:
        """The furthest place from which all behind a seq can still be told."""
        places = self._places.get((execution_id, dialect, tuple(names))) or []
        return max((place for place in places if place.told <= after), key=lambda place: place.at, default=None)

    def keep(self, execution_id: str, dialect: str, names: Sequence[str], place: Place) -> None:
        if len(place.state) > _LARGEST:
            return
        places = self._places.put((execution_id, dialect, tuple(names)), [])
        if place not in places:
            places.append(place)
            del places[:-_PLACES]


def place_of(reader: Reader, at: int, told: int) -> Place:
    return Place(at, told, state_of(reader))
