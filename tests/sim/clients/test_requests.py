"""Requests find who answers, answers find who asked, and deadlines hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.event_world import QUICK, Stage
from tests.sim.clients.test_durable import two_sites
from veena.address import Address
from veena.core.boundary.clients import Request, Unanswered
from veena.core.boundary.inputs_effects import Deliver, PublishRefused, Welcome
from veena.core.boundary.settings import SECOND_NS
from veena.core.wire.event import EventCodec
from veena.errors import RefusalCode
from veena.event import Event, IdGenerator


class Asker:
    """A client that asks, on a stage where others answer."""

    def __init__(self, stage: Stage, at: str) -> None:
        self.stage = stage
        self.address = stage.addresses[at]
        self.reply_to = ""
        self.answers: list[str] = []
        self.unanswered: list[Unanswered] = []
        self.session = 0
        self._codec = EventCodec(stage.network.levels, stage.network.fanout)
        before = stage.world.on_client

        def hear(address: Address, effect: object) -> None:
            if isinstance(effect, Welcome) and not self.reply_to and address == self.address:
                self.reply_to = effect.reply_to
            if isinstance(effect, Unanswered) and effect.session == self.session:
                self.unanswered.append(effect)
            if isinstance(effect, Deliver) and any(session == self.session for session, _ in effect.receivers):
                self.answers.append(bytes(effect.frame.body).decode())
            assert before is not None
            before(address, effect)  # type: ignore[arg-type]

        stage.world.on_client = hear
        self.session = stage.attach(at, f"asker-{at}")
        self._ids = IdGenerator(f"asker-{at}", stage.incarnation(self.session))

    def ask(self, number: int, *, deadline_ms: int = 2000, answers: int = 1, topic: str = "quotes") -> None:
        event = Event(
            topic=topic,
            headers={"reply-to": self.reply_to, "correlation": number},
            event_id=self._ids.next(self.stage.world.now_ns),
            timestamp_ns=self.stage.world.now_ns,
        )
        frame = self._codec.frame(event)
        self.stage.world.give(self.address, Request(self.session, number, frame, deadline_ms, answers))


def answer(stage: Stage, session: int, body: str, *, to: str | None = None) -> None:
    """The service answers the last request that it got."""
    headers = stage.frames[session][-1].section.headers
    reply = Event(to=(to or str(headers["reply-to"]),), headers={"correlation": headers["correlation"]})
    stage.publish(session, body, reply, reliable=False)


def test_a_request_is_answered_across_sites() -> None:
    """RTE-04, RTE-05: the answer goes straight to the asker, who is not reachable by its id."""
    stage = Stage(two_sites(), options=QUICK)
    service = stage.subscribe("z1")
    asker = Asker(stage, "w1")
    stage.wait()
    asker.ask(7)
    stage.wait(SECOND_NS)
    answer(stage, service, "42")
    stage.wait(SECOND_NS)
    assert asker.answers == ["42"]
    assert asker.unanswered == []
    way = [one for one, _ in stage.hops_of("42")]
    assert way[0] == "z1", "from the service"
    assert len(stage.hops_of("42")) == len(set(stage.hops_of("42"))), "over each link once"
    answer(stage, service, "again")
    stage.wait(SECOND_NS)
    assert asker.answers == ["42"], "one answer was asked for"


def test_nobody_there_is_told_at_once_and_deadlines_hold() -> None:
    """A request that nobody wants ends at once, one that nobody answers with its deadline."""
    stage = Stage(two_sites(), options=QUICK)
    stage.subscribe("z1")
    asker = Asker(stage, "w1")
    stage.wait()
    asker.ask(1, topic="nobody")
    assert [(each.number, each.why) for each in asker.unanswered] == [(1, RefusalCode.UNWANTED)]
    asker.ask(2, deadline_ms=1500)
    stage.wait_ms(1400)
    assert len(asker.unanswered) == 1
    stage.wait_ms(200)
    expired = Unanswered(asker.session, 2, 0, RefusalCode.EXPIRED, "0 of 1 answers within 1500 ms")
    assert asker.unanswered[1] == expired


def test_many_answers_are_gathered() -> None:
    """Ask all, wait for three of them."""
    stage = Stage(two_sites(), options=QUICK)
    services = [stage.subscribe(name) for name in ("z1", "y0", "x1", "w0")]
    asker = Asker(stage, "w1")
    stage.wait()
    asker.ask(1, answers=3)
    stage.wait(SECOND_NS)
    for number, service in enumerate(services):
        answer(stage, service, str(number))
        stage.wait_ms(200)
    assert asker.answers == ["0", "1", "2"]
    assert asker.unanswered == []


@pytest.mark.parametrize("to", ["~0.0.0.0", "~/*", "~0.0.0.0/*", "~home/alice", "~nonsense"])
def test_clients_cannot_write_to_brokers(to: str) -> None:
    """Only brokers write to places; of clients only answers may."""
    stage = Stage(two_sites(), options=QUICK)
    session = stage.attach("w1", "mallory")
    stage.wait()
    stage.publish(session, "x", Event(to=(to,)))
    assert len(stage.refused) == 1
    assert isinstance(stage.refused[0], PublishRefused)
    assert "begin with ~" in stage.refused[0].reason


def test_a_guessed_place_reaches_nobody() -> None:
    """An answer to a conversation that is not there is dropped."""
    stage = Stage(two_sites(), options=QUICK)
    asker = Asker(stage, "w1")
    other = stage.attach("z1", "mallory")
    stage.wait()
    guess = asker.reply_to[:-1] + ("0" if asker.reply_to[-1] != "0" else "1")
    stage.publish(other, "x", replace(Event(to=(guess,)), headers={"correlation": 1}))
    stage.wait()
    assert asker.answers == []
    assert stage.broker("w1").events.sessions.requests.stray == 1


def test_wrong_requests_are_refused_with_their_reason() -> None:
    stage = Stage(two_sites(), options=QUICK)
    stage.subscribe("z1")
    asker = Asker(stage, "w1")
    stage.wait()
    asker.ask(1, deadline_ms=0)
    asker.ask(2, answers=0)
    asker.reply_to = "~0.0.0.0/!1"
    asker.ask(3)
    assert [each.number for each in asker.unanswered] == [1, 2, 3]
    assert "deadline of 0 ms" in asker.unanswered[0].reason
    assert "reply-to" in asker.unanswered[2].reason
