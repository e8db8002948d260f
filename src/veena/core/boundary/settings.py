"""The settings of a broker's core, with the reason for each default. Times are in nanoseconds, as everywhere here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal

from veena.address import DEFAULT_FANOUT, DEFAULT_LEVELS, FANOUTS, MAX_LEVELS, Address, check_unit, format_address
from veena.core.wire.header import DEFAULT_MAX_FRAME
from veena.core.wire.membership import MAX_THRESHOLD
from veena.errors import ConfigError, InvalidAddress, LocalProtocolError
from veena.matching.base.work import EVALUATION_WORK

Network = IPv4Network | IPv6Network

MILLISECOND_NS = 1_000_000
SECOND_NS = 1000 * MILLISECOND_NS
#: Entries of the log, or of an inbox, that the core reads from the disk at once.
READ_BATCH = 256
#: Networks in one list of rules: more belong into a firewall.
MAX_NETWORKS = 1024
#: An eighth of the rows that another broker keeps (`interest.table`), and room for 100,000 topics.
DEFAULT_BROKER_CONSTRAINTS = 125_000
#: In its own cluster a want is two rows, its broker's and its cluster's: three quarters of what a broker keeps, and the
#: rest is for other units and for what was withdrawn.
DEFAULT_UNIT_CONSTRAINTS = 400_000
#: Bounds of which less than one is a mistake.
_COUNTS = (
    "max_open",
    "max_log_bytes",
    "session_bytes",
    "slow_ns",
    "evaluation_work",
    "max_broker_constraints",
    "max_unit_constraints",
)


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """Which nodes a broker takes, and how many gateways it keeps at each level.

    `denied` wins over `allowed`; an empty `allowed` allows all. Levels beyond the thresholds given have none.
    """

    thresholds: tuple[int, ...]
    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.thresholds) <= MAX_LEVELS:
            raise InvalidAddress(f"thresholds {self.thresholds}: expected 1 to {MAX_LEVELS} numbers, level 0 first")
        for level, threshold in enumerate(self.thresholds):
            if not 0 <= threshold <= MAX_THRESHOLD:
                raise InvalidAddress(f"threshold {threshold} of level {level}: expected 0 to {MAX_THRESHOLD}")
        for name, networks in (("allowed", self.allowed), ("denied", self.denied)):
            if len(networks) > MAX_NETWORKS:
                raise InvalidAddress(f"{name} has {len(networks)} networks; at most {MAX_NETWORKS}, merge some")

    @classmethod
    def parse(
        cls, thresholds: Iterable[int], allowed: Iterable[str] = (), denied: Iterable[str] = ()
    ) -> ConnectionRules:
        """From text such as `10.0.0.0/8`, as a configuration has it."""
        return cls(tuple(thresholds), _networks("allowed", allowed), _networks("denied", denied))

    def threshold(self, level: int) -> int:
        return self.thresholds[level] if level < len(self.thresholds) else 0

    def admits(self, ip: str) -> bool:
        """Whether a node with this IP address may link here; one without (not over IP) only when no list limits it."""
        if not ip:
            return not self.allowed
        try:
            address = ip_address(ip)
        except ValueError:
            return False
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped  # a dual-stack listener shows IPv4 peers in this form
        if any(address in network for network in self.denied):
            return False
        return not self.allowed or any(address in network for network in self.allowed)


def _networks(name: str, texts: Iterable[str]) -> tuple[Network, ...]:
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise InvalidAddress(f"{name} network {text!r}: {error}; expected a form such as 10.0.0.0/8") from None
    return tuple(networks)


#: Many neighbours in the cluster, few gateways: a gate is where load gathers.
DEFAULT_RULES = ConnectionRules((16, 8, 4, 4, 4, 4, 4, 4))


@dataclass(frozen=True, slots=True)
class Settings:
    """What brokers of one network agree on (name, levels, fan-out), and each broker's own patience."""

    network: str = "veena"
    levels: int = DEFAULT_LEVELS
    fanout: int = DEFAULT_FANOUT
    #: Often enough to notice a death within seconds, rare enough to cost nothing.
    heartbeat_ns: int = SECOND_NS
    #: Three heartbeats may be lost before a link is suspected (FLT-02).
    suspect_after_ns: int = 3 * SECOND_NS
    #: A second patience of the same length before suspicion is confirmed; a peer's report shortens it.
    confirm_after_ns: int = 3 * SECOND_NS
    #: A heartbeat unanswered for so long means a crowded link or a slow process (FLT-03).
    answer_within_ns: int = 4 * SECOND_NS
    #: First retransmission over a transport that loses; it doubles up to 8 times this.
    retransmit_ns: int = 200 * MILLISECOND_NS
    #: How often a link's load is looked at (LCM-03: every few seconds) ...
    load_check_ns: int = 5 * SECOND_NS
    #: ... and how rarely a change of cost is announced for one link, because everybody re-sends what is open.
    cost_hold_ns: int = 30 * SECOND_NS
    #: A unit out of reach for so long is reported as gone on behalf of its dead brokers. Longer than a suspicion
    #: takes to be confirmed, so that the brokers concerned speak first.
    reconcile_ns: int = 10 * SECOND_NS
    #: How long a closed connection is remembered. A broker that was cut off forgets what it cannot reach in half that
    #: time, so that no stale copy can come back to life.
    tombstone_ns: int = 3600 * SECOND_NS
    #: How long a speaker gathers changes before it tells them, by level: a change near by is worth telling sooner.
    batch_ns: tuple[int, ...] = (
        50 * MILLISECOND_NS,
        100 * MILLISECOND_NS,
        250 * MILLISECOND_NS,
        500 * MILLISECOND_NS,
    )
    #: What a unit told is believed for so long after its speaker's last sign of life; then it may want anything. Longer
    #: than suspicion, confirmation and spreading together, so that whoever is no longer waited for has noticed it too,
    #: and long enough to keep the signs rare.
    lease_ns: int = 15 * SECOND_NS
    #: How long what a client wanted is still told after its connection was lost: one that dials again at once causes no
    #: transitions (PRF-08). 0 withdraws at once.
    grace_ns: int = 5 * SECOND_NS
    #: What is remembered of events and subscriptions for those who ask afterwards (`journal`): nothing, what became of
    #: events at their two ends, or their hops as well. It costs memory and disk for every event.
    records: Literal["off", "deliveries", "all"] = "off"
    #: Where events go among the units of the highest level: to those that may want them, or, as in the papers, to all
    #: (PPP-14).
    top: Literal["interest", "broadcast"] = "interest"
    #: The longest event frame; up to 16 MiB.
    max_frame: int = DEFAULT_MAX_FRAME
    #: An event that could not be delivered for so long is a dead letter; ends remember twice as long.
    retention_ns: int = 3600 * SECOND_NS
    #: Disks that an event is on before it is accepted: 2 survives the loss of any one of them.
    copies: int = 1
    #: A broker that keeps second copies publishes them when their origin has been out of reach for so long.
    takeover_ns: int = 5 * SECOND_NS
    #: A unit whose acknowledgements lag so long counts as absent: the broker that entered its unit logs for it.
    absent_after_ns: int = 5 * SECOND_NS
    #: Who finds others again after an absence gathers their backlogs for so long, to hand them over in order.
    merge_ns: int = SECOND_NS
    #: Where a durable client comes from elsewhere, what was kept there is waited for so long.
    arrive_ns: int = 5 * SECOND_NS
    #: A broker that stands by for another takes over its durable subscriptions when that one has been out of reach for
    #: so long: longer than a restart takes, shorter than a retention. 0: nobody stands by. Young: not by default.
    standby_ns: int = 0
    #: Reliable events that one broker has accepted and not delivered; the next publisher is told to wait.
    max_open: int = 100_000
    #: What waits in the log for units that are not served yet; like `max_open`, a publisher is told to pause at three
    #: quarters of it and to go on at half.
    max_log_bytes: int = 4 << 30
    #: What waits for one client that reads more slowly than events come: bytes, since what is too much is a matter of
    #: memory and not of a number. Some seconds of a very busy topic.
    session_bytes: int = 32 << 20
    #: A client that takes nothing of what waits for it for so long does not read: its session is ended.
    slow_ns: int = 5 * SECOND_NS
    #: What evaluating one constraint on one event may cost in a broker's loop; what costs more is evaluated outside of
    #: it. A unit is a node that libxml2 visits (`matching.base.work`).
    evaluation_work: int = EVALUATION_WORK
    #: Distinct constraints that one broker, and each of its units, tells beyond itself: every one is a row at many
    #: others. What would be one more is refused where it is subscribed to (`quota`).
    max_broker_constraints: int = DEFAULT_BROKER_CONSTRAINTS
    max_unit_constraints: int = DEFAULT_UNIT_CONSTRAINTS
    #: A unit out of reach for so long is dialled directly: suspicion and confirmation come first.
    dial_after_ns: int = 8 * SECOND_NS
    #: The same for claims: who has heard of what.
    claim_ns: tuple[int, ...] = (
        50 * MILLISECOND_NS,
        100 * MILLISECOND_NS,
        250 * MILLISECOND_NS,
        500 * MILLISECOND_NS,
    )
    #: Most gateways that a broker keeps at each level, level 0 first (NOP-02), and whom it lets in (NOP-01).
    rules: ConnectionRules = DEFAULT_RULES

    @property
    def forget_wants_ns(self) -> int:
        """How long it is remembered what a unit out of reach wants: for as long as events are kept for it, and not
        shorter than its connections. A withdrawn want is remembered for twice that, lest it comes back to life."""
        return max(self.retention_ns, self.tombstone_ns // 2)

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= MAX_LEVELS:
            raise ConfigError("settings", "levels", f"{self.levels}", f"use 1 to {MAX_LEVELS}")
        if self.fanout not in FANOUTS:
            raise ConfigError("settings", "fanout", f"{self.fanout}", "use 32 or 64")
        if self.grace_ns < 0:
            raise ConfigError("settings", "grace_ns", f"{self.grace_ns}", "use 0 or more nanoseconds")
        if self.top not in ("interest", "broadcast"):
            raise ConfigError("settings", "top", repr(self.top), 'use "interest" or "broadcast"')
        if self.records not in ("off", "deliveries", "all"):
            raise ConfigError("settings", "records", repr(self.records), 'use "off", "deliveries" or "all"')
        if self.copies not in (1, 2):
            raise ConfigError("settings", "copies", f"{self.copies}", "use 1 or 2")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ConfigError("settings", name, f"{getattr(self, name)}", "use 1 or more")
        if self.heartbeat_ns <= 0 or self.suspect_after_ns < 2 * self.heartbeat_ns:
            raise ConfigError("settings", "suspect_after_ns", "shorter than two heartbeats", "let two heartbeats pass")
        if self.reconcile_ns < self.suspect_after_ns + self.confirm_after_ns:
            raise ConfigError("settings", "reconcile_ns", "shorter than a confirmed suspicion", "make it longer")
        if self.lease_ns <= self.suspect_after_ns + self.confirm_after_ns:
            raise ConfigError("settings", "lease_ns", "shorter than a confirmed suspicion", "make it longer")
        if self.tombstone_ns < 4 * self.reconcile_ns:
            raise ConfigError("settings", "tombstone_ns", "shorter than four times reconcile_ns", "make it longer")


def check_place(address: Address, settings: Settings) -> None:
    """Raise LocalProtocolError unless a network of these settings has such an address."""
    if len(address) != settings.levels:
        raise LocalProtocolError(
            f"address {format_address(address)} in a network of {settings.levels} levels: give it as many parts"
        )
    check_unit(address, settings.fanout)
