"""The pictures of the portal in docs/: `python tests/browser/screenshots.py [directory]`."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

import veena.blocking  # noqa: E402
from tests.browser.site import PASSWORDS, PHONE, Site, site  # noqa: E402

#: Long enough for some points in the charts, and some warmth on the plate.
WARM_S = 12.0
DESK = (1100, 820)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    with (
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory() as work,
        site(Path(work), playwright, rows=64) as made,
    ):
        _topology(made, directory)
        _trace(made, directory)
        _application(made, directory)


def _save(page: Page, directory: Path, name: str) -> None:
    path = directory / f"dashboard-{name}.png"
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


def _topology(made: Site, directory: Path) -> None:
    with made.visitor("root", size=DESK) as page:
        expect(page.locator("circle.broker")).to_have_count(len(made.network.brokers))
        _save(page, directory, "topology")
        page.goto(made.url + "traffic")
        expect(page.get_by_role("region", name="Brokers")).to_contain_text(made.network.brokers[-1])
        time.sleep(WARM_S)
        _save(page, directory, "traffic")
    with made.visitor("root", size=PHONE, dark=True) as page:
        expect(page.locator("circle.broker")).to_have_count(len(made.network.brokers))
        _save(page, directory, "phone")


def _trace(made: Site, directory: Path) -> None:
    login = {"user": "root", "password": PASSWORDS["root"]}
    with (
        veena.blocking.connect(made.network.url("east.jp.tokyo.2"), client_id="root/reader", **login) as reader,
        veena.blocking.connect(made.network.url("west.us.boston.1"), client_id="root/third", **login) as third,
        veena.blocking.connect(made.network.url("west.eu.rome.1"), client_id="root/writer", **login) as writer,
        made.visitor("root", size=DESK, path="events") as page,
    ):
        wanted = [each.subscribe(topic="quotes", selector="price > 10") for each in (reader, third)]
        event_id = writer.publish(topic="quotes", properties={"price": 12.5}, reliable=True)
        for each in wanted:
            each.next(timeout=30)
        page.get_by_label("Event id").fill(str(event_id))
        page.get_by_role("button", name="Trace").click()
        expect(page.locator("g.hop").first).to_be_visible()
        _save(page, directory, "trace")


def _application(made: Site, directory: Path) -> None:
    with made.visitor("ann", size=DESK, path="applications/heat") as ann, made.visitor("joe") as joe:
        joe.goto(made.url + "applications/heat")
        expect(ann.locator(".field img")).to_have_attribute("src", re.compile("^data:image/png"))
        ann.get_by_role("button", name="Take the wheel").click()
        expect(ann.get_by_text("You drive.")).to_be_visible()
        ann.get_by_label(re.compile("^diffusivity")).fill("2")
        ann.get_by_role("button", name="Set diffusivity").click()
        expect(ann.locator(".note.good")).to_contain_text("diffusivity")
        joe.get_by_label("Message", exact=True).fill("it spreads faster now")
        joe.keyboard.press("Enter")
        joe.get_by_label("Annotation").fill("the rim stays cold")
        joe.get_by_label("x", exact=True).fill("6")
        joe.get_by_label("y", exact=True).fill("8")
        joe.get_by_role("button", name="Annotate").click()
        expect(ann.locator(".field svg")).to_contain_text("rim stays cold")
        time.sleep(WARM_S / 2)
        _save(ann, directory, "application")


if __name__ == "__main__":
    main()
