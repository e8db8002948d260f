"""A scene as SVG: units nested, links coloured by level, their load as width, suspected ones dashed, traces on top.

Units are opened from the top while the picture can still be read; the others are closed boxes that lead to a picture
of their own. Every broker and unit is a link (`<a>`), so that a keyboard gets everywhere and a screen reader tells what
is there. Colours are the style sheet's, by class, so one picture does for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from veena.address import level_name
from veena.dashboard.pictures.figures import amount, bytes_text
from veena.dashboard.pictures.scene import Line, Path, Scene, label_of
from veena.runtime.networks.layout import RADIUS, TITLE, Box, Layout, Point, arrange

#: Brokers and closed units in one picture: more cannot be read on a screen.
MAX_SHOWN = 120
#: More letters than this are cut; the tool tip has them all.
MAX_LETTERS = 8
MAX_BOX_LETTERS = 14
MARGIN = 10.0
#: Widths of lines: nothing known of the load, the least and the most.
PLAIN, THIN, THICK = 1.6, 1.2, 9.0
#: Bytes a second at which lines are thinnest and thickest; in between by the logarithm.
QUIET, BUSY = 1e3, 1e7
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="4" markerHeight="4"'
    ' orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" class="arrow"/></marker></defs>'
)
#: Colours of levels; those above share the last.
LEVELS = 4


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of an event's way."""

    sender: Path
    receiver: Path
    #: Nobody knows that it has come.
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Highlight:
    """What a picture points out."""

    hops: tuple[Hop, ...] = ()
    #: Brokers that handed the event to clients, with how many.
    handed: Mapping[Path, int] = field(default_factory=dict)
    selected: Path | None = None

    def brokers(self) -> list[Path]:
        ends = [end for hop in self.hops for end in (hop.sender, hop.receiver)]
        return list(dict.fromkeys((*ends, *self.handed)))


@dataclass(frozen=True, slots=True)
class Picture:
    svg: str
    #: Brokers and closed units in it.
    shown: tuple[Path, ...]
    #: Lines that leave the unit.
    outside: tuple[Line, ...]


def draw(scene: Scene, within: Path = (), highlight: Highlight | None = None, page: str = "/topology") -> Picture:
    """The picture of the network, or of one unit that is known and no broker."""
    found = highlight or Highlight()
    if not scene.members.get(within):
        return Picture("", (), tuple(line for line in scene.lines if within and within in (line.a, line.b)))
    opened = _opened(scene, within, found.brokers())
    sketch = _Sketch(scene, within, opened, found, page)
    return sketch.picture()


def _opened(scene: Scene, within: Path, wanted: Sequence[Path]) -> list[Path]:
    """The units whose inside is shown: level by level while there is room, and always those around `wanted`."""
    opened = {within: None}
    for broker in wanted:
        opened.update(
            dict.fromkeys(
                broker[:depth] for depth in range(len(within), len(broker)) if broker[:depth] in scene.members
            )
        )
    for depth in range(len(within) + 1, scene.levels):
        more = [
            unit
            for unit, inside in scene.members.items()
            if len(unit) == depth and unit[:-1] in opened and unit[: len(within)] == within and inside
        ]
        trial = {**opened, **dict.fromkeys(more)}
        shown = sum(member not in trial for unit in trial for member in scene.members[unit])
        if shown > MAX_SHOWN or not more:
            break
        opened = trial
    return [unit for unit in opened if unit[: len(within)] == within]


