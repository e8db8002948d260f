"""Where the brokers and units of a network stand on a sheet: boxes within boxes, and brokers on circles.

For pictures of network files and of networks that run; of the latter not every unit has been looked into, and such a
closed one is a box of one size. Sizes are found from the inside out, places from the outside in. The sub-units of a
unit stand in rows; which goes where, and the order of brokers around their circle, is improved by swapping pairs while
that makes links shorter. Everything is computed in a fixed order without chance, so a network has one picture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from veena.address import Address, Unit
from veena.runtime.networks.file import Network
from veena.runtime.networks.model import contexts

Point = tuple[float, float]

RADIUS = 11.0
#: From one broker to the next along the circle of a cluster.
SPACING = 38.0
#: The strip of a box that holds its name, and the free rim inside it, by the level of the box.
TITLE = 17.0
RIM = (0.0, 13.0, 14.0, 16.0)
#: Between two boxes of a level: room for the links of that level.
GAP = (0.0, 24.0, 34.0, 46.0)
#: Wider than high, as screens are.
ASPECT = 1.45
#: Passes of swapping; pictures of 500 brokers stop changing after three or four.
PASSES = 6
#: The extent of a closed unit: room for its name and a line of figures.
CLOSED = (104.0, 52.0)


@dataclass(frozen=True, slots=True)
class Box:
    """The frame of a unit: its upper left corner and its extent."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> Point:
        return (self.x + self.width / 2, self.y + self.height / 2)


@dataclass(frozen=True, slots=True)
class Layout:
    width: float
    height: float
    #: Outer boxes before inner ones; the network itself is `()` and has no frame.
    boxes: dict[Unit, Box]
    brokers: dict[Address, Point]


def lay_out(network: Network) -> Layout:
    """A network with every broker in it."""
    return arrange(network.levels, contexts(network), [(link.a, link.b) for link in network.links])


def arrange(levels: int, opened: Mapping[Unit, tuple[Unit, ...]], links: Sequence[tuple[Unit, Unit]]) -> Layout:
    """Units that are opened, `()` among them, with their members: brokers, units that are opened too, or closed ones.

    Links join brokers and closed units.
    """
    members = dict(opened)
    pulls = _pulls(links)
    extent = {unit: CLOSED for inside in members.values() for unit in inside if unit not in members}
    places: dict[Unit, list[Point]] = {}
    for unit in sorted(members, key=lambda unit: (-len(unit), unit)):
        level = levels - len(unit)
        if level == 1:
            places[unit], extent[unit] = _framed(_circle(len(members[unit])))
        else:
            order, places[unit], extent[unit] = _rows(members[unit], extent, pulls.get(unit, {}), level)
            members[unit] = order
    boxes, brokers = _placed(levels, members, extent, places)
    _turn(levels, members, links, boxes, brokers)
    width, height = extent[()]
    return Layout(width, height, {unit: box for unit, box in boxes.items() if unit}, brokers)


def _of(sizes: Sequence[float], level: int) -> float:
    return sizes[min(level, len(sizes) - 1)]


def _pulls(links: Sequence[tuple[Unit, Unit]]) -> dict[Unit, dict[tuple[Unit, Unit], int]]:
    """For each unit the links between its sub-units, counted."""
    found: dict[Unit, dict[tuple[Unit, Unit], int]] = {}
    for one, other in links:
        depth = next(at for at in range(len(one)) if one[at] != other[at]) + 1
        pair = (min(one, other)[:depth], max(one, other)[:depth])
        counts = found.setdefault(one[: depth - 1], {})
        counts[pair] = counts.get(pair, 0) + 1
    return found


def _circle(count: int) -> list[Point]:
    """Places of brokers around the middle of their cluster."""
    if count == 1:
        return [(0.0, 0.0)]
    radius = max(SPACING / 2, SPACING / (2 * math.sin(math.pi / count)))
    start = math.pi if count == 2 else -math.pi / 2
    turns = [start + 2 * math.pi * at / count for at in range(count)]
    return [(radius * math.cos(turn), radius * math.sin(turn)) for turn in turns]


def _framed(points: list[Point]) -> tuple[list[Point], tuple[float, float]]:
    """The points within a box that fits them closely, and its extent."""
    rim = RADIUS + _of(RIM, 1)
    left, top = (min(point[axis] for point in points) - rim for axis in (0, 1))
    right, bottom = (max(point[axis] for point in points) + rim for axis in (0, 1))
    moved = [(x - left, y - top + TITLE) for x, y in points]
    return moved, (right - left, bottom - top + TITLE)


