"""When one XPath surely wants everything that another one does: what aggregation and federation may rely on.

Both are trees of "there is" conditions (`shape`). If the tree of the wide one can be laid onto the tree of the
narrow one, step on step and every test on a test that implies it, then whatever in a document satisfies the narrow one
shows where the wide one is satisfied. The other direction does not hold (such a laying-on need not exist), so the
answer False means nothing more than "not seen". What says "the first", "how many" or "none" is compared only at the
same place with the same path.

The invariant: True is never wrong. Rejected: exact containment; with `//` and `*` together it is coNP-complete.
"""

from __future__ import annotations

from veena.matching.covering.form import Feature, Rich
from veena.matching.xpath.number import number_of
from veena.matching.xpath.shape import RANGES, PathStep, Probe

Constant = float | str
Place = tuple[tuple[PathStep, ...], tuple[Probe, ...], tuple[Constant, ...]]
#: A test at a place of the narrow tree: leaf, operator, constant.
Test = tuple[str, str, Constant]


def covers_shapes(wide: list[Place], narrow: list[Place]) -> bool:
    """Whether each alternative of the narrow one lies within some alternative of the wide one."""
    return all(any(_covers(one, other) for one in wide) for other in narrow)


class _Tree:
    """The narrow alternative: node 0 is the document, the others hang below their parents."""

    def __init__(self, place: Place) -> None:
        path, probes, constants = place
        self.children: list[list[int]] = [[]]
        self.steps: list[PathStep] = [(False, "")]
        self.tests: list[list[Test]] = [[]]
        self.anchor = self._descend(0, path)
        #: Tests that cannot be moved: negated ones, and those on the first node or the number of nodes.
        self.fixed: list[tuple[Probe, Constant]] = []
        for probe, constant in zip(probes, constants, strict=True):
            if probe.negated or probe.reduction != "each":
                self.fixed.append((probe, constant))
            else:
                self.tests[self._descend(self.anchor, probe.steps)].append((probe.leaf, probe.operator, constant))

    def _descend(self, node: int, steps: tuple[PathStep, ...]) -> int:
        for step in steps:
            self.children.append([])
            self.steps.append(step)
            self.tests.append([])
            self.children[node].append(len(self.steps) - 1)
            node = len(self.steps) - 1
        return node

    def images(self, node: int, steps: tuple[PathStep, ...]) -> list[int]:
        """Where the steps of the wide one can lead from a node."""
        places = [node]
        for below, test in steps:
            reached: dict[int, None] = {}
            for place in places:
                if below:
                    candidates = self._all_below(place)
                else:
                    candidates = [child for child in self.children[place] if not self.steps[child][0]]
                reached.update((child, None) for child in candidates if _admits(test, self.steps[child][1]))
            places = list(reached)
        return places

    def _all_below(self, node: int) -> list[int]:
        found = list(self.children[node])
        for child in found:
            found.extend(self.children[child])
        return found


def _admits(wide: str, narrow: str) -> bool:
    return wide in ("*", narrow) or (wide.endswith("}*") and narrow.startswith(wide[:-1]))


def _covers(wide: Place, narrow: Place) -> bool:
    path, probes, constants = wide
    tree = _Tree(narrow)
    return any(
        all(_holds_at(tree, node, probe, constant) for probe, constant in zip(probes, constants, strict=True))
        for node in tree.images(0, path)
    )


def _holds_at(tree: _Tree, node: int, probe: Probe, constant: Constant) -> bool:
    if not probe.negated and probe.reduction == "each":
        wanted = (probe.leaf, probe.operator, constant)
        for image in tree.images(node, probe.steps):
            if probe.leaf == "." and probe.operator == "exists":
                return True
            if any(_implies(test, wanted) for test in tree.tests[image]):
                return True
        return False
    return node == tree.anchor and any(
        (fixed.steps, fixed.reduction, fixed.negated) == (probe.steps, probe.reduction, probe.negated)
        and _implies_fixed((fixed.leaf, fixed.operator, held), (probe.leaf, probe.operator, constant), probe.negated)
        for fixed, held in tree.fixed
    )


