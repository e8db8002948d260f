"""Refusals whose text says nothing: a client must do the same, because only codes decide.

A test that asks for the fixture `wording` runs twice: with the texts as the brokers word them, and with one word in the
place of each text, both where the core hands it to the runtime and where the runtime puts it on the wire. So neither
broker nor client can read anything out of it. The brokers must run in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest

from veena.core.boundary.discovery import AdvertRefused, QueryRefused
from veena.core.boundary.explain import ExplainRefused
from veena.core.boundary.inputs_effects import ClientRefused, PublishRefused, ToClient
from veena.core.boundary.requests import Unanswered
from veena.core.wire.client import (
    Farewell,
    Pause,
    TellAdvertRefused,
    TellDenied,
    TellRedirect,
    TellRefused,
    TellUnanswered,
)
from veena.core.wire.codec import encode
from veena.core.wire.control import Frame, Goodbye
from veena.runtime.clients.service import Conversations

WORD = "no"
#: Every frame to a client with a text for people.
WORDED = (Farewell, Goodbye, Pause, TellAdvertRefused, TellDenied, TellRedirect, TellRefused, TellUnanswered)

#: Every refusal by the core.
REFUSALS = (AdvertRefused, ClientRefused, ExplainRefused, PublishRefused, QueryRefused, Unanswered)


class Wording:
    """How brokers word what they refuse."""

    def __init__(self, is_plain: bool) -> None:
        self.is_plain = is_plain
        #: How many texts were replaced.
        self.replaced = 0

    def of(self, pattern: str) -> str:
        """What the text of a refusal matches."""
        return pattern if self.is_plain else rf"(^|\W){WORD}$"

    def encode(self, frame: Frame, number: int) -> bytes:
        """As `wire.encode`, with the one word."""
        if isinstance(frame, WORDED):
            frame = msgspec.structs.replace(frame, reason=WORD)
            self.replaced += 1
        return encode(frame, number)


@pytest.fixture(params=["as written", "one word"])
def wording(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wording]:
    found, tell = Wording(request.param == "as written"), Conversations.tell

    def tell_in_one_word(clients: Conversations, effects: Sequence[ToClient]) -> None:
        tell(clients, [replace(each, reason=WORD) if isinstance(each, REFUSALS) else each for each in effects])

    if not found.is_plain:
        monkeypatch.setattr(Conversations, "tell", tell_in_one_word)
        for module in ("clients.conversation", "broker.locator"):
            monkeypatch.setattr(f"veena.runtime.{module}.encode", found.encode)
    yield found
    assert found.is_plain or found.replaced, "nothing was refused: this test shows nothing about codes"
