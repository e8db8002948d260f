"""The portal as a web server: sign-in, pages, and what keeps browsers from doing anything else.

Nothing is loaded from other hosts, and the policy that every answer carries has browsers refuse to. Beyond this
machine the portal asks for TLS of its own and for a broker with users, as brokers do of themselves.
"""

from __future__ import annotations

import asyncio
import html
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from nicegui import app as pages
from nicegui import ui

from veena.dashboard.pages.frame import COOKIE, Entry, Frame
from veena.dashboard.pages.live_panel import LiveFile
from veena.dashboard.sessions.signing import LONGEST_S, AdviserOf, ArchiveOf, Desk, Door, MemberOf, NotSignedIn
from veena.errors import ConfigError, VeenaError
from veena.runtime.transports.secret_files import check_secret
from veena.runtime.transports.url import is_loopback

STATIC = Path(__file__).parent / "static"
#: A name and a password.
MAX_FORM_BYTES = 8192
#: How often those whose time is over are let go.
SWEEP_S = 60.0
#: What pages may load and run. Vue, which NiceGUI brings, compiles templates in the browser, and NiceGUI has it run
#: handlers as text: 'unsafe-eval'. Its pages carry their elements in a script, and their styles in attributes:
#: 'unsafe-inline', for which it knows no nonces. Everything else is refused that no page uses.
PAGE_POLICY = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src"
    b" 'self' data:; font-src 'self' data:; connect-src 'self'; frame-src 'none'; worker-src 'none'; media-src"
    b" 'none'; manifest-src 'none'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
#: The same where a password is typed: that page is this module's own, and has no script.
FORM_POLICY = (
    b"default-src 'self'; script-src 'none'; style-src 'self'; img-src data:; font-src 'none'; connect-src 'none';"
    b" frame-src 'none'; worker-src 'none'; media-src 'none'; manifest-src 'none'; object-src 'none'; base-uri 'none';"
    b" form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    b"x-content-type-options": b"nosniff",
    # Not less: browsers would hide where forms come from.
    b"referrer-policy": b"same-origin",
    b"x-frame-options": b"DENY",
}
#: Browsers that have seen the portal inside TLS come by TLS alone for a year.
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
SIGN_IN = "/sign-in"
#: Where pages talk to the server: a WebSocket, or requests in its place.
TALK = "/_nicegui_ws"
logger = logging.getLogger("veena.dashboard")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the portal is."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    #: Addresses or networks of proxies whose word on who asks counts (X-Forwarded-For, X-Forwarded-Proto).
    trusted_proxies: tuple[str, ...] = ()
    #: Origins of its pages, where a proxy shows them under another name than it asks for.
    origins: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def check(self) -> None:
        """Raise ConfigError for what would open the portal to others without protection."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("dashboard", "--certificate", "goes with --key", "name both files, or none")
        for option, path in (("--certificate", self.certificate), ("--key", self.key)):
            if path is not None and not path.is_file():
                raise ConfigError("dashboard", option, f"names {path}, which is no file", "check the path")
        if self.key is not None:
            check_secret(self.key)
        if not self.is_local and self.certificate is None and not self.insecure:
            reason = f"opens {self.host}:{self.port} to other machines without TLS"
            remedy = "add --certificate and --key, listen on 127.0.0.1, or say --insecure"
            raise ConfigError("dashboard", "--listen", reason, remedy)
        for each in self.trusted_proxies:
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                remedy = "name the proxy's address, such as 10.0.0.7, or its network, such as 10.0.0.0/24"
                raise ConfigError("dashboard", "--trusted-proxy", f"is {each!r} ({error})", remedy) from None
        for each in self.origins:
            if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+", each):
                remedy = "write it as browsers do, such as https://portal.example.org"
                raise ConfigError("dashboard", "--origin", f"is {each!r}", remedy)

    def bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((self.host, self.port))
        except OSError as error:
            found.close()
            reason = f"cannot be {self.host}:{self.port} ({error.strerror})"
            raise ConfigError("dashboard", "--listen", reason, "name another port, or 0 for a free one") from None
        found.listen(128)
        return found


@dataclass(frozen=True, slots=True)
class Parts:
    """What others provide; the pages of what is missing are missing."""

    member_of: MemberOf | None = None
    adviser_of: AdviserOf | None = None
    #: The rows that an archive has of a client.
    archive: ArchiveOf | None = None
    #: What a job on Spark says of deliveries.
    live: LiveFile | None = None


async def serve(listening: Listening, door: Door, parts: Parts, on_ready: Callable[[str], None]) -> None:
    """Run the portal until it is cancelled or interrupted; `on_ready` is told where it is."""
    listening.check()
    needs_users = not listening.is_local and not listening.insecure
    desk = Desk(door, parts.member_of, "users" if needs_users else "anybody" if listening.insecure else "here")
    if needs_users and not await desk.has_users():
        reason = f"opens {listening.host}:{listening.port} to other machines, and the broker has no users"
        remedy = "give the broker a users file ([auth] users_file), listen on 127.0.0.1, or say --insecure"
        raise ConfigError("dashboard", "--listen", reason, remedy)
    app = build(desk, parts, listening)
    bound = listening.bind()
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ssl_certfile=None if listening.certificate is None else str(listening.certificate),
        ssl_keyfile=None if listening.key is None else str(listening.key),
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=64 << 10,
        # Without these it believes whoever is on this machine, and what the environment says.
        proxy_headers=bool(listening.trusted_proxies),
        forwarded_allow_ips=list(listening.trusted_proxies),
    )
    host, port = bound.getsockname()[:2]
    on_ready(f"{listening.scheme}://{f'[{host}]' if ':' in host else host}:{port}/")
    await _Server(config).serve(sockets=[bound])


class _Server(uvicorn.Server):
    """A signal is an ordinary end."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # otherwise it is raised once more when all is done


