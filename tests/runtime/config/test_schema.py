"""The configuration: defaults that run, every fault with its line in one reading, and doors that stay shut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.streams import CERTIFICATES
from veena.runtime.config.reader import load_config, parse_config
from veena.runtime.config.schema import ConfigFaults, changes

FAULTY = """\
[broker]
nam = "x"
listen = ["veena://127.0.0.1:1", "http://x"]
address = "0.1"

[limits]
connections = "many"
frame_bytes = 3
client.subscriptions = -1

[htp]
listen = "x"

[log]
level = "loud"

[tls]
certificate = "nowhere.pem"
"""
QUOTAS = "[limits]\nbroker_constraints = {}\nunit_constraints = {}\n"


def faults(text: str, base: Path | None = None) -> list[str]:
    with pytest.raises(ConfigFaults) as caught:
        parse_config(text, "b.toml", base)
    return [str(fault) for fault in caught.value.faults]


def test_the_defaults_run_on_loopback() -> None:
    config = load_config()
    assert config.listen == ("veena://127.0.0.1:7700",)
    assert config.address == (0, 0, 0, 0) and config.neighbours == ()
    assert config.settings().network == "veena"


def test_a_key_with_thousands_of_parts_is_refused_before_it_is_read() -> None:
    """`tomllib` alone takes half a minute for one such key."""
    for text in (
        "a" + ".b" * 50_000 + " = 1",
        "[broker]\n[" + "a. " * 50_000 + "b]",
        "[x]\ny = {a" + ".'b'" * 9999 + " = 1}",
    ):
        (found,) = faults(text)
        assert found.startswith(f"b.toml: line {1 + text.count(chr(10))}: is no TOML: A key has more than 64 parts")
    assert faults(f'[broker]\nnam = "{"." * 100}"  # {"." * 100}') != []


def test_of_thousands_of_faults_a_hundred_are_told() -> None:
    found = faults("[broker]\n" + "\n".join(f"key{number} = 1" for number in range(20_000)))
    assert found[0].startswith("b.toml: line 2, [broker] key0: is unknown")
    assert len(found) == 101 and "more than 100 faults" in found[-1]


def test_every_fault_is_named_with_its_line() -> None:
    found = faults(FAULTY)
    starts = [
        "b.toml: line 2, [broker] nam: is unknown",
        "b.toml: line 3, [broker] listen: has 'http://x'",
        "b.toml: line 4, [broker] address: is '0.1'",
        "b.toml: line 7, [limits] connections: is 'many'",
        "b.toml: line 8, [limits] frame_bytes: is 3",
        "b.toml: line 11, [htp]: is unknown",
        "b.toml: line 15, [log] level: is 'loud'",
        "b.toml: line 18, [tls] certificate: goes with key",
        "b.toml: line 18, [tls] certificate: names 'nowhere.pem'",
    ]
    for start in starts:
        assert any(fault.startswith(start) for fault in found), (start, found)
    assert any("subscriptions" in fault for fault in found)
    assert "did you mean name?" in found[0] and all("; " in fault for fault in found), "each has a remedy"
    assert any("did you mean http?" in fault for fault in found)
    assert any("write one of 'debug'" in fault for fault in found)


def test_quotas_reach_the_core() -> None:
    """Large by default, and each under its own name; what cannot be is named with its line and what can."""
    default, given = load_config().settings(), parse_config(QUOTAS.format(7, 9)).settings()
    assert (default.max_broker_constraints, default.max_unit_constraints) == (125_000, 400_000)
    assert (given.max_broker_constraints, given.max_unit_constraints) == (7, 9)
    few, many = faults(QUOTAS.format(0, 1 << 30))
    assert few.startswith("b.toml: line 2, [limits] broker_constraints: is 0; expected int >= 1")
    assert many.startswith("b.toml: line 3, [limits] unit_constraints: is 1073741824; expected int <= 1048576")


@pytest.mark.parametrize(
    ("text", "line"), [("[broker\n", 1), ("[broker]\nname = \n", 2), ("\n\n[a]\n[a]\n", 4), ('x = "\n', 1)]
)
def test_what_is_no_toml_is_named_with_its_line(text: str, line: int) -> None:
    (fault,) = faults(text)
    assert fault.startswith(f"b.toml: line {line}: is no TOML")


@pytest.mark.parametrize(
    "text",
    [
        "broker = 3",
        "[broker]\nlisten = []",
        "[broker]\nlisten = 3",
        '[broker]\nlabel = "x"',
        '[broker]\naddress = "0.0.0.99"',
        '[broker]\nname = "a\\u0000b"',
        '[broker]\nname = ""',
        "[links]\nretry_s = -1.0",
        "[links]\nretry_s = 9.0\nretry_s_max = 1.0",
        "[links]\nheartbeat_s = nan",
        "[store]\ncopies = 3",
        "[store]\nmax_bytes = 10",
        "[network]\nfanout = 33",
        "[network]\nlevels = 0",
        '[tls]\nclients = "required"',
        '[http]\nlisten = "7780"',
        '[auth]\nusers_file = "nowhere"',
        '[broker]\nnetwork = "nowhere.toml"\nlabel = "x"',
        "[limits]\nconnections = true",
        "[limits]\nbroker_constraints = 0",
        "[limits]\nunit_constraints = 1048577",
        '[limits]\nunit_constraints = "all"',
    ],
)
def test_bad_values_are_refused(text: str) -> None:
    assert faults(text)


OPEN = '[broker]\nlisten = ["{}"]\n'
TLS = f'[tls]\ncertificate = "{CERTIFICATES}/broker.pem"\nkey = "{CERTIFICATES}/broker.key"\n'
MUTUAL = f'authority = "{CERTIFICATES}/authority.pem"\nclients = "required"\n'


@pytest.mark.parametrize("url", ["veena://0.0.0.0:1", "ws://[::]:1", "veena://broker.example:1", "veenas://10.0.0.1:1"])
def test_doors_to_other_machines_need_tls_and_authentication(url: str, tmp_path: Path) -> None:
    """SEC: the way in is shut unless somebody opens it knowingly: without TLS, and to whoever wants to be a broker."""
    text, is_plain = OPEN.format(url), not url.startswith("veenas")
    assert any(
        "opens" in fault and "plaintext = true" in fault and "open_links = true" in fault
        for fault in faults(text + TLS)
    )
    parse_config(text + "plaintext = true\nopen_links = true\n" + TLS)
    assert any("without authentication" in fault for fault in faults(text + "plaintext = true\n" + TLS))
    assert not is_plain or any("without TLS" in fault for fault in faults(text + "open_links = true\n" + TLS))
    users = tmp_path / "users.toml"
    users.write_text("")
    users.chmod(0o600)
    config = parse_config(f'{text}plaintext = true\n{TLS}[auth]\nusers_file = "{users}"\n')
    assert not config.trust().anybody, "who reaches a plain door is no broker yet"


def test_the_setting_that_was_two_in_one_is_refused() -> None:
    (fault,) = faults("[broker]\ninsecure = true\n")
    assert "line 2, [broker] insecure" in fault and "plaintext = true" in fault and "open_links = true" in fault


def test_tls_that_asks_who_connects_is_enough() -> None:
    config = parse_config(OPEN.format("veenas://0.0.0.0:1") + TLS + MUTUAL)
    assert config.secrets().server is not None
    assert any("without TLS" in fault for fault in faults(OPEN.format("veena://0.0.0.0:1") + TLS + MUTUAL))
    assert any("[http] listen: opens" in fault for fault in faults('[http]\nlisten = "0.0.0.0:7780"\n'))


def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("no certificate")
    config = parse_config('[tls]\ncertificate = "c.pem"\nkey = "c.pem"\n', base=tmp_path)
    with pytest.raises(Exception, match=r"c\.pem.*cannot be used"):
        config.secrets()


def test_a_network_file_gives_the_place_and_the_neighbours(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(
        '[network]\nname = "n"\nlevels = 2\n'
        '[[broker]]\naddress = "a.1"\nlisten = ["tcp://127.0.0.1:1", "ws://127.0.0.1:2"]\n'
        '[[broker]]\naddress = "a.2"\nlisten = ["tcp://127.0.0.1:3"]\n'
        '[[broker]]\naddress = "b.1"\n'
        '[[link]]\nbetween = ["a.2", "a.1"]\ntransport = "ws"\n'
        '[[link]]\nbetween = ["b.1", "a.1"]\n'
    )
    file = tmp_path / "b.toml"
    file.write_text('[broker]\nnetwork = "net.toml"\nlabel = "a.2"\nlisten = ["tcp://127.0.0.1:3"]\n')
    config = load_config(file)
    assert (config.address, config.network, config.levels, config.name) == ((0, 1), "n", 2, "a.2")
    assert [neighbour.urls for neighbour in config.neighbours] == [("ws://127.0.0.1:2",)]
    assert len(config.members) == 3
    file.write_text('[broker]\nnetwork = "net.toml"\nlabel = "a.3"\n')
    with pytest.raises(ConfigFaults, match=r"a\.3.*a\.1|a\.2"):
        load_config(file)


def test_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('[broker]\nlisten = ["veena://127.0.0.1:1"]\nname = "here"\n')
    config = load_config(file, {"broker": {"listen": ["ws://127.0.0.1:2"]}})
    assert config.listen == ("ws://127.0.0.1:2",) and config.name == "here"
    with pytest.raises(ConfigFaults):
        load_config(tmp_path / "nowhere.toml")


def test_what_two_files_differ_in() -> None:
    old = parse_config('[log]\nlevel = "info"\n')
    new = parse_config('[log]\nlevel = "debug"\n[broker]\nname = "x"\n')
    assert sorted(changes(old.tables, new.tables)) == [("broker", "name"), ("log", "level")]
