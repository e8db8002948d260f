"""An element without which an XPath is false: what is asked of a document where the XPath itself costs too much.

The invariant: the XPath is false of every document without an element of that name; no name means nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from veena.matching.xpath.limits import BOOLEAN, COMPARISONS, FUNCTIONS, XML_NAMESPACE
from veena.matching.xpath.syntax import Binary, Call, Expression, Filter, Path, Step

_NO_ELEMENTS = frozenset({"attribute", "namespace"})


def required_element(expression: Expression, namespaces: Mapping[str, str]) -> str:
    """The name, as lxml spells it, of an element without which the expression is false; empty where there is none."""
    if isinstance(expression, Path | Filter):
        return _nodes(expression, namespaces)
    if isinstance(expression, Call):
        return required_element(expression.arguments[0], namespaces) if expression.name == "boolean" else ""
    if not isinstance(expression, Binary):
        return ""
    left, right = expression.left, expression.right
    if expression.operator == "and":
        return required_element(left, namespaces) or required_element(right, namespaces)
    if expression.operator in ("or", "|"):
        found = required_element(left, namespaces)
        return found if found == required_element(right, namespaces) else ""
    if expression.operator in COMPARISONS and not _is_boolean(left) and not _is_boolean(right):
        # Nodes are compared one by one: none of them, and the comparison is false. `//a = false()` is another matter.
        return _nodes(left, namespaces) or _nodes(right, namespaces)
    return ""


def _nodes(expression: Expression, namespaces: Mapping[str, str]) -> str:
    """An element without which this finds no nodes."""
    if isinstance(expression, Filter):
        return _nodes(expression.primary, namespaces)
    if isinstance(expression, Binary) and expression.operator == "|":
        found = _nodes(expression.left, namespaces)
        return found if found == _nodes(expression.right, namespaces) else ""
    if not isinstance(expression, Path):
        return ""
    named = (step for step in reversed(expression.steps) if _is_named(step))
    for step in named:
        uri = XML_NAMESPACE if step.prefix == "xml" else namespaces[step.prefix] if step.prefix else ""
        return f"{{{uri}}}{step.local}" if uri else step.local
    return _nodes(expression.base, namespaces) if expression.base is not None else ""


def _is_named(step: Step) -> bool:
    return step.kind == "name" and step.local != "*" and step.axis not in _NO_ELEMENTS


def _is_boolean(expression: Expression) -> bool:
    if isinstance(expression, Call):
        return expression.name in FUNCTIONS and FUNCTIONS[expression.name][0] == BOOLEAN
    return isinstance(expression, Binary) and (
        expression.operator in ("and", "or") or expression.operator in COMPARISONS
    )
