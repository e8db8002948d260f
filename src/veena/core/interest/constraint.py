"""A want: one distinct constraint, as it is told from broker to broker.

Many clients may have the same constraint; what travels is the constraint once, with the engine that reads it and how
far it may be told (its scope). Two wants are the same exactly when engine, constraint and scope are, and their key is a
hash of the three, so that tables need not hold texts to compare them.

The scope is a level: 1 is the cluster of the client, the number of levels the whole system. A want of scope s is told
inside the client's level-s unit and nowhere else: a unit of level l passes on upwards only wants with s > l (PRF-10).

A want of kind `to` is a client that can be written to by its id (`recipient_engine`); brokers make it, no subscription
does.

A *former* want asks for the same as another one, but only for events that have been under way for a while. A broker
from which a durable subscription has gone tells it, for as long as origins may still send what they accepted before
they heard where it is now (`durable.handover`): each unit on the way asks again who wants an event, and it would be
nobody.

`covers` says that whoever gets what the wide want asks for gets what the narrow one does: the same topic without a
selector, a wider range, a tag left open; and the wide one must reach at least as far. Never wrongly true.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec

from veena import matching
from veena.core.interest.recipient_engine import AddresseeEngine
from veena.core.wire.header import DECODE_ERRORS
from veena.core.wire.interest import MAX_CONSTRAINT_BYTES, STANDING, Row, Version
from veena.errors import InvalidConstraint, RemoteProtocolError
from veena.matching.base.engine import Constraint, Engine
from veena.matching.base.exact import ExactEngine
from veena.matching.covering.form import EVERYTHING, VALUE, Form, Plain, plain, plain_covers
from veena.matching.simple.integer import check_integer

#: The engines by the number they have on the wire; a number is never used again.
KINDS: tuple[str, ...] = ("integer", "topic", "tags", "selector", "xpath", "constraint", "to")
INTEGER, TOPIC, TAGS, SELECTOR, XPATH, CONSTRAINT, TO = range(len(KINDS))
#: Added to a kind: of events that are new the want asks for none.
FORMER = 0x10
_ENGINE = FORMER - 1
#: How long after it was asked to let go an old home withdraws, and how long an event has been under way that is old: it
#: may have been accepted by somebody who had not heard of the new home. Clocks may differ by what lies between the two.
#: They are the same for all brokers, whatever their settings, since one relies on the other.
WITHDRAW_NS = 5_000_000_000
OLD_NS = 2_500_000_000
#: What a client may subscribe with: somebody's id is no constraint of others.
SUBSCRIBED: tuple[str, ...] = KINDS[:TO]

#: 120 bits; with one more byte a key would take 64 bytes of memory instead of 48.
KEY_BYTES = 15
#: What a selector may ask for that is another one for every event.
UNTIMELY = (b"JMSTimestamp", b"JMSMessageID")
#: Constraints that are remembered as read: those of a super-cluster, 200 bytes each.
READ_CACHE = 1 << 14

_encoder = msgspec.msgpack.Encoder(order="sorted")
_topics = msgspec.msgpack.Decoder(str)
_decoder = msgspec.msgpack.Decoder(int | str | tuple[str, str | dict[str, str]])


#: Kind and scope of a want; which of the host's offices have to tell it, a bit a level; and under which versions it was
#: told of the host itself and of its cluster (`announced`).
Stand = tuple[int, int, int, Version | None, Version | None]


@lru_cache(maxsize=1024)
def nowhere(kind: int, scope: int) -> Stand:
    """How a want stands that no table holds."""
    return (kind, scope, 0, None, None)


#: In place of the offices: the want stands in many tables, and no table may change it.
SHARED = -1


@lru_cache(maxsize=1024)
def _shared(kind: int, scope: int) -> Stand:
    return (kind, scope, SHARED, None, None)


class Want(msgspec.Struct, gc=False, eq=False):
    """Engine, constraint and scope. One object is shared by all that count it: of a hundred thousand topics every field
    counts, and the text of a topic is the one that the engines look up."""

    #: A topic as it is; any other constraint, and a topic that was not packed as we do it, as msgpack.
    packed: str | bytes
    key: bytes
    #: The only one that changes, and `announced` alone changes it: a table beside would cost more than the want.
    stand: Stand

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Want) and self.key == other.key

    def __hash__(self) -> int:
        raise TypeError("a want is known by its key")

    @property
    def kind(self) -> int:
        return self.stand[0]

    @property
    def scope(self) -> int:
        return self.stand[1]

    @property
    def payload(self) -> bytes:
        """The constraint as msgpack, byte for byte as it was told: its hash is the key."""
        return self.packed if isinstance(self.packed, bytes) else _encoder.encode(self.packed)

    @property
    def asked(self) -> tuple[int, bytes, int]:
        """What was asked for: the kind, the constraint as msgpack, and the scope."""
        return (self.kind, self.payload, self.scope)

    @property
    def base(self) -> int:
        """The kind of constraint, whichever events it is for."""
        return self.kind & _ENGINE

    @property
    def engine(self) -> str:
        return KINDS[self.base]

    @property
    def constraint(self) -> Constraint:
        if isinstance(self.packed, str):
            return self.packed
        return _constraint(self.packed)

    @property
    def is_untimely(self) -> bool:
        """Whether it may tell two events apart by when they were published, or by their ids. Never wrongly false."""
        return self.base == SELECTOR and any(name in self.payload for name in UNTIMELY)

    @property
    def bucket(self) -> bytes:
        """Wants in different buckets never cover each other: topics and client ids by name, the rest by engine."""
        if self.base == TOPIC:
            return self.payload
        if self.base == SELECTOR:
            return _topic(self.payload)
        return bytes((self.base,)) + (self.payload if self.kind == TO else b"")

    def topic_keys(self, scopes: int) -> list[bytes]:
        """The keys of the wants of its bucket that ask for a topic without a selector, one a scope: such wants, the
        most by far, are found without an index."""
        if self.base not in (TOPIC, SELECTOR):
            return []
        topic = self.bucket
        return [key_of(TOPIC, topic, scope) for scope in range(1, scopes + 1)]


def create_engine(kind: int) -> Engine:
    """An empty engine for the wants of this kind."""
    return AddresseeEngine() if kind == TO else matching.create(KINDS[kind & _ENGINE])


def is_kind(kind: int) -> bool:
    """Whether a want may be of this kind; a client's id is wanted or not, there is nothing former about it."""
    return kind < len(KINDS) or FORMER <= kind < FORMER | TO