class _Sketch:
    """One picture on its way."""

    def __init__(self, scene: Scene, within: Path, opened: list[Path], highlight: Highlight, page: str) -> None:
        self._scene = scene
        self._within = within
        self._highlight = highlight
        self._page = page
        self._gateways = scene.gateways()
        self._opened = dict.fromkeys(opened)
        self._vertices = [m for unit in opened for m in scene.members[unit] if m not in self._opened]
        #: Layouts are of numbers: those of the units, below the one that is shown.
        self._numbers: dict[Path, tuple[int, ...]] = {within: ()}
        for unit in sorted(opened, key=len):
            for at, member in enumerate(scene.members[unit]):
                self._numbers[member] = (*self._numbers[unit], at)
        self._lines, self._outside = self._inside()
        self._layout = self._laid_out()

    def _inside(self) -> tuple[dict[tuple[Path, Path], list[Line]], list[Line]]:
        """Lines by the vertices that they join here, and those that leave the picture."""
        found: dict[tuple[Path, Path], list[Line]] = {}
        outside: list[Line] = []
        for line in self._scene.lines:
            a, b = self._seen(line.a), self._seen(line.b)
            if a is not None and b is not None:
                if a != b:
                    found.setdefault((a, b), []).append(line)
            elif a is not None or b is not None:
                outside.append(line)
        return found, outside

    def _seen(self, unit: Path) -> Path | None:
        """What stands for a unit here: itself, or the closed unit around it; None for what is outside."""
        if unit[: len(self._within)] != self._within or len(unit) == len(self._within):
            return None
        for depth in range(len(self._within) + 1, len(unit) + 1):
            if unit[:depth] not in self._opened:
                return unit[:depth] if unit[:depth] in self._numbers else None
        return unit

    def _laid_out(self) -> Layout:
        numbers = self._numbers
        members = {numbers[unit]: tuple(numbers[m] for m in self._scene.members[unit]) for unit in self._opened}
        links = [
            (numbers[a], numbers[b])
            for a, b in self._lines
            if a not in self._opened and b not in self._opened
            for _ in self._lines[a, b]
        ]
        return arrange(self._scene.levels - len(self._within), members, links)

    # --- places ---

    def _box(self, unit: Path) -> Box:
        return self._layout.boxes[self._numbers[unit]]

    def _point(self, unit: Path) -> Point:
        """Where lines end."""
        point = self._layout.brokers.get(self._numbers[unit])
        if point is not None:
            return point
        box = self._box(unit)
        return (box.x + box.width / 2, box.y + TITLE / 2) if unit in self._opened else box.middle

    # --- pieces ---

    def picture(self) -> Picture:
        left, top, width, height = self._extent()
        name = f"Picture of {label_of(self._within) or 'the network'}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="network" role="group" aria-label={quoteattr(name)}'
            f' viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}"'
            f' style="max-width: {max(1.6 * width, 320):.0f}px">'
        )
        pieces = [
            head,
            ARROW,
            *(self._frame(unit) for unit in sorted(self._opened, key=len) if unit != self._within),
            *self._curves(),
            *(self._closed(unit) for unit in self._vertices if len(unit) < self._scene.levels),
            *self._brokers(),
            *self._hops(),
            "</svg>",
        ]
        return Picture("\n".join(pieces), tuple(self._vertices), tuple(self._outside))

    def _extent(self) -> tuple[float, float, float, float]:
        """What there is to be seen: the network itself has no frame, and needs no rim."""
        layout, reach = self._layout, RADIUS + 2.6 * LEVELS
        points = [(x + sign * reach, y + sign * reach) for x, y in layout.brokers.values() for sign in (-1, 1)]
        points += [(box.x, box.y) for box in layout.boxes.values()]
        points += [(box.x + box.width, box.y + box.height) for box in layout.boxes.values()]
        left, top = (min(point[axis] for point in points) - MARGIN for axis in (0, 1))
        right, bottom = (max(point[axis] for point in points) + MARGIN for axis in (0, 1))
        return left, top, right - left, bottom - top

    def _link(self, unit: Path, inside: str, said: str) -> str:
        href = f"{self._page}?unit={quote(label_of(unit))}"
        return (
            f"<a href={quoteattr(href)} data-unit={quoteattr(label_of(unit))} aria-label={quoteattr(said)}>"
            f"<title>{escape(said)}</title>{inside}</a>"
        )

    def _frame(self, unit: Path) -> str:
        box, level = self._box(unit), self._scene.level(unit)
        rect = (
            f'<rect class="box level-{min(level, LEVELS)}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
            f' height="{box.height:.1f}" rx="{5 + 2 * level}"/>'
        )
        size = 10 + 1.5 * (level - 1)
        # A box is as wide as its brokers; its name must not reach into the next one.
        most = max(3, int((box.width - 14) / (0.62 * size)))
        at = f'x="{box.x + 9:.1f}" y="{box.y + 15:.1f}" font-size="{size}"'
        text = f'<text class="name" {at}>{_cut(unit[-1], most)}</text>'
        return self._link(unit, rect + text, self.said(unit))

    def _closed(self, unit: Path) -> str:
        box, level = self._box(unit), self._scene.level(unit)
        rect = (
            f'<rect class="box closed level-{min(level, LEVELS)}" x="{box.x:.1f}" y="{box.y:.1f}"'
            f' width="{box.width:.1f}" height="{box.height:.1f}" rx="{5 + 2 * level}"/>'
        )
        x, y = box.middle
        count = len(self._scene.brokers(unit))
        below = f"{count} known" if count else "closed"
        texts = (
            f'<text class="name" x="{x:.1f}" y="{y - 1:.1f}" font-size="12" text-anchor="middle">'
            f"{_cut(unit[-1], MAX_BOX_LETTERS)}</text>"
            f'<text class="small" x="{x:.1f}" y="{y + 13:.1f}" font-size="9" text-anchor="middle">{below}</text>'
        )
        return self._link(unit, rect + texts, self.said(unit))

    def _brokers(self) -> Iterable[str]:
        for unit in self._vertices:
            if len(unit) < self._scene.levels:
                continue
            x, y = self._point(unit)
            own = self._gateways.get(unit, [])
            at_point = f'cx="{x:.1f}" cy="{y:.1f}"'
            rings = "".join(
                f'<circle class="ring level-{min(level, LEVELS - 1)}" {at_point} r="{RADIUS + 2.6 * at:.1f}"/>'
                for at, level in enumerate(reversed(own[:-1]), 1)
            )
            classes = ["broker", f"level-{min(own[-1], LEVELS - 1)}" if own else "plain"]
            classes += ["silent"] if unit in self._scene.silent else []
            classes += ["selected"] if unit == self._highlight.selected else []
            classes += ["handed"] if unit in self._highlight.handed else []
            facts = self._scene.facts.get(unit)
            classes += ["slow"] if facts is not None and (facts.slow or facts.trouble) else []
            name = _cut(unit[-1], MAX_LETTERS)
            size = min(10.0, 2.9 * RADIUS / max(min(len(unit[-1]), MAX_LETTERS), 1))
            disc = (
                f'<circle class="{" ".join(classes)}" {at_point} r="{RADIUS:.0f}"/>'
                f'<text class="{" ".join(classes)}" x="{x:.1f}" y="{y + 0.35 * size:.1f}" font-size="{size:.1f}"'
                f' text-anchor="middle">{name}</text>'
            )
            handed = self._highlight.handed.get(unit)
            if handed:
                disc += (
                    f'<text class="count" x="{x + RADIUS:.1f}" y="{y - RADIUS + 2:.1f}" font-size="9">{handed}</text>'
                )
            yield self._link(unit, rings + disc, self.said(unit))

    def said(self, unit: Path) -> str:
        """A unit in words."""
        scene, level = self._scene, self._scene.level(unit)
        words = [f"{level_name(level) if level else 'broker'} {label_of(unit)}"]
        if level:
            count = len(scene.brokers(unit))
            words.append(f"{amount(count, 'broker')} known" if count else "not looked into")
        words += [f"{level_name(gate)} gatekeeper" for gate in self._gateways.get(unit, ())]
        facts = scene.facts.get(unit)
        if facts is not None:
            words += [amount(facts.clients, "client"), amount(facts.subscriptions, "subscription")]
            words += [f"{facts.slow} slow to read"] if facts.slow else []
            words += [facts.trouble] if facts.trouble else []
        if unit in scene.silent:
            words.append("does not answer")
        if unit in self._highlight.handed:
            words.append(f"handed the event to {amount(self._highlight.handed[unit], 'client')}")
        return ", ".join(words)

    # --- lines ---

    def _curves(self) -> Iterable[str]:
        """Low levels first, so that the rarer links lie on top; parallel ones bend apart."""
        drawn = [(a, b, line) for (a, b), lines in self._lines.items() for line in self._bundled(a, b, lines)]
        number: dict[frozenset[Path], int] = {}
        for a, b, line in sorted(drawn, key=lambda each: each[2].level):
            pair = frozenset((a, b))
            number[pair] = number.get(pair, 0) + 1
            classes = f"link level-{min(line.level, LEVELS - 1)}{' suspected' if line.is_suspected else ''}"
            path = _curve(self._point(a), self._point(b), _bow(line.level) + 0.12 * (number[pair] - 1))
            yield (
                f'<path class="{classes}" d="{path}" stroke-width="{width(line):.1f}">'
                f"<title>{escape(line_text(line))}</title></path>"
            )

    def _bundled(self, a: Path, b: Path, lines: list[Line]) -> list[Line]:
        """Links between closed units are one line with all of their load."""
        if len(a) == len(b) == self._scene.levels or len(lines) == 1:
            return lines
        rates = [line.bytes_per_second for line in lines if line.bytes_per_second is not None]
        loads = [line.load for line in lines if line.load is not None]
        return [
            Line(
                a,
                b,
                max(line.level for line in lines),
                sum(line.links for line in lines),
                False,
                any(line.is_suspected for line in lines),
                max((line.round_trip_ms for line in lines if line.round_trip_ms is not None), default=None),
                max(loads, default=None),
                sum(rates) if rates else None,
                sum(line.waiting for line in lines),
            )
        ]

    def _hops(self) -> Iterable[str]:
        """The way of an event, numbered; steps inside a closed unit do not show."""
        for number, hop in enumerate(self._highlight.hops, 1):
            a, b = self._seen(hop.sender), self._seen(hop.receiver)
            if a is None or b is None or a == b:
                continue
            level = len(hop.sender) - 1 - next(at for at, name in enumerate(hop.sender) if name != hop.receiver[at])
            path, (x, y) = _arrow(self._point(a), self._point(b), _bow(level))
            lost = " lost" if hop.is_lost else ""
            said = f"step {number}: {label_of(hop.sender)} to {label_of(hop.receiver)}"
            said += ", not known to have come" if hop.is_lost else ""
            yield (
                f'<g class="hop{lost}" data-hop={quoteattr(f"{label_of(hop.sender)}>{label_of(hop.receiver)}")}>'
                f"<title>{escape(said)}</title>"
                f'<path d="{path}" marker-end="url(#arrow)"/>'
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
                f'<text x="{x:.1f}" y="{y + 3:.1f}" font-size="8.5" text-anchor="middle">{number}</text></g>'
            )


