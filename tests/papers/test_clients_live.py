"""What the papers promise to clients, over real sockets: conferences, one copy an event, nothing to discard."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import veena.testing
from veena import blocking
from veena.errors import TimedOut, VeenaError
from veena.event import Event

PATIENCE_S = 30.0
#: What has not come by then, after all that was published before and after it has come, does not come.
SOON_S = 0.2


@pytest.fixture(name="net", scope="module")
def _net() -> Iterator[veena.testing.Network]:
    with veena.testing.network({"paris": 1, "rome": 1}) as running:
        yield running


def packet(speaker: int, number: int) -> bytes:
    """An RTP packet: version 2, a dynamic payload type, sequence number, time stamp, source; then a piece of sound."""
    header = b"\x80\x60" + number.to_bytes(2, "big") + (160 * number).to_bytes(4, "big") + speaker.to_bytes(4, "big")
    return header + bytes((speaker + number + at) % 256 for at in range(160))


def received(subscription: blocking.Subscription, count: int) -> list[Event]:
    return [subscription.next(PATIENCE_S) for _ in range(count)]


def handed_over(net: veena.testing.Network, broker: str) -> int:
    """How many events this broker has sent to its clients."""
    return net.statistics(broker).clients.delivered


def test_a_conference_of_three(net: veena.testing.Network) -> None:
    """MAT-40, MAT-41, IOP-07: RTP packets arrive intact, in the order of each speaker, and in their meeting alone."""
    with (
        blocking.connect(net.url("paris.1")) as ann,
        blocking.connect(net.url("paris.1")) as ben,
        blocking.connect(net.url("rome.1")) as eve,
    ):
        members = (ann, ben, eve)
        heard = [member.subscribe(integer=1234) for member in members]
        elsewhere = ann.subscribe(integer=1235)
        for number in range(20):
            for speaker, member in enumerate(members):
                member.publish(integer=1234, body=packet(speaker, number))
        for subscription in heard:
            packets = [bytes(event.body) for event in received(subscription, 60)]
            for speaker in range(3):
                said = [each for each in packets if each[8:12] == speaker.to_bytes(4, "big")]
                assert said == [packet(speaker, number) for number in range(20)]
        with pytest.raises(TimedOut):
            elsewhere.next(SOON_S)


def test_an_event_in_two_subjects_is_one_copy(net: veena.testing.Network) -> None:
    """NTF-04, PRF-06: it belongs to two subscriptions of one client, and goes to that client once."""
    with blocking.connect(net.url("paris.1")) as reader, blocking.connect(net.url("rome.1")) as writer:
        by_topic = reader.subscribe(topic="weather")
        by_place = reader.subscribe(constraint="place == 'Oslo'")
        before = handed_over(net, "paris.1")
        for place in ("Oslo", "Rome"):
            writer.publish(topic="weather", properties={"place": place}, reliable=True)
        writer.publish(topic="sports", properties={"place": "Oslo"}, reliable=True)
        assert [event.properties["place"] for event in received(by_topic, 2)] == ["Oslo", "Rome"]
        assert [event.topic for event in received(by_place, 2)] == ["weather", "sports"]
        assert handed_over(net, "paris.1") - before == 3, "three events, three copies"
        with pytest.raises(TimedOut):
            by_topic.next(SOON_S)


def test_a_client_has_nothing_to_discard(net: veena.testing.Network) -> None:
    """IOP-03: the selector is tested in brokers; beside it, what a client gets that would have to refine by itself."""
    with blocking.connect(net.url("paris.1")) as choosy, blocking.connect(net.url("rome.1")) as writer:
        few = choosy.subscribe(topic="quotes", selector="price >= 90")
        start = handed_over(net, "paris.1")
        for price in range(100):
            writer.publish(topic="quotes", properties={"price": price}, reliable=True)
        assert [event.properties["price"] for event in received(few, 10)] == list(range(90, 100))
        assert handed_over(net, "paris.1") - start == 10
        few.close()
        everything = choosy.subscribe(topic="quotes")
        start = handed_over(net, "paris.1")
        for price in range(100):
            writer.publish(topic="quotes", properties={"price": price}, reliable=True)
        assert [event.properties["price"] for event in received(everything, 100)] == list(range(100))
        assert handed_over(net, "paris.1") - start == 100, "who refines by itself discards 90 of them"


def test_any_logical_subset_can_be_subscribed_to(net: veena.testing.Network) -> None:
    """DIS-03: and, or, not and existence in one subscription, judged by the broker."""
    with blocking.connect(net.url("paris.1")) as reader, blocking.connect(net.url("rome.1")) as writer:
        wanted = reader.subscribe(constraint="topical == 1 and ((x > 3 and y == 'a') or not exist z)")
        events: list[dict[str, int | str]] = [
            {"x": 4, "y": "a", "z": 0}, {"x": 3, "y": "a", "z": 0}, {"x": 4, "y": "b", "z": 0}, {"x": 0, "y": "b"},
        ]  # fmt: skip
        for number, properties in enumerate(events):
            writer.publish(properties={"topical": 1, "number": number, **properties}, reliable=True)
        assert [event.properties["number"] for event in received(wanted, 2)] == [0, 3]
        with pytest.raises(TimedOut):
            wanted.next(SOON_S)


def test_one_broker_serves_and_is_missed_while_it_is_dead() -> None:
    """TOP-22: the centralised case works, and is a single point of failure until the broker is back."""
    with veena.testing.network(brokers=1, processes=True) as net:
        for body in (b"before", b"after"):
            with blocking.connect(net.url()) as reader, blocking.connect(net.url()) as writer:
                wanted = reader.subscribe(topic="t")
                writer.publish(topic="t", body=body, reliable=True)
                assert wanted.next(PATIENCE_S).body == body
            net.kill("a.1")
            with pytest.raises(VeenaError, match=re.escape(net.url())):
                blocking.connect(net.url(), timeout=1.0).open()
            net.restart("a.1")
