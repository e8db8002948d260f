"""Events that come one by one and are alike: the broker knows each by the one before, and heeds what lies between."""

from __future__ import annotations

from tests.runtime.client_brokers import PATIENCE_S, Site, run, text, until
from tests.runtime.raw_client import RawClient, attach
from veena.client import Subscription
from veena.core.wire.client import AskWatch, ClientWelcome, TellWanted
from veena.event import Event, EventId


class Publisher:
    """One that sends every event in a write of its own, as its broker would hand it on."""

    def __init__(self, raw: RawClient, welcome: ClientWelcome) -> None:
        self.raw = raw
        self._address = welcome.address
        self._sequence = 0

    async def publish(self, got_by: Subscription | None) -> None:
        """Wait until somebody has it."""
        self._sequence += 1
        event_id = EventId(self.raw.client_id, self.raw.incarnation, 1, self._sequence)
        event = Event(topic="quotes", body=b"%d" % self._sequence, event_id=event_id)
        self.raw.stream.write([self.raw.codec.encode_event(event, 0, origin=self._address)])
        if got_by is not None:
            assert text(await got_by.next(PATIENCE_S)) == str(self._sequence)


def test_what_stands_between_two_events_that_are_alike_is_heeded() -> None:
    """A question whether an event is wanted, and those who come and go; DUP-03."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            quotes = await alice.subscribe(topic="quotes")
            raw = await attach(site.url, "steady")
            publisher = Publisher(raw, await raw.wait(ClientWelcome))
            inputs = site.driver.inputs
            for _ in range(20):
                await publisher.publish(quotes)
            assert site.driver.inputs - inputs >= 20
            assert site.clients.statistics().delivered == 20
            (traffic,) = [who.traffic for who in site.clients.everybody.values() if who.client_id == "steady"]
            before = traffic.bytes_in
            raw.say(AskWatch(7))
            await until(lambda: traffic.bytes_in > before)  # so the event comes in a read of its own
            await publisher.publish(None)
            assert (await raw.wait(TellWanted)).wanted
            await publisher.publish(quotes)
            assert site.clients.statistics().delivered == 21, "what was asked about was not published"
            more = await alice.subscribe(topic="quotes")
            await publisher.publish(quotes)
            assert text(await more.next(PATIENCE_S)) == "23"
            await quotes.close()
            await publisher.publish(more)
            assert traffic.published == 24
            raw.stream.close("over")

    run(scenario())
