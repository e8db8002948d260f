"""`veena cluster up`: a real master and two workers; match, archive and audit there are what they are on `local[2]`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import veena
import veena.testing
from tests.spark.audited import run_network
from tests.spark.cluster_job import ENGINES, PROFILES, answers, write_events
from tests.spark.planted import Planting, with_every_fault
from tests.spark.stored import write_archive
from veena.bench.matching.workloads import find
from veena.errors import PipelineError
from veena.spark.launch.cluster import Cluster
from veena.spark.launch.cluster_secret import find_secret

#: Starting three Javas and a driver on a busy machine.
PATIENCE_S = 400.0
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Secrecy:
    """The cluster's secret: command lines that show it while a job runs, whom the master lets in, its file's mode."""

    shown: list[str]
    lets_in: dict[str, bool]
    mode: int


@dataclass(frozen=True)
class Compared:
    """The same work on the cluster and here."""

    directory: Path
    told: list[dict[str, Any]]
    #: Processes of the cluster while it ran, and those that were left after `kill -9` of the command.
    members: list[str]
    left: list[str]
    planted: Planting
    on_cluster: dict[str, Any]
    here: dict[str, Any]
    secrecy: Secrecy


@pytest.fixture(scope="module")
def compared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    directory = tmp_path_factory.mktemp("cluster")
    write_events(directory / "events")
    planted = with_every_fault(run_network(directory / "recorded"))
    write_archive(planted.tables, directory / "planted")
    with veena.testing.network(brokers=2) as net:
        asyncio.run(_publish(net.url("a.1"), net.url("a.2")))
        (directory / "url").write_text(net.url())
        told, members, left, secrecy = _on_a_cluster(directory, spark)
        here = json.loads(json.dumps(answers(spark, directory, directory / "here")))
    on_cluster = json.loads((directory / "answers.json").read_bytes())
    return Compared(directory, told, members, left, planted, on_cluster, here, secrecy)


async def _publish(url: str, other: str) -> None:
    """Events of every engine, at two brokers."""
    random = Random(9)
    async with veena.connect(url, client_id="alice") as alice, veena.connect(other, client_id="bob") as bob:
        for engine in ENGINES:
            drawn = [find(engine, None)[0].event(random, PROFILES) for _ in range(20)]
            await alice.publish_many(drawn[:15], reliable=True)
            await bob.publish_many(drawn[15:], reliable=True)


def _on_a_cluster(directory: Path, spark: SparkSession) -> tuple[list[dict[str, Any]], list[str], list[str], Secrecy]:
    """Run the job there, then `kill -9` the cluster: what it told, its processes, and those that were left."""
    data = directory / "members"
    command = ["cluster", "up", "--json", "--memory", "512m", "--data", str(data)]
    with subprocess.Popen([sys.executable, "-m", "veena.cli", *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = [json.loads(process.stdout.readline()) for _ in range(4)]
            job = [sys.executable, "-m", "tests.spark.cluster_job", told[0]["url"], str(directory)]
            file = find_secret(told[0]["url"])
            assert file is not None, "a session of the same user finds it"
            secret = next(line.split()[1] for line in file.read_text().splitlines() if "authenticate.secret" in line)
            with Watched(secret) as watched:
                output = subprocess.run(job, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
            assert output.returncode == 0, output.stderr
            lets_in = {shown: answers_to(spark, told[0]["url"], shown) for shown in ("", "a guess", secret)}
            lets_in["right"] = lets_in.pop(secret)
            secrecy = Secrecy(watched.found, lets_in, stat.S_IMODE(file.stat().st_mode))
            members = processes_mentioning(str(data))
        finally:
            process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes_mentioning(str(data))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert find_secret(told[0]["url"]) is None, "what it left behind counts for nothing"
    return told, members, left, secrecy


class Watched:
    """Which command lines of this machine have a word in them, for as long as this lasts."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.found: list[str] = []

    def _watch(self) -> None:
        while not self._end.wait(0.3):
            self.found += processes_mentioning(self._word)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def answers_to(spark: SparkSession, master: str, secret: str) -> bool:
    """Whether a master answers a program that shows this secret, or none."""
    from py4j.protocol import Py4JError

    java: Any = spark.sparkContext._jvm
    settings = java.org.apache.spark.SparkConf(False)
    if secret:
        settings.set("spark.authenticate", "true").set("spark.authenticate.secret", secret)
    manager = java.org.apache.spark.SecurityManager
    usual = getattr(getattr(java, "org.apache.spark.SecurityManager$"), "MODULE$")
    defaults = [getattr(usual, f"$lessinit$greater$default${number}")() for number in (2, 3)]
    shown = manager(settings, *defaults)
    if secret:
        shown.initializeAuth()
    host, _, port = master.removeprefix("spark://").partition(":")
    calls = java.org.apache.spark.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, settings, shown, True)
    try:
        calls.setupEndpointRef(java.org.apache.spark.rpc.RpcAddress(host, int(port)), "Master")
    except Py4JError:
        return False
    finally:
        calls.shutdown()
    return True


