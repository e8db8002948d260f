"""Who may attach: users with passwords (argon2), their roles and limits, from one TOML file.

    [user.alice]
    password = "$argon2id$..."          # `veena users password` makes it; or leave it out for TLS or tokens alone
    tokens = ["sha256:..."]             # for programs; `veena users token` makes one and what stands here for it,
                                        # or { digest = "sha256:...", until = 2027-01-31T00:00:00Z }
    roles = ["trader"]
    clients = ["alice", "desk-*"]       # the client ids that it may use; itself and `alice/...` when left out
    clearances = ["secret"]             # see `core/interest/eligibility`
    limits = { events_per_second = 1000 }

    [role.trader]
    rules = [
      { deny = "publish", topic = "quotes.internal.*" },
      { allow = ["publish", "subscribe"], topic = "quotes.*" },
    ]

Without a file everybody may do everything, which is for a broker that only this machine reaches; but who shows a
certificate is whom that names, and attaches as nobody else. With a file nobody attaches without a password, a token, or
a certificate in a user's name. As soon as it has roles, what no rule allows is
denied; a file without roles only says who is let in.

A token is long and random, nobody guesses it, so a plain digest of it is enough and costs nothing to check. A password
is checked in a thread: argon2 takes its time on purpose, and an unknown user takes as long as a wrong password. How
many are checked, and how guesses are slowed, is decided in `log_ins`.

The file is read again while clients are attached: `again` says what becomes of each. A user that is gone or `revoked`,
a token or password that is not in the file any more, and a client id that it no longer may use, end the session.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from veena.core.boundary.user_shares import UserShares
from veena.core.wire.client import ClientHello
from veena.errors import AccessDenied, ConfigError
from veena.runtime.access.access_events import PUBLISHER
from veena.runtime.access.limits import Limits
from veena.runtime.access.rights import MAX_RULES, Rights, Rule
from veena.runtime.toml_text import load_toml
from veena.runtime.transports.secret_files import check_secret

MAX_FILE_BYTES = 16 << 20
#: Bytes of chance in a token.
TOKEN_BYTES = 32
_DIGEST = "sha256:"

_hasher = PasswordHasher()

#: The names that somebody's certificate proves; None without a certificate.
Proven = tuple[str, ...] | None
#: Checks a password of a name against its hash, which is empty where there is no such user.
Check = Callable[[str, str, str], Awaitable[bool]]


#: What somebody is told who gives no user and shows nothing.
NOTHING_SHOWN = "this broker asks who connects: name a user and give its password or token, or show a certificate"


class WrongSecret(AccessDenied):
    """A password, or a token, that is not right: a guess, or a mistake."""


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token that is good for a while."""

    digest: str
    until: datetime


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file."""

    password: str = ""
    #: Digests of what programs show instead of a password.
    tokens: tuple[str | Token, ...] = ()
    roles: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    #: The labels that it is cleared for (`core/interest/eligibility`); what a client says of itself does not count.
    clearances: tuple[str, ...] = ()
    limits: Limits | None = None
    #: Nobody attaches in this name any more, and who has is sent away.
    revoked: bool = False

    @property
    def digests(self) -> dict[str, float | None]:
        """What stands for its tokens, and until when each is good."""
        return {
            each if isinstance(each, str) else each.digest: None if isinstance(each, str) else each.until.timestamp()
            for each in self.tokens
        }


class _Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: dict[str, User] = {}
    role: dict[str, _Role] = {}


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was let in; without `rights` everything is allowed."""

    name: str
    limits: Limits
    rights: Rights | None = None
    #: None where nobody vouches for anybody.
    clearances: tuple[str, ...] | None = None
    #: Its first role.
    category: str = ""
    #: By what it has shown who it is, as it stands in the file: the digest of its token or the hash of its password.
    shown: str = ""
    #: When that ends, in seconds since 1970.
    until: float | None = None


