"""General expressions compared with a constant: evaluated once, then one look at the constants of all who compare.

`count(//item[price > 5]) > 3` has no place in the index of paths, but profiles that differ in the 3 only need one
evaluation of what stands before it. The comparison itself is that of a group with one probe, fed with the values that
libxml2 found instead of those that the walk did.

The invariant: the values given to the groups are the nodes of the expression, one text each, or its one number or
text. Expressions that may yield the document node are left out: lxml does not return it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lxml import etree

from veena.matching.base.engine import DestinationCounts, Holder
from veena.matching.base.work import Meter
from veena.matching.xpath.groups import Anchor, Constants, Group
from veena.matching.xpath.limits import BOOLEAN, NUMBER, SQUARE, Cost, check
from veena.matching.xpath.reads import Finding, string_value
from veena.matching.xpath.shape import FLIPPED, RANGES, Probe
from veena.matching.xpath.syntax import Binary, Expression, Filter, Negated, Number, Path, Text, token_at
from veena.matching.xpath.tables import Table, View, count_holders

#: From an element these never reach the document node.
_INNER_AXES = frozenset({
    "attribute", "child", "descendant", "following", "following-sibling", "preceding", "preceding-sibling",
})  # fmt: skip


#: The one thing that its groups read.
_VALUE = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A text of the form `expression operator literal`; the expression is given by its tokens."""

    first: int
    last: int
    probe: Probe
    source: tuple[int, bool]
    #: What libxml2 needs for the values of the expression.
    cost: Cost


def comparison_of(text: str, expression: Expression, namespaces: Mapping[str, str]) -> Comparison | None:
    """The comparison that a checked text is, or None."""
    if not isinstance(expression, Binary) or expression.operator not in FLIPPED:
        return None
    operator, left, right = expression.operator, expression.left, expression.right
    if _literal(left) is not None:
        operator, left, right = FLIPPED[operator], right, left
    found = _literal(right)
    if found is None or _literal(left) is not None or not _is_returned(left):
        return None
    literal, minus = found
    facts = check(text, left, namespaces)
    kind = facts.type
    cost = facts.once.raised(facts.once_read)
    # As a query its nodes are collected, which can cost more than asking whether there is one.
    if kind == BOOLEAN or cost.power > SQUARE:
        return None
    if operator not in RANGES:
        operator += "#" if kind == NUMBER or minus or isinstance(literal, Number) else "'"
    probe = Probe((), "=", "each", operator, -1, False, False)
    return Comparison(token_at(text, left.start), token_at(text, left.end), probe, (literal.index, minus), cost)


def _literal(expression: Expression) -> tuple[Text | Number, bool] | None:
    minus = False
    while isinstance(expression, Negated):
        expression, minus = expression.operand, not minus
    return (expression, minus) if isinstance(expression, Text | Number) else None


def _is_returned(expression: Expression) -> bool:
    """Whether lxml gives all that the expression finds: not the document node, and namespaces in another form."""
    if isinstance(expression, Filter):
        return _is_returned(expression.primary)
    if isinstance(expression, Binary) and expression.operator == "|":
        return _is_returned(expression.left) and _is_returned(expression.right)
    return not isinstance(expression, Path) or (bool(expression.steps) and expression.steps[-1].axis in _INNER_AXES)


class Query(Anchor):
    """An expression and the groups that compare it with constants."""

    def __init__(self, evaluate: etree.XPath, cost: Cost, required: str, destinations: dict[int, int]) -> None:
        super().__init__((), destinations)
        self._evaluate = evaluate
        self.cost = cost
        self.required = required
        #: Where its profiles lead: a query that can add nothing is not evaluated (DST-04).
        self.union = DestinationCounts()

    def add(self, probes: tuple[Probe, ...], constants: Constants, profile_id: int, destination: int) -> None:
        super().add(probes, constants, profile_id, destination)
        self.union.count(destination)

    def remove(self, probes: tuple[Probe, ...], constants: Constants, profile_id: int, destination: int) -> bool:
        self.union.discount(destination)
        return super().remove(probes, constants, profile_id, destination)

    def count_groups(self) -> None:
        """Count all that its groups were filled with, instead of added."""
        for group in self.groups.values():
            for _, table in group.tables():
                count_holders(self.union, table.rows()[1], self._destinations)

    def values(self, root: etree._Element) -> Finding | None:
        """The values as one pool; None when there are none."""
        try:
            value = self._evaluate(root)
        except etree.XPathError:
            return None
        finding = Finding()
        read = _VALUE
        if isinstance(value, list):
            if not value:
                return None
            finding.texts[read] = [
                string_value(node) if isinstance(node, etree._Element) else str(node) for node in value
            ]
        elif isinstance(value, float):
            finding.texts[read] = [""]
            finding.numbers[read] = [value]
        else:
            finding.texts[read] = [str(value)]
        return finding

    def answers(self, root: etree._Element, meter: Meter) -> Iterator[tuple[Table, list[View]]]:
        finding = self.values(root)
        if finding is not None:
            for group in self.groups.values():
                yield from group.hits([finding], meter)

    def holders(self) -> Iterator[Holder]:
        """All its profiles."""
        for group in self.groups.values():
            for _, table in group.tables():
                yield from table.rows()[1]

    def _attached(self, probes: tuple[Probe, ...]) -> Group:
        # Its groups are few and all are asked: there is nothing to look up by what was found.
        return Group(probes, [_VALUE], self._destinations)

    def _detach(self, group: Group) -> None:
        """As `_attached`."""
