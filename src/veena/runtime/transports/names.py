"""The names of brokers in certificates: `veena://NETWORK#NAME`, as alternative names of the kind URI.

`veena://NETWORK/SSC-B/SC-5#NAME` names the same broker and a unit, by its labels, in which it may live; a certificate
may have several. Parts are percent-encoded, so that they may hold what a URI may not.

The names of people and programs are `Certificate.names`. What a name allows is decided in `links.trust`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from veena.errors import ConfigError
from veena.runtime.transports.certificate import MAX_NAMES, Certificate

#: Levels of a network, and more: a longer path is no name.
MAX_UNIT_PARTS: Final = 8
_NAME: Final = re.compile(r"veena://([^/#]+)((?:/[^/#]+)*)#([^#]+)")


@dataclass(frozen=True, slots=True)
class BrokerName:
    """A broker, as a certificate names it."""

    network: str
    name: str
    #: The labels of a unit in which it may live, the highest first; empty: anywhere.
    unit: tuple[str, ...] = ()

    def __str__(self) -> str:
        path = "".join(f"/{quote(part, safe='')}" for part in self.unit)
        return f"veena://{quote(self.network, safe='')}{path}#{quote(self.name, safe='')}"


def parse_name(uri: str) -> BrokerName | None:
    """The broker that a URI names; None for every other URI."""
    found = _NAME.fullmatch(uri)
    if found is None:
        return None
    network, path, name = found.groups()
    unit = tuple(map(unquote, path.split("/")[1:]))
    return BrokerName(unquote(network), unquote(name), unit) if len(unit) <= MAX_UNIT_PARTS else None


def names_in(uris: Iterable[str]) -> tuple[BrokerName, ...]:
    return tuple(found for found in map(parse_name, uris) if found is not None)


def broker_names(certificate: Certificate | None) -> tuple[BrokerName, ...]:
    """The names of a broker that a certificate has."""
    return () if certificate is None else names_in(certificate.uris)


def own_names(path: Path) -> tuple[BrokerName, ...]:
    """The names of a broker in the certificate of a PEM file; raise ConfigError where that cannot be read."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except (OSError, ValueError) as error:
        remedy = "name a PEM file that begins with the certificate"
        raise ConfigError("[tls]", f"certificate {path}", f"cannot be used ({error})", remedy) from None
    return names_in(found.get_values_for_type(x509.UniformResourceIdentifier)[:MAX_NAMES])