def add_profile(engine: Engine, profile_id: int, want: Want, destination: int = 0) -> None:
    """Let an engine match a want for somebody who keeps it, and who hands it back with `remove_profile`."""
    if isinstance(engine, ExactEngine):
        engine.hold(profile_id, want.constraint, destination)
    else:
        engine.add(profile_id, want.constraint, destination)


def remove_profile(engine: Engine, profile_id: int, want: Want) -> None:
    if isinstance(engine, ExactEngine):
        engine.drop(profile_id, want.constraint)
    else:
        engine.remove(profile_id)


def make_want(engine: str, constraint: Constraint, scope: int) -> Want:
    """The want of a subscription. Whether its text can be read says the engine that stores it."""
    if engine not in SUBSCRIBED:
        raise InvalidConstraint(str(constraint), 0, f"engine {engine!r}: expected one of {', '.join(SUBSCRIBED)}")
    kind = KINDS.index(engine)
    if kind == SELECTOR and isinstance(constraint, tuple) and not str(constraint[1]).strip():
        kind, constraint = TOPIC, constraint[0]  # an empty selector is the topic alone (MAT-21)
    payload = _encoder.encode(constraint)
    if len(payload) > MAX_CONSTRAINT_BYTES:
        raise InvalidConstraint(str(constraint), 0, f"a constraint has at most {MAX_CONSTRAINT_BYTES} bytes")
    return keyed_want(kind, payload, scope)


def former_want(want: Want) -> Want:
    """What asks for the same of events that have been under way for a while."""
    return keyed_want(want.kind | FORMER, want.payload, want.scope)


def reach_want(client_id: str, scope: int) -> Want:
    """The want of a client that can be written to by its id."""
    return keyed_want(TO, _encoder.encode(client_id), scope)


def known_want(row: Row) -> Want:
    """The want of a row of the table: its key was compared when it came in (`want_of`)."""
    if not row.wanted or row.kind == STANDING:
        return Want(row.payload, row.key, nowhere(row.kind, row.scope))  # a name that nobody else uses
    return _known(row.kind, row.payload, row.key, row.scope)


