"""Fuzzing: what is drawn, what the corpus holds, and a short attack on every door of a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.tiers import few
from veena.bench.fuzzing.configuration import fuzz_configurations
from veena.bench.fuzzing.corpus import load_lines, load_texts
from veena.bench.fuzzing.drawing import Drawing
from veena.bench.fuzzing.sender import Sent
from veena.bench.fuzzing.trial import Fuzzing, Pulse
from veena.core.wire.codec import KINDS, Decoder, disclose
from veena.core.wire.control import Routed
from veena.core.wire.event import EventCodec
from veena.errors import InvalidEvent, RemoteProtocolError
from veena.event import Event, EventId

CORPUS = Path(__file__).parents[3] / "benchmarks" / "corpus"
#: Entries that a decoder refuses; the harm was that it took them.
REFUSED: dict[str, set[str]] = {
    "client": {"since-beyond-sqlite", "since-highest", "since-negative", "log-read-at-the-edge"},
    "link": set(),
    "websocket": {"since-beyond-sqlite"},
}


def test_most_drawn_frames_are_valid_and_some_are_not() -> None:
    """Every kind gets past the decoder, where the code behind it is tried; and every decoder is tried, too."""
    drawing, taken, refused = Drawing(Random(5)), Counter[str](), Counter[str]()
    for cls in KINDS.values():
        for _ in range(60):
            frame = drawing.control(cls)
            try:
                found = Decoder().feed(frame)
            except RemoteProtocolError:
                refused[cls.__name__] += 1
            else:
                taken[cls.__name__] += bool(found)
    assert set(taken) == {cls.__name__ for cls in KINDS.values()}
    assert sum(taken.values()) > sum(refused.values()) > 0


def test_drawn_events_are_events() -> None:
    drawing, codec = Drawing(Random(6)), EventCodec(4, 32)
    topics, refused = Counter[str | None](), 0
    for _ in range(300):
        try:
            for _, frame in Decoder(codec).feed(drawing.event("fuzz-1", 3)):
                topics[frame.event().topic] += 1  # type: ignore[union-attr]
        except (RemoteProtocolError, InvalidEvent):
            refused += 1
    assert len(topics) > 3 and 0 < refused < 50


def test_the_same_seed_draws_the_same() -> None:
    one, other = (Drawing(Random(7)) for _ in range(2))
    assert [one.control(cls) for cls in KINDS.values()] == [other.control(cls) for cls in KINDS.values()]


@pytest.mark.parametrize("door", ["client", "link", "websocket"])
def test_the_corpus_holds_frames_as_they_were(door: str) -> None:
    entries, drawing = load_lines(CORPUS / f"{door}.txt"), Drawing(Random(8))
    assert len(entries) >= 3
    refused: set[str] = set()
    for name, entry in entries:
        if isinstance(entry, bytes):
            continue
        try:
            ((_, frame),) = Decoder().feed(drawing.of(entry[0], entry[1:]))
        except RemoteProtocolError:
            refused.add(name)
        else:
            assert not isinstance(frame, Routed) or disclose(frame.kind, frame.payload)
    assert refused == REFUSED[door]


def test_a_corpus_with_a_fault_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("# for readers\ngood [1]\nbad [1\n")
    with pytest.raises(ValueError, match=r"line 3.*write a name, a space and JSON"):
        load_lines(path)


def test_configurations_are_read_or_refused() -> None:
    """Whatever a configuration says, the answer is one that names the fault; some are right all the same."""
    assert len(load_texts(CORPUS / "configuration.txt")) >= 4
    outcome = fuzz_configurations(CORPUS / "configuration.txt", 3, 1.0)
    assert not outcome.failures
    assert outcome.texts > outcome.refused > 0


def test_the_pulse_tells_what_is_missing_and_what_came_twice() -> None:
    async def beat() -> Pulse:
        pulse = Pulse()

        class Writer:
            """Loses every third event and has every fifth come twice."""

            async def publish(self, *, topic: str, body: bytes, **rest: object) -> None:
                number = int.from_bytes(body[:8], "big")
                event = Event(topic=topic, body=body, event_id=EventId("honest-writer", 1, 1, number))
                for _ in range(0 if number % 3 == 0 else 2 if number % 5 == 0 else 1):
                    pulse.take(event)

        until = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.2, until.set_result, None)
        await pulse.beat(Writer(), until, patience_s=0.05)  # type: ignore[arg-type]
        return pulse

    phase = asyncio.run(beat()).phase(Sent(0, 0, 0))
    assert phase.events >= 10 and phase.missing >= 5 and phase.twice >= 2
    assert phase.p50_ms <= phase.p99_ms <= phase.longest_ms


@pytest.mark.parametrize("door", few(["client", "link", "websocket", "http"], 2))
def test_a_broker_survives_an_attacker_beside_an_honest_client(door: str, tmp_path: Path) -> None:
    """A real process, attacked for a second: no exit, no traceback, no honest event missing or twice."""
    told: list[str] = []
    fuzzing = Fuzzing(tmp_path, CORPUS, 1.0, say=told.append)
    trial = asyncio.run(fuzzing.door(door))
    assert trial.is_sound, msgspec.to_builtins(trial)
    assert trial.attack.sent.frames >= 20 and trial.honest.sent.frames >= 20
    assert trial.attack.events >= 50 and trial.honest.events >= 50
    assert told == [f"{door}: warming up", f"{door}: attacked", f"{door}: used"]
