"""Which XPaths may be stored (well-typed, without extensions), and what evaluating them costs at most.

XPath 1.0 without variables is statically typed, so what libxml2 would find out in the middle of an event (`count(1)`,
an unknown function, a prefix without a namespace) is told to the subscriber instead, with its position.

**Cost.** The time of one evaluation is a power of the number n of nodes in the document. The intuition: a walk over
the document costs n. Done anew at each node of another walk, it costs n * n. A path that only descends from the nodes
of a walk is cheaper: through `child` and `@` it meets each node once, and through `descendant` each node meets it once
per ancestor; as documents are at most 64 deep and have at most 4,000 nodes, that counts half a power. The exponent
is computed in halves; how often the highest exponent occurs is counted as well. No expression is refused for its cost:
with the size of a document the cost gives the work of one evaluation (`work`), and that is held against the budget of
an event (`base.work`) before libxml2 is asked, because libxml2 cannot be stopped.

For each expression two costs are kept: `once`, of a single evaluation, and `each`, of an evaluation at every node
of a document divided by the number of nodes. `b` has once 1 and each 0; `//b` has 1 and 1.

**Characters** are part of the size of a document, so reading a text is part of the walk that finds it. It is more where
texts are read again and again: elements that lie in each other (half a power), what is *far*, found anew from each node
through `..` or `/` (half a power for functions, several times for comparisons), and `translate`, which looks every
character up in a literal (half a power). What searches one text of the document for another is the product of the two.

Rejected: a time limit alone. libxml2 cannot be interrupted inside this process, and a verdict that depends on the load
of a machine is none. Rejected: refusing what costs more than the square; which expressions those are nobody can guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from veena.errors import InvalidConstraint
from veena.matching.xpath.syntax import (
    Binary,
    Call,
    Expression,
    Filter,
    Negated,
    Number,
    Path,
    Step,
    Text,
    is_ncname,
)

#: In half powers of the number of nodes: the square. As a query, whose nodes are collected, nothing costs more.
SQUARE = 4
#: What counts as several parts, as measured: comparing one far text, a far set of texts, translate(), and searching one
#: text of the document for another, character by character.
_TIMES_FAR, _TIMES_FAR_SET, _TIMES_TRANSLATE, _TIMES_PRODUCT = 2, 4, 4, 8
#: Characters of a literal that searching for it counts as one: an alphabet with its accents, a phrase.
SEARCHED_LENGTH = 64
#: Parts of lower powers than the highest are not counted one by one: as so many of half a power less.
LESSER_PARTS = 32
#: Prefixes a constraint may bring along.
MAX_NAMESPACES = 32
MAX_NAMESPACE_LENGTH = 1024
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"

NODES, BOOLEAN, NUMBER, STRING = "node-set", "boolean", "number", "string"

#: Result, fewest and most arguments, and whether they must be node-sets: the core library, section 4.
FUNCTIONS: dict[str, tuple[str, int, int, bool]] = {
    "last": (NUMBER, 0, 0, False),
    "position": (NUMBER, 0, 0, False),
    "count": (NUMBER, 1, 1, True),
    "id": (NODES, 1, 1, False),
    "local-name": (STRING, 0, 1, True),
    "namespace-uri": (STRING, 0, 1, True),
    "name": (STRING, 0, 1, True),
    "string": (STRING, 0, 1, False),
    "concat": (STRING, 2, 99, False),
    "starts-with": (BOOLEAN, 2, 2, False),
    "contains": (BOOLEAN, 2, 2, False),
    "substring-before": (STRING, 2, 2, False),
    "substring-after": (STRING, 2, 2, False),
    "substring": (STRING, 2, 3, False),
    "string-length": (NUMBER, 0, 1, False),
    "normalize-space": (STRING, 0, 1, False),
    "translate": (STRING, 3, 3, False),
    "boolean": (BOOLEAN, 1, 1, False),
    "not": (BOOLEAN, 1, 1, False),
    "true": (BOOLEAN, 0, 0, False),
    "false": (BOOLEAN, 0, 0, False),
    "lang": (BOOLEAN, 1, 1, False),
    "number": (NUMBER, 0, 1, False),
    "sum": (NUMBER, 1, 1, True),
    "floor": (NUMBER, 1, 1, False),
    "ceiling": (NUMBER, 1, 1, False),
    "round": (NUMBER, 1, 1, False),
}
#: These do not read the text of their argument.
_TEXTLESS = frozenset({"count", "local-name", "namespace-uri", "name", "boolean", "not", "last", "position"})
#: These look for one text in another, at the cost of their product.
SEARCHING = frozenset({"contains", "substring-before", "substring-after", "translate"})
COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
#: From distinct nodes these reach distinct nodes, one level down: all of them together meet every node once.
ONE_LEVEL = frozenset({"self", "child", "attribute"})
_SUBTREE = frozenset({"descendant", "descendant-or-self"})


class Size(NamedTuple):
    """The size of a document: nodes, and what half a power more multiplies by.

    The second is the root of the first, or the depth of the document where that is more: a path that descends from many
    nodes meets a node once for each of its ancestors, and small documents may be nothing but depth.
    """

    nodes: int
    root: int


class Cost(NamedTuple):
    """An exponent in halves, and how many parts of an expression have it. The order is that of the cost."""

    power: int
    times: int = 1

    def raised(self, halves: int) -> Cost:
        return Cost(self.power + halves, self.times)

    def often(self, times: int) -> Cost:
        """The cost of so many evaluations; also what costs nothing by its parts is evaluated."""
        return Cost(self.power, max(self.times, 1) * times)

    def work(self, size: Size) -> int:
        """The nodes that one evaluation visits at most; whole numbers, so that every machine counts the same."""
        nodes, root = size
        highest = root if self.power == 1 else 1
        for _ in range(self.power - 2):
            highest *= root
        if self.power > 1:
            highest *= nodes
        return self.times * highest + LESSER_PARTS * (highest // root + 1)


_FREE, _LEAF, _WALK = Cost(0, 0), Cost(0), Cost(2)


def both(one: Cost, other: Cost) -> Cost:
    """The cost of two parts, one after the other."""
    return Cost(one.power, one.times + other.times) if one.power == other.power else max(one, other)


class Facts(NamedTuple):
    """The type of an expression and its costs."""

    type: str
    once: Cost
    each: Cost
    #: The halves that reading the string values of its nodes adds, once and each: elements that lie in each other are
    #: read anew for each ancestor.
    once_read: int = 0
    each_read: int = 0
    #: Whether each context node finds its nodes anew, so that a text may be read from every one of them.
    far: bool = False
    #: Whether the nodes found from one context node may be as many as the document has.
    many: bool = True


def check(text: str, expression: Expression, namespaces: Mapping[str, str]) -> Facts:
    """The type of an expression; raise InvalidConstraint with the position of what cannot be evaluated."""
    return _Checker(text, namespaces).facts(expression)


def searches(tokens: list[str]) -> int:
    """How many times as much a text costs because of the literals that it searches with."""
    if SEARCHING.isdisjoint(tokens):
        return 1
    # The quotes are not counted.
    return 1 + max((len(token) - 3 for token in tokens if token[0] in "\"'"), default=0) // SEARCHED_LENGTH


def check_namespaces(text: str, namespaces: Mapping[str, str]) -> None:
    """Raise InvalidConstraint unless these can be the prefixes of a constraint."""
    if not isinstance(namespaces, Mapping):
        raise InvalidConstraint(text, 0, f"namespaces: expected a mapping of prefixes, found {namespaces!r:.80}")
    if len(namespaces) > MAX_NAMESPACES:
        raise InvalidConstraint(text, 0, f"{len(namespaces)} namespaces; at most {MAX_NAMESPACES} are allowed")
    for prefix, uri in namespaces.items():
        if not isinstance(prefix, str) or not is_ncname(prefix):
            raise InvalidConstraint(
                text, 0, f"namespaces: {prefix!r:.80} is no prefix; XPath 1.0 has no default namespace"
            )
        if not isinstance(uri, str) or not 0 < len(uri) <= MAX_NAMESPACE_LENGTH or not uri.isprintable():
            raise InvalidConstraint(
                text,
                0,
                f"namespaces: {prefix!r} stands for {uri!r:.80}; expected 1 to {MAX_NAMESPACE_LENGTH} characters",
            )
        if (prefix == "xml") != (uri == XML_NAMESPACE):
            raise InvalidConstraint(text, 0, f"namespaces: prefix xml always stands for {XML_NAMESPACE}, and only xml")


def _is_product(name: str, types: list[str]) -> bool:
    """Whether a function that searches does so with a text of the document: numbers and booleans are short."""
    if name == "translate":
        return not {STRING, NODES}.isdisjoint(types[1:])
    return types[0] in (STRING, NODES) and types[1] in (STRING, NODES)


class _Checker:
    def __init__(self, text: str, namespaces: Mapping[str, str]) -> None:
        self.text = text
        self.namespaces = namespaces
        self.predicates = 0

    def predicate(self, expression: Expression) -> Cost:
        """What a predicate costs each node."""
        self.predicates += 1
        facts = self.facts(expression)
        self.predicates -= 1
        return facts.each

    def facts(self, expression: Expression) -> Facts:
        if isinstance(expression, Path):
            return self.path(expression)
        if isinstance(expression, Binary):
            return self.binary(expression)
        if isinstance(expression, Call):
            return self.call(expression)
        if isinstance(expression, Filter):
            primary = self.facts(expression.primary)
            self.require_nodes(primary, expression.primary, "a predicate")
            once, each = primary.once, primary.each
            for predicate in expression.predicates:
                cost = self.predicate(predicate).raised(2)
                once, each = both(once, cost), both(each, cost)
            return Facts(NODES, once, each, primary.once_read, primary.each_read, primary.far, primary.many)
        if isinstance(expression, Negated):
            operand = self.read(self.facts(expression.operand))
            return Facts(NUMBER, operand.once, operand.each)
        return Facts(NUMBER if isinstance(expression, Number) else STRING, _LEAF, _LEAF)

    def require_nodes(self, facts: Facts, expression: Expression, what: str) -> None:
        if facts.type != NODES:
            raise InvalidConstraint(self.text, expression.start, f"{what} needs nodes, this is a {facts.type}")

    def read(self, facts: Facts) -> Facts:
        """What it costs to take the string or number values as well."""
        each = facts.each.raised(facts.each_read)
        if facts.far:
            each = Cost(each.power, each.times * (_TIMES_FAR_SET if facts.many else _TIMES_FAR))
        return Facts(facts.type, facts.once.raised(facts.once_read), each)

    def binary(self, expression: Binary) -> Facts:
        left, right = self.facts(expression.left), self.facts(expression.right)
        operator = expression.operator
        if operator == "|":
            self.require_nodes(left, expression.left, "'|'")
            self.require_nodes(right, expression.right, "'|'")
            # libxml2 looks for duplicates one by one.
            return Facts(
                NODES,
                max(both(left.once, right.once), Cost(4)),
                max(both(left.each, right.each), _WALK),
                max(left.once_read, right.once_read),
                max(left.each_read, right.each_read),
                left.far or right.far,
            )
        if operator in ("and", "or"):
            return Facts(BOOLEAN, both(left.once, right.once), both(left.each, right.each))
        pairs = operator in COMPARISONS and left.type == right.type == NODES
        product = left.far and left.many and right.far and right.many
        left, right = self.read(left), self.read(right)
        once, each = both(left.once, right.once), both(left.each, right.each)
        if pairs:
            # Every node of one side meets every node of the other.
            once = max(once, Cost(min(left.once.power, 2) + min(right.once.power, 2)))
            each = max(each, Cost(4 if product else 2))
        return Facts(BOOLEAN if operator in COMPARISONS else NUMBER, once, each)

    def call(self, expression: Call) -> Facts:
        name = expression.name
        if name not in FUNCTIONS:
            raise InvalidConstraint(
                self.text, expression.start, f"there is no function {name}(); extensions are refused, see XPath 1.0"
            )
        if name in ("position", "last") and not self.predicates:
            raise InvalidConstraint(
                self.text, expression.start, f"{name}() outside of a predicate: a document has no position among others"
            )
        result, fewest, most, nodes = FUNCTIONS[name]
        if not fewest <= len(expression.arguments) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or more" if most == 99 else f"{fewest} to {most}"
            raise InvalidConstraint(
                self.text, expression.start, f"{name}() takes {wanted} arguments, found {len(expression.arguments)}"
            )
        # Also what reads nothing takes its time when it is asked at every node.
        once = each = _LEAF
        types: list[str] = []
        for argument in expression.arguments:
            facts = self.facts(argument)
            if nodes:
                self.require_nodes(facts, argument, f"{name}()")
            if name not in _TEXTLESS:
                # A function looks at every character of what a comparison may often pass over.
                facts = self.read(facts._replace(each_read=max(facts.each_read, int(facts.far))))
            once, each = both(once, facts.once), both(each, facts.each)
            types.append("literal" if isinstance(argument, Text) else facts.type)
        if not expression.arguments and name in ("string", "string-length", "normalize-space", "number"):
            once, each = _WALK, Cost(1)
        if name == "lang":
            each = max(each, Cost(1))
        if name in SEARCHING:
            if _is_product(name, types):
                once, each = (Cost(cost.power + 2, cost.times * _TIMES_PRODUCT) for cost in (once, each))
            # A scan of its own, and what it yields may be scanned again.
            if name == "translate":
                once, each = (Cost(cost.power + 1, cost.times + _TIMES_TRANSLATE - 1) for cost in (once, each))
            elif result == STRING:
                once, each = (Cost(cost.power, cost.times + 1) for cost in (once, each))
        return Facts(result, once, each, int(name == "id"), int(name == "id"), name == "id")

    def path(self, path: Path) -> Facts:
        # `descends`: all contexts together reach a node once (or once per ancestor, counted in `halves`).
        # `many`: the set that the next step starts from may be as large as the document.
        base: Facts | None = None
        # `nested`: the members of the set may lie in each other.
        descends, many, halves, nested, elements = not path.absolute, False, 0, False, True
        if path.base is not None:
            base = self.facts(path.base)
            self.require_nodes(base, path.base, "'/'")
            descends, many, nested = False, True, True
        once = _FREE if base is None else base.once
        worst, overlap = _FREE, 0
        for at, step in enumerate(path.steps):
            self.check_test(step)
            if step.axis in _SUBTREE:
                # From a set whose members lie in each other, each subtree is walked for each of them, and what was
                # found before is searched for duplicates. A set has none, so a single evaluation pays the walk once
                # a step; evaluations at many nodes multiply it.
                overlap = 1 if many else 0
                halves += 1 if many or descends else 0
                once = max(once, Cost(4 if many else 2))
                many = nested = True
            elif step.axis in ONE_LEVEL:
                # Levels share the nodes of a document between them; `self` meets the same ones again.
                once = both(once, _WALK) if step.axis == "self" else max(once, _WALK)
                # A document has one root element; every other element may have all the rest for children.
                many = many or (step.axis == "child" and not (path.absolute and at == 0))
                many = many or (step.axis == "attribute" and (step.local == "*" or step.kind != "name"))
            else:
                up = step.axis in ("parent", "ancestor", "ancestor-or-self")
                # Sideways from many nodes finds the same ones again and again: a cube, duplicates included.
                once = max(once, Cost(2 if not many else 4 if up else 6))
                descends = False
                nested = nested or step.axis not in ("parent", "following-sibling", "preceding-sibling")
                many = many or not up
            for predicate in step.predicates:
                cost = self.predicate(predicate)
                worst = both(worst, cost)
                once = both(once, cost.raised(2 + overlap))
            elements = step.kind in ("name", "node") and step.axis not in ("attribute", "namespace")
        once_read, each_read = int(elements and nested), int(elements and (nested or descends))
        if base is not None:
            return Facts(NODES, once, max(once, base.each), once_read, each_read, True)
        if descends:
            return Facts(NODES, once, max(worst, Cost(0)).raised(halves), once_read, each_read, False, many)
        return Facts(NODES, once, max(once, _WALK), once_read, each_read, True, many)

    def check_test(self, step: Step) -> None:
        if step.prefix and step.prefix not in self.namespaces and step.prefix != "xml":
            raise InvalidConstraint(
                self.text,
                step.start,
                f"prefix {step.prefix!r} has no namespace; give namespaces={{{step.prefix!r}: ...}}",
            )
