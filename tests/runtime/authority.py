"""An authority for a test, as `veena pki` makes it: it signs what the test says, whatever is in it, and revokes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from veena.address import Address
from veena.runtime.pki import authority as pki
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.tls import client_context, server_context

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass
class Authority:
    """Its files are in a directory of its own; the certificate of NAME is in `NAME.pem`, its key in `NAME.key`."""

    directory: Path
    network: str = "veena"
    #: When it began, in seconds since 1970.
    now: float = field(default_factory=lambda: datetime.now(UTC).timestamp())

    def __post_init__(self) -> None:
        self.signer = pki.make_authority(self.directory, self.network)
        self.pem = self.directory / "authority.pem"

    def issue(self, name: str, good_for: timedelta = HOUR, uris: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """A certificate in this name, for this machine; `uris` and `hosts` are names beside that.

        It may be used at both ends of a connection, whoever it is for.
        """
        self.signer.issue("somebody", name, uris, ("127.0.0.1", *hosts), days=good_for / DAY)

    def grant(self, name: str, address: Address, good_for: timedelta = HOUR) -> Path:
        """A file that lets a broker live there."""
        return self.signer.grant(name, address, days=good_for / DAY)

    def revoke(self, *names: str) -> Path:
        """The list of what is revoked: these and no others."""
        (self.directory / "revoked.pem").unlink(missing_ok=True)
        return self.signer.revoke(names)

    def secrets(self, name: str) -> Secrets:
        """What somebody dials and listens with that shows this certificate."""
        chain = (self.directory / f"{name}.pem", self.directory / f"{name}.key")
        return Secrets(server_context(*chain, self.pem, "optional"), client_context(self.pem, *chain))
