"""What is read as XML and what is refused: hostile documents, encodings, bounds (MAT-50, MAT-51)."""

from __future__ import annotations

import pytest

from veena import Event
from veena.errors import InvalidEvent
from veena.matching.xpath.document import (
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_DEPTH,
    MAX_DOCUMENT_NODES,
    MAX_NAMESPACE_DECLARATIONS,
    check_document,
    parse_document,
)
from veena.matching.xpath.engine import XPathEngine, compile_xpath
from veena.matching.xpath.walk import MAX_MOVES

LAUGHS = (
    '<!DOCTYPE a [<!ENTITY l0 "ha">'
    + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    + ']><a b="&l9;">&l9;</a>'
)
QUADRATIC = f'<!DOCTYPE a [<!ENTITY x "{"x" * 20_000}">]><a>{"&x;" * 10_000}</a>'
FETCHED = '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>'
FILE = '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]><a>&f;</a>'


@pytest.mark.parametrize("document", [LAUGHS, QUADRATIC, FETCHED, FILE, "<!DOCTYPE a><a/>"])
@pytest.mark.parametrize("encoding", ["", "utf-8", "utf-16", "utf-16-be", "utf-8-sig"])
def test_document_types_are_refused(document: str, encoding: str) -> None:
    """No entity is expanded and nothing is fetched, in whatever encoding the declaration hides."""
    data = document.encode(encoding) if encoding else document
    with pytest.raises(InvalidEvent, match=r"DTDs|well-formed"):
        check_document(data)


@pytest.mark.parametrize("before", ["<!-- x -->", "<?pi x?>", "\n \t", '<?xml version="1.0"?><!-- <!DOCTYPE b> -->'])
def test_a_document_type_is_seen_behind_what_may_precede_it(before: str) -> None:
    with pytest.raises(InvalidEvent, match="DTDs"):
        check_document(before + "<!DOCTYPE a><a/>")


@pytest.mark.parametrize(
    "document", ["<a><![CDATA[<!DOCTYPE html>]]></a>", "<a><!-- <!DOCTYPE html> --></a>", "<!-- <!DOCTYPE x> --><a/>"]
)
def test_the_words_of_a_document_type_elsewhere_are_content(document: str) -> None:
    assert parse_document(document).tag == "a"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "well-formed"),
        ("<a>", "well-formed"),
        ("<a/><b/>", "well-formed"),
        ("<a>&undefined;</a>", "well-formed"),
        ("<a>\x01</a>", "well-formed"),
        (b'<?xml version="1.0" encoding="no-such"?><a/>', "well-formed"),
        ("<a>\ud800</a>", "surrogate"),
        (b"\xff\xfe\x00", "well-formed"),
        ("<a>" + "x" * MAX_DOCUMENT_BYTES + "</a>", "bytes"),
        ("<a>" + "é" * (MAX_DOCUMENT_BYTES // 2) + "</a>", "bytes"),
        ("<a>" * (MAX_DOCUMENT_DEPTH + 1) + "</a>" * (MAX_DOCUMENT_DEPTH + 1), "deep"),
        ("<r>" + "<a/>" * MAX_DOCUMENT_NODES + "</r>", "nodes"),
        (("<r>" + "<a/>" * MAX_DOCUMENT_NODES + "</r>").encode("utf-16"), "nodes"),
        ("<r " + " ".join(f'xmlns:n{n}="urn:n"' for n in range(MAX_NAMESPACE_DECLARATIONS + 1)) + "/>", "namespace"),
        ("<r>" + '<a b=""/>' * (MAX_DOCUMENT_NODES // 2) + "</r>", "nodes"),
        ("<r " + " ".join(f'a{n}=""' for n in range(MAX_DOCUMENT_NODES)) + "/>", "nodes"),
    ],
)
def test_what_cannot_be_read_is_told_to_the_publisher_and_matches_nothing(document: str | bytes, reason: str) -> None:
    """MAT-50: malformed XML matches nothing, and `check_document` names the reason."""
    with pytest.raises(InvalidEvent, match=reason):
        check_document(document)
    engine = XPathEngine()
    engine.add(1, "true()", 1)
    assert engine.match(Event(xml=document)) == [] and engine.destinations(Event(xml=document)) == 0
    assert engine.explain(1, Event(xml=document)).startswith("unknown: xml")
    assert engine.statistics().detail["unreadable"] == 2
    assert not compile_xpath("true()").matches(document)


def test_documents_at_the_bounds_are_read() -> None:
    check_document("<a>" * MAX_DOCUMENT_DEPTH + "</a>" * MAX_DOCUMENT_DEPTH)
    check_document("<r>" + "<a/>" * (MAX_DOCUMENT_NODES - 1) + "</r>")
    check_document("<a>" + "x" * (MAX_DOCUMENT_BYTES - 7) + "</a>")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "iso-8859-15", "windows-1252", "us-ascii"])
def test_encoding_declarations_are_honoured(encoding: str) -> None:
    """MAT-51: in bytes the declaration decides; in a text it is history."""
    text = f'<?xml version="1.0" encoding="{encoding}"?><a>{"e" if encoding == "us-ascii" else "é"}</a>'
    for document in (text, text.encode(encoding)):
        assert parse_document(document).text == ("e" if encoding == "us-ascii" else "é")


def test_an_event_without_xml_matches_nothing() -> None:
    engine = XPathEngine()
    engine.add(1, "true()", 1)
    assert engine.match(Event(topic="x")) == [] and engine.destinations(Event(topic="x")) == 0
    assert engine.explain(1, Event(topic="x")) == "unknown: the event has no xml"


def test_anything_but_text_and_bytes_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="expected str or bytes, found int"):
        check_document(7)  # type: ignore[arg-type]


def test_invented_names_do_not_fill_the_memory() -> None:
    """What the walk learns from documents is bounded, and forgetting it changes no verdict."""
    engine = XPathEngine()
    engine.add(1, "//a[b > 1]", 1)
    names = MAX_DOCUMENT_NODES - 10
    for number in range(MAX_MOVES // names + 2):
        invented = "".join(f"<n{number}_{at}/>" for at in range(names))
        assert engine.match(Event(xml=f"<r>{invented}<a><b>{number}</b></a></r>")) == ([1] if number > 1 else [])
    assert engine.statistics().detail["moves"] <= names + 10
