"""The client without async: the same, from plain threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, text
from tests.runtime.wording import Wording
from veena import blocking
from veena.errors import (
    AccessDenied,
    InvalidConstraint,
    InvalidEvent,
    LocalProtocolError,
    NotConnected,
    TimedOut,
    Unanswered,
)
from veena.event import Event
from veena.runtime.access.users import User, Users, hash_password


@contextmanager
def broker(users: Users | None = None) -> Iterator[Site]:
    """A broker in a thread of its own."""
    site = Site(users=users)
    is_ready, is_over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with site:
            is_ready.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_ready.wait(PATIENCE_S)
        yield site
    finally:
        loops[0].call_soon_threadsafe(is_over.set)
        thread.join()


def test_everything_without_async() -> None:
    """CLI-01, CLI-08: subscribe, publish, request, query, watch, push and pull."""
    with broker() as site, blocking.connect(site.url, client_id="alice") as alice:
        quotes = alice.subscribe(topic="quotes", selector="price > 10")
        assert quotes.is_active and quotes.state == quotes.scope
        assert quotes.suspension is None
        event_id = alice.publish(topic="quotes", properties={"price": 12}, body=b"hi", reliable=True)
        event = quotes.next(timeout=PATIENCE_S)
        assert (text(event), event.id) == ("hi", event_id)
        assert quotes.poll() is None and quotes.take() == []
        with pytest.raises(TimedOut):
            quotes.next(timeout=0.01)
        with blocking.connect(site.url, client_id="service") as service:
            answered = threading.Event()
            jobs = service.subscribe(topic="jobs", durable=True, ack="manual")

            def work() -> None:
                for job in jobs:
                    service.reply(job, body=b"done")
                    answered.set()
                    return

            worker = threading.Thread(target=work)
            worker.start()
            assert text(alice.request(topic="jobs", timeout=PATIENCE_S)) == "done"
            worker.join()
            assert answered.is_set()
            alice.publish(topic="jobs", reliable=True)
            jobs.ack(jobs.next(PATIENCE_S))
            jobs.delete()
            service.advertise("printer", properties={"speed": 3})
            assert alice.query(sql="SELECT speed FROM adverts").rows[0].values == (3,)
            service.withdraw("printer")
        with pytest.raises(Unanswered):
            alice.request(topic="nobody")
        watch = alice.watch(Event(topic="quotes", properties={"price": 11}))
        assert watch.wanted is True
        watch.close()
        assert len(alice.publish_many([Event(topic="x")] * 3, reliable=True)) == 3
        assert alice.publish_event(Event(topic="x")).startswith("alice:")
        assert alice.statistics().accepted >= 4 and alice.is_connected and alice.broker == site.address
        alice.wait_connected()
        quotes.close()
        assert list(quotes) == []


def test_functions_are_called_in_the_client_s_thread_and_may_not_wait_there() -> None:
    with broker() as site, blocking.connect(site.url, client_id="alice") as alice:
        told: list[BaseException | str] = []
        is_told = threading.Event()

        def take(event: Event) -> None:
            try:
                alice.publish(topic="other")
            except LocalProtocolError as error:
                told.append(error)
            told.append(threading.current_thread().name)
            is_told.set()

        alice.subscribe(topic="t", on_event=take)
        alice.publish(topic="t", reliable=True)
        assert is_told.wait(PATIENCE_S)
        assert "return from on_event first" in str(told[0]) and told[1] == "veena-client"


def test_mistakes_and_closing(wording: Wording) -> None:
    users = Users({"alice": User(password=hash_password("right"))})
    with broker(users) as site:
        with pytest.raises(AccessDenied, match=wording.of("password is wrong")):
            blocking.connect(site.url, client_id="alice", password="wrong").open()
        client = blocking.connect(site.url, client_id="alice", password="right")
        with pytest.raises(NotConnected, match=r"with veena\.blocking\.connect"):
            client.publish(topic="t")
        with client:
            with pytest.raises(InvalidConstraint, match="at position"):
                client.subscribe(topic="t", selector="(")
            wanted = client.subscribe(topic="t", wait=0)
            assert client.inbox.poll() is None
        client.close()
        with pytest.raises(NotConnected, match="closed"):
            client.publish(topic="t")
        with pytest.raises(NotConnected, match="closed"):
            wanted.next()
        before = threading.active_count()
        with pytest.raises(NotConnected, match="no broker let this client in"):
            blocking.connect("veena://127.0.0.1:1", timeout=0.2).open()
        assert threading.active_count() == before


def test_batches_and_pipelines_without_async() -> None:
    """CLI-08: many events by one call, from several threads, acknowledged as whole batches."""
    with broker() as site, blocking.connect(site.url, client_id="alice") as alice:
        wanted = alice.subscribe(topic="t", durable="d", ack="manual")
        with alice.pipeline(window=20) as pipeline:
            first = pipeline.publish(topic="t", body=b"first")
            workers = [
                threading.Thread(target=lambda: [pipeline.publish(topic="t") for _ in range(100)]) for _ in range(3)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert first.result(PATIENCE_S) and first.is_done
        got: list[Event] = []
        for batch in wanted.batches(max=50):
            assert 1 <= len(batch) <= 50
            got += batch
            batch.ack()
            if len(got) == 301:
                wanted.close()
        assert (text(got[0]), got[0].id) == ("first", first.result())
        assert len({event.id for event in got}) == 301


def test_what_goes_wrong_in_a_pipeline_without_async() -> None:
    with broker() as site, blocking.connect(site.url, client_id="alice") as alice:
        pipeline = alice.pipeline()
        wrong = pipeline.publish(topic="t", properties={"a": [1]})  # type: ignore[dict-item]
        with pytest.raises(InvalidEvent, match="property 'a'"):
            wrong.result(PATIENCE_S)
        pipeline.flush()
        pipeline.publish(topic="t", properties={"a": [1]})  # type: ignore[dict-item]
        with pytest.raises(InvalidEvent, match="property 'a'"):
            pipeline.flush()
        with pytest.raises(InvalidEvent, match="event 1 of 2") as caught:
            alice.publish_many([Event(topic="t"), Event(topic="t", properties={"a": [1]})])  # type: ignore[dict-item]
        assert caught.value.published is not None and caught.value.published[1] is None
        alice.close()
        with pytest.raises(NotConnected):
            pipeline.publish(topic="t")
