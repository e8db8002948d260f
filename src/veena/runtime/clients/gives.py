"""What conversations use of others: the driver, which gives inputs to the core, and the tables for readers outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from veena.core.boundary.inputs_effects import Input
from veena.core.delivery.match_cache import Receivers
from veena.core.wire.burst import EventBurst
from veena.event import Event
from veena.matching.base.engine import Constraint

Who_contra = TypeVar("Who_contra", contravariant=True)


class Gives(Protocol):
    """The driver, as far as conversations use it."""

    def give(self, given: Input) -> None:
        """Hand an input to the core, which answers through `Conversations.tell`."""

    def again(self, session: int, burst: EventBurst) -> Receivers | None:
        """Who gets a burst like one before it, if nothing else follows from it; None where it has to be given."""

    def asked(self, session: int, subscription: int) -> tuple[str, Constraint, int] | None:
        """Engine, constraint and scope of a subscription; None if there is none."""

    def watched(self, session: int) -> Sequence[tuple[int, Event]]:
        """The events that a session watches, with their numbers, as engines see them."""

    def new_session(self) -> int:
        """A number that no session has had."""


class Tables(Protocol[Who_contra]):
    """The service that shows the broker's tables to readers outside, as far as conversations use it."""

    def ask(self, who: Who_contra, frame: Any) -> None:
        """Deal with a reader's question."""

    def is_reading(self, who: Who_contra) -> bool:
        """Whether blocks of a table are on their way to this client."""

    def cleared(self, who: Who_contra) -> None:
        """The client reads again."""

    def left(self, who: Who_contra) -> None:
        """The client is gone."""

    def judged(self, who: Who_contra) -> None:
        """The rights of the client changed."""
