"""Numbers as people read them, and what lies between two readings of a broker's counters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from veena.dashboard.pictures.scene import BrokerFacts


def amount(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def bytes_text(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.0f} GiB" if number >= 10 else f"{number:.1f} GiB"


def span_text(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s" if minutes else f"{left} s"


def clock_text(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9).strftime("%H:%M:%S.%f")[:-3] if at_ns else ""


def after_text(at_ns: int, begin_ns: int) -> str:
    """How much later something was."""
    return f"+{(at_ns - begin_ns) / 1e6:.1f} ms" if at_ns and begin_ns else clock_text(at_ns)


def rate_text(rate: float | None) -> str:
    return "…" if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def counts(status: Mapping[str, Any]) -> dict[str, float]:
    """The counters of a broker that only grow."""
    broker = status["broker"]
    return {
        "in": broker["origin"]["accepted"] + broker["router"]["copies_in"],
        "out": broker["ends"]["delivered"] + broker["router"]["copies_out"],
        "accepted": broker["origin"]["accepted"],
        "delivered": broker["ends"]["delivered"],
        "dropped": broker["outlet"]["dropped"],
    }


def rates(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, float]:
    """Counters a second between two statuses of a broker; nothing where it began anew meanwhile."""
    span = 0.0 if before is None else now["uptime_s"] - before["uptime_s"]
    if before is None or span <= 0:
        return {}
    old = counts(before)
    return {name: max(0.0, count - old[name]) / span for name, count in counts(now).items()}


def link_rates(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[tuple[int, ...], float]:
    """Bytes a second, in and out, between a broker and each neighbour."""
    span = 0.0 if before is None else now["uptime_s"] - before["uptime_s"]
    if before is None or span <= 0:
        return {}
    old = {each["link"]: each["bytes_in"] + each["bytes_out"] for each in before["transports"]}
    sizes = {each["link"]: each["bytes_in"] + each["bytes_out"] for each in now["transports"]}
    found: dict[tuple[int, ...], float] = {}
    for link in now["broker"]["links"]:
        number = link["link"]
        if link["neighbour"] is not None and number in old and number in sizes:
            neighbour = tuple(link["neighbour"])
            found[neighbour] = found.get(neighbour, 0.0) + max(0, sizes[number] - old[number]) / span
    return found


def facts(status: Mapping[str, Any], before: Mapping[str, Any] | None, asking: int = 1) -> BrokerFacts:
    """What the picture shows of a broker; those who only ask are none of its clients."""
    broker = status["broker"]
    pace = rates(status, before)
    return BrokerFacts(
        clients=max(0, status["clients"]["clients"] - asking),
        subscriptions=broker["profiles"]["subscriptions"],
        durable=broker["durables"]["durables"],
        events_in_per_second=pace.get("in"),
        events_out_per_second=pace.get("out"),
        slow=broker["outlet"]["clogged"],
        trouble=status["store"]["trouble"],
    )


def broker_row(label: str, status: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A broker in the tables: clients, profiles, rates, and who reads too slowly."""
    broker, pace = status["broker"], rates(status, before)
    outlet = broker["outlet"]
    return {
        "broker": label,
        "up": span_text(status["uptime_s"]),
        "clients": max(0, status["clients"]["clients"] - 1),
        "subscriptions": broker["profiles"]["subscriptions"],
        "durable": broker["durables"]["durables"],
        "profiles": broker["profiles"]["rows"],
        "in": rate_text(pace.get("in")),
        "out": rate_text(pace.get("out")),
        "clogged": outlet["clogged"],
        "waiting": outlet["waiting"],
        "waiting_bytes": bytes_text(outlet["waiting_bytes"]),
        "dropped": outlet["dropped"],
        "disconnected": outlet["disconnected"],
        "log": bytes_text(status["store"]["used_bytes"]),
        "memory": "" if status.get("memory_bytes") is None else bytes_text(status["memory_bytes"]),
        "version": status.get("version", ""),
    }
