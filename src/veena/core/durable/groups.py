"""Shared subscriptions: of a group of clients that want the same, one gets each event.

A group is a durable subscription (`registry`) that belongs to no client. It is kept at one broker, the group's home:
where the first member subscribed. The home reads it like a client would and deals the events out in turn
(`group_turns`), to members at its own broker and, by post, to those elsewhere. A member has an event until it
acknowledges it. When it leaves, or is not heard of any more, its events go to others. While nobody is there they wait
in the log. What a member may not have its broker gives back, and it goes to one who may. What nobody who is there may
have waits for the retention, in nobody's way, and becomes a dead letter (`group_denials`).

    member at B --> Join to the group's home (every so often: a lease, and the room that the member has)
    home --> Give, an event for that member;  B --> Took, when he has acknowledged it, or Return, if he may not have it

Without a name the group ends a while after its last member has left; with one (`durable`) it stays. A member's
broker keeps the group itself where nobody does; where somebody may, only after nobody has answered for a while, and
where somebody has told that he does, after a long while: he is lost then, with what he kept. Should there be two homes,
the later one wins and the other's events go there, as with a client that roams (`handover`); what was accepted while
there were two may have come to a member of each.

The invariant: one broker at a time is a group's home, but for a while after a partition or a loss, and each member
belongs to one group under one number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import Acknowledge, Active, ClientRefused, Deliver, Effect, Subscribe
from veena.core.boundary.session_id import is_clients
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.user_shares import Tally, UserTable
from veena.core.durable.group_denials import Member
from veena.core.durable.group_turns import MAX_MEMBERS, ROOM, Turns
from veena.core.durable.home_registry import OtherHomes
from veena.core.durable.registry import Durables
from veena.core.durable.subscription import Durable, DurableObserver
from veena.core.interest.constraint import Want, create_engine, make_want
from veena.core.messages.addresses import GROUP, broker_id, home_id
from veena.core.messages.kinds import Give, Join, Return, Took
from veena.core.messages.mailbox import Post
from veena.core.wire.client import MAX_GROUP_NAME
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.event_id import event_key
from veena.errors import LocalProtocolError, VeenaError
from veena.matching.base.engine import Constraint

#: How often members elsewhere say that they are there, and after how long silence they count as gone.
JOIN_NS = 5 * SECOND_NS
GONE_NS = 3 * JOIN_NS
#: After how long silence a home counts as lost: longer than a restart or a partition takes that somebody sees to.
LOST_NS = 8 * GONE_NS
#: How often a broker that does not know yet who wants what looks whether it does.
LOOK_NS = SECOND_NS // 2
#: How many members of groups at one broker one user may be.
MAX_MEMBERS_OF_USER = MAX_MEMBERS // 4

#: Gives up an event for these units: publishes a dead letter with this reason.
Bury = Callable[[EventFrame, tuple[Unit, ...], str, int], None]


@dataclass(slots=True, eq=False)
class _Group:
    """A group at its home."""

    durable: Durable
    session: int
    turns: Turns = field(default_factory=Turns)
    #: How far it is acknowledged.
    level: int = 0
    #: Since when nobody is there.
    empty_ns: int | None = None


@dataclass(slots=True)
class _Membership:
    """A client of this broker that belongs to a group, wherever that is kept."""

    session: int
    subscription: int
    given: Subscribe
    group: str
    name: str
    user: str
    joined_ns: int
    #: When the home answered last; at first, when it was asked first.
    heard_ns: int
    #: Whether the home has been heard of: since it was asked last, and at all.
    is_known: bool = False
    was_known: bool = False
    #: How often its rights have changed.
    rights: int = 0
    #: A group that is kept here was acknowledged for all of its scope.
    was_promised: bool = False


def group_id(name: str, want: Want) -> str:
    """The id under which a group's subscription is kept: of those who share a name, who want the same."""
    return f"{GROUP}{name}/{want.key.hex()[:16]}"


