"""Which XML documents are read at all, and how: the gate between a publisher's bytes and the XPath engine.

A document is hostile until parsed. A document type declaration is refused before the parser sees it, because
everything dangerous in XML needs one: entities that grow (billion laughs, quadratic blowup), files and addresses
fetched while parsing. Those few encodings in which the declaration cannot be seen from outside are caught after
parsing, where entities were left unexpanded and libxml2's own amplification guard held. Size, depth and the number
of nodes are bounded, since the cost of an XPath is a power of them (`limits`).

The encoding declaration of bytes is honoured (MAT-51: the papers' menu is ISO-8859-1); in a text it says nothing any
more, because a `str` is decoded already.

Rejected: `defusedxml` (its lxml part is deprecated), and expat, which knows four encodings and would be a second
opinion on what is well-formed beside the lxml that evaluates the general XPaths.
"""

from __future__ import annotations

from math import isqrt
from typing import cast

from lxml import etree

from veena.errors import InvalidEvent
from veena.matching.xpath.limits import Size

#: An event is a message, not a database. An accepted XPath may read every text once a level, or once a node.
MAX_DOCUMENT_BYTES = 128 * 1024
#: Elements, attributes, texts and comments. An accepted XPath costs at most the square of this: see docs/XPATH.md.
MAX_DOCUMENT_NODES = 4_000
#: Hand-written schemas stay below 20; string values cost size times depth, and so does a path with two `//`.
MAX_DOCUMENT_DEPTH = 64
#: Every element is in the scope of every declaration above it: the namespace axis multiplies the two.
MAX_NAMESPACE_DECLARATIONS = 100

#: The shortest spelling of a node is `<a/>x`, two nodes in five bytes: below this size there is nothing to count.
_BYTES_WITHOUT_COUNTING = MAX_DOCUMENT_NODES * 5 // 2
#: As deep as allowed takes `<a>` and `</a>` a level.
_BYTES_WITHOUT_DEPTH = MAX_DOCUMENT_DEPTH * 7

# A sum and not a union: libxml2 would look for duplicates one by one.
_count_nodes = etree.XPath("count(//node()) + count(//@*)")
#: Whether a document is deeper than this: a handful of questions tells its depth, nearly.
_deeper = [(depth, etree.XPath("boolean(" + "/*" * (depth + 1) + ")")) for depth in (4, 8, 16, 32)]
_too_deep = etree.XPath("boolean(" + "/*" * (MAX_DOCUMENT_DEPTH + 1) + ")")

#: Characters that count as one node.
NODE_CHARACTERS = 32

_SPACE = b" \t\r\n"


def _strict_parser(encoding: str | None) -> etree.XMLParser:
    return etree.XMLParser(
        encoding=encoding, resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False,
        huge_tree=False, recover=False, collect_ids=False,
    )  # fmt: skip


#: The declaration inside the bytes decides.
_bytes_parser = _strict_parser(None)
#: Overrides a declaration that was true before the text was decoded.
_text_parser = _strict_parser("utf-8")


def parse_document(document: str | bytes) -> etree._Element:
    """The root element; raise InvalidEvent for whatever must not be published."""
    if not isinstance(document, str | bytes):
        raise InvalidEvent(f"xml: expected str or bytes, found {type(document).__name__}")
    # Four bytes a character at most: a text this long cannot pass, and encoding it would cost a copy.
    if len(document) > MAX_DOCUMENT_BYTES:
        raise InvalidEvent(_too_large(len(document)))
    if isinstance(document, str):
        try:
            data = document.encode()
        except UnicodeEncodeError as error:
            raise InvalidEvent(f"xml: character {error.start} is half of a surrogate pair") from None
        if len(data) > MAX_DOCUMENT_BYTES:
            raise InvalidEvent(_too_large(len(data)))
        parser = _text_parser
    else:
        data, parser = document, _bytes_parser
    if _declares_type(data):
        raise InvalidEvent(_TYPE_REFUSED)
    if data.count(b"xmlns") + data.count(b"x\0m\0l\0n\0s") > MAX_NAMESPACE_DECLARATIONS:
        raise InvalidEvent(f"xml: more than {MAX_NAMESPACE_DECLARATIONS} namespace declarations; declare them once")
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        raise InvalidEvent(f"xml: the document is not well-formed: {error}") from None
    _check_tree(root, len(data))
    return root


def document_size(root: etree._Element, length: int) -> Size:
    """How large a document of so many characters is for the cost of an XPath."""
    nodes = int(cast("float", _count_nodes(root))) + 1 + length // NODE_CHARACTERS
    depth = next((depth for depth, is_deeper in _deeper if not is_deeper(root)), MAX_DOCUMENT_DEPTH)
    return Size(nodes, max(isqrt(nodes) + 1, min(depth + 1, nodes)))


def check_document(document: str | bytes) -> None:
    """What a publisher is told before its event is accepted: raise InvalidEvent with the reason."""
    parse_document(document)


def _declares_type(data: bytes) -> bool:
    """Whether `<!DOCTYPE` follows the declaration, comments and instructions that may stand before the root."""
    position = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    while True:
        while position < len(data) and data[position] in _SPACE:
            position += 1
        if data.startswith(b"<?", position):
            end = data.find(b"?>", position + 2)
            position = end + 2
        elif data.startswith(b"<!--", position):
            end = data.find(b"-->", position + 4)
            position = end + 3
        else:
            return data.startswith(b"<!DOCTYPE", position)
        if end < 0:
            return False


def _check_tree(root: etree._Element, size: int) -> None:
    # UTF-16 and its like hide the declaration from `_declares_type`, and may spend other numbers of bytes a node.
    if root.getroottree().docinfo.internalDTD is not None:
        raise InvalidEvent(_TYPE_REFUSED)
    if size > _BYTES_WITHOUT_DEPTH and _too_deep(root):
        raise InvalidEvent(f"xml: elements are nested more than {MAX_DOCUMENT_DEPTH} deep; flatten the document")
    if size > _BYTES_WITHOUT_COUNTING:
        nodes = int(cast("float", _count_nodes(root)))
        if nodes > MAX_DOCUMENT_NODES:
            raise InvalidEvent(
                f"xml: {nodes} nodes are more than {MAX_DOCUMENT_NODES}; split the document into several events"
            )


_TYPE_REFUSED = "xml: document type declarations (DTDs, entities) are refused; send the document without <!DOCTYPE"


def _too_large(size: int) -> str:
    return f"xml: {size} bytes are more than {MAX_DOCUMENT_BYTES}; put large content into the body"
