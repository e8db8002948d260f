"""One Spark session with the settings that every job of Veena wants, from a laptop to a cluster.

What is given here and may be overruled by `conf`: loopback only for masters on this machine, no console noise, no web
page unless a port is asked for, Arrow between Java and Python, times in UTC, the driver's Python for the workers. On a
cluster the package ships itself to the executors; what it depends on (`pip install veena[spark]`) must be there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import os
import re
import socket
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veena.errors import PipelineError
from veena.spark.launch.cluster_secret import shown_to
from veena.spark.launch.failures import reason
from veena.spark.launch.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A quarter of the machine, as brokers and Python workers run beside the driver; Spark starts badly below 1 GiB and a
#: heap above 8 GiB is of use only to who knows why.
MEMORY_MIB_MIN: Final = 1024
MEMORY_MIB_MAX: Final = 8192
#: Spark refuses to start with a heap below 450 MiB, of which Java keeps a part for itself.
MEMORY_MIB_LEAST: Final = 512
#: A master on another continent answers within this.
ANSWER_S: Final = 10.0
#: For commands that look after their streaming queries: Spark need not tell their ends, too.
OWN_STREAMS: Final = {"spark.driver.extraJavaOptions": "-Dveena.log.streams=off"}
#: Tasks of a stage for each core of a master on this machine: a core that was held up by something else leaves its
#: share to the others. Spark's 200 are for many machines: on two cores an audit would start 1,800 tasks for 100 rows.
TASKS_A_CORE: Final = 4
_MEMORY = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)
_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?$")
_UNITS_KIB: Final = {"k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}
#: Loggers of PySpark's that print what the exception says that is raised next.
_TWICE: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SCHEMES: Final = ("spark://", "yarn", "k8s://", "sc://")
#: What a session may set of a server that has started already.
_OF_A_SESSION: Final = (
    "spark.sql.execution.arrow.pyspark.enabled",
    "spark.sql.python.filterPushdown.enabled",
    "spark.sql.session.timeZone",
)
#: The packages that a worker of a cluster needs besides those from PyPI.
_SHIPPED: Final = ("veena", "pyspark_veena")


def session(
    master: str = "local[*]",
    app: str = "veena",
    *,
    memory: str | None = None,
    ui_port: int | None = None,
    conf: Mapping[str, str] = {},
) -> SparkSession:
    """The session of this process, started if there is none yet.

    `memory` is the heap of the driver with a local master, else of each executor ("2g"); `ui_port` turns Spark's web
    page on, on loopback if the master is on this machine; `conf` overrules any setting. Under `spark-submit` its own
    `--master` and `--conf` count.
    """
    _check(master, memory, ui_port)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError(
            f"the pipeline needs PySpark ({error}); install it with `pip install 'veena[spark]'`"
        ) from None
    _quieten()
    if master.startswith("sc://"):
        return _connected(master, app, conf)
    if (running := _running(master)) is not None:
        return running
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    told = _submitted_settings() if is_submitted else {}
    own = settings_for(told.get("spark.master", master), memory, ui_port)
    always: dict[str, str] = {}
    builder = SparkSession.builder.appName(app)
    if not is_submitted:
        _check_answers(master)
        _prepare_environment(master)
        builder = builder.master(master)
        always["spark.driver.extraJavaOptions"] = _java_options(conf)
    for key, value in {**own, **told, **conf, **always}.items():
        builder = builder.config(key, value)
    with shown_to(master):
        spark = _started(builder, master)
    if is_submitted:  # its Java has started with Spark's own log settings
        spark.sparkContext.setLogLevel("WARN")
    if not is_local(spark.sparkContext.master or master):
        spark.sparkContext.addPyFile(str(package_zip()))
    return spark


def settings_for(master: str, memory: str | None = None, ui_port: int | None = None) -> dict[str, str]:
    """What a session is given for this master, before the user's own settings."""
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": str(ui_port is not None).lower(),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",  # for option pushFilters of format("veena")
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"veena-warehouse-{os.getuid()}"),
    }
    if ui_port is not None:
        settings["spark.ui.port"] = str(ui_port)
    if is_local(master):
        settings["spark.driver.memory"] = memory or f"{default_memory_mib()}m"
    elif memory is not None:
        settings["spark.executor.memory"] = memory
    if is_on_this_machine(master):
        tasks = str(TASKS_A_CORE * cores_of(master))
        settings["spark.sql.shuffle.partitions"] = settings["spark.sql.files.minPartitionNum"] = tasks
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def is_on_this_machine(master: str) -> bool:
    """Whether nothing of this session needs to be reached from another machine."""
    if is_local(master):
        return True
    hosts = re.findall(r"(?:spark://|,)(\[[^]]+\]|[^:,/]+)", master)
    return bool(hosts) and all(_is_loopback(host.strip("[]")) for host in hosts)