def build(desk: Desk, parts: Parts, listening: Listening) -> FastAPI:
    """The application; once in a process, because NiceGUI keeps its pages in one place."""
    from veena.dashboard.pages import adviser as adviser_page
    from veena.dashboard.pages import application as application_page
    from veena.dashboard.pages import applications as applications_page
    from veena.dashboard.pages import clients as clients_page
    from veena.dashboard.pages import discovery as discovery_page
    from veena.dashboard.pages import events as events_page
    from veena.dashboard.pages import history as history_page
    from veena.dashboard.pages import shadow as shadow_page
    from veena.dashboard.pages import topology as topology_page
    from veena.dashboard.pages import traffic as traffic_page

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.get_running_loop().create_task(_sweep(desk))
        yield
        sweeping.cancel()
        await desk.close()

    app = FastAPI(lifespan=living, docs_url=None, redoc_url=None, openapi_url=None)
    always = (topology_page, clients_page, events_page, discovery_page)
    together = (applications_page, application_page, shadow_page) if parts.member_of is not None else ()
    frame = Frame(desk, _entries(parts))
    _add_doors(app, desk, listening)
    for page in (*always, *together):
        page.register(frame)
    traffic_page.register(frame, parts.live)
    if parts.member_of is not None:
        history_page.register(frame, parts.archive)
    if parts.adviser_of is not None:
        adviser_page.register(frame, parts.adviser_of)
    pages.add_static_files("/static", STATIC)
    ui.run_with(
        app,
        title="Veena",
        dark=None,
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=10.0,
        language="en-US",
    )
    app.add_middleware(_OwnPages, listening=listening)
    app.add_middleware(_Headers)
    return app


def _entries(parts: Parts) -> tuple[Entry, ...]:
    """The pages of the bar at the top."""
    found = [Entry("/topology", "Topology"), Entry("/traffic", "Traffic"), Entry("/clients", "Clients")]
    found += [Entry("/events", "Events"), Entry("/discovery", "Discovery")]
    if parts.member_of is not None:
        found += [Entry("/applications", "Applications"), Entry("/shadow", "Shoulder"), Entry("/history", "History")]
    if parts.adviser_of is not None:
        found.append(Entry("/adviser", "Adviser"))
    return tuple(found)


async def _sweep(desk: Desk) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await desk.sweep()


