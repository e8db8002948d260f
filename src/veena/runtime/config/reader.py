"""Reading a broker's configuration: all faults of a file in one pass, each with its line.

Three looks at the text: is it TOML; does every table have known keys with values of the right type and size; and do
they make sense together. A later look is taken even when an earlier one found faults, as far as what it needs is there.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from veena.address import Address, format_address, parse_address
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.config.schema import Config, ConfigFaults, Neighbour, Tables
from veena.runtime.locator.regions import Regions
from veena.runtime.networks.file import Network, load_network
from veena.runtime.pki.broker_certificate import load_authorities
from veena.runtime.pki.grant import NotGranted, remedy_for, verify_grant
from veena.runtime.toml_text import load_toml
from veena.runtime.transports.names import BrokerName
from veena.runtime.transports.secret_files import check_not_open, check_secret
from veena.runtime.transports.url import Url, is_loopback, parse_url

#: A configuration is a page or two.
MAX_FILE_BYTES = 1 << 20
#: Faults of one file that are told; who has more mends these first.
MAX_FAULTS = 100
_DEFAULT_FILE = "the defaults"
#: Keys that there were once: why there are none now, and what to write.
_GONE = {
    ("broker", "insecure"): (
        "was two settings in one",
        "write plaintext = true to listen beyond loopback without TLS, open_links = true to let anybody be a broker",
    )
}


def load_config(path: Path | str | None = None, changes: dict[str, dict[str, Any]] | None = None) -> Config:
    """The configuration in that file, or the defaults; `changes` (of the command line) win over both.

    Raises ConfigFaults with everything that is wrong.
    """
    if path is None:
        return parse_config("", _DEFAULT_FILE, Path(), changes)
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(str(path), "file", f"larger than {MAX_FILE_BYTES} bytes", "name a broker's configuration")
        check_not_open(path)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigFaults(
            [ConfigError(str(path), "file", f"cannot be read ({error.strerror})", "name a configuration")]
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigFaults(
            [ConfigError(str(path), f"byte {error.start}", "is no UTF-8", "save the file as UTF-8")]
        ) from None
    except ConfigError as error:
        raise ConfigFaults([error]) from None
    return parse_config(text, str(path), path.parent, changes)


def parse_config(
    text: str, file: str = "config", base: Path | None = None, changes: dict[str, dict[str, Any]] | None = None
) -> Config:
    """The configuration that this text describes."""
    reading = _Reading(text, file, base or Path())
    config = reading.config(changes or {})
    if reading.faults or config is None:
        found = sorted(reading.faults, key=_line_number)
        if len(found) > MAX_FAULTS:
            found[MAX_FAULTS:] = [ConfigError(file, "file", f"has more than {MAX_FAULTS} faults", "mend these first")]
        raise ConfigFaults(found)
    return config


class _Reading:
    """One reading of one text; faults are collected."""

    def __init__(self, text: str, file: str, base: Path) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.file = file
        self.base = base
        self.faults: list[ConfigError] = []
        #: Where keys and tables begin, once it was asked for.
        self._first_lines: dict[tuple[str, ...], int] | None = None

    def config(self, changes: dict[str, dict[str, Any]]) -> Config | None:
        try:
            document = load_toml(self.text)
        except (ValueError, RecursionError) as error:
            reason, _, place = str(error).partition(" (at ")
            found = re.match(r"line (\d+)", place)
            line = int(found[1]) if found else self.text.count("\n") + 1
            self.faults.append(ConfigError(self.file, f"line {line}", f"is no TOML: {reason}", "mend the syntax there"))
            return None
        for section, values in changes.items():
            document.setdefault(section, {}).update(values)
        tables = self._struct(Tables, document, ())
        assert isinstance(tables, Tables)
        return self._sense(tables)

    # --- keys and types ---

    def _struct(self, kind: type[msgspec.Struct], given: dict[str, Any], path: tuple[str, ...]) -> msgspec.Struct:
        """A table with what is right in it; the rest keeps its default and is a fault."""
        hints = get_type_hints(kind, include_extras=True)
        known = kind.__struct_fields__
        good: dict[str, Any] = {}
        for key, value in given.items():
            if len(self.faults) > MAX_FAULTS:
                break
            if key not in known:
                if (".".join(path), key) in _GONE:
                    self.fault(path, key, *_GONE[".".join(path), key])
                    continue
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                remedy = f"the {'keys' if path else 'tables'} here are {', '.join(known)}"
                self.fault(path, key, "is unknown", remedy + (f"; did you mean {near[0]}?" if near else ""))
                continue
            inner = hints[key]
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                if isinstance(value, dict):
                    good[key] = self._struct(inner, value, (*path, key))
                else:
                    self.fault(path, key, f"is {_shown(value)}, not a table", f"write [{'.'.join((*path, key))}]")
                continue
            try:
                good[key] = msgspec.convert(value, inner)
            except msgspec.ValidationError as error:
                self.fault(path, key, f"is {_shown(value)}", _expected(inner, str(error)))
        return kind(**good)

    # --- sense ---

    def _sense(self, tables: Tables) -> Config | None:
        listen = self._urls("broker", "listen", tables.broker.listen)
        if not tables.broker.listen:
            self.fault(("broker",), "listen", "names no place", f'write listen = ["{"veena://127.0.0.1:7700"}"]')
        self._urls("broker", "announce", tables.broker.announce)
        dialled = self._dialled(tables)
        self._check_doors(tables, listen)
        self._check_tls(tables, [*listen, *dialled])
        self._check_files(tables)
        self._urls("locator", "brokers", tables.locator.brokers)
        for reason in tables.limits.client.faults():
            self.fault(("limits", "client"), reason.split()[0], reason, "choose another value")
        if tables.links.retry_s_max < tables.links.retry_s:
            self.fault(("links",), "retry_s_max", "is shorter than retry_s", "make it longer")
        place = self._place(tables)
        if place is None or self.faults:
            return None
        address, network, neighbours = place
        self._check_dialled(tables, listen, dialled, neighbours)
        label = tables.broker.label or ""
        config = Config(
            tables=tables,
            base=self.base,
            file=self.file,
            name=label if label and tables.broker.name == "broker" else tables.broker.name,
            address=address,
            network=network.name if network is not None else tables.network.name,
            levels=network.levels if network is not None else tables.network.levels,
            fanout=network.fanout if network is not None else tables.network.fanout,
            listen=tuple(map(str, listen)),
            neighbours=(*neighbours, *(Neighbour((str(url),)) for url in dialled)),
            members=tuple(broker.address for broker in network.brokers) if network is not None else (),
            label=label,
            labels=None if network is None else network.labels,
            listed=frozenset() if network is None else frozenset(_listed(network)),
        )
        try:
            config.settings()
        except ConfigError as error:
            self.fault(("limits",), error.entry, error.reason, error.remedy)
        self._check_names(config)
        self._check_neighbours(config)
        self._check_grant(config)
        try:
            Regions(tables.locator.regions, config.labels, config.levels, config.fanout)
        except ValueError as error:
            self.fault(("locator",), "regions", str(error), 'write { "10.2.0.0/16" = "SSC-A.SC-1" }')
        return config

    def _dialled(self, tables: Tables) -> list[Url]:
        """The places that the file itself has this broker dial."""
        links = tables.links
        found = [] if links.dial == "configured" else self._urls("links", "dial", links.dial)
        for neighbour in links.neighbours:
            found += self._urls("links", "neighbours", neighbour.urls)
        return found

    def _urls(self, section: str, key: str, texts: list[str]) -> list[Url]:
        found: list[Url] = []
        for text in texts:
            try:
                found.append(parse_url(text))
            except ConfigError as error:
                self.fault((section,), key, f"has {error.entry}, which {error.reason}", error.remedy)
        return found

    def _check_doors(self, tables: Tables, listen: list[Url]) -> None:
        """What others can reach needs TLS and has to ask who they are."""
        broker = tables.broker
        # Who may be a broker has every right: there is no use in asking clients then.
        asks = broker.open_links or tables.auth.users_file is not None or tables.tls.clients == "required"
        for url in listen:
            missing = [] if url.is_secure or broker.plaintext else ["TLS (veenas:// or wss://, and [tls])"]
            missing += [] if asks else ['authentication ([auth] users_file, or [tls] clients = "required")']
            if not url.is_local and missing:
                reason = f"opens {url} to other machines without {' and without '.join(missing)}"
                remedy = "add them, listen on 127.0.0.1, or set plaintext = true to go without TLS"
                remedy += "" if asks else ", open_links = true to go without authentication"
                self.fault(("broker",), "listen", reason, remedy)
        place = tables.http.listen
        if place is not None:
            host, port = split_place(place)
            if port is None:
                self.fault(("http",), "listen", f"is {place!r}", 'write "host:port", such as "127.0.0.1:7780"')
            elif not is_loopback(host) and not broker.plaintext:
                reason = f"opens {place} to other machines without TLS and authentication"
                remedy = "listen on 127.0.0.1 behind a proxy, or set [broker] plaintext = true"
                self.fault(("http",), "listen", reason, remedy)

    def _check_dialled(
        self, tables: Tables, listen: list[Url], dialled: list[Url], neighbours: tuple[Neighbour, ...]
    ) -> None:
        """Who listens inside TLS does not say in the clear, at a link of its own, what came to it inside."""
        if not any(url.is_secure for url in listen):
            return
        remedy = "write veenas:// or wss://, or listen without TLS yourself"
        told = {
            ("links", "dial"): dialled,
            ("broker", "network"): [parse_url(url) for neighbour in neighbours for url in neighbour.urls],
            ("locator", "brokers"): [parse_url(url) for url in tables.locator.brokers],
        }
        for (section, key), urls in told.items():
            for url in urls:
                if not url.is_secure and url.carrier != "memory":
                    reason = f"has this broker, which listens inside TLS, dial {url} outside of it"
                    self.fault((section,), key, reason, remedy)

    def _check_names(self, config: Config) -> None:
        """The own certificate, where it names a broker, has to name this one."""
        try:
            names = config.own_names()
        except ConfigError:  # whoever loads the certificate tells
            return
        if not names:
            return
        right = [name for name in names if (name.network, name.name) == (config.network, config.name)]
        if not right:
            reason = f"is of {names[0]}, and this is broker {config.name!r} of network {config.network!r}"
            self.fault(("tls",), "certificate", reason, "correct [broker] name or the network's, or get another one")
        elif config.tables.tls.clients == "none" and not config.tables.broker.open_links:
            reason = 'are "none", and neighbours of a broker with a certificate in its name have to show theirs'
            self.fault(("tls",), "clients", reason, 'write clients = "optional", or "required"')
        elif all(name.unit for name in right) and not any(self._is_in(config, name) for name in right):
            reason = f"is of {right[0]}, and the address is {format_address(config.address)}"
            self.fault(("tls",), "certificate", reason, "correct the address, or get a certificate for its unit")

    def _check_neighbours(self, config: Config) -> None:
        """Every name has one address."""
        names: dict[str, None] = {}
        for entry in config.tables.links.neighbours:
            if entry.name in names:
                self.fault(("links", "neighbours"), "name", f"is {entry.name!r} twice", "list a broker once")
            names[entry.name] = None
            try:
                config.address_of(entry.address)
            except InvalidAddress as error:
                remedy = f"{error}; write where broker {entry.name!r} lives"
                self.fault(("links", "neighbours"), "address", f"is {entry.address!r}", remedy)

    def _check_grant(self, config: Config) -> None:
        """The grant, if there is one, is for this broker, here and now."""
        if config.tables.links.grant is None:
            return
        remedy = "get the right one: " + remedy_for(config.name, config.address)
        authority = config.path(config.tables.tls.authority)
        if authority is None or config.tables.tls.certificate is None:
            reason = "is named without [tls] certificate and authority"
            self.fault(("links",), "grant", reason, "name them: a grant is for the broker that a certificate names")
            return
        try:
            data = config.grant()
            known = load_authorities(authority)
        except ConfigError as error:
            self.fault(("links",), "grant", error.reason, error.remedy)
            return
        try:
            granted = verify_grant(data, known, time.time())
        except NotGranted as error:
            self.fault(("links",), "grant", f"is not good: {error}", remedy)
            return
        if (granted.network, granted.name, granted.address) != (config.network, config.name, config.address):
            here = f"broker {config.name!r} of network {config.network!r} at {format_address(config.address)}"
            self.fault(("links",), "grant", f"says that {granted}, and this is {here}", remedy)

    def _is_in(self, config: Config, name: BrokerName) -> bool:
        try:
            unit = config.unit_of(".".join(name.unit))
        except InvalidAddress:
            return False
        return config.address[: len(unit)] == unit

    def _check_tls(self, tables: Tables, urls: list[Url]) -> None:
        tls = tables.tls
        if (tls.certificate is None) != (tls.key is None):
            self.fault(("tls",), "certificate", "goes with key", "name both files, or none")
        if tls.certificate is None and any(url.is_secure for url in urls if str(url) in tables.broker.listen):
            self.fault(("broker",), "listen", "uses TLS, but [tls] names no certificate", "name certificate and key")
        if tls.revoked is not None and tls.authority is None:
            self.fault(("tls",), "revoked", "is named without an authority", "name the authority whose list that is")
        if tls.clients != "none" and tls.authority is None:
            remedy = "name the file of who signed the clients' certificates"
            self.fault(("tls",), "clients", f"are {tls.clients}, but there is no authority", remedy)

    def _check_files(self, tables: Tables) -> None:
        named = [("tls", key, getattr(tables.tls, key)) for key in ("certificate", "key", "authority", "revoked")]
        named += [("auth", "users_file", tables.auth.users_file), ("links", "grant", tables.links.grant)]
        for section, key, name in named:
            if name is not None and not (self.base / name).is_file():
                self.fault((section,), key, f"names {name!r}, which is no file", "write the path of a file")
        if tables.tls.key is not None:
            try:
                check_secret(self.base / tables.tls.key)
            except ConfigError as error:
                self.fault(("tls",), "key", f"names {error.file}, whose mode {error.reason}", error.remedy)
        if tables.auth.users_file is not None and (self.base / tables.auth.users_file).is_file():
            from veena.runtime.access.users import load_users

            try:
                load_users(self.base / tables.auth.users_file, tables.limits.client)
            except ConfigError as error:
                self.faults.append(error)

    def _place(self, tables: Tables) -> tuple[Address, Network | None, tuple[Neighbour, ...]] | None:
        """Where the broker is, and whom it dials by the network file."""
        broker = tables.broker
        if broker.network is None:
            if broker.label is not None:
                self.fault(("broker",), "label", "needs a network file", 'add network = "FILE"')
            levels, fanout = tables.network.levels, tables.network.fanout
            try:
                return parse_address(broker.address or ".".join("0" * levels), levels, fanout), None, ()
            except InvalidAddress as error:
                self.fault(("broker",), "address", f"is {broker.address!r}", str(error))
                return None
        if broker.address is not None:
            self.fault(("broker",), "address", "is given beside a network file", "leave one of the two out")
        try:
            network = load_network(self.base / broker.network)
        except ConfigError as error:
            self.faults.append(error)
            return None
        by_label = {entry.label: entry for entry in network.brokers}
        if broker.label is None or broker.label not in by_label:
            near = difflib.get_close_matches(broker.label or "", by_label, n=3)
            remedy = f"write one of {', '.join(near or list(by_label)[:3])} ..."
            self.fault(("broker",), "label", f"is {broker.label!r}, which the network file does not have", remedy)
            return None
        return by_label[broker.label].address, network, tuple(self._neighbours(network, broker.label))

    def _neighbours(self, network: Network, label: str) -> list[Neighbour]:
        by_address = {entry.address: entry for entry in network.brokers}
        own = next(entry for entry in network.brokers if entry.label == label)
        found: dict[str, Neighbour] = {}
        for link in network.links:
            if link.a != own.address:
                continue
            other = by_address[link.b]
            if not other.listen:
                reason = f"dials {other.label}, which listens nowhere by the network file"
                self.fault(("broker",), "network", reason, f"give {other.label} a listen = [...] there")
            elif other.label not in found:
                urls = [url for url in other.listen if url.startswith(f"{link.transport}:")] or list(other.listen)
                found[other.label] = Neighbour(tuple(urls), other.label)
        return list(found.values())

    # --- pointing into the text ---

    def fault(self, path: tuple[str, ...], key: str, reason: str, remedy: str) -> None:
        if len(self.faults) > MAX_FAULTS:
            return
        line = self._line(path, key)
        where = f"[{'.'.join(path)}] {key}" if path else f"[{key}]"
        entry = where if line is None else f"line {line}, {where}"
        self.faults.append(ConfigError(self.file, entry, reason, remedy))

    def _line(self, path: tuple[str, ...], key: str) -> int | None:
        """The line of a key, else of its table."""
        if self._first_lines is None:
            self._first_lines = _first_lines(self.lines)
        return self._first_lines.get((*path, key), self._first_lines.get(path))


def split_place(text: str) -> tuple[str, int | None]:
    """`host:port`; None for what is no port."""
    host, _, port = text.rpartition(":")
    ok = host and port.isascii() and port.isdigit() and int(port) <= 65535
    return host.strip("[]"), int(port) if ok else None


def _first_lines(lines: list[str]) -> dict[tuple[str, ...], int]:
    """The first line of each table and of each key in it."""
    found: dict[tuple[str, ...], int] = {}
    inside: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if header:
            inside = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            found.setdefault(inside, number)
            continue
        key = re.match(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'=.]+))\s*[=.]", line)
        if key:
            found.setdefault((*inside, key[1] or key[2] or key[3] or ""), number)
    return found


def _listed(network: Network) -> Iterator[Url]:
    return (parse_url(url) for broker in network.brokers for url in broker.listen)


def _expected(kind: object, told: str) -> str:
    if get_origin(kind) is Literal:
        return f"write one of {', '.join(map(repr, get_args(kind)))}"
    reason = told.partition(" - at ")[0].replace("`", "")
    return f"{reason[0].lower()}{reason[1:]}"


def _line_number(fault: ConfigError) -> int:
    found = re.match(r"line (\d+)", fault.entry)
    return int(found[1]) if found else 1 << 30


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
