"""What traders are told and say: there and back, and whatever else comes is refused without harm."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import Event
from veena.errors import InvalidConstraint, InvalidEvent, Refused
from veena.event import EventId
from veena.services.domain.aggregation_messages import read_interest
from veena.services.trading.messages import (
    MAX_LIMIT,
    MAX_REPLY_BYTES,
    Question,
    Reply,
    encode_error,
    encode_found,
    merged,
    read_question,
    read_reply,
)
from veena.services.trading.offers import Found, Offer

QUESTION = Question("id", "Application", "name == 'x'")
OFFER = Offer("Application", "1/heat", {"name": "heat", "load": 0.5, "up": True}, "alice", "heat", {"shape": [1, 2]})
ID = EventId("alice", 1, 2, 3)


def carrying(body: bytes, **properties: object) -> Event:
    return Event(body=body, properties=properties, event_id=ID)  # type: ignore[arg-type]


def test_an_answer_comes_back_as_it_was() -> None:
    """TRD-06."""
    found = Found((OFFER,), ("trader x (there is none)",), forwarded=True)
    read = read_reply(carrying(encode_found("rome", found)), QUESTION)
    assert read == Found(found.offers, found.missing, forwarded=True, answered_by="rome")
    asked = Question("id", "Application", "", 3, ("a",), 7, 2, ("b", "1"), 900)
    assert read_question(carrying(msgspec.msgpack.encode(asked))) == asked


def test_errors_come_back_with_their_places() -> None:
    """TRD-02."""
    body = encode_error("rome", InvalidConstraint("name = 'x'", 5, "write =="))
    with pytest.raises(InvalidConstraint) as caught:
        read_reply(carrying(body), QUESTION)
    assert (caught.value.position, caught.value.text) == (5, QUESTION.constraint)
    with pytest.raises(Refused, match="trader rome: too much"):
        read_reply(carrying(encode_error("rome", InvalidEvent("too much"))), QUESTION)


def test_an_answer_is_bounded() -> None:
    """DIS-12: what does not fit is left out and said to be."""
    large = [Offer("A", f"1/{number}", {"x": "y" * 1500}, "alice", str(number)) for number in range(MAX_LIMIT + 1)]
    body = encode_found("rome", Found(tuple(large)))
    assert len(body) < MAX_REPLY_BYTES + 4096
    read = read_reply(carrying(body), QUESTION)
    assert read.truncated and not read.complete and 100 < len(read.offers) < MAX_LIMIT


def test_answers_are_merged_each_offer_once() -> None:
    """TRD-08: several links may know of one application."""
    other = Offer("Application", "2/oil", {}, "bob", "oil")
    parts = [Found((OFFER,)), Found((other, OFFER)), Found()]
    assert merged(parts, 5) == ((OFFER, other), False)
    assert merged(parts, 1) == ((OFFER,), True)


_things = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 1 << 62), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=9), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=20,
)


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=80), _things.map(msgspec.msgpack.encode)))
def test_whatever_else_comes_is_refused(body: bytes) -> None:
    """TRD-06: nothing but the error that is said to the asker."""
    with contextlib.suppress(InvalidEvent):
        assert isinstance(read_question(carrying(body)), Question)
    with contextlib.suppress(Refused, InvalidConstraint):
        assert isinstance(read_reply(carrying(body), QUESTION), Found)


@settings(max_examples=100)
@given(st.sampled_from(["", "1/", "/heat", "-1/heat", "x/heat", "1", "9" * 200 + "/a"]), st.text(max_size=20))
def test_offers_that_are_none_are_refused(reference: str, details: str) -> None:
    rows = [["A", reference or "?", "alice", "heat", {}, details]]
    body = msgspec.msgpack.encode(["rome", rows])
    try:
        read = read_reply(carrying(body), QUESTION)
    except Refused:
        return
    assert all(offer.network >= 0 and offer.application for offer in read.offers)
    assert msgspec.msgpack.decode(body, type=Reply).trader == "rome"


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(["member", "network", "application", "constraint"]),
        st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.sampled_from(["", "x", "alice#1", "bob#1"])),
    )
)
def test_interests_are_those_of_who_tells_them(properties: dict[str, object]) -> None:
    """AGG-01: complete, and nobody speaks for another client."""
    try:
        interest = read_interest(carrying(b"", **properties))
    except InvalidEvent:
        return
    assert interest.member == "alice#1" and interest.network >= 0 and interest.application
