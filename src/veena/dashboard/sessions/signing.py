"""Who looks at the pages: people sign in as the broker's own users, and the portal acts as a client of theirs.

The broker decides who somebody is and what they may do; there are no users here. A signed-in person is a random token
in a cookie that scripts cannot read, and a client of that person on this side; the browser gets no other secret, and
the password lives only in the client, which needs it to attach again. On a broker without users a name is enough: that
is for a portal that only this machine reaches.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from veena.client import Client, connect
from veena.dashboard.sessions.collaboratory import Adviser, Member
from veena.dashboard.sessions.observer import Connect, Observer
from veena.dashboard.sessions.record import Record
from veena.errors import AccessDenied, RefusalCode, VeenaError
from veena.runtime.access.attempts import Attempts
from veena.runtime.transports.senders import place_of
from veena.runtime.transports.url import is_loopback, parse_url

#: People at once, and of one name: each has a client, and some more to look at brokers.
MAX_PEOPLE = 64
MAX_OF_A_NAME = 8
#: Without a page open for so long, or after so long at all, one has to sign in again.
IDLE_S = 30 * 60.0
LONGEST_S = 12 * 3600.0
#: Wrong tries from one place in a minute; the broker's own checks are slow on purpose and must not be piled up.
MAX_FAULTS = 10
FAULTS_S = 60.0
MAX_PLACES = 4096
MAX_NAME = 64
MAX_PASSWORD = 1024
#: How long a broker has to let somebody in.
ATTACH_S = 5.0
PROBE_S = 2.0
#: Whether the broker has users is asked anew after so long.
ASKED_S = 30.0

#: Makes a member of a person's client, and finds out what it may do.
MemberOf = Callable[[Client], Awaitable[Member]]
#: Makes an adviser that asks brokers, by URL, through clients of a person.
AdviserOf = Callable[[Callable[[str], Client]], Adviser]
#: Looks a client up in an archive: rows with `kind`, `at`, `broker`, `id`, `topic`, `publisher`, `mark`.
ArchiveOf = Callable[[str], Awaitable[Sequence[Mapping[str, Any]]]]
#: Who is let in: users of the broker; where it has none, by name, browsers of this machine, or all.
Who = Literal["users", "here", "anybody"]


class Kept(Protocol):
    """Something of a person's that ends with the session."""

    async def close(self) -> None: ...


class NotSignedIn(VeenaError):
    """Why somebody was not let in, for the page."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where the brokers are, and how they are reached."""

    urls: tuple[str, ...]
    tls: ssl.SSLContext | None = None

    def connect(
        self, client_id: str, user: str = "", password: str = "", urls: Sequence[str] = (), timeout: float = ATTACH_S
    ) -> Client:
        wanted = tuple(urls) or self.urls
        tls = self.tls if any(parse_url(url).is_secure for url in wanted) else None
        return connect(wanted, client_id=client_id, user=user, password=password, tls=tls, timeout=timeout)

    @property
    def is_inside_tls(self) -> bool:
        return all(parse_url(url).is_secure for url in self.urls)


@dataclass(slots=True, eq=False)
class Person:
    """Somebody who is signed in."""

    name: str
    client: Client
    observer: Observer
    #: Another client of this person, at these brokers.
    connect: Connect
    joining: asyncio.Task[Member] | None
    digest: bytes
    began: float
    touched: float
    pages: int = 0
    #: What this person hears of who came in and who steered, once there is a member.
    record: Record | None = None
    #: What pages keep for this person while they go from one to the other; it has `close`.
    kept: dict[str, Kept] = field(default_factory=dict)

    async def member(self) -> Member:
        """Who this person is in a collaboratory."""
        assert self.joining is not None, "there is no page that asks for it without"
        return await asyncio.shield(self.joining)

    def is_over(self, now: float) -> bool:
        return now - self.began > LONGEST_S or (not self.pages and now - self.touched > IDLE_S)

    async def close(self) -> None:
        await self.observer.close()
        for each in self.kept.values():
            await each.close()
        if self.joining is not None:
            self.joining.cancel()
            [found] = await asyncio.gather(self.joining, return_exceptions=True)
            if not isinstance(found, BaseException) and self.client.is_connected:
                await found.close()
        await self.client.close()


