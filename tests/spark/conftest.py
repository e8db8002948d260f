"""One Spark session for all tests of a process: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from veena.spark.launch.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]` with little memory and few shuffle partitions; make no other session in a test process.

    The settings make small jobs of a short life cheap: plans are run as they are, and Java compiles fast rather than
    well. No result depends on them.
    """
    quick = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    running = session("local[2]", app="veena-tests", memory="1g", conf=quick)
    yield running
    running.stop()
