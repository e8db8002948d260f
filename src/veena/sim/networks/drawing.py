"""Pictures of networks: units as nested boxes, links coloured by level, gatekeepers marked by level.

One drawing, two writers: SVG as text, with the full label paths as tool tips, and PNG through matplotlib. The layout is
our own, so that nothing has to be installed for an SVG.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from xml.sax.saxutils import escape

from veena.address import Address, Unit, level_name
from veena.errors import InvalidAddress
from veena.runtime.networks.file import LinkEntry, Network, gatekeepers
from veena.runtime.networks.layout import RADIUS, TITLE, Layout, Point, lay_out

#: Larger pictures cannot be read; draw one unit of such a network.
MAX_DRAWN = 2000
#: By level of the link; a fifth level and those above share the last.
LINK_COLOURS = ("#9aa5b1", "#2f7ed8", "#e8833a", "#b5305c", "#5b3fa0")
LINK_WIDTHS = (1.1, 1.6, 2.2, 2.9, 3.4)
#: By level of the box, brokers first.
BOX_FILLS = ("#ffffff", "#ffffff", "#f1f6fc", "#fdf5ec", "#faf0f4")
BOX_STROKES = ("#9aa5b1", "#c3ccd6", "#a9c4e4", "#e3c09c", "#d9a5b8")
INK = "#27313c"
FAINT = "#5f6b77"
MARGIN = 18.0
HEADER = 46.0
LEGEND = 30.0
#: The legend of four levels fits.
MIN_WIDTH = 760.0
#: More letters than this are cut in the picture; the tool tip has them all.
MAX_LETTERS = 8


@dataclass(frozen=True, slots=True)
class Frame:
    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str
    round: float
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A quadratic curve; straight when `bend` lies on the line."""

    start: Point
    bend: Point
    end: Point
    colour: str
    width: float
    opacity: float
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Disc:
    x: float
    y: float
    radius: float
    fill: str
    stroke: str
    width: float
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """`y` is the middle of the letters."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: str = "start"
    bold: bool = False
    #: The colour of a rim that keeps the letters apart from what lies below.
    halo: str = ""


Shape = Frame | Curve | Disc | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    width: float
    height: float
    title: str
    #: In painting order.
    shapes: tuple[Shape, ...]


def draw(network: Network, within: Unit = ()) -> Drawing:
    """The picture of a network, or of one of its units, as shapes."""
    part = _part(network, within)
    if not 1 <= len(part.brokers) <= MAX_DRAWN:
        raise InvalidAddress(
            f"{len(part.brokers)} brokers: a picture shows 1 to {MAX_DRAWN}; name one unit of the network to be drawn"
        )
    layout = lay_out(part)
    width = max(layout.width, MIN_WIDTH) + 2 * MARGIN
    left, top = (width - layout.width) / 2, HEADER - TITLE
    frames, names = _frames(part, layout, len(within))
    shapes = [*frames, *_curves(part, layout), *names, *_discs(part, layout)]
    moved = [_moved(shape, left, top) for shape in shapes]
    height = top + layout.height + LEGEND + MARGIN
    what = network.name + (f": {network.labels.label(within)}" if within else "")
    counts = f"{len(part.brokers)} brokers, {len(part.links)} links; filled: gatekeepers"
    head = [
        Text(MARGIN, 24, what, 17, INK, bold=True),
        Text(width - MARGIN, 24, counts, 12, FAINT, anchor="end"),
    ]
    frame = Frame(0, 0, width, height, "#ffffff", "none", 0)
    return Drawing(width, height, what, (frame, *head, *moved, *_legend(part, height - MARGIN)))


def draw_svg(network: Network, within: Unit = ()) -> str:
    """The picture as the text of an SVG file."""
    drawing = draw(network, within)
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    box = f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(drawing.title)}</title>",
        *map(_svg, drawing.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def draw_png(network: Network, path: Path | str, within: Unit = (), dots_per_inch: int = 110) -> None:
    """The same picture as a PNG file; needs matplotlib (the extra `plot`)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = draw(network, within)
    figure = Figure(figsize=(drawing.width / 72, drawing.height / 72), dpi=dots_per_inch)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    for order, shape in enumerate(drawing.shapes):
        _paint(axes, shape, order)
    # No date and no version inside: the same network gives the same bytes.
    figure.savefig(str(path), format="png", metadata={"Software": None})


