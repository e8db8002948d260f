"""What a conversation keeps of each subscription: its engine, whether it is durable, and whether a group shares it.

Clients count their subscriptions from one, and may have as many as there are numbers of two bytes: of these one byte
each is kept, at the number's own place. Rejected: a dict, 50 bytes each.
"""

from __future__ import annotations

from veena.core.interest.constraint import SUBSCRIBED

#: Numbers up to here have a place; a client that takes higher ones is served from a dict.
PLACES = 1 << 16

#: No subscription, and what others may be.
_NONE = 0
_KINDS: tuple[tuple[str, bool] | None, ...] = (
    None,
    *((engine, is_durable) for is_durable in (False, True) for engine in SUBSCRIBED),
)
_CODES = {kind: code for code, kind in enumerate(_KINDS)}


class Subscribed:
    """By number, of one conversation."""

    def __init__(self) -> None:
        self._codes = bytearray()
        #: Numbers without a place, and engines that do not exist: the core refuses those in a moment.
        self._others: dict[int, tuple[str, bool]] = {}
        #: Those that a group shares: few, so that they need no place.
        self._shared: dict[int, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._others)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def get(self, number: int) -> tuple[str, bool] | None:
        """Engine, and whether it is durable; None if there is none."""
        if 0 <= number < len(self._codes) and self._codes[number]:
            return _KINDS[self._codes[number]]
        return self._others.get(number)

    def numbers(self) -> list[int]:
        """Those that there are."""
        return [number for number, code in enumerate(bytes(self._codes)) if code] + list(self._others)

    @property
    def durable(self) -> int:
        """How many of them are kept while their client is away."""
        kinds = (*map(_KINDS.__getitem__, self._codes), *self._others.values())
        return sum(kind is not None and kind[1] for kind in kinds)

    def add(self, number: int, engine: str, is_durable: bool, is_shared: bool = False) -> None:
        """One that is not there yet."""
        if is_shared:
            self._shared[number] = None
        code = _CODES.get((engine, is_durable), _NONE)
        if not code or not 0 <= number < PLACES:
            self._others[number] = (engine, is_durable)
            return
        if number >= len(self._codes):
            self._codes.extend(bytes(number + 1 - len(self._codes)))
        self._codes[number] = code
        self._count += 1

    def discard(self, number: int) -> None:
        """It is over, if there was one."""
        if 0 <= number < len(self._codes) and self._codes[number]:
            self._codes[number] = _NONE
            self._count -= 1
        self._others.pop(number, None)
        self._shared.pop(number, None)

    def engine(self, number: int) -> str | None:
        found = self.get(number)
        return None if found is None else found[0]

    def is_durable(self, number: int) -> bool:
        found = self.get(number)
        return found is not None and found[1]

    def is_kept(self, number: int) -> bool:
        """Whether events are kept for it until somebody has acknowledged them: it is durable, or shared."""
        return number in self._shared or self.is_durable(number)
