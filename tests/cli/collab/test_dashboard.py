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
from veena.dashboard.sessions.signing import MAX_FAULTS
from veena.runtime.access.users import hash_password

CERTIFICATES = Path(__file__).parents[2] / "runtime" / "certificates"
TLS = ("--certificate", str(CERTIFICATES / "broker.pem"), "--key", str(CERTIFICATES / "broker.key"))


@dataclass
class Portal:
    place: str

    def ask(
        self, method: str, path: str, body: str = "", *, source: str = "127.0.0.1", **headers: str
    ) -> tuple[http.client.HTTPResponse, str]:
        found, own = urlsplit(self.place), (source, 0)
        connection = http.client.HTTPConnection(found.hostname or "", found.port, timeout=30, source_address=own)
        if found.scheme == "https":
            trust = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
            trust.check_hostname = False
            connection = http.client.HTTPSConnection(
                found.hostname or "", found.port, context=trust, timeout=30, source_address=own
            )
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
        assert ("script-src 'none'" in policy) is (path == "/sign-in"), "no script runs where a password is typed"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


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


UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://OWN", "https://OWN.evil.example", "OWN"])
def test_pages_of_other_sites_do_not_talk_to_it(portal: Portal, origin: str) -> None:
    """SEC: a page that the person opens elsewhere connects to the portal's WebSocket with the person's cookies."""
    own = urlsplit(portal.place).netloc
    for transport in ("websocket", "polling"):
        path = f"/_nicegui_ws/socket.io/?EIO=4&transport={transport}"
        told = UPGRADE if transport == "websocket" else {}
        answer, _ = portal.ask("GET", path, Origin=origin.replace("OWN", own), **told)
        assert answer.status == 403
    answer, _ = portal.ask("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=polling", Origin=f"https://{own}")
    assert answer.status != 403


PROXY = "127.0.0.2"


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """A portal before a broker with users, that a proxy at 127.0.0.2 shows as portal.example.org inside TLS."""
    users = tmp_path_factory.mktemp("users") / "users.toml"
    users.write_text(f'[user.ann]\npassword = "{hash_password("right")}"\n')
    with testing.broker(settings={"auth": {"users_file": str(users)}}) as url:
        options = ("--listen", "127.0.0.1:0", "--trusted-proxy", PROXY, "--origin", "https://portal.example.org")
        started = Started("dashboard", "--url", url, *options)
        try:
            yield Portal(started.line().split()[-1])
        finally:
            assert started.end() == 0


def test_only_a_trusted_proxy_says_who_asks(behind_a_proxy: Portal) -> None:
    """SEC: guessing without limit, with another X-Forwarded-For each time; for a proxy that is trusted it counts."""

    def has_to_wait(name: str, source: str, said: str) -> bool:
        form = urlencode({"name": name, "password": "wrong"})
        _, text = behind_a_proxy.ask("POST", "/sign-in", form, source=source, X_Forwarded_For=said)
        return "wait a minute" in text

    found = [has_to_wait(f"nobody-{at}", "127.0.0.1", f"10.0.{at}.1") for at in range(MAX_FAULTS + 2)]
    assert found == [False] * MAX_FAULTS + [True] * 2
    assert has_to_wait("somebody", PROXY, "127.0.0.1"), "it comes from there, by way of the proxy"
    assert not has_to_wait("somebody", PROXY, "10.0.0.1")


def test_behind_a_proxy_cookies_stay_inside_tls_and_its_pages_are_known(behind_a_proxy: Portal) -> None:
    form = urlencode({"name": "ann", "password": "right"})
    forwarded = {"X_Forwarded_For": "10.1.0.1", "X_Forwarded_Proto": "https", "Origin": "https://portal.example.org"}
    answer, _ = behind_a_proxy.ask("POST", "/sign-in", form, source=PROXY, **forwarded)
    assert answer.status == 303 and "Secure" in answer.headers["Set-Cookie"]
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    forwarded["X_Forwarded_For"] = "10.1.0.2"
    answer, _ = behind_a_proxy.ask("POST", "/sign-in", form, source="127.0.0.3", **forwarded)
    assert answer.status == 303 and "Secure" not in answer.headers["Set-Cookie"], "that is no proxy's word"
    assert answer.headers["Strict-Transport-Security"] is None
    talk = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    assert behind_a_proxy.ask("GET", talk, Origin="https://portal.example.org")[0].status != 403
    assert behind_a_proxy.ask("GET", talk, Origin="https://evil.example")[0].status == 403


@pytest.mark.parametrize(
    ("option", "value"), [("--trusted-proxy", "*"), ("--trusted-proxy", "proxy"), ("--origin", "portal.example.org")]
)
def test_proxies_and_origins_are_checked(option: str, value: str) -> None:
    found = veena("dashboard", "--listen", "127.0.0.1:0", option, value)
    assert found.code == 2 and option in found.err and repr(value) in found.err
