"""What can go wrong while foreign bytes are read, and how it is told.

msgspec counts fields (`$[2]`); people and other implementations know them by name, so the reply names them.
Deep nesting ends in a RecursionError and bad UTF-8 in a ValueError: both are the sender's fault like any other.
"""

from __future__ import annotations

import msgspec

#: Everything that msgspec, or a frame's own rules under it, raises on foreign bytes.
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)

_MARK = "`$["


def explain(error: Exception, struct: type[msgspec.Struct]) -> str:
    """The error's text with the place of the outermost field replaced by its name."""
    text = str(error)
    before, found, after = text.partition(_MARK)
    place, closed, rest = after.partition("]")
    fields = struct.__struct_fields__
    if not found or not closed or not place.isdigit() or int(place) >= len(fields):
        return text
    return f"{before}`{fields[int(place)]}{rest}"
