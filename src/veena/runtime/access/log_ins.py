"""The one way in: every log-in is slowed, checked, counted and told here, whichever frame carried it.

A client's hello, a question to a locator and whatever else shows who somebody is come to `admit`. What is refused is
counted, has a line in the log and in the audit log, and is told to others as an event, if they are told at all.

The name that a failed log-in gives is not written down where no such user exists: it may be a mistyped password. A
short mark stands for it, the same for the same text as long as the broker runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from veena.core.wire.client import ClientHello
from veena.errors import AccessDenied, RefusalCode
from veena.runtime.access.access_events import AccessEvents
from veena.runtime.access.attempts import Attempts
from veena.runtime.access.turns import Turns
from veena.runtime.access.users import Principal, Proven, Users, WrongSecret, verify
from veena.runtime.logging.audit import AuditLog
from veena.runtime.logging.logs import Log
from veena.runtime.transports.certificate import Certificate
from veena.runtime.transports.senders import place_of

#: Log-ins that are held up at once because others guess at their names; each holds a connection.
MAX_HELD_UP: Final = 256


class From(Protocol):
    """Where a log-in comes from; streams are."""

    peer: str
    ip: str
    certificate: Certificate | None


def proven_by(source: From) -> Proven:
    """The names that its certificate proves; None where it has shown none."""
    return None if source.certificate is None else source.certificate.names


@dataclass(frozen=True, slots=True)
class LogInStatistics:
    #: Since the start: wrong passwords and tokens, and log-ins that were refused unread because of those before.
    wrong: int
    slowed: int
    #: Passwords that wait to be checked now, and how much is remembered of earlier tries.
    waiting: int
    remembered: int


NO_LOG_INS: Final = LogInStatistics(0, 0, 0, 0)


class LogIns:
    """The log-ins of one broker; it stays when the users file is read again."""

    def __init__(
        self,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        access: Callable[[], AccessEvents | None] = lambda: None,
    ) -> None:
        """`access` returns who tells others, if anybody does."""
        self._log = log
        self._access = access
        #: Where it is written down, if anywhere.
        self.audit: AuditLog | None = None
        self._attempts = Attempts(clock)
        self._turns = Turns()
        self._held_up = 0
        self._wrong = self._slowed = 0
        self._salt = secrets.token_bytes(16)

    async def admit(self, users_now: Callable[[], Users], hello: ClientHello, source: From, way: str) -> Principal:
        """Who a client is; raise AccessDenied when that is not shown. `way` names what carried the log-in.

        `users_now` returns the users: their file may be read again while a password is checked.
        """
        users, proven = users_now(), proven_by(source)
        place = place_of(source.ip)

        async def check(name: str, expected: str, password: str) -> bool:
            return await self._check(place, name, expected, password)

        try:
            principal = await users.admit(hello, proven, check)
            return principal if users is users_now() else users_now().again(principal, hello.client_id, proven)
        except AccessDenied as error:
            if isinstance(error, WrongSecret):
                self._wrong += 1
                if hello.token:
                    self._attempts.wrong(place, "")
            self.refused(users, hello, source, way, error)
            raise

    def anybody(self, users: Users, hello: ClientHello, source: From, way: str) -> Principal:
        """The same where there are no users: nothing has to be checked that takes time."""
        try:
            return users.anybody(hello, proven_by(source))
        except AccessDenied as error:
            self.refused(users, hello, source, way, error)
            raise

    def refused(self, users: Users, hello: ClientHello, source: From, way: str, error: AccessDenied) -> None:
        """Count and tell a log-in that failed."""
        client, user = self.shown(users, hello, proven_by(source))
        reason = str(error)
        self._log.noise("a log-in is refused", way=way, peer=source.peer, client=client, user=user, reason=reason)
        if self.audit is not None:
            self.audit.note(
                "log-in refused", way=way, address=source.peer, client=client, user=user, code=error.code, reason=reason
            )
        access = self._access()
        if access is not None:
            access.refused(client, user, "attach", reason)

    def shown(self, users: Users, hello: ClientHello, proven: Proven) -> tuple[str, str]:
        """Client id and user as they are written down."""
        name = users.named(hello, proven)
        if users.is_open or users.knows(name):
            return hello.client_id, name
        mark = hashlib.blake2b(name.encode(), key=self._salt, digest_size=4).hexdigest()
        return f"unknown-{mark}", f"unknown-{mark}"

    def statistics(self) -> LogInStatistics:
        return LogInStatistics(self._wrong, self._slowed, len(self._turns), self._attempts.remembered())

    def close(self) -> None:
        """End the threads."""
        self._turns.close()

    async def _check(self, place: str, name: str, expected: str, password: str) -> bool:
        def may_try() -> None:
            wait_s = self._attempts.wait_s(place, name)
            if wait_s:
                self._slowed += 1
                reason = f"too many log-ins from this address were wrong: try again in {math.ceil(wait_s)} s"
                raise AccessDenied(reason, code=RefusalCode.BUSY)

        may_try()
        delay_s = self._attempts.delay_s(place, name)
        if delay_s:
            await self._hold_up(delay_s)
        is_right = await self._turns.check(place, name, may_try, lambda: verify(expected, password))
        if is_right:
            self._attempts.right(place, name)
        else:
            self._attempts.wrong(place, name)
        return is_right

    async def _hold_up(self, delay_s: float) -> None:
        if self._held_up >= MAX_HELD_UP:
            self._slowed += 1
            raise AccessDenied("many log-ins in this name were wrong: try again in a moment", code=RefusalCode.BUSY)
        self._held_up += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._held_up -= 1
