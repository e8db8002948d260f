"""One Spark session for all tests of a process: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from veena.spark.launch.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]` with little memory and few shuffle partitions; make no other session in a test process.

    `settings/spark-defaults.conf` and `tests/conftest.py` have the other settings that make small jobs cheap.
    """
    running = session("local[2]", app="veena-tests", memory="1g", conf={"spark.sql.shuffle.partitions": "2"})
    yield running
    running.stop()
