"""Digests that were replaced before their speaker was: what is wanted in the other part of a unit (design §5).

Of the digests of a unit the one with the highest version counts. When a unit has come apart, each part has a speaker,
and the digest of one replaces that of the other although it knows nothing of its wants; the other tells both together
as soon as it hears of it. In between the replaced digest counts too, as long as anybody else is heard to speak for the
unit: that need not be the one who told it, for who succeeds a speaker and has nothing to add tells nothing. It is
dropped when a digest comes from the only speaker that is left: that one knows all.

The invariant: an event that some live speaker's last digest lets through is let through.
"""

from __future__ import annotations

from veena.address import Address, Unit
from veena.core.interest.digest import merge_digests
from veena.core.interest.receipts import Claims
from veena.core.interest.speaker import MAX_OTHERS
from veena.core.wire.interest import Digest, DigestPart


class Superseded:
    """By unit, the replaced digests of speakers that may still be right."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._kept: dict[Unit, dict[Address, tuple[DigestPart, ...]]] = {}

    def effective(self, before: Digest | None, after: Digest, now_ns: int) -> Digest:
        """What counts when `after` replaces `before`."""
        speaker = after.version[1]
        live = [teller for teller in self._claims.tellers(after.unit, now_ns) if teller != speaker]
        if not live:
            self._kept.pop(after.unit, None)
            return after
        kept = self._kept.setdefault(after.unit, {})
        kept.pop(speaker, None)
        if before is not None and before.version[1] != speaker:
            kept[before.version[1]] = before.parts
        while len(kept) > MAX_OTHERS:
            del kept[next(iter(kept))]
        return Digest(after.unit, after.version, tuple(merge_digests(after.parts, *kept.values())))

    def forget(self, unit: Unit) -> None:
        self._kept.pop(unit, None)

    def __len__(self) -> int:
        return len(self._kept)