def width(line: Line) -> float:
    """How thick a line is: by its bytes a second, else by the share of it that is used."""
    if line.bytes_per_second is not None:
        share = math.log(max(line.bytes_per_second, QUIET) / QUIET) / math.log(BUSY / QUIET)
    elif line.load is not None:
        share = line.load
    else:
        return PLAIN
    # In steps, so that a picture does not change with every byte.
    return THIN + round(8 * min(max(share, 0.0), 1.0)) / 8 * (THICK - THIN)


def line_text(line: Line) -> str:
    """A link in words."""
    words = [f"level {line.level}: {label_of(line.a)} - {label_of(line.b)}"]
    words += [f"{line.links} links"] if line.links > 1 else []
    words += ["suspected or kept out of use"] if line.is_suspected else []
    words += [f"round trip {line.round_trip_ms:.1f} ms"] if line.round_trip_ms is not None else []
    words += [f"{bytes_text(line.bytes_per_second)}/s"] if line.bytes_per_second is not None else []
    words += [f"{line.load:.0%} used"] if line.load is not None else []
    words += [f"{line.waiting} waiting"] if line.waiting else []
    return ", ".join(words)


def _cut(name: str, most: int) -> str:
    return escape(name if len(name) <= most else name[: most - 1] + "…")


def _bow(level: int) -> float:
    """How far links bend, as a part of their length: those between units go around what is between."""
    return 0.0 if level == 0 else 0.09


