"""Configurations and network files by chance: each is read, or refused with faults that name line and remedy."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from veena.bench.fuzzing.corpus import load_texts
from veena.errors import ConfigError
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import ConfigFaults
from veena.runtime.networks.file import parse_network

#: What is put in the place of a value.
VALUES: Final = (
    "-1", "0", "1e308", "nan", "99999999999999999999", '""', '"x"', "[]", "{}", "true", "[[]]", "1979-05-27T07:32:00Z",
    '["tcp://127.0.0.1:0", "tls://0.0.0.0:1"]', "'\\u0000'", '"' + "a" * 70_000 + '"', "[" * 400 + "]" * 400,
)  # fmt: skip


class Outcome(msgspec.Struct):
    """What became of the texts."""

    texts: int = 0
    refused: int = 0
    longest_s: float = 0.0
    #: Tracebacks of what is no refusal, each with its text.
    failures: list[str] = msgspec.field(default_factory=list)


def fuzz_configurations(corpus: Path, seed: int, seconds: float) -> Outcome:
    """Read texts of the corpus, then changed ones, for so long."""
    chance, outcome = Random(seed), Outcome()
    texts = load_texts(corpus)
    for name, text in texts:
        _read(name, text, outcome)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        name, text = chance.choice(texts)
        for _ in range(chance.randint(1, 3)):
            text = _change(text, chance)
        _read(name, text, outcome)
    return outcome


def _read(name: str, text: str, outcome: Outcome) -> None:
    outcome.texts += 1
    begin = time.monotonic()
    try:
        if name.startswith("network"):
            parse_network(text)
        else:
            parse_config(text)
    except (ConfigFaults, ConfigError) as refusal:
        outcome.refused += 1
        if not str(refusal):
            outcome.failures.append(f"a refusal without words of\n{text}")
    except Exception:
        outcome.failures.append(f"{traceback.format_exc()}\nof\n{text[:2000]}")
    outcome.longest_s = max(outcome.longest_s, time.monotonic() - begin)


def _change(text: str, chance: Random) -> str:
    """The text with another value, a line more, a line less, or some characters exchanged."""
    lines = text.splitlines()
    at = chance.randrange(len(lines) + 1)
    match chance.randrange(5):
        case 0 | 1:
            keyed = [number for number, line in enumerate(lines) if "=" in line]
            if keyed:
                at = chance.choice(keyed)
                lines[at] = f"{lines[at].partition('=')[0]}= {chance.choice(VALUES)}"
        case 2:
            lines[at:at] = [chance.choice(lines or [""])]
        case 3:
            del lines[at : at + 1]
        case _:
            where = chance.randrange(len(text) + 1)
            noise = "".join(chr(chance.choice((0, 10, 34, 61, 91, 93, 233, 0x1F701))) for _ in range(3))
            return text[:where] + noise + text[where + chance.randint(0, 5) :]
    return "\n".join(lines)
