"""Why an XPath is not true of a document, in its own words: the first step or predicate that failed.

The text is cut at its own joints and the pieces are put to libxml2, so this works for every XPath, indexed or not, and
says nothing that the evaluation itself would not. It is for people who ask, not for the path of events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lxml import etree

from veena.errors import InvalidConstraint
from veena.matching.base.work import OverBudget
from veena.matching.xpath.limits import Cost, check
from veena.matching.xpath.reads import string_value
from veena.matching.xpath.rewrite import rewritten
from veena.matching.xpath.syntax import Binary, Call, Expression, Negated, Path, Step, parse, parse_rewritten

#: Values shown, and the characters of each: enough to see what happened.
MAX_VALUES = 3
MAX_VALUE_LENGTH = 40

#: Whether an evaluation of this cost is within what may be spent.
Affords = Callable[[Cost], bool]

_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def explain_xpath(text: str, namespaces: Mapping[str, str], root: etree._Element, affords: Affords) -> str:
    """The first part of an XPath that keeps it from being true of a document, which it is not."""
    try:
        return _Explainer(text, dict(namespaces), root, affords).why(parse(text))
    except OverBudget:
        return "which part of it would cost too much to find out"
    except (etree.XPathError, InvalidConstraint) as error:
        return f"no part of it can be evaluated by itself: {error}"


class _Explainer:
    def __init__(self, text: str, namespaces: dict[str, str], root: etree._Element, affords: Affords) -> None:
        self.affords = affords
        self.text = text
        self.namespaces = namespaces
        self.root = root

    def slice(self, expression: Expression | Step) -> str:
        return self.text[expression.start : expression.end]

    def value(self, text: str) -> object:
        """The value of an expression; its text where finding out could cost too much."""
        if not self.affords(check(text, parse(text), self.namespaces).once):
            return text
        return etree.XPath(text, namespaces=self.namespaces, smart_strings=False)(self.root)

    def is_true(self, text: str) -> bool:
        # In the cheap words: a prefix of an indexed path may be one that libxml2 would take minutes for.
        cheapest = rewritten(text, parse(text))
        asked = f"boolean({cheapest})"
        if not self.affords(check(asked, parse_rewritten(asked) or parse(text), self.namespaces).once):
            raise OverBudget
        return bool(etree.XPath(asked, namespaces=self.namespaces)(self.root))

    def why(self, expression: Expression) -> str:
        if isinstance(expression, Path):
            return self.path(expression)
        if isinstance(expression, Call) and expression.name == "boolean":
            return self.why(expression.arguments[0])
        if isinstance(expression, Call) and expression.name == "not":
            return f"{self.slice(expression.arguments[0])} holds"
        if isinstance(expression, Binary):
            left, right = expression.left, expression.right
            if expression.operator == "and":
                return self.why(right if self.is_true(self.slice(left)) else left)
            if expression.operator in ("or", "|"):
                return f"{self.why(left)}; and {self.why(right)}"
            if expression.operator in _COMPARISONS:
                return self.comparison(expression)
        return f"{self.slice(expression)} is {_shown(self.value(self.slice(expression)))}"

    def comparison(self, expression: Binary) -> str:
        for side in (expression.left, expression.right):
            if isinstance(side, Path) and not self.is_true(self.slice(side)):
                return self.path(side)
        found = [
            f"{self.slice(side)} = {_shown(self.value(self.slice(side)))}"
            for side in (expression.left, expression.right)
            if isinstance(side, Path | Call | Binary | Negated)
        ]
        return f"no {self.spaced(expression)}: {', '.join(found)}"

    def path(self, path: Path) -> str:
        """The first step that finds nothing, or the first predicate that leaves nothing."""
        if path.base is not None:
            return f"{self.slice(path)} finds nothing"
        known = ""
        for step in path.steps:
            if self.slice(step) == "//":
                continue
            end = self.opening(step.predicates[0]) if step.predicates else step.end
            reached = self.text[path.start : end]
            if not self.is_true(reached):
                name = self.text[step.start : end].strip()
                return f"{known} exists, but has no {name}" if known else f"there is no {reached.strip()}"
            for predicate in step.predicates:
                after = self.text[path.start : self.closing(predicate)]
                if not self.is_true(after):
                    return self.predicate(reached.strip(), predicate)
                reached = after
            known = reached.strip()
        return f"{self.slice(path)} finds nothing"

    def predicate(self, reached: str, predicate: Expression) -> str:
        if isinstance(predicate, Binary) and predicate.operator == "and":
            for part in (predicate.left, predicate.right):
                if not self.is_true(f"{reached}[{self.slice(part)}]"):
                    return self.predicate(reached, part)
            left, right = self.slice(predicate.left), self.slice(predicate.right)
            return f"{reached} exists, but none of them has both {left} and {right}"
        if isinstance(predicate, Path) and not predicate.absolute:
            return f"{reached} exists, but has no {self.slice(predicate)}"
        if isinstance(predicate, Binary) and predicate.operator in _COMPARISONS:
            for side in (predicate.left, predicate.right):
                if isinstance(side, Path) and not side.absolute and side.base is None:
                    values = self.value(f"{reached}/{self.slice(side)}")
                    if not values:
                        return f"{reached} exists, but has no {self.slice(side)}"
                    return f"{reached} exists, but no {self.spaced(predicate)}: {self.slice(side)} = {_shown(values)}"
        return f"{reached} exists, but for none of them holds {self.slice(predicate)}"

    def spaced(self, expression: Binary) -> str:
        return f"{self.slice(expression.left)} {expression.operator} {self.slice(expression.right)}"

    def opening(self, predicate: Expression) -> int:
        """Where the bracket before a predicate stands; between the two are parentheses and spaces at most."""
        return self.text.rfind("[", 0, predicate.start)

    def closing(self, predicate: Expression) -> int:
        return self.text.find("]", predicate.end) + 1


def _shown(value: object) -> str:
    if isinstance(value, list):
        texts = [string_value(node) if isinstance(node, etree._Element) else str(node) for node in value[:MAX_VALUES]]
        shown = ", ".join(_shortened(text) for text in texts)
        return f"{shown}, ... ({len(value)} in all)" if len(value) > MAX_VALUES else shown
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else repr(_shortened(str(value)))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 3] + "..."
