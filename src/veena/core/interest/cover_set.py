"""Which of a unit's wants need to be told: those that no other one covers (AGG-07, design §5).

Wants are counted, because several clients or sub-units may have the same one; a want climbs when the first comes and is
withdrawn when the last goes. A want that a wider one covers is kept back, and told when the wider one goes. So what
leaves a unit is bounded by its distinct, widest constraints, not by its clients, and nobody receives less.

The result is a function of the wants alone, not of the order they came in: the maximal wants, and of equivalent ones
the one with the lowest key. Two brokers that know the same wants tell the same, whoever of them speaks.

The invariant: every want held back is covered by one that is told. Comparing is bounded: in a bucket with more than
`MAX_COMPARED` told wants, or with such long ones that it would be more than `MAX_WORK`, a new one is simply told, which
is never wrong.

A topic that nobody narrows is the usual want, and there may be a hundred thousand: it stands in `told` and nowhere
else. Whoever has to be compared with it computes its key. Rejected: a bucket for each topic, 800 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veena.address import MAX_LEVELS
from veena.core.interest.announced import Due, OwnWants
from veena.core.interest.constraint import TOPIC, Want, covers

#: Told wants of one bucket that a new one is compared with: 256 comparisons of about 50 us are 13 ms at worst.
MAX_COMPARED = 256
#: What comparing one want with all of them may cost: its bytes times theirs. Two constraints of a hundred terms are
#: some four million, and ten thousand comparisons of terms.
MAX_WORK = 1 << 24


@dataclass(slots=True)
class _Bucket:
    told: dict[bytes, Want] = field(default_factory=dict)
    #: Held back, with the key of the want that covers each.
    held: dict[bytes, tuple[Want, bytes]] = field(default_factory=dict)


class CoverSet:
    """Counted wants and the widest among them, in a network of so many levels."""

    def __init__(self, levels: int = MAX_LEVELS, told: Due | None = None, compared: int = MAX_COMPARED) -> None:
        self._levels = levels
        self._compared = compared
        #: How often a want was counted after the first time.
        self._repeats: dict[bytes, int] = {}
        #: All buckets but those of one topic that is told and nothing else.
        self._buckets: dict[bytes, _Bucket] = {}
        #: Everything that is to be told, by key.
        self.told = Due(OwnWants(), 0) if told is None else told

    def __len__(self) -> int:
        return len(self.told) + sum(len(bucket.held) for bucket in self._buckets.values())

    def __contains__(self, want: Want) -> bool:
        return want.key in self.told or self._is_held(want)

    def count(self, want: Want) -> int:
        """How often it was counted."""
        return 1 + self._repeats.get(want.key, 0) if want in self else 0

    def displaced(self, want: Want) -> list[Want] | None:
        """The wants that would be told no longer if this one came; None where it would not be told itself."""
        if want in self:
            return None
        bucket = self._bucket(want)
        if self._is_crowded(bucket, want):
            return []
        return _narrower(bucket, want) if _cover(bucket, want) is None else None

    def _is_held(self, want: Want) -> bool:
        bucket = self._buckets.get(want.bucket)
        return bucket is not None and want.key in bucket.held

    def add(self, want: Want, is_widest: bool = False) -> bool:
        """Count one more; whether what is told changed. One that is known to be among the widest is not compared."""
        if want in self:
            self._repeats[want.key] = self._repeats.get(want.key, 0) + 1
            return False
        bucket = self._bucket(want)
        changed = True
        if is_widest:
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
        if bucket.held.pop(want.key, None) is not None:
            self._keep(want.bucket, bucket)
            return False
        self._untell(bucket, want.key)
        orphans = [held for held, by in bucket.held.values() if by == want.key]
        for orphan in sorted(orphans, key=lambda held: held.key):
            del bucket.held[orphan.key]
        for orphan in sorted(orphans, key=lambda held: held.key):
            self._place(bucket, orphan)
        self._keep(want.bucket, bucket)
        return True

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
        if self._is_crowded(bucket, want):
            self._tell(bucket, want)
            return True
        cover = _cover(bucket, want)
        if cover is not None:
            bucket.held[want.key] = (want, cover)
            return False
        narrower = _narrower(bucket, want)
        self._tell(bucket, want)
        for other in narrower:
            self._untell(bucket, other.key)
            bucket.held[other.key] = (other, want.key)
            for key, (held, by) in bucket.held.items():
                if by == other.key:
                    bucket.held[key] = (held, want.key)
        return True

    def _is_crowded(self, bucket: _Bucket, want: Want) -> bool:
        """Whether it would be too much to compare a want with all others."""
        return len(bucket.told) > self._compared or _work(bucket, want) > MAX_WORK

    def _tell(self, bucket: _Bucket, want: Want) -> None:
        bucket.told[want.key] = want
        self.told[want.key] = want

    def _untell(self, bucket: _Bucket, key: bytes) -> None:
        del bucket.told[key], self.told[key]

    def check(self) -> None:
        told = 0
        for name, bucket in self._buckets.items():
            assert not _is_plain(bucket), "one topic alone needs no bucket"
            assert bucket.told, "a bucket tells something"
            for want in bucket.told.values():
                assert want.bucket == name and want.key in self.told
            for key, (want, by) in bucket.held.items():
                assert want.key == key
                assert by in bucket.told, "what is held back is covered by something that is told"
            told += len(bucket.told)
        alone = [want for want in self.told.values() if want.bucket not in self._buckets]
        assert all(want.kind == TOPIC for want in alone)
        assert told + len(alone) == len(self.told), "every want is told or held back"
        assert all(repeats > 0 for repeats in self._repeats.values())


def _cover(bucket: _Bucket, want: Want) -> bytes | None:
    """The key of the told want that stands for this one too, if there is one."""
    for other in bucket.told.values():
        # Of two that cover each other the lower key is told, whichever came first.
        if covers(other, want) and not (want.key < other.key and covers(want, other)):
            return other.key
    return None


def _narrower(bucket: _Bucket, want: Want) -> list[Want]:
    """The told wants that this one would stand for."""
    return [other for other in bucket.told.values() if covers(want, other)]


def _work(bucket: _Bucket, want: Want) -> int:
    """What it takes to compare a want with all that are told in its bucket."""
    return len(want.payload) * sum(len(other.payload) for other in bucket.told.values() if other.base == want.base)


def _is_plain(bucket: _Bucket) -> bool:
    """Whether there is one topic and nothing else, or nothing at all."""
    return not bucket.held and (
        not bucket.told or (len(bucket.told) == 1 and all(want.kind == TOPIC for want in bucket.told.values()))
    )
