"""The profile graph: constraints on tags as paths of one tree, shared where they begin alike (PGR-01..15, MAT-32).

A constraint is a chain of pairs in one order for all. Each pair is an edge; chains with the same beginning share edges;
no two edges end in one node, so an event can never satisfy half of one chain and half of another (PGR-06). Matching
follows, from every node it reaches, all edges whose pair the event satisfies, `*` and value alike (PGR-12). It is
Gryphon's matching algorithm (Aguilera et al., PODC 1999) with two changes. Gaps are not filled with `*` edges: a chain
goes straight to the next tag it names, which means the same (AMB-26) and saves the walk. And the last stretch of a
chain that nobody shares is not built: the edge holds the constraint itself, which is then tested whole.

Each node counts the destinations of all chains through the edge into it (PGR-09), so `destinations` leaves out every
subtree that could only add what it has (DST-04) and stops when it has all (DST-07).

The invariant: the tree depends on its constraints, not on their history. A node has at least two things below or at
it; whatever has one is an edge that holds that constraint. Rejected: a node for every pair of every chain: five times
the memory at 100,000 random profiles, and slower.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator

from veena.matching.base.engine import DestinationCounts

#: The numbers of a constraint's pairs, in the one order for all chains.
Chain = tuple[int, ...]

#: An event that satisfies more pairs than this asks by intersection: its cost is then that of the edges it meets, and
#: no event can make each node cost a thousand look-ups. Below, trying one pair after the other is faster.
WIDE = 64


class Entry(DestinationCounts):
    """One distinct constraint and the profiles that have it, one or more.

    The ids are packed, because an answer joins many small crowds and sorts them: as bytes that is done by NumPy, three
    times as fast as lists.
    """

    __slots__ = ("chain", "ids", "in_graph", "untested")

    def __init__(
        self, chain: Chain, ids: array[int], destination: int, in_graph: bool = False, untested: Chain | None = None
    ) -> None:
        """`destination` is that of the first id; those of further ones are to be counted."""
        self.mask: int = destination
        self.planes: list[int] | None = None
        self.chain = chain
        #: Held by the graph, or else by the tag sets.
        self.in_graph = in_graph
        #: The chain when the edge that holds it leaves pairs to test, None when the edge is its last.
        self.untested: Chain | None = untested
        #: Ascending.
        self.ids = ids

    def admit(self, profile_id: int, destination: int) -> None:
        if profile_id > self.ids[-1]:
            self.ids.append(profile_id)
        else:
            insort(self.ids, profile_id)
        self.count(destination)

    def dismiss(self, profile_id: int, destination: int) -> None:
        del self.ids[bisect_left(self.ids, profile_id)]
        self.discount(destination)


class Node(DestinationCounts):
    """Where edges meet; the counts are those of the edge into it."""

    __slots__ = ("children", "entry")

    def __init__(self) -> None:
        super().__init__()
        self.children: dict[int, Node | Entry] = {}
        #: The constraint that ends here while others go on.
        self.entry: Entry | None = None


class ProfileGraph:
    """The tree. It is given chains of numbers; what the numbers mean is not its business."""

    def __init__(self) -> None:
        self.root = Node()
        self.visited = 0
        self._entries = 0

    def __len__(self) -> int:
        """Distinct constraints."""
        return self._entries

    def find(self, chain: Chain) -> Entry | None:
        """The constraint with this chain, if it is here."""
        node = self.root
        for number in chain:
            child = node.children.get(number)
            if child is None:
                return None
            if isinstance(child, Entry):
                return child if child.chain == chain else None
            node = child
        return node.entry

    def insert(self, entry: Entry) -> None:
        """Add a constraint that is not in the graph, with all its profiles."""
        chain = entry.chain
        node = self.root
        self._entries += 1
        entry.in_graph = True
        node.count_all(entry)
        for depth, number in enumerate(chain):
            child = node.children.get(number)
            if child is None:
                _hang(node, entry, depth)
                return
            if isinstance(child, Entry):
                child = node.children[number] = _fork(child, depth + 1)
            child.count_all(entry)
            node = child
        node.entry = entry

    def count(self, entry: Entry, destination: int) -> None:
        """One more profile has this constraint."""
        for node in self._path(entry.chain):
            node.count(destination)

    def discount(self, entry: Entry, destination: int) -> None:
        for node in self._path(entry.chain):
            node.discount(destination)

    def delete(self, entry: Entry) -> None:
        """Take a constraint out with all its profiles, and every node that has no reason left (PGR-11)."""
        chain = entry.chain
        path = list(self._path(chain))
        for node in path:
            node.discount_all(entry)
        self._entries -= 1
        entry.in_graph = False
        last = path[-1]
        if last.entry is entry:
            last.entry = None
        else:
            del last.children[chain[len(path) - 1]]
        for depth in range(len(path) - 1, 0, -1):
            rest = _only_entry(path[depth])
            if rest is None:
                return
            _hang(path[depth - 1], rest, depth - 1)

    def any_entry(self) -> Entry:
        """A constraint to move elsewhere: the same one on every machine."""
        node = self.root
        while True:
            if not node.children:
                assert node.entry is not None, "the graph is empty"
                return node.entry
            child = next(reversed(node.children.values()))
            if isinstance(child, Entry):
                return child
            node = child

    def match(self, present: list[int]) -> list[Entry]:
        """The constraints whose pairs are all present; `present` is in the order of the chains."""
        if len(present) > WIDE:
            return self._match_wide(set(present))
        found: list[Entry] = []
        includes = frozenset(present).issuperset
        end = len(present)
        #: Nodes reached, and where in `present` to go on: a chain never goes back.
        reached: list[tuple[Node, int]] = [(self.root, 0)]
        for node, start in reached:
            below = node.children.get
            for at in range(start, end):
                child = below(present[at])
                if child is None:
                    continue
                if isinstance(child, Node):
                    reached.append((child, at + 1))
                    if child.entry is not None:
                        found.append(child.entry)
                elif child.untested is None or includes(child.untested):
                    found.append(child)
        self.visited += len(reached)
        return found

    def _match_wide(self, present: set[int]) -> list[Entry]:
        """The same by intersection, which looks at the smaller of a node's edges and the event's pairs."""
        found: list[Entry] = []
        reached = [self.root]
        for node in reached:
            for number in node.children.keys() & present:
                child = node.children[number]
                if isinstance(child, Node):
                    reached.append(child)
                    if child.entry is not None:
                        found.append(child.entry)
                elif child.untested is None or present.issuperset(child.untested):
                    found.append(child)
        self.visited += len(reached)
        return found

    def destinations(self, present: list[int], have: int) -> int:
        """`have` and the destinations of all constraints whose pairs are all present."""
        if len(present) > WIDE:
            for entry in self._match_wide(set(present)):
                have |= entry.mask
            return have
        everything = self.root.mask | have
        includes = frozenset(present).issuperset
        end = len(present)
        reached: list[tuple[Node, int]] = [(self.root, 0)]
        visited = 0
        for node, start in reached:
            if node.mask | have == have:
                continue
            visited += 1
            below = node.children.get
            for at in range(start, end):
                child = below(present[at])
                if child is None or child.mask | have == have:
                    continue
                if isinstance(child, Node):
                    reached.append((child, at + 1))
                    if child.entry is not None:
                        have |= child.entry.mask
                elif child.untested is None or includes(child.untested):
                    have |= child.mask
            if have == everything:
                break
        self.visited += visited
        return have

    def edges(self) -> Iterator[tuple[Chain, DestinationCounts]]:
        """Every edge as the chain up to and including it, with its counts; also those held unbuilt at an entry."""
        stack: list[tuple[Chain, Node | Entry]] = [((), self.root)]
        while stack:
            chain, child = stack.pop()
            if chain:
                yield chain, child
            if isinstance(child, Entry):
                yield from ((child.chain[:end], child) for end in range(len(chain) + 1, len(child.chain) + 1))
            else:
                stack.extend(((*chain, number), below) for number, below in reversed(child.children.items()))

    def nodes(self) -> int:
        count = 0
        stack = [self.root]
        while stack:
            count += 1
            stack.extend(child for child in stack.pop().children.values() if isinstance(child, Node))
        return count

    def restore(self, root: Node, entries: int) -> None:
        """Take a tree that is whole, in place of an empty one."""
        self.root = root
        self._entries = entries

    def _path(self, chain: Chain) -> Iterator[Node]:
        """The nodes that a stored chain runs through, the root first."""
        node = self.root
        yield node
        for number in chain:
            child = node.children[number]
            if isinstance(child, Entry):
                return
            node = child
            yield node


def _fork(entry: Entry, depth: int) -> Node:
    """The node that takes an entry's place on an edge that is now shared; `depth` pairs lead to it."""
    node = Node()
    node.count_all(entry)
    if len(entry.chain) == depth:
        node.entry = entry
    else:
        _hang(node, entry, depth)
    return node


def _hang(node: Node, entry: Entry, depth: int) -> None:
    """Put an entry on the edge out of a node that `depth` pairs lead to."""
    node.children[entry.chain[depth]] = entry
    entry.untested = entry.chain if len(entry.chain) > depth + 1 else None


def _only_entry(node: Node) -> Entry | None:
    """The one constraint that a node is left with, if it is one."""
    if not node.children:
        return node.entry
    if len(node.children) > 1 or node.entry is not None:
        return None
    (child,) = node.children.values()
    return child if isinstance(child, Entry) else None
