"""The secret of a cluster on this machine: `veena cluster up` makes it, and the sessions of the same user find it.

Master, workers, drivers and executors show each other that they know it (`spark.authenticate`); without it nobody runs
a program there. It stands in a file of Spark properties that only its user can read, beside the master's URL, so that
`spark-submit --properties-file FILE` is enough too. Processes get the file's name on their command lines, which
everybody on the machine can see, and never the secret; executors get that in their environment, from their worker.

The file goes when the cluster ends. One that was left behind by `kill -9` names a process that is gone, and counts for
nothing.

Rejected: `spark.authenticate.secret` among the settings of a session. PySpark writes these on the command line.
"""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from veena.errors import ConfigError, PipelineError
from veena.runtime.transports.secret_files import check_secret, write_secret
from veena.spark.launch.java import cache_directory

#: Bytes of chance.
_SECRET_BYTES: Final = 32
#: A file of ours is a few lines.
_MAX_BYTES: Final = 4096
_OWNER: Final = "# the cluster of process "
_MASTER: Final = "spark.master "
_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


class ClusterSecret:
    """The file of one cluster."""

    def __init__(self) -> None:
        """Make a secret; raise PipelineError where no directory can be written that only this user reads."""
        text = f"{_OWNER}{os.getpid()}\nspark.authenticate true\n"
        text += f"spark.authenticate.secret {secrets.token_hex(_SECRET_BYTES)}\n"
        for place in _places():
            with suppress(OSError):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                if _is_ours(place):
                    self.path = place / f"{os.getpid()}-{secrets.token_hex(4)}.conf"
                    write_secret(self.path, text)
                    return
        tried = " and ".join(map(str, _places()))
        raise PipelineError(
            f"neither {tried} is a directory that this user alone can read and write; set XDG_CACHE_HOME to one"
        )

    def is_for(self, master: str) -> None:
        """The cluster is up: sessions at this master find the secret from now on."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{_MASTER}{master}\n")

    def forget(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def find_secret(master: str) -> Path | None:
    """The file of a cluster that this user has started on this machine; None if that is no such master."""
    for place in _places():
        with suppress(OSError):
            for path in sorted(place.glob("*.conf")) if _is_ours(place) else ():
                if _is_of(path, master):
                    return path
    return None


@contextmanager
def shown_to(master: str) -> Iterator[None]:
    """Let the driver that is started meanwhile read the secret of this master, if it is one of ours."""
    found, before = find_secret(master), os.environ.get(_ARGUMENTS)
    if found is None or "--properties-file" in (before or ""):
        yield
        return
    named = f"--properties-file {shlex.quote(str(found))} --load-spark-defaults"
    os.environ[_ARGUMENTS] = f"{named} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def _places() -> tuple[Path, ...]:
    """Where such files are: with what else is the user's, or where a home cannot be written."""
    return cache_directory() / "clusters", Path(tempfile.gettempdir()) / f"veena-clusters-{os.getuid()}"


def _is_ours(directory: Path) -> bool:
    """Whether nobody else can put files there: the names in a directory for everybody may be taken by anybody."""
    found = directory.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o077


def _is_of(path: Path, master: str) -> bool:
    try:
        check_secret(path)
        lines = path.read_text(encoding="utf-8")[:_MAX_BYTES].splitlines()
    except (OSError, ValueError, ConfigError):
        return False
    owner = next((line.removeprefix(_OWNER) for line in lines if line.startswith(_OWNER)), "")
    if not owner.isdigit() or not _is_alive(int(owner)):
        with suppress(OSError):
            path.unlink()
        return False
    return f"{_MASTER}{master}" in lines


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's, which has the number now
        return False
    return True
