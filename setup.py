"""What `pyproject.toml` cannot say: VEENA_COMPILE=1 compiles the hot modules into the wheel.

    VEENA_COMPILE=1 pip wheel .        # needs a C compiler and some minutes; without the variable the wheel is pure

`tools/compile.py` says which modules these are, and why others stay plain.
"""

from __future__ import annotations

import os
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
SOURCES = Path("src", "veena")


def compiled() -> dict[str, Any]:
    """The arguments of `setup` that compile; before the build itself only what it needs is asked for."""
    if "editable_wheel" in sys.argv or "develop" in sys.argv:
        sys.exit("VEENA_COMPILE=1 is for wheels: an editable install imports the sources; see `make compiled`")
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    # mypyc reads types: it needs what the program imports.
    needed = [*project["dependencies"], *project["optional-dependencies"]["compile"]]
    if "bdist_wheel" not in sys.argv:
        return {"setup_requires": needed}
    from mypyc.build import mypycify

    tool = runpy.run_path(str(ROOT / "tools" / "compile.py"))
    paths = [str(path) for path in tool["chosen"](SOURCES)]
    flags = ["--config-file=", "--ignore-missing-imports"]  # what there is for development is no part of a build
    return {"ext_modules": mypycify([*flags, *paths], opt_level=tool["OPTIMISATION"], debug_level="0")}


setup(**(compiled() if os.environ.get("VEENA_COMPILE") == "1" else {}))