class _Headers:
    """Every answer says what a browser may do with it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def say(message: Any) -> None:
            if message["type"] == "http.response.start":
                policy = FORM_POLICY if scope["path"] == SIGN_IN else PAGE_POLICY
                added = [(b"content-security-policy", policy), *HEADERS.items()]
                if scope["scheme"] == "https" and not _is_localhost(_header(scope, b"host")):
                    added.append(STRICT_TRANSPORT)
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, say if scope["type"] == "http" else send)


class _OwnPages:
    """Only the portal's own pages talk to it: browsers let any site open a WebSocket, and say which site it was."""

    def __init__(self, app: Any, listening: Listening) -> None:
        self._app = app
        self._listening = listening

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_talk = scope["type"] == "websocket" or (scope["type"] == "http" and scope["path"].startswith(TALK))
        if not is_talk or _is_own(self._listening, _header(scope, b"origin"), _header(scope, b"host")):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "this page is none of the portal's"})
        else:
            answer = HTMLResponse("This page is none of the portal's.", status_code=403)
            await answer(scope, receive, send)


def _header(scope: Any, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _is_own(listening: Listening, origin: str | None, host: str | None) -> bool:
    """Whether a page of this origin is the portal's own; who sends none is no browser, or shows a page."""
    if origin is None or origin in listening.origins:
        return True
    scheme, _, place = origin.partition("://")
    return place == host and (scheme == "https" or (scheme == "http" and listening.certificate is None))


def _is_localhost(host: str | None) -> bool:
    """Whether browsers have the name in common with other programs of this machine, which may have no TLS."""
    name = (host or "").partition(":")[0].lower()
    return name == "localhost" or name.endswith(".localhost")


# --- signing in and out ---


def _add_doors(app: FastAPI, desk: Desk, listening: Listening) -> None:
    @app.get("/sign-in")
    async def form(request: Request, next: str = "/") -> Response:  # noqa: A002 (the name in the address)
        if desk.person(request.cookies.get(COOKIE)) is not None:
            return RedirectResponse(_inside(next), status_code=303)
        return await _form(desk, next)

    @app.post("/sign-in")
    async def enter(request: Request) -> Response:
        fields = await _fields(request, listening)
        if fields is None:
            return HTMLResponse("This form did not come from here, or is too long.", status_code=400)
        place = request.client.host if request.client else ""
        target = fields.get("next", "/")
        try:
            host = request.url.hostname or ""
            token = await desk.sign_in(fields.get("name", ""), fields.get("password", ""), place, host)
        except NotSignedIn as error:
            return await _form(desk, target, str(error), fields.get("name", ""))
        answer = RedirectResponse(_inside(target), status_code=303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, token, max_age=int(LONGEST_S), httponly=True, samesite="strict", secure=is_secure, path="/"
        )
        return answer

    @app.post("/sign-out")
    async def leave(request: Request) -> Response:
        if await _fields(request, listening) is None:
            return HTMLResponse("This form did not come from here.", status_code=400)
        await desk.sign_out(request.cookies.get(COOKIE))
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(COOKIE, path="/")
        return answer

    @app.get("/")
    async def home(request: Request) -> Response:
        return RedirectResponse("/topology", status_code=303)


def _inside(target: str) -> str:
    """Where to go after signing in: a page of this portal and nowhere else."""
    is_page = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_page else "/"


async def _fields(request: Request, listening: Listening) -> dict[str, str] | None:
    """The fields of a form of this portal; None for what another site sent, or what is too long."""
    if not _is_own(listening, request.headers.get("origin"), request.headers.get("host")):
        return None
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_FORM_BYTES:
            return None
    try:
        return {name: values[0] for name, values in parse_qs(data.decode(), max_num_fields=10).items()}
    except ValueError:
        return None


async def _form(desk: Desk, target: str, fault: str = "", name: str = "") -> HTMLResponse:
    hint = ""
    try:
        has_users = await desk.has_users()
    except (VeenaError, TimeoutError) as error:
        has_users = True
        hint = f'<p class="note bad" role="alert">No broker answers now: {html.escape(str(error))}</p>'
    secret = (
        '<label>Password<input name="password" type="password" autocomplete="current-password"></label>'
        if has_users
        else '<p class="faint">This broker has no users: a name is enough.</p>'
    )
    said = f'<p class="note bad" role="alert">{html.escape(fault)}</p>' if fault else ""
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sign in · Veena</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/static/portal.css">
<link rel="icon" href="data:,"></head><body class="plain-page"><main class="sign-in"><h1>Veena</h1>
{said or hint}<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{html.escape(_inside(target))}">
<label>Name<input name="name" value="{html.escape(name)}" autocomplete="username" autofocus required></label>
{secret}<button>Sign in</button></form></main></body></html>"""
    return HTMLResponse(page, status_code=403 if fault else 200)
