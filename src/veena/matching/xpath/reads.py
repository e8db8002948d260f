"""What is read from an element, and what was found: one pass over it serves everybody who looks at it.

The reads of all groups at an anchor are one tree of steps; `collect` follows those that lead somewhere and notes the
texts that it finds under the number of their read. Numbers and extremes are worked out when somebody asks, and once.

The invariant: the values of a read are the string values of the nodes that its path finds from the element, in document
order (repeated where two `//` lead to one node, which no test minds).
"""

from __future__ import annotations

import math

from lxml import etree

from veena.matching.base.work import PYTHON_WORK, Meter
from veena.matching.xpath.number import number_of
from veena.matching.xpath.shape import PathStep, Probe

#: A path from the anchor and what is read at its end: a leaf, or `?` when being there is enough.
ReadPath = tuple[tuple[PathStep, ...], str]
#: The number that an anchor gives a path while a group reads it: a document asks for it a thousand times.
Read = int
Element = etree._Element

_string = etree.XPath("string()", smart_strings=False)


def string_value(element: Element) -> str:
    """The text of an element and all below it."""
    if len(element) == 0:
        return element.text or ""
    return str(_string(element))


class Finding:
    """What the reads of an anchor found at one element, or at all of them together."""

    __slots__ = ("extremes", "numbers", "texts")

    def __init__(self) -> None:
        self.texts: dict[Read, list[str]] = {}
        self.numbers: dict[Read, list[float]] = {}
        #: The smallest and the largest number of a read, or None when none of its texts is one.
        self.extremes: dict[Read, tuple[float, float] | None] = {}

    def texts_of(self, read: Read, reduction: str) -> list[str]:
        texts = self.texts.get(read)
        if reduction == "first":
            return texts[:1] if texts else [""]
        return texts or []

    def numbers_of(self, read: Read, reduction: str) -> list[float]:
        if reduction == "each":
            numbers = self.numbers.get(read)
            if numbers is None:
                numbers = self.numbers[read] = [number_of(text) for text in self.texts.get(read, ())]
            return numbers
        if reduction == "count":
            return [float(len(self.texts.get(read, ())))]
        return [number_of(self.texts_of(read, "first")[0])]

    def extremes_of(self, read: Read, reduction: str) -> tuple[float, float] | None:
        if reduction == "each" and read in self.extremes:
            return self.extremes[read]
        numbers = [number for number in self.numbers_of(read, reduction) if not math.isnan(number)]
        found = (min(numbers), max(numbers)) if numbers else None
        if reduction == "each":
            self.extremes[read] = found
        return found


def read_of(probe: Probe) -> ReadPath:
    textless = probe.leaf == "." and (probe.operator == "exists" or probe.reduction == "count")
    return probe.steps, "?" if textless else probe.leaf


class Reads:
    """The reads of an anchor as a tree of steps, so that one pass over an element serves all of them."""

    __slots__ = ("attributes", "below", "children", "leaves", "named", "only", "uses")

    def __init__(self) -> None:
        #: How many reads go through here.
        self.uses = 0
        self.children: dict[object, Reads] = {}
        #: Whether all children are asked for by name, none by `*`.
        self.named = False
        #: The read of the string value, where nothing else is read: the usual end of a path, followed without a call.
        self.only: Read | None = None
        self.below: dict[str, Reads] = {}
        #: `.`, `?`, `text()` and `@*` that are read here, with the read they belong to; attributes by name.
        self.leaves: dict[str, Read] = {}
        self.attributes: dict[str, Read] = {}

    def change(self, path: ReadPath, read: Read, wanted: bool) -> None:
        """Begin or end to read something."""
        node, passed = self, list[Reads]()
        for below, test in path[0]:
            following = node.below.get(test) if below else node.children.get(test)
            if following is None:
                following = Reads()
                if below:
                    node.below[test] = following
                else:
                    node.children[test] = following
            following.uses += 1 if wanted else -1
            if not following.uses:
                if below:
                    del node.below[test]
                else:
                    del node.children[test]
            passed.append(node)
            node = following
        name = path[1]
        places, key = (node.leaves, name) if name[0] != "@" or name == "@*" else (node.attributes, name[1:])
        if wanted:
            places[key] = read
        else:
            del places[key]
        for changed in (*passed, node):
            changed.named = bool(changed.children) and not any(str(tag).endswith("*") for tag in changed.children)
            more = changed.children or changed.below or changed.attributes or len(changed.leaves) > 1
            changed.only = None if more else changed.leaves.get(".")

    def collect(self, element: Element, texts: dict[Read, list[str]], meter: Meter) -> None:
        for leaf, read in self.leaves.items():
            values = [element.text or ""] if leaf == "." and len(element) == 0 else leaf_values(element, leaf)
            if values:
                texts.setdefault(read, []).extend(values)
        if self.attributes:
            for name, text in element.items():
                wanted = self.attributes.get(str(name))
                if wanted is not None:
                    texts.setdefault(wanted, []).append(str(text))
        if self.named:
            children = self.children
            meter.take(PYTHON_WORK * (1 + len(element)))
            for child in element:
                following = children.get(child.tag)
                if following is None:
                    continue
                only = following.only
                if only is None:
                    following.collect(child, texts, meter)
                    continue
                known = texts.get(only)
                if known is None:
                    texts[only] = [string_value(child)]
                else:
                    known.append(string_value(child))
        elif self.children:
            meter.take(2 * PYTHON_WORK * (1 + len(element)))
            for child in element:
                if isinstance(child.tag, str):
                    self.enter(child, texts, meter)
        for test, following in self.below.items():
            meter.take(PYTHON_WORK + meter.document)
            for descendant in element.iterdescendants(test):
                following.collect(descendant, texts, meter)

    def enter(self, child: Element, texts: dict[Read, list[str]], meter: Meter) -> None:
        """Follow the steps that lead to a child."""
        children, tag = self.children, str(child.tag)
        following = children.get(tag)
        if following is not None:
            following.collect(child, texts, meter)
        following = children.get("*")
        if following is not None:
            following.collect(child, texts, meter)
        if tag[0] == "{":
            following = children.get(tag[: tag.index("}") + 1] + "*")
            if following is not None:
                following.collect(child, texts, meter)


def leaf_values(element: Element, leaf: str) -> list[str]:
    if leaf == ".":
        return [string_value(element)]
    if leaf == "?":
        return [""]
    if leaf == "text()":
        texts = [element.text, *(child.tail for child in element)]
        return [text for text in texts if text is not None]
    if leaf == "@*":
        return [str(value) for value in element.values()]
    value = element.get(leaf[1:])
    return [] if value is None else [str(value)]
