"""What the node organisation protocol does when brokers are silent, late, full, hostile or renamed."""

from __future__ import annotations

import msgspec
import pytest

from tests.core.membership.organisation_world import ROOMY, World, fix_4, listen, place
from veena.address import Address
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.admission import ASK_NS, MAX_PENDING, PENDING_NS, Admission
from veena.core.membership.join import JOIN_NS, MAX_ASKS, Applicant, Ask, Joiner, Refused
from veena.core.membership.protocol import Answer, Member, Neighbourhood, Peer, Send, encode_request
from veena.core.membership.registrar import SLOT_HOLD_NS
from veena.core.wire.membership import (
    MAX_PLACES,
    Grant,
    IdentifierRelease,
    IdentifierReply,
    IdentifierRequest,
    Place,
    SetupAccepted,
    SetupCancel,
    SetupRedirected,
    SetupRefused,
    SetupRequest,
    SlotReply,
    SlotRequest,
)
from veena.errors import LocalProtocolError, RemoteProtocolError

HOME: Address = (0, 0, 0, 0)


def lone(rules: ConnectionRules = ROOMY, fanout: int = 32) -> Admission:
    return Admission(HOME, fanout, rules, listen(HOME))


def request(name: str, levels: tuple[int, ...] = (0,), number: int = 1, unit: str = "") -> SetupRequest:
    return SetupRequest(name, number, encode_request(levels), 0, unit or name)


# --- silence, lateness, strangers ---


def test_a_dead_mate_costs_a_second() -> None:
    """NOP-10: 19 does not answer; 20 is asked after ASK_NS and takes the node; 19 is told to forget it."""
    world, _, at = fix_4({21: ConnectionRules((2, 4))})
    world.dead.append(at[19])
    world.brokers[at[21]].registrar.observe(world.neighbourhood(at[21]).taken, 0)
    admission = world.brokers[at[21]]
    hood = world.neighbourhood(at[21])
    first = admission.handle(request("s"), Peer((), 1), hood, 0)
    assert first == [Send(at[19], SlotRequest("s", 1, 0, "", ()))]
    assert admission.next_wakeup() == ASK_NS
    effects = admission.tick(hood, ASK_NS)
    assert [effect.to for effect in effects if isinstance(effect, Send)] == [at[19], at[20]]
    late = SlotReply("s", 1, True, (), (), ())
    assert admission.handle(late, Peer(at[19]), hood, ASK_NS + 1) == []


def test_a_dead_registrar_gives_a_refusal_in_time() -> None:
    world, _, at = fix_4()
    world.dead.append(at[19])  # the registrar of n
    guest = world.join(at[21], (0,))
    world.run()
    result = world.result(guest)
    assert isinstance(result, Refused) and "registrar did not answer" in result.reason and result.retry_ms > 0
    assert world.now_ns <= PENDING_NS and world.brokers[at[21]].slots.count() == 0


def test_cancel_gives_everything_back_to_whoever_kept_it() -> None:
    """NOP-10: the gateway at a mate, the identifier at the registrar; a stranger's cancel does nothing."""
    world, _, at = fix_4({21: ConnectionRules((2, 4)), 20: ConnectionRules((2, 4))})
    guest = world.join(at[21], (0,), dials=False)
    world.run()
    assert world.brokers[at[19]].slots.count() == 1 and world.brokers[at[19]].registrar.count() == 1
    hood = world.neighbourhood(at[21])
    cancel = SetupCancel(f"node-{guest}", 1000 * guest)
    contact = world.brokers[at[21]]
    assert contact.handle(cancel, Peer((), 9, "10.6.6.6"), hood, 0) == []
    effects = contact.handle(cancel, Peer((), 9, "10.1.2.3"), hood, 0)
    for effect in effects:
        assert isinstance(effect, Send) and effect.to == at[19]
        world.brokers[at[19]].handle(effect.frame, Peer(at[21]), world.neighbourhood(at[19]), 0)
    assert world.brokers[at[19]].slots.count() == 0 and world.brokers[at[19]].registrar.count() == 0


