"""One walk over a document for all profiles: which elements stand where somebody looks.

The anchors of all profiles are one tree of steps, in which common beginnings are shared; an element is in a state, the
set of places in that tree that its path from the root fits. States and the moves between them are worked out when a
document first needs them and kept (YFilter's automaton, made deterministic lazily), so a document that looks like the
last one costs a dictionary look-up an element, whatever the number of profiles.

The invariant: `moves` of a state holds what `_step` would compute; whatever changes the tree throws the states away
(`_forget`). That is no pause: the next document works out the moves that it needs, some microseconds each.
Rejected: precise invalidation of states. New *paths* are rare, new constants on known paths touch nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from lxml import etree

from veena.matching.base.work import PYTHON_WORK, Meter
from veena.matching.xpath.shape import PathStep

#: Moves worked out before all are thrown away: a publisher that invents names must not fill the memory.
MAX_MOVES = 20_000
#: Anchors at one element that count as part of the visit.
FEW_ANCHORS = 4

Anchor = TypeVar("Anchor")


class _Node(Generic[Anchor]):
    """A place in the tree of steps."""

    __slots__ = ("anchor", "below", "children", "number", "parent", "step")

    def __init__(self, number: int, parent: _Node[Anchor] | None, step: PathStep) -> None:
        #: Never used twice, so that sets of nodes have an order and a name.
        self.number = number
        self.parent = parent
        self.step = step
        self.children: dict[str, _Node[Anchor]] = {}
        self.below: dict[str, _Node[Anchor]] = {}
        self.anchor: Anchor | None = None


class _State(Generic[Anchor]):
    __slots__ = ("anchors", "hanging", "leads", "moves", "nodes")

    def __init__(self, nodes: tuple[_Node[Anchor], ...], hanging: tuple[_Node[Anchor], ...]) -> None:
        #: What the path of the element fits, and what it or an ancestor fits with a `//` to follow.
        self.nodes = nodes
        self.hanging = hanging
        self.anchors = [node.anchor for node in nodes if node.anchor is not None]
        #: Whether children can matter.
        self.leads = bool(hanging) or any(node.children for node in nodes)
        self.moves: dict[object, _State[Anchor]] = {}


class Walk(Generic[Anchor]):
    """The tree of all anchors' paths, and the states found so far."""

    def __init__(self) -> None:
        self._numbers = 0
        self._root: _Node[Anchor] = _Node(0, None, (False, ""))
        self._states: dict[tuple[tuple[int, ...], tuple[int, ...]], _State[Anchor]] = {}
        self._start: _State[Anchor] | None = None
        self._moves = 0

    def anchor(self, path: tuple[PathStep, ...]) -> Anchor | None:
        node: _Node[Anchor] | None = self._root
        for below, test in path:
            assert node is not None
            node = (node.below if below else node.children).get(test)
            if node is None:
                return None
        return node.anchor if node is not None else None

    def place(self, path: tuple[PathStep, ...], anchor: Anchor) -> None:
        node = self._root
        for step in path:
            below, test = step
            edges = node.below if below else node.children
            following = edges.get(test)
            if following is None:
                self._numbers += 1
                following = edges[test] = _Node(self._numbers, node, step)
            node = following
        node.anchor = anchor
        self._forget()

    def displace(self, path: tuple[PathStep, ...]) -> None:
        """Take an anchor away, with the steps that led to it alone."""
        node = self._root
        for below, test in path:
            node = (node.below if below else node.children)[test]
        node.anchor = None
        while node.parent is not None and node.anchor is None and not node.children and not node.below:
            below, test = node.step
            node = node.parent
            del (node.below if below else node.children)[test]
        self._forget()

    def anchors(self) -> Iterator[Anchor]:
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.anchor is not None:
                yield node.anchor
            nodes.extend(node.children.values())
            nodes.extend(node.below.values())

    @property
    def states(self) -> int:
        return len(self._states)

    @property
    def moves(self) -> int:
        return self._moves

    def visit(self, root: etree._Element, meter: Meter) -> dict[Anchor, list[etree._Element]]:
        """Every anchor that the document has, with its elements; raise OverBudget."""
        found: dict[Anchor, list[etree._Element]] = {}
        if self._moves > MAX_MOVES:
            self._forget()
        if self._start is None:
            self._start = self._state([self._root], [])
        state = self._step(self._start, root.tag, meter)
        for anchor in state.anchors:
            found[anchor] = [root]
        if not state.leads:
            return found
        stack = [(root, state)]
        while stack:
            element, state = stack.pop()
            moves = state.moves
            meter.take(PYTHON_WORK * (1 + len(element)))
            for child in element:
                tag = child.tag
                following = moves.get(tag)
                if following is None:
                    following = self._step(state, tag, meter)
                if len(following.anchors) > FEW_ANCHORS:
                    meter.take(PYTHON_WORK * len(following.anchors))
                for anchor in following.anchors:
                    elements = found.get(anchor)
                    if elements is None:
                        found[anchor] = [child]
                    else:
                        elements.append(child)
                if following.leads:
                    stack.append((child, following))
        return found

    def _step(self, state: _State[Anchor], tag: object, meter: Meter) -> _State[Anchor]:
        known = state.moves.get(tag)
        if known is not None:
            return known
        meter.take(PYTHON_WORK * (1 + len(state.nodes) + len(state.hanging)))
        nodes: dict[int, _Node[Anchor]] = {}
        hanging: tuple[_Node[Anchor], ...] = ()
        # Comments and instructions have a function for a tag: they fit nothing and lead nowhere.
        if isinstance(tag, str):
            tests = (tag, "*", tag[: tag.index("}") + 1] + "*") if tag[0] == "{" else (tag, "*")
            for test in tests:
                for node in state.nodes:
                    if test in node.children:
                        nodes[node.children[test].number] = node.children[test]
                for node in state.hanging:
                    if test in node.below:
                        nodes[node.below[test].number] = node.below[test]
            hanging = state.hanging
        following = self._state([nodes[number] for number in sorted(nodes)], hanging)
        state.moves[tag] = following
        self._moves += 1
        return following

    def _state(
        self, nodes: list[_Node[Anchor]], hanging: tuple[_Node[Anchor], ...] | list[_Node[Anchor]]
    ) -> _State[Anchor]:
        every = {node.number: node for node in hanging}
        every.update((node.number, node) for node in nodes if node.below)
        key = tuple(node.number for node in nodes), tuple(sorted(every))
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(tuple(nodes), tuple(every[number] for number in key[1]))
        return state

    def _forget(self) -> None:
        self._states = {}
        self._start = None
        self._moves = 0
