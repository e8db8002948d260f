"""TLS contexts from files: what this end shows, whom it believes, and whom it asks for a certificate.

TLS 1.2 at least; a peer's certificate is always checked against the named authority, and no other, where one is named;
else against the system's authorities; and the name in it against the host that was dialled. With a list of revoked
certificates none of those is taken, nor one whose authority has no valid list: it is to be renewed in time.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal

from veena.errors import ConfigError
from veena.runtime.transports.secret_files import check_secret

#: Whether who connects has to show a certificate: mutual TLS is "required".
AskClients = Literal["none", "optional", "required"]


def server_context(
    certificate: Path, key: Path, authority: Path | None, clients: AskClients, revoked: Path | None = None
) -> ssl.SSLContext:
    """For listening; raise ConfigError where a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_chain(context, certificate, key)
    if clients != "none":
        if authority is None:
            remedy = "name the authority that signed the clients' certificates"
            raise ConfigError("[tls]", "authority", f"is missing, but clients are {clients}", remedy)
        _load_authority(context, authority)
        context.verify_mode = ssl.CERT_REQUIRED if clients == "required" else ssl.CERT_OPTIONAL
        _refuse_revoked(context, revoked)
    return context


def client_context(
    authority: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    revoked: Path | None = None,
) -> ssl.SSLContext:
    """For dialling; an authority stands in for the system's. With certificate and key this end can show who it is."""
    try:  # only without a file are the system's authorities loaded
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    except (OSError, ssl.SSLError) as error:
        raise _no_authority(authority, error) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authority is not None:
        _refuse_revoked(context, revoked)
    if certificate is not None and key is not None:
        load_chain(context, certificate, key)
    return context


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """What is shown to others from now on; raise ConfigError and go on with the former where it cannot be used."""
    check_secret(key)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = f"cannot be used ({error})"
        remedy = "name a PEM file with the certificate, and one with its key, readable for this user"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            reason, remedy = "do not belong together", "name a certificate and the key that was made for it"
        raise ConfigError("[tls]", f"certificate {certificate}, key {key}", reason, remedy) from None


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise _no_authority(authority, error) from None


def _no_authority(authority: Path | None, error: Exception) -> ConfigError:
    remedy = "name a PEM file with the certificates of the authority"
    return ConfigError("[tls]", f"authority {authority}", f"cannot be used ({error})", remedy)


def _refuse_revoked(context: ssl.SSLContext, revoked: Path | None) -> None:
    """Take no certificate that is on this list, or whose authority has no list in it that is good today."""
    if revoked is None:
        return
    remedy = "name a PEM file with the authority's list of revoked certificates (X509 CRL)"
    before = context.cert_store_stats()
    try:
        context.load_verify_locations(revoked)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("[tls]", f"revoked {revoked}", f"cannot be used ({error})", remedy) from None
    after = context.cert_store_stats()
    if after["crl"] == before["crl"]:
        raise ConfigError("[tls]", f"revoked {revoked}", "holds no list", remedy)
    if after["x509"] != before["x509"]:  # it would be trusted like the authority's own
        raise ConfigError("[tls]", f"revoked {revoked}", "holds a certificate as well", remedy)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
