"""Second devices of durable clients: they attach beside the first, under the same client id, and read what it reads.

Everybody who reads a durable subscription is handed every event until one of them acknowledges it (CLI-02). So what
counts is what a client got on all its devices together, and nothing may come twice to the same one, or out of order. A
device has a memory of its own, stays for a while, and is sent away when its client attaches elsewhere with the first.
"""

from __future__ import annotations

from random import Random

from veena.core.boundary.inputs_effects import ClientDown, ClientRefused, ClientUp, Subscribe
from veena.core.boundary.settings import SECOND_NS
from veena.errors import RefusalCode
from veena.sim.clients.durable import PAUSES_NS, REMEMBERED, DurableClient, DurableClients, DurableSubscription
from veena.sim.clients.traffic import PULSE_NS, Traffic
from veena.sim.world.world import World

#: How long a device stays.
STAYS_NS = (SECOND_NS, 20 * SECOND_NS)


class SecondDevices:
    """One more device of each durable client, now and then."""

    def __init__(self, world: World, traffic: Traffic, durables: DurableClients, chance: Random) -> None:
        self._world = world
        self._traffic = traffic
        self._durables = durables
        self._chance = chance
        self._devices: dict[str, DurableClient] = {}
        self._refuse = durables.on_refused
        durables.on_refused = self._refused
        self.attached = 0

    def plan(self, times: int, begin_ns: int, end_ns: int) -> None:
        """Let devices come so many times."""
        for _ in range(times if self._durables.clients else 0):
            client = self._chance.choice(self._durables.clients)
            self._world.at(
                self._chance.randrange(begin_ns, end_ns),
                lambda who=client: self._attach(who),  # type: ignore[misc]
            )

    def pulse(self) -> None:
        """Devices whose broker has died are gone."""
        for device in self._devices.values():
            if device.session and not self._is_there(device):
                self._durables.detach(device)
        self._world.at(self._world.now_ns + PULSE_NS, self.pulse)

    def _is_there(self, client: DurableClient) -> bool:
        broker = self._world.nodes[client.broker].broker
        return broker is not None and broker.identity.incarnation == client.incarnation

    def _attach(self, first: DurableClient) -> None:
        device = self._devices.get(first.name)
        if device is None:
            pause_ns = self._chance.choice(PAUSES_NS)
            device = self._devices[first.name] = DurableClient(first.name, first.broker, first.knows_home, pause_ns)
        if device.session or not first.session or not self._is_there(first):
            return
        device.broker, device.incarnation = first.broker, first.incarnation
        session = device.session = self._world.new_session()
        self._traffic.listeners[session] = lambda address, effect: self._durables.hear(device, address, effect)
        self._world.give(device.broker, ClientUp(session, device.name))
        for each in first.subscriptions:
            if each.number:
                self._subscribe(device, each)
        device.home = device.broker
        self.attached += 1
        self._world.at(self._world.now_ns + self._chance.randint(*STAYS_NS), lambda: self._leave(device, session))

    def _subscribe(self, device: DurableClient, first: DurableSubscription) -> None:
        mine = next((each for each in device.subscriptions if each.first is first), None)
        if mine is None:
            mine = DurableSubscription(
                device, first.name, first.wish, first.engine, first.ack, got=first.got, first=first
            )
            device.subscriptions.append(mine)
        mine.number, device.next_number = device.next_number, device.next_number + 1
        given = Subscribe(
            device.session,
            mine.number,
            *first.stays[-1].want.wish,
            durable=first.name,
            ack=first.ack,
            had=dict(mine.had),
            home=device.home if device.knows_home else None,
            skips=frozenset(list(mine.skips)[-REMEMBERED:]),
        )
        self._world.give(device.broker, given)

    def _leave(self, device: DurableClient, session: int) -> None:
        if device.session != session:
            return
        for each in device.subscriptions:
            if each.first is not None and each.first.deleted_ns is not None:
                each.number = 0
        if self._chance.random() < 0.5:
            for each in device.subscriptions:
                self._durables.acknowledge(each)
        self._world.give(device.broker, ClientDown(session, self._chance.random() < 0.5))
        self._durables.detach(device)

    def _refused(self, client: DurableClient, effect: ClientRefused) -> None:
        """The client attached elsewhere with its first device: this one reads no more."""
        if client is self._devices.get(client.name) and effect.why is RefusalCode.MOVED:
            for each in client.subscriptions:
                each.number = 0 if each.number == effect.subscription else each.number
            session = client.session
            self._world.at(self._world.now_ns, lambda: self._leave(client, session))
        else:
            self._refuse(client, effect)