def _part(network: Network, within: Unit) -> Network:
    depth = len(within)
    if depth >= network.levels:
        raise InvalidAddress(f"{network.labels.label(within)!r} is a broker: name a unit that holds brokers")
    if not depth:
        return network
    brokers = tuple(broker for broker in network.brokers if broker.address[:depth] == within)
    links = tuple(link for link in network.links if link.a[:depth] == within == link.b[:depth])
    return replace(network, brokers=brokers, links=links)


# --- shapes ---


def _at_level(values: tuple[str, ...], level: int) -> str:
    return values[min(level, len(values) - 1)]


def _name(network: Network, unit: Unit) -> str:
    return network.labels.label(unit).rsplit(".", 1)[-1]


def _frames(network: Network, layout: Layout, depth: int) -> tuple[list[Shape], list[Shape]]:
    """Boxes, and their names, which are painted after the links."""
    frames: list[Shape] = []
    names: list[Shape] = []
    for unit, box in layout.boxes.items():
        if len(unit) < depth:
            continue
        level = network.levels - len(unit)
        stroke, fill = _at_level(BOX_STROKES, level), _at_level(BOX_FILLS, level)
        tip = f"{level_name(level)} {network.labels.label(unit)}"
        frames.append(Frame(box.x, box.y, box.width, box.height, fill, stroke, 7 + 3 * level, tip))
        size = 10.0 + 1.5 * (level - 1)
        name = _name(network, unit)
        names.append(Text(box.x + 10, box.y + 12, name, size, FAINT, bold=level > 1, halo=fill))
    return frames, names


def _curves(network: Network, layout: Layout) -> list[Shape]:
    """Low levels first, so that the rarer links lie on top; parallel links bend apart."""
    shapes: list[Shape] = []
    parallel: dict[frozenset[Address], int] = {}
    for link in sorted(network.links, key=lambda link: link.level):
        pair = frozenset((link.a, link.b))
        parallel[pair] = parallel.get(pair, 0) + 1
        shapes.append(_curve(network, layout, link, parallel[pair]))
    return shapes


def _curve(network: Network, layout: Layout, link: LinkEntry, number: int) -> Curve:
    (x1, y1), (x2, y2) = layout.brokers[link.a], layout.brokers[link.b]
    bow = (0.0 if link.level == 0 else 0.09) + 0.12 * (number - 1)
    bend = ((x1 + x2) / 2 - bow * (y2 - y1), (y1 + y2) / 2 + bow * (x2 - x1))
    tip = f"level {link.level}: {network.labels.label(link.a)} - {network.labels.label(link.b)}"
    width = LINK_WIDTHS[min(link.level, len(LINK_WIDTHS) - 1)]
    opacity = 0.9 if link.level else 0.75
    return Curve((x1, y1), bend, (x2, y2), _at_level(LINK_COLOURS, link.level), width, opacity, tip)


def _discs(network: Network, layout: Layout) -> list[Shape]:
    """A broker has the colour of its highest gateway, and a ring for each lower one it is too."""
    levels: dict[Address, list[int]] = {address: [] for address in layout.brokers}
    for level, brokers in gatekeepers(network).items():
        if level:
            for broker in brokers:
                levels[broker].append(level)
    shapes: list[Shape] = []
    for address, (x, y) in layout.brokers.items():
        own = levels[address]
        for ring, level in enumerate(reversed(own[:-1]), 1):
            shapes.append(Disc(x, y, RADIUS + 2.6 * ring, "none", _at_level(LINK_COLOURS, level), 2.0))
        fill = _at_level(LINK_COLOURS, own[-1]) if own else "#ffffff"
        roles = ", ".join(f"{level_name(level)} gatekeeper" for level in own)
        tip = network.labels.label(address) + (f" ({roles})" if roles else "")
        shapes.append(Disc(x, y, RADIUS, fill, fill if own else "#7b8794", 1.3, tip))
        name = _name(network, address)
        shown = name if len(name) <= MAX_LETTERS else name[: MAX_LETTERS - 1] + "…"
        size = min(10.0, 2.9 * RADIUS / max(len(shown), 1))
        shapes.append(Text(x, y, shown, size, "#ffffff" if own else INK, anchor="middle", bold=bool(own)))
    return shapes


