"""A real Spark cluster on this machine: a standalone master and workers as processes of their own, on loopback.

They come from the PySpark package alone (its `spark-class`; the package has no start scripts). A master picks its own
port and tells it in its log, as a worker tells there that the master took it in: so this knows when all are up.
Each runs under `guard.py`, whose standard input is a pipe from here: no process outlives this one, however it ends.

Whoever can have the master start a program runs it as this user, and all users of a machine reach its loopback. So
master, workers, drivers and executors ask each other for a secret (`cluster_secret`), which only this user can read.
Their web pages show what runs and its logs to all users of the machine, and let nobody end it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from veena.errors import PipelineError
from veena.spark.launch.cluster_secret import ClusterSecret
from veena.spark.launch.java import java_home

#: More on one machine only gets in its own way; a typing error should not start a thousand Javas.
WORKERS_MAX: Final = 64
#: Two Javas on a busy machine need some seconds each; a member that is silent for so long will not come.
START_S_MAX: Final = 120.0
#: Longer than the guard's own patience.
STOP_S: Final = 12.0
#: A start is looked at so often.
_POLL_S: Final = 0.1
#: Heap of a master or a worker; the work is done by executors, which have their own.
_DAEMON_MEMORY: Final = "512m"
#: They wait more than they work: start fast, and take little.
_DAEMON_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.ui.killEnabled=false"
_LAST_LINES: Final = 5
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master (spark://\S+)")
_PAGE = re.compile(r"(?:MasterWebUI|WorkerWebUI)\b.*? at (http://\S+)")
_LOG_SETTINGS: Final = """rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(slots=True)
class Member:
    """A master or a worker."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    #: Where the log is read on from.
    read_to: int = 0
    url: str | None = None
    #: Its web page.
    page: str | None = None
    is_gone: bool = field(default=False)

    @property
    def pid(self) -> int:
        """The guard: ending it ends the Java."""
        return self.process.pid

    @property
    def is_up(self) -> bool:
        """A master is up when it listens and its page is there, a worker when the master has taken it in."""
        return self.url is not None and self.page is not None


class Cluster:
    """A master and its workers; `with Cluster(directory) as cluster: session(cluster.master_url)`."""

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        on_up: Callable[[Member], None] = lambda member: None,
    ) -> None:
        if not 1 <= workers <= WORKERS_MAX:
            raise PipelineError(f"workers {workers}: expected 1 to {WORKERS_MAX}")
        if cores < 1:
            raise PipelineError(f"cores {cores}: a worker needs at least 1")
        if not re.fullmatch(r"[1-9]\d*[mg]", memory):
            raise PipelineError(f"memory {memory!r}: expected a number with a unit, as 512m or 2g")
        self.directory = directory
        self.members: list[Member] = []
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._on_up = on_up
        self._secret: ClusterSecret | None = None

    @property
    def secret(self) -> Path:
        """The file of properties with which programs run there, for `spark-submit`."""
        if self._secret is None:
            raise PipelineError("the cluster is not up; call start() first")
        return self._secret.path

    @property
    def master_url(self) -> str:
        url = self.members[0].url if self.members else None
        if url is None:
            raise PipelineError("the cluster is not up; call start() first")
        return url

    def start(self) -> None:
        """Start all; returns when the master has taken every worker in."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.directory / "log4j2.properties").write_text(_LOG_SETTINGS)
        self._secret = ClusterSecret()
        try:
            master = self._spawn(
                "master", "org.apache.spark.deploy.master.Master", ["--port", "0", "--webui-port", "0"]
            )
            self._await([master])
            self._secret.is_for(self.master_url)
            for number in range(1, self._workers + 1):
                self._spawn_worker(number)
            self._await(self.members[1:])
        except BaseException:
            self.stop()
            raise

    def lost(self) -> list[Member]:
        """The members that ended since this was last asked."""
        gone = [member for member in self.members if not member.is_gone and member.process.poll() is not None]
        for member in gone:
            member.is_gone = True
        return gone

    def is_alive(self) -> bool:
        """Whether jobs can run: the master and at least one worker are there."""
        alive = [member.process.poll() is None for member in self.members]
        return bool(alive) and alive[0] and any(alive[1:])

    def stop(self) -> None:
        """End all, workers first, and wait until they are gone."""
        for member in reversed(self.members):
            assert member.process.stdin is not None
            member.process.stdin.close()
        deadline = time.monotonic() + STOP_S
        for member in self.members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            member.output.close()
        self.members.clear()
        if self._secret is not None:
            self._secret.forget()
            self._secret = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- one member ---

    def _spawn_worker(self, number: int) -> None:
        name = f"worker-{number}"
        arguments = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self.directory / name)]
        self._spawn(name, "org.apache.spark.deploy.worker.Worker", [*arguments, "--webui-port", "0", self.master_url])

    def _spawn(self, name: str, role: str, arguments: list[str]) -> Member:
        import pyspark

        spark_home = Path(pyspark.__file__).parent
        settings = self.directory / "log4j2.properties"
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": f"{_DAEMON_JAVA} -Dlog4j2.configurationFile={settings.as_uri()}",
        }
        guard = str(Path(__file__).with_name("guard.py"))
        command = [sys.executable, "-I", guard, str(spark_home / "bin" / "spark-class"), role, "--host", "127.0.0.1"]
        command += ["--properties-file", str(self.secret)]
        log = self.directory / f"{name}.log"
        output = log.open("wb")
        process = subprocess.Popen(  # noqa: S603 - the package's own programs
            [*command, *arguments], stdin=subprocess.PIPE, stdout=output, stderr=output,
            env=environment, start_new_session=True,
        )  # fmt: skip
        member = Member(name, log, process, output)
        self.members.append(member)
        return member

    def _await(self, waited: list[Member]) -> None:
        """Until each of these has told that it is up."""
        deadline = time.monotonic() + START_S_MAX
        missing = list(waited)
        while missing:
            for member in list(missing):
                self._read(member)
                if member.is_up:
                    missing.remove(member)
                    self._on_up(member)
                elif (code := member.process.poll()) is not None:
                    raise PipelineError(f"{member.name} did not start (exit code {code}): {_last_lines(member.log)}")
            if missing and time.monotonic() > deadline:
                raise PipelineError(
                    f"{missing[0].name} did not start within {START_S_MAX:.0f} s: {_last_lines(missing[0].log)}"
                )
            if missing:
                time.sleep(_POLL_S)

    def _read(self, member: Member) -> None:
        """What is new in a member's log, by whole lines."""
        with member.log.open("rb") as log:
            log.seek(member.read_to)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        member.read_to += len(whole)
        text = whole.decode(errors="replace")
        if member.page is None and (page := _PAGE.search(text)):
            member.page = page.group(1)
        if told := (_MASTER if member.name == "master" else _REGISTERED).search(text):
            member.url = told.group(1)


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    return " | ".join(lines) or "it said nothing"
