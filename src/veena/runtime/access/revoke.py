"""Revoking a user in the users file: one line is added to its entry, and everything else stays as people wrote it."""

from __future__ import annotations

import os
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

from veena.errors import ConfigError
from veena.runtime.access.users import load_users
from veena.runtime.toml_text import load_toml


def revoke_user(path: Path, name: str) -> bool:
    """Write `revoked = true` into a user's entry; False if that stands there already.

    The new file takes the old one's place as a whole, with its mode and owner. Raises ConfigError where there is no
    such user, or where the entry is written in a way that this does not understand.
    """
    users = load_users(path)
    if not users.knows(name):
        raise ConfigError(str(path), f"user {name!r}", "is not in this file", "write a name that is there")
    if users.is_revoked(name):
        return False
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    at = next((number for number, line in enumerate(lines) if _is_entry(line, name)), None)
    if at is None:
        remedy = f"write revoked = true into it, and send the brokers SIGHUP; an entry of its own begins [user.{name}]"
        raise ConfigError(str(path), f"user {name!r}", "has no table of its own in this file", remedy)
    if not lines[at].endswith("\n"):
        lines[at] += "\n"
    lines.insert(at + 1, "revoked = true\n")
    _replace(path, "".join(lines), name)
    return True


def _is_entry(line: str, name: str) -> bool:
    if not line.lstrip().startswith("["):
        return False
    try:
        return load_toml(line) == {"user": {name: {}}}
    except tomllib.TOMLDecodeError:
        return False


def _replace(path: Path, text: str, name: str) -> None:
    path = path.resolve()
    before = path.stat()
    file, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), before.st_mode & 0o777)
            with suppress(PermissionError):
                os.fchown(out.fileno(), before.st_uid, before.st_gid)
            os.fsync(out.fileno())
        if not load_users(temporary).is_revoked(name):
            remedy = "write revoked = true into it, and send the brokers SIGHUP"
            raise ConfigError(str(path), f"user {name!r}", "could not be revoked in this file", remedy)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