def test_a_number_is_used_once() -> None:
    """A grant is neither repeated nor given again: nobody knows here whether the first one was used."""
    admission = lone()
    assert isinstance(admission.handle(request("a"), Peer((), 1), Neighbourhood(), 0)[0].frame, SetupAccepted)
    (again,) = admission.handle(request("a"), Peer((), 2), Neighbourhood(), 5)
    assert isinstance(again.frame, SetupRefused) and "higher number" in again.frame.reason
    assert admission.statistics().accepted == 1 and admission.slots.count() == 1
    (later,) = admission.handle(request("a"), Peer((), 2), Neighbourhood(), SLOT_HOLD_NS)
    assert isinstance(later.frame, SetupAccepted), "the grant has lapsed, and the memory of it"


def test_nobody_can_hold_up_a_set_up_in_anothers_name() -> None:
    admission = lone(ConnectionRules((0,)))
    hood = Neighbourhood(members=(Member((0, 0, 0, 1)),))
    admission.handle(request("a"), Peer((), 1, "10.0.0.1"), hood, 0)
    (answer,) = admission.handle(request("a"), Peer((), 2, "10.0.0.2"), hood, 0)
    assert isinstance(answer.frame, SetupRefused) and "from elsewhere" in answer.frame.reason


def test_a_kept_gateway_lapses() -> None:
    admission = lone()
    admission.handle(request("a"), Peer((), 1), Neighbourhood(), 0)
    assert admission.next_wakeup() == SLOT_HOLD_NS
    assert not admission.claim("a", 1, 1) and not admission.claim("b", 0, 1)
    assert not admission.claim("a", 0, SLOT_HOLD_NS)


def test_strangers_cannot_speak_the_inner_frames() -> None:
    admission = lone()
    inner = (SlotRequest("a", 1, 0, ""), IdentifierRequest("a", 1, "a", (0,), (0, 0, 0, 1)))
    for frame in inner:
        with pytest.raises(RemoteProtocolError, match="outside the network"):
            admission.handle(frame, Peer((), 1), Neighbourhood(), 0)
    with pytest.raises(RemoteProtocolError, match="another cluster"):
        admission.handle(inner[0], Peer((0, 0, 1, 0)), Neighbourhood(), 0)
    for enclosing in ((1,), (0, 0, 0, 0)):
        with pytest.raises(RemoteProtocolError, match="no broker inside"):
            admission.handle(IdentifierRelease("a", 1, "a", enclosing, HOME), Peer((0, 0, 0, 1)), Neighbourhood(), 0)
    assert admission.statistics().slots == 0


def test_an_identifier_comes_from_inside_the_unit() -> None:
    admission = Admission((0, 0, 0, 1), 32, ROOMY)
    hood = Neighbourhood(taken={(0, 0, 0): 0b11})
    (ask,) = admission.handle(request("s"), Peer((), 1), hood, 0)
    assert isinstance(ask, Send) and ask.to == HOME
    for identifier, giver in ((5, (0, 0, 1, 0)), (40, HOME)):
        with pytest.raises(RemoteProtocolError, match="can give here"):
            admission.handle(IdentifierReply("s", 1, identifier), Peer(giver), hood, 0)
    (answer,) = admission.handle(IdentifierReply("s", 1, 5), Peer(HOME), hood, 0)
    assert isinstance(answer.frame, SetupAccepted) and answer.frame.address == (0, 0, 0, 5)


def test_a_contact_has_a_bounded_number_of_open_set_ups() -> None:
    admission = lone(ConnectionRules((0,)))
    hood = Neighbourhood(members=(Member((0, 0, 0, 1)),))
    for index in range(MAX_PENDING):
        assert isinstance(admission.handle(request(f"n{index}"), Peer((), 1), hood, 0)[0], Send)
    (answer,) = admission.handle(request("one too many"), Peer((), 1), hood, 0)
    assert isinstance(answer.frame, SetupRefused) and answer.frame.retry_ms > 0
    answers = admission.tick(hood, PENDING_NS)
    assert sum(isinstance(effect, Answer) for effect in answers) == MAX_PENDING
    assert admission.statistics().pending == 0


