"""The data pipeline on Spark: whatever handles events in bulk (design §8). The live path never waits for it.

    import veena.spark
    spark = veena.spark.session()                    # local[*], or master="spark://host:7077"
    events = spark.read.format("veena").option("url", "veena://127.0.0.1:7700").load()
    pairs = veena.spark.match(events, profiles)

Needs `pip install veena[spark]`. Importing this package is cheap; PySpark is loaded when a name of it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

#: Public name -> the module that has it.
_HOMES = {
    "Access": "veena.spark.log_wire",
    "LogClient": "veena.spark.log_client",
    "StageClient": "veena.spark.stage_client",
    "replay": "veena.spark.replay",
    "session": "veena.spark.session",
    "match": "veena.spark.bulk_match",
    "destinations": "veena.spark.bulk_match",
    "match_stream": "veena.spark.match_stream",
    "profile_set": "veena.spark.match_snapshot",
    "Profile": "veena.spark.match_snapshot",
    "StoredProfiles": "veena.spark.match_profiles",
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


class _Package(ModuleType):
    """Some modules have the name of what they are for: `veena.spark.session` is the function, whoever imported what."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