def want_of(row: Row) -> Want:
    """The want that a row tells of; raise RemoteProtocolError if it is none."""
    if not is_kind(row.kind):
        raise RemoteProtocolError(f"a row of {row.unit} names engine {row.kind}: there is no such engine")
    want = keyed_want(row.kind, row.payload, row.scope)
    if want.key != row.key:
        raise RemoteProtocolError(f"a row of {row.unit} has a key that is not the hash of its constraint")
    return want


def keyed_want(kind: int, payload: bytes, scope: int) -> Want:
    """The want of these three; what the payload holds is not looked at."""
    return Want(_packed(kind, payload), key_of(kind, payload, scope), nowhere(kind, scope))


def _packed(kind: int, payload: bytes) -> str | bytes:
    """What a want keeps of its constraint."""
    if kind != TOPIC:
        return payload
    try:
        topic = _topics.decode(payload)
    except DECODE_ERRORS:
        return payload
    return topic if _encoder.encode(topic) == payload else payload


@lru_cache(maxsize=READ_CACHE)
def _known(kind: int, payload: bytes, key: bytes, scope: int) -> Want:
    """Several units tell the same want: it is held once."""
    return Want(_packed(kind, payload), key, _shared(kind, scope))


def key_of(kind: int, payload: bytes, scope: int) -> bytes:
    return blake2b(bytes((kind, scope)) + payload, digest_size=KEY_BYTES, person=b"veena-want").digest()


@lru_cache(maxsize=READ_CACHE)
def unreadable(kind: int, payload: bytes) -> str | None:
    """Why the engine of this kind cannot read a constraint; None if it can. Several units tell the same want."""
    reader = _reader(kind)
    try:
        reader.add(0, _decoder.decode(payload), 0)
    except (*DECODE_ERRORS, InvalidConstraint) as error:
        return str(error)
    reader.remove(0)
    return None


@lru_cache(maxsize=2 * len(KINDS))
def _reader(kind: int) -> Engine:
    """An engine that holds nothing: it knows the shapes of texts that it has read, a new one would begin anew."""
    return create_engine(kind)


@lru_cache(maxsize=READ_CACHE)
def _constraint(payload: bytes) -> Constraint:
    """Read once, though asked for by several tables; never changed."""
    constraint: Constraint = _decoder.decode(payload)
    return constraint


@lru_cache(maxsize=READ_CACHE)
def _topic(payload: bytes) -> bytes:
    """The topic of a selector, packed: the name of its bucket."""
    return _encoder.encode(_constraint(payload)[0])  # type: ignore[index]


# --- what stands for what ---

#: Scope, whether it is for old events only, and whether it is a topic: that one covers selectors, and none covers it.
Lane = tuple[int, bool, bool]


def lane_of(want: Want) -> Lane:
    kind, scope = want.stand[:2]
    return scope, kind & FORMER > 0, kind & _ENGINE == TOPIC


def admits(wide: Lane, narrow: Lane) -> bool:
    """Whether a want of one lane may stand for one of the other at all."""
    return wide[0] >= narrow[0] and wide[1] <= narrow[1] and (wide[2] or not narrow[2])


def form_of(want: Want) -> Form:
    """What of a want is compared with others of its bucket; raise InvalidConstraint, or one of DECODE_ERRORS."""
    base = want.base
    return EVERYTHING if base in (TOPIC, TO) else _form(base, want.payload)


@lru_cache(maxsize=READ_CACHE)
def _form(base: int, payload: bytes) -> Form:
    """Read once, though compared at several levels; never changed."""
    constraint = _constraint(payload)
    if base == KINDS.index("integer"):
        return plain([("#", VALUE, check_integer(constraint))])
    return matching.cover_form(KINDS[base], constraint)


def covers(wide: Want, narrow: Want) -> bool:
    """Whether nobody loses anything when only the wide want is told."""
    if not admits(lane_of(wide), lane_of(narrow)):
        return False
    if (wide.base, wide.payload) == (narrow.base, narrow.payload):
        return True
    if wide.bucket != narrow.bucket or wide.base == TO:
        return False
    if wide.base == TOPIC:
        return True
    one, other = form_of(wide), form_of(narrow)
    if isinstance(one, Plain) and isinstance(other, Plain):
        return plain_covers(one, other)
    return matching.covers(wide.engine, wide.constraint, narrow.constraint)
