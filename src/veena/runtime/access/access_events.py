"""A broker tells who came in and who was refused what, as events of type `Access` (DIC-11, DIS-05).

It knows for certain: it checks credentials and rights itself, and the events are published under its own name,
`veena/access/BROKER`, which is nobody's user. They are ordinary structured events, reliable, so that who keeps a record
of them gets each once. Who may read them the rules of access decide: the type is guarded.

| event | fields |
|---|---|
| `login` | `by`, the client's id; `user`; `category`, the user's first role; `broker` |
| `refused` | `by`; `user`; `action`: `attach`, `publish` or `ask`; `reason`, as the client was told it; `broker` |

What clients can cause at will must not become a burden for others: beyond `PER_SECOND` they are counted and not told.
Nothing waits for them, and a broker without `[auth] tell` publishes none.

Rejected: events by the clients themselves, or by a service that they ask. A record of who was refused that depends on
their word is none.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal

from veena.core.boundary.inputs_effects import ClientUp, Input, Publish, Welcome
from veena.core.interest.eligibility import NO_DEVICE
from veena.core.wire.event import EventCodec
from veena.errors import InvalidEvent
from veena.event import Event, IdGenerator, Value
from veena.runtime.access.limits import Bucket

TYPE: Final = "Access"
PUBLISHER: Final = "veena/access/"
#: Events a second, over a few seconds: more than people cause, less than a network notices.
PER_SECOND: Final = 50
#: What waits while the core has not let the teller in, which takes a turn of the loop.
MAX_WAITING: Final = 256
#: Characters of a field: a client chooses its id, and a reason may quote what it sent.
MAX_TEXT: Final = 255
MAX_REASON: Final = 1024

#: The session of a teller while there is no core.
NOBODY: Final = -1

Action = Literal["attach", "publish", "ask"]


class AccessEvents:
    """The teller of one broker: a publisher in its core, without a connection.

    `new_session` gives it a session of its own; `give` hands an input to the core when the core is not at work.
    """

    def __init__(
        self,
        broker: str,
        codec: EventCodec,
        clock: Callable[[], float],
        new_session: Callable[[], int],
        give: Callable[[Input], None],
    ) -> None:
        self._broker = broker
        self._codec = codec
        self._clock = clock
        self._new_session = new_session
        self._give = give
        self.session = 0
        self._ids: IdGenerator | None = None
        self._waiting: deque[Event] = deque()
        self._bucket = Bucket(PER_SECOND, clock())
        self.told = self.untold = 0

    def came_in(self, client_id: str, user: str, category: str) -> None:
        self._tell("login", {"by": client_id, "user": user, **({"category": category} if category else {})})

    def refused(self, client_id: str, user: str, action: Action, reason: str) -> None:
        """Who gives another's name is told under that name: nobody has shown to be anybody then."""
        self._tell(
            "refused", {"by": client_id or "?", "user": user, "action": action, "reason": reason[:MAX_REASON] or "?"}
        )

    def welcomed(self, effect: Welcome) -> None:
        """The core has let the teller in."""
        self._ids = IdGenerator(self.name, effect.incarnation)
        self._flush()

    def wait(self) -> None:
        """There is no core now: keep what is to be told."""
        self.session, self._ids = NOBODY, None

    def attach_again(self) -> None:
        """There is a core again, and it knows nobody: attach to it before the next event."""
        self.session = 0
        if self._waiting:
            self._attach()

    def _attach(self) -> None:
        self.session = self._new_session()
        self._give(ClientUp(self.session, self.name, attributes={"device": NO_DEVICE}))

    @property
    def name(self) -> str:
        return f"{PUBLISHER}{self._broker}"

    def _tell(self, event: str, fields: Mapping[str, str]) -> None:
        if len(self._waiting) >= MAX_WAITING or self._bucket.take(1, self._clock()) > 0:
            self.untold += 1
            return
        properties: dict[str, Value] = {
            name: value if name == "reason" else value[:MAX_TEXT] for name, value in fields.items()
        }
        headers: dict[str, Value] = {"domain_name": self._broker, "type_name": TYPE, "event_name": event}
        self._waiting.append(Event(properties={**properties, "broker": self._broker}, headers=headers))
        if not self.session:
            self._attach()
        elif self._ids is not None:
            self._flush()

    def _flush(self) -> None:
        assert self._ids is not None
        while self._waiting:
            event = self._waiting.popleft()
            event_id = self._ids.next(time.time_ns())
            try:
                frame = self._codec.frame(event, reliable=True, event_id=event_id)
            except InvalidEvent:  # a text that no event may have
                self.untold += 1
                continue
            self.told += 1
            self._give(Publish(self.session, frame))