def _curve(start: Point, end: Point, bow: float) -> str:
    (x1, y1), (x2, y2) = start, end
    bend = _bend(start, end, bow)
    return f"M{x1:.1f},{y1:.1f} Q{bend[0]:.1f},{bend[1]:.1f} {x2:.1f},{y2:.1f}"


def _bend(start: Point, end: Point, bow: float) -> Point:
    """The same for both directions of a link."""
    (x1, y1), (x2, y2) = sorted((start, end))
    return ((x1 + x2) / 2 - bow * (y2 - y1), (y1 + y2) / 2 + bow * (x2 - x1))


def _arrow(start: Point, end: Point, bow: float) -> tuple[str, Point]:
    """The same from rim to rim of two brokers, and the middle of it."""
    bend = _bend(start, end, bow)
    first, last = _towards(start, bend), _towards(end, bend)
    path = f"M{first[0]:.1f},{first[1]:.1f} Q{bend[0]:.1f},{bend[1]:.1f} {last[0]:.1f},{last[1]:.1f}"
    middle = (first[0] / 4 + bend[0] / 2 + last[0] / 4, first[1] / 4 + bend[1] / 2 + last[1] / 4)
    return path, middle


def _towards(point: Point, other: Point) -> Point:
    part = min(RADIUS / max(math.dist(point, other), 1e-6), 0.6)
    return (point[0] + (other[0] - point[0]) * part, point[1] + (other[1] - point[1]) * part)
