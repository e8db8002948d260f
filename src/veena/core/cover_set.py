"""Which of a unit's wants need to be told: those that no other one covers (AGG-07, design §5).

Wants are counted, because several clients or sub-units may have the same one; a want climbs when the first comes and is
withdrawn when the last goes. A want that a wider one covers is kept back, and told when the wider one goes. So what
leaves a unit is bounded by its distinct, widest constraints, not by its clients, and nobody receives less.

The result is a function of the wants alone, not of the order they came in: the maximal wants, and of equivalent ones
the one with the lowest key. Two brokers that know the same wants tell the same, whoever of them speaks.

The invariant: every want held back is covered by one that is told. Comparing is bounded: in a bucket with more than
`MAX_COMPARED` told wants a new one is simply told, which is never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from veena.core.want import Want, covers

#: Told wants of one bucket that a new one is compared with: 256 comparisons of about 50 us are 13 ms at worst.
MAX_COMPARED = 256


@dataclass(slots=True)
class _Bucket:
    told: dict[bytes, Want] = field(default_factory=dict)
    #: Held back, with the key of the want that covers each.
    held: dict[bytes, tuple[Want, bytes]] = field(default_factory=dict)


class CoverSet:
    """Counted wants and the widest among them."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._buckets: dict[tuple[int, str], _Bucket] = {}
        #: Everything that is to be told, by key.
        self.told: dict[bytes, Want] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, want: Want) -> bool:
        """Count one more; whether what is told changed."""
        count = self._counts.get(want.key, 0)
        self._counts[want.key] = count + 1
        if count:
            return False
        return self._place(self._buckets.setdefault(want.bucket, _Bucket()), want)

    def remove(self, want: Want) -> bool:
        """Count one less; whether what is told changed. KeyError when it was never added."""
        count = self._counts[want.key] - 1
        if count:
            self._counts[want.key] = count
            return False
        del self._counts[want.key]
        bucket = self._buckets[want.bucket]
        if bucket.held.pop(want.key, None) is not None:
            return False
        self._untell(bucket, want.key)
        orphans = [held for held, by in bucket.held.values() if by == want.key]
        for orphan in sorted(orphans, key=lambda held: held.key):
            del bucket.held[orphan.key]
        for orphan in sorted(orphans, key=lambda held: held.key):
            self._place(bucket, orphan)
        if not bucket.told:
            del self._buckets[want.bucket]
        return True

    def _place(self, bucket: _Bucket, want: Want) -> bool:
        """Tell a want or hold it back."""
        if len(bucket.told) > MAX_COMPARED:
            self._tell(bucket, want)
            return True
        for other in bucket.told.values():
            # Of two that cover each other the lower key is told, whichever came first.
            if covers(other, want) and not (want.key < other.key and covers(want, other)):
                bucket.held[want.key] = (want, other.key)
                return False
        narrower = [other for other in bucket.told.values() if covers(want, other)]
        self._tell(bucket, want)
        for other in narrower:
            self._untell(bucket, other.key)
            bucket.held[other.key] = (other, want.key)
            for key, (held, by) in bucket.held.items():
                if by == other.key:
                    bucket.held[key] = (held, want.key)
        return True

    def _tell(self, bucket: _Bucket, want: Want) -> None:
        bucket.told[want.key] = want
        self.told[want.key] = want

    def _untell(self, bucket: _Bucket, key: bytes) -> None:
        del bucket.told[key], self.told[key]

    def check(self) -> None:
        held = 0
        for bucket in self._buckets.values():
            assert bucket.told, "a bucket tells something"
            for key, (want, by) in bucket.held.items():
                assert want.key == key
                assert by in bucket.told, "what is held back is covered by something that is told"
            held += len(bucket.held)
        assert held + len(self.told) == len(self._counts), "every want is told or held back"
