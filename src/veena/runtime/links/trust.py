"""Who may be a neighbour: a broker is believed what it says of the network, so not everybody may be one.

As long as nobody has to prove who it is (a broker that only this machine reaches, or `open_links`), anybody may. As
soon as clients have to, a link needs a certificate of a broker, whoever has made it: a client's certificate, or none at
all, must not be a way around the rights of clients, and who answers where a broker was said to listen may be anybody.

Which certificates are brokers' is said in one of two ways:

- by the certificates themselves, where this broker's own names it (`transports.names`): network and name have to be
  those of the peer's Hello, and its address has to be in a unit that the certificate allows;
- by `[links] certificates`, patterns of names, where it does not.

Where certificates name brokers, the address of a Hello has to be *bound* to the name as well: by this broker's own
configuration (the network file, `[[links.neighbours]]`), or by a grant of the authority that the Hello carries
(`pki.grant`). For the same reason nobody is dialled on others' word but at an address that the configuration or a grant
binds to some broker; who answers there is judged as whoever dials.

The invariant: no frame of a peer reaches the core before its certificate was judged, and none before its Hello was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from typing import TYPE_CHECKING

from veena.address import Address, Labels, Unit, format_address
from veena.core.boundary.inputs_effects import Dial
from veena.core.wire.control import Hello
from veena.errors import InvalidAddress, VeenaError
from veena.runtime.pki.grant import NotGranted, read_grant, remedy_for, verify_grant
from veena.runtime.transports.names import BrokerName, broker_names
from veena.runtime.transports.stream import Stream
from veena.runtime.transports.url import Url

if TYPE_CHECKING:
    from cryptography import x509


class NotTrusted(VeenaError):
    """A place that must not be dialled, or a peer there that may not be a neighbour."""


def _no_labels(label: str) -> Unit:
    raise ValueError("this broker knows no labels")


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the operator of this broker says of who lives where."""

    #: The addresses of brokers by their permanent names; they count before the network file.
    listed: Mapping[str, Address] = field(default_factory=dict)
    #: Those of the network file, where a broker's label is its name.
    labels: Labels | None = None

    def address_of(self, name: str) -> Address | None:
        found = self.listed.get(name)
        if found is None and self.labels is not None:
            try:
                unit = self.labels.unit(name)
            except InvalidAddress:
                return None
            found = unit if len(unit) == self.labels.levels else None
        return found

    def has(self, address: Address) -> bool:
        """Whether some broker lives at this address."""
        if address in self.listed.values():
            return True
        return self.labels is not None and self.address_of(self.labels.label(address)) == address


