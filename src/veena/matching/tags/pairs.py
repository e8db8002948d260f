"""The pairs of the tags language: how a constraint is written, and small numbers for its pairs.

`Make=Ford,Model=*,Color=Red` asks for three tags; `*` takes any value, but the tag must be there (MAT-30, PGR-02). Tags
that a constraint does not name are free (PGR-03). A pair gets a number when a constraint first uses it and loses it
with the last one, so an event is turned into the numbers it satisfies, and whatever nobody asks for drops out before
any index is touched (PGR-04, PGR-12).

The invariant: a number stands for one pair from its first `acquire` to its last `release`. Ranks give the order along
chains: `*` after all values, because a `*` edge is followed by nearly every event (PGR-15); among equals by the tags'
order of appearance. A rank holds while any constraint uses the tag, so chains that share a tag agree on its place.
Rejected: the pair's text as the key: building ten texts an event costs more than walking the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from veena.errors import InvalidConstraint
from veena.matching.base.engine import Constraint, check_text

ANY = "*"
#: The papers go to 25 pairs; twice that leaves room, and bounds the depth of the graph.
MAX_PAIRS = 64
#: 64 pairs of 128 characters.
MAX_TEXT_LENGTH = 8192


def parse_constraint(constraint: Constraint) -> dict[str, str]:
    """Tag -> value or `*`, in the order of the text; raise InvalidConstraint."""
    if not isinstance(constraint, str):
        reason = f"expected text such as Make=Ford,Model=*, found {type(constraint).__name__}"
        raise InvalidConstraint(str(constraint), 0, reason)
    if len(constraint) > MAX_TEXT_LENGTH:
        reason = f"{len(constraint)} characters; a constraint on tags has at most {MAX_TEXT_LENGTH}"
        raise InvalidConstraint(constraint, MAX_TEXT_LENGTH, reason)
    check_text(constraint)
    pairs: dict[str, str] = {}
    position = 0
    for part in constraint.split(","):
        tag, equals, value = part.partition("=")
        tag = tag.strip()
        if not equals or not tag:
            reason = f"{part!r} is no tag=value pair; write for example Make=Ford,Model=*"
            raise InvalidConstraint(constraint, position, reason)
        if tag in pairs:
            raise InvalidConstraint(constraint, position, f"tag {tag!r} stands here twice; give each tag one value")
        if len(pairs) == MAX_PAIRS:
            raise InvalidConstraint(constraint, position, f"more than {MAX_PAIRS} pairs; use fewer")
        pairs[tag] = value.strip()
        position += len(part) + 1
    return pairs


class PairNumbers:
    """Numbers for the pairs in use, with what is needed to turn them back."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}
        self._ranks: dict[str, int] = {}
        self._next_rank = 0
        self._free: list[int] = []
        #: By number: the pair, how many constraints use it, and its place in chains.
        self.tags: list[str] = []
        self.values: list[str] = []
        self._uses: list[int] = []
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self.tags) - len(self._free)

    def acquire(self, pairs: Mapping[str, str]) -> tuple[int, ...]:
        """The chain of a constraint: the numbers of its pairs by rank; every pair is used once more."""
        chain = [self._acquire_one(tag, value) for tag, value in pairs.items()]
        chain.sort(key=self._order.__getitem__)
        return tuple(chain)

    def find(self, pairs: Mapping[str, str]) -> tuple[int, ...] | None:
        """The chain of a constraint whose pairs all have numbers, else None: then nobody has it."""
        chain = []
        for tag, value in pairs.items():
            number = self._numbers.get(tag, {}).get(value)
            if number is None:
                return None
            chain.append(number)
        chain.sort(key=self._order.__getitem__)
        return tuple(chain)

    def release(self, chain: tuple[int, ...]) -> None:
        for number in chain:
            self._uses[number] -= 1
            if not self._uses[number]:
                tag = self.tags[number]
                del self._numbers[tag][self.values[number]]
                if not self._numbers[tag]:
                    del self._numbers[tag]
                    del self._ranks[tag]
                self._free.append(number)

    def satisfied(self, tags: Mapping[str, str]) -> list[int]:
        """The numbers of all pairs that an event with these tags satisfies, by rank."""
        numbers = self._numbers
        found: list[int] = []
        free: list[int] = []
        # The outer dict is in the order of the ranks: a tag that comes back after its last release is put at the end.
        in_order = len(numbers) <= 2 * len(tags)
        for tag in numbers if in_order else tags:
            value = tags.get(tag)
            values = numbers.get(tag)
            if value is None or values is None:
                continue
            number, any_value = values.get(value), values.get(ANY)
            if any_value is not None:
                free.append(any_value)
            # An event's own `*` is a value like any other, and asks for nothing but `*`.
            if number is not None and number != any_value:
                found.append(number)
        if not in_order:
            found.sort(key=self._order.__getitem__)
            free.sort(key=self._order.__getitem__)
        return found + free

    def pairs(self, chain: tuple[int, ...]) -> list[tuple[str, str]]:
        return [(self.tags[number], self.values[number]) for number in chain]

    def in_order(self) -> list[int]:
        """The numbers in use, so that acquiring their pairs one after the other gives every tag its place again."""
        return [number for values in self._numbers.values() for number in values.values()]

    @classmethod
    def restored(cls, tags: list[str], values: list[str], uses: list[int]) -> PairNumbers:
        """The pairs of `in_order`, numbered from 0, and how many constraints use each."""
        numbers = cls()
        for tag, value in zip(tags, values, strict=True):
            numbers._acquire_one(tag, value)
        numbers._uses = list(uses)
        return numbers

    def _acquire_one(self, tag: str, value: str) -> int:
        values = self._numbers.get(tag)
        if values is None:
            values = self._numbers[tag] = {}
            self._ranks[tag] = self._next_rank
            self._next_rank += 1
        number = values.get(value)
        if number is not None:
            self._uses[number] += 1
            return number
        rank = self._ranks[tag] + (RANK_OF_ANY if value == ANY else 0)
        if self._free:
            number = self._free.pop()
            self.tags[number], self.values[number] = tag, value
            self._uses[number], self._order[number] = 1, rank
        else:
            number = len(self.tags)
            self.tags.append(tag)
            self.values.append(value)
            self._uses.append(1)
            self._order.append(rank)
        values[value] = number
        return number


#: Above the rank of every tag: no engine sees 2^40 different tags in its life.
RANK_OF_ANY = 1 << 40
