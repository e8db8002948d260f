"""How a network grows: pathlength and clustering coefficient while the number of brokers grows geometrically (TOP-15).

The claim of the papers is that pathlength grows with the logarithm of the size. Each size is a generated network whose
long links grow with it; next to it stands the random graph of as many brokers and links, which is about as short as can
be, and not clannish at all, and the plain network with two links an adjacency: longer ways, but bounded state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from veena.runtime.networks.statistics import clustering_coefficient, pathlength, random_graph, statistics
from veena.sim.networks.generate import generate

#: Powers of three, up to the largest that is measured in a few seconds.
SIZES = (27, 81, 243, 729, 2187, 6561, 19683)
#: Sources for the random graph; every broker is a source in the network itself.
SAMPLE = 1000
#: Share of brokers of a unit that join its sub-units, for the small world of any size.
LONG_LINKS = 0.06


@dataclass(frozen=True, slots=True)
class Growth:
    """One size: the network, and a random graph of as many brokers and links."""

    brokers: int
    links: int
    pathlength: float
    clustering: float
    random_pathlength: float
    random_clustering: float
    #: Of the network with two links an adjacency.
    plain_pathlength: float


@dataclass(frozen=True, slots=True)
class Fit:
    """pathlength = slope * log2(brokers) + offset, and the share of the variance that the line explains."""

    slope: float
    offset: float
    r_squared: float


def measure_growth(
    sizes: Sequence[int] = SIZES, seed: int = 1, progress: Callable[[Growth], None] | None = None
) -> tuple[Growth, ...]:
    """Measure each size in turn; `progress` is called with every result as it comes."""
    found: list[Growth] = []
    for size in sizes:
        network = statistics(generate(size, seed, long_links=LONG_LINKS))
        chance = random_graph(size, 2 * network.links / size, seed)
        found.append(
            Growth(
                size,
                network.links,
                network.pathlength,
                network.clustering,
                pathlength(chance, SAMPLE, seed),
                clustering_coefficient(chance),
                statistics(generate(size, seed), SAMPLE, seed).pathlength,
            )
        )
        if progress:
            progress(found[-1])
    return tuple(found)


def fit_logarithm(growth: Sequence[Growth]) -> Fit:
    """The best line through pathlength over log2 of the size; needs two sizes or more."""
    xs = [math.log2(each.brokers) for each in growth]
    ys = [each.pathlength for each in growth]
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    spread_x = math.fsum((x - mean_x) ** 2 for x in xs)
    spread_y = math.fsum((y - mean_y) ** 2 for y in ys)
    together = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    slope = together / spread_x
    return Fit(slope, mean_y - slope * mean_x, together**2 / (spread_x * spread_y) if spread_y else 1.0)


def plot_growth(
    path: Path | str,
    sizes: Sequence[int] = SIZES,
    seed: int = 1,
    progress: Callable[[Growth], None] | None = None,
) -> tuple[Growth, ...]:
    """Measure and draw both curves as a PNG file; needs matplotlib (the extra `plot`)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    growth = measure_growth(sizes, seed, progress)
    fit = fit_logarithm(growth)
    brokers = [each.brokers for each in growth]
    figure = Figure(figsize=(10.5, 4.3), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(brokers, [each.pathlength for each in growth], "o-", color="#2f7ed8", label="generated network")
    line = [fit.slope * math.log2(size) + fit.offset for size in brokers]
    text = f"{fit.slope:.2f} log2(n) {fit.offset:+.2f},  R² = {fit.r_squared:.3f}"
    left.plot(brokers, line, "--", color="#27313c", linewidth=1, label=text)
    left.plot(brokers, [each.random_pathlength for each in growth], "s-", color="#e8833a", label="random graph")
    left.plot(
        brokers, [each.plain_pathlength for each in growth], "^:", color="#8a93a0", label="two links an adjacency"
    )
    left.set_title("Average pathlength (hops)", loc="left")
    left.set_ylim(bottom=0)
    right.plot(brokers, [each.clustering for each in growth], "o-", color="#2f7ed8", label="generated network")
    right.plot(brokers, [each.random_clustering for each in growth], "s-", color="#e8833a", label="random graph")
    right.set_title("Clustering coefficient", loc="left")
    right.set_ylim(0, 1)
    for axes in (left, right):
        axes.set_xscale("log", base=3)
        axes.set_xticks(brokers, [f"{size:,}" for size in brokers])
        axes.minorticks_off()
        axes.set_xlabel("brokers")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(str(path), metadata={"Software": None})
    return growth