def test_mates_believed_to_have_room_are_asked_first() -> None:
    """NOP-10: what is known of mates orders whom to ask; a full one is asked last, for the knowledge may be old."""
    admission = lone(ConnectionRules((0,)))
    members = (Member((0, 0, 0, 1), (), (4,), (4,)), Member((0, 0, 0, 2), (), (3,), (4,)), Member((0, 0, 0, 3)))
    hood = Neighbourhood(members=members)
    order = [admission.handle(request("s"), Peer((), 1), hood, 0)[0]]
    for _ in range(2):
        assert isinstance(order[-1], Send)
        no = SlotReply("s", 1, False, (), (4,), (4,))
        order += admission.handle(no, Peer(order[-1].to), hood, 0)
    assert [effect.to[-1] for effect in order if isinstance(effect, Send)] == [2, 3, 1]


def test_gatekeepers_that_mates_know_are_offered_too() -> None:
    admission = lone(ConnectionRules((0,)))
    hood = Neighbourhood(members=(Member((0, 0, 0, 1)),), gatekeepers={2: (place((0, 1, 0, 0)),)})
    admission.handle(request("s"), Peer((), 1), hood, 0)
    reply = SlotReply("s", 1, False, (), (4,), (4,), (place((0, 0, 7, 0)), place((0, 1, 0, 0))))
    (answer,) = admission.handle(reply, Peer((0, 0, 0, 1)), hood, 0)
    assert isinstance(answer.frame, SetupRedirected)
    assert [there.address for there in answer.frame.gatekeepers] == [(0, 0, 7, 0), (0, 1, 0, 0)], "nearest first"


def test_renumbering_ends_what_is_open() -> None:
    """NOP-15: promises made under the old numbers would lead to addresses that no longer exist."""
    admission = lone(ConnectionRules((1, 0)))
    hood = Neighbourhood(members=(Member((0, 0, 0, 1)),))
    admission.handle(request("a"), Peer((), 1), hood, 0)
    admission.handle(request("b"), Peer((), 2), hood, 0)
    (answer,) = admission.readdress((3, 0, 0, 0), 3, 0)
    assert isinstance(answer, Answer) and answer.conversation == 2 and isinstance(answer.frame, SetupRefused)
    assert not admission.claim("a", 0, 1) and admission.registrar.count() == 0
    (again,) = admission.handle(request("a", number=2), Peer((), 1), hood, 1)
    assert isinstance(again.frame, SetupAccepted) and again.frame.address[:3] == (3, 0, 0)


# --- the requester ---


def joiner(levels: tuple[int, ...] = (0,)) -> Joiner:
    return Joiner(Applicant("s"), encode_request(levels), place(HOME), 4, first_number=1)


