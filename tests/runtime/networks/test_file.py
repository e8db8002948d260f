"""Network files: what they say, what they refuse and how clearly, and what can be read off a network before it runs."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.address import Unit
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.networks.file import (
    LinkEntry,
    Network,
    articulation_brokers,
    check_connected,
    components,
    controllers,
    dump_network,
    gatekeeper_record,
    gatekeepers,
    load_network,
    make_network,
    parse_network,
    partitions,
)
from veena.runtime.networks.model import contexts

NETWORKS = Path(__file__).parents[3] / "networks"

PAIR = """\
[network]
name = "pair"
levels = 4
fanout = 32

[[broker]]
address = "SSC-A.SC-1.c.6"
listen = ["tcp://127.0.0.1:7706"]

[[broker]]
address = "SSC-A.SC-1.c.4"

[[link]]
between = ["SSC-A.SC-1.c.6", "SSC-A.SC-1.c.4"]
transport = "tls"
delay_ms = 2.5
"""


def test_a_file_becomes_a_network() -> None:
    network = parse_network(PAIR)
    assert (network.name, network.levels, network.fanout) == ("pair", 4, 32)
    assert [broker.label for broker in network.brokers] == ["SSC-A.SC-1.c.6", "SSC-A.SC-1.c.4"]
    # Numbers follow the order of appearance: 6 comes first and is broker 0.
    assert [broker.address for broker in network.brokers] == [(0, 0, 0, 0), (0, 0, 0, 1)]
    assert network.brokers[0].listen == ("tcp://127.0.0.1:7706",)
    assert network.links == (LinkEntry((0, 0, 0, 0), (0, 0, 0, 1), 0, "tls", 2.5),)
    assert network.labels.unit("SSC-A.SC-1.c.4") == (0, 0, 0, 1)


def test_what_is_not_said_has_a_default() -> None:
    network = parse_network('[[broker]]\naddress = "A.B.C.1"', "some/where/mine.toml")
    assert (network.name, network.levels, network.fanout, network.links) == ("mine", 4, 32, ())


def test_hierarchies_of_four_and_five_levels_and_of_one() -> None:
    """TOP-02: the depth of the hierarchy is a setting of the file."""
    for levels, label in ((1, "x"), (4, "D.C.B.a"), (5, "E.D.C.B.a")):
        network = parse_network(f'[network]\nlevels = {levels}\n[[broker]]\naddress = "{label}"')
        assert len(network.brokers[0].address) == levels
        assert network.labels.label(network.brokers[0].address) == label


@pytest.mark.parametrize("path", sorted(NETWORKS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_networks_that_come_along_are_sound_and_written_back_equal(path: Path) -> None:
    network = load_network(path, connected=True)
    assert network.name == path.stem
    again = parse_network(dump_network(network))
    assert again == network
    assert list(again.labels.units()) == list(network.labels.units())


def test_parallel_links_are_allowed_and_counted() -> None:
    """GPP-11: two links between the same two brokers are two connections."""
    one = PAIR.index("[[link]]")
    network = parse_network(PAIR + "\n" + PAIR[one:])
    assert len(network.links) == 2
    assert articulation_brokers(network) == ()


CASES = [
    ("an unknown broker", 'c.4"]', 'c.5"]', "line 14, [[link]] 1", "no broker 'SSC-A.SC-1.c.5'", "'SSC-A.SC-1.c.4'"),
    ("a short label", '"SSC-A.SC-1.c.4"]', '"c.4"]', "line 14, [[link]] 1", "no broker", "mean 'SSC-A.SC-1.c.4'?"),
    ("nothing alike", '"SSC-A.SC-1.c.4"]', '"q"]', "line 14, [[link]] 1", "no broker 'q'", "add a [[broker]]"),
    ("a link to itself", 'c.4"]', 'c.6"]', "line 14, [[link]] 1", "to itself", "two different"),
    ("one address twice", 'c.4"\n', 'c.6"\n', "line 11, [[broker]] 2", "taken by [[broker]] 1", "its own"),
    ("three ends", 'c.4"]', 'c.4", "x"]', "line 14, [[link]] 1", "between is", "the two brokers"),
    ("no ends", "between", "# between", "line 13, [[link]] 1", "has no between", "between ="),
    ("a misspelt key", "transport", "transprot", "line 15, [[link]] 1", "'transprot'", "did you mean transport?"),
    ("a misspelt table", "[[link]]", "[[lnik]]", "line 13, the file", "'lnik'", "did you mean link?"),
    ("a misspelt head", "fanout", "fanuot", "line 4, [network]", "'fanuot'", "did you mean fanout?"),
    ("a transport", '"tls"', '"pigeon"', "line 15, [[link]] 1", "'pigeon'", "write one of tcp, tls, ws, memory"),
    ("a transport's type", '"tls"', "7", "line 15, [[link]] 1", "transport is 7", "write one of tcp, tls"),
    ("datagrams", '"tls"', '"udp"', "line 15, [[link]] 1", "is 'udp'", "there is no UDP transport; write one of tcp"),
    ("their door", "tcp://127", "udp://127", "line 8, [[broker]] 1", "ws, memory; there is no UDP transport", "7700"),
    ("a delay", "2.5", "-1", "line 16, [[link]] 1", "delay_ms is -1", "0 to 60000"),
    ("no delay", "2.5", "nan", "line 16, [[link]] 1", "delay_ms is nan", "0 to 60000"),
    ("a true delay", "2.5", "true", "line 16, [[link]] 1", "delay_ms is True", "0 to 60000"),
    ("levels", "levels = 4", "levels = 9", "line 3, [network]", "levels is 9", "1 to 8"),
    ("levels of a type", "levels = 4", 'levels = "4"', "line 3, [network]", "levels is '4'", "whole number"),
    ("a fan-out", "fanout = 32", "fanout = 33", "line 4, [network]", "fanout is 33", "32 or 64"),
    ("a name", 'name = "pair"', "name = 3", "line 2, [network]", "name is 3", "printable"),
    ("a short address", '"SSC-A.SC-1.c.4"\n', '"c.4"\n', "line 11, [[broker]] 2", "2 parts", "4 labels joined"),
    ("an empty label", '"SSC-A.SC-1.c.4"\n', '"SSC-A.SC-1..4"\n', "line 11, [[broker]] 2", "1 to 64", "label path"),
    ("an address of a type", 'address = "SSC-A.SC-1.c.4"', "address = 4", "line 11, [[broker]] 2", "is 4", "SSC-A"),
    ("no address", 'address = "SSC-A.SC-1.c.4"', "", "line 10, [[broker]] 2", "has no address", "address ="),
    ("a listen", '"tcp://127.0.0.1:7706"', '"127.0.0.1"', "line 8, [[broker]] 1", "transport://host:port", "7700"),
    ("a scheme", "tcp://127", "gopher://127", "line 8, [[broker]] 1", "'gopher'", "7700"),
    ("a port", "7706", "77060", "line 8, [[broker]] 1", "beyond 65535", "7700"),
    ("a listen of a type", '["tcp://127.0.0.1:7706"]', "7706", "line 8, [[broker]] 1", "listen is 7706", "a list"),
    ("syntax", "fanout = 32", "fanout = = 32", "line 4", "is no TOML", "syntax"),
    ("a table as a value", PAIR, "broker = 3", "line 1, broker", "is 3", "[[broker]]"),
    ("a head as a value", PAIR, "network = 3", "[network]", "is 3", "[network]"),
    ("an empty file", PAIR, "", "[[broker]]", "there is none", "add [[broker]]"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "entry", "reason", "remedy"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_fault_names_the_line_the_value_and_the_remedy(
    old: str, new: str, entry: str, reason: str, remedy: str
) -> None:
    assert old in PAIR
    at = PAIR.rindex(old)
    with pytest.raises(ConfigError) as caught:
        parse_network(PAIR[:at] + new + PAIR[at + len(old) :], "pair.toml")
    error = caught.value
    assert error.file == "pair.toml"
    assert error.entry == entry
    assert reason in error.reason
    assert remedy in error.remedy


def test_two_brokers_cannot_listen_at_one_place() -> None:
    text = PAIR.replace('c.4"\n', 'c.4"\nlisten = ["tcp://127.0.0.1:7706"]\n', 1)
    with pytest.raises(ConfigError, match=r"line 12, \[\[broker\]\] 2.*listened on by 'SSC-A.SC-1.c.6'"):
        parse_network(text)


def test_a_full_cluster_takes_no_more() -> None:
    """TOP-07: broker 33 of a cluster is refused, and 64 fit where the fan-out is 64."""
    lines = [f'[[broker]]\naddress = "A.B.C.{number}"\n' for number in range(64)]
    with pytest.raises(ConfigError, match=r"line 66, \[\[broker\]\] 33: A\.B\.C holds 32 brokers.*fanout = 64"):
        parse_network("".join(lines))
    assert len(parse_network("[network]\nfanout = 64\n" + "".join(lines)).brokers) == 64


def test_a_line_is_named_only_where_it_is_sure() -> None:
    """Inline tables have no header line, and a header inside a string is none."""
    with pytest.raises(ConfigError) as caught:
        parse_network('broker = [{address = "A.B.C.1"}, {address = "A.B.C.1"}]')
    assert caught.value.entry == "[[broker]] 2"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_network(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="directory"):
        load_network(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match=r"byte 8.*UTF-8"):
        load_network(tmp_path / "latin.toml")


SCRAPS = ["[", "]", "=", '"', "0x" + "f" * 5000, "[" * 3000, "\x00", "é", "\n", "1", "a.b"]


@settings(max_examples=150)
@given(st.text(max_size=80) | st.tuples(st.integers(0, len(PAIR)), st.sampled_from(SCRAPS)))
def test_any_text_is_a_network_or_one_clear_error(drawn: str | tuple[int, str]) -> None:
    text = drawn if isinstance(drawn, str) else PAIR[: drawn[0]] + drawn[1] + PAIR[drawn[0] :]
    network: Network | None = None
    with contextlib.suppress(ConfigError):  # anything else fails the test
        network = parse_network(text)
    if network is not None:
        assert parse_network(dump_network(network)) == network


@settings(max_examples=40)
@given(st.integers(1, 5), st.lists(st.text("ab.\"\\'#=[é", min_size=1, max_size=9), max_size=12), st.randoms())
def test_any_labels_are_written_back_equal(levels: int, words: list[str], chance: random.Random) -> None:
    brokers: dict[str, None] = {}
    for word in words:
        parts = [part or "x" for part in word.split(".")]
        brokers[".".join((parts * levels)[:levels])] = None
    names = list(brokers) or [".".join("y" * levels)]
    links = [(a, b) for a in names for b in names if a != b and chance.random() < 0.3]
    network = make_network("any", names, links, levels)
    delayed = replace(network, links=tuple(replace(link, delay_ms=chance.random() * 100) for link in network.links))
    assert parse_network(dump_network(delayed)) == delayed


def test_make_network_refuses_what_is_none() -> None:
    with pytest.raises(InvalidAddress, match="twice"):
        make_network("x", ["a.1", "a.1"], [], levels=2)
    with pytest.raises(InvalidAddress, match=r"no broker 'a\.2'"):
        make_network("x", ["a.1"], [("a.1", "a.2")], levels=2)
    with pytest.raises(InvalidAddress, match="itself"):
        make_network("x", ["a.1"], [("a.1", "a.1")], levels=2)


# --- partitions, articulation, controllers ---


def _without(network: Network, *pairs: tuple[str, str]) -> Network:
    gone = [{network.labels.unit(a), network.labels.unit(b)} for a, b in pairs]
    kept = tuple(link for link in network.links if {link.a, link.b} not in gone)
    assert len(kept) == len(network.links) - len(pairs)
    return replace(network, links=kept)


def test_a_cluster_in_two_parts_is_refused() -> None:
    """TOP-03, CTX-03: brokers of a cluster must reach each other inside it."""
    whole = load_network(NETWORKS / "ges-22.toml")
    cut = _without(whole, ("SSC-B.SC-5.h.1", "SSC-B.SC-5.h.22"))
    (partition,) = partitions(cut)
    assert cut.labels.label(partition.context) == "SSC-B.SC-5.h"
    assert [[cut.labels.label(unit) for unit in part] for part in partition.parts] == [
        ["SSC-B.SC-5.h.1", "SSC-B.SC-5.h.2"],
        ["SSC-B.SC-5.h.22"],
    ]
    with pytest.raises(ConfigError) as caught:
        check_connected(cut, "ges.toml", dump_network(cut))
    assert caught.value.entry == "line 31, cluster SSC-B.SC-5.h"
    assert caught.value.reason.startswith("broker SSC-B.SC-5.h.22 has no level-0 link")
    assert "add a [[link]] from SSC-B.SC-5.h.22" in caught.value.remedy


def test_a_way_round_through_other_units_does_not_heal_a_unit() -> None:
    """CTX-03: routes do not leave a unit, so neither does its connectedness."""
    network = make_network(
        "round", ["A.1", "A.2", "B.1"], [("A.1", "B.1"), ("B.1", "A.2")], levels=2
    )  # fmt: skip
    assert [partition.context for partition in partitions(network)] == [network.labels.unit("A")]
    assert len(components(network)) == 1


def test_a_cluster_without_a_gateway_is_refused(tmp_path: Path) -> None:
    """TOP-04: in a super-cluster of several clusters each needs a level-1 link."""
    cut = _without(load_network(NETWORKS / "fix-1.toml"), ("SSC-A.SC-1.A.3", "SSC-A.SC-1.D.10"))
    file = tmp_path / "cut.toml"
    file.write_text(dump_network(cut))
    assert load_network(file) == cut
    with pytest.raises(ConfigError) as caught:
        load_network(file, connected=True)
    assert caught.value.entry.endswith("super-cluster SSC-A.SC-1")
    assert "cluster SSC-A.SC-1.D has no level-1 link to another cluster of SSC-A.SC-1" in caught.value.reason


def test_super_super_clusters_that_nothing_joins_are_a_partition_of_the_network() -> None:
    network = make_network("two", ["A.x.1", "B.x.1", "B.x.2"], [("B.x.1", "B.x.2")], levels=3)
    with pytest.raises(ConfigError, match=r"network: super-cluster A has no level-2 link"):
        check_connected(network)


@st.composite
def _networks(draw: st.DrawFn) -> Network:
    names = draw(
        st.lists(st.builds("{}.{}.{}".format, *[st.sampled_from("abc")] * 3), min_size=2, max_size=14, unique=True)
    )
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    return make_network("drawn", sorted(names), draw(st.lists(pairs, max_size=30)), levels=3)


def _pieces(members: set[Unit], edges: list[tuple[Unit, Unit]]) -> int:
    """Counted the plain way: merge until nothing changes."""
    groups = [{member} for member in members]
    for a, b in edges:
        if a in members and b in members:
            touched = [group for group in groups if a in group or b in group]
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return len(groups)


@settings(max_examples=120)
@given(_networks())
def test_partitions_and_articulation_agree_with_trying_every_loss(network: Network) -> None:
    """TOP-19, CTX-03: the reports equal what comes out when each broker is taken away in turn."""
    addresses = {broker.address for broker in network.brokers}
    split = {partition.context: len(partition.parts) for partition in partitions(network)}

    def pieces(context: Unit, alive: set[Unit]) -> int:
        depth = len(context) + 1
        inside = [link for link in network.links if link.a[:depth] != link.b[:depth] and {link.a, link.b} <= alive]
        edges = [
            (link.a[:depth], link.b[:depth]) for link in inside if link.a[: depth - 1] == context == link.b[: depth - 1]
        ]
        return _pieces({address[:depth] for address in alive if address[: depth - 1] == context}, edges)

    for context in contexts(network):
        assert split.get(context, 1) == pieces(context, addresses)
    found = {articulation.broker: articulation for articulation in articulation_brokers(network)}
    every = [(link.a, link.b) for link in network.links]
    for broker in addresses:
        left = addresses - {broker}
        whole = _pieces(left, every) > _pieces(addresses, every)
        units = tuple(context for context in contexts(network) if pieces(context, left) > pieces(context, addresses))
        assert (whole or bool(units)) == (broker in found)
        if broker in found:
            assert (found[broker].whole, found[broker].units) == (whole, units)


def test_a_long_chain_is_no_deep_recursion() -> None:
    names = [f"{cluster}.{number}" for cluster in range(32) for number in range(32)]
    network = make_network("chain", names, list(itertools.pairwise(names)), levels=2)
    assert len(articulation_brokers(network)) == len(names) - 2


def test_gatekeepers_and_their_records() -> None:
    """GKP-03, GKP-04, GKP-05: one broker at three levels; a record goes with its last link."""
    network = make_network(
        "levels", ["X.a.1", "X.a.2", "X.b.3", "Y.c.4"],
        [("X.a.1", "X.a.2"), ("X.a.1", "X.b.3"), ("X.a.1", "Y.c.4")], levels=3,
    )  # fmt: skip
    one, far = network.labels.unit("X.a.1"), network.labels.unit("Y.c.4")
    assert [level for level, brokers in gatekeepers(network).items() if one in brokers] == [0, 1, 2]
    record = gatekeeper_record(network, one, 2)
    assert record is not None and (record.context, record.peers) == ((), (far,))
    assert gatekeeper_record(_without(network, ("X.a.1", "Y.c.4")), one, 2) is None
    # TOP-17: a unit without a gateway has its lowest broker as controller.
    labelled = {network.labels.label(unit): who for unit, who in controllers(network).items()}
    assert labelled["X"] == (one,) and labelled["Y.c"] == (far,)