class Desk:
    """Signs people in and out."""

    def __init__(self, door: Door, member_of: MemberOf | None = None, who: Who = "here") -> None:
        self.door = door
        self._member_of = member_of
        self._who = who
        self._people: dict[bytes, Person] = {}
        #: People who are being let in: they have their room already.
        self._entering = 0
        self._faults: dict[str, list[float]] = {}
        #: Guesses at a name are slowed here: brokers see the address of the portal alone.
        self._attempts = Attempts(time.monotonic)
        self._has_users: tuple[float, bool] | None = None

    async def has_users(self) -> bool:
        """Whether the broker asks who one is; raise NotConnected where none answers."""
        now = time.monotonic()
        if self._has_users is None or now - self._has_users[0] > ASKED_S:
            probe = self.door.connect(f"portal-{uuid.uuid4().hex}", timeout=PROBE_S)
            try:
                async with probe:
                    found = False
            except AccessDenied:
                found = True
            self._has_users = (now, found)
        return self._has_users[1]

    async def sign_in(self, name: str, password: str, place: str, host: str = "127.0.0.1") -> str:
        """Let somebody in; the token for the cookie. Raise NotSignedIn with the reason otherwise.

        `place` is where the browser is, `host` the name under which it found the portal.
        """
        name = name.strip()
        if not name or len(name) > MAX_NAME or "/" in name or not name.isprintable():
            raise NotSignedIn(f"a name has 1 to {MAX_NAME} letters or signs, and no /")
        if len(password) > MAX_PASSWORD:
            raise NotSignedIn(f"a password has at most {MAX_PASSWORD} letters")
        place = place_of(place)
        self._check_place(place)
        wait_s = self._attempts.wait_s(place, name)
        if wait_s:
            raise NotSignedIn(f"too many wrong tries: wait {math.ceil(wait_s)} s")
        await self._make_room(name)
        # Every try is a wrong one until the broker has said otherwise: many at once are as many tries.
        tried = time.monotonic()
        self._faults.setdefault(place, []).append(tried)
        self._entering += 1
        try:
            await asyncio.sleep(self._attempts.delay_s(place, name))
            person = await self._let_in(name, password, host)
        except AccessDenied as error:
            if error.code is not RefusalCode.BUSY:
                self._attempts.wrong(place, name)
            raise NotSignedIn(str(error)) from None
        except NotSignedIn:
            self._forgive(place, tried)
            raise
        finally:
            self._entering -= 1
        self._forgive(place, tried)
        self._attempts.right(place, name)
        token = secrets.token_urlsafe(32)
        person.digest = _digest(token)
        self._people[person.digest] = person
        return token

    async def _let_in(self, name: str, password: str, host: str) -> Person:
        try:
            is_user = await self.has_users()
            if not is_user:
                self._check_name_alone(host)
            return await self._admit(name, password, is_user)
        except (AccessDenied, NotSignedIn):
            raise
        except (VeenaError, TimeoutError) as error:
            if isinstance(error, VeenaError) and error.code is RefusalCode.BUSY:
                raise NotSignedIn("the broker slows log-ins down after wrong ones: try again in a minute") from None
            raise NotSignedIn(f"the broker cannot be reached now: {error}") from None

    def _forgive(self, place: str, tried: float) -> None:
        """It was no wrong try."""
        faults = self._faults.get(place, [])
        if tried in faults:
            faults.remove(tried)

    def _check_name_alone(self, host: str) -> None:
        """A name is enough on this machine. A page of another site may have its own name lead here, and ask."""
        if self._who == "users" or (self._who == "here" and not is_loopback(host)):
            reason = "the broker has no users, and a name is enough on its own machine only (http://127.0.0.1)"
            raise NotSignedIn(f"{reason}: give it a users file, or start the portal with --insecure")

    def _check_place(self, place: str) -> None:
        now = time.monotonic()
        if len(self._faults) > MAX_PLACES:
            self._faults.clear()
        recent = [at for at in self._faults.pop(place, ()) if now - at < FAULTS_S]
        if recent:
            self._faults[place] = recent
        if len(recent) >= MAX_FAULTS:
            raise NotSignedIn("too many wrong tries: wait a minute")

    async def _make_room(self, name: str) -> None:
        """Those whose time is over leave; of too many with one name the one that has been away longest."""
        await self.sweep()
        same = sorted((person for person in self._people.values() if person.name == name), key=lambda p: p.touched)
        if len(same) >= MAX_OF_A_NAME:
            await self._end(same[0])
        if len(self._people) + self._entering >= MAX_PEOPLE:
            raise NotSignedIn(f"{MAX_PEOPLE} people are signed in: try again later")

    async def _admit(self, name: str, password: str, is_user: bool) -> Person:
        own = f"{name}/portal-{uuid.uuid4().hex[:12]}"
        user, secret = (name, password) if is_user else ("", "")
        client = await self.door.connect(own, user, secret).open()

        def look(urls: Sequence[str], label: str) -> Client:
            return self.door.connect(f"{own}/at-{uuid.uuid4().hex[:8]}", user, secret, urls)

        now = time.monotonic()
        observer = Observer(client, look, inside_tls=self.door.is_inside_tls)
        person = Person(name, client, observer, look, None, b"", now, now)
        if self._member_of is not None:
            person.joining = asyncio.ensure_future(_join(person, self._member_of))
        return person

    def person(self, token: str | None) -> Person | None:
        """Who shows this token."""
        if not token:
            return None
        digest = _digest(token)
        person = self._people.get(digest)
        now = time.monotonic()
        if person is None or not hmac.compare_digest(person.digest, digest) or person.is_over(now):
            return None
        person.touched = now
        return person

    async def sign_out(self, token: str | None) -> None:
        person = self._people.get(_digest(token)) if token else None
        if person is not None:
            await self._end(person)

    async def sweep(self) -> None:
        """Let those go whose time is over."""
        now = time.monotonic()
        for person in [each for each in self._people.values() if each.is_over(now)]:
            await self._end(person)

    async def close(self) -> None:
        await asyncio.gather(*(self._end(person) for person in list(self._people.values())), return_exceptions=True)

    async def _end(self, person: Person) -> None:
        self._people.pop(person.digest, None)
        await person.close()

    def __len__(self) -> int:
        return len(self._people)


async def _join(person: Person, member_of: MemberOf) -> Member:
    member = await member_of(person.client)
    person.record = person.kept["record"] = Record(member)
    return member


def _digest(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()
