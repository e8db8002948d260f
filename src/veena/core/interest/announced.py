"""What the host's own units want: one table for all its offices, with one object for each want.

A broker speaks for itself, and as a controller perhaps for its cluster and its super-cluster too (`speaker`). A want of
one of its clients usually stands in all of these: each office has to tell it, and the host's own row of it and its
cluster's are kept. Held by each of them apart that would be six tables; of a hundred thousand topics they would take
600 bytes each. Here a want *stands* somehow: which offices have to tell it, and under which version it was told of each
own unit. Most wants came in few batches, and those of one batch stand alike: they share one object for that, and all
that a want costs is a place in one table.

Beside it there is the difference for each office: what it has to tell and has not, and what was told and should not
have been. So a review looks at what changed, not at all there is.

The invariant: the table has exactly the wants that some office has to tell or that were told of an own unit; the
differences of an open office are those between the two.

Rejected: to keep nothing of the offices and to ask the rows. What a unit has to tell and what was told of it differ
while another part of the unit is out of reach (`speaker`), perhaps for days.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from veena.core.interest.constraint import FORMER, Stand, Want, nowhere
from veena.core.interest.digest import DIGEST_LEVEL
from veena.core.wire.interest import Version

#: Ways to stand that are shared: beyond that it is begun anew, which costs memory and nothing else.
MAX_STANDS = 4096

#: How a want stands that has no place here.
NOWHERE: tuple[int, Version | None, Version | None] = (0, None, None)


class OwnWants:
    """One a broker."""

    def __init__(self) -> None:
        self._wants: dict[bytes, Want] = {}
        self._stands: dict[Stand, Stand] = {}
        self._due = [0] * (DIGEST_LEVEL + 1)
        #: Of these, former ones.
        self._former = [0] * (DIGEST_LEVEL + 1)
        self._told = [0] * DIGEST_LEVEL
        self._former_told = [0] * DIGEST_LEVEL
        self._is_open = [False] * (DIGEST_LEVEL + 1)
        #: By level, for open offices: what has to be told and is not, and what is told and should not be.
        self._untold: list[dict[bytes, None]] = [{} for _ in range(DIGEST_LEVEL + 1)]
        self._unfounded: list[dict[bytes, None]] = [{} for _ in range(DIGEST_LEVEL)]
        #: What a digest was told of and is not due any more is only counted.
        self._surplus = 0

    def find(self, key: bytes) -> Want | None:
        """The object that stands for a want."""
        return self._wants.get(key)

    def share(self, want: Want) -> Want:
        """The object that stands for an equal want, if there is one."""
        return self._wants.get(want.key, want)

    def _held(self, want: Want) -> Want:
        """The object that stands for this want from now on; not one that stands in another table."""
        found = self._wants.get(want.key)
        if found is None:
            none = nowhere(want.kind, want.scope)
            found = want if want.stand == none else Want(want.packed, want.key, none)
            self._wants[found.key] = found
        return found

    # --- offices ---

    def open(self, level: int) -> None:
        """The host speaks for its unit of this level from now on, and has nothing to tell yet."""
        self._is_open[level] = True
        if level < DIGEST_LEVEL:
            for want in self._wants.values():
                self._judge(want, level)

    def close(self, level: int) -> None:
        """Somebody else speaks for it."""
        for want in list(self.due(level)):
            self.dismiss(want.key, level)
        self._is_open[level] = False
        self._untold[level] = {}
        if level < DIGEST_LEVEL:
            self._unfounded[level] = {}
        else:
            self._surplus = 0

    def appoint(self, want: Want, level: int) -> None:
        """An office has to tell this from now on."""
        want = self._held(want)
        kind, scope, due, own, cluster = want.stand
        if not due >> level & 1:
            self._due[level] += 1
            self._former[level] += kind & FORMER > 0
            if level == DIGEST_LEVEL:
                self._untold[level][want.key] = None
            self._put(want, (kind, scope, due | 1 << level, own, cluster), level)

    def dismiss(self, key: bytes, level: int, is_missed: bool = True) -> None:
        """An office has to tell it no longer; whether its atoms may stand in a digest for nothing. KeyError when it had
        not to."""
        want = self._wants[key]
        kind, scope, due, own, cluster = want.stand
        if not due >> level & 1:
            raise KeyError(key)
        self._due[level] -= 1
        self._former[level] -= kind & FORMER > 0
        if level == DIGEST_LEVEL and self._untold[level].pop(key, key) is key:
            self._surplus += is_missed
        self._put(want, (kind, scope, due & ~(1 << level), own, cluster), level)

    def is_due(self, key: bytes, level: int) -> bool:
        want = self._wants.get(key)
        return want is not None and bool(want.stand[2] >> level & 1)

    def due(self, level: int) -> Iterator[Want]:
        """All that an office has to tell."""
        return (want for want in self._wants.values() if want.stand[2] >> level & 1)

    def due_count(self, level: int) -> int:
        return self._due[level]

    def former_count(self, level: int) -> int:
        return self._former[level]

    # --- rows ---

    def tell(self, want: Want, level: int, version: Version) -> None:
        """It was told that the own unit of this level wants this."""
        want = self._held(want)
        kind, scope, due, own, cluster = want.stand
        if (cluster if level else own) is None:
            self._told[level] += 1
            self._former_told[level] += kind & FORMER > 0
        self._put(want, (kind, scope, due, own, version) if level else (kind, scope, due, version, cluster), level)

    def untell(self, key: bytes, level: int) -> None:
        """It was told that the unit wants it no longer, or nothing is known of it."""
        want = self._wants.get(key)
        if want is not None and _told(want.stand, level) is not None:
            self._told[level] -= 1
            kind, scope, due, own, cluster = want.stand
            self._former_told[level] -= kind & FORMER > 0
            self._put(want, (kind, scope, due, own, None) if level else (kind, scope, due, None, cluster), level)

    def version(self, key: bytes, level: int) -> Version | None:
        """Under which version it is told that the unit wants this; None if it is not."""
        want = self._wants.get(key)
        return None if want is None else _told(want.stand, level)

    def rows(self, level: int) -> Iterator[tuple[Want, Version]]:
        """Everything that is told of the own unit of this level."""
        for want in self._wants.values():
            version = _told(want.stand, level)
            if version is not None:
                yield want, version

    def row_count(self, level: int) -> int:
        return self._told[level]

    def former_rows(self, level: int) -> int:
        return self._former_told[level]

    # --- differences ---

    def untold(self, level: int, at_most: int | None = None) -> list[Want]:
        """What an open office has to tell and nobody told; so many of it."""
        return [self._wants[key] for key in islice(self._untold[level], at_most)]

    def untold_keys(self, level: int) -> dict[bytes, None]:
        """What an open office has yet to tell. Not to be changed."""
        return self._untold[level]

    def unfounded(self, level: int) -> Iterator[tuple[Want, Version]]:
        """What was told and an open office would not tell."""
        for key in self._unfounded[level]:
            version = _told(self._wants[key].stand, level)
            assert version is not None
            yield self._wants[key], version

    @property
    def surplus(self) -> int:
        """How many wants went since the digest was made."""
        return self._surplus

    def take_untold(self, at_most: int) -> list[Want]:
        """Some of what is not in the digest yet, which it will be."""
        found = self.untold(DIGEST_LEVEL, at_most)
        untold = self._untold[DIGEST_LEVEL]
        if len(found) == len(untold):
            self._untold[DIGEST_LEVEL] = {}
        else:
            for want in found:
                del untold[want.key]
        return found

    def take_all(self) -> list[bytes]:
        """The keys of everything that stands, for a digest that is made anew."""
        self._surplus = 0
        return list(self._wants)

    def _put(self, want: Want, stand: Stand, level: int) -> None:
        if len(self._stands) >= MAX_STANDS:
            self._stands.clear()
        want.stand = self._stands.setdefault(stand, stand)
        self._judge(want, level)
        if stand[2:] == NOWHERE:
            del self._wants[want.key]
            if not self._wants:
                self._wants = {}  # an emptied dict keeps the room of all that were in it

    def _judge(self, want: Want, level: int) -> None:
        """Whether a want makes a difference at a level."""
        if level == DIGEST_LEVEL or not self._is_open[level]:
            return
        is_due, is_told = bool(want.stand[2] >> level & 1), _told(want.stand, level) is not None
        for table, differs in ((self._untold, is_due and not is_told), (self._unfounded, is_told and not is_due)):
            if differs:
                table[level][want.key] = None
            elif want.key in table[level]:
                del table[level][want.key]
                if not table[level]:
                    table[level] = {}

    def check(self) -> None:
        for key, want in self._wants.items():
            assert want.key == key and want.stand[2:] != NOWHERE
        for level, count in enumerate(self._due):
            assert count == sum(1 for _ in self.due(level))
            assert self._former[level] == sum(want.kind & FORMER > 0 for want in self.due(level))
        for level, count in enumerate(self._told):
            assert count == sum(1 for _ in self.rows(level))
            assert self._former_told[level] == sum(want.kind & FORMER > 0 for want, _ in self.rows(level))
            told = {want.key: None for want, _ in self.rows(level)}
            due = {want.key: None for want in self.due(level)}
            if self._is_open[level]:
                assert self._untold[level].keys() == due.keys() - told.keys()
                assert self._unfounded[level].keys() == told.keys() - due.keys()
            else:
                assert not due and not self._untold[level] and not self._unfounded[level]
        assert all(self.is_due(key, DIGEST_LEVEL) for key in self._untold[DIGEST_LEVEL])


def _told(stand: Stand, level: int) -> Version | None:
    return stand[4] if level else stand[3]


class Due:
    """What one office has to tell, by key: a dict, as far as a `cover_set` needs one."""

    __slots__ = ("_level", "_own")

    def __init__(self, own: OwnWants, level: int) -> None:
        self._own = own
        self._level = level

    def __contains__(self, key: bytes) -> bool:
        return self._own.is_due(key, self._level)

    def __getitem__(self, key: bytes) -> Want:
        want = self._own.find(key)
        if want is None or key not in self:
            raise KeyError(key)
        return want

    def __setitem__(self, key: bytes, want: Want) -> None:
        assert key == want.key
        self._own.appoint(want, self._level)

    def __delitem__(self, key: bytes) -> None:
        self._own.dismiss(key, self._level)

    def __iter__(self) -> Iterator[bytes]:
        return (want.key for want in self._own.due(self._level))

    def __len__(self) -> int:
        return self._own.due_count(self._level)

    def drop(self, key: bytes, is_missed: bool) -> None:
        """As `del`; whether nothing else that has to be told has the same atoms."""
        self._own.dismiss(key, self._level, is_missed)

    def values(self) -> Iterator[Want]:
        return self._own.due(self._level)
