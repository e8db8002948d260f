"""A disk that takes no more, under a broker that runs as a process, seen from its clients."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from tests.runtime.processes import PATIENCE_S, until
from tests.runtime.processes import veena as started
from veena import blocking
from veena.errors import StoreError, VeenaError

#: Bytes to which no file of the broker grows: enough for its tables, soon reached by the log.
LARGEST = 400_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process that runs")
def test_publishers_are_refused_with_the_reason_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    """FLT-07, FLT-09: until there is room again; best effort goes on meanwhile."""
    command = ("broker", "run", "--listen", "veena://127.0.0.1:0", "--data", str(tmp_path / "data"), "--json")
    with started(*command) as broker:
        url = broker.told()["url"]
        pid = broker.process.pid
        with (
            blocking.connect(url, client_id="alice") as alice,
            blocking.connect(url, client_id="bob") as bob,
        ):
            kept = bob.subscribe(topic="kept", durable="mine")
            fleeting = bob.subscribe(topic="fleeting")
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (LARGEST, before[1]))
            accepted: list[bytes] = []

            def publish_until_it_is_full() -> None:
                while len(accepted) * 1000 < 10 * LARGEST:
                    body = b"%d " % len(accepted) + bytes(1000)
                    alice.publish(topic="kept", body=body, reliable=True)
                    accepted.append(body)

            with pytest.raises(StoreError) as caught:
                publish_until_it_is_full()
            assert str(caught.value).startswith("this broker's disk did not take it: store ")
            assert "veena.db" in str(caught.value)
            assert alice.is_connected and alice.statistics().connections == 1
            alice.publish(topic="fleeting")
            fleeting.next(PATIENCE_S)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

            def is_taken() -> bool:
                try:
                    alice.publish(topic="kept", body=b"last", reliable=True)
                except VeenaError:
                    return False
                return True

            until(is_taken)
            got = [bytes(kept.next(PATIENCE_S).body) for _ in range(len(accepted) + 1)]
            assert got == [*accepted, b"last"]
