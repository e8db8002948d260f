"""Members of a collaboratory over two domains, with the roles that brokers know: who may what, and who did what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import veena
from veena import testing
from veena.address import DEFAULT_FANOUT
from veena.collab import Member, Parameter
from veena.core.wire.event import EventCodec
from veena.core.wire.header import MAX_FRAME
from veena.errors import AccessDenied, InvalidConstraint, InvalidEvent
from veena.runtime.access.users import digest_of
from veena.runtime.store.query import StoreQuery
from veena.services.application.application import Application
from veena.services.domain.categories import AccessControl
from veena.services.structured import StructuredEvent
from veena.services.trading.trader import Trader

PATIENCE_S = 20.0
USERS = {"alice": "senior", "bob": "senior", "jim": "junior", "sim": "application", "svc": "service"}
PARAMETERS = {"speed": Parameter(1.0, low=0, high=10)}


@pytest.fixture(name="net", scope="module")
def _net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.Network]:
    """Two domains, L and R, with one users file."""
    file = tmp_path_factory.mktemp("users") / "users.toml"
    users = [f'[user.{name}]\ntokens = ["{digest_of(name)}"]\nroles = ["{role}"]\n' for name, role in USERS.items()]
    file.write_text("\n".join(users) + AccessControl().roles_toml())
    settings: dict[str, dict[str, Any]] = {
        "auth": {"users_file": str(file)},
        "broker": {"open_links": True},
        "store": {"records": "all", "history": "all"},
    }
    with testing.network({"L.a": 1, "R.a": 1}, settings=settings) as net:
        yield net


@asynccontextmanager
async def member(net: testing.Network, name: str, broker: str = "L.a.1", keep: bool = False) -> AsyncIterator[Member]:
    async with (
        veena.connect(net.url(broker), client_id=name, user=name, token=name) as client,
        Member(client, keep=keep) as joined,
    ):
        yield joined


@asynccontextmanager
async def simulation(net: testing.Network, name: str) -> AsyncIterator[Application]:
    """An application in domain R that takes steps."""
    async with (
        veena.connect(net.url("R.a.1"), client_id=f"sim/{name}", user="sim", token="sim") as client,
        Application(client, name, parameters=PARAMETERS, period=0.02) as app,
    ):

        async def compute() -> None:
            while await app.step():
                app.publish_statistics(speed=app["speed"])
                await asyncio.sleep(0.005)

        computing = asyncio.create_task(compute())
        yield app
        computing.cancel()
        await asyncio.gather(computing, return_exceptions=True)


def test_a_junior_watches_and_discusses_and_its_broker_refuses_its_steering(net: testing.Network) -> None:
    """DIS-04, DIS-09: monitoring and collaboration for all; steering, across domains too, for seniors only."""

    async def main() -> None:
        async with simulation(net, "oil") as app, member(net, "jim") as jim, member(net, "alice") as alice:
            assert (jim.may_steer, alice.may_steer) == (False, True)
            feed, room = await jim.monitor("oil"), await jim.room("oil")
            for wish in (jim.take("oil"), jim.change("oil", speed=3), jim.parameters("oil")):
                with pytest.raises(AccessDenied, match="'jim' do not allow to publish"):
                    await wish
            assert app.statistics().commands == 0
            assert (await alice.take("oil")).is_done and (await alice.change("oil", speed=3)).is_done
            await alice.say("oil", "look")
            async with asyncio.timeout(PATIENCE_S):
                while (await feed.next()).properties.get("speed") != 3.0:
                    pass
                while (event := await room.next()).headers["event_name"] != "message":
                    pass
            assert event.properties["text"] == "look"
            await jim.say("oil", "I see")

    asyncio.run(main())


def test_the_dictionary_knows_what_clients_may_publish(net: testing.Network) -> None:
    """DIC-10: a client publishes no Monitoring event, whatever its rights are; nor an event with a wrong field."""

    async def main() -> None:
        async with member(net, "alice") as alice:
            with pytest.raises(InvalidEvent, match="published by applications"):
                await alice.publish(StructuredEvent("oil", "Monitoring", "state", {"state": "running"}))
            with pytest.raises(InvalidEvent, match="'text'"):
                await alice.say("oil", 5)  # type: ignore[arg-type]
            with pytest.raises(InvalidEvent, match="nothing is to be changed"):
                await alice.change("oil")
            with pytest.raises(InvalidEvent, match="domain_name"):
                await alice.take("")
            for wrong, position in (("speed >", 7), ("TRUE) or (TRUE", 4)):
                with pytest.raises(InvalidConstraint) as caught:
                    await alice.monitor("oil", wrong)
                assert (caught.value.text, caught.value.position) == (wrong, position)
            assert alice.history().produced == ()

    asyncio.run(main())


def test_members_and_applications_find_each_other_within_and_across_domains(net: testing.Network) -> None:
    """DIS-09: the same calls whether the application is near or far; a constraint narrows what is watched."""

    async def main() -> None:
        async with simulation(net, "gas"), member(net, "alice") as far, member(net, "bob", "R.a.1") as near:
            [offer] = await far.applications("name == 'gas'")
            assert (offer.client, await near.applications("name == 'gas'")) == ("sim/gas", [offer])
            fast = [await each.monitor("gas", "$event_name == 'statistics' and speed > 4") for each in (far, near)]
            assert await far.monitor("gas", "$event_name == 'statistics' and speed > 4") is fast[0]
            await near.take("gas")
            await near.change("gas", speed=5)
            assert [(await feed.next(PATIENCE_S)).properties["speed"] for feed in fast] == [5.0, 5.0]
            assert "'bob' drives" in (await far.change("gas", speed=6)).reason
            assert (await near.release("gas")).driver == ""
            await near.take("gas")
            await near.close()  # who goes lets go of the wheel
            assert (await far.take("gas")).driver == "alice"
            await fast[0].close()
            assert [feed.purpose for feed in far.feeds()] == []

    asyncio.run(main())


def test_who_steers_needs_no_trader_that_knows_the_way(net: testing.Network) -> None:
    """TRD-07: the trader here is linked to nobody and finds nothing; commands and their answers pass it by."""

    async def main() -> None:
        async with (
            simulation(net, "ore"),
            member(net, "alice") as alice,
            veena.connect(net.url("L.a.1"), client_id="svc", user="svc", token="svc") as services,
            Trader(services, "left"),
        ):
            assert await alice.applications("name == 'ore'") == []
            assert (await alice.take("ore")).driver == "alice"
            assert (await alice.change("ore", speed=3)).is_done

    asyncio.run(main())


def past(net: testing.Network, broker: str, client: str, kind: str) -> list[str]:
    """What the broker itself remembers of a client; the archive is made of the same rows."""
    file = Path(net.directory) / broker / "store" / "veena.db"
    with closing(StoreQuery(file, EventCodec(broker.count(".") + 1, DEFAULT_FANOUT, MAX_FRAME))) as query:
        return [str(each.id) for each in query.history(client, kind)]  # type: ignore[arg-type]


def test_a_members_history_is_what_its_broker_remembers(net: testing.Network) -> None:
    """DIS-07: consumed and produced, in order, as the brokers' records (and so the archive) have them."""

    async def main() -> None:
        async with simulation(net, "past"), member(net, "bob") as bob:
            room = await bob.room("past")
            await bob.take("past")
            said = [await bob.say("past", f"{number}") for number in range(3)]
            command, *_ = await asyncio.gather(bob.query("past"), bob.say("past", "meanwhile"))
            assert command.is_done
            async with asyncio.timeout(PATIENCE_S):
                while (await room.next()).properties.get("text") != "meanwhile":
                    pass
            mine = bob.history()
            produced = [entry.id for entry in mine.produced]
            assert [each for each in produced if each in said] == said
            assert [entry.name for entry in mine.produced if entry.type == "Steering"] == ["take", "query"]
            async with asyncio.timeout(PATIENCE_S):
                while set(past(net, "L.a.1", "bob", "consumed")) != {entry.id for entry in mine.consumed} or not (
                    set(past(net, "L.a.1", "bob", "produced")) >= set(produced)
                ):
                    await asyncio.sleep(0.05)
            theirs = past(net, "L.a.1", "bob", "produced")
            assert [each for each in theirs if each in produced] == produced
            talk = [entry.id for entry in mine.consumed if entry.name == "message"]
            assert [each for each in past(net, "L.a.1", "bob", "consumed") if each in talk] == talk

    asyncio.run(main())


def test_a_history_is_bounded(net: testing.Network) -> None:
    async def main() -> None:
        async with veena.connect(net.url("L.a.1"), client_id="bob", user="bob", token="bob") as client:
            bob = Member(client, history=3)
            for number in range(5):
                await bob.say("alone", str(number))
            assert [entry.fields["text"] for entry in bob.history().produced] == ["2", "3", "4"]

    asyncio.run(main())
