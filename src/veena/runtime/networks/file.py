"""Network files: brokers and links as TOML, checked so that one clear error names the line and the remedy.

A file reads as in `networks/`: a `[network]` table (name, levels, fanout), a `[[broker]]` table for each broker and a
`[[link]]` table for each link. Labels are joined by dots, the highest unit first, and get their numbers in order of
appearance. The first fault found is raised as one ConfigError; a misspelt key is an error that suggests the right one.

`dump_network` writes what `parse_network` reads back equal. Whether every unit is in one piece (TOP-03, TOP-04) is a
question of its own, `check_connected`, because `veena topology check` wants the list of partitions instead.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veena.address import DEFAULT_FANOUT, DEFAULT_LEVELS, FANOUTS, MAX_LEVELS, Address, Labels, level_name, link_level
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.networks.model import (
    DEFAULT_TRANSPORT,
    Articulation,
    BrokerEntry,
    GatekeeperRecord,
    LinkEntry,
    Network,
    Partition,
    articulation_brokers,
    components,
    controllers,
    gatekeeper_record,
    gatekeepers,
    make_network,
    partitions,
)
from veena.runtime.toml_text import load_toml

__all__ = [
    "Articulation",
    "BrokerEntry",
    "GatekeeperRecord",
    "LinkEntry",
    "Network",
    "Partition",
    "articulation_brokers",
    "check_connected",
    "components",
    "controllers",
    "dump_network",
    "gatekeeper_record",
    "gatekeepers",
    "load_network",
    "make_network",
    "parse_network",
    "partitions",
]

#: What a link can run over.
TRANSPORTS = ("tcp", "tls", "ws", "memory")
#: The papers speak of UDP, so people write it. They learn that there is none before anything is started.
NO_UDP = "there is no UDP transport"
#: A million brokers with three links each take about 200 MB; what is larger is no network file.
MAX_FILE_BYTES = 512 * 1024 * 1024
#: A minute one way is beyond any link on this planet, and beyond every time-out.
MAX_DELAY_MS = 60_000.0
MAX_NAME_LENGTH = 64
#: Addresses that one broker listens on: one a transport, twice over.
MAX_LISTEN = 2 * len(TRANSPORTS)

_NETWORK_KEYS = ("name", "levels", "fanout")
_BROKER_KEYS = ("address", "listen")
_LINK_KEYS = ("between", "transport", "delay_ms")
_LISTEN = re.compile(r"([a-z]+)://(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})")


def load_network(path: Path | str, connected: bool = False) -> Network:
    """Read a network file; `connected=True` also refuses one with a partition."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(str(path), "file", f"larger than {MAX_FILE_BYTES} bytes", "name a network file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), "file", f"cannot be read ({error.strerror})", "name a network file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"byte {error.start}", "is no UTF-8", "save the file as UTF-8") from None
    network = parse_network(text, str(path))
    if connected:
        check_connected(network, str(path), text)
    return network


def parse_network(text: str, file: str = "network") -> Network:
    """The network that this text describes; `file` is what an error calls it."""
    return _Reader(text, file).network()


def dump_network(network: Network) -> str:
    """The network as the text of a file that loads back equal."""
    lines = [
        "[network]",
        f"name = {_quoted(network.name)}",
        f"levels = {network.levels}",
        f"fanout = {network.fanout}",
    ]
    label = {broker.address: broker.label for broker in network.brokers}
    for broker in network.brokers:
        lines += ["", "[[broker]]", f"address = {_quoted(broker.label)}"]
        if broker.listen:
            lines.append(f"listen = [{', '.join(map(_quoted, broker.listen))}]")
    for link in network.links:
        lines += ["", "[[link]]", f"between = [{_quoted(label[link.a])}, {_quoted(label[link.b])}]"]
        if link.transport != DEFAULT_TRANSPORT:
            lines.append(f"transport = {_quoted(link.transport)}")
        if link.delay_ms:
            lines.append(
                f"delay_ms = {link.delay_ms:.0f}" if link.delay_ms.is_integer() else f"delay_ms = {link.delay_ms!r}"
            )
    return "\n".join(lines) + "\n"


def check_connected(network: Network, file: str = "network", text: str = "") -> None:
    """Raise ConfigError for the largest unit whose sub-units do not reach each other inside it (TOP-03, TOP-04)."""
    for partition in partitions(network):
        smallest = min(partition.parts, key=len)
        level = network.levels - len(smallest[0])
        kind = level_name(level)
        inside = network.labels.label(partition.context) if partition.context else "the network"
        entry = f"{level_name(level + 1)} {inside}" if partition.context else "network"
        first = network.labels.label(smallest[0])
        named = _listed([network.labels.label(unit) for unit in smallest])
        if len(smallest) == 1:
            reason = f"{kind} {named} has no level-{level} link to another {kind} of {inside}"
        else:
            reason = f"no level-{level} link joins the {kind}s {named} to the other {kind}s of {inside}"
        raise ConfigError(
            file,
            _at(_line_of(text, f'"{first}.') or _line_of(text, f'"{first}"'), entry),
            f"{reason}: it falls into {len(partition.parts)} parts",
            f"add a [[link]] from {first} to another {kind} there",
        )


