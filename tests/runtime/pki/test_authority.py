"""What the authority of a network makes: files, certificates that OpenSSL takes, the list of revoked ones."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from veena.errors import ConfigError
from veena.runtime.pki.authority import Authority, KeyKind, make_authority, network_of, open_authority
from veena.runtime.pki.broker_certificate import load_authorities, own_certificate, verify_certificate
from veena.runtime.transports.certificate import load_revoked, of_peer
from veena.runtime.transports.names import BrokerName, broker_names
from veena.runtime.transports.tls import client_context, server_context

DAY = timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ca", "acme")


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[object, object]:
    """What each end of a handshake over a socket of this machine knows of the other; raises what fails there."""
    left, right = socket.socketpair()
    seen: list[object] = []
    failed: list[Exception] = []

    def serve() -> None:
        try:
            with server.wrap_socket(left, server_side=True) as end:
                end.recv(1)
                seen.append(end.getpeercert())
        except OSError as error:
            failed.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with client.wrap_socket(right, server_hostname=host) as end:
            found = end.getpeercert()
            end.sendall(b"x")
    finally:
        right.close()
        serving.join()
        left.close()
    if failed:
        raise failed[0]
    return found, seen[0]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_brokers_and_clients_shake_hands(tmp_path: Path, kind: KeyKind) -> None:
    """SEC: what the authority makes is what TLS asks for, at both ends of a link and for clients."""
    made = make_authority(tmp_path, "a net/work", key_kind=kind)
    broker = made.issue_broker("b1", ["SSC-B.SC-5", "SSC-A"], ["b1.example.org", "10.1.2.3"], key_kind=kind)
    client = made.issue_client("alice", key_kind=kind)
    pem = tmp_path / "authority.pem"
    for shows in (client, broker):
        server = server_context(broker.certificate, broker.key, pem, "required")
        dials = client_context(pem, shows.certificate, shows.key)
        for host in ("b1.example.org", "localhost", "127.0.0.1", "10.1.2.3"):
            there, here = shaken(server, dials, host)
    names = broker_names(of_peer(there))
    assert names == (BrokerName("a net/work", "b1", ("SSC-B", "SC-5")), BrokerName("a net/work", "b1", ("SSC-A",)))
    assert broker_names(of_peer(here)) == names, "the last who dialled was the broker"
    with pytest.raises(ssl.SSLCertVerificationError, match=r"elsewhere\.example"):
        shaken(server, dials, "elsewhere.example.org")
    found = verify_certificate(
        own_certificate(broker.certificate), load_authorities(pem), datetime.now(UTC).timestamp()
    )
    assert found.names == names


def test_nobody_listens_with_the_certificate_of_a_client(authority: Authority) -> None:
    """SEC: a client that puts itself in a broker's place cannot collect other clients' passwords by its certificate."""
    alice = authority.issue_client("alice")
    pem = authority.directory / "authority.pem"
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        shaken(server_context(alice.certificate, alice.key, None, "none"), client_context(pem), "localhost")


def test_files_are_private_and_never_overwritten(authority: Authority) -> None:
    broker = authority.issue_broker("b1")
    authority.issue_client("../x")  # stays in the directory
    authority.grant("b1", (0, 1))
    authority.revoke()
    before = {path.name: path.read_bytes() for path in authority.directory.iterdir()}
    assert set(before) == {
        *("authority.pem", "authority.key", "b1.pem", "b1.key", "b1.grant", "revoked.pem", "..%2Fx.pem", "..%2Fx.key"),
    }
    for path in authority.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again: list[Callable[[], object]] = [
        lambda: authority.issue_broker("b1"),
        lambda: authority.issue_client("b1"),
        lambda: authority.issue_client("authority"),
        lambda: authority.issue_client("revoked"),
        lambda: make_authority(authority.directory, "acme"),
    ]
    for make in again:
        with pytest.raises(ConfigError, match="is there already"):
            make()
    assert {path.name: path.read_bytes() for path in authority.directory.iterdir()} == before
    broker.certificate.unlink()
    with pytest.raises(ConfigError, match=r"b1\.key.*is there already"):
        authority.issue_broker("b1")


def test_nothing_is_good_for_longer_than_the_authority(tmp_path: Path) -> None:
    made = make_authority(tmp_path, "acme", days=10)
    ends = made.certificate.not_valid_after_utc.timestamp()
    assert made.issue_broker("b1").not_after == ends
    assert made.issue_broker("b2", days=5).not_after < ends - 4 * DAY.total_seconds()
    with pytest.raises(ConfigError, match="has expired"):
        open_authority(tmp_path, lambda: datetime.now(UTC) + 11 * DAY)


def test_the_list_of_revoked_certificates_grows(authority: Authority) -> None:
    """SEC: a second revocation does not let the first one in again."""
    one, two, three = (authority.issue_client(name) for name in ("one", "two", "three"))
    authority.revoke()
    authority.revoke(["one"])
    authority.revoke(serials=[two.serial])
    path = open_authority(authority.directory).revoke()  # renewed
    serials = {serial for _, serial in load_revoked(path).serials}
    assert serials == {one.serial, two.serial}
    server = server_context(three.certificate, three.key, authority.directory / "authority.pem", "required", path)
    assert server.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    with pytest.raises(ConfigError, match=r"none\.pem"):
        authority.revoke(["none"])


def test_a_list_of_revoked_certificates_is_one_and_nothing_else(authority: Authority) -> None:
    """A certificate named there was taken, and would have been trusted like the authority's own."""
    issued, other, pem = (
        authority.issue_broker("b1"), authority.issue_client("alice"), authority.directory / "authority.pem"
    )  # fmt: skip
    revoked = authority.revoke(["alice"])
    client_context(pem, issued.certificate, issued.key, revoked)
    both = authority.directory / "both.pem"
    both.write_bytes(revoked.read_bytes() + issued.certificate.read_bytes())
    for path, reason in ((issued.certificate, "holds no list"), (both, "holds a certificate as well")):
        for make in (
            partial(client_context, pem, issued.certificate, issued.key, path),
            partial(server_context, issued.certificate, issued.key, pem, "required", path),
        ):
            with pytest.raises(ConfigError, match=f"{reason}; name a PEM file with the authority's list"):
                make()
    with pytest.raises(ConfigError, match="do not belong together"):
        client_context(pem, issued.certificate, other.key)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "é" * 33])
