"""Kept events about which there is doubt: evaluated when their turn comes, for whoever reads, wherever they went."""

from __future__ import annotations

from tests.core.event_world import Stage, cluster
from veena.core.boundary.clients import SubscriptionState
from veena.core.boundary.inputs_effects import ClientDown, Subscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.durable.redelivery import MAX_ASKED
from veena.errors import RefusalCode
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect

#: Everything that libxml2 has to be asked costs more than this.
TIGHT = Settings("small", evaluation_work=40)
CHEAP: Constraint = ("//drink[price > 3][//price]", {})
#: More than is spent on any evaluation of the large document.
HOPELESS: Constraint = ("//*[translate(., //b, //a) = //b]", {})
LARGE = "<r>" + "".join(f"<a><b>{n}</b></a>" for n in range(300)) + "</r>"


def drink(price: int) -> Event:
    return Event(topic="quotes", xml=f"<menu><drink><price>{price}</price></drink></menu>")


class Bar(Stage):
    """Three brokers, and clients that are told of the states of their subscriptions."""

    def __init__(self) -> None:
        self.states: list[SubscriptionState] = []
        super().__init__(cluster([(1, 2), (2, 3)]), settings=TIGHT, options=Options(wire=True, check_every=1))

    def _heard(self, address: tuple[int, ...], effect: ClientEffect) -> None:
        if isinstance(effect, SubscriptionState):
            self.states.append(effect)
        super()._heard(address, effect)

    def wants(self, name: str, client: str, constraint: Constraint, number: int = 1, **more: object) -> int:
        session = self.attach(name, client)
        given = Subscribe(session, number, "xpath", constraint, self.network.levels, **more)  # type: ignore[arg-type]
        self.world.give(self.addresses[name], given)
        self.wait()
        return session

    def prices(self, *prices: int) -> None:
        publisher = self.attach("3", f"publisher-{self.world.now_ns}")
        for price in prices:
            self.publish(publisher, str(price), drink(price))
            self.wait_ms(10)


def test_a_durable_subscription_gets_what_satisfies_it() -> None:
    """I1, I5: also what was kept while its client was away, and after it went elsewhere."""
    bar = Bar()
    session = bar.wants("1", "ann", CHEAP, durable="kept")
    bar.prices(1, 5, 2, 6)
    bar.wait()
    assert bar.bodies[session] == ["5", "6"]
    bar.world.give(bar.addresses["1"], ClientDown(session))
    bar.prices(3, 7, 4, 0, 8)
    home = bar.wants("2", "ann", CHEAP, durable="kept", home=bar.addresses["1"])
    bar.wait(10 * SECOND_NS)
    assert bar.bodies[home][-3:] == ["7", "4", "8"]
    assert {"3", "0", "1", "2"}.isdisjoint(bar.bodies[home])


def test_a_group_deals_out_what_satisfies_it() -> None:
    bar = Bar()
    members = [bar.wants("1", "ann", CHEAP, group="g"), bar.wants("2", "bob", CHEAP, group="g")]
    bar.prices(*range(10))
    bar.wait(30 * SECOND_NS)
    got = [bar.bodies[member] for member in members]
    assert sorted(got[0] + got[1]) == ["4", "5", "6", "7", "8", "9"]
    assert all(each == sorted(each) for each in got)


def test_the_past_holds_what_satisfies_the_subscription() -> None:
    bar = Bar()
    bar.prices(1, 5, 2, 6)
    session = bar.wants("1", "ann", CHEAP, since_ns=1)
    bar.wait(20 * SECOND_NS)
    assert bar.bodies[session] == ["5", "6"]
    bar.prices(3, 7)
    bar.wait()
    assert bar.bodies[session] == ["5", "6", "7"]


def test_what_costs_too_much_rests_until_somebody_asks_for_less() -> None:
    """The cursor stays, also over a crash of the broker; with something cheaper it goes on from there."""
    bar = Bar()
    session = bar.wants("1", "ann", HOPELESS, durable="kept")
    publisher = bar.attach("3", "publisher")
    for number in range(3):
        bar.publish(publisher, str(number), Event(topic="quotes", xml=LARGE.replace("</r>", f"<z>{number}</z></r>")))
    bar.wait()
    assert bar.bodies[session] == []
    (state,) = bar.states
    assert (state.session, state.why, "'kept'" in state.reason) == (session, RefusalCode.WORK, True)
    bar.world.crash(bar.addresses["1"], silent=False)
    bar.world.start(bar.addresses["1"])
    bar.wait()
    session = bar.wants("1", "ann", HOPELESS, durable="kept")
    assert [each.why for each in bar.states] == [RefusalCode.WORK] * 2, "it is tried again"
    assert bar.bodies[session] == []
    cheaper = bar.wants("1", "ann", ("//z[. > 0][//z]", {}), durable="kept")
    bar.wait(10 * SECOND_NS)
    assert bar.bodies[session] == bar.bodies[cheaper] == ["1", "2"], "every device of the client has it"
    assert bar.states[-1].why is None


def test_members_of_a_group_are_told_that_it_rests() -> None:
    bar = Bar()
    session = bar.wants("1", "ann", HOPELESS, group="g")
    bar.publish(bar.attach("3", "publisher"), "x", Event(topic="quotes", xml=LARGE))
    bar.wait()
    (state,) = bar.states
    assert (state.session, state.why) == (session, RefusalCode.WORK)


def test_many_subscriptions_of_one_user_ask_a_few_at_a_time() -> None:
    """What waits for answers is bounded, and all of them get theirs."""
    bar = Bar()
    session = bar.attach("1", "ann")
    count = 2 * MAX_ASKED + 5
    for number in range(count):
        constraint: Constraint = (f"//drink[price > 3][//price][{number} >= 0]", {})
        given = Subscribe(session, number, "xpath", constraint, bar.network.levels, durable=f"kept-{number}")
        bar.world.give(bar.addresses["1"], given)
    bar.wait()
    bar.prices(5, 1, 6)
    waiting = bar.broker("1").statistics().evaluations.waiting
    assert 0 < waiting <= MAX_ASKED + 2
    bar.wait(200 * count * MILLISECOND_NS + 30 * SECOND_NS)
    assert sorted(bar.bodies[session]) == ["5"] * count + ["6"] * count