@dataclass(frozen=True, slots=True)
class Trust:
    """Who may be a neighbour, and where one may be looked for."""

    #: Names of certificates; `*` stands for any characters.
    certificates: tuple[str, ...] = ()
    anybody: bool = True
    network: str = ""
    #: Whether this broker's own certificate names it: those of its neighbours have to name them then.
    is_named: bool = False
    #: Whether this broker listens inside TLS: it dials nobody outside of it then.
    inside_tls: bool = False
    #: The only places that are dialled; None: wherever brokers are said to listen.
    places: frozenset[Url] | None = None
    #: The unit of a label path (`SSC-B.SC-5`); raises ValueError where there is none.
    unit_of: Callable[[str], Unit] = _no_labels
    #: Who lives where, where certificates name brokers; and whose grants say so, too.
    bindings: Bindings = field(default_factory=Bindings)
    authorities: tuple[x509.Certificate, ...] = ()

    @property
    def asks_names(self) -> bool:
        """Whether neighbours have to have certificates that name them."""
        return self.is_named and not self.anybody

    def why_not(self, stream: Stream) -> str | None:
        """Why this stream must not become a link, whoever has made it; None if it may."""
        if self.anybody:
            return None
        if stream.certificate is None:
            return "brokers show a certificate here: dial veenas:// or wss:// with [tls] certificate and key"
        names = broker_names(stream.certificate)
        shown = f"certificate {stream.proven!r}"
        if names and not any(name.network == self.network for name in names):
            return f"{shown} names a broker of network {names[0].network!r}, and this network is {self.network!r}"
        if self.asks_names and not names:
            return f"{shown} names no broker: get one with veena://{self.network}#NAME, as `veena pki broker` makes it"
        if self.asks_names and not self.certificates:
            return None
        found = (*stream.certificate.names, *stream.certificate.uris)
        if not any(fnmatchcase(name, pattern) for pattern in self.certificates for name in found):
            return f"{shown} is no broker's: list it in [links] certificates of the broker that refuses it"
        return None

    def why_not_place(self, url: Url) -> str | None:
        """Why a broker must not be looked for there."""
        if self.inside_tls and not url.is_secure and url.carrier != "memory":
            return f"{url} is outside TLS, and this broker listens inside: it dials veenas:// and wss:// only"
        if self.places is not None and url not in self.places:
            return f'{url} is not in the configuration, and [links] dial = "configured"'
        return None

    def why_not_dial(self, effect: Dial, now: float) -> str | None:
        """Why a broker of which others told must not be dialled: nobody may live at its address, as far as is known."""
        if not self.asks_names or self.bindings.has(effect.address):
            return None
        shown = f"no broker is known to live at {format_address(effect.address)}"
        if not effect.grant:
            return f"{shown}: it is not in the configuration, and who told of it showed no grant"
        try:
            granted = verify_grant(effect.grant, self.authorities, now)
        except NotGranted as error:
            return f"{shown}: {error}"
        if (granted.network, granted.address) != (self.network, effect.address):
            return f"{shown}: the grant says that {granted}"
        return None

    def why_not_greeting(self, stream: Stream, hello: Hello, now: float) -> str | None:
        """Why the broker that greets so must not be a neighbour."""
        names = broker_names(stream.certificate)
        if self.anybody or not names:
            return None
        found = [name for name in names if (name.network, name.name) == (self.network, hello.name)]
        if not found:
            return f"the certificate names broker {names[0].name!r}, and the peer says that it is {hello.name!r}"
        if hello.network != self.network:
            return f"the peer is of network {hello.network!r}, and its certificate of {self.network!r}"
        return self._why_not_there(found, hello) or (self._why_not_bound(hello, now) if self.asks_names else None)

    def granted_until(self, hello: Hello) -> float:
        """When the grant of a neighbour ends, by which alone it is one; in seconds since 1970."""
        if not self.asks_names or self.bindings.address_of(hello.name) == hello.address:
            return inf
        return read_grant(hello.grant).not_after

    def _why_not_bound(self, hello: Hello, now: float) -> str | None:
        """Why a name that was proved may not live at the address of its Hello."""
        known = self.bindings.address_of(hello.name)
        if known == hello.address:
            return None
        remedy = remedy_for(hello.name, hello.address)
        if known is not None:
            here = format_address(hello.address)
            return (
                f"broker {hello.name!r} lives at {format_address(known)} by the configuration here, and says that it is"
                f" at {here}: correct one of the two"
            )
        if not hello.grant:
            return f"nothing says that broker {hello.name!r} may live at {format_address(hello.address)}: {remedy}"
        try:
            granted = verify_grant(hello.grant, self.authorities, now)
        except NotGranted as error:
            return f"{error}: {remedy}"
        if (granted.network, granted.name, granted.address) != (self.network, hello.name, hello.address):
            return f"the grant says that {granted}; it is not for broker {hello.name!r} there: {remedy}"
        return None

    def _why_not_there(self, names: list[BrokerName], hello: Hello) -> str | None:
        faults: list[str] = []
        for name in names:
            if not name.unit:
                return None
            label = ".".join(name.unit)
            try:
                unit = self.unit_of(label)
            except ValueError as error:
                faults.append(f"{label} ({error})")
                continue
            if hello.address[: len(unit)] == unit:
                return None
            faults.append(label)
        return (
            f"the certificate lets broker {hello.name!r} live in {' or '.join(faults)}, and its address is"
            f" {format_address(hello.address)}"
        )
