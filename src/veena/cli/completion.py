"""What the shell offers for arguments: TOML files, and the brokers of a network file.

Shells differ in whether they offer files of themselves where a command has nothing to say; so this says it.
"""

from __future__ import annotations

from pathlib import Path

import typer

#: More than anybody reads after a key press.
MAX_OFFERS = 256
#: A longer network file is not read for every key press.
MAX_FILE_BYTES = 1 << 20


def toml_files(incomplete: str) -> list[str]:
    """Files that end in .toml, and directories on the way to them."""
    directory, _, name = incomplete.rpartition("/")
    shown = f"{directory}/" if "/" in incomplete else ""
    try:
        found = sorted(Path(shown or ".").expanduser().iterdir())
    except OSError:
        return []
    offers = [
        f"{shown}{path.name}{'/' if path.is_dir() else ''}"
        for path in found
        if path.name.startswith(name)
        and (path.suffix == ".toml" or path.is_dir())
        and not (path.name.startswith(".") and not name)
    ]
    return offers[:MAX_OFFERS]


def brokers(context: typer.Context, incomplete: str) -> list[str]:
    """The labels of the network file that is named on the same line."""
    from veena.errors import VeenaError
    from veena.runtime.networks.file import load_network

    # An option without its value ends the reading of the line: what stands before it is left over.
    file = context.params.get("file") or next((each for each in context.args if each.endswith(".toml")), None)
    try:
        if not file or Path(file).stat().st_size > MAX_FILE_BYTES:
            return []
        labels = [broker.label for broker in load_network(file).brokers]
    except (OSError, VeenaError):
        return []  # the command itself says what is wrong with it
    return [label for label in labels if label.startswith(incomplete)][:MAX_OFFERS]
