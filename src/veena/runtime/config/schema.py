"""A broker's configuration: one TOML file, every fault in it found in one reading, each with its line and a remedy.

Without a file a broker runs on loopback with the defaults below. What is reached from beyond this machine has to be
inside TLS and has to ask who connects; a configuration that opens another door is not started, unless it says
`plaintext = true` (without TLS) or `open_links = true` (anybody may be a broker, so nobody is asked). Paths are
relative to the file.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from veena.address import (
    DEFAULT_FANOUT,
    DEFAULT_LEVELS,
    MAX_LEVELS,
    Address,
    Labels,
    Unit,
    check_unit,
    parse_address,
)
from veena.core.boundary.settings import (
    DEFAULT_BROKER_CONSTRAINTS,
    DEFAULT_UNIT_CONSTRAINTS,
    MILLISECOND_NS,
    SECOND_NS,
    Settings,
)
from veena.core.boundary.signing import Signing, Verifier
from veena.core.interest.table import MAX_TABLE_ROWS
from veena.core.wire.header import DEFAULT_MAX_FRAME, MAX_FRAME
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.access.limits import Limits
from veena.runtime.links.flapping import DEFAULT_PER_S
from veena.runtime.links.links import Retry
from veena.runtime.links.trust import Bindings, Trust
from veena.runtime.pki.broker_certificate import load_authorities
from veena.runtime.pki.grant import load_grant
from veena.runtime.pki.statement_signer import load_signer
from veena.runtime.transports.certificate import NONE_REVOKED, Revoked, load_revoked
from veena.runtime.transports.names import BrokerName, own_names
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.tls import AskClients, client_context, server_context
from veena.runtime.transports.url import Url, parse_url

DEFAULT_LISTEN = "veena://127.0.0.1:7700"
#: Places to listen on, and neighbours to dial: more is a mistake.
MAX_PLACES = 64
#: Descriptors that connections leave to the files of a broker and to those who monitor it.
OTHER_FILES = 64
MANY = 1 << 20
#: Brokers whose names and addresses one file binds: larger networks have a network file.
MAX_NEIGHBOURS = 1024

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
#: Others keep no more of them.
Constraints = Annotated[int, msgspec.Meta(ge=1, le=MAX_TABLE_ROWS)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86400)]
Places = Annotated[list[str], msgspec.Meta(max_length=MAX_PLACES)]
#: Names or addresses of hosts, without scheme and port.
Hosts = Annotated[
    list[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]], msgspec.Meta(max_length=MAX_PLACES)
]


@dataclass(slots=True)
class EntranceLimits:
    """The bounds of a broker's entrance (`broker.entrance`); they may change while it runs."""

    #: How long a stranger may take to say who it is.
    identify_s: float = 10.0
    #: Strangers at once; with the next one the oldest has to go.
    unidentified: int = 2048
    #: Bytes that they may have the broker hold, unfinished handshakes included; beyond them the oldest has to go too.
    unidentified_bytes: int = 64 << 20
    #: Connections at once, whoever they are.
    connections: int = 20_000

    def become(self, other: EntranceLimits) -> None:
        """These hold from now on."""
        self.identify_s, self.unidentified = other.identify_s, other.unidentified
        self.unidentified_bytes, self.connections = other.unidentified_bytes, other.connections


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the file; its fields are the keys."""


class BrokerSection(_Section, frozen=True):
    #: Its permanent name: what others remember it by, whatever address it has.
    name: Name = "broker"
    #: Its place as numbers, `0.1.2.6`; or, instead, a network file and its label in there.
    address: str | None = None
    network: str | None = None
    label: str | None = None
    listen: Places = msgspec.field(default_factory=lambda: [DEFAULT_LISTEN])
    #: Where others reach it, if that differs from where it listens (behind NAT, in a container).
    announce: Places = msgspec.field(default_factory=list)
    #: Where it stands, in words that clients use too (attribute `place`), such as "Syracuse": for who advises.
    place: Annotated[str, msgspec.Meta(max_length=64)] = ""
    #: Open doors to other machines without TLS: what passes can be read and changed on the way.
    plaintext: bool = False
    #: Let anybody who reaches this broker be a broker too, without a certificate: with all rights that brokers have.
    open_links: bool = False


class NetworkSection(_Section, frozen=True):
    """What all brokers of a network agree on; left out where a network file says it."""

    name: Name = "veena"
    levels: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEVELS)] = DEFAULT_LEVELS
    fanout: Literal[32, 64] = DEFAULT_FANOUT  # type: ignore[assignment]
    top: Literal["interest", "broadcast"] = "interest"


class StoreSection(_Section, frozen=True):
    #: A directory. Left out, a broker keeps everything in memory and forgets it when it stops.
    path: str | None = None
    #: An event that could not be delivered for so long is a dead letter.
    retention_s: Seconds = 3600.0
    #: A durable client that comes from elsewhere gets nothing new for so long while what is kept for it there has not
    #: come: time for a broker that was killed to be back. What comes later still comes, marked as late.
    arrive_s: Seconds = 15.0
    #: A broker that has been out of reach for so long is replaced as the home of its durable subscriptions by another
    #: one of its cluster. 0, the default: by nobody.
    standby_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 0.0
    #: For how long the log keeps what everybody has had, for `since` and for who reads it later.
    history_s: Seconds = 86400.0
    copies: Literal[1, 2] = 1
    records: Literal["off", "deliveries", "all"] = "off"
    history: Literal["reliable", "all", "none"] = "reliable"
    #: Bytes of the file; what is needed no more goes first. Half of it may wait to be delivered.
    max_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 50)] = 8 << 30
    #: Rows that were staged for a batch and not published for so long are dropped.
    staged_s: Seconds = 3600.0
    #: Bytes of them, at most a quarter of the file.
    staged_bytes: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 50)] = 1 << 30


class NeighbourEntry(_Section, frozen=True):
    """A broker of which the operator knows where it belongs: its name stands for its address."""

    name: Name
    address: str
    #: Where it listens, if this broker is to dial it.
    urls: Places = msgspec.field(default_factory=list)


class LinksSection(_Section, frozen=True):
    #: The neighbours that this broker dials; a network file adds its own. Where units fell apart, it also dials brokers
    #: that others tell it of; with "configured" it never does, and dials `neighbours` and the network file's alone.
    dial: Places | Literal["configured"] = msgspec.field(default_factory=list)
    neighbours: Annotated[list[NeighbourEntry], msgspec.Meta(max_length=MAX_NEIGHBOURS)] = msgspec.field(
        default_factory=list
    )
    #: Who may be a neighbour where clients have to prove who they are: names of certificates, `*` for any characters.
    certificates: Places = msgspec.field(default_factory=list)
    #: The authority's word that this broker may live at its address, as `veena pki grant` makes it: for neighbours
    #: whose own configuration does not say so.
    grant: str | None = None
    heartbeat_s: Seconds = 1.0
    #: The first and the longest pause before a lost link is dialled again.
    retry_s: Seconds = 0.2
    retry_s_max: Seconds = 15.0
    #: Links that end within seconds, from one source: beyond them it has to wait (`runtime.links.flapping`).
    short_links_per_s: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] = DEFAULT_PER_S


class TlsSection(_Section, frozen=True):
    certificate: str | None = None
    key: str | None = None
    #: Who signed the certificates of the others.
    authority: str | None = None
    #: A list of certificates that the authority has revoked (X509 CRL, PEM).
    revoked: str | None = None
    #: Whether who connects has to show a certificate.
    clients: AskClients = "none"


class AuthSection(_Section, frozen=True):
    users_file: str | None = None
    #: Web pages that may connect over WebSocket, such as "https://example.org".
    origins: Places = msgspec.field(default_factory=list)
    #: Whether others are told who came in and who was refused, as events of type Access.
    tell: bool = False


class LimitsSection(_Section, frozen=True):
    connections: Count = 20_000
    unidentified: Count = 2048
    #: What connections may have this broker hold that have not said who they are: a client's first frame is at most
    #: half a MiB, and an unfinished handshake of TLS takes 48 KiB.
    unidentified_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 40)] = 64 << 20
    identify_s: Seconds = 10.0
    frame_bytes: Annotated[int, msgspec.Meta(ge=1024, le=MAX_FRAME)] = DEFAULT_MAX_FRAME
    open_events: Count = 100_000
    #: What waits in memory for one client that reads more slowly than events come.
    session_bytes: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 40)] = 32 << 20
    #: A client that takes nothing of what waits for it for so long is ended.
    slow_s: Seconds = 5.0
    #: Distinct constraints that this broker, and its cluster or super-cluster, may tell others.
    broker_constraints: Constraints = DEFAULT_BROKER_CONSTRAINTS
    unit_constraints: Constraints = DEFAULT_UNIT_CONSTRAINTS
    #: For each client, where the users file says nothing else.
    client: Limits = msgspec.field(default_factory=Limits)


class LoadSection(_Section, frozen=True):
    """What this broker serves well: above it, some clients are sent to brokers with room. 0 sets no limit."""

    clients: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 0
    #: From clients and to them.
    events_per_second: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


class LocatorSection(_Section, frozen=True):
    #: Answer clients who ask where to connect (`veena+locator://`).
    serve: bool = False
    #: Brokers whose load is asked for, beside those of the network file and those that are in touch anyway.
    brokers: Places = msgspec.field(default_factory=list)
    #: Networks of clients, such as "10.2.0.0/16", and the units that are nearest to them.
    regions: dict[str, str] = msgspec.field(default_factory=dict)
    #: How often loads are asked for, and clients sent away if there are too many.
    refresh_s: Annotated[float, msgspec.Meta(ge=0.05, le=3600)] = 5.0


class LogSection(_Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["plain", "json"] = "plain"


class AuditSection(_Section, frozen=True):
    """The audit log: every decision about access, in a file of its own."""

    #: Left out, there is none.
    file: str | None = None
    #: A file that would grow beyond this is renamed, and of all so many are there at most.
    max_bytes: Annotated[int, msgspec.Meta(ge=1 << 16, le=1 << 40)] = 64 << 20
    files: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8


class HttpSection(_Section, frozen=True):
    #: `host:port` for /healthz, /readyz, /metrics and /statusz; left out, there is none.
    listen: str | None = None
    #: Names, besides those that are surely its own, under which requests are answered (header `Host`).
    hosts: Hosts = msgspec.field(default_factory=list)


class Tables(_Section, frozen=True):
    """The whole file."""

    broker: BrokerSection = msgspec.field(default_factory=BrokerSection)
    network: NetworkSection = msgspec.field(default_factory=NetworkSection)
    store: StoreSection = msgspec.field(default_factory=StoreSection)
    links: LinksSection = msgspec.field(default_factory=LinksSection)
    tls: TlsSection = msgspec.field(default_factory=TlsSection)
    auth: AuthSection = msgspec.field(default_factory=AuthSection)
    limits: LimitsSection = msgspec.field(default_factory=LimitsSection)
    load: LoadSection = msgspec.field(default_factory=LoadSection)
    locator: LocatorSection = msgspec.field(default_factory=LocatorSection)
    log: LogSection = msgspec.field(default_factory=LogSection)
    http: HttpSection = msgspec.field(default_factory=HttpSection)
    audit: AuditSection = msgspec.field(default_factory=AuditSection)


#: What a running broker takes over when it is told to read its file again.
RELOADABLE = (
    ("log", "level"),
    ("log", "format"),
    ("limits", "connections"),
    ("limits", "unidentified"),
    ("limits", "unidentified_bytes"),
    ("limits", "identify_s"),
    ("limits", "client"),
    ("auth", "users_file"),
    ("tls", "certificate"),
    ("tls", "key"),
    ("tls", "authority"),
    ("tls", "revoked"),
    ("links", "certificates"),
    ("links", "dial"),
    ("links", "neighbours"),
    ("links", "grant"),
    ("load", "clients"),
    ("load", "events_per_second"),
    ("http", "hosts"),
    ("locator", "serve"),
    ("locator", "brokers"),
    ("locator", "regions"),
    ("locator", "refresh_s"),
)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A broker that this one dials: where it listens, and its label if a network file names it."""

    urls: tuple[str, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that was checked."""

    tables: Tables
    #: Where relative paths begin.
    base: Path
    file: str
    name: str
    address: Address
    network: str
    levels: int
    fanout: int
    listen: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    #: The addresses of all brokers of the network file; empty without one.
    members: tuple[Address, ...] = ()
    label: str = ""
    #: The names of units by the network file.
    labels: Labels | None = None
    #: Where the brokers of the network file listen.
    listed: frozenset[Url] = frozenset()

    def settings(self) -> Settings:
        tables = self.tables
        beat = int(tables.links.heartbeat_s * SECOND_NS)
        quick = max(beat, 10 * MILLISECOND_NS)
        return Settings(
            network=self.network,
            levels=self.levels,
            fanout=self.fanout,
            heartbeat_ns=quick,
            suspect_after_ns=3 * quick,
            confirm_after_ns=3 * quick,
            answer_within_ns=4 * quick,
            reconcile_ns=10 * quick,
            lease_ns=15 * quick,
            top=tables.network.top,
            max_frame=tables.limits.frame_bytes,
            retention_ns=int(tables.store.retention_s * SECOND_NS),
            arrive_ns=int(tables.store.arrive_s * SECOND_NS),
            standby_ns=int(tables.store.standby_s * SECOND_NS),
            copies=tables.store.copies,
            records=tables.store.records,
            max_open=tables.limits.open_events,
            max_log_bytes=tables.store.max_bytes // 2,
            session_bytes=tables.limits.session_bytes,
            slow_ns=int(tables.limits.slow_s * SECOND_NS),
            max_broker_constraints=tables.limits.broker_constraints,
            max_unit_constraints=tables.limits.unit_constraints,
        )

    def with_network_of(self, new: Config) -> Config:
        """With the brokers and links of another file, if its network is this one and the broker's place the same."""
        place = (new.network, new.levels, new.fanout, new.address)
        if place != (self.network, self.levels, self.fanout, self.address):
            return self
        return replace(self, neighbours=new.neighbours, members=new.members, labels=new.labels, listed=new.listed)

    def taking_over(self, new: Config) -> Config:
        """With what may change while a broker runs from another file; everything else stays as it is."""
        found = self.tables
        for section, key in changes(self.tables, new.tables):
            if may_change(section, key, new.tables):
                changed = msgspec.structs.replace(
                    getattr(found, section), **{key: getattr(getattr(new.tables, section), key)}
                )
                found = msgspec.structs.replace(found, **{section: changed})
        return replace(self, tables=found, base=new.base)

    def path(self, name: str | None) -> Path | None:
        """A path of the file, from where it is relative to."""
        return None if name is None else self.base / name

    def secrets(self) -> Secrets:
        """The TLS contexts; raises ConfigError where a file of them cannot be used."""
        tls = self.tables.tls
        names = (tls.certificate, tls.key, tls.authority, tls.revoked)
        certificate, key, authority, revoked = map(self.path, names)
        server = None
        if certificate is not None and key is not None:
            server = server_context(certificate, key, authority, tls.clients, revoked)
        # Reading the system's authorities takes a tenth of a second: who has nothing to add dials with the default.
        has_own = authority is not None or certificate is not None
        client = client_context(authority, certificate, key, revoked) if has_own else None
        return Secrets(server, client, tuple(self.tables.auth.origins))

    def revoked(self) -> Revoked:
        """The certificates that are good no more; raises ConfigError where their file cannot be used."""
        path = self.path(self.tables.tls.revoked)
        return NONE_REVOKED if path is None else load_revoked(path)

    def own_names(self) -> tuple[BrokerName, ...]:
        """What its own certificate calls this broker; raises ConfigError where that cannot be read."""
        path = self.path(self.tables.tls.certificate)
        return () if path is None else own_names(path)

    def trust(self) -> Trust:
        """Who may be a neighbour; raises ConfigError where the own certificate cannot be read."""
        tables = self.tables
        asks = tables.auth.users_file is not None or tables.tls.clients != "none"
        is_named, authority = bool(self.own_names()), self.path(tables.tls.authority)
        neighbours = {parse_url(url) for neighbour in self.neighbours for url in neighbour.urls}
        return Trust(
            tuple(tables.links.certificates),
            tables.broker.open_links or not asks,
            self.network,
            is_named=is_named,
            inside_tls=any(parse_url(url).is_secure for url in self.listen),
            places=self.listed | neighbours if tables.links.dial == "configured" else None,
            unit_of=self.unit_of,
            bindings=Bindings(self.neighbour_addresses(), self.labels),
            authorities=load_authorities(authority) if is_named and authority is not None else (),
        )

    def signing(self, verifier: Verifier) -> Signing | None:
        """What this broker signs and checks with what is said of units; None in a network without an authority, and a
        ConfigError where its key cannot sign."""
        tls = self.tables.tls
        certificate, key = self.path(tls.certificate), self.path(tls.key)
        if certificate is None or key is None or not self.trust().asks_names:
            return None
        return Signing(load_signer(certificate, key), verifier)

    def grant(self) -> bytes:
        """What this broker shows that it may live at its address; raises ConfigError where it cannot be read."""
        path = self.path(self.tables.links.grant)
        return b"" if path is None else load_grant(path)

    def neighbour_addresses(self) -> dict[str, Address]:
        """Where the brokers of `[[links.neighbours]]` live; raises InvalidAddress for what is no place of a broker."""
        return {entry.name: self.address_of(entry.address) for entry in self.tables.links.neighbours}

    def address_of(self, text: str) -> Address:
        """The address of a label path or of numbers; InvalidAddress if that is no place of a broker."""
        try:
            unit = self.unit_of(text)
        except InvalidAddress:
            if self.labels is None:
                raise
            unit = parse_address(text, self.levels, self.fanout)  # a broker that the network file does not have
        if len(unit) != self.levels:
            raise InvalidAddress(f"{text!r} is a unit of {len(unit)} levels, and brokers here have {self.levels}")
        return unit

    def unit_of(self, label: str) -> Unit:
        """The unit of a label path, or of numbers where there is no network file; InvalidAddress if there is none."""
        if self.labels is not None:
            return self.labels.unit(label)
        unit = parse_address(label, fanout=self.fanout)
        check_unit(unit, self.fanout)
        return unit

    def retry(self) -> Retry:
        return Retry(self.tables.links.retry_s, self.tables.links.retry_s_max, self.tables.links.short_links_per_s)

    def entrance_limits(self) -> EntranceLimits:
        limits = self.tables.limits
        connections = min(limits.connections, _descriptors())
        return EntranceLimits(limits.identify_s, limits.unidentified, limits.unidentified_bytes, connections)


def _descriptors() -> int:
    """Connections that this process has descriptors for, beside its files and those who monitor it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY if soft == resource.RLIM_INFINITY else max(soft // 2, soft - OTHER_FILES)


class ConfigFaults(ConfigError):
    """Everything that is wrong with one file."""

    def __init__(self, faults: list[ConfigError]) -> None:
        first = faults[0]
        super().__init__(first.file, first.entry, first.reason, first.remedy)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def may_change(section: str, key: str, new: Tables) -> bool:
    """Whether a running broker takes this over. It goes on asking who somebody is, whatever it reads: a file that was
    read while it was written, or emptied, must not let everybody in."""
    is_opening = (section, key) == ("auth", "users_file") and new.auth.users_file is None
    return (section, key) in RELOADABLE and not is_opening


def changes(old: Tables, new: Tables) -> Iterator[tuple[str, str]]:
    """The sections and keys in which two files differ."""
    for section in Tables.__struct_fields__:
        before, after = getattr(old, section), getattr(new, section)
        for key in before.__struct_fields__:
            if getattr(before, key) != getattr(after, key):
                yield section, key
