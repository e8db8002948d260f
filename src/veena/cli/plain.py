"""Text that others wrote, as a terminal may be given it: nothing in it is obeyed, by the terminal or by Rich."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with escapes in place of what cannot be printed; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


def one_line(text: str) -> str:
    """The same in one line."""
    return plain(text).replace("\n", "\\n")


def cell(text: object) -> str:
    """The same for a cell of a table, where square brackets would be markup."""
    from rich.markup import escape

    return escape(plain(str(text)))
