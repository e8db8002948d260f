"""Where clients are, by their network addresses: the operator's word on which unit is nearest to whom (IOP-06).

`regions = { "10.2.0.0/16" = "SSC-A.SC-1" }` says that clients in 10.2/16 are nearest to the brokers of super-cluster
SC-1. The longest prefix that fits decides. Units are label paths of the network file, or numbers (`0.1`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from veena.address import Labels, Unit, check_unit, parse_address, shared
from veena.errors import InvalidAddress

#: As many as anybody keeps by hand.
MAX_REGIONS = 1024

Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


class Regions:
    """Prefixes of addresses, and the units that are nearest."""

    def __init__(self, table: Mapping[str, str], labels: Labels | None, levels: int, fanout: int) -> None:
        """Raises ValueError that names the entry which is wrong."""
        if len(table) > MAX_REGIONS:
            raise ValueError(f"has {len(table)} entries; at most {MAX_REGIONS} are read")
        found: list[tuple[Prefix, Unit]] = []
        for text, name in table.items():
            try:
                prefix = ipaddress.ip_network(text)
            except ValueError as error:
                raise ValueError(
                    f"has {text!r}, which is no network of addresses such as 10.2.0.0/16: {error}"
                ) from None
            found.append((prefix, _unit(name, labels, levels, fanout)))
        found.sort(key=lambda each: -each[0].prefixlen)
        self._table = found

    def unit_of(self, ip: str) -> Unit | None:
        """The unit that is nearest to who has this address; None if nobody said so."""
        try:
            address = ipaddress.ip_address(ip.partition("%")[0])
        except ValueError:
            return None
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return next((unit for prefix, unit in self._table if address in prefix), None)


def levels_away(region: Unit | None, address: Unit) -> int:
    """0 inside the region, 1 in the unit around it, and so on."""
    return 0 if region is None else len(region) - shared(region, address)


def _unit(name: str, labels: Labels | None, levels: int, fanout: int) -> Unit:
    try:
        unit = labels.unit(name) if labels is not None else parse_address(name, fanout=fanout)
        check_unit(unit, fanout)
    except InvalidAddress as error:
        raise ValueError(f"names {name!r}: {error}") from None
    if len(unit) > levels:
        raise ValueError(f"names {name!r}, which has {len(unit)} parts in a network of {levels} levels")
    return unit
