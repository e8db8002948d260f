"""`veena cluster up`: a real master and two workers, with a job whose code is shipped to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veena.errors import PipelineError
from veena.spark.cluster import Cluster

#: Starting three Javas and a driver on a busy machine.
PATIENCE_S = 400.0
#: The workers have this package installed, so the job tells from where it was imported, and where it ran.
JOB = """
import json, sys
from veena.spark.session import session

spark = session(sys.argv[1], memory="512m", conf={
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})

def where(batches):
    import os
    import time
    import pyarrow as pa
    import veena.event
    for batch in batches:
        time.sleep(0.5)
        yield pa.RecordBatch.from_pydict({"code": [veena.event.__file__], "at": [os.getcwd()]})

rows = spark.range(0, 8, 1, 8).mapInArrow(where, "code string, at string").distinct().collect()
print(json.dumps([row.asDict() for row in rows]))
"""


@pytest.mark.timeout(900)
def test_a_job_runs_on_two_workers_with_shipped_code_and_nothing_is_left_after_kill_9(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "veena.cli",
        "cluster",
        "up",
        "--json",
        "--memory",
        "512m",
        "--data",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = [json.loads(process.stdout.readline()) for _ in range(4)]
            assert told[0]["name"] == "master" and {line["name"] for line in told[1:3]} == {"worker-1", "worker-2"}
            assert told[3] == {"ready": True, "master": told[0]["url"]}
            assert told[0]["url"].startswith("spark://127.0.0.1:")
            output = subprocess.run(
                [sys.executable, "-c", JOB, told[0]["url"]], capture_output=True, text=True, timeout=PATIENCE_S
            )
            assert output.returncode == 0, output.stderr
            rows = json.loads(output.stdout)
            assert {Path(row["at"]).relative_to(tmp_path).parts[0] for row in rows} == {"worker-1", "worker-2"}
            assert all("veena.zip" in row["code"] for row in rows)
            members = processes_mentioning(str(tmp_path))
            assert len(members) >= 3
        finally:
            process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while left := processes_mentioning(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


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