class _Reader:
    """One reading of one text: where its tables stand, and the labels as they get their numbers."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.document = self._parsed()

    def network(self) -> Network:
        document = self.document
        self._check_keys("the file", document, ("network", "broker", "link"), line=self._line_of_key(document))
        head = document.get("network", {})
        if not isinstance(head, dict):
            raise self._fault("[network]", f"is {_shown(head)}, not a table", "write [network] and its keys below")
        self._check_keys("[network]", head, _NETWORK_KEYS, line=None)
        name = head.get("name", Path(self.file).stem[:MAX_NAME_LENGTH] or "network")
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            remedy = f"write a string of 1 to {MAX_NAME_LENGTH} printable characters"
            raise self._fault(self._head_entry("name"), f"name is {_shown(name)}", remedy)
        levels = self._number(head, "levels", DEFAULT_LEVELS, range(1, MAX_LEVELS + 1), f"1 to {MAX_LEVELS}")
        fanout = self._number(head, "fanout", DEFAULT_FANOUT, FANOUTS, " or ".join(map(str, FANOUTS)))
        labels = Labels(levels, fanout)
        brokers = self._brokers(labels)
        links = self._links({broker.label: broker.address for broker in brokers})
        return Network(name, levels, fanout, labels, brokers, links)

    # --- the three kinds of table ---

    def _number(self, head: Mapping[str, Any], key: str, default: int, allowed: Collection[int], text: str) -> int:
        value = head.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
            raise self._fault(self._head_entry(key), f"{key} is {_shown(value)}", f"write a whole number, {text}")
        return value

    def _brokers(self, labels: Labels) -> tuple[BrokerEntry, ...]:
        tables = self._tables("broker", _BROKER_KEYS)
        if not tables:
            raise self._fault("[[broker]]", "there is none", 'add [[broker]] and address = "..." for each broker')
        taken: dict[str, str] = {}
        listening: dict[str, str] = {}
        return tuple(_broker(table, labels, taken, listening) for table in tables)

    def _links(self, addresses: Mapping[str, Address]) -> tuple[LinkEntry, ...]:
        return tuple(_link(table, addresses) for table in self._tables("link", _LINK_KEYS))

    # --- reading the text, and pointing into it ---

    def _parsed(self) -> dict[str, Any]:
        try:
            return load_toml(self.text)
        except RecursionError:
            raise self._fault(
                "file", "is nested too deeply", "write [network], [[broker]] and [[link]] tables"
            ) from None
        except ValueError as error:
            reason, _, place = str(error).partition(" (at ")
            found = re.match(r"line (\d+)", place)
            line = int(found[1]) if found else self.text.count("\n") + 1
            raise self._fault(f"line {line}", f"is no TOML: {reason}", "mend the syntax there") from None

    def _tables(self, name: str, known: tuple[str, ...]) -> list[_Table]:
        found = self.document.get(name, [])
        if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
            entry = _at(self._line_of_key({name: None}), name)
            raise self._fault(entry, f"is {_shown(found)}", f"begin each {name} with a line [[{name}]]")
        lines = self._header_lines(name, len(found))
        tables = [_Table(self, f"[[{name}]] {at + 1}", lines[at], values) for at, values in enumerate(found)]
        for table in tables:
            self._check_keys(table.entry, table.values, known, table.line)
        return tables

    def _check_keys(self, entry: str, table: Mapping[str, Any], known: tuple[str, ...], line: int | None) -> None:
        for key in table:
            if key not in known:
                if entry == "[network]":
                    line = self.key_line(_line_of(self.text, "[network]"), key)
                remedy = f"the keys here are {', '.join(known)}" + _suggestion(key, known)
                raise self._fault(_at(self.key_line(line, key), entry), f"unknown key {key!r}", remedy)

    def _head_entry(self, key: str) -> str:
        return _at(self.key_line(_line_of(self.text, "[network]"), key), "[network]")

    def _header_lines(self, name: str, count: int) -> list[int | None]:
        """The line of each table; none at all where the text has other lines that look like one."""
        header = re.compile(rf"\s*\[\[\s*[\"']?{name}[\"']?\s*\]\]")
        lines = [number for number, line in enumerate(self.text.split("\n"), 1) if header.match(line)]
        return [*lines] if len(lines) == count else [None] * count

    def key_line(self, header: int | None, key: str) -> int | None:
        """The line of a key within the table that begins at `header`, else that header's."""
        if header is None:
            return None
        lines = self.text.split("\n")
        for number in range(header, len(lines)):
            if lines[number].lstrip().startswith("["):
                break
            if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", lines[number]):
                return number + 1
        return header

    def _line_of_key(self, document: Mapping[str, Any]) -> int | None:
        for key in document:
            if key not in ("network", "broker", "link") or len(document) == 1:
                pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[\].=]")
                return next((n for n, line in enumerate(self.text.split("\n"), 1) if pattern.match(line)), None)
        return None

    def _fault(self, entry: str, reason: str, remedy: str) -> ConfigError:
        return ConfigError(self.file, entry, reason, remedy)


