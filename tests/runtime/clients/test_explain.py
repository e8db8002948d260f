"""Answers about the past in parts: whatever their size, the frames are within their bounds and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from veena.address import Unit
from veena.client.explain import Explanation, PastQuestions, TraceAnswer
from veena.core.boundary.explain import Explained, Handed, Happened, Hop, Reason, Traced, Verdict
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.explain import MAX_FACTS, TellExplained, TellReport, TellTraced
from veena.core.wire.header import MAX_CONTROL_FRAME
from veena.errors import NotConnected, Refused, RemoteProtocolError
from veena.runtime.clients.explain import explanation_frame, trace_frames

BROKERS = [(a, b, c, d) for a in range(4) for b in range(8) for c in range(8) for d in range(16)]


def label_of(unit: Unit) -> str | None:
    return "unit-" + "-".join(map(str, unit)) if unit[0] < 3 else None


def heard(frames: Iterable[Frame]) -> Any:
    """What a client makes of these, after they went over the wire."""

    async def hear() -> Any:
        questions = PastQuestions()
        future = questions.ask(1)
        decoder = Decoder()
        for frame in frames:
            data = encode(frame, 0)
            assert len(data) <= MAX_CONTROL_FRAME
            for _, told in decoder.feed(data):
                if isinstance(told, TellTraced):
                    questions.hear_traced(told)
                elif isinstance(told, TellExplained):
                    questions.hear_explained(told)
                elif isinstance(told, TellReport):
                    questions.hear_report(told)
        return await asyncio.wait_for(future, 10)

    return asyncio.run(hear())


def test_a_long_trace_comes_in_parts_and_whole() -> None:
    units = tuple(BROKERS[:100])
    hops = tuple(Hop(one, other, units, 5, 6) for one, other in pairwise(BROKERS))
    handed = tuple(Handed(at, "x" * 255, -7, tuple(range(200)), 8) for at in BROKERS[:1500])
    happened = tuple(Happened(at, "dropped", 9, "bob", units[:3], "é" * 1024) for at in BROKERS[:300])
    effect = Traced(3, 1, BROKERS[0], 4, hops, handed, ((1,), (2, 3)), happened, (("off", 1), ("all", 4095)))
    frames = trace_frames(effect, label_of)
    assert len(frames) > len(hops) / MAX_FACTS
    assert [frame.more for frame in frames] == [True] * (len(frames) - 1) + [False]
    answer = heard(frames)
    assert isinstance(answer, TraceAnswer)
    assert (answer.hops, answer.handed, answer.happened) == (hops, handed, happened)
    assert (answer.origin, answer.accepted_ns, answer.silent) == (BROKERS[0], 4, ((1,), (2, 3)))
    assert answer.heard == {"off": 1, "all": 4095}
    assert answer.label((2, 3)) == "unit-2-3" and answer.label((3, 0, 0, 1)) == "3.0.0.1"


def test_an_event_that_nobody_remembers_is_one_empty_frame() -> None:
    frames = trace_frames(Traced(3, 1, (), 0, (), (), ()), label_of)
    assert len(frames) == 1 and not frames[0].more
    answer = heard(frames)
    assert (answer.origin, answer.hops, answer.handed, answer.heard) == ((), (), (), {})


def test_an_explanation_is_one_frame_whatever_it_holds() -> None:
    way = tuple(Hop(one, other, tuple(BROKERS[:400]), 5, 6) for one, other in pairwise(BROKERS[:999]))
    verdict = Verdict(
        Reason.DELIVERED, "é" * 1024, 7, BROKERS[9], (2,), 3, tuple(range(1 << 12)), way, 4, BROKERS[0]
    )  # fmt: skip
    answer = heard([explanation_frame(Explained(3, 1, verdict, tuple(BROKERS[:100]), (("all", 5),)), label_of)])
    assert isinstance(answer, Explanation)
    assert answer.is_delivered and (answer.text, answer.at_ns, answer.broker) == (verdict.text, 7, BROKERS[9])
    assert [(hop.sender, hop.receiver) for hop in answer.way] == [(hop.sender, hop.receiver) for hop in way[:256]]
    assert answer.label(BROKERS[9]) == "unit-0-0-0-9"


def test_a_reason_of_a_newer_broker_is_unknown_with_its_own_words() -> None:
    answer = heard([TellExplained(1, "quarantined", "it is being looked at")])
    assert (answer.reason, answer.text) == (Reason.UNKNOWN, "it is being looked at")


def test_reports_are_json_or_the_brokers_fault() -> None:
    assert heard([TellReport(1, b'{"a": ', more=True), TellReport(1, b"1}")]) == {"a": 1}
    with pytest.raises(RemoteProtocolError, match="report 1 is no JSON"):
        heard([TellReport(1, b"{")])


def test_questions_end_when_they_are_refused_or_the_connection_is_lost() -> None:
    async def scenario() -> None:
        questions = PastQuestions()
        refused, lost = questions.ask(1), questions.ask(2)
        questions.hear_refused(1, Refused("not now"))
        questions.detached("gone")
        with pytest.raises(Refused, match="not now"):
            await refused
        with pytest.raises(NotConnected, match="ask again"):
            await lost
        questions.hear_report(TellReport(2, b"{}"))  # too late: nobody waits

    asyncio.run(scenario())