def test_a_joiner_gives_back_a_grant_that_comes_late() -> None:
    guest = joiner()
    guest.start(0)
    assert guest.tick(JOIN_NS // 2)[-1] == Refused("0.0.0.0 does not answer", 1000)
    late = SetupAccepted("s", 1, (0, 0, 0, 5), Grant(0, place(HOME)))
    assert guest.handle(late, JOIN_NS) == [Ask(place(HOME), SetupCancel("s", 1))]
    assert guest.handle(late, JOIN_NS) == [] and isinstance(guest.result, Refused)


def test_a_joiner_follows_a_bounded_number_of_redirects() -> None:
    """NOP-10: every broker sends it on to new ones, yet it ends."""
    guest = joiner()
    effects, asked = guest.start(0), 0
    while isinstance(effects[0], Ask):
        asked += 1
        places = tuple(place((0, 0, asked % 32, number)) for number in range(MAX_PLACES // 2))
        effects = guest.handle(SetupRedirected("s", asked, "full", places), 0)
    assert asked == MAX_ASKS and isinstance(effects[-1], Refused)


def test_the_bound_is_for_the_whole_join_and_nobody_is_asked_twice_for_one_goal() -> None:
    """NOP-07, NOP-10: forty brokers are asked for the place, the rest of the bound for the gateway."""
    guest = joiner((0, 1))
    effects, asked = guest.start(0), list[Address]()
    while isinstance(effects[0], Ask) and not isinstance(effects[0].frame, SetupCancel):
        asked.append(effects[0].place.address)
        here = asked[-1]
        if len(asked) == 40:
            member = SetupAccepted("s", 40, (*here[:3], 31), Grant(0, place(here)), (place((0, 0, 31, 0)),))
            effects = guest.handle(member, 0)
        else:
            places = (*(place((0, 0, len(asked) % 30, number)) for number in range(2)), place(here))
            effects = guest.handle(SetupRedirected("s", len(asked), "full", places), 0)
    assert len(asked) == MAX_ASKS
    assert len(set(asked[:40])) == 40 and len(set(asked[40:])) == MAX_ASKS - 40
    assert isinstance(effects[-1], Refused)


@pytest.mark.parametrize(
    ("levels", "answer"),
    [
        ((0,), SetupAccepted("s", 1, (0, 0, 1, 5), Grant(0, place(HOME)))),  # an address of another cluster
        ((0,), SetupAccepted("s", 1, (0, 0, 0, 0), Grant(0, place(HOME)))),  # the contact's own
        ((0,), SetupAccepted("s", 1, (0, 0, 0), Grant(0, place(HOME)))),  # a cluster's
        ((0,), SetupAccepted("s", 1, (0, 0, 0, 5), Grant(1, place(HOME)))),  # another level
        ((1,), SetupAccepted("s", 1, (), Grant(1, place((0, 0, 1, 0))))),  # a gateway to another unit
    ],
)
def test_a_joiner_refuses_a_grant_that_cannot_be(levels: tuple[int, ...], answer: SetupAccepted) -> None:
    guest = joiner(levels)
    guest.start(0)
    assert guest.handle(answer, 0)[0] == Ask(place(HOME), SetupCancel("s", 1))
    assert isinstance(guest.result, Refused)


def test_a_joiner_starts_once_and_for_a_unit_that_exists() -> None:
    guest = joiner()
    guest.start(0)
    with pytest.raises(LocalProtocolError, match="started already"):
        guest.start(1)
    with pytest.raises(LocalProtocolError, match="no unit of level 2"):
        Joiner(Applicant("s", "u", 2, (1, 2)), 4, place(HOME), 4, first_number=1)


def test_a_joiner_passes_by_who_cannot_be_dialled() -> None:
    world, _, at = fix_4({number: ConnectionRules((2, 4)) for number in (19, 20, 21)})
    world.dead.append(at[17])
    guest = world.join(at[21], (0,))
    world.run()
    assert world.joined(guest).address[:2] != at[21][:2], "m cannot be reached, so the next super-cluster takes it"


def test_frames_are_bounded() -> None:
    """A hostile frame does not survive the decoder."""
    endless = SetupRedirected("s", 1, "", tuple(Place((0, 0, 0, 1)) for _ in range(MAX_PLACES + 1)))
    for frame in (
        endless,
        SetupRequest("s", 1, 256, 0, "s"),
        SetupRequest("", 1, 1, 0, "s"),
        SlotRequest("s", -1, 0, ""),
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=type(frame))


def test_the_founder_of_a_network_takes_the_first_node() -> None:
    world = World()
    world.add(HOME)
    world.refresh()
    guest = world.join(HOME, (0,))
    world.run()
    assert world.joined(guest).address == (0, 0, 0, 1) and world.links == [((0, 0, 0, 1), HOME)]
