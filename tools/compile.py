"""The same typed sources through mypyc: a tree that is imported instead of `src`, and runs faster.

    make compiled                                            # or: python tools/compile.py
    PYTHONPATH=build/compiled .venv/bin/veena sim run --seed 7 --faults all
    VEENA_COMPILE=1 pip wheel .                              # the same modules in a wheel (setup.py)

It needs a C compiler and takes some minutes. `make soak` and `make test-compiled` use the tree, but only one that was
made from the sources, with the interpreter and by the script, that are there now: a tree that has fallen behind is
never run.

A seed has the same `trace_hash` either way, so a failure that the compiled brokers find is looked into with the plain
ones. Compiled code differs in five things: a test cannot put its own function in the place of a method, an interpreted
class cannot inherit from a compiled one, an object cannot have attributes that its class does not name, a frozen record
cannot be copied by `copy.deepcopy`, and a value of a wrong type is a bare TypeError where the plain sources may explain
it. The tests that plant something this way carry the marker `replaces` and run on `src` only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "veena"
TARGET = ROOT / "build" / "compiled"
#: Holds the fingerprint of what the tree was made of; written last, so that a tree half made is not taken for one.
MARKER = "made-of"

#: What runs for every event: for the simulator it pays, for a broker that was not measured yet. That is a broker's
#: steps and invariants; its driver, the conversations with its clients, its links and transports; the client; and the
#: world of the simulator. The engines are built on NumPy and lxml. What waits for disks, files or people gains nothing:
#: stores, configuration, users, the command line.
CHOSEN = (
    "address.py",
    "event.py",
    "core/**/*.py",
    "client/*.py",
    "runtime/broker/driver.py",
    "runtime/clients/*.py",
    "runtime/links/*.py",
    "runtime/steps.py",
    "runtime/transports/*.py",
    "sim/world/network.py",
    "sim/world/node.py",
    "sim/world/passage.py",
    "sim/world/timed_broker.py",
    "sim/world/world.py",
)
#: What is chosen by these patterns, but stays plain.
LEFT_OUT = {
    "core/interest/recipient_engine.py": "mypyc cannot compile a class that inherits from an engine, which stays plain",
}
#: A module with a class of these bases stays plain. The first describe themselves to msgspec by their annotations,
#: which mypyc does not keep; of the others it compiles no subclass.
PLAIN_BASES = ("(Struct", "(msgspec.Struct", "(Frame,", "(list", "(dict", "(tuple", "(str)", "(int)", "(bytes)")

#: The file that mypyc writes is large, and most of the time goes into the interpreter's own tuples and dictionaries,
#: which this does not touch. Higher levels were not measured.
OPTIMISATION = "1"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the hot modules of veena with mypyc.")
    parser.add_argument("--target", type=Path, default=TARGET, help="where the tree goes (default: build/compiled)")
    parser.add_argument("--optimisation", default=OPTIMISATION, choices="0123", help="the C compiler's -O level")
    parser.add_argument("--current", action="store_true", help="print the target if it is up to date; make nothing")
    given = parser.parse_args()
    target: Path = given.target.resolve()
    if given.current:
        if is_current(target):
            print(target)
        return
    if is_current(target):
        print(f"{target} is up to date")
        return
    make(target, given.optimisation)


def make(target: Path, optimisation: str) -> None:
    """Copy the package to the target and compile the chosen modules there, beside their sources."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        sys.exit(
            "no C compiler found: install one (gcc or clang), or set CC; without it veena runs on the plain sources"
        )
    if target.exists():
        if not (target / "veena").is_dir():
            sys.exit(f"{target} is there and is no tree of this script's: give another --target")
        shutil.rmtree(target)
    before = fingerprint(SOURCES)
    shutil.copytree(SOURCES, target / "veena", ignore=shutil.ignore_patterns("__pycache__"))
    modules = chosen(target / "veena")
    print(f"compiling {len(modules)} modules into {target}", flush=True)
    environment = {**os.environ, "MYPYC_OPT_LEVEL": optimisation, "MYPYC_DEBUG_LEVEL": "0"}
    log = target / "compile.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "mypyc", *(str(each.relative_to(target)) for each in modules)]
        done = subprocess.run(command, cwd=target, env=environment, stdout=output, stderr=output, check=False)  # noqa: S603 (our own files)
    if done.returncode:
        sys.exit(f"mypyc failed; the end of {log}:\n" + "\n".join(log.read_text().splitlines()[-20:]))
    shutil.rmtree(target / "build")
    (target / MARKER).write_text(before)


def chosen(package: Path) -> list[Path]:
    """The modules to compile, in a copy of the package."""
    found = sorted(path for pattern in CHOSEN for path in package.glob(pattern))
    return [
        path
        for path in found
        if path.name != "__init__.py"  # a room's sign: no code
        and path.relative_to(package).as_posix() not in LEFT_OUT
        and not has_plain_base(path)
    ]


def has_plain_base(path: Path) -> bool:
    lines = path.read_text().splitlines()
    return any(line.startswith("class ") and any(base in line for base in PLAIN_BASES) for line in lines)


def is_current(target: Path) -> bool:
    marker = target / MARKER
    return marker.exists() and marker.read_text() == fingerprint(SOURCES)


def fingerprint(package: Path) -> str:
    """Changes with the sources, the interpreter and this script."""
    told = blake2b(sys.version.encode(), digest_size=16)
    for path in [Path(__file__), *sorted(package.rglob("*.py"))]:
        told.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return told.hexdigest()


if __name__ == "__main__":
    main()
