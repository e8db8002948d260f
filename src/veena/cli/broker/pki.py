"""`veena pki`: the authority of a network: certificates of brokers and clients, grants of addresses, revocation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.errors import ConfigError, InvalidAddress
from veena.runtime.pki.authority import AUTHORITY_DAYS, DAYS, REVOKED_DAYS

if TYPE_CHECKING:
    from cryptography import x509

    from veena.address import Address
    from veena.runtime.pki.authority import Issued, KeyKind

app = typer.Typer(
    help="Certificates of brokers and clients, and where brokers may live: what the authority of a network signs.",
    no_args_is_help=True,
)

#: A hundred years: longer is a mistake.
MAX_DAYS = 36_500

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The authority's directory.", show_default=False, file_okay=False)
]
DaysOption = Annotated[float, typer.Option("--days", min=0.0001, max=MAX_DAYS, help="How long it is good.")]
KeyOption = Annotated[
    str, typer.Option("--key", help="ed25519, or ecdsa (P-256) for programs that do not know that, such as browsers.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def authority(
    directory: DirectoryArgument,
    network: Annotated[str, typer.Option("--network", help="The network, as its brokers' configurations name it.")],
    days: DaysOption = AUTHORITY_DAYS,
    key: KeyOption = "ed25519",
    as_json: JsonOption = False,
) -> None:
    """Make the authority of a network. Its key stays in DIR; authority.pem goes to every broker and client."""
    from veena.runtime.pki.authority import make_authority

    made = make_authority(directory, network, days=days, key_kind=_kind(key))
    file = directory / "authority.pem"
    found = {
        "network": network,
        "certificate": str(file),
        "key": str(directory / "authority.key"),
        "not_after": _iso(made.certificate.not_valid_after_utc),
    }
    _say(
        as_json,
        found,
        [
            f"authority of network {network!r}: {file}, good until {found['not_after']}",
            f"keep {found['key']} on this machine, and a copy offline: who has it is the network's authority",
        ],
    )


@app.command()
def broker(
    directory: DirectoryArgument,
    name: Annotated[str, typer.Argument(help="Its permanent name, as its configuration has it.", show_default=False)],
    unit: Annotated[
        list[str] | None,
        typer.Option("--unit", help="A unit in which it may live, such as SSC-B.SC-5; anywhere without. Repeat."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or IP address by which others dial it, beside this machine's. Repeat."),
    ] = None,
    days: DaysOption = DAYS,
    key: KeyOption = "ed25519",
    as_json: JsonOption = False,
) -> None:
    """Make the certificate of a broker, for both ends of a link, and print what its configuration needs."""
    from veena.runtime.pki.authority import open_authority

    found = open_authority(directory)
    issued = found.issue_broker(name, unit or (), host or (), days=days, key_kind=_kind(key))
    lines = [
        f"broker {name!r} of network {found.network!r}: {issued.certificate}, good until {_time(issued.not_after)}",
        f"put it, {issued.key.name} and authority.pem on the broker's machine; for its configuration:",
        "",
        "[tls]",
        *_tls_lines(directory, issued),
        'clients = "required"  # or "optional", where a users file has passwords or tokens',
        "",
        "[links]",
        f"# grant = {_quoted(issued.grant)}  # where neighbours ask for it: `veena pki grant`",
    ]
    _say(as_json, {**_shown_issued(found.network, name, issued), "units": unit or []}, lines)


@app.command()
def client(
    directory: DirectoryArgument,
    user: Annotated[str, typer.Argument(help="The user, as the users file has it if there is one.")],
    days: DaysOption = DAYS,
    key: KeyOption = "ed25519",
    as_json: JsonOption = False,
) -> None:
    """Make the certificate of a user, who needs no password then. Nobody can listen with it."""
    from veena.runtime.pki.authority import open_authority

    found = open_authority(directory)
    issued = found.issue_client(user, days=days, key_kind=_kind(key))
    certificate, file, authority_file = issued.certificate, issued.key, directory / "authority.pem"
    lines = [
        f"user {user!r}: {certificate}, good until {_time(issued.not_after)}; to attach:",
        f"export VEENA_CERTIFICATE={shlex.quote(str(certificate))} VEENA_KEY={shlex.quote(str(file))}",
        f"veena sub --topic TOPIC --url veenas://HOST:PORT --ca {shlex.quote(str(authority_file))}",
    ]
    _say(as_json, _shown_issued(found.network, user, issued), lines)


@app.command()
def grant(
    directory: DirectoryArgument,
    name: Annotated[str, typer.Argument(help="The broker's permanent name.", show_default=False)],
    address: Annotated[
        str, typer.Option("--address", help="Where it may live: 0.1.2.3, or a label path with --network-file.")
    ],
    network_file: Annotated[
        Path | None, typer.Option("--network-file", help="The network file whose labels --address uses.")
    ] = None,
    days: DaysOption = DAYS,
    as_json: JsonOption = False,
) -> None:
    """Let a broker live at an address: a file that its configuration names. It takes the place of an older one."""
    from veena.runtime.pki.authority import open_authority, shown_grant

    found = open_authority(directory)
    path = found.grant(name, _address(address, network_file), days=days)
    granted = shown_grant(path)
    lines = [f"{granted}", "", "[links]", f"grant = {_quoted(path)}"]
    _say(as_json, {"grant": str(path), **_shown_grant(path)}, lines)


@app.command()
def revoke(
    directory: DirectoryArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Brokers and users.", show_default=False)
    ] = None,
    serial: Annotated[
        list[str] | None, typer.Option("--serial", help="A certificate by its number, as `show` prints it. Repeat.")
    ] = None,
    days: Annotated[
        float, typer.Option("--days", min=0.0001, max=MAX_DAYS, help="When the list must be renewed.")
    ] = REVOKED_DAYS,
    as_json: JsonOption = False,
) -> None:
    """Write the list of certificates that are good no more, with these added; with none it is made or renewed.

    Brokers read it where their configuration names it as `revoked`, and again at SIGHUP.
    """
    from veena.runtime.pki.authority import open_authority

    path = open_authority(directory).revoke(names or (), [_serial(text) for text in serial or ()], days=days)
    listed = _shown_list(path)
    count = len(listed["revoked"])
    lines = [
        f"{path}: {count} revoked, to be renewed before {listed['next_update']}; send SIGHUP to who reads it",
        "",
        "[tls]",
        f"revoked = {_quoted(path)}",
    ]
    _say(as_json, {"list": str(path), **listed}, lines)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A certificate, a grant or a list of revoked ones.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Print what a file says, and until when. It is not judged who signed it: brokers do that."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            str(file), "file", f"cannot be read ({error.strerror})", "name a file that is there"
        ) from None
    if b"BEGIN X509 CRL" in data:
        found = {"kind": "list", **_shown_list(file)}
    elif b"BEGIN VEENA GRANT" in data:
        found = {"kind": "grant", **_shown_grant(file)}
    elif b"BEGIN CERTIFICATE" in data:
        found = {"kind": "certificate", **_shown_certificate(file, data)}
    else:
        remedy = "name a file that `veena pki` has made; keys are not shown"
        raise ConfigError(str(file), "file", "is no certificate, grant or list", remedy)
    width = max(map(len, found))
    lines = [f"{key:{width}}  {', '.join(value) if isinstance(value, list) else value}" for key, value in found.items()]
    _say(as_json, found, lines)


def _shown_certificate(file: Path, data: bytes) -> dict[str, Any]:
    from cryptography import x509

    from veena.runtime.pki.authority import network_of, uris_of
    from veena.runtime.transports.names import names_in

    try:
        found = x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise ConfigError(str(file), "certificate", f"cannot be read ({error})", "name a PEM file") from None
    names = names_in(uris_of(found))
    network = network_of(found)
    what = "broker" if names else "user" if network is None else "authority"
    shown = {
        "of": what,
        "network": names[0].network if names else network,
        "name": names[0].name if names else "" if network else found.subject.rfc4514_string().removeprefix("CN="),
        "units": [".".join(name.unit) for name in names if name.unit],
        "hosts": _hosts(found),
        "serial": f"{found.serial_number:X}",
        "not_before": _iso(found.not_valid_before_utc),
        "not_after": _iso(found.not_valid_after_utc),
        "issuer": found.issuer.rfc4514_string(),
    }
    return {key: value for key, value in shown.items() if value}


def _hosts(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *found.get_values_for_type(x509.DNSName),
        *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
    ]


def _shown_grant(path: Path) -> dict[str, Any]:
    from veena.address import format_address
    from veena.runtime.pki.authority import shown_grant

    found = shown_grant(path)
    return {
        "network": found.network,
        "name": found.name,
        "address": format_address(found.address),
        "not_before": _time(found.not_before),
        "not_after": _time(found.not_after),
    }


def _shown_list(path: Path) -> dict[str, Any]:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_crl(path.read_bytes())
    except ValueError as error:
        raise ConfigError(str(path), "list", f"cannot be read ({error})", "name a PEM file") from None
    ends = found.next_update_utc
    return {
        "issuer": found.issuer.rfc4514_string(),
        "next_update": "" if ends is None else _iso(ends),
        "revoked": [f"{each.serial_number:X}" for each in found],
    }


def _address(text: str, network_file: Path | None) -> Address:
    from veena.address import parse_address
    from veena.runtime.networks.file import load_network

    if network_file is None:
        try:
            return parse_address(text, fanout=64)  # a broker whose network has less refuses what is beyond it
        except InvalidAddress as error:
            remedy = "write numbers joined by dots, or name the network file whose labels they are by --network-file"
            raise ConfigError("veena pki grant", "--address", str(error), remedy) from None
    network = load_network(network_file)
    unit = network.labels.unit(text)
    if len(unit) != network.levels:
        reason = f"{text!r} is a larger unit, not the place of a broker"
        raise ConfigError("veena pki grant", "--address", reason, f"write a label with {network.levels} parts")
    return unit


def _serial(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        remedy = "write the number that `veena pki show` prints"
        raise ConfigError("veena pki revoke", "--serial", f"is {text!r}", remedy) from None


def _kind(text: str) -> KeyKind:
    if text == "ed25519":
        return "ed25519"
    if text == "ecdsa":
        return "ecdsa"
    raise ConfigError("veena pki", "--key", f"is {text!r}", "write ed25519 or ecdsa")


def _shown_issued(network: str, name: str, issued: Issued) -> dict[str, Any]:
    return {
        "network": network,
        "name": name,
        "certificate": str(issued.certificate),
        "key": str(issued.key),
        "serial": f"{issued.serial:X}",
        "not_after": _time(issued.not_after),
    }


def _tls_lines(directory: Path, issued: Issued) -> list[str]:
    files = {"certificate": issued.certificate, "key": issued.key, "authority": directory / "authority.pem"}
    return [f"{key} = {_quoted(path)}" for key, path in files.items()]


def _quoted(path: Path) -> str:
    """A path as a string of TOML."""
    return json.dumps(str(path.absolute()), ensure_ascii=False)


def _time(seconds: float) -> str:
    return _iso(datetime.fromtimestamp(seconds, UTC))


def _iso(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _say(as_json: bool, found: dict[str, Any], lines: Sequence[str]) -> None:
    typer.echo(json.dumps(found) if as_json else "\n".join(lines))


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="pki")
