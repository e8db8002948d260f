"""XPath 1.0 from text to tree: the whole grammar, with the position of everything.

libxml2 would compile the general texts by itself, but it says neither where a text is wrong nor what is in it. This
reader serves three ends: errors with positions, the rules of `limits` (types, bounds, cost), and the shapes that
`shape` finds. Names and operators are told apart by where they stand, as section 3.7 of the recommendation asks:
in `div div div` the first and the last are elements.

`tokenise` is on the path of every `add`; `lift` gives the template of a text, its tokens with the literals taken out,
so that texts that differ in constants only are parsed once.

Rejected: a grammar library. Forty productions do not pay for a dependency, nor for its start-up time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from veena.errors import InvalidConstraint

#: The longest XPath of a real profile is some hundred characters; this bounds every later step.
MAX_XPATH_LENGTH = 4096
#: Parentheses, predicates and arguments inside each other; libxml2 recurses over them, and so does this reader.
MAX_XPATH_NESTING = 20
#: Steps, literals, calls and operators: each is a factor on the cost that `limits` bounds.
MAX_XPATH_TERMS = 100

AXES = frozenset({
    "ancestor", "ancestor-or-self", "attribute", "child", "descendant", "descendant-or-self", "following",
    "following-sibling", "namespace", "parent", "preceding", "preceding-sibling", "self",
})  # fmt: skip
NODE_TYPES = frozenset({"comment", "text", "processing-instruction", "node"})

_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = f"[{_START}][{_START}\\-.0-9\u00b7\u0300-\u036f\u203f-\u2040]*"
_TOKEN = re.compile(
    f"{_NAME}(?::(?!:)(?:{_NAME}|\\*))?"
    "|\"[^\"]*\"|'[^']*'"
    "|(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    "|//|::|\\.\\.|!=|<=|>=|[^ \t\r\n]"
)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NCNAME = re.compile(f"{_NAME}\\Z")


def tokenise(text: str) -> list[str]:
    return _TOKEN.findall(text)


def is_ncname(text: str) -> bool:
    return _NCNAME.match(text) is not None


def check_characters(text: str) -> None:
    """Refuse what is too long or what no XML document can hold, wherever it stands."""
    if len(text) > MAX_XPATH_LENGTH:
        raise InvalidConstraint(
            text, MAX_XPATH_LENGTH, f"an XPath of {len(text)} characters; at most {MAX_XPATH_LENGTH} are allowed"
        )
    if not text.isprintable() or not text.isascii():
        found = _NOT_XML.search(text)
        if found is not None:
            raise InvalidConstraint(text, found.start(), f"character {found[0]!r} cannot be part of XML")


def token_at(text: str, position: int) -> int:
    """How many tokens begin before a position."""
    return sum(1 for match in _TOKEN.finditer(text) if match.start() < position)


def lift(tokens: list[str]) -> tuple[str, list[str]]:
    """The template of a text, with `'` for each string and `#` for each number, and those literals as spelled."""
    template: list[str] = []
    literals: list[str] = []
    for token in tokens:
        first = token[0]
        if first in "\"'":
            # A quote alone is an error that the parser reports; it must not look like a literal.
            template.append("'" if len(token) > 1 else "''")
        elif first in "0123456789" or (first == "." and token not in (".", "..")):
            template.append("#")
        else:
            template.append(token)
            continue
        literals.append(token)
    return " ".join(template), literals


def is_literal(token: str) -> bool:
    """Whether `lift` takes this token out."""
    return token[0] in "\"'0123456789" or (token[0] == "." and token not in (".", ".."))


# The nodes are not frozen: every new template makes a dozen, and that is a tenth of what its first profile costs.
@dataclass(slots=True)
class Text:
    start: int
    end: int
    #: Which of the literals of the text this is, from the left.
    index: int
    value: str


@dataclass(slots=True)
class Number:
    start: int
    end: int
    index: int
    spelling: str


@dataclass(slots=True)
class Call:
    start: int
    end: int
    name: str
    arguments: tuple[Expression, ...]


@dataclass(slots=True)
class Negated:
    """Unary minus."""

    start: int
    end: int
    operand: Expression


@dataclass(slots=True)
class Binary:
    start: int
    end: int
    operator: str
    left: Expression
    right: Expression


@dataclass(slots=True)
class Step:
    start: int
    end: int
    axis: str
    #: `name` (also `*` and `p:*`, with local `*`), or one of NODE_TYPES.
    kind: str
    prefix: str
    local: str
    predicates: tuple[Expression, ...]


@dataclass(slots=True)
class Path:
    """Steps from the root (`absolute`), from the nodes of `base`, or from the context node."""

    start: int
    end: int
    absolute: bool
    base: Expression | None
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Filter:
    """A primary expression with predicates: `(//a)[1]`."""

    start: int
    end: int
    primary: Expression
    predicates: tuple[Expression, ...]


Expression = Text | Number | Call | Negated | Binary | Path | Filter

_PRECEDENCE = {
    "or": 1, "and": 2, "=": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "div": 6, "mod": 6,
}  # fmt: skip
_OPERATOR_NAMES = ("and", "or", "div", "mod")


def parse(text: str) -> Expression:
    """The tree of a text; raise InvalidConstraint with the position of the first thing that is wrong."""
    check_characters(text)
    reader = _Reader(text)
    if reader.word == "":
        raise InvalidConstraint(text, 0, "an empty XPath; write for example /menu/softdrinks[price > 1.80]")
    expression = reader.expression(0)
    if reader.word != "":
        raise reader.error(f"{reader.word!r} is not expected here")
    return expression


def parse_rewritten(cheapest: str) -> Expression | None:
    """The tree of what `rewrite` made of a text: more terms and deeper, within bounds of its own; None beyond them."""
    try:
        return _Reader(cheapest, 4 * MAX_XPATH_TERMS, 2 * MAX_XPATH_NESTING).expression(0)
    except InvalidConstraint:
        return None


class _Reader:
    """Recursive descent with one token of look-ahead; `word` is empty at the end."""

    def __init__(self, text: str, max_terms: int = MAX_XPATH_TERMS, max_nesting: int = MAX_XPATH_NESTING) -> None:
        self.text = text
        self.max_terms = max_terms
        self.max_nesting = max_nesting
        self.tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
        self.tokens += [("", len(text)), ("", len(text))]
        self.index = 0
        self.word, self.start = self.tokens[0]
        self.end = 0
        self.nesting = 0
        self.terms = 0
        self.literals = 0

    def error(self, reason: str, position: int | None = None) -> InvalidConstraint:
        return InvalidConstraint(self.text, self.start if position is None else position, reason)

    def advance(self) -> str:
        word = self.word
        self.end = self.start + len(word)
        self.index += 1
        self.word, self.start = self.tokens[self.index]
        return word

    def follows(self, word: str) -> bool:
        return self.tokens[self.index + 1][0] == word

    def expect(self, word: str, reason: str) -> None:
        if self.word != word:
            raise self.error(f"{word!r} expected {reason}" + (f", found {self.word!r}" if self.word else ""))
        self.advance()

    def term(self) -> None:
        self.terms += 1
        if self.terms > self.max_terms:
            raise self.error(f"more than {self.max_terms} steps, literals and operators; split the constraint")

    def inside(self) -> Expression:
        """An expression within brackets, the opening one already read."""
        self.nesting += 1
        if self.nesting > self.max_nesting:
            raise self.error(f"nested more than {self.max_nesting} deep; simplify the constraint")
        expression = self.expression(0)
        self.nesting -= 1
        return expression

    def expression(self, minimum: int) -> Expression:
        left = self.unary()
        while True:
            operator = self.word
            precedence = _PRECEDENCE.get(operator, 0)
            if precedence <= minimum:
                return left
            self.term()
            self.advance()
            right = self.expression(precedence)
            left = Binary(left.start, right.end, operator, left, right)

    def unary(self) -> Expression:
        if self.word != "-":
            return self.union()
        minuses: list[int] = []
        while self.word == "-":
            minuses.append(self.start)
            self.term()
            self.advance()
        operand = self.union()
        for start in reversed(minuses):
            operand = Negated(start, operand.end, operand)
        return operand

    def union(self) -> Expression:
        left = self.path()
        while self.word == "|":
            self.term()
            self.advance()
            right = self.path()
            left = Binary(left.start, right.end, "|", left, right)
        return left

    def path(self) -> Expression:
        start = self.start
        if self.word == "/":
            self.advance()
            steps: list[Step] = []
            if self.begins_step():
                self.steps(steps)
            self.term()
            return Path(start, self.end, True, None, tuple(steps))
        if self.word == "//":
            steps = []
            self.rest_of_steps(steps)
            return Path(start, self.end, True, None, tuple(steps))
        if self.begins_primary():
            base = self.filter()
            if self.word not in ("/", "//"):
                return base
            steps = []
            self.rest_of_steps(steps)
            return Path(start, self.end, False, base, tuple(steps))
        if not self.begins_step():
            raise self.error(f"an expression is expected, found {self.word!r}" if self.word else "the text ends early")
        steps = []
        self.steps(steps)
        return Path(start, self.end, False, None, tuple(steps))

    def steps(self, steps: list[Step]) -> None:
        steps.append(self.step())
        self.rest_of_steps(steps)

    def rest_of_steps(self, steps: list[Step]) -> None:
        while self.word in ("/", "//"):
            if self.word == "//":
                steps.append(Step(self.start, self.start + 2, "descendant-or-self", "node", "", "", ()))
            self.advance()
            if not self.begins_step():
                raise self.error(f"a step is expected, found {self.word!r}" if self.word else "a step is missing")
            steps.append(self.step())

    def begins_step(self) -> bool:
        word = self.word
        return word in (".", "..", "@", "*") or (word != "" and _is_name(word))

    def begins_primary(self) -> bool:
        word = self.word
        if word == "" or word in (".", ".."):
            return False
        if word[0] in "($\"'.0123456789":
            return True
        return self.follows("(") and _is_name(word) and word not in NODE_TYPES

    def filter(self) -> Expression:
        start = self.start
        primary = self.primary()
        predicates = self.predicates()
        return Filter(start, self.end, primary, predicates) if predicates else primary

    def primary(self) -> Expression:
        word, start = self.word, self.start
        self.term()
        if word == "(":
            self.advance()
            expression = self.inside()
            self.expect(")", f"to close the one at position {start}")
            return replace(expression, start=start, end=self.end)
        if word == "$":
            raise self.error("variables are refused: nothing could give them a value; write the value itself")
        if word[0] in "\"'":
            if len(word) == 1:
                raise self.error("a string that does not end")
            self.advance()
            self.literals += 1
            return Text(start, self.end, self.literals - 1, word[1:-1])
        if word[0] in ".0123456789":
            self.advance()
            if self.touches_word():
                raise self.error(f"a number followed by {self.word!r}; write digits, if need be an exponent: 1e-8")
            self.literals += 1
            return Number(start, self.end, self.literals - 1, word)
        return self.call()

    def touches_word(self) -> bool:
        """Whether a number runs into what follows, as in `1e` and `1.2.3`."""
        word = self.word
        if word == "" or self.start != self.end or word in _OPERATOR_NAMES:
            return False
        return _is_name(word) or word[0] in ".0123456789"

    def call(self) -> Call:
        start, name = self.start, self.advance()
        self.expect("(", "after the name of a function")
        arguments: list[Expression] = []
        if self.word != ")":
            arguments.append(self.inside())
            while self.word == ",":
                self.advance()
                arguments.append(self.inside())
        self.expect(")", f"to close the call of {name}")
        return Call(start, self.end, name, tuple(arguments))

    def step(self) -> Step:
        self.term()
        start, word = self.start, self.word
        if word in (".", ".."):
            self.advance()
            if self.word == "[":
                raise self.error(
                    f"{word!r} takes no predicate; write {'self' if word == '.' else 'parent'}::node()[...]"
                )
            return Step(start, self.end, "self" if word == "." else "parent", "node", "", "", ())
        axis = "child"
        if word == "@":
            axis = "attribute"
            self.advance()
        elif self.follows("::"):
            if word not in AXES:
                raise self.error(f"there is no axis {word!r}; expected one of {', '.join(sorted(AXES))}")
            axis = word
            self.advance()
            self.advance()
        kind, prefix, local = self.node_test()
        predicates = self.predicates()
        return Step(start, self.end, axis, kind, prefix, local, predicates)

    def node_test(self) -> tuple[str, str, str]:
        word = self.word
        if word in NODE_TYPES and self.follows("("):
            self.advance()
            self.advance()
            target = ""
            if word == "processing-instruction" and len(self.word) > 1 and self.word[0] in "\"'":
                target = self.advance()[1:-1]
                self.literals += 1
            self.expect(")", f"to close {word}(")
            return word, "", target
        if word == "" or not (word == "*" or _is_name(word)):
            raise self.error(f"a name is expected, found {word!r}" if word else "a name is missing")
        self.advance()
        prefix, colon, local = word.partition(":")
        return ("name", prefix, local) if colon else ("name", "", word)

    def predicates(self) -> tuple[Expression, ...]:
        predicates: list[Expression] = []
        while self.word == "[":
            start = self.start
            self.advance()
            predicates.append(self.inside())
            self.expect("]", f"to close the one at position {start}")
        return tuple(predicates)


def _is_name(token: str) -> bool:
    if len(token) == 1:
        return is_ncname(token)
    return token not in ("//", "::", "..", "!=", "<=", ">=") and token[0] not in "\"'.0123456789"
