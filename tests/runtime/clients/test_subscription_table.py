"""What a conversation keeps of its subscriptions."""

from __future__ import annotations

from veena.runtime.clients.subscription_table import PLACES, Subscribed


def test_every_number_is_kept_and_forgotten_once() -> None:
    """CLI-09: low numbers, which have a place, and any other that a client may choose."""
    found = Subscribed()
    numbers = [1, 2, 7, PLACES - 1, PLACES, 1 << 40]
    for number in numbers:
        assert number not in found
        found.add(number, "topic", number % 2 == 1)
    assert len(found) == len(numbers)
    assert [found.is_durable(number) for number in numbers] == [True, False, True, True, False, False]
    assert {found.engine(number) for number in numbers} == {"topic"}
    for number in (*numbers, 3, -1):
        found.discard(number)
        found.discard(number)
        assert number not in found and found.engine(number) is None and not found.is_durable(number)
    assert len(found) == 0


def test_an_engine_that_does_not_exist_is_kept_until_it_is_refused() -> None:
    found = Subscribed()
    found.add(1, "horoscope", False)
    assert len(found) == 1 and found.engine(1) == "horoscope"
    found.discard(1)
    assert len(found) == 0
