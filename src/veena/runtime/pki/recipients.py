"""To whom a client sends its password or token: to brokers of the network that it was given, and to nobody else.

A client is given a URL by its application, and is then led on: by a locator, by a broker that sends it elsewhere, by
the list of brokers. Those words come from brokers that believe each other, and one of them may lie. So where the
certificate of a broker that the application named says of which network it is (`veena://NETWORK#NAME`), every other
broker has to prove by its certificate that it is one of that network, before anything is said to it.

Networks whose certificates name no brokers, and those without TLS, are as they were: what a client may follow there is
decided by URLs alone.
"""

from __future__ import annotations

from veena.errors import NotConnected, RefusalCode
from veena.runtime.transports.certificate import Certificate
from veena.runtime.transports.names import broker_names


class Recipients:
    """Who may have the credentials of one client."""

    def __init__(self) -> None:
        self._networks: frozenset[str] = frozenset()

    def check(self, url: str, certificate: Certificate | None, is_given: bool) -> None:
        """Whoever listens there may be told who this client is; raise NotConnected otherwise.

        `is_given` where the application has named the URL; then its certificate says what others have to be.
        """
        networks = frozenset(name.network for name in broker_names(certificate))
        if is_given:
            self._networks |= networks
        elif self._networks and not networks & self._networks:
            known = " or ".join(sorted(map(repr, self._networks)))
            reason = f"{url}: its certificate names no broker of network {known}: nothing is sent to it"
            raise NotConnected(reason, code=RefusalCode.DENIED)
