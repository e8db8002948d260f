"""What runs in the process that evaluates: reads a question, evaluates it, writes the verdict; nothing else.

lxml releases the interpreter's lock while libxml2 evaluates, but libxml2 cannot be stopped, so whoever waits for it
must be able to end the whole process. The process inherits no socket and no environment beyond the paths of Python, may
use little memory (`MEMORY_BYTES` more than it began with), and ends when its broker does: a thread waits for the end of
the input, also while libxml2 is at work.

A message is its length in four bytes and msgpack (`Question` in, `Answer` out). Texts of clients are data in it;
nothing is unpickled.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import struct
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

import msgspec

from veena import matching
from veena.event import Event
from veena.matching.base.engine import Constraint, Engine
from veena.matching.base.verdict import Verdict, evaluate

#: Before a message: its length.
LENGTH: Final = struct.Struct(">I")
#: The longest message: a document and a constraint, each of at most 128 KiB, in any encoding.
MAX_MESSAGE: Final = 4 << 20
#: What evaluating may use beyond what Python and lxml take.
MEMORY_BYTES: Final = 512 << 20
#: How much later its turn comes, where processors are rare, than that of its broker.
NICE: Final = 5
#: Constraints that stay compiled.
COMPILED: Final = 64


class Question(msgspec.Struct, array_like=True, frozen=True):
    """`Evaluate` in bytes."""

    ticket: int
    engine: str
    constraint: int | str | tuple[str, str | dict[str, str]]
    document: bytes
    #: Whether the document is a text, whose declaration of an encoding counts for nothing.
    is_text: bool
    work: int


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """`Evaluated` in bytes."""

    ticket: int
    verdict: Verdict
    work: int


encode = msgspec.msgpack.Encoder().encode
_questions = msgspec.msgpack.Decoder(Question)
read_answer = msgspec.msgpack.Decoder(Answer).decode


def framed(data: bytes) -> bytes:
    """A message as it is written."""
    return LENGTH.pack(len(data)) + data


def answer(question: Question) -> Answer:
    """Evaluate a question."""
    try:
        engine = _engine(question.engine, encode(question.constraint))
        document = question.document.decode("utf-8", "surrogatepass") if question.is_text else question.document
        verdict, work = evaluate(engine, Event(xml=document), question.work)
    except MemoryError:
        verdict, work = Verdict.FAILED, 0
    return Answer(question.ticket, verdict, work)


_constraints: msgspec.msgpack.Decoder[Constraint] = msgspec.msgpack.Decoder(
    int | str | tuple[str, str | dict[str, str]]
)


@lru_cache(maxsize=COMPILED)
def _engine(name: str, constraint: bytes) -> Engine:
    engine = matching.create(name)
    engine.add(0, _constraints.decode(constraint), 1)
    return engine


def main() -> None:
    """Answer questions until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker hears it too, and ends this process in its turn
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever is printed is no answer
    matching.create("xpath")
    _limit()
    questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, questions), daemon=True).start()
    while True:
        found = answer(questions.get())
        try:
            answers.write(framed(encode(found)))
            answers.flush()
        except OSError:
            os._exit(0)  # the broker is gone


def _limit() -> None:
    """Bound memory, leave nothing behind in case of a crash, and let the broker go first."""
    os.nice(NICE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _listen(source: IO[bytes], questions: queue.SimpleQueue[Question]) -> None:
    while True:
        head = source.read(LENGTH.size)
        length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
        if not 0 < length <= MAX_MESSAGE:
            os._exit(0)  # the input has ended: the broker has, too
        data = source.read(length)
        if len(data) < length:
            os._exit(0)
        questions.put(_questions.decode(data))
