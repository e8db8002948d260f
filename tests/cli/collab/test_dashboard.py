"""`veena dashboard` over HTTP: what it refuses to open, and what it says to browsers and to those who are none."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.cli.command import veena
from tests.runtime.processes import Started
from veena import testing

CERTIFICATES = Path(__file__).parents[2] / "runtime" / "certificates"
TLS = ("--certificate", str(CERTIFICATES / "broker.pem"), "--key", str(CERTIFICATES / "broker.key"))


@dataclass
class Portal:
    place: str

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[http.client.HTTPResponse, str]:
        found = urlsplit(self.place)
        trust = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
        trust.check_hostname = False
        connection = http.client.HTTPSConnection(found.hostname or "", found.port, context=trust, timeout=30)
        try:
            told = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, told)
            answer = connection.getresponse()
            return answer, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    with testing.broker() as url:
        started = Started("dashboard", "--url", url, "--listen", "127.0.0.1:0", *TLS)
        try:
            yield Portal(started.line().split()[-1])
        finally:
            assert started.end() == 0


def test_beyond_this_machine_it_needs_tls_and_a_broker_with_users(veena_broker: str) -> None:
    bare = veena("dashboard", "--url", veena_broker, "--listen", "0.0.0.0:0")
    assert bare.code == 2 and "without TLS" in bare.err and "--insecure" in bare.err
    nobody = veena("dashboard", "--url", veena_broker, "--listen", "0.0.0.0:0", *TLS)
    assert nobody.code == 2 and "the broker has no users" in nobody.err and "users_file" in nobody.err
    wrong = veena("dashboard", "--listen", "7790")
    assert wrong.code == 2 and "host:port" in wrong.err


def test_every_answer_keeps_browsers_from_asking_others(portal: Portal) -> None:
    for path in ("/sign-in", "/static/portal.css", "/topology", "/nowhere"):
        answer, _ = portal.ask("GET", path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "http" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_no_page_is_shown_to_who_is_not_signed_in(portal: Portal) -> None:
    for path in ("/topology", "/traffic", "/clients", "/events", "/discovery", "/applications", "/applications/heat"):
        answer, _ = portal.ask("GET", path, Cookie="veena-portal=guessed")
        assert answer.status == 303 and answer.headers["Location"].startswith("/sign-in?next=%2F")


def test_a_form_of_another_site_or_one_that_is_too_long_does_nothing(portal: Portal) -> None:
    form = urlencode({"name": "ann"})
    answer, _ = portal.ask("POST", "/sign-in", form, Origin="https://elsewhere.example.org")
    assert answer.status == 400 and "Set-Cookie" not in answer.headers
    answer, _ = portal.ask("POST", "/sign-in", "name=" + "x" * 10_000)
    assert answer.status == 400
    answer, text = portal.ask("POST", "/sign-in", urlencode({"name": "<b>a/b</b>"}))
    assert answer.status == 403 and "a name has" in text and "<b>" not in text


@pytest.mark.parametrize(
    ("wanted", "target"),
    [("/clients", "/clients"), ("//elsewhere.example.org", "/"), ("https://elsewhere.example.org", "/"), ("/\\x", "/")],
)
def test_signing_in_leads_to_a_page_of_the_portal_and_nowhere_else(portal: Portal, wanted: str, target: str) -> None:
    own = urlsplit(portal.place).netloc
    form = urlencode({"name": "ann", "next": wanted})
    answer, _ = portal.ask("POST", "/sign-in", form, Origin=f"https://{own}", Host=own)
    assert answer.status == 303 and answer.headers["Location"] == target
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "Secure" in cookie and "samesite=strict" in cookie.lower()
    session = cookie.split(";")[0]
    assert portal.ask("GET", "/", Cookie=session)[0].status == 303
    out, _ = portal.ask("POST", "/sign-out", Cookie=session)
    assert out.status == 303 and portal.ask("GET", "/topology", Cookie=session)[0].status == 303
