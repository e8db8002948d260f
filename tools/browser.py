"""Finds a Chromium for the tests of the portal, and gets one where there is none.

    python tools/browser.py            # where it is, after getting it if need be; exit code 1 without one
    python tools/browser.py --find     # only look
    python tools/browser.py --fetch    # get the one from the package index, whatever is there

Looked for in this order: `VEENA_BROWSER` (a path), the search path, the usual places, what was fetched before. To get
one: `apt-get install chromium` as root on Debian and its children; otherwise the build for servers that the npm package
@sparticuz/chromium carries (Linux on x86-64; it brings its libraries and a font, and needs no rights). It is read from
the registry that npm, or `NPM_CONFIG_REGISTRY`, names; what is in it is compressed by Brotli, which the node inside
Playwright's driver undoes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

VARIABLE = "VEENA_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PLACES = (
    "/usr/lib/chromium/chromium",
    "/snap/bin/chromium",
    "/opt/google/chrome/chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
REGISTRY = "NPM_CONFIG_REGISTRY"
#: The package, pinned; the digest is the one that the registry names as its integrity.
VERSION = "147.0.0"
DIGEST = "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ=="
#: Larger than the package, which has 68 MB.
MAX_BYTES = 200 << 20
TIMEOUT_S = 120.0
#: Where fetched ones are kept: in the virtual environment, so that they go with it.
KEPT = Path(sys.prefix) / "browser" / VERSION
UNBROTLI = (
    "const [from, to] = process.argv.slice(1); require('fs').createReadStream(from)"
    ".pipe(require('zlib').createBrotliDecompress()).pipe(require('fs').createWriteStream(to))"
)
WRAPPER = """#!/bin/sh
here=$(dirname "$0")
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FONTCONFIG_PATH="$here/fonts"
exec "$here/chromium.bin" "$@"
"""
#: Without a font that it finds, the browser ends at the first input.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{}</dir><dir>/usr/share/fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""


class NoBrowser(Exception):
    """Why there is none."""


def find_browser() -> Path | None:
    """A Chromium that is there."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    return next((path for path in (*map(Path, PLACES), KEPT / "chromium") if path.is_file()), None)


def get_browser() -> Path:
    """One that is there, or is now; raise NoBrowser with what to do."""
    found = find_browser()
    if found is not None:
        if not found.is_file():
            raise NoBrowser(f"{VARIABLE} names {found}, which is no file: correct it, or unset it")
        return found
    _install()
    return find_browser() or fetch(KEPT)


def _install() -> None:
    """By the system's packages, where that is possible."""
    apt = shutil.which("apt-get")
    if apt is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    print("installing chromium by apt-get ...", file=sys.stderr)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ([apt, "update", "-q"], [apt, "install", "-y", "-q", "--no-install-recommends", "chromium"]):
        done = subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 (named above)
        if done.returncode:
            print("apt-get did not do it", file=sys.stderr)
            return


def fetch(directory: Path) -> Path:
    """The build for servers, from the package index, in this directory."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NoBrowser(
            f"no Chromium is here, and none can be fetched for this machine: install one, or set {VARIABLE}"
        )
    url = f"{_registry()}/@sparticuz/chromium/-/chromium-{VERSION}.tgz"
    print(f"fetching {url} ...", file=sys.stderr)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        package = Path(work) / "package.tgz"
        package.write_bytes(_read(url))
        made = Path(work) / "made"
        _unpack(package, Path(work), made, directory.absolute())
        shutil.rmtree(directory, ignore_errors=True)
        made.rename(directory)
    return directory / "chromium"


def _registry() -> str:
    """Where npm gets its packages from."""
    found = os.environ.get(REGISTRY, "")
    npm = shutil.which("npm")
    if not found and npm is not None:
        done = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, check=False)  # noqa: S603
        found = done.stdout.strip()
    if not found.startswith("http"):
        raise NoBrowser(
            f"no Chromium is here, and no npm to get one: install Chromium, set {VARIABLE} to where one is, or set"
            f" {REGISTRY} to a registry of npm packages"
        )
    return found.rstrip("/")


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 (what comes is compared)
            data: bytes = answer.read(MAX_BYTES + 1)
    except OSError as error:
        remedy = f"install Chromium, or set {VARIABLE} to where one is"
        raise NoBrowser(f"no Chromium is here, and {url} cannot be read ({error}): {remedy}") from None
    digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
    if digest != DIGEST:
        raise NoBrowser(f"{url} is not what it should be: its SHA-512 is {digest}, expected {DIGEST}")
    return data


def _unpack(package: Path, work: Path, made: Path, directory: Path) -> None:
    """Put the browser together in `made`, which is to be moved to `directory`."""
    with tarfile.open(package) as whole:
        for name in ("chromium.br", "al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br"):
            whole.extract(f"package/bin/{name}", work, filter="data")
    made.mkdir()
    _undo(work / "package/bin/chromium.br", made / "chromium.bin")
    for name, inside in (("al2023", "lib"), ("fonts", "fonts"), ("swiftshader", ".")):
        _undo(work / f"package/bin/{name}.tar.br", work / f"{name}.tar")
        with tarfile.open(work / f"{name}.tar") as part:
            part.extractall(work / name, filter="data")
        # Whatever directory it is in there: here the files themselves.
        files = [path for path in (work / name).rglob("*") if path.is_file()]
        (made / inside).mkdir(exist_ok=True)
        for path in files:
            shutil.move(path, made / inside / path.name)
    (made / "fonts" / "fonts.conf").write_text(FONTS.format(directory / "fonts"))
    wrapper = made / "chromium"
    wrapper.write_text(WRAPPER)
    for path in (wrapper, made / "chromium.bin"):
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _undo(source: Path, target: Path) -> None:
    """Undo Brotli, which Python has not."""
    import playwright

    node = Path(playwright.__file__).parent / "driver" / "node"
    subprocess.run([node, "-e", UNBROTLI, source, target], check=True)  # noqa: S603 (our own words)


def main() -> int:
    try:
        if "--find" in sys.argv[1:]:
            found = find_browser()
        else:
            found = fetch(KEPT) if "--fetch" in sys.argv[1:] else get_browser()
    except NoBrowser as error:
        print(error, file=sys.stderr)
        return 1
    print(found or "none")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
