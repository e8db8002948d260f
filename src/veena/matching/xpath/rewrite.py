"""The same question in the words that cost libxml2 least.

Only the truth of an XPath is wanted, and "there is a node at the end of `P/s`" is "there is a node at the end of `P`
that has an `s`", so `P/s` may be asked as `P[s]`. libxml2 collects every node of a path and looks for duplicates one by
one; a step sideways from many nodes makes that the third power of the document, and as a predicate it is the second
and stops at the first node found. The same holds for `P/s = 'text'` and the other comparisons with a literal.

Positions are not touched: a predicate counts along the axis of its own step from one context node in both forms.
"""

from __future__ import annotations

from veena.matching.xpath.limits import COMPARISONS, ONE_LEVEL
from veena.matching.xpath.syntax import Binary, Call, Expression, Filter, Negated, Number, Path, Step, Text


def rewritten(text: str, expression: Expression) -> str:
    """A text with the same boolean value as the expression on every document."""
    return _Rewriter(text).boolean(expression)


def _is_literal(expression: Expression) -> bool:
    while isinstance(expression, Negated):
        expression = expression.operand
    return isinstance(expression, Text | Number)


class _Rewriter:
    def __init__(self, text: str) -> None:
        self.text = text

    def slice(self, expression: Expression) -> str:
        return self.text[expression.start : expression.end]

    def boolean(self, expression: Expression) -> str:
        """For where only the boolean value counts; numbers in predicates are positions and stay what they are."""
        if isinstance(expression, Path):
            return self.path(expression, "")
        if isinstance(expression, Call) and expression.name in ("not", "boolean"):
            return f"{expression.name}({self.boolean(expression.arguments[0])})"
        if isinstance(expression, Binary):
            left, right, operator = expression.left, expression.right, expression.operator
            if operator in ("and", "or"):
                return f"({self.boolean(left)} {operator} {self.boolean(right)})"
            if operator == "|":
                return f"(boolean({self.boolean(left)}) or boolean({self.boolean(right)}))"
            if operator in COMPARISONS and isinstance(left, Path) and _is_literal(right):
                return self.path(left, f" {operator} {self.slice(right)}")
        return self.slice(expression)

    def path(self, path: Path, comparison: str) -> str:
        """A path, or a path compared with a literal, whose steps from many nodes have become predicates."""
        if path.base is None:
            start = "/" if path.absolute else ""
            return self.steps(start, path.steps, not path.absolute, comparison)
        return self.steps(self.base(path.base), path.steps, True, comparison, many=True)

    def base(self, expression: Expression) -> str:
        return self.slice(expression) if isinstance(expression, Filter) else f"({self.slice(expression)})"

    def steps(self, start: str, steps: tuple[Step, ...], relative: bool, comparison: str, many: bool = False) -> str:
        written, first = start, relative and not start
        for at, step in enumerate(steps):
            if many and step.axis not in ONE_LEVEL:
                return f"{written}[{self.steps('', steps[at:], True, comparison)}]"
            if not first and not written.endswith("/"):
                written += "/"
            first = False
            written += self.step(step)
            # A document has one root element; from there on children can be many.
            single = step.axis in ("self", "parent", "attribute") or (at == 0 and start == "/" and step.axis == "child")
            many = many or not single
        return written + comparison

    def step(self, step: Step) -> str:
        if not step.predicates:
            name = self.text[step.start : step.end]
            return "descendant-or-self::node()" if name == "//" else name
        name = self.text[step.start : self.text.rfind("[", 0, step.predicates[0].start)]
        return name + "".join(f"[{self.boolean(predicate)}]" for predicate in step.predicates)
