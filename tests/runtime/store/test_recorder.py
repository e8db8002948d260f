"""Best-effort events are kept for history where they were published and accepted, and nothing else is."""

from __future__ import annotations

from tests.runtime.store_desk import frame
from veena.core.boundary.clients import Request, Unanswered
from veena.core.boundary.inputs_effects import ClientDown, Publish, PublishRefused
from veena.errors import RefusalCode
from veena.runtime.store.audit_records import Passed, Record
from veena.runtime.store.recorder import Recorder


def test_best_effort_events_are_kept_unless_they_were_refused() -> None:
    """DIS-07: reliable ones are in the log already."""
    kept: list[Record] = []
    recorder = Recorder(kept.extend)
    fast = frame(1, reliable=False)
    recorder.saw(Publish(1, fast), [], 5)
    recorder.saw(Publish(1, frame(2, reliable=True)), [], 6)
    recorder.saw(
        Publish(1, frame(3, reliable=False)), [PublishRefused(1, frame(3).id, RefusalCode.INVALID, "too long")], 7
    )
    recorder.saw(ClientDown(1), [], 8)
    recorder.saw(None, [], 9)
    question = frame(4, reliable=False)
    recorder.saw(Request(1, 1, question, 1000), [], 10)
    recorder.saw(
        Request(1, 2, frame(5, reliable=False), 1000),
        [Unanswered(1, 2, 0, RefusalCode.UNWANTED, "nobody wants it")],
        11,
    )
    assert kept == [Passed(5, fast), Passed(10, question)]
