"""Which of a unit's wants need to be told: those that no other one covers (AGG-07, design §5).

Wants are counted, because several clients or sub-units may have the same one; a want climbs when the first comes and is
withdrawn when the last goes. A want that a wider one covers is kept back, and told when the wider one goes. So what
leaves a unit is bounded by its distinct, widest constraints, not by its clients, and nobody receives less.

The result is a function of the wants alone, not of the order they came in: the maximal wants, and of equivalent ones
the one with the lowest key. Two brokers that know the same wants tell the same, whoever of them speaks.

Covers are found through an index (`matching.covering`), a bucket at a time. What comes may cover thousands that are
told already, and what goes may have stood for thousands: a step deals with `AT_ONCE` of them, and `go_on` with the
rest. A want that goes is told until the last of those that it stood for is told or kept back otherwise.

The invariant: every want held back is covered by one that is told. Of pairs that only their engine can compare a want
is compared with `MAX_COMPARED` at most, and texts no longer than `MAX_WORK` allows: beyond that it is simply told,
which is never wrong.

A topic that nobody narrows is the usual want, and there may be a hundred thousand: it stands in `told` and nowhere
else. Whoever has to be compared with it computes its key. Rejected: a bucket for each topic, 800 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from veena.address import MAX_LEVELS
from veena.core.interest.announced import Due, OwnWants
from veena.core.interest.constraint import SELECTOR, TOPIC, Want, admits, covers, form_of, lane_of
from veena.matching.covering.index import CoverIndex

#: Wants that only their engine can compare with a new one, of which each takes about 50 us.
MAX_COMPARED = 32
#: What comparing one want with all of them may cost: its bytes times theirs. Two constraints of a hundred terms are
#: some four million, and ten thousand comparisons of terms.
MAX_WORK = 1 << 24
#: Wants that one step tells or holds back because another one came or went: some milliseconds. To look at one takes a
#: microsecond.
AT_ONCE = 128
LOOKS = 16
#: Told wants of one bucket that are compared one by one, sooner than an index is kept for them.
FEW_TOLD = 3

#: Wants that may be wider than one: most answers come from the first.
MAX_LOOKED = 32

#: A search for what a want covers, which goes on later.
Search = Iterator[tuple[bytes, bool] | None]


class _Bucket:
    """Wants among which one may cover another."""

    __slots__ = ("held", "index", "leaving", "stands_for", "told")

    def __init__(self, told: dict[bytes, Want]) -> None:
        self.told = told
        #: Held back, with the key of the want that covers each; and by the key of that one.
        self.held: dict[bytes, tuple[Want, bytes]] = {}
        self.stands_for: dict[bytes, dict[bytes, None]] = {}
        #: Told wants that nobody has any longer: they are told until nothing is held back for them.
        self.leaving: dict[bytes, None] = {}
        #: The told wants but those that leave; None while they are few.
        self.index: CoverIndex | None = None

    def hold(self, want: Want, cover: bytes) -> None:
        self.held[want.key] = (want, cover)
        self.stands_for.setdefault(cover, {})[want.key] = None

    def release(self, key: bytes) -> Want:
        """A want that was held back is not any longer."""
        want, cover = self.held.pop(key)
        held = self.stands_for[cover]
        del held[key]
        if not held:
            del self.stands_for[cover]
        return want

    def tell(self, want: Want) -> None:
        self.told[want.key] = want
        if self.index is not None:
            self.index.add(want.key, form_of(want), lane_of(want))
        elif len(self.told) > FEW_TOLD:
            self.index = CoverIndex(admits)
            for each in self.told.values():
                if each.key not in self.leaving:
                    self.index.add(each.key, form_of(each), lane_of(each))

    def unindex(self, want: Want) -> None:
        """A told want covers nothing from now on."""
        if self.index is not None and want.key not in self.leaving:
            self.index.remove(want.key, form_of(want), lane_of(want))

    def untell(self, want: Want) -> None:
        self.unindex(want)
        self.leaving.pop(want.key, None)
        del self.told[want.key]

    # --- questions ---

    def cover(self, want: Want) -> bytes | None:
        """The key of the told want that stands for this one too, if there is one."""
        questions = _Questions(want)
        for key, is_sure in self._wider(want):
            other = self.told[key]
            # Of two that cover each other the lower key is told, whichever came first.
            if (is_sure or questions.covered_by(other)) and not (want.key < key and covers(want, other)):
                return key
            if questions.are_over:
                return None
        return None

    def _wider(self, want: Want) -> Iterator[tuple[bytes, bool]]:
        if self.index is not None:
            yield from self.index.wider(form_of(want), lane_of(want))
            return
        for key in self.told:
            if key not in self.leaving:
                yield key, False

    def search(self, want: Want) -> Search:
        """What of the told wants this one may stand for."""
        if self.index is not None:
            return self.index.narrower(form_of(want), lane_of(want))
        return iter([(key, False) for key in self.told if key not in self.leaving])


class _Questions:
    """How often an engine is asked about one want."""

    def __init__(self, want: Want) -> None:
        self._want = want
        self._size = len(want.payload)
        self._asked = self._work = 0
        self.are_over = False

    def _asks(self, other: Want) -> bool:
        self._asked += 1
        self._work += self._size * len(other.payload) if other.base == self._want.base != TOPIC else 0
        self.are_over = self._asked > MAX_COMPARED or self._work > MAX_WORK
        return not self.are_over

    def covered_by(self, other: Want) -> bool:
        return self._asks(other) and covers(other, self._want)

    def covers(self, other: Want) -> bool:
        return self._asks(other) and covers(self._want, other)


class CoverSet:
    """Counted wants and the widest among them, in a network of so many levels."""

    def __init__(self, levels: int = MAX_LEVELS, told: Due | None = None) -> None:
        self._levels = levels
        #: How often a want was counted after the first time.
        self._repeats: dict[bytes, int] = {}
        #: All buckets but those of one topic that is told and nothing else.
        self._buckets: dict[bytes, _Bucket] = {}
        self._held = 0
        #: What is left to do: told wants with what they may stand for, and wants that leave, by key.
        self._searches: dict[bytes, tuple[Want, Search]] = {}
        self._leaving: dict[bytes, Want] = {}
        #: Everything that is to be told, by key.
        self.told = Due(OwnWants(), 0) if told is None else told

    def __len__(self) -> int:
        return len(self.told) - len(self._leaving) + self._held

    def __contains__(self, want: Want) -> bool:
        return (want.key in self.told and want.key not in self._leaving) or self.cover_of(want) is not None

    def count(self, want: Want) -> int:
        """How often it was counted."""
        return 1 + self._repeats.get(want.key, 0) if want in self else 0

    def cover_of(self, want: Want) -> Want | None:
        """What is told in place of a want that is held back."""
        bucket = self._buckets.get(want.bucket)
        held = None if bucket is None else bucket.held.get(want.key)
        return None if bucket is None or held is None else bucket.told[held[1]]

    def displaced(self, want: Want) -> list[Want] | None:
        """The wants that would be told no longer if this one came, as far as one step finds them; None where it would
        not be told itself."""
        if want in self:
            return None
        bucket = self._bucket(want)
        if bucket.cover(want) is not None:
            return None
        return [bucket.told[key] for key in _found(bucket, want, bucket.search(want), AT_ONCE)[0]]

    def add(self, want: Want, is_widest: bool = False) -> bool:
        """Count one more; whether what is told changed. One that is known to be among the widest is not compared."""
        if want in self:
            self._repeats[want.key] = self._repeats.get(want.key, 0) + 1
            return False
        bucket = self._bucket(want)
        changed = True
        if want.key in self._leaving:
            self._come_back(bucket, want)
        elif is_widest:
            self._tell(bucket, want)
        else:
            changed = self._place(bucket, want)
        self._keep(want.bucket, bucket)
        return changed

    def remove(self, want: Want) -> bool:
        """Count one less; whether what is told changed. KeyError when it was never added."""
        if want.key in self._repeats:
            self._repeats[want.key] -= 1
            if not self._repeats[want.key]:
                del self._repeats[want.key]
            return False
        bucket = self._bucket(want)
        if want.key in bucket.held:
            bucket.release(want.key)
            self._held -= 1
            self._keep(want.bucket, bucket)
            return False
        want = self.told[want.key]
        if want.key in self._leaving:
            raise KeyError(want.key)
        self._searches.pop(want.key, None)
        bucket.unindex(want)
        bucket.leaving[want.key] = None
        self._leaving[want.key] = want
        self._leave(bucket, want, AT_ONCE)
        self._keep(want.bucket, bucket)
        return True

    # --- what takes longer ---

    @property
    def is_busy(self) -> bool:
        """Whether something is left to do that one step had no time for."""
        return bool(self._searches or self._leaving)

    def go_on(self) -> bool:
        """Do some of it; whether what is told changed."""
        for want in self._leaving.values():
            bucket = self._bucket(want)
            self._leave(bucket, want, AT_ONCE)
            self._keep(want.bucket, bucket)
            return True
        for key, (want, search) in self._searches.items():
            bucket = self._bucket(want)
            before = len(bucket.told)
            if self._displace(bucket, want, search):
                del self._searches[key]
            self._keep(want.bucket, bucket)
            return len(bucket.told) < before
        return False

    def _leave(self, bucket: _Bucket, want: Want, at_most: int) -> None:
        """Let others stand for what a want stood for, or tell it; then tell the want no longer."""
        orphans = list(islice(bucket.stands_for.get(want.key, ()), at_most))
        released = [bucket.release(key) for key in sorted(orphans)]
        self._held -= len(released)
        for orphan in released:
            self._place(bucket, orphan)
        if want.key not in bucket.stands_for:
            del self._leaving[want.key]
            self._untell(bucket, want)

    def _come_back(self, bucket: _Bucket, want: Want) -> None:
        """A want that leaves is wanted again: it stands for what it did, and for what was told meanwhile."""
        del self._leaving[want.key]
        del bucket.leaving[want.key]
        want = bucket.told.pop(want.key)
        bucket.tell(want)
        self._search(bucket, want)

    def _bucket(self, want: Want) -> _Bucket:
        """All that may cover a want or be covered by it."""
        found = self._buckets.get(want.bucket)
        if found is None:
            found = _Bucket({key: self.told[key] for key in want.topic_keys(self._levels) if key in self.told})
        return found

    def _keep(self, name: bytes, bucket: _Bucket) -> None:
        if _is_plain(bucket):
            self._buckets.pop(name, None)
        else:
            self._buckets[name] = bucket

    def _place(self, bucket: _Bucket, want: Want) -> bool:
        """Tell a want or hold it back."""
        cover = bucket.cover(want)
        if cover is not None:
            self._hold(bucket, want, cover)
            return False
        self._tell(bucket, want)
        self._search(bucket, want)
        return True

    def _search(self, bucket: _Bucket, want: Want) -> None:
        """Hold back what a told want stands for from now on."""
        search = bucket.search(want)
        if not self._displace(bucket, want, search):
            self._searches[want.key] = (want, search)

    def _displace(self, bucket: _Bucket, want: Want, search: Search) -> bool:
        """Some of it; whether that is all."""
        narrower, is_all = _found(bucket, want, search, AT_ONCE)
        for key in narrower:
            other = bucket.told[key]
            for held in bucket.stands_for.pop(key, ()):
                bucket.hold(bucket.held[held][0], want.key)
            self._searches.pop(key, None)
            self._untell(bucket, other)
            self._hold(bucket, other, want.key)
        return is_all

    def _hold(self, bucket: _Bucket, want: Want, cover: bytes) -> None:
        bucket.hold(want, cover)
        self._held += 1

    def _tell(self, bucket: _Bucket, want: Want) -> None:
        self.told[want.key] = want
        bucket.tell(want)

    def _untell(self, bucket: _Bucket, want: Want) -> None:
        bucket.untell(want)
        # A topic and all its selectors have one atom in a digest.
        self.told.drop(want.key, is_missed=not (bucket.told and want.base in (TOPIC, SELECTOR)))

    def check(self) -> None:
        told = held = 0
        for name, bucket in self._buckets.items():
            assert not _is_plain(bucket), "one topic alone needs no bucket"
            assert bucket.told, "a bucket tells something"
            for want in bucket.told.values():
                assert want.bucket == name and want.key in self.told
            for key, (want, by) in bucket.held.items():
                assert want.key == key
                assert by in bucket.told, "what is held back is covered by something that is told"
                assert key in bucket.stands_for[by]
            assert sum(map(len, bucket.stands_for.values())) == len(bucket.held)
            assert all(key in self._leaving for key in bucket.leaving)
            told, held = told + len(bucket.told), held + len(bucket.held)
            if bucket.index is not None:
                bucket.index.check()
        alone = [want for want in self.told.values() if want.bucket not in self._buckets]
        assert all(want.kind == TOPIC for want in alone)
        assert told + len(alone) == len(self.told), "every want is told or held back"
        assert held == self._held
        assert all(key in self.told for key in (*self._searches, *self._leaving))
        assert all(repeats > 0 for repeats in self._repeats.values())


class _Several:
    """The wants of one bucket."""

    __slots__ = ("index", "wants")

    def __init__(self, first: Want) -> None:
        self.wants = {first.key: first}
        self.index: CoverIndex | None = None

    def add(self, want: Want) -> None:
        if want.key in self.wants:
            return
        self.wants[want.key] = want
        if self.index is not None:
            self.index.add(want.key, form_of(want), lane_of(want))
        elif len(self.wants) > FEW_TOLD:
            self.index = CoverIndex(admits)
            for each in self.wants.values():
                self.index.add(each.key, form_of(each), lane_of(each))

    def remove(self, want: Want) -> None:
        if self.wants.pop(want.key, None) is not None and self.index is not None:
            self.index.remove(want.key, form_of(want), lane_of(want))

    def candidates(self, want: Want) -> Iterator[Want]:
        if self.index is None:
            return iter(list(self.wants.values()))
        return (self.wants[key] for key, _ in self.index.wider(form_of(want), lane_of(want)))


class ToldWants:
    """What one unit tells, so that a wider want is found for one that the unit does not tell itself (`activation`).

    Plain topics are not here: their keys are known, and their rows are found by these. The invariant: what `wider`
    gives covers what was asked. It looks at `MAX_LOOKED` wants at most: where more may cover, a want may count as heard
    of later than it could.
    """

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[bytes, Want | _Several] = {}

    def add(self, want: Want) -> None:
        name = want.bucket
        found = self._buckets.get(name)
        if found is None or (isinstance(found, Want) and found.key == want.key):
            self._buckets[name] = want
            return
        if isinstance(found, Want):
            found = self._buckets[name] = _Several(found)
        found.add(want)

    def remove(self, want: Want) -> None:
        """Take out a want, if it is there."""
        name = want.bucket
        found = self._buckets.get(name)
        if isinstance(found, _Several):
            found.remove(want)
            if not found.wants:
                del self._buckets[name]
        elif found is not None and found.key == want.key:
            del self._buckets[name]

    def wider(self, want: Want) -> Iterator[Want]:
        """Those that cover a want, as far as few looks find them; itself, if it is among them."""
        found = self._buckets.get(want.bucket)
        if found is None:
            return
        candidates = iter((found,)) if isinstance(found, Want) else found.candidates(want)
        for other in islice(candidates, MAX_LOOKED):
            if covers(other, want):
                yield other

    def __bool__(self) -> bool:
        return bool(self._buckets)


def _found(bucket: _Bucket, want: Want, search: Search, at_most: int) -> tuple[list[bytes], bool]:
    """So many of the told wants that a want stands for, as far as one step finds them; whether those are all."""
    questions = _Questions(want)
    found: dict[bytes, None] = {}
    budget = at_most * LOOKS
    while budget > 0:
        budget -= 1
        each = next(search, _END)
        if each is _END or questions.are_over:
            return list(found), True
        if each is None:
            continue
        key, is_sure = each
        other = bucket.told.get(key)
        if other is None or key == want.key or key in bucket.leaving:
            continue
        if is_sure or questions.covers(other):
            found[key] = None
            budget -= LOOKS
    return list(found), False


_END = (b"", False)


def _is_plain(bucket: _Bucket) -> bool:
    """Whether there is one topic and nothing else, or nothing at all."""
    return not bucket.held and (
        not bucket.told or (len(bucket.told) == 1 and all(want.kind == TOPIC for want in bucket.told.values()))
    )