def _implies_fixed(narrow: Test, wide: Test, negated: bool) -> bool:
    return _implies(wide, narrow) if negated else _implies(narrow, wide)


def _implies(narrow: Test, wide: Test) -> bool:
    """Whether a node that passes one test passes the other."""
    leaf, operator, held = narrow
    wide_leaf, wanted, constant = wide
    if leaf != wide_leaf:
        return leaf[0] == "@" and wide_leaf == "@*" and wanted == "exists"
    if wanted == "exists" or (operator == wanted and held == constant):
        return True
    if isinstance(held, str):
        return operator != "exists" and _text_implies(operator, held, wanted, constant)
    return not isinstance(constant, str) and _number_implies(operator, held, wanted, constant)


def _text_implies(operator: str, held: str, wanted: str, constant: Constant) -> bool:
    if not isinstance(constant, str):
        return operator == "='" and _number_implies("=#", number_of(held), wanted, constant)
    if wanted == "contains":
        return operator in ("='", "contains", "starts-with") and constant in held
    if wanted == "starts-with":
        return operator in ("='", "starts-with") and held.startswith(constant)
    return wanted == "!='" and operator == "='" and held != constant


def _number_implies(operator: str, held: float, wanted: str, constant: float) -> bool:
    if operator == "=#":
        return _passes(held, wanted, constant)
    if operator not in RANGES:
        return False
    if wanted == "!=#":
        return not _passes(constant, operator, held)
    if wanted not in RANGES or wanted[0] != operator[0]:
        return False
    # The bound itself is the worst number that passes, or the limit of those that do.
    return _passes(held, wanted if operator.endswith("=") else wanted[0] + "=", constant)


def _passes(number: float, operator: str, constant: float) -> bool:
    if operator == "=#":
        return number == constant
    if operator == "!=#":
        return number != constant
    if operator[0] == ">":
        return number >= constant if operator.endswith("=") else number > constant
    return number <= constant if operator.endswith("=") else number < constant


# --- what is compared at all ---


def form_of_places(places: list[Place], evaluated: Feature | None) -> Rich:
    """The features of an XPath: element names, tests for a value, and what is compared at the same place only.

    `evaluated` is what libxml2 is asked first: others are compared only where it is the same."""
    same = () if evaluated is None else (("evaluated", *evaluated),)
    return Rich((*_offered(places[0]), *same), tuple([_required(place) + same for place in places]))


def _offered(place: Place) -> tuple[Feature, ...]:
    path, probes, constants = place
    found: dict[Feature, None] = {("element", name): None for _, name in path}
    for probe, constant in zip(probes, constants, strict=True):
        if _is_fixed(probe):
            found["fixed", probe.steps, probe.reduction, probe.negated] = None
            continue
        found.update((("element", name), None) for _, name in probe.steps)
        found["leaf", probe.leaf] = None
        if probe.operator in ("='", "=#"):
            found["value", probe.leaf, constant] = None
            number = number_of(constant) if isinstance(constant, str) else constant
            found["value", probe.leaf, number] = None
    return tuple(found)


def _required(place: Place) -> tuple[Feature, ...]:
    path, probes, constants = place
    found: list[Feature] = [("element", name) for _, name in path if not name.endswith("*")]
    for probe, constant in zip(probes, constants, strict=True):
        if _is_fixed(probe):
            found.append(("fixed", probe.steps, probe.reduction, probe.negated))
            continue
        found += [("element", name) for _, name in probe.steps if not name.endswith("*")]
        if probe.operator in ("='", "=#"):
            found.append(("value", probe.leaf, constant))
        elif probe.leaf.startswith("@") and probe.leaf != "@*":
            found.append(("leaf", probe.leaf))
    return tuple(found)


def _is_fixed(probe: Probe) -> bool:
    """Whether a test cannot be moved."""
    return probe.negated or probe.reduction != "each"
