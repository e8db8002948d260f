"""Access control of a domain: categories, the rules that they become, and brokers that hold to them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import veena.testing
from veena.client import Client, connect
from veena.errors import AccessDenied, ConfigError
from veena.event import Event, Value
from veena.runtime.access.rights import Rights, Rule
from veena.runtime.access.users import digest_of, parse_users
from veena.services.dictionary.dictionary import Dictionary
from veena.services.domain.access_service import AccessService
from veena.services.domain.categories import STANDARD, AccessControl, Category
from veena.services.domain.services import DomainServices
from veena.services.member.member import Member
from veena.services.structured import StructuredEvent
from veena.services.trading.registry import Registry

WAIT_S = 20.0
EAST = {"ann": "junior", "sam": "senior", "heat": "application", "easterly": "service"}
#: A user of both domains is in both files.
WEST = {"sue": "senior", "sam": "junior", "joe": "junior", "westerly": "service"}
DESK = '\n[role.desk]\nrules = [{ allow = ["publish", "subscribe"], topic = "desk.*" }]\n'


def users_of(category_of: dict[str, str]) -> str:
    members = {user: (category, digest_of(f"token of {user}")) for user, category in category_of.items()}
    text = AccessControl().users_toml(members)
    return text.replace('roles = ["junior"]', 'roles = ["junior", "desk"]') + DESK


@pytest.fixture(name="network", scope="module")
def _network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[veena.testing.Network]:
    """Two domains, each with a users file of its own."""
    directory = tmp_path_factory.mktemp("domains")
    for broker, category_of in (("east.lab.1", EAST), ("west.lab.1", WEST)):
        (directory / broker).mkdir()
        (directory / broker / "users.toml").write_text(users_of(category_of))
    # Users have to prove who they are; the two brokers, on this machine alone, need no certificates for each other.
    settings: dict[str, dict[str, Any]] = {
        "auth": {"users_file": "users.toml", "tell": True},
        "broker": {"open_links": True},
    }
    with veena.testing.network({"east.lab": 1, "west.lab": 1}, settings=settings, directory=directory) as net:
        yield net


def client(net: veena.testing.Network, place: str, user: str, token: str | None = None) -> Client:
    return connect(net.url(f"{place}.lab.1"), client_id=user, user=user, token=token or f"token of {user}")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def change(by: str) -> Event:
    fields: dict[str, Value] = {"by": by, "parameter": "diffusivity", "value": 0.2}
    return StructuredEvent("heat", "Steering", "change", fields).to_event()


def state(step: int) -> Event:
    return StructuredEvent("heat", "Monitoring", "state", {"state": "running", "step": step}).to_event()


def test_juniors_watch_and_seniors_steer(network: veena.testing.Network) -> None:
    """DIS-04: a junior's steering is refused by its broker, monitoring is granted; a senior's steering is accepted."""

    async def scenario() -> None:
        async with (
            client(network, "east", "heat") as heat,
            client(network, "west", "joe") as junior,
            client(network, "west", "sue") as senior,
        ):
            commands = await heat.subscribe(constraint="$domain_name == 'heat' and $type_name == 'Steering'")
            watched = await junior.subscribe(constraint="$domain_name == 'heat' and $type_name == 'Monitoring'")
            with pytest.raises(AccessDenied) as caught:
                await junior.publish_event(change("joe"), reliable=True)
            assert str(caught.value).endswith(
                "the rights of 'joe' do not allow to publish events of type 'Steering'"
                " (rule 5: deny publish, subscribe type *)"
            )
            with pytest.raises(AccessDenied, match="events of type 'Steering'"):
                await junior.request(headers=change("joe").headers, properties=change("joe").properties)
            await senior.publish_event(change("sue"), reliable=True)
            assert (await commands.next(WAIT_S)).properties["by"] == "sue", "the junior's never came"
            await heat.publish_event(state(1), reliable=True)
            assert (await watched.next(WAIT_S)).properties["step"] == 1
            assert commands.waiting == 0

    run(scenario())


def test_nobody_steers_under_another_name(network: veena.testing.Network) -> None:
    """SEC-05: neither a second type in the header, nor a topic that another role allows, opens a side door."""
    steering = dict(change("joe").headers)

    async def scenario() -> None:
        async with client(network, "west", "joe") as junior:
            for event in (
                Event(headers={**steering, "type_name": "Collaboration", "$type_name": "Steering"}),
                Event(headers={**steering, "$type_name": "Steering"}),
                Event(topic="desk.1", headers=steering),
                Event(headers={**steering, "type_name": 7}),
                Event(properties={"by": "joe"}),
            ):
                with pytest.raises(AccessDenied, match="do not allow to publish"):
                    await junior.publish_event(event, reliable=True)
            await junior.publish(topic="desk.1", body=b"what its other role is for", reliable=True)

    run(scenario())


def test_steering_of_others_is_not_handed_to_juniors(network: veena.testing.Network) -> None:
    """DIS-04: a constraint that fits commands as well finds what a junior may read, and nothing else."""

    async def scenario() -> None:
        async with (
            client(network, "east", "heat") as heat,
            client(network, "east", "ann") as junior,
            client(network, "east", "sam") as senior,
        ):
            wanted = [
                await who.subscribe(constraint="$domain_name == 'heat'", durable=durable)
                for who, durable in ((junior, False), (junior, "all"), (senior, False))
            ]
            commands = await heat.subscribe(constraint="$domain_name == 'heat' and $type_name == 'Steering'")
            await senior.publish_event(change("sam"), reliable=True)
            await commands.next(WAIT_S)
            await heat.publish_event(state(2), reliable=True)
            await heat.publish_event(state(3), reliable=True)
            for subscription in wanted[:2]:
                assert [(await subscription.next(WAIT_S)).properties["step"] for _ in range(2)] == [2, 3]
            seen = [(await wanted[2].next(WAIT_S)).headers["type_name"] for _ in range(3)]
            assert seen == ["Steering", "Monitoring", "Monitoring"]
            with pytest.raises(AccessDenied, match="any event may satisfy"):
                await junior.subscribe(constraint="TRUE")
            await wanted[1].delete()

    run(scenario())


def test_credentials_count_in_their_own_domain(network: veena.testing.Network) -> None:
    """DIS-05, SEC-05: they are checked before anything else, by the brokers of the domain, against its own users."""

    async def scenario() -> None:
        for place, user, token in (
            ("west", "ann", None),
            ("east", "sue", None),
            ("east", "ann", "token of sue"),
            ("west", "ann", "token of sue"),
            ("east", "ann", "guessed"),
        ):
            with pytest.raises(AccessDenied, match="not known here"):
                await client(network, place, user, token).open()
        with pytest.raises(AccessDenied):
            await connect(network.url("east.lab.1"), client_id="ann").open()
        async with client(network, "west", "sam") as visitor:
            with pytest.raises(AccessDenied, match="events of type 'Steering'"):
                await visitor.publish_event(change("sam"), reliable=True)
        async with client(network, "east", "sam") as at_home:
            await at_home.publish_event(change("sam"), reliable=True)

    run(scenario())


def told(event: Event) -> tuple[Value, ...]:
    return (event.headers["event_name"], *(event.properties.get(name) for name in ("by", "user", "action", "category")))


def test_who_comes_in_and_what_is_refused_is_told_by_brokers(network: veena.testing.Network) -> None:
    """DIC-11, DIS-04, DIS-05: reliably and under the broker's own name, to those who may read it; the domain's service
    tells what each may do, once though two of them run."""

    async def scenario() -> None:
        async with (
            client(network, "west", "sue") as senior,
            client(network, "west", "westerly") as westerly,
            DomainServices(westerly, "west") as services,
        ):
            second = connect(
                network.url("west.lab.1"), client_id="westerly/2", user="westerly", token="token of westerly"
            )
            async with second, AccessService(second) as other:
                access = "$type_name == 'Access'"
                record = await senior.subscribe(constraint=f"{access} and $event_name != 'authorise' and by == 'joe'")
                powers = await senior.subscribe(constraint=f"{access} and $event_name == 'authorise' and by == 'joe'")
                async with client(network, "west", "joe") as junior:
                    unread = await junior.subscribe(constraint=f"{access} and by == 'joe'")
                    with pytest.raises(AccessDenied):
                        await junior.publish_event(change("joe"), reliable=True)
                    with pytest.raises(AccessDenied):
                        await junior.subscribe(constraint="TRUE")
                    with pytest.raises(AccessDenied):
                        await client(network, "west", "joe", "guessed").open()
                    seen = [await record.next(WAIT_S) for _ in range(4)]
                    assert unread.poll() is None
                assert {each.event_id.publisher for each in seen if each.event_id} == {"veena/access/west.lab.1"}
                assert [told(each) for each in seen] == [
                    ("login", "joe", "joe", None, "junior"),
                    ("refused", "joe", "joe", "publish", None),
                    ("refused", "joe", "joe", "ask", None),
                    ("refused", "joe", "joe", "attach", None),
                ]
                assert "events of type 'Steering'" in str(seen[1].properties["reason"])
                [allowed] = [await powers.next(WAIT_S)]
                assert allowed.properties["publish"] == "Collaboration, Messaging"
                assert allowed.properties["category"] == "junior" and powers.poll() is None
                assert services.access.statistics().authorised + other.statistics().authorised >= 1
                dictionary = Dictionary.standard()
                for event in (*seen, allowed):
                    dictionary.check(StructuredEvent.from_event(event), "application")

    run(scenario())


def test_what_is_said_to_be_a_brokers_word_and_is_not_counts_for_nothing(network: veena.testing.Network) -> None:
    """DIS-05: an application may publish the type, and cannot have anybody authorised."""

    async def scenario() -> None:
        async with (
            client(network, "east", "easterly") as easterly,
            client(network, "east", "heat") as heat,
            AccessService(easterly) as service,
        ):
            forged = StructuredEvent("east.lab.1", "Access", "login", {"by": "mallory", "category": "senior"})
            seen = await easterly.subscribe(constraint="$type_name == 'Access' and by == 'mallory'")
            await heat.publish_event(forged.to_event(), reliable=True)
            await seen.next(WAIT_S)  # and with it what the broker told before, of the login of heat
            before = service.statistics().logins
            async with client(network, "east", "ann"):
                while service.statistics().logins == before:
                    await asyncio.sleep(0.01)
            assert service.statistics().logins == before + 1, "of ann, and the one before it was left out"

    run(scenario())


def test_more_than_people_cause_is_counted_and_not_told(network: veena.testing.Network) -> None:
    """DIC-11: a client that is refused again and again does not flood those who keep a record."""

    async def scenario() -> None:
        async with client(network, "west", "sue") as senior, client(network, "west", "joe") as junior:
            refused = "$type_name == 'Access' and $event_name == 'refused' and action == 'publish'"
            record = await senior.subscribe(constraint=refused)
            before = network.statistics("west.lab.1").clients
            for _ in range(1000):
                await junior.publish_event(change("joe"))
            while (now := network.statistics("west.lab.1").clients).access_untold < before.access_untold + 500:
                await asyncio.sleep(0.01)
            for _ in range(now.access_told - before.access_told):
                await record.next(WAIT_S)

    run(scenario())


def test_the_categories_are_enough_for_their_work(network: veena.testing.Network) -> None:
    """DIS-04, DIS-09: services, an application and members of two domains do what they are for, with these rules."""

    async def scenario() -> None:
        async with (
            client(network, "east", "easterly") as easterly,
            client(network, "west", "westerly") as westerly,
            client(network, "east", "heat") as heat,
            client(network, "west", "joe") as junior,
            client(network, "west", "sue") as senior,
            DomainServices(easterly, "east", links=["west"]),
            DomainServices(westerly, "west", links=["east"]),
            Member(junior) as joe,
            Member(senior) as sue,
        ):
            assert (joe.may_steer, sue.may_steer) == (False, True)
            await Registry(heat).export("Application", "heat", {})
            async with asyncio.timeout(WAIT_S):
                while [offer.name for offer in await joe.applications()] != ["heat"]:
                    pass
            watched = await joe.monitor("heat")
            await heat.publish_event(state(4), reliable=True)
            assert (await watched.next(WAIT_S)).properties["step"] == 4
            with pytest.raises(AccessDenied, match="events of type 'Steering'"):
                await joe.take("heat")

    run(scenario())


def test_what_a_category_may_do() -> None:
    """DIS-04, DIC-10: the answer is that of a broker with these rules."""
    access = AccessControl()
    junior, senior, application = map(access.powers, ("junior", "senior", "application"))
    assert junior.publish == ("Collaboration", "Messaging") and junior.read == ("Monitoring", "Collaboration")
    assert set(senior.publish) - set(junior.publish) == {"Steering"}
    assert set(senior.read) - set(junior.read) == {"Steering", "Access"}
    assert "Collaboration" not in application.publish + application.read
    assert "advertise" in application.may and "advertise" not in junior.may
    assert {"log", "move"}.isdisjoint(junior.may + senior.may + application.may + access.powers("service").may)
    with pytest.raises(ConfigError, match="category 'boss': is not known; there are junior, senior"):
        access.powers("boss")


def test_the_roles_are_what_a_users_file_wants() -> None:
    """DIS-05: what is written can be read by a broker, and means the same."""
    access = AccessControl()
    users = parse_users(access.roles_toml() + '[user.ann]\nroles = ["junior"]')
    assert users._roles == {name: access.rules(name) for name in STANDARD}
    parse_users(access.users_toml({'a "quoted" name': ("senior", digest_of("x"))}))


def test_new_types_fall_to_the_right_categories(tmp_path: Path) -> None:
    """DIS-17: by the dictionary alone; what nobody declared is refused to everybody."""
    own = tmp_path / "own.toml"
    own.write_text(
        '[type.Valve]\nguarded = true\n[[event]]\ntype = "Valve"\nname = "turn"\n[[event]]\ntype = "Note"\nname = "*"\n'
        '[type.Probe]\npublishers = ["application"]\n[[event]]\ntype = "Probe"\nname = "*"\n'
    )
    access = AccessControl(dictionary=Dictionary.load(own))
    junior, senior = access.powers("junior"), access.powers("senior")
    assert "Note" in junior.publish and "Valve" not in junior.publish + junior.read
    assert "Valve" in senior.publish and "Valve" in senior.read
    assert "Probe" in junior.read and "Probe" not in senior.publish and "Probe" in access.powers("application").publish
    for name in access.categories:
        rights = Rights((*access.rules(name), Rule(allow="*", topic="*")))
        event = Event(topic="any", headers={"type_name": "Undeclared"})
        assert not rights.may_publish(event) and not rights.may_read(event, "topic")


def test_categories_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "categories.toml"
    file.write_text(
        '[category.reviewer]\npublish = []\nread = ["Monitoring", "Steering"]\nmay = ["wide"]\n'
        '[category.junior]\ndescription = "here they may look into the network"\nmay = ["wide", "query", "explain"]\n'
    )
    access = AccessControl.load(file)
    reviewer = access.powers("reviewer")
    assert (reviewer.publish, reviewer.read, reviewer.may) == ((), ("Monitoring", "Steering"), ("wide",))
    assert access.powers("junior").may == ("wide", "query", "explain")
    assert access.powers("senior") == AccessControl().powers("senior")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[category.a]\nread = ['Gossip']",
            "category.a.read: type 'Gossip' is not known; the dictionary has Monitoring",
        ),
        ("[category.a]\nmay = ['publish']", "category.a.may: action 'publish' is not known"),
        ("[category.a]\nmay = ['fly']", "fly"),
        ("[category.a]\nreads = []", "reads"),
        ("[category.'a b']", "is no name; use 1 to 64 letters"),
        ("[categories.a]", "categories"),
        ("[category", "syntax"),
        ("".join(f"[category.c{n}]\n" for n in range(101)), "101 categories; at most 100"),
    ],
)
def test_faults_of_categories_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "categories.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        AccessControl.load(tmp_path / "categories.toml")
    assert message in str(caught.value)


def test_a_service_may_do_what_its_work_needs() -> None:
    """The services of a domain read all types and subscribe for others, but change nothing of the network itself."""
    rights = Rights(AccessControl().rules("service"))
    assert all(rights.allows("subscribe", "constraint", None, kind) for kind in Dictionary.standard().interactions)
    assert rights.allows("everything") and not rights.allows("move") and not rights.allows("log")
    assert Category().may == STANDARD["junior"].may
