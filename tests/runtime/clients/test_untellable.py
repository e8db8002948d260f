"""What a broker cannot tell one client costs that client its connection at most, and nobody else a word."""

from __future__ import annotations

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, bodies, run, until
from tests.runtime.raw_client import attach
from tests.runtime.test_supervision import traces
from veena.core.boundary.clients import Dropped
from veena.core.boundary.inputs_effects import Active
from veena.core.wire.client import Farewell, TellDropped
from veena.errors import RefusalCode
from veena.runtime.clients.conversation import Conversation

#: Subscriptions of one client, by numbers that are as long as numbers get.
FIRST, COUNT = (1 << 32) - (1 << 16), 1 << 16


def test_the_longest_list_of_what_was_missed_is_told_in_parts() -> None:
    """65,536 subscriptions that missed 200 events each do not fit into one frame; the broker fell silent for all."""

    async def scenario() -> None:
        async with Site() as site, site.client("honest") as honest:
            wanted = await honest.subscribe(topic="news", scope="cluster")
            raw = await attach(site.url, "mallory")
            session = next(each.session for each in site.clients.sessions.values() if each.client_id == "mallory")
            missed = tuple((FIRST + at, 1 << 40) for at in range(COUNT))
            site.clients.tell([Dropped(session, 7, missed)])
            await until(lambda: sum(len(each.missed) for each in raw.frames if isinstance(each, TellDropped)) == COUNT)
            told = [each for each in raw.frames if isinstance(each, TellDropped)]
            assert sum(each.count for each in told) == 7
            assert tuple(pair for each in told for pair in each.missed) == missed
            await honest.publish(topic="news", body=b"here")
            assert await bodies(wanted, 1) == ["here"]

    run(scenario())


def test_a_client_that_cannot_be_told_goes_and_the_others_hear_everything(caplog: pytest.LogCaptureFixture) -> None:
    """A level that no frame may have; and an exception where what was gathered is written."""

    async def scenario() -> None:
        async with Site() as site, site.client("honest") as honest:
            wanted = await honest.subscribe(topic="news", scope="cluster")
            for turn, plant in enumerate((_tell_what_no_frame_holds, _gather_what_cannot_be_written)):
                raw = await attach(site.url, f"mallory/{turn}")
                who = next(each for each in site.clients.sessions.values() if each.client_id == f"mallory/{turn}")
                plant(site, who)
                assert (await raw.wait(Farewell)).why is RefusalCode.CLOSING
                await honest.publish(topic="news", body=b"still here", reliable=True)
                event = await wanted.next(PATIENCE_S)
                assert event is not None and bytes(event.body) == b"still here"
                await until(lambda: len(site.clients.sessions) == 1)

    run(scenario())
    assert len([each for each in caplog.records if each.exc_info]) == 2, traces(caplog)


def _tell_what_no_frame_holds(site: Site, who: Conversation) -> None:
    site.clients.tell([Active(who.session, 1, 99)])


def _gather_what_cannot_be_written(site: Site, who: Conversation) -> None:
    who._accepted.append((1, -5))
    site.clients.dirty(who)
