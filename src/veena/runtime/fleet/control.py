"""Asking a fleet to change while it runs: one more broker, a link more, a link less (FUT-06, FUT-09).

`veena network up` listens on a port of loopback and writes where, with a token, to `control.json` in its directory, a
file that only its user reads. A question is one line of JSON with the token, the answer one line as well:

    {"token": "...", "add": "boston.1", "neighbours": ["syracuse.1"]}   -> {"label", "url", "pid"}
    {"token": "...", "link": ["a.1", "b.1"]}                            -> {"linked": ["a.1", "b.1"]}
    {"token": "...", "drop": ["a.1", "b.1"]}                            -> {"dropped": ["a.1", "b.1"]}

What is wrong is answered with {"error": "..."}. Changes are made one after the other.

Rejected: a Unix socket (its path may be no longer than a hundred characters, and a directory is anybody's choice);
signals with a file to read (nobody would hear whether it worked).
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any, Literal

import msgspec

from veena.errors import ConfigError, NotConnected, Refused, VeenaError
from veena.runtime.fleet.fleet import ADD_S, Fleet

#: A question and an answer; and how long a question may take to come.
MAX_LINE = 16 * 1024
QUESTION_S = 5.0
#: Visitors at once: more than people who click.
MAX_VISITORS = 16
CONTROL_FILE = "control.json"
HOST = "127.0.0.1"

_Label = str
_Pair = tuple[_Label, _Label]


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: str
    add: _Label | None = None
    neighbours: tuple[_Label, ...] = ()
    link: _Pair | None = None
    drop: _Pair | None = None


_questions = msgspec.json.Decoder(_Question)


class ControlServer:
    """The ear of one fleet: `async with ControlServer(fleet) as file`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._token = secrets.token_hex(16)
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._visitors = 0
        self.file = fleet.directory / CONTROL_FILE

    async def __aenter__(self) -> Path:
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=MAX_LINE)
        port = self._server.sockets[0].getsockname()[1]
        self.file.unlink(missing_ok=True)  # of an earlier life, with rights that somebody may have changed
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"port": port, "token": self._token}, file)
        return self.file

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        self.file.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._visitors += 1
        try:
            if self._visitors <= MAX_VISITORS:
                async with asyncio.timeout(QUESTION_S):
                    line = await reader.readline()
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # whoever that was is gone, or not worth an answer
        finally:
            self._visitors -= 1
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            question = _questions.decode(line)
        except msgspec.MsgspecError as error:
            return {"error": f"not a question that a fleet answers: {error}"}
        if not secrets.compare_digest(question.token.encode(), self._token.encode()):
            return {"error": f"wrong token: it is in {CONTROL_FILE}, where the fleet keeps its data"}
        async with self._turn:
            try:
                return await self._do(question)
            except (VeenaError, OSError) as error:
                return {"error": str(error)}

    async def _do(self, question: _Question) -> dict[str, Any]:
        if question.add is not None:
            member = await self._fleet.add(question.add, question.neighbours)
            return {"label": member.label, "url": member.url, "pid": member.pid}
        if question.link is not None:
            await self._fleet.add_link(*question.link)
            return {"linked": question.link}
        if question.drop is not None:
            await self._fleet.drop_link(*question.drop)
            return {"dropped": question.drop}
        return {"error": "nothing was asked: write add, link or drop"}


class FleetControl:
    """Speaks to a fleet of another process, by its `control.json`."""

    def __init__(self, file: Path) -> None:
        """Raise ConfigError when there is no fleet."""
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            self._port, self._token = int(told["port"]), str(told["token"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"cannot be read ({error})"
            remedy = "name the control.json that a running `veena network up FILE --data DIR` keeps in DIR"
            raise ConfigError(str(file), "control", reason, remedy) from None

    async def add_broker(self, label: str, neighbours: tuple[str, ...]) -> str:
        """Start a broker; where it listens."""
        answer = await self._ask({"add": label, "neighbours": neighbours}, ADD_S + QUESTION_S)
        return str(answer["url"])

    async def change_link(self, what: Literal["link", "drop"], ends: tuple[str, str]) -> None:
        await self._ask({what: ends}, QUESTION_S)

    async def _ask(self, question: dict[str, Any], patience_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(patience_s):
                reader, writer = await asyncio.open_connection(HOST, self._port, limit=MAX_LINE)
                try:
                    writer.write(json.dumps({"token": self._token, **question}).encode() + b"\n")
                    answer: dict[str, Any] = json.loads(await reader.readline())
                finally:
                    writer.close()
        except TimeoutError:
            raise NotConnected(f"the fleet did not answer within {patience_s:g} seconds") from None
        except (OSError, ValueError) as error:
            raise NotConnected(f"the fleet does not answer ({error}): is `veena network up` still running?") from None
        if "error" in answer:
            raise Refused(answer["error"])
        return answer
