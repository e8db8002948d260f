"""Which units want what: each want once in a matching engine, with the vector of all units that have it (DST-05).

Clusters of a super-cluster mostly want the same things, and nobody asks the interest map which unit's row it was that
matched: only where the event must go. So a want that ten units tell is one profile that leads to ten bits, and one more
unit redirects it. Of a value to be equal to, a topic above all, not even a profile is needed: the engine keeps the
value and its vector.

The invariant: the vector of a want is that of the units whose row of it was added and not removed. A unit has one row
of a want, but a want may be packed in several ways, and then two rows of a unit ask for one value: such repeats are
counted apart, since nobody but a peer that packs strangely makes them.

Rejected: a profile for each row. It takes an id, a place in a table of ids, and from the second unit on a crowd: 150
bytes a row, three quarters of them for rows of which nothing new is known.
"""

from __future__ import annotations

from veena.core.interest.constraint import Want, create_engine
from veena.matching.base.engine import Constraint
from veena.matching.base.exact import ExactEngine


class UnitWants:
    """The wants of one kind and scope; vectors have at most `width` bits."""

    def __init__(self, kind: int, width: int) -> None:
        self.engine = create_engine(kind)
        self._width = width
        self._every = (1 << width) - 1
        #: By key: the profile's id, and below it the vector.
        self._held: dict[bytes, int] = {}
        self._next_id = 0
        #: How often one unit has one value beyond the first time.
        self._repeats: dict[tuple[Constraint, int], int] = {}

    def add(self, want: Want, bit: int) -> None:
        """A unit wants this from now on; it did not before."""
        if isinstance(self.engine, ExactEngine):
            self._add_value(self.engine, want.constraint, bit)
            return
        held = self._held.get(want.key)
        if held is None:
            self.engine.add(self._next_id, want.constraint, bit)
            self._held[want.key] = self._next_id << self._width | bit
            self._next_id += 1
        else:
            self._held[want.key] = held = held | bit
            self.engine.redirect(held >> self._width, want.constraint, held & self._every)

    def remove(self, want: Want, bit: int) -> None:
        """A unit wants this no longer."""
        if isinstance(self.engine, ExactEngine):
            self._remove_value(self.engine, want.constraint, bit)
            return
        held = self._held[want.key] & ~bit
        if held & self._every:
            self._held[want.key] = held
            self.engine.redirect(held >> self._width, want.constraint, held & self._every)
        else:
            del self._held[want.key]
            self.engine.remove(held >> self._width)

    def _add_value(self, engine: ExactEngine[int] | ExactEngine[str], value: Constraint, bit: int) -> None:
        if not engine.lead(value, bit):
            self._repeats[value, bit] = self._repeats.get((value, bit), 0) + 1

    def _remove_value(self, engine: ExactEngine[int] | ExactEngine[str], value: Constraint, bit: int) -> None:
        repeats = self._repeats.get((value, bit), 0) if self._repeats else 0
        if repeats > 1:
            self._repeats[value, bit] = repeats - 1
        elif repeats:
            del self._repeats[value, bit]
        else:
            engine.mislead(value, bit)
