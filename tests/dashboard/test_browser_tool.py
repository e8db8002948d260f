"""The tool that finds a Chromium, and gets one: where it looks, and that it takes only what was meant."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tools import browser


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any browser, and a directory for one."""
    monkeypatch.delenv(browser.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "PLACES", ())
    monkeypatch.setattr(browser, "KEPT", tmp_path / "kept")
    return tmp_path


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_nearest_word_counts_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert browser.find_browser() is None
    kept = program(bare / "kept" / "chromium")
    assert browser.find_browser() == kept
    there = program(bare / "google-chrome")
    assert browser.find_browser() == there
    monkeypatch.setenv(browser.VARIABLE, "/somewhere/chrome")
    assert browser.find_browser() == Path("/somewhere/chrome")
    with pytest.raises(browser.NoBrowser, match=r"VEENA_BROWSER names /somewhere/chrome"):
        browser.get_browser()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registry whose packages are all the same, and wrong."""

    class Wrong(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.startswith("/good/") else 404)
            self.end_headers()
            self.wfile.write(b"something else")

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Wrong)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_not_the_pinned_package_is_not_taken(
    bare: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{registry}/good/")
    with pytest.raises(browser.NoBrowser, match="SHA-512"):
        browser.get_browser()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry)
    with pytest.raises(browser.NoBrowser, match="install Chromium, or set VEENA_BROWSER"):
        browser.get_browser()
    assert not (bare / "kept").exists()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(browser.NoBrowser, match="this machine"):
        browser.get_browser()