@pytest.mark.timeout(900)
def test_nobody_else_runs_programs_on_a_cluster(compared: Compared) -> None:
    """SEC: another user of the machine connects to the master, on loopback, and has it start a program as its owner."""
    assert compared.secrecy.lets_in == {"": False, "a guess": False, "right": True}
    assert compared.secrecy.shown == [], "everybody sees the command lines of processes"
    assert compared.secrecy.mode == 0o600


@pytest.mark.timeout(900)
def test_a_job_runs_on_two_workers_with_shipped_code_and_nothing_is_left_after_kill_9(compared: Compared) -> None:
    told = compared.told
    assert told[0]["name"] == "master" and {line["name"] for line in told[1:3]} == {"worker-1", "worker-2"}
    assert told[3] == {"ready": True, "master": told[0]["url"]}
    assert told[0]["url"].startswith("spark://127.0.0.1:")
    data = compared.directory / "members"
    rows = compared.on_cluster["where"]
    assert {Path(at).relative_to(data).parts[0] for _, at in rows} == {"worker-1", "worker-2"}
    assert all("veena.zip" in code for code, _ in rows)
    assert len(compared.members) >= 3
    assert compared.left == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["pairs", "arrays", "vectors", "wide"])
def test_a_match_on_a_cluster_is_the_match_here(compared: Compared, name: str) -> None:
    """ORD-04: pairs and vectors of all engines; the joined ones too, and those by section alone."""
    assert compared.on_cluster[name] == compared.here[name] != []
    if name == "pairs":
        found = {profile_id // 100 for _, _, profile_id in compared.here[name]}
        assert found == set(range(len(ENGINES))), "every engine finds something"


@pytest.mark.timeout(900)
def test_an_archive_by_a_cluster_is_the_archive_by_this_process(compared: Compared) -> None:
    """ORD-02: row by row with every column, of real brokers' logs."""
    assert compared.on_cluster["archive"] == compared.here["archive"]
    assert len(compared.here["archive"]["events"]) == 20 * len(ENGINES)


@pytest.mark.timeout(900)
def test_an_audit_on_a_cluster_names_the_same_faults(compared: Compared) -> None:
    """I1: each planted fault by its name, every number the same."""
    assert _sorted(compared.on_cluster["audit"]) == _sorted(compared.here["audit"])
    named = {(each["kind"], each["event"], each["client"]) for each in compared.on_cluster["audit"]["violations"]}
    assert named == set(compared.planted.expected)


def _sorted(report: dict[str, Any]) -> dict[str, Any]:
    """Violations of a kind have no order among themselves."""
    return {name: sorted(map(repr, each)) if isinstance(each, list) else each for name, each in report.items()}


@pytest.mark.parametrize(
    ("arguments", "named"), [({"workers": 0}, "workers 0"), ({"cores": 0}, "cores 0"), ({"memory": "lots"}, "'lots'")]
)
def test_a_cluster_that_cannot_be_is_refused(tmp_path: Path, arguments: dict[str, int], named: str) -> None:
    with pytest.raises(PipelineError, match=named):
        Cluster(tmp_path, **arguments)  # type: ignore[arg-type]


def processes_mentioning(text: str) -> list[str]:
    """The command lines of all processes that name this directory, but not this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(f"{entry.name} {line[:200]}")
    return found
