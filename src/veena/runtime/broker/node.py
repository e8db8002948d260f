"""A broker as it runs: store, driver, links, clients, doors and monitoring put together, started and stopped in order.

Starting: the store is opened (which shows whether it is whole), the doors are bound (which shows whether the ports are
free), the broker is made with what the disk remembers, and only then anybody is let in. Stopping is the reverse: nobody
more is let in, clients are sent to another broker of the cluster, links say goodbye, the store is flushed and closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import veena
from veena.address import Unit, as_seen, format_address
from veena.core.boundary.inputs_effects import Restart
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.stored import Disk
from veena.core.boundary.user_shares import UserShares
from veena.core.wire.log_tables import MAX_TOLD_BROKERS, BrokerPlace
from veena.errors import ConfigError
from veena.runtime.access.access_events import AccessEvents
from veena.runtime.access.users import Users, load_users
from veena.runtime.broker.clients_view import clients_view
from veena.runtime.broker.driver import Driver, FromDisk
from veena.runtime.broker.entrance import Entrance
from veena.runtime.broker.http import HttpServer, status
from veena.runtime.broker.locator import Locator, told_urls
from veena.runtime.broker.map_view import live_view
from veena.runtime.broker.quarantine import Quarantine, quarantine_of
from veena.runtime.broker.renewal import NO_RENEWAL, Renewal, remembered
from veena.runtime.broker.running import RunningMark
from veena.runtime.broker.staging_release import Releaser, open_staging
from veena.runtime.broker.statistics import NodeStatistics
from veena.runtime.clients.revocation import Judged, judge_all
from veena.runtime.clients.service import Conversations
from veena.runtime.clients.staging import Staging
from veena.runtime.clients.table_service import LogService
from veena.runtime.config.schema import Config, changes, may_change
from veena.runtime.links.statement_verifier import StatementVerifier
from veena.runtime.logging.audit import NO_AUDIT, AuditLog, open_audit
from veena.runtime.logging.logs import Log, memory_bytes
from veena.runtime.steps import Steps
from veena.runtime.store.audit_records import Passed
from veena.runtime.store.recorder import Recorder
from veena.runtime.store.retention import KEPT_AT, Retention
from veena.runtime.store.store import Store
from veena.runtime.supervision import Supervisor
from veena.runtime.transports.certificate import Believed, believed
from veena.runtime.transports.registry import NO_SECRETS, Secrets, Server, listen
from veena.runtime.transports.stream import Listener, Stream
from veena.runtime.transports.url import Url, parse_url

#: How long clients are given to go elsewhere when a broker stops, and streams to send their last words.
DRAIN_S = 5.0
LAST_WORDS_S = 0.5


class Node:
    """One broker of this process; several may run in one loop."""

    def __init__(self, config: Config, log: Log | None = None) -> None:
        self.config = config
        self.log = log or Log()
        #: Where others reach it; known from the start on.
        self.urls: tuple[str, ...] = ()
        #: Why this broker cannot go on, if so: its own failure, or a new address.
        self.failure: BaseException | Restart | None = None
        #: Set when it has to stop because of that.
        self.ended = asyncio.Event()
        self._began = time.monotonic()
        #: Who watches over the threads and tasks of this broker.
        self.supervisor = Supervisor(self.log.failure, self._end_by)
        self.steps = Steps(self.log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limits = config.entrance_limits()
        self._entrance = Entrance(self._limits, self._take_link, self._take_client, self.log, self._take_question)
        self._secrets = NO_SECRETS
        self._servers: list[Server] = []
        self._temporary: Path | None = None
        self._store: Store | None = None
        self._driver: Driver | None = None
        self._clients: Conversations | None = None
        self._locator: Locator | None = None
        self._tables: LogService | None = None
        self._releaser: Releaser | None = None
        self._renewal: Renewal | None = None
        self._http: HttpServer | None = None
        self._audit: AuditLog | None = None
        self._authorities = Believed()
        self._verifier = StatementVerifier()
        #: By which commands on this machine find this broker, where it keeps anything.
        self.mark: RunningMark | None = None
        self._is_draining = False
        self._changed = asyncio.Event()

    @property
    def driver(self) -> Driver:
        assert self._driver is not None, "the broker is not started"
        return self._driver

    @property
    def clients(self) -> Conversations:
        assert self._clients is not None, "the broker is not started"
        return self._clients

    @property
    def store(self) -> Store:
        assert self._store is not None, "the broker is not started"
        return self._store

    @property
    def staging(self) -> Staging:
        assert self._releaser is not None, "the broker is not started"
        return self._releaser.staging

    @property
    def tables(self) -> LogService:
        assert self._tables is not None, "the broker is not started"
        return self._tables

    @property
    def locator(self) -> Locator:
        assert self._locator is not None, "the broker is not started"
        return self._locator

    @property
    def secrets(self) -> Secrets:
        """What it dials others with."""
        return self._secrets

    # --- starting ---

    async def start(self) -> None:
        """Begin; raises StoreError or ConfigError for what does not work, and leaves nothing behind then."""
        self._loop = asyncio.get_running_loop()
        try:
            secrets = self._secrets = self.config.secrets()
            self._authorities = believed(self.config.path(self.config.tables.tls.authority))
            users, trust = self._load_users(), self.config.trust()
            self._verifier.renew(trust, self.config.revoked())
            self._audit = self._open_audit()
            disk = await self._open_store()
            for text in self.config.listen:
                self._servers.append(await self._listen(parse_url(text), secrets))
            self.urls = self._announced()
            driver = self._driver = Driver(
                disk,
                self.config.settings(),
                self.store,
                listen=self.urls,
                grant=self.config.grant(),
                signing=self.config.signing(self._verifier),
                secrets=secrets,
                retry=self.config.retry(),
                log=self.log,
                supervisor=self.supervisor,
                steps=self.steps,
            )
            if Passed in self.store.keeps:
                driver.recorder = Recorder(self.store.record)
            driver.links.trust = trust
            driver.on_change = self._changed.set
            driver.on_failure = self._fail
            driver.on_restart = self._fail
            clients = self._clients = self._make_clients(driver, users)
            path = self.config.path(self.config.tables.store.path)
            self.mark = None if path is None else RunningMark(path)
            await self._open_staging()
            driver.clients = clients
            self._renewal = self._make_renewal(driver, clients)
            self._locator = Locator(lambda: self.config, driver, clients, self.urls, secrets, self.log)
            await self._open_http()
        except BaseException:
            await self._release()
            raise
        driver.start()
        self._let_in()
        self.locator.start()
        driver.links.follow(neighbour.urls for neighbour in self.config.neighbours)
        self._note("broker started", urls=",".join(self.urls))
        self.log.info(
            "broker started",
            name=self.config.name,
            address=format_address(self.config.address),
            incarnation=driver.broker.identity.incarnation,
            urls=",".join(self.urls),
        )

    def _let_in(self) -> None:
        """The core lives: what was published is released, and whoever connects is let in."""
        assert self._releaser is not None
        self.driver.give(self._shares(self.clients.users))
        self._releaser.start()
        self._entrance.open()

    def _make_renewal(self, driver: Driver, clients: Conversations) -> Renewal:
        """Who makes the core anew where its state is in doubt: by the steps of the start, with all doors left as they
        are."""

        async def remember() -> Disk:
            """Every write of the last life is on disk first."""
            if self._releaser is not None:
                await self._releaser.stop()
            disk = await asyncio.to_thread(remembered, self.store, self.config, self.log)
            await self._open_staging()
            return disk

        return Renewal(
            driver,
            clients,
            self._entrance,
            Quarantine(quarantine_of(self.store.path)),
            remember,
            self._let_in,
            self._fail,
            audit=self._audit,
        )

    def _make_clients(self, driver: Driver, users: Users) -> Conversations:
        clients = Conversations(driver, driver.broker.identity, driver.settings, users, log=self.log, steps=self.steps)
        clients.revoked = driver.links.revoked = self.config.revoked()
        clients.audit = clients.log_ins.audit = driver.links.audit = self._audit
        clients.batches = driver.recorder is None
        clients.places = lambda: self._limits.connections
        clients.label_of = self._label_of
        if self.config.tables.auth.tell:
            clients.access = AccessEvents(
                self.config.name, clients.codec, clients.clock, driver.new_session, clients.later
            )
        clients.reports = {
            "status": lambda: status(self.statistics()),
            "map": lambda: json.dumps(self.topology()).encode(),
            "clients": lambda: json.dumps(self._clients_view()).encode(),
        }
        self._tables = clients.tables = LogService(
            self.store, clients.codec, self._broker_places, self.log, supervisor=self.supervisor
        )
        return clients

    def _shares(self, users: Users) -> UserShares:
        """What users may have of this broker."""
        max_bytes = self.config.tables.store.max_bytes
        return users.shares(max_bytes, max_bytes * KEPT_AT // 100)

    def _load_users(self) -> Users:
        limits = self.config.tables.limits.client
        path = self.config.path(self.config.tables.auth.users_file)
        return Users(limits=limits) if path is None else load_users(path, limits)

    def _open_audit(self) -> AuditLog | None:
        section = self.config.tables.audit
        path = self.config.path(section.file)
        if path is None:
            return None
        return open_audit(path, self.config.name, section.max_bytes, section.files, self.log, self.supervisor)

    def _note(self, kind: str, **fields: str | int | None) -> None:
        """A line of the audit log, if there is one."""
        if self._audit is not None:
            self._audit.note(kind, **fields)

    async def _open_store(self) -> Disk:
        """What this broker remembers, under the address of its configuration."""
        config, section = self.config, self.config.tables.store
        path = config.path(section.path)
        if path is None:
            path = self._temporary = Path(tempfile.mkdtemp(prefix="veena-"))
            self.log.info("nothing is kept after this process; name [store] path, or --data, to keep it")
        loop = asyncio.get_running_loop()

        def answer(answers: list[FromDisk]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take_answers, answers)

        def open_it() -> tuple[Store, Disk]:
            store = Store(
                path,
                answer,
                levels=config.levels,
                fanout=config.fanout,
                retention=Retention(int(section.history_s * SECOND_NS), section.max_bytes),
                remember_ns=2 * int(section.retention_s * SECOND_NS),
                records=section.records,
                history=section.history,
                on_trouble=self._trouble,
                supervisor=self.supervisor,
            )
            try:
                return store, remembered(store, config, self.log)
            except BaseException:
                store.close()  # nobody else has it: the file would stay locked, and its threads would stay
                raise

        self._store, disk = await asyncio.to_thread(open_it)
        return disk

    async def _open_staging(self) -> None:
        section = self.config.tables.store
        self._releaser = await open_staging(
            self.store,
            self.driver,
            self.clients.codec,
            max_bytes=min(section.staged_bytes, section.max_bytes // 4),
            patience_ns=int(section.staged_s * SECOND_NS),
            log=self.log,
        )
        self.clients.staging = self._releaser.staging

    async def _listen(self, url: Url, secrets: Secrets) -> Server:
        try:
            return await listen(url, self._entrance.accept, secrets, self._entrance.strangers)
        except OSError as error:
            reason = f"cannot be listened on ({error.strerror or error})"
            remedy = "stop who listens there, or choose another port; port 0 picks a free one"
            raise ConfigError(self.config.file, f"listen {url}", reason, remedy) from None

    async def _open_http(self) -> None:
        place = self.config.tables.http.listen
        if place is not None:
            hosts = lambda: self.config.tables.http.hosts  # noqa: E731
            self._http = HttpServer(self.statistics, self.why_not_ready, self.log, hosts, self.steps)
            await self._http.start(place)

    def _announced(self) -> tuple[str, ...]:
        """Where others reach this broker: a wildcard says nothing to them, the host's name may."""
        if self.config.tables.broker.announce:
            return tuple(self.config.tables.broker.announce)

        def told(url: Url) -> str:
            named = replace(url, scheme={"tcp": "veena", "tls": "veenas"}.get(url.scheme, url.scheme))
            return str(replace(named, host=socket.gethostname()) if url.host in ("0.0.0.0", "::") else named)  # noqa: S104

        return tuple(told(server.url) for server in self._servers)

    @property
    def http_url(self) -> str | None:
        return None if self._http is None else self._http.url

    # --- what happens while it runs ---

    def _take_link(self, stream: Stream, data: bytes) -> Listener:
        return self.driver.links.accept(stream, data)

    def _take_client(self, stream: Stream, data: bytes) -> Listener:
        return self.clients.accept(stream, data)

    def _take_question(self, stream: Stream, data: bytes) -> Listener:
        return self.locator.accept(stream, data)

    def _take_answers(self, answers: list[FromDisk]) -> None:
        if self._driver is not None:
            self._driver.take(answers)

    def _trouble(self, told: str | None) -> None:
        if told is None:
            self.log.info("the store works again")
        else:
            self.log.error("the store is in trouble: reliable events are refused", reason=told)

    def _end_by(self, error: BaseException) -> None:
        """A thread without which this broker must not go on has ended; called by that thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, cause: BaseException | Restart) -> None:
        self.failure = cause
        self.ended.set()

    async def wait_ready(self) -> None:
        """Until the disk remembers who this broker is, and every unit of the network file, if any, is in reach."""
        host = self.config.address
        wanted = {as_seen(host, other) for other in self.config.members if other != host}
        while not (self.driver.is_remembered and wanted <= self.driver.reached.keys()):
            self._changed.clear()
            await self._changed.wait()

    def why_not_ready(self) -> str | None:
        """What a load balancer should know before it sends anybody here; None when all is well."""
        if self._renewal is not None and self._renewal.why_not_ready is not None:
            return self._renewal.why_not_ready
        if self._driver is None or not self._driver.is_remembered:
            return "starting"
        if self._is_draining:
            return "stopping"
        audit = None if self._audit is None else self._audit.statistics().trouble
        return (
            self.store.statistics().trouble
            or (audit and f"the audit log cannot be written: {audit}")
            or self.supervisor.trouble
        )

    def reload(self, new: Config) -> tuple[list[str], list[str]]:
        """Take over what may change; what was taken over, and what needs a restart."""
        taken: list[str] = []
        left: list[str] = []
        for section, key in changes(self.config.tables, new.tables):
            (taken if may_change(section, key, new.tables) else left).append(f"[{section}] {key}")
        before, self.config = self.config, self.config.taking_over(new)
        try:
            # The files themselves may have changed while their names have not; a fault in one leaves all as it was.
            users, secrets, revoked = self._load_users(), self.config.secrets(), self.config.revoked()
            trust, grant = self.config.with_network_of(new).trust(), self.config.grant()
            signing = self.config.signing(self._verifier)
            authorities = believed(self.config.path(self.config.tables.tls.authority))
        except ConfigError:
            self.config = before
            raise
        self.config = self.config.with_network_of(new)
        self._limits.become(self.config.entrance_limits())
        self.driver.links.trust = trust
        self._verifier.renew(trust, revoked)
        self.driver.show(grant, signing)
        self.driver.links.follow(neighbour.urls for neighbour in self.config.neighbours)
        self.clients.users = users
        self.driver.give(self._shares(users))
        self.clients.revoked = self.driver.links.revoked = revoked
        self._renew(secrets)
        judged, links = self._judge(authorities)
        self._note("configuration read again", taken=", ".join(taken), needs_restart=", ".join(left))
        self.log.info(
            "configuration read again",
            taken=", ".join(taken),
            needs_restart=", ".join(left),
            sessions_ended=judged.ended,
            sessions_narrowed=judged.narrowed,
            links_ended=links,
        )
        return taken, left

    def _renew(self, secrets: Secrets) -> None:
        """Certificates run out, and authorities change: handshakes from now on use the files as they are now."""
        self._secrets = secrets
        for server in self._servers:
            server.renew(secrets.server)
        self.driver.links.renew(secrets)
        self.locator.renew(secrets)

    def _judge(self, authorities: Believed) -> tuple[Judged, int]:
        """Let those go, or narrow what they may, who would not be let in now."""
        before, self._authorities = self._authorities, authorities
        dropped = before.dropped(authorities)
        revoked = self.clients.revoked

        def why_not(stream: Stream) -> str | None:
            found = stream.certificate
            if (
                found is not None
                and dropped is not None
                and (found.issuer in dropped or not before.knows(found.issuer))
            ):
                return "the authority of its certificate is not believed any more: attach again"
            return revoked.why_not(found, time.time())

        if dropped is not None:  # a handshake that has begun goes on with what was believed before
            self._entrance.strangers.end_all("an authority is not believed any more: connect again")
        return judge_all(self.clients, why_not), self.driver.links.judge_all(why_not)

    def statistics(self) -> NodeStatistics:
        return NodeStatistics(
            self.config.name,
            self.config.label,
            self.config.network,
            self.urls,
            time.monotonic() - self._began,
            self.driver.inputs,
            self.driver.statistics(),
            self.driver.links.statistics(),
            self.clients.statistics(),
            self._entrance.statistics(),
            self.store.statistics(),
            veena.__version__,
            format_address(self.config.address),
            self.driver.settings.records,
            os.getpid(),
            memory_bytes(),
            self.locator.statistics(),
            self.tables.statistics(),
            self.staging.statistics(),
            self.log.statistics(),
            NO_AUDIT if self._audit is None else self._audit.statistics(),
            self.supervisor.statistics(),
            NO_RENEWAL if self._renewal is None else self._renewal.statistics(),
            self.driver.worker.statistics(),
            self.steps.statistics(),
        )

    def topology(self) -> dict[str, Any]:
        """The network as this broker sees it now."""
        return live_view(self.driver.broker, self.driver.links.statistics(), self.label)

    def _clients_view(self) -> dict[str, Any]:
        return clients_view(self.driver.broker, self.config, self.clients, self.urls, self.locator.places(), self.label)

    def label(self, unit: Unit) -> str:
        """A unit's name, or its address where the network file gives it none."""
        return self._label_of(unit) or format_address(unit)

    def _broker_places(self) -> tuple[BrokerPlace, ...]:
        """Where brokers listen, as far as this one knows; itself first."""
        own = BrokerPlace(told_urls(self.urls), self.config.address, self.config.name)
        others = [told_urls(urls) for urls in self.locator.places()]
        return (own, *(BrokerPlace(urls) for urls in others if urls and urls != own.urls))[:MAX_TOLD_BROKERS]

    def _label_of(self, unit: Unit) -> str | None:
        labels = self.config.labels
        name = None if labels is None else labels.label(unit)
        return None if name == format_address(unit) else name

    # --- stopping ---

    def elsewhere(self) -> Iterator[str]:
        """Where the other brokers of this cluster listen, as far as they are in reach."""
        driver = self.driver
        for unit in driver.reached:
            if len(unit) == self.config.levels and unit != self.config.address:
                for place in driver.broker.contacts.places(unit):
                    yield from place.listen

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """Send clients elsewhere, say goodbye to neighbours, flush the store, end."""
        self._is_draining = True
        if self._renewal is not None:
            await self._renewal.stop()
        self._entrance.close("this broker is stopping: connect to another")
        for server in self._servers:
            await server.close()
        if self._driver is not None and self._clients is not None and self.failure is None:
            self._clients.drain(tuple(self.elsewhere()))
            await _until(lambda: not self.clients.statistics().clients, drain_s)
        if self._clients is not None:
            self._clients.close()
        await self._release()
        self.log.end_noise()
        self.log.info("broker stopped", name=self.config.name)

    async def kill(self) -> None:
        """End without a word to anybody, as a crash would; what was accepted is on the disk."""
        self._is_draining = True
        if self._renewal is not None:
            await self._renewal.stop()
        for server in self._servers:
            await server.close()
        self.driver.abort()
        self._entrance.abort("killed")
        await asyncio.sleep(0)
        self.clients.close()
        await self._release()

    async def _release(self) -> None:
        for server in self._servers:
            await server.close()
        if self._http is not None:
            await self._http.close()
        if self._locator is not None:
            await self._locator.stop()
        if self._releaser is not None:
            await self._releaser.stop()
        if self._driver is not None:
            await self._driver.stop()
            await _until(lambda: not self._entrance.statistics().connections, LAST_WORDS_S)
        # A peer that takes nothing any more would hold its connection beyond the end of the event loop.
        self._entrance.abort("this broker has stopped")
        await asyncio.sleep(0)  # the loop tells the streams in its next turn
        if self._tables is not None:
            await asyncio.to_thread(self._tables.close)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
        if self.mark is not None:
            self.mark.close()
            self.mark = None
        if self._audit is not None:
            self._audit.note("broker stopped")
            await asyncio.to_thread(self._audit.close)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def ready_line(node: Node) -> str:
    """What a broker that is listening says to who started it, as one line of JSON."""
    line = {"address": node.config.label or format_address(node.config.address), "pid": os.getpid()}
    return json.dumps({**line, "url": node.urls[0]})


async def _until(condition: Callable[[], bool], patience_s: float) -> None:
    """Wait for others, a short while: nothing tells when they have gone."""
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
