"""Cluster scripts: commands, and below each what it must print.

A script is text in blocks. A block is one or more commands, a line `----`, and the expected output up to an empty line,
each answer under its command where there are several:

    run 5
    route c.6 b
    units c.6
    ----
    > route c.6 b
    6 > 4 > 7
    > units c.6
    4 5 6 a b SC-2 SC-3

Lines that begin with # are for people. `pytest --rewrite tests/scenarios` writes what the commands print now; look at
the difference before you commit it. Commands:

    network FILE             the brokers and links of a network file
    broker LABEL ...         brokers by their label paths, and
    link A B ...             links between them, with the world started at the first other command
    run SECONDS              let virtual time pass
    cut A B                  lose a link, both ends notice        silence A B   ... nobody is told
    heal A B                 let it work again                    load A B 0.9  how full it is, at both ends
    crash A / vanish A       a process dies; vanish: and its machine, so that no socket is reset
    start A                  start it again
    map A [LEVEL]            the edges that A knows: ends, cost, number of links
    units A                  what is in reach of A
    route A UNIT             the brokers that an event from A to the unit passes
    path A UNIT              the cheapest path on A's map, and its cost
    links A                  A's links: neighbour, state, announced step
    wrong                    brokers whose map is not what the whole topology says

Names are shortened to their last parts wherever that is unique.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core.small_networks import follow
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import LinkLoad
from veena.core.boundary.settings import SECOND_NS
from veena.core.links.link import LinkState
from veena.core.topology.connection import step
from veena.core.topology.paths import cheapest_paths
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.world.network import VirtualLink
from veena.sim.world.options import Options
from veena.sim.world.world import World

HERE = Path(__file__).parent
NETWORKS = HERE.parents[1] / "networks"
SCRIPTS = sorted(HERE.glob("*.txt"))
SEPARATOR = "----"


class Stage:
    """The world of one script, and what its commands do."""

    def __init__(self) -> None:
        self.brokers: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.network: Network | None = None
        self._world: World | None = None
        self.commands: dict[str, Callable[..., str]] = {
            "network": self.load, "broker": self.add_brokers, "link": self.add_link, "run": self.run, "cut": self.cut,
            "silence": self.silence, "heal": self.heal, "load": self.set_load, "crash": self.crash,
            "vanish": self.vanish, "start": self.start, "map": self.map, "units": self.units, "route": self.route,
            "path": self.path, "links": self.show_links, "wrong": self.wrong,
        }  # fmt: skip

    def perform(self, line: str) -> str:
        name, *arguments = line.split()
        return self.commands[name](*arguments)

    # --- setting up ---

    def load(self, file: str) -> str:
        self.network = load_network(NETWORKS / file, connected=True)
        return ""

    def add_brokers(self, *labels: str) -> str:
        self.brokers += labels
        return ""

    def add_link(self, *ends: str) -> str:
        self.links += list(zip(ends[::2], ends[1::2], strict=True))
        return ""

    @property
    def world(self) -> World:
        if self._world is None:
            if self.network is None:
                full = {self._ending(label, self.brokers): label for label in self.brokers}
                pairs = [(full.get(a, a), full.get(b, b)) for a, b in self.links]
                self.network = make_network("script", self.brokers, pairs)
            self._world = World(
                self.network, 1, Options(ordered=False, dial=False)
            )  # a script says itself what is joined
        return self._world

    # --- names ---

    def _ending(self, label: str, among: list[str]) -> str:
        """The shortest ending of at most two parts that names nothing else, else the whole label."""
        parts = label.split(".")
        for size in (1, 2):
            ending = ".".join(parts[-size:])
            if size <= len(parts) and sum(("." + other).endswith("." + ending) for other in among) == 1:
                return ending
        return label

    def _labels(self) -> list[str]:
        labels = self.world.network.labels
        return [labels.label(unit) for unit in labels.units()]

    def short(self, unit: Unit) -> str:
        return self._ending(self.world.network.labels.label(unit), self._labels())

    def unit(self, name: str) -> Unit:
        found = [label for label in self._labels() if ("." + label).endswith("." + name)]
        assert len(found) == 1, f"{name} is one of {found}: write more of its label"
        return self.world.network.labels.unit(found[0])

    def link(self, one: str, other: str) -> VirtualLink:
        ends = {self.unit(one), self.unit(other)}
        return next(link for link in self.world.links if {link.a, link.b} == ends)

    # --- what happens ---

    def run(self, seconds: str) -> str:
        self.world.run_until(self.world.now_ns + int(float(seconds) * SECOND_NS))
        self.world.check()
        return ""

    def cut(self, one: str, other: str) -> str:
        self.world.cut(self.link(one, other), silent=False)
        return ""

    def silence(self, one: str, other: str) -> str:
        self.world.cut(self.link(one, other), silent=True)
        return ""

    def heal(self, one: str, other: str) -> str:
        self.world.heal(self.link(one, other))
        return ""

    def set_load(self, one: str, other: str, utilisation: str) -> str:
        session = self.link(one, other).session
        assert session is not None
        for end, handle in session.handles.items():
            self.world.give(end, LinkLoad(handle, float(utilisation)))
        return ""

    def crash(self, name: str) -> str:
        self.world.crash(self.unit(name), silent=False)
        return ""

    def vanish(self, name: str) -> str:
        self.world.crash(self.unit(name), silent=True)
        return ""

    def start(self, name: str) -> str:
        self.world.start(self.unit(name))
        return ""

    # --- what is to be seen ---

    def map(self, name: str, level: str = "") -> str:
        edges = self.world.broker(self.unit(name)).map.edges()
        lines = [
            f"{self.short(edge.a)} - {self.short(edge.b)}  cost {edge.cost}" + f" x{edge.links}" * (edge.links > 1)
            for edge in edges
            if level in ("", str(edge.level))
        ]
        return "\n".join(lines) or "empty"

    def units(self, name: str) -> str:
        return " ".join(self.short(unit) for unit in self.world.broker(self.unit(name)).map.vertices())

    def route(self, name: str, target: str) -> str:
        hops = {broker.identity.address: broker.hops for broker in self.world.live()}
        start, unit = self.unit(name), self.unit(target)
        way = follow(hops, start, unit)
        shown = " > ".join(map(self.short, way))
        if way[-1][: len(unit)] == unit:
            return shown
        return f"{shown}: {'in a circle' if way[-1] in way[:-1] else 'no way on'}"

    def path(self, name: str, target: str) -> str:
        found = cheapest_paths(self.world.broker(self.unit(name)).map).get(self.unit(target))
        return "none" if found is None else f"{' > '.join(map(self.short, found.units))}  cost {found.cost}"

    def show_links(self, name: str) -> str:
        broker = self.world.broker(self.unit(name))
        lines: list[str] = []
        for link in broker.statistics().links:
            known = None if link.connection is None else broker.table.record(link.connection)
            neighbour: Address | None = link.neighbour
            who = "?" if neighbour is None else self.short(neighbour)
            announced = "" if known is None or not step(known) else f", step {step(known)}"
            lines.append(f"{who} {link.state.value if isinstance(link.state, LinkState) else '?'}{announced}")
        return "\n".join(sorted(lines))

    def wrong(self) -> str:
        return " ".join(map(self.short, self.world.wrong_maps())) or "none"


def performed(text: str) -> str:
    """The script with what its commands print now."""
    stage = Stage()
    out: list[str] = []
    printed: list[tuple[str, str]] = []
    expecting = False
    for line in text.splitlines():
        if expecting:
            if line:
                continue
            expecting = False
        out.append(line)
        if line == SEPARATOR:
            out += _shown([(command, answer) for command, answer in printed if answer])
            printed = []
            expecting = True
        elif line and not line.startswith("#"):
            try:
                printed.append((line, stage.perform(line)))
            except Exception as error:
                error.add_note(f"in the command: {line}")
                raise
    assert not printed, "every block ends with its expected output"
    return "\n".join(out).rstrip("\n") + "\n"


def _shown(answers: list[tuple[str, str]]) -> list[str]:
    """Each answer under its command where there are several."""
    if not answers:
        return ["ok"]
    if len(answers) == 1:
        return answers[0][1].splitlines()
    return [line for command, answer in answers for line in (f"> {command}", *answer.splitlines())]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text(encoding="utf-8")
    actual = performed(expected)
    if request.config.getoption("--rewrite"):
        script.write_text(actual, encoding="utf-8")
    else:
        assert actual == expected, "if the new output is right: pytest --rewrite tests/scenarios"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6


def test_a_wrong_expectation_is_found() -> None:
    """The reader of scripts replaces what is expected by what is true."""
    script = "broker S.C.c.1 S.C.c.2\nlink 1 2\nrun 2\nunits 1\n----\n1 2 3\n\nroute 1 2\n----\nnonsense\n"
    assert performed(script).split("\n\n")[0].endswith("----\n1 2")
    assert performed(script).endswith("----\n1 > 2\n")
    assert performed(performed(script)) == performed(script)


def test_a_mistake_in_a_script_names_its_line() -> None:
    with pytest.raises(AssertionError, match="is one of") as caught:
        performed("broker S.C.c.1 S.C.c.2\nlink 1 2\nunits 9\n----\n")
    assert caught.value.__notes__ == ["in the command: units 9"]