def _legend(network: Network, y: float) -> list[Shape]:
    counts: dict[int, int] = {}
    for link in network.links:
        counts[link.level] = counts.get(link.level, 0) + 1
    entries = [
        (level, f"{'between' if level else 'inside'} {level_name(max(level, 1))}s ({counts[level]})")
        for level in sorted(counts)
    ]
    shapes: list[Shape] = []
    x = MARGIN
    for level, text in entries:
        colour = _at_level(LINK_COLOURS, level)
        line_width = LINK_WIDTHS[min(level, len(LINK_WIDTHS) - 1)]
        shapes.append(Curve((x, y), (x + 13, y), (x + 26, y), colour, line_width, 1.0))
        if level:
            shapes.append(Disc(x + 13, y, 4.5, colour, colour, 1.0))
        shapes.append(Text(x + 32, y, text, 10.5, FAINT))
        x += 46 + 5.6 * len(text)
    return shapes


def _moved(shape: Shape, dx: float, dy: float) -> Shape:
    if isinstance(shape, Curve):
        start, bend, end = ((x + dx, y + dy) for x, y in (shape.start, shape.bend, shape.end))
        return replace(shape, start=start, bend=bend, end=end)
    return replace(shape, x=shape.x + dx, y=shape.y + dy)


# --- writers ---


def _svg(shape: Shape) -> str:
    if isinstance(shape, Text):
        weight = ' font-weight="bold"' if shape.bold else ""
        if shape.halo:
            weight += f' stroke="{shape.halo}" stroke-width="3" paint-order="stroke"'
        style = f'font-size="{shape.size:.1f}" fill="{shape.colour}" text-anchor="{shape.anchor}"{weight}'
        # A third of the size below the middle is where letters stand; `dominant-baseline` is not known everywhere.
        return f'<text x="{shape.x:.1f}" y="{shape.y + 0.35 * shape.size:.1f}" {style}>{escape(shape.text)}</text>'
    if isinstance(shape, Frame):
        at = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
        tag, rest = "rect", f'{at} rx="{shape.round:.0f}" fill="{shape.fill}" stroke="{shape.stroke}"'
    elif isinstance(shape, Disc):
        at = f'cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:.1f}"'
        tag, rest = "circle", f'{at} fill="{shape.fill}" stroke="{shape.stroke}" stroke-width="{shape.width:.1f}"'
    else:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (shape.bend, shape.end))
        path = f"M{shape.start[0]:.1f},{shape.start[1]:.1f} Q{points}"
        stroke = f'stroke="{shape.colour}" stroke-width="{shape.width:.1f}" stroke-opacity="{shape.opacity}"'
        tag, rest = "path", f'd="{path}" fill="none" {stroke}'
    return f"<{tag} {rest}><title>{escape(shape.tip)}</title></{tag}>" if shape.tip else f"<{tag} {rest}/>"


def _paint(axes: object, shape: Shape, order: int) -> None:
    """The same shape on matplotlib's axes; one unit is one point there."""
    from matplotlib.axes import Axes
    from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Outline
    from matplotlib.patheffects import withStroke

    assert isinstance(axes, Axes)
    if isinstance(shape, Text):
        side = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
        weight = "bold" if shape.bold else "normal"
        rim = [withStroke(linewidth=3, foreground=shape.halo)] if shape.halo else []
        axes.text(
            shape.x, shape.y, shape.text, fontsize=shape.size * 0.92, color=shape.colour, ha=side,
            va="center_baseline", fontweight=weight, zorder=order, parse_math=False, path_effects=rim,
        )  # fmt: skip
    elif isinstance(shape, Frame):
        inset = shape.round
        axes.add_patch(FancyBboxPatch(
            (shape.x + inset, shape.y + inset), shape.width - 2 * inset, shape.height - 2 * inset,
            boxstyle=f"round,pad={inset}", facecolor=shape.fill, edgecolor=shape.stroke, linewidth=1.0, zorder=order,
        ))  # fmt: skip
    elif isinstance(shape, Disc):
        at = (shape.x, shape.y)
        axes.add_patch(
            Circle(at, shape.radius, facecolor=shape.fill, edgecolor=shape.stroke, linewidth=shape.width, zorder=order)
        )
    else:
        outline = Outline([shape.start, shape.bend, shape.end], [Outline.MOVETO, Outline.CURVE3, Outline.CURVE3])
        axes.add_patch(PathPatch(
            outline, facecolor="none", edgecolor=shape.colour, linewidth=shape.width, alpha=shape.opacity, zorder=order
        ))  # fmt: skip
