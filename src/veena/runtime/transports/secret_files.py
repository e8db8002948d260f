"""Files that hold secrets: users files, keys of certificates, tokens. Only their owner may read them.

Whoever can read a users file can try passwords on a machine of his own, and whoever can read a key can be that broker.
A file that others of this machine can read is refused with its mode and the command that mends it, before anything in
it is used.

The owner may be another user than the broker's: a container runs as root, or is handed files of root. A file of root
that a broker without root's rights reads through its group has to be readable for that group, and may be.

Rejected: changing the mode. A secret that others could read may be known already, and its owner is to decide about it.
"""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from veena.errors import ConfigError

#: The mode of a file with secrets.
PRIVATE: Final = 0o600
_READ_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
_CHANGED_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def check_secret(path: Path) -> None:
    """Raise ConfigError where others of this machine can read or change this file; other faults its reader tells."""
    with suppress(OSError):
        found = path.stat()
        shared = _shared(found)
        if not stat.S_ISREG(found.st_mode) or not shared:
            return
        verbs = [verb for verb, bits in (("read", _READ_BY_OTHERS), ("change", _CHANGED_BY_OTHERS)) if shared & bits]
        reason = f"is {stat.S_IMODE(found.st_mode):04o}: others on this machine can {' and '.join(verbs)} this secret"
        raise ConfigError(str(path), "mode", reason, f"chmod {PRIVATE:o} {shlex.quote(str(path))}")


def check_not_open(path: Path) -> None:
    """Raise ConfigError where everybody of this machine can change this file, though it holds no secrets."""
    found = path.stat()
    if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
        reason = f"is {stat.S_IMODE(found.st_mode):04o}: everybody on this machine can change this file"
        raise ConfigError(str(path), "mode", reason, f"chmod o-w {shlex.quote(str(path))}")


def write_secret(path: Path, text: str) -> None:
    """Write a file that only this user can read, from its first byte on, whatever mode it had."""
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w", encoding="utf-8") as file:
        file.write(text)


def open_private(path: str, flags: int) -> int:
    """For `open(..., opener=open_private)`: a new file gets the mode of a secret."""
    return os.open(path, flags, PRIVATE)


def _shared(found: os.stat_result) -> int:
    """The rights that others have to a file and should not have."""
    shared = found.st_mode & (_READ_BY_OTHERS | _CHANGED_BY_OTHERS)
    is_lent = found.st_uid == 0 and os.geteuid() != 0
    return shared & ~stat.S_IRGRP if is_lent else shared