@dataclass(frozen=True, slots=True)
class _Table:
    """One [[broker]] or [[link]], and where it stands."""

    reader: _Reader
    entry: str
    line: int | None
    values: Mapping[str, Any]

    def fault(self, key: str, reason: str, remedy: str) -> ConfigError:
        entry = _at(self.reader.key_line(self.line, key), self.entry)
        return ConfigError(self.reader.file, entry, reason, remedy)


def _broker(table: _Table, labels: Labels, taken: dict[str, str], listening: dict[str, str]) -> BrokerEntry:
    """One broker; `taken` and `listening` remember who has a label path or a place to listen."""
    example = ".".join(["SSC-A", "SC-1", "c", "6"][-labels.levels :])
    label = table.values.get("address")
    if not isinstance(label, str):
        reason = f"address is {_shown(label)}" if "address" in table.values else "has no address"
        raise table.fault("address", reason, f'write its label path, such as address = "{example}"')
    if label in taken:
        reason = f"address {label!r} is taken by {taken[label]}"
        raise table.fault("address", reason, "give each broker a label path of its own")
    taken[label] = table.entry
    try:
        address = labels.add(label)
    except InvalidAddress as error:
        reason, _, remedy = str(error).partition(";")
        raise table.fault("address", reason, remedy.strip() or f"write a label path such as {example!r}") from None
    listen = table.values.get("listen", [])
    problem = _listen_problem(listen)
    if problem:
        raise table.fault("listen", problem, 'write a list such as ["tcp://127.0.0.1:7700"]')
    for url in listen:
        if url in listening:
            remedy = "give each its own port, or leave listen out to have one picked"
            raise table.fault("listen", f"{url!r} is listened on by {listening[url]!r} already", remedy)
        if not url.endswith(":0"):
            listening[url] = label
    return BrokerEntry(label, address, tuple(listen))


def _link(table: _Table, addresses: Mapping[str, Address]) -> LinkEntry:
    ends = table.values.get("between")
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
        reason = f"between is {_shown(ends)}" if "between" in table.values else "has no between"
        raise table.fault("between", reason, 'write the two brokers it joins: between = ["...", "..."]')
    for end in ends:
        if end not in addresses:
            raise table.fault("between", f"there is no broker {end!r}", _near_labels(end, addresses))
    a, b = addresses[ends[0]], addresses[ends[1]]
    if a == b:
        raise table.fault("between", f"links broker {ends[0]!r} to itself", "name two different brokers")
    transport = table.values.get("transport", DEFAULT_TRANSPORT)
    if not isinstance(transport, str) or transport not in TRANSPORTS:
        missing = f"{NO_UDP}; " if transport == "udp" else ""
        remedy = f"{missing}write one of {', '.join(TRANSPORTS)}" + _suggestion(transport, TRANSPORTS)
        raise table.fault("transport", f"transport is {_shown(transport)}", remedy)
    delay = table.values.get("delay_ms", 0)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= MAX_DELAY_MS:
        remedy = f"write a number of milliseconds, 0 to {MAX_DELAY_MS:.0f}"
        raise table.fault("delay_ms", f"delay_ms is {_shown(delay)}", remedy)
    return LinkEntry(a, b, link_level(a, b), transport, float(delay))


def _listen_problem(listen: object) -> str | None:
    if not isinstance(listen, list) or not all(isinstance(url, str) for url in listen):
        return f"listen is {_shown(listen)}"
    if len(listen) > MAX_LISTEN:
        return f"listen names {len(listen)} places, more than {MAX_LISTEN}"
    for url in listen:
        found = _LISTEN.fullmatch(url)
        if not found:
            return f"listen has {_shown(url)}, which is no transport://host:port"
        if found[1] not in TRANSPORTS:
            missing = f"; {NO_UDP}" if found[1] == "udp" else ""
            return f"listen has transport {found[1]!r}, which is none of {', '.join(TRANSPORTS)}{missing}"
        if int(found[3]) > 65535:
            return f"listen has port {found[3]}, beyond 65535"
    return None


def _near_labels(label: str, known: Collection[str]) -> str:
    """What the writer may have meant: labels that end so, else labels spelt nearly so."""
    near = [other for other in known if other.endswith(f".{label}")][:3]
    near = near or difflib.get_close_matches(label, known, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else "add a [[broker]] with this address"


def _suggestion(found: object, known: Collection[str]) -> str:
    near = difflib.get_close_matches(str(found), known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _line_of(text: str, wanted: str) -> int | None:
    return next((number for number, line in enumerate(text.split("\n"), 1) if wanted in line), None) if text else None


def _at(line: int | None, entry: str) -> str:
    return entry if line is None else f"line {line}, {entry}"


def _listed(names: list[str], limit: int = 4) -> str:
    return ", ".join(names) if len(names) <= limit else f"{', '.join(names[:limit])} and {len(names) - limit} more"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