def _rows(
    units: tuple[Unit, ...],
    extent: Mapping[Unit, tuple[float, float]],
    pulls: Mapping[tuple[Unit, Unit], int],
    level: int,
) -> tuple[tuple[Unit, ...], list[Point], tuple[float, float]]:
    """Sub-units in rows: their order, their upper left corners within the box, and the extent of the box."""
    pack = _packer(extent, level)
    columns = min(range(1, len(units) + 1), key=lambda columns: _strain(pack(units, columns)[1]))

    def length(order: Sequence[Unit]) -> float:
        corners, _ = pack(order, columns)
        middle = {
            unit: (x + extent[unit][0] / 2, y + extent[unit][1] / 2)
            for unit, (x, y) in zip(order, corners, strict=True)
        }
        return sum(count * math.dist(middle[a], middle[b]) for (a, b), count in pulls.items())

    order = _swapped(list(units), length) if pulls else list(units)
    corners, size = pack(order, columns)
    return tuple(order), corners, size


def _strain(size: tuple[float, float]) -> float:
    """How large a sheet of the wanted shape must be to hold this."""
    return max(size[0], size[1] * ASPECT)


def _packer(
    extent: Mapping[Unit, tuple[float, float]], level: int
) -> Callable[[Sequence[Unit], int], tuple[list[Point], tuple[float, float]]]:
    rim, gap, title = _of(RIM, level), _of(GAP, level - 1), TITLE

    def pack(units: Sequence[Unit], columns: int) -> tuple[list[Point], tuple[float, float]]:
        count = math.ceil(len(units) / columns)
        cuts = [math.ceil(len(units) * at / count) for at in range(count + 1)]
        rows = [units[a:b] for a, b in itertools.pairwise(cuts)]
        widths = [sum(extent[unit][0] for unit in row) + gap * (len(row) - 1) for row in rows]
        full = max(widths)
        corners: list[Point] = []
        top = rim + title
        for row, width in zip(rows, widths, strict=True):
            height = max(extent[unit][1] for unit in row)
            left = rim + (full - width) / 2
            for unit in row:
                corners.append((left, top + (height - extent[unit][1]) / 2))
                left += extent[unit][0] + gap
            top += height + gap
        return corners, (full + 2 * rim, top - gap + rim)

    return pack


def _swapped(order: list[Unit], length: Callable[[Sequence[Unit]], float]) -> list[Unit]:
    """Swap pairs while that shortens the links; a fixed number of passes bounds the time."""
    best = length(order)
    for _ in range(PASSES):
        before = best
        for one in range(len(order)):
            for other in range(one):
                order[one], order[other] = order[other], order[one]
                now = length(order)
                if now < best - 1e-6:
                    best = now
                else:
                    order[one], order[other] = order[other], order[one]
        if best == before:
            break
    return order


def _placed(
    levels: int,
    members: Mapping[Unit, tuple[Unit, ...]],
    extent: Mapping[Unit, tuple[float, float]],
    places: Mapping[Unit, list[Point]],
) -> tuple[dict[Unit, Box], dict[Address, Point]]:
    """From places within boxes to places on the sheet."""
    boxes: dict[Unit, Box] = {(): Box(0.0, 0.0, *extent[()])}
    brokers: dict[Address, Point] = {}
    for unit in sorted(members, key=lambda unit: (len(unit), unit)):
        box = boxes[unit]
        for member, (x, y) in zip(members[unit], places[unit], strict=True):
            if len(member) == levels:
                brokers[member] = (box.x + x, box.y + y)
            else:
                boxes[member] = Box(box.x + x, box.y + y, *extent[member])
    return boxes, brokers


def _turn(
    levels: int,
    members: Mapping[Unit, tuple[Unit, ...]],
    links: Sequence[tuple[Unit, Unit]],
    boxes: Mapping[Unit, Box],
    brokers: dict[Address, Point],
) -> None:
    """Order brokers on their circles so that links within are short and gateways look to where they lead."""
    near: dict[Address, list[Address]] = {address: [] for address in brokers}
    for one, other in links:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    for _ in range(2):  # the second time gateways know where the other end has come to stand
        for unit in sorted(members):
            if levels - len(unit) != 1:
                continue
            spots = [brokers[member] for member in members[unit]]
            inside = set(members[unit])
            pairs = [(one, other) for one in members[unit] for other in near[one] if other in inside and one < other]
            outside = {
                one: [brokers.get(other) or boxes[other].middle for other in near[one] if other not in inside]
                for one in members[unit]
                if near[one]
            }

            def length(
                order: Sequence[Unit],
                spots: list[Point] = spots,
                pairs: list[tuple[Unit, Unit]] = pairs,
                outside: dict[Unit, list[Point]] = outside,
            ) -> float:
                at = dict(zip(order, spots, strict=True))
                far = sum(math.dist(at[one], point) for one, points in outside.items() for point in points)
                return 2 * sum(math.dist(at[a], at[b]) for a, b in pairs) + far

            order = _swapped(list(members[unit]), length)
            brokers.update(zip(order, spots, strict=True))
