"""Looking over somebody's shoulder, as far as pages are concerned: whom a person follows, and what that one sees.

People find each other in one room, which everybody enters who opens the page. Nobody is followed who has not agreed.
One for all pages of a person; what it shows is the newest field, the state of each application, and the last events.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from veena.dashboard.pictures.field import FieldPicture, field_picture
from veena.dashboard.sessions.collaboratory import Feed, Member
from veena.dashboard.sessions.watching import Message, record_text
from veena.errors import InvalidEvent, NotConnected, VeenaError
from veena.event import Event

#: Where those meet who let others follow, or want to.
LOBBY = "collaboratory"
MAX_LINES = 100
#: Applications whose state is shown.
MAX_APPLICATIONS = 16
#: Longer texts are cut.
MAX_LINE = 300


@dataclass(slots=True, eq=False)
class Followed:
    """What somebody else sees, from now on."""

    who: str
    feed: Feed
    #: By application: its state, step and driver.
    states: dict[str, str] = field(default_factory=dict)
    picture: FieldPicture | None = None
    #: The application that the picture is of, and its step.
    caption: str = ""
    lines: deque[Message] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    #: It grows with every event.
    seen: int = 0
    fields_seen: int = 0
    heard_at: float = 0.0

    def hear(self, event: Event) -> None:
        self.seen += 1
        self.heard_at = time.monotonic()
        told = event.properties
        application, name = (str(event.headers.get(header, "")) for header in ("domain_name", "event_name"))
        match name:
            case "field":
                self.fields_seen += 1
                try:
                    self.picture = field_picture(str(told.get("dtype")), str(told.get("shape")), bytes(event.body))
                    self.caption = f"{application}, step {told.get('step')!s}"
                except InvalidEvent as error:
                    self.caption = f"{application}: {error}"
            case "state":
                if application in self.states or len(self.states) < MAX_APPLICATIONS:
                    driver = f", {told['driver']!s} drives" if told.get("driver") else ""
                    self.states[application] = f"{told.get('state')!s}, step {told.get('step')!s}{driver}"
            case "statistics" | "presence":
                pass  # many, and little to read
            case _:
                self._line(event, application, name)

    def _line(self, event: Event, application: str, name: str) -> None:
        told = event.properties
        by = event.event_id.publisher if event.event_id is not None and name != "record" else str(told.get("by", ""))
        words = record_text(event) if name == "record" else str(told.get("text", name))
        self.lines.append(Message(time.time_ns(), by, f"{application}: {words}"[:MAX_LINE]))


class Shoulder:
    """One person's: who may follow, and whom it follows."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.is_shown = False
        self.followed: Followed | None = None
        #: Two clicks are one wish after the other.
        self._turn = asyncio.Lock()
        self._taking: asyncio.Task[None] | None = None
        self._room: Feed | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Be seen by others who look for somebody, and see them."""
        if self._room is None:
            self._room = await self.member.room(LOBBY)
            self._hearing = asyncio.get_running_loop().create_task(_drain(self._room))

    def others(self) -> list[str]:
        """Who could be followed, if they agree."""
        return [each for each in self.member.present(LOBBY) if each != self.member.client_id]

    async def show(self, is_shown: bool) -> None:
        """Let everybody follow, or nobody any longer."""
        await (self.member.show_view() if is_shown else self.member.hide_view())
        self.is_shown = is_shown

    async def follow(self, who: str) -> Followed:
        """See what somebody sees, and nobody else's any longer; raise AccessDenied when that one does not want it."""
        async with self._turn:
            if self.followed is not None and self.followed.who == who:
                return self.followed
            feed = await self.member.shadow(who)
            await self._end()
            self.followed = found = Followed(who, feed)
            self._taking = asyncio.get_running_loop().create_task(_take(found))
            return found

    async def stop(self) -> None:
        """Follow nobody."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        followed, self.followed = self.followed, None
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
            self._taking = None
        if followed is not None:
            with suppress(VeenaError):
                await followed.feed.close()

    async def close(self) -> None:
        await self.stop()
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)


async def _take(followed: Followed) -> None:
    with suppress(NotConnected):
        while True:
            followed.hear(await followed.feed.next())


async def _drain(room: Feed) -> None:
    """The talk of a room where nobody talks: it is there for who is present."""
    with suppress(NotConnected):
        while True:
            await room.next()
