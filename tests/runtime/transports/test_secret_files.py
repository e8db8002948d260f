"""Users files and keys that others of the machine can read: no broker starts with them, and is told what to do."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import veena
from tests.runtime.raw_client import attach
from tests.runtime.streams import CERTIFICATES
from veena.errors import ConfigError
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import load_config
from veena.runtime.transports.secret_files import check_secret, open_private, write_secret

NOBODY = 65534


def broker_of(directory: Path) -> Path:
    """The configuration of a broker with a users file, and with a certificate and its key."""
    for name in ("broker.pem", "broker.key"):
        shutil.copy(CERTIFICATES / name, directory / name)
    (directory / "users.toml").write_text(f'[user.meter]\ntokens = ["{digest_of("t0ken")}"]\n')
    file = directory / "broker.toml"
    file.write_text(
        '[broker]\nlisten = ["veena://127.0.0.1:0"]\n'
        '[tls]\ncertificate = "broker.pem"\nkey = "broker.key"\n[auth]\nusers_file = "users.toml"\n'
    )
    file.chmod(0o644)
    return file


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666])
@pytest.mark.parametrize("name", ["users.toml", "broker.key"])
def test_a_secret_that_others_can_read_or_change_is_refused(name: str, mode: int, tmp_path: Path) -> None:
    """SEC: a local user copies the hashes of passwords, or the key, of a broker whose files have the usual mode."""
    config = broker_of(tmp_path)
    load_config(config).secrets()
    (tmp_path / name).chmod(mode)
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    told = str(caught.value)
    assert f"{mode:04o}" in told and str(tmp_path / name) in told and f"chmod 600 {tmp_path / name}" in told
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode, "its owner is to decide"
    for private in (0o600, 0o400, 0o700):
        (tmp_path / name).chmod(private)
        load_config(config).secrets()


def test_commands_show_what_is_wrong_with_modes(tmp_path: Path) -> None:
    """SEC: `veena broker check` lists every file with its remedy; a broker does not start."""
    config = broker_of(tmp_path)
    assert veena("broker", "check", "--config", str(config)).code == 0
    for name in ("users.toml", "broker.key"):
        (tmp_path / name).chmod(0o644)
    found = veena("broker", "check", "--config", str(config), "--json")
    faults = json.loads(found.out)["faults"]
    assert found.code == 1
    assert [each["remedy"] for each in faults] == [f"chmod 600 {tmp_path / n}" for n in ("broker.key", "users.toml")]
    assert faults[0]["entry"] == "line 5, [tls] key" and "0644" in faults[0]["reason"]
    assert veena("broker", "run", "--config", str(config)).code == 2
    found = veena("users", "check", str(tmp_path / "users.toml"))
    assert found.code == 2 and "others on this machine can read this secret" in found.err
    config.chmod(0o646)
    assert "chmod o-w" in veena("broker", "check", "--config", str(config)).out


def test_a_broker_that_runs_goes_on_without_a_secret_that_was_opened(tmp_path: Path) -> None:
    """SEC: what others may have changed is not taken over when the configuration is read again."""

    async def run() -> None:
        node = Node(load_config(broker_of(tmp_path)))
        await node.start()
        (tmp_path / "users.toml").write_text(f'[user.mallory]\ntokens = ["{digest_of("mine")}"]\n')
        (tmp_path / "users.toml").chmod(0o662)
        with pytest.raises(ConfigError, match="chmod 600"):
            node.reload(node.config)
        assert (await attach(node.urls[0], "meter", token="t0ken")).incarnation
        await node.stop(drain_s=0.1)

    asyncio.run(asyncio.wait_for(run(), 60))


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_file_of_root_may_be_lent_to_the_group_of_a_broker() -> None:
    """In a container: root owns the secret, and the broker's user reads it as one of the group."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        secret = Path(place) / "users.toml"
        write_secret(secret, "")
        with as_nobody():
            check_secret(secret)
        secret.chmod(0o640)
        with as_nobody():
            check_secret(secret)
        with pytest.raises(ConfigError):
            check_secret(secret)  # root needs no group
        for mode in (0o660, 0o644):
            secret.chmod(mode)
            with as_nobody(), pytest.raises(ConfigError):
                check_secret(secret)
        os.chown(secret, 1234, 1234)
        secret.chmod(0o600)
        check_secret(secret)
        secret.chmod(0o640)
        with as_nobody(), pytest.raises(ConfigError):
            check_secret(secret)


def test_what_is_written_is_private_whatever_was_there(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file, log = tmp_path / "users.toml", tmp_path / "log"
        file.write_text("of an earlier life")
        write_secret(file, "now")
        with open(log, "ab", opener=open_private) as out:
            out.write(b"line")
    finally:
        os.umask(before)
    assert file.read_text() == "now"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (file, log)} == {0o600}