class Shared(DurableObserver):
    """Groups that are kept here, and clients of this broker that belong to groups."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        durables: Durables,
        post: Post,
        effects: list[Effect],
        elsewhere: OtherHomes,
        is_ready: Callable[[int], bool],
        new_version: Callable[[int], int],
        bury: Bury,
        users: UserTable,
        now_ns: int,
    ) -> None:
        self._host = host
        self._settings = settings
        self._durables = durables
        self._post = post
        self._effects = effects
        self._bury = bury
        self._users = users
        self._elsewhere = elsewhere
        self._is_ready = is_ready
        self._new_version = new_version
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._groups: dict[str, _Group] = {}
        self._by_session: dict[int, _Group] = {}
        self._members: dict[int, _Membership] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._of_user = Tally(MAX_MEMBERS, MAX_MEMBERS_OF_USER)
        self.redelivered = self.handed_back = 0
        post.deals_with(Join, self._on_join)
        post.deals_with(Give, self._on_give)
        post.deals_with(Took, self._on_took)
        post.deals_with(Return, self._on_return)
        for durable in list(durables.here.values()):
            if durable.client_id.startswith(GROUP):
                self._serve(durable, now_ns)

    # --- members ---

    def subscribe(self, given: Subscribe, now_ns: int) -> None:
        """A client joins a group."""
        if not 0 < len(given.group) <= MAX_GROUP_NAME or not given.group.isprintable() or "/" in given.group:
            raise LocalProtocolError(
                f"group {given.group[:80]!r}: expected 1 to {MAX_GROUP_NAME} printable characters without a slash"
            )
        if (given.session, given.subscription) in self._numbers:
            raise LocalProtocolError(f"subscription {given.subscription}: the number is in use")
        user = self._users.of(given.session, "")
        self._of_user.admit(user, f"subscription {given.subscription} as a member of a group")
        want = make_want(given.engine, given.constraint, given.scope)
        if not 1 <= given.scope <= len(self._host):
            raise LocalProtocolError(f"scope {given.scope}: expected 1 (the cluster) to {len(self._host)} (the system)")
        create_engine(want.kind).add(0, want.constraint, 0)  # raises for what cannot be read: its home may be elsewhere
        group = group_id(given.group, want)
        name = given.durable or "~"
        member = _Membership(given.session, given.subscription, given, group, name, user, now_ns, now_ns)
        # Never given before, also not in a former life: the home would take this one for a member that is gone.
        number = self._new_version(now_ns)
        self._members[number] = member
        self._numbers[given.session, given.subscription] = number
        self._of_user.add(user)
        try:
            self._seek(number, member, now_ns)
        except LocalProtocolError:  # there is no room to keep the group here
            self._drop(number, member)
            raise

    def _drop(self, number: int, member: _Membership) -> None:
        del self._members[number], self._numbers[member.session, member.subscription]
        self._of_user.add(member.user, -1)

    def _seek(self, number: int, member: _Membership, now_ns: int) -> None:
        """Join the group where it is kept, or keep it here where nobody does; who cannot know that yet looks again."""
        if member.group not in self._groups and not member.is_known:
            if not self._is_ready(now_ns):
                member.joined_ns = now_ns - JOIN_NS + LOOK_NS
                return
            if now_ns >= member.heard_ns + self._patience_ns(member.group, now_ns):
                self._make(member, now_ns)
        member.is_known = False
        self._join(number, member, now_ns)

    def _patience_ns(self, group: str, now_ns: int) -> int:
        """How long to wait for an answer before the group is kept here."""
        if not self._elsewhere.may_exist(group, now_ns):
            return 0
        return LOST_NS if self._elsewhere.is_announced(group) else GONE_NS

    def _make(self, member: _Membership, now_ns: int) -> None:
        """Keep the group here."""
        given = member.given
        session = self._durables.new_session()
        wanted = Subscribe(
            session, 1, given.engine, given.constraint, given.scope, durable=given.durable or "group", ack="manual"
        )
        # A home that is lost is replaced, whatever there is room for: its members were told that all is well.
        durable = self._durables.subscribe(
            wanted,
            member.group,
            self._new_version(now_ns),
            False,
            now_ns,
            was_accepted=member.was_known or member.was_promised,
            owner=self._users.of(member.session, member.group),
        )
        self._enter(durable, session)

    def _serve(self, durable: Durable, now_ns: int) -> None:
        """Read a group that is kept here since before."""
        session = self._durables.new_session()
        wanted = Subscribe(
            session, 1, durable.engine, durable.constraint, durable.scope, durable=durable.name, ack="manual"
        )
        group = self._enter(durable, session)
        group.empty_ns = now_ns
        self._durables.subscribe(wanted, durable.client_id, durable.version, False, now_ns, was_accepted=True)

    def _enter(self, durable: Durable, session: int) -> _Group:
        group = _Group(durable, session)
        self._groups[durable.client_id] = self._by_session[session] = group
        return group

    def _join(self, number: int, member: _Membership, now_ns: int) -> None:
        member.joined_ns = now_ns
        message = Join(member.group, number, ROOM, member.rights)
        if member.group in self._groups:
            self._on_join(message, self._host, now_ns)
        else:
            self._post.send(home_id(member.group), message, now_ns)

    def asked(self, session: int, subscription: int) -> tuple[str, Constraint, int] | None:
        """What a client here shares under this number, if anything."""
        number = self._numbers.get((session, subscription))
        if number is None:
            return None
        given = self._members[number].given
        return given.engine, given.constraint, given.scope

    def leave(self, session: int, subscription: int, now_ns: int) -> bool:
        """A client leaves; False when it shares nothing under this number."""
        number = self._numbers.pop((session, subscription), None)
        if number is None:
            return False
        member = self._members.pop(number)
        self._of_user.add(member.user, -1)
        message = Join(member.group, number, 0)
        if member.group in self._groups:
            self._on_join(message, self._host, now_ns)
        else:
            self._post.send(home_id(member.group), message, now_ns)
        return True

    def closed(self, session: int, now_ns: int) -> None:
        for key in [key for key in self._numbers if key[0] == session]:
            self.leave(*key, now_ns)

    def acknowledge(self, given: Acknowledge, now_ns: int) -> bool:
        """A member has these for good; False when it is none."""
        number = self._numbers.get((given.session, given.subscription))
        if number is None:
            return False
        member = self._members[number]
        keys = tuple((each.publisher.encode(), *each[1:]) for each in given.ids)
        message = Took(member.group, number, keys)
        if member.group in self._groups:
            self._on_took(message, self._host, now_ns)
        else:
            self._post.send(home_id(member.group), message, now_ns)
        return True

    def hand_back(self, session: int, subscription: int, frame: EventFrame, now_ns: int) -> bool:
        """A client may not have what it was to be handed as a member; False when it is none."""
        number = self._numbers.get((session, subscription))
        if number is None:
            return False
        group, data = self._members[number].group, self._codec.encode(frame, 0)
        if group in self._groups:
            self._take_back(self._groups[group], (self._host, number), frame, now_ns)
        else:
            self._post.send(home_id(group), Return(group, number, data), now_ns, reliable=frame.reliable)
        return True

    def rights_changed(self, session: int, now_ns: int) -> None:
        """What a client may read is not what it was: it may have now what it was denied."""
        for key, number in self._numbers.items():
            if key[0] == session:
                member = self._members[number]
                member.rights += 1
                self._join(number, member, now_ns)

    def _on_give(self, message: Give, origin: Address, now_ns: int) -> None:
        member = self._members.get(message.member)
        if member is None or member.group != message.group:
            return  # it has left, and the home has heard of it or will
        if not member.was_known:
            self._effects.append(Active(member.session, member.subscription, member.given.scope))
        member.is_known = member.was_known = True
        member.heard_ns = now_ns
        if not message.frame:
            return
        try:
            frame = self._codec.read(message.frame)
            frame.event()  # its tail may be broken too
        except VeenaError:
            return
        # What it is given in the wrong order is out of its order for it too, as far as one can tell here.
        self._hand(member, frame.late_copy() if self._post.is_late else frame)

    def _hand(self, member: _Membership, frame: EventFrame) -> None:
        self._effects.append(Deliver(frame, ((member.session, (member.subscription,)),)))

    # --- the home ---

    def _on_join(self, message: Join, origin: Address, now_ns: int) -> None:
        group = self._groups.get(message.group)
        if group is None:
            return
        member = (origin, message.member)
        if message.room == 0:
            self._part(group, member, now_ns)
            return
        if group.turns.hear(member, message.rights, now_ns):
            self._durables.wake(group.durable)
            group.empty_ns = None
        self._confirm(group, member, now_ns)
        self._deal(group, now_ns)

    def _confirm(self, group: _Group, member: Member, now_ns: int) -> None:
        """Tell a member how far its group is acknowledged; elsewhere it hears so that it has a home."""
        address, number = member
        if address == self._host:
            found = self._members[number]
            found.was_promised = found.was_promised or group.level >= group.durable.scope
            if group.level:
                self._effects.append(Active(found.session, found.subscription, group.level))
        elif group.level >= group.durable.scope:
            self._post.send(broker_id(address), Give(group.durable.client_id, number, b""), now_ns)

    def active(self, found: list[Active], now_ns: int) -> list[Active]:
        """Of these, those for clients; those for groups are told to their members."""
        for each in found:
            group = self._by_session.get(each.session)
            if group is not None:
                group.level = each.level
                for member in group.turns.members:
                    self._confirm(group, member, now_ns)
        return [each for each in found if is_clients(each.session)]

    def _part(self, group: _Group, member: Member, now_ns: int) -> None:
        """A member is gone: what it had is for others."""
        if member not in group.turns.members:
            return
        self.redelivered += group.turns.part(member)
        if not group.turns.members:
            group.empty_ns = now_ns
        self._deal(group, now_ns)

    def on_group_event(self, session: int, frame: EventFrame, now_ns: int) -> None:
        """An event for a group that is kept here. One that is best effort is for who is there, and not waited for."""
        group = self._by_session[session]
        if frame.reliable:
            group.turns.waiting.append(frame)
            self._deal(group, now_ns)
        else:
            self._give_once(group, frame, now_ns)

    def _give_once(self, group: _Group, frame: EventFrame, now_ns: int) -> None:
        """Give a best-effort event to a member that may have it, if there is one."""
        member = group.turns.next_for(frame)
        if member is not None:
            self._give(group, member, frame, now_ns)

    def _deal(self, group: _Group, now_ns: int) -> None:
        """Deal out what waits, as far as there is room."""
        is_parking = False
        for member, frame in group.turns.deal(now_ns):
            if member is None:
                group.durable.park(event_key(frame))
                is_parking = True
            else:
                self._give(group, member, frame, now_ns)
        if is_parking:
            self._durables.handing.pump(group.durable)

    def _give(self, group: _Group, member: Member, frame: EventFrame, now_ns: int) -> None:
        address, number = member
        if address == self._host:
            self._hand(self._members[number], frame)
        else:
            message = Give(group.durable.client_id, number, self._codec.encode(frame, 0))
            self._post.send(broker_id(address), message, now_ns, reliable=frame.reliable)

    def _on_took(self, message: Took, origin: Address, now_ns: int) -> None:
        group = self._groups.get(message.group)
        if group is None:
            return
        keys = group.turns.taken((origin, message.member), message.keys)
        self._durables.handing.acknowledge(group.durable, keys, now_ns)
        self._deal(group, now_ns)

    def _on_return(self, message: Return, origin: Address, now_ns: int) -> None:
        group = self._groups.get(message.group)
        if group is None:
            return
        try:
            frame = self._codec.read(message.frame)
            frame.event()  # its tail may be broken too
        except VeenaError:
            return
        self._take_back(group, (origin, message.member), frame, now_ns)

    def _take_back(self, group: _Group, member: Member, frame: EventFrame, now_ns: int) -> None:
        """A member may not have an event: it is for another one, and the member is dealt none like it."""
        if member not in group.turns.members:
            return  # what it had went to others when it left
        group.turns.hand_back(member, frame)
        self.handed_back += 1
        if frame.reliable:
            self._deal(group, now_ns)
        else:
            self._give_once(group, frame.late_copy(), now_ns)

    def on_left(self, durable: Durable, now_ns: int) -> None:
        """A group went to another home: its members here ask for it there."""
        group = self._groups.pop(durable.client_id, None)
        if group is not None:
            del self._by_session[group.session]
            for number, member in self._members.items():
                if member.group == durable.client_id:
                    self._join(number, member, now_ns)

    def on_suspension(self, durable: Durable) -> None:
        """Members here are told whether more is kept for their group."""
        group = self._groups.get(durable.client_id)
        for address, number in () if group is None else group.turns.members:
            if address == self._host:
                found = self._members[number]
                self._effects.append(self._durables.charges.state_now(durable, found.session, found.subscription))

    # --- time ---

    def tick(self, now_ns: int) -> None:
        for number, member in list(self._members.items()):
            if now_ns >= member.joined_ns + JOIN_NS and member.group not in self._groups:
                try:
                    self._seek(number, member, now_ns)
                except LocalProtocolError as error:
                    self._drop(number, member)
                    self._effects.append(ClientRefused(member.session, member.subscription, error.code, str(error)))
        for group in list(self._groups.values()):
            for key, place in list(group.turns.members.items()):
                if key[0] != self._host and now_ns >= place.heard_ns + GONE_NS:
                    self._part(group, key, now_ns)
            self._give_up(group, now_ns)
            if self._has_ended(group, now_ns):
                del self._groups[group.durable.client_id], self._by_session[group.session]
                self._durables.remove(group.durable, now_ns)

    def _give_up(self, group: _Group, now_ns: int) -> None:
        """What nobody in the group was allowed to have for the retention is a dead letter."""
        retention_ns = self._settings.retention_ns
        for frame in group.turns.denials.overdue(now_ns - retention_ns):
            reason = (
                f"no member of {group.durable.client_id} was allowed to have it within the retention of"
                f" {retention_ns // SECOND_NS} s, or before too many such events waited"
            )
            self._durables.handing.acknowledge(group.durable, (event_key(frame),), now_ns)
            self._bury(frame, (self._host,), reason, now_ns)

    def _has_ended(self, group: _Group, now_ns: int) -> bool:
        return (
            group.empty_ns is not None
            and group.durable.name == "group"
            and now_ns >= group.empty_ns + max(self._settings.grace_ns, GONE_NS)
        )

    def next_wakeup(self) -> int | None:
        due = [each.joined_ns + JOIN_NS for each in self._members.values() if each.group not in self._groups]
        for group in self._groups.values():
            due += [place.heard_ns + GONE_NS for (at, _), place in group.turns.members.items() if at != self._host]
            overdue_ns = group.turns.denials.next_wakeup(self._settings.retention_ns)
            due += [] if overdue_ns is None else [overdue_ns]
            if group.empty_ns is not None and group.durable.name == "group":
                due.append(group.empty_ns + max(self._settings.grace_ns, GONE_NS))
        return min(due, default=None)

    def parked(self) -> int:
        """How many events are kept here that no member may have who is there."""
        return sum(len(group.turns.denials.parked) for group in self._groups.values())

    def check(self) -> None:
        assert len(self._members) == len(self._numbers) == self._of_user.count
        for group in self._groups.values():
            for (address, number), place in group.turns.members.items():
                assert len(place.given) <= ROOM
                assert address != self._host or number in self._members
            group.turns.denials.check()
