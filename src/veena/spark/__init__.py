"""The data pipeline on Spark: whatever handles events in bulk (design §8). The live path never waits for it.

    import veena.spark
    spark = veena.spark.session()                    # local[*], or master="spark://host:7077"
    events = spark.read.format("veena").option("url", "veena://127.0.0.1:7700").load()
    pairs = veena.spark.match(events, profiles)

Needs `pip install veena[spark]`. Importing this package is cheap; PySpark is loaded when a name of it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Public name -> the module that has it.
_HOMES = {
    "Access": "veena.spark.log.connection",
    "LogClient": "veena.spark.log.client",
    "StageClient": "veena.spark.sink.staging_client",
    "replay": "veena.spark.sink.replay",
    "session": "veena.spark.launch.session",
    "match": "veena.spark.matching.bulk",
    "destinations": "veena.spark.matching.bulk",
    "match_stream": "veena.spark.matching.stream",
    "profile_set": "veena.spark.matching.snapshot",
    "Profile": "veena.spark.matching.snapshot",
    "StoredProfiles": "veena.spark.matching.profiles",
}

__all__ = [
    "Access",
    "LogClient",
    "Profile",
    "StageClient",
    "StoredProfiles",
    "destinations",
    "match",
    "match_stream",
    "profile_set",
    "replay",
    "session",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'veena.spark' has no {name!r}; it has {', '.join(__all__)}")
