"""`veena pki` as its user meets it: a network is secured with what the command prints, and only its people come in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.command import Outcome, veena
from tests.runtime.processes import PATIENCE_S, Started, until
from tests.runtime.processes import veena as started


def said(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    return outcome.out.splitlines()


def tables(lines: list[str]) -> str:
    """What a command prints for a configuration: everything from the first table on."""
    return "\n".join(lines[next(at for at, line in enumerate(lines) if line.startswith("[")) :]) + "\n"


def as_client(user: Path | None, ca: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command of a client, which shows the certificate of this user."""
    shown = {} if user is None else {"VEENA_CERTIFICATE": f"{user}.pem", "VEENA_KEY": f"{user}.key"}
    return subprocess.Popen(
        [sys.executable, "-m", "veena.cli", *arguments, "--topic", "x", "--ca", str(ca)],
        env={**os.environ, **shown}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(command: subprocess.Popen[str]) -> Outcome:
    out, err = command.communicate(timeout=PATIENCE_S)
    return Outcome(command.returncode, out, err)


class Secured:
    """A network `acme` of this machine, made by commands alone."""

    def __init__(self, directory: Path, key: str, stack: ExitStack) -> None:
        self.directory, self.ca, self._key, self._stack = directory, directory / "ca", key, stack
        self.pem = self.ca / "authority.pem"
        said(veena("pki", "authority", str(self.ca), "--network", "acme", "--key", key))
        said(veena("pki", "revoke", str(self.ca)))

    def broker(self, name: str, at: int, *dials: str, is_granted: bool = True) -> tuple[str, Started]:
        """Make a broker, check its configuration, start it; where it listens."""
        printed = tables(said(veena("pki", "broker", str(self.ca), name, "--unit", "0.0.0", "--key", self._key)))
        if is_granted:
            granted = said(veena("pki", "grant", str(self.ca), name, "--address", f"0.0.0.{at}"))
            printed = printed.replace("# grant", "grant")
            assert granted[-1] in printed, "both commands print the same line"
        printed = printed.replace("[tls]", f'[tls]\nrevoked = "{self.ca / "revoked.pem"}"')
        printed = printed.replace("[links]", f"[links]\nretry_s = 0.05\ndial = {json.dumps(dials)}")
        path = self.directory / f"{name}.toml"
        path.write_text(
            f'[broker]\nname = "{name}"\naddress = "0.0.0.{at}"\nlisten = ["veenas://127.0.0.1:0"]\n'
            f'[network]\nname = "acme"\n[audit]\nfile = "{name}.jsonl"\n{printed}'
        )
        assert said(veena("broker", "check", "--config", str(path))) == ["the configuration is sound"]
        made = self._stack.enter_context(started("broker", "run", "--config", str(path), "--json"))
        url = str(made.told()["url"])
        assert made.told() == {"ready": True}
        return url, made

    def noted(self, name: str, kind: str) -> list[dict[str, str]]:
        """The lines of this kind in a broker's audit log."""
        lines = map(json.loads, (self.directory / f"{name}.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("key", ["ed25519", pytest.param("ecdsa", marks=pytest.mark.slow)])
def test_a_network_is_secured_with_what_is_printed(tmp_path: Path, key: str) -> None:
    """SEC: authority, brokers and a client by commands alone; the brokers link, the client attaches without a password,
    and a broker without a grant, a client without a certificate and a revoked one stay outside."""
    with ExitStack() as stack:
        made = Secured(tmp_path, key, stack)
        first, process = made.broker("b1", 1)
        second, _ = made.broker("b2", 2, first)
        made.broker("b3", 3, first, is_granted=False)
        until(lambda: made.noted("b1", "link refused"))
        refused = made.noted("b1", "link refused")[0]
        assert refused["certificate"] == "b3"
        assert "veena pki grant DIR b3 --address 0.0.0.3" in refused["reason"]
        said(veena("pki", "client", str(made.ca), "alice", "--key", key))
        alice = made.ca / "alice"
        reader = as_client(alice, made.pem, "sub", "-n", "1", "--body", "--url", second)

        def has_read() -> bool:
            sent = ended(as_client(alice, made.pem, "pub", "hello", "--url", first))
            assert sent.code == 0, sent.err
            return reader.poll() is not None

        until(has_read)
        assert ended(reader).out.strip() == "hello"
        assert ended(as_client(None, made.pem, "pub", "hello", "--url", first)).code != 0
        said(veena("pki", "revoke", str(made.ca), "alice"))
        process.process.send_signal(signal.SIGHUP)
        until(lambda: made.noted("b1", "configuration read again"))
        assert ended(as_client(alice, made.pem, "pub", "hello", "--url", first)).code != 0


def test_what_is_shown(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    made = json.loads("".join(said(veena("pki", "authority", str(ca), "--network", "acme", "--json"))))
    assert made["certificate"] == str(ca / "authority.pem") and made["network"] == "acme"
    broker = json.loads(
        "".join(said(veena("pki", "broker", str(ca), "b1", "--unit", "SSC-A", "--host", "b1.example.org", "--json")))
    )
    assert broker["units"] == ["SSC-A"] and broker["network"] == "acme"
    said(veena("pki", "client", str(ca), "alice"))
    revoked = json.loads(
        "".join(said(veena("pki", "revoke", str(ca), "alice", "--serial", broker["serial"], "--json")))
    )
    assert broker["serial"] in revoked["revoked"] and len(revoked["revoked"]) == 2
    network = tmp_path / "network.toml"
    network.write_text('[network]\nname = "acme"\n[[broker]]\naddress = "A.1.c.x"\n[[broker]]\naddress = "A.1.c.y"\n')
    label = ("--address", "A.1.c.y", "--network-file", str(network))
    granted = json.loads("".join(said(veena("pki", "grant", str(ca), "b1", *label, "--days", "2", "--json"))))
    assert granted["address"] == "0.0.0.1" and granted["name"] == "b1"

    def shown(name: str) -> dict[str, object]:
        found = json.loads("".join(said(veena("pki", "show", str(ca / name), "--json"))))
        assert [line.split()[0] for line in said(veena("pki", "show", str(ca / name)))] == list(found)
        return dict(found)

    assert shown("b1.pem").items() >= {"of": "broker", "name": "b1", "units": ["SSC-A"], "network": "acme"}.items()
    assert shown("b1.pem")["hosts"] == ["b1.example.org", "localhost", "127.0.0.1"]
    assert shown("alice.pem")["of"] == "user" and shown("authority.pem")["of"] == "authority"
    assert shown("b1.grant")["address"] == "0.0.0.1"
    assert shown("revoked.pem")["revoked"] == revoked["revoked"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("broker", "CA", "b1"), "is there already"),
        (("authority", "CA", "--network", "x"), "is there already"),
        (("authority", "CA/new", "--network", ""), "printable"),
        (("broker", "CA", "b2", "--unit", "A..b"), "such as SSC-B.SC-5"),
        (("broker", "CA", "b2", "--key", "rsa"), "write ed25519 or ecdsa"),
        (("broker", "CA/none", "b2"), "run `veena pki authority` first"),
        (("client", "CA", "x" * 65), "1 to 64 bytes"),
        (("grant", "CA", "b1", "--address", "A.1"), "numbers joined by dots"),
        (("grant", "CA", "b1", "--address", "0.64"), "at most 64 sub-units"),
        (("revoke", "CA", "nobody"), "or its --serial"),
        (("revoke", "CA", "--serial", "xyz"), "`veena pki show` prints"),
        (("show", "CA/b1.key"), "keys are not shown"),
        (("show", "CA/none"), "cannot be read"),
    ],
)
def test_errors_are_one_line_with_a_remedy(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    said(veena("pki", "authority", str(tmp_path / "ca"), "--network", "acme"))
    said(veena("pki", "broker", str(tmp_path / "ca"), "b1"))
    before = sorted(path.name for path in (tmp_path / "ca").iterdir())
    outcome = veena("pki", *(each.replace("CA", str(tmp_path / "ca")) for each in arguments))
    assert outcome.code == 2 and told in outcome.err and len(outcome.err.splitlines()) == 1, outcome
    assert sorted(path.name for path in (tmp_path / "ca").iterdir()) == before