class Users:
    """The users of one broker."""

    def __init__(
        self,
        users: dict[str, User] | None = None,
        roles: dict[str, tuple[Rule, ...]] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Without `users` everybody is let in and may do everything."""
        self._users = users
        self._by_token = {digest: name for name, user in (users or {}).items() for digest in user.digests}
        self._roles = roles or {}
        self._limits = limits or Limits()

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in."""
        return self._users is None

    def anybody(self, hello: ClientHello, proven: Proven = None) -> Principal:
        """Who is let in where there are no users: everybody but who gives itself out as a broker, or as somebody else
        than its certificate says."""
        assert self.is_open
        _check_not_ours(hello.client_id)
        return self._shown_by_certificate(hello.client_id, hello.user, proven)

    def _shown_by_certificate(self, client_id: str, user: str, proven: Proven) -> Principal:
        if proven is None:
            return Principal(client_id, self._limits)
        if user and user not in proven:
            raise AccessDenied(f"the certificate is not of user {user!r}, but of {_listed(proven)}")
        name = next((each for each in ((user,) if user else proven) if _is_of(client_id, each)), None)
        if name is None:
            raise AccessDenied(
                f"the certificate is of {_listed(proven)}, which may not attach as client {client_id!r}: use that name"
                " as client id, with anything behind a slash"
            )
        return Principal(name, self._limits)

    def shares(self, store_bytes: int, kept_bytes: int) -> UserShares:
        """What users may have of a store of this size."""
        own = {name: user.limits for name, user in (self._users or {}).items() if user.limits is not None}
        shares = {name: limits.share(store_bytes) for name, limits in own.items()}
        return UserShares(self._limits.share(store_bytes), shares, kept_bytes)

    def knows(self, name: str) -> bool:
        """Whether there is such a user: the names of others may be mistyped passwords."""
        return self._users is not None and name in self._users

    def is_revoked(self, name: str) -> bool:
        return self._users is not None and name in self._users and self._users[name].revoked

    def named(self, hello: ClientHello, proven: Proven) -> str:
        """Whose name a client gives, by itself or by its certificate: the first of a user, where it proves several."""
        owner = self._by_token.get(digest_of(hello.token)) if hello.token else None
        of_user = [each for each in proven or () if self.knows(each)]
        return owner or hello.user or next(iter((*of_user, *(proven or ()))), hello.client_id)

    async def admit(self, hello: ClientHello, proven: Proven, check: Check | None = None) -> Principal:
        """Who a client is; raise AccessDenied when that is not shown, or not for this client id."""
        if self._users is None:
            return self.anybody(hello, proven)
        _check_not_ours(hello.client_id)
        owner = self._owner(hello) if hello.token else None
        name = self.named(hello, proven)
        user = self._users.get(name)
        shown = digest_of(hello.token) if owner is not None else ""
        if owner is None and (user is None or name not in (proven or ())):
            expected = "" if user is None else user.password
            # Nobody has an empty password: who gives none does not guess.
            if not (hello.user or hello.password or proven):
                raise WrongSecret(NOTHING_SHOWN)
            if not hello.password or not await (check or check_at_once)(name, expected, hello.password):
                raise WrongSecret("this user does not exist here, or the password is wrong: check user and password")
            shown = expected
        assert user is not None
        return self._principal(name, user, shown, hello.client_id)

    def again(self, principal: Principal, client_id: str, proven: Proven) -> Principal:
        """What somebody who was let in is by this file; raise AccessDenied if it would not be let in now."""
        if self._users is None:
            return self._shown_by_certificate(client_id, "", proven)
        name, shown = principal.name, principal.shown
        user = self._users.get(name)
        if user is None:
            raise AccessDenied(f"user {name!r} does not exist any more")
        if shown and shown != user.password and shown not in user.digests:
            raise AccessDenied(f"the {'token' if shown.startswith(_DIGEST) else 'password'} of user {name!r} changed")
        if not shown and name not in (proven or ()):  # who came while there were no users has shown nothing
            raise AccessDenied(f"there are users now, and user {name!r} has not shown who it is: attach again")
        return self._principal(name, user, shown, client_id)

    def _principal(self, name: str, user: User, shown: str, client_id: str) -> Principal:
        if user.revoked:
            raise AccessDenied(f"user {name!r} was revoked: ask who runs this broker")
        until = user.digests.get(shown)
        if until is not None and until <= time.time():
            raise AccessDenied(f"the token of user {name!r} has expired: ask for a new one")
        if not _may_be(name, user, client_id):
            raise AccessDenied(
                f"user {name!r} may not attach as client {client_id!r}: use {name!r}, {name + '/...'!r} or an id"
                f" that its entry `clients` names; commands with --user {name} do so"
            )
        rights = None
        if self._roles:
            rights = Rights(tuple(rule for role in user.roles for rule in self._roles[role]))
        category = user.roles[0] if user.roles else ""
        return Principal(name, user.limits or self._limits, rights, user.clearances, category, shown, until)

    def _owner(self, hello: ClientHello) -> str:
        """Whose token it is. By its digest: how long that takes tells nothing of the tokens that there are."""
        owner = self._by_token.get(digest_of(hello.token))
        if owner is None or hello.user not in ("", owner):
            raise WrongSecret("the token is not known here, or not this user's: ask for a new one")
        return owner


async def check_at_once(name: str, expected: str, password: str) -> bool:
    """Whether a password is right, without a thought for others who wait."""
    return await asyncio.to_thread(verify, expected, password)


def hash_password(password: str) -> str:
    """What stands in the file for a password."""
    return _hasher.hash(password)


def new_token() -> str:
    """A secret for a program."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> str:
    """What stands in the file for a token."""
    return _DIGEST + hashlib.sha256(token.encode()).hexdigest()


def load_users(path: Path | str, limits: Limits | None = None) -> Users:
    """Read a users file; raise ConfigError naming what is wrong in it, or that others can read it."""
    path = Path(path)
    check_secret(path)
    try:
        data = path.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(str(path), "file", f"has {len(data)} bytes", f"at most {MAX_FILE_BYTES} are read")
        return parse_users(data.decode(), str(path), limits)
    except OSError as error:
        raise ConfigError(str(path), "file", f"cannot be read: {error}", "check the path and its rights") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "file", f"is no UTF-8 at byte {error.start}", "write it as UTF-8") from None


def parse_users(text: str, file: str = "users", limits: Limits | None = None) -> Users:
    """The users that a TOML text lists."""
    try:
        raw: dict[str, Any] = load_toml(text)
        found = msgspec.convert(raw, _File)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(file, "syntax", str(error), "write it as TOML") from None
    except msgspec.ValidationError as error:
        raise ConfigError(file, "entry", str(error), "see the example in the documentation of users") from None
    for name, role in found.role.items():
        _check_role(file, name, role)
    for name, user in found.user.items():
        _check_user(file, name, user, found)
    return Users(found.user, {name: role.rules for name, role in found.role.items()}, limits)


def _check_role(file: str, name: str, role: _Role) -> None:
    if len(role.rules) > MAX_RULES:
        raise ConfigError(file, f"role {name!r}", f"has {len(role.rules)} rules", f"use at most {MAX_RULES}")
    for at, rule in enumerate(role.rules):
        where = f"rule {at + 1} of role {name!r}"
        if bool(rule.allow) == bool(rule.deny):
            raise ConfigError(file, where, "needs one of allow and deny", 'write { allow = "publish", topic = "x" }')
        for pattern in (rule.topic, rule.type):
            if pattern is not None and "*" in pattern[:-1]:
                raise ConfigError(file, where, f"{pattern!r} has a * inside", "put the only * at the end")


def _check_user(file: str, name: str, user: User, found: _File) -> None:
    where = f"user {name!r}"
    if not name or "/" in name or len(name) > 255 or not name.isprintable():
        raise ConfigError(file, where, "is no name of a user", "use 1 to 255 printable characters without /")
    for role in user.roles:
        if role not in found.role:
            known = ", ".join(found.role) or "none"
            raise ConfigError(file, where, f"has the unknown role {role!r}", f"roles here are: {known}")
    for fault in () if user.limits is None else user.limits.faults():
        raise ConfigError(file, f"{where}, limits", fault, "correct it")
    for token in user.tokens:
        if isinstance(token, Token) and token.until.tzinfo is None:
            raise ConfigError(
                file, f"{where}, tokens", f"until {token.until} names no time zone", "write 2027-01-31T00:00:00Z"
            )
    try:
        if user.password:
            _hasher.check_needs_rehash(user.password)
    except InvalidHashError:
        raise ConfigError(
            file, f"{where}, password", "is no argon2 hash", "make one with `veena users password`"
        ) from None
    for digest in user.digests:
        if not digest.startswith(_DIGEST) or len(digest) != len(digest_of("")):
            raise ConfigError(
                file, f"{where}, tokens", f"{digest[:12]!r} is no digest", "make one with `veena users token`"
            )
        if sum(digest in each.digests for each in found.user.values()) > 1:
            raise ConfigError(file, f"{where}, tokens", "has the token of another user too", "make one for each")


def _check_not_ours(client_id: str) -> None:
    """Raise AccessDenied for an id under which brokers publish: what they tell of others is believed."""
    if client_id.startswith(PUBLISHER):
        raise AccessDenied(f"client id {client_id!r}: ids that begin with {PUBLISHER!r} are the brokers' own")


def _may_be(name: str, user: User, client_id: str) -> bool:
    if not user.clients:
        return _is_of(client_id, name)
    return any(client_id.startswith(each[:-1]) if each.endswith("*") else client_id == each for each in user.clients)


def _is_of(client_id: str, name: str) -> bool:
    return client_id == name or client_id.startswith(name + "/")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:3])) or "nobody: it has no name"


@lru_cache(maxsize=1)
def _unknown() -> str:
    """The hash of something that nobody knows."""
    return _hasher.hash(secrets.token_bytes(32))


def verify(expected: str, password: str) -> bool:
    """Whether a password is right; without one to expect it never is, and that takes as long."""
    try:
        return _hasher.verify(expected or _unknown(), password)
    except (VerificationError, InvalidHashError):
        return False