def cores_of(master: str) -> int:
    """The cores that a master on this machine has: `local`, `local[2]`, or all of them."""
    asked = _LOCAL.match(master)
    if asked is None or asked.group(2) == "*":
        return os.cpu_count() or 1
    return 1 if asked.group(2) is None else int(asked.group(2))


def default_memory_mib() -> int:
    """The heap of a driver that also does the work."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(MEMORY_MIB_MIN, min(MEMORY_MIB_MAX, machine // 4))


def package_zip() -> Path:
    """This package as an archive that executors import from; made anew for every session, removed with the process."""
    import atexit

    directory = Path(tempfile.mkdtemp(prefix="veena-shipped-"))
    path = directory / "veena.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _SHIPPED:
            found = importlib.util.find_spec(name)
            if found is None or found.origin is None:
                continue
            root = Path(found.origin).parent
            for file in sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, f"{name}/{file.relative_to(root)}")

    def remove() -> None:
        with contextlib.suppress(OSError):
            path.unlink()
            directory.rmdir()

    atexit.register(remove)
    return path


def _check(master: str, memory: str | None, ui_port: int | None) -> None:
    if not _LOCAL.match(master) and not master.startswith((*_SCHEMES, "local-cluster[")):
        raise PipelineError(
            f"master {master!r}: expected local[*], local[N], spark://HOST:PORT, yarn, k8s://HOST or sc://HOST:PORT"
        )
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise PipelineError(f"memory {memory!r}: expected a number with a unit, as 512m or 2g")
    if memory is not None and _kib(memory) < MEMORY_MIB_LEAST << 10:
        raise PipelineError(f"memory {memory!r}: Spark needs {MEMORY_MIB_LEAST}m at least")
    if ui_port is not None and not 0 <= ui_port <= 65535:
        raise PipelineError(f"ui_port {ui_port}: expected 0 (any free port) to 65535")


def _kib(memory: str) -> int:
    bare = memory.lower().removesuffix("b")
    return int(bare[:-1]) * _UNITS_KIB[bare[-1]]


def _quieten() -> None:
    from pyspark.logger import PySparkLogger

    for name in _TWICE:
        PySparkLogger.getLogger(name).disabled = True


def _check_answers(master: str) -> None:
    """Refuse a master or server at which nobody listens: Spark would try for a minute and then show its stacks."""
    if not master.startswith(("spark://", "sc://")):
        return
    scheme, _, places = master.partition("://")
    faults: list[str] = []
    for place in places.partition("/")[0].split(","):
        host, _, port = (place if re.search(r":\d+$", place) or scheme == "spark" else f"{place}:15002").rpartition(":")
        if not host or not port.isdigit():
            raise PipelineError(f"master {master!r}: expected {scheme}://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
        except (OSError, OverflowError) as error:
            faults.append(f"{place}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    remedy = "`veena cluster up` starts a cluster on this machine" if scheme == "spark" else "start the server first"
    raise PipelineError(f"master {master!r}: nobody answers ({'; '.join(faults)}); check host and port; {remedy}")


def _started(builder: SparkSession.Builder, master: str) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise PipelineError(f"master {master!r}: Spark did not start: {reason(str(error))}") from error


def _running(master: str) -> SparkSession | None:
    """The session that this process has already. It has one Spark: asking for another would silently give the first."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    if running is None:
        return None
    if "PYSPARK_GATEWAY_PORT" not in os.environ and running.master != master:
        _check_answers(master)
        raise PipelineError(
            f"master {master!r}: this process has a session on {running.master!r}; stop() that one first"
        )
    return SparkSession.builder.getOrCreate()


def _prepare_environment(master: str) -> None:
    """What Spark's launcher and workers read from the environment rather than from settings."""
    os.environ["JAVA_HOME"] = str(java_home())
    if is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    else:  # the workers' Python may lie elsewhere: then the user says where
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _submitted_settings() -> dict[str, str]:
    """What `spark-submit` was given: it counts more than what is usual here."""
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def _java_options(conf: Mapping[str, str]) -> str:
    """Our log settings, then what the user wants."""
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent.parent / 'log4j2.properties').as_uri()}"
    return f"{quiet} {conf.get('spark.driver.extraJavaOptions', '')}".strip()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _connected(url: str, app: str, conf: Mapping[str, str]) -> SparkSession:
    """A session on a Spark Connect server; the package goes there as an artifact."""
    from pyspark.errors import PySparkImportError
    from pyspark.sql import SparkSession

    _check_answers(url)
    try:
        builder = SparkSession.builder.appName(app).remote(url)
        own = {name: settings_for("local")[name] for name in _OF_A_SESSION}
        for key, value in {**own, **conf}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except PySparkImportError as error:
        raise PipelineError(f"Spark Connect needs more packages: `pip install 'pyspark[connect]'` ({error})") from None
    spark.addArtifacts(str(package_zip()), pyfile=True)
    return spark
