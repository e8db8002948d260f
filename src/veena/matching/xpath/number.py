"""The number that a text stands for, to the last bit as libxml2 says.

Indexed comparisons are made here and general ones in libxml2, and a verdict must not depend on which of them a profile
fell to. libxml2 adds integer part and fraction as two doubles, so `float()` can differ in the last bit; it also reads
exponents, which XPath 1.0 does not have, in documents and in expressions: `<price>1e3</price>` is 1000, and `1e-8` is
what a program prints that builds an expression. What is short and plain is computed by the same formula in Python; the
rest, rare, is put to libxml2 itself.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import cast

from lxml import etree

_PLAIN = re.compile(r"[ \t\r\n]*(-?)(\d{0,15})(?:\.(\d{0,15}))?[ \t\r\n]*", re.ASCII)
#: `\d` would take other scripts' digits, and an exponent needs one of these.
_EXPONENT_OR_LONG = re.compile(r"[ \t\r\n]*-?[\d.][\d.eE+\-]*[ \t\r\n]*", re.ASCII)
_TENS = [10.0**places for places in range(16)]

_libxml_number = etree.XPath("number($text)")
_nowhere = etree.Element("nowhere")


def number_of(text: str) -> float:
    """XPath's number(text); NaN for what is no number."""
    return _remembered(text) if len(text) <= MAX_REMEMBERED_LENGTH else _computed(text)


def _computed(text: str) -> float:
    plain = _PLAIN.fullmatch(text)
    if plain is None:
        if _EXPONENT_OR_LONG.fullmatch(text) is None:
            return math.nan
        return cast("float", _libxml_number(_nowhere, text=text))
    sign, whole, fraction = plain.groups()
    if fraction:
        value = float(whole or 0) + float(fraction) / _TENS[len(fraction)]
    elif whole:
        value = float(whole)
    else:
        return math.nan
    return -value if sign else value


#: Prices, years and counts come again and again; a text of a megabyte must not be kept for it.
MAX_REMEMBERED_LENGTH = 24
_remembered = lru_cache(maxsize=4096)(_computed)


def literal_number(spelling: str) -> float:
    """The value of a number in an XPath: what is short and plain reads as a text does, the rest libxml2 says."""
    if len(spelling) <= 16 and "e" not in spelling and "E" not in spelling:
        return number_of(spelling)
    return _asked(spelling) if len(spelling) <= MAX_REMEMBERED_LENGTH else _asked.__wrapped__(spelling)


@lru_cache(maxsize=1024)
def _asked(spelling: str) -> float:
    return cast("float", etree.XPath(spelling)(_nowhere))
