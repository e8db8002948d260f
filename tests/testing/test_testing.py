"""`veena.testing`, used as somebody else would: networks that are broken and mended, and a test file run by pytest."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import veena
import veena.testing
from veena import blocking
from veena.errors import ConfigError, LocalProtocolError, TimedOut

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0

USERS_FILE = """
import asyncio
import pytest
import veena
import veena.testing
from veena import blocking


def test_a_broker(veena_broker: str) -> None:
    with blocking.connect(veena_broker) as client:
        wanted = client.subscribe(topic="t")
        client.publish(topic="t", body=b"hello")
        assert wanted.next(10).body == b"hello"


def test_with_async(veena_broker: str) -> None:
    async def main() -> None:
        async with veena.connect(veena_broker) as client:
            wanted = await client.subscribe(topic="t")
            await client.publish(topic="t", body=b"hello")
            assert (await wanted.next(10)).body == b"hello"

    asyncio.run(main())


@pytest.mark.veena_network({"paris": 1, "rome": 1})
def test_a_network(veena_network: veena.testing.Network) -> None:
    assert veena_network.brokers == ("paris.1", "rome.1")
    with blocking.connect(veena_network.url("paris.1")) as one, blocking.connect(veena_network.url("rome.1")) as other:
        wanted = one.subscribe(topic="t", selector="n > 1")
        other.publish(topic="t", properties={"n": 2})
        assert wanted.next(10).properties["n"] == 2


@pytest.mark.veena_broker(settings={"limits": {"client": {"events_per_second": -1}}})
def test_it_did_not_come_up(veena_broker: str) -> None:
    raise AssertionError("not reached")
"""


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests that run at the same time leave and take away theirs elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def leftovers() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("veena-testing-*"))


def text(event: veena.Event) -> str:
    return bytes(event.body).decode()


def test_a_user_runs_the_fixtures(tmp_path: Path) -> None:
    """The fixtures in a project that has nothing to do with this one, found as pytest finds what is installed."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_users.py").write_text(USERS_FILE)
    installed = tmp_path / "site" / "veena_as_installed-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: veena-as-installed\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nveena.testing.plugin = veena.testing.plugin\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-W", "error", "-q", "tests"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.fspath(tmp_path / "site")}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert "3 passed, 1 error" in ran.stdout, ran.stdout + ran.stderr
    assert "events_per_second" in ran.stdout, "the error names what is wrong"


def test_the_plugin_is_light() -> None:
    """Whoever has this installed pays little for it in test runs that do not use it."""
    program = "import sys, veena.testing.plugin; print(sorted({'numpy', 'lxml', 'msgspec'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_a_killed_broker_keeps_its_disk_and_its_port() -> None:
    """FLT-05: what was accepted before and while a broker was dead is delivered when it is back."""
    before = leftovers()
    with veena.testing.network(brokers=3) as net:
        assert net.brokers == ("a.1", "a.2", "a.3") and len(set(net.urls)) == 3
        with blocking.connect(net.url("a.1"), client_id="reader") as reader, blocking.connect(net.url("a.3")) as writer:
            wanted = reader.subscribe(topic="t", durable="all")
            writer.publish(topic="t", body=b"before", reliable=True)
            assert text(wanted.next(PATIENCE_S)) == "before"
            net.kill("a.1")
            assert not net.is_running("a.1")
            writer.publish(topic="t", body=b"while it was dead", reliable=True)
            net.restart("a.1")
            assert text(wanted.next(PATIENCE_S)) == "while it was dead"
            with pytest.raises(LocalProtocolError, match=r"there is no broker 'b\.1'; there are a\.1"):
                net.kill("b.1")
            net.kill("a.2")
            with pytest.raises(LocalProtocolError, match="does not run"):
                net.kill("a.2")
    assert leftovers() <= before, "nothing is left behind"


def test_what_is_cut_hears_nothing_until_it_is_healed() -> None:
    """ERP-16, FLT-06: two clusters apart, by unit: both go on inside; events wait and come over in order."""

    async def main() -> None:
        async with (
            veena.testing.network({"paris": 2, "rome": 1}) as net,
            veena.connect(net.url("paris.2"), client_id="reader") as reader,
            veena.connect(net.url("rome.1"), client_id="writer") as writer,
        ):
            wanted = await reader.subscribe(topic="t")
            at_home, abroad = await writer.subscribe(topic="t"), await reader.subscribe(topic="local")
            await net.cut("paris", "rome")
            for number in range(5):
                await writer.publish(topic="t", body=b"%d" % number, reliable=True)
                assert text(await at_home.next(PATIENCE_S)) == str(number)
            await reader.publish(topic="local", body=b"here", reliable=True)
            assert text(await abroad.next(PATIENCE_S)) == "here"
            with pytest.raises(TimedOut):
                await wanted.next(0.3)
            await net.heal("paris", "rome")
            assert [text(await wanted.next(PATIENCE_S)) for _ in range(5)] == list("01234")
            with pytest.raises(LocalProtocolError, match="no 'oslo'"):
                await net.cut("oslo", "rome")

    asyncio.run(main())


def test_processes_by_choice(tmp_path: Path) -> None:
    """The same with a process a broker, and a directory that stays."""
    with (
        veena.testing.network(brokers=2, processes=True, directory=tmp_path / "net") as net,
        blocking.connect(net.url("a.1"), client_id="reader") as reader,
        blocking.connect(net.url("a.2")) as writer,
    ):
        wanted = reader.subscribe(topic="t")
        writer.publish(topic="t", body=b"one")
        assert text(wanted.next(PATIENCE_S)) == "one"
        net.cut("a.1", "a.2")
        writer.publish(topic="t", body=b"two", reliable=True)
        net.heal()
        assert text(wanted.next(PATIENCE_S)) == "two"
        net.kill("a.2")
        net.restart("a.2")
        writer.publish(topic="t", body=b"three", reliable=True)
        assert text(wanted.next(PATIENCE_S)) == "three"
    assert (tmp_path / "net" / "a.1" / "broker.log").is_file()


def test_what_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    before = leftovers()
    for process in (False, True):
        with (
            pytest.raises(ConfigError, match=r"\[limits\] connections"),
            veena.testing.broker(process=process, settings={"limits": {"connections": "many"}}),
        ):
            pass
    assert leftovers() <= before
    for shape, told in (({}, "names no cluster"), ({"a": 0}, "'a': has 0 brokers"), ({"a": 40}, "1 to 32")):
        with pytest.raises(ConfigError, match=told):
            veena.testing.network(shape)
    with pytest.raises(ConfigError, match="cannot be read"):
        veena.testing.network(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="labels joined by dots"):
        veena.testing.network({"a": 1, "b.c": 1})


def test_a_network_file() -> None:
    """Every broker of the file, under its label; two clients at its far ends."""
    with (
        veena.testing.network(os.fspath(ROOT / "networks" / "fix-1.toml")) as net,
        blocking.connect(net.urls[0]) as one,
        blocking.connect(net.urls[-1]) as other,
    ):
        wanted = one.subscribe(topic="t")
        other.publish(topic="t", body=b"far")
        assert text(wanted.next(PATIENCE_S)) == "far"


@pytest.mark.parametrize("settings", ["[store]", {"store": "x"}])
def test_settings_that_are_no_tables_are_named(settings: object) -> None:
    with pytest.raises(LocalProtocolError, match="name tables as in the file of a broker"):
        veena.testing.network(brokers=1, settings=settings)  # type: ignore[arg-type]