def test_names_that_no_certificate_holds(authority: Authority, name: str) -> None:
    makes: list[Callable[[], object]] = [
        lambda: authority.issue_broker(name),
        lambda: authority.issue_client(name),
        lambda: make_authority(authority.directory / "other", name),
        lambda: authority.grant(name, (0, 1)),
    ]
    for make in makes:
        with pytest.raises(ConfigError, match="printable"):
            make()


def test_wrong_hosts_and_units(authority: Authority) -> None:
    for number, host in enumerate(("x" * 300, "a b", "", "a..b", "https://a")):
        with pytest.raises(ConfigError, match="host"):
            authority.issue_broker(f"b{number}", hosts=[host])
    authority.issue_broker("b9", hosts=["möhre.example.org", "*.example.org", "::1", "my_host", "a.example.org."])
    for unit in ("", "SSC-A.", ".".join("a" * 9)):
        with pytest.raises(ConfigError, match="unit"):
            authority.issue_broker("b1", units=[unit])
    assert not list(authority.directory.glob("b1*"))


def test_a_directory_that_is_no_authority(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="veena pki authority"):
        open_authority(tmp_path / "none")
    other = make_authority(tmp_path / "other", "acme")
    key = other.directory / "authority.key"
    key.unlink()
    key.write_bytes((authority.directory / "authority.key").read_bytes())
    key.chmod(0o600)
    with pytest.raises(ConfigError, match=r"is not the key of authority\.pem"):
        open_authority(other.directory)
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="0644"):
        open_authority(other.directory)


def test_only_its_authority_is_of_a_network(authority: Authority) -> None:
    assert network_of(authority.certificate) == authority.network == "acme"
    for issued in (authority.issue_broker("b1", ["SSC-A"]), authority.issue_client("alice")):
        assert network_of(x509.load_pem_x509_certificate(issued.certificate.read_bytes())) is None
