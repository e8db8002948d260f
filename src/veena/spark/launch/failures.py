"""What went wrong in a job on Spark, in one line: Python's own words out of a failure that has been through Java.

Spark tells a failure with the stacks of both languages. A user is told the cause; the whole of it is in the exception
for whoever calls from Python.
"""

from __future__ import annotations

import re
from typing import Final

from veena.errors import PipelineError

#: What a query's failure says when a broker was away, or a worker of Spark's did not live: both may pass.
_PASSING: Final = (
    "errors.NotConnected",
    "errors.TimedOut",
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "CANNOT_OPEN_SOCKET",
    "ExecutorLostFailure",
)
#: The last line of a traceback: `package.module.Error: what happened`.
_ERROR: Final = re.compile(r"(?!org\.|java\.|py4j\.|scala\.|pyspark\.|Suppressed: |Caused by: )[a-zA-Z_][\w.]*: ")
#: Java's: `: org.apache.spark.SparkException: what happened`, as Py4J prints it.
_JAVA_ERROR: Final = re.compile(r":? ?(?:org|java|scala)\.[\w.$]+: (?=\S)")
#: What Spark says after the cause, and Py4J before it.
_TRAILER: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_PY4J: Final = "An error occurred while calling"


def is_passing(error: BaseException) -> bool:
    """Whether the same may succeed when it is tried again."""
    return any(name in str(error) for name in _PASSING)


def brief(error: BaseException) -> PipelineError:
    """The same in one line, from which `is_passing` can still tell."""
    text = str(error)
    passing = next((f" [{name}]" for name in _PASSING if name in text), "")
    return PipelineError(reason(text) + passing)


def reason(text: str) -> str:
    """What Python said: the last error of the first traceback; else what Java said first."""
    text = text.partition("=== Streaming Query ===")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_PY4J)]
    told = [line for line in lines if _ERROR.match(line)]
    ours = [line.partition(": ")[2] for line in told if line.startswith("veena.errors.")]
    if ours or told:
        return (ours or told)[0]
    first = _TRAILER.sub("", _JAVA_ERROR.sub("", lines[0], count=1)) if lines else ""
    return first or "for no reason that is known"
