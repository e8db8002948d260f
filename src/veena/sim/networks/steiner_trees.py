"""Small trees that join some vertices of a graph: what an event would cost if somebody saw the whole network.

The smallest such tree (Steiner's) is hard to find, so three ways are tried, each good where another is not, and the
smallest result counts: the union of shortest ways from the source (best when few want it), Mehlhorn's form of the
algorithm of Kou, Markowsky and Berman (within twice the smallest), and the one of Takahashi and Matsuyama, which grows
a tree from the source by the nearest vertex that is still missing (usually the best). Every result is trimmed: a
spanning tree of the vertices it uses, without branches that end where nobody asked.

Ties are broken by the order of vertices alone, so the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veena.runtime.networks.statistics import Graph

#: Marks a vertex without a parent.
_NONE = -1


def small_tree(graph: Graph, source: int, terminals: Iterable[int]) -> int:
    """Edges of the smallest tree found that joins the source and the terminals; all must be in reach of the source."""
    wanted = sorted({source, *terminals})
    if len(wanted) == 1:
        return 0
    ways = (shortest_path_union, mehlhorn, takahashi_matsuyama)
    return min(len(way(graph, source, wanted)) for way in ways) - 1


def shortest_path_union(graph: Graph, source: int, terminals: Sequence[int]) -> set[int]:
    """The vertices on one shortest way to each terminal; the ways share what they can."""
    parents = search(graph, source)
    kept = {source}
    for terminal in terminals:
        _climb(parents, terminal, kept)
    return _trimmed(graph, source, kept, terminals)


def takahashi_matsuyama(graph: Graph, source: int, terminals: Sequence[int]) -> set[int]:
    """Grow the tree by the nearest missing terminal until none is missing.

    One search goes on: whatever joins the tree starts again at distance 0, and distances to the tree only fall.
    """
    missing = bytearray(len(graph))
    for terminal in terminals:
        missing[terminal] = 1
    missing[source] = 0
    count = sum(missing)
    distance = [len(graph)] * len(graph)
    parents = [_NONE] * len(graph)
    distance[source] = 0
    tree = {source}
    rings: list[list[int]] = [[source]]
    near = 0
    while count:
        if not rings[near]:
            near += 1
            assert near < len(rings), "a terminal is out of reach of the source"
            continue
        vertex = rings[near].pop()
        if distance[vertex] != near:
            continue
        if missing[vertex]:
            missing[vertex] = 0
            count -= 1
            for joined in _climb(parents, vertex, tree):
                count -= missing[joined]
                missing[joined] = distance[joined] = 0
                rings[0].append(joined)
            near = 0
            continue
        near = _widen(graph, vertex, distance, parents, rings)
    return _trimmed(graph, source, tree, terminals)


def _widen(graph: Graph, vertex: int, distance: list[int], parents: list[int], rings: list[list[int]]) -> int:
    """Offer a vertex's neighbours the way through it; the distance at which the search goes on."""
    further = distance[vertex] + 1
    if further == len(rings):
        rings.append([])
    for other in graph[vertex]:
        if distance[other] > further:
            distance[other] = further
            parents[other] = vertex
            rings[further].append(other)
    return further - 1


def mehlhorn(graph: Graph, source: int, terminals: Sequence[int]) -> set[int]:
    """Join the terminals by the shortest ways between their neighbourhoods, as a spanning tree of these would."""
    owner, distance, parents = _neighbourhoods(graph, terminals)
    bridges = sorted(
        (distance[one] + distance[other] + 1, one, other)
        for one, near in enumerate(graph)
        for other in near
        if one < other and owner[one] != owner[other] and owner[one] >= 0
    )
    group = list(range(len(graph)))
    kept = set(terminals)
    for _, one, other in bridges:
        a, b = _root(group, owner[one]), _root(group, owner[other])
        if a != b:
            group[max(a, b)] = min(a, b)
            _climb(parents, one, kept)
            _climb(parents, other, kept)
    return _trimmed(graph, source, kept, terminals)


def search(graph: Graph, source: int) -> list[int]:
    """Each vertex's parent on a shortest way from the source; the source's own, and of what is out of reach, is -1."""
    parents = [_NONE] * len(graph)
    seen = bytearray(len(graph))
    seen[source] = 1
    queue = [source]
    for vertex in queue:  # grows while it is walked
        for other in graph[vertex]:
            if not seen[other]:
                seen[other] = 1
                parents[other] = vertex
                queue.append(other)
    return parents


def _neighbourhoods(graph: Graph, terminals: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """For each vertex: the nearest terminal, how far it is, and the next vertex on the way there."""
    owner = [_NONE] * len(graph)
    distance = [0] * len(graph)
    parents = [_NONE] * len(graph)
    for terminal in terminals:
        owner[terminal] = terminal
    queue = list(terminals)
    for vertex in queue:  # grows while it is walked
        for other in graph[vertex]:
            if owner[other] < 0:
                owner[other] = owner[vertex]
                distance[other] = distance[vertex] + 1
                parents[other] = vertex
                queue.append(other)
    return owner, distance, parents


def _climb(parents: list[int], vertex: int, kept: set[int]) -> list[int]:
    """Keep a vertex and its ancestors up to the first that is kept already; those that are new."""
    found: list[int] = []
    while vertex >= 0 and vertex not in kept:
        kept.add(vertex)
        found.append(vertex)
        vertex = parents[vertex]
    return found


def _root(group: list[int], vertex: int) -> int:
    while group[vertex] != vertex:
        group[vertex] = vertex = group[group[vertex]]
    return vertex


def _trimmed(graph: Graph, source: int, kept: set[int], terminals: Sequence[int]) -> set[int]:
    """The vertices that a spanning tree of the kept ones needs to join the terminals."""
    parents = {source: _NONE}
    queue = [source]
    for vertex in queue:  # grows while it is walked
        for other in graph[vertex]:
            if other in kept and other not in parents:
                parents[other] = vertex
                queue.append(other)
    needed = {source}
    for terminal in terminals:
        vertex = terminal
        while vertex not in needed:
            needed.add(vertex)
            vertex = parents[vertex]
    return needed
