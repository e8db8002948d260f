"""The collaboratory in two browsers at once: who sees what, steering and back, talk, refusals, a broker's death."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

import veena.blocking
from tests.browser.site import PASSWORDS, Site
from veena.event import Event


def open_heat(page: Page) -> None:
    page.get_by_role("link", name="Applications").click()
    page.get_by_role("link", name="heat").click()
    expect(page.get_by_role("heading", name="Application heat")).to_be_visible()
    expect(page.locator(".field img")).to_have_attribute("src", re.compile("^data:image/png"))


def put(page: Page, parameter: str, value: str) -> None:
    page.get_by_label(re.compile(f"^{parameter}")).fill(value)
    page.get_by_role("button", name=f"Set {parameter}").click()


def picture(page: Page) -> str:
    return page.locator(".field img").get_attribute("src") or ""


def test_one_steers_and_the_other_sees_it(site: Site) -> None:
    """COL-02, COL-04: a senior steers, a junior sees the change and who made it, and has no wheel."""
    with site.visitor("ann") as ann, site.visitor("joe") as joe:
        open_heat(ann)
        open_heat(joe)
        expect(joe.get_by_role("region", name="Talk")).to_contain_text("ann")
        expect(joe.get_by_role("button", name="Take the wheel")).to_have_count(0)
        expect(joe.get_by_role("region", name="Steering")).to_have_count(0)
        ann.get_by_role("button", name="Take the wheel").click()
        expect(ann.get_by_role("region", name="Steering")).to_contain_text("You drive.")
        put(ann, "source_x", "7")
        expect(ann.locator(".note.bad")).to_contain_text("out of bounds: expected 0 to 1")
        before = picture(joe)
        put(ann, "source_x", "0.25")
        expect(ann.locator(".note.good")).to_contain_text("source_x = 0.25")
        record = joe.get_by_role("region", name="Who steered what")
        expect(record).to_contain_text("source_x = 0.25")
        expect(record).to_contain_text("ann")
        expect(joe.get_by_text("ann drives")).to_be_visible()
        joe.wait_for_function("before => document.querySelector('.field img').src !== before", arg=before)
        expect(joe.get_by_role("region", name="Statistics").locator("canvas")).to_be_visible()
        ann.get_by_role("button", name="Release").click()
        expect(ann.get_by_role("region", name="Steering")).to_contain_text("Nobody drives.")


def test_a_second_driver_is_refused_with_the_reason_until_it_is_handed_over(site: Site) -> None:
    with site.visitor("ann") as ann, site.visitor("bob") as bob:
        open_heat(ann)
        open_heat(bob)
        ann.get_by_role("button", name="Take the wheel").click()
        expect(ann.get_by_text("You drive.")).to_be_visible()
        expect(bob.get_by_label(re.compile("^source_temperature"))).to_be_visible()
        put(bob, "source_temperature", "250")
        expect(bob.locator(".note.bad")).to_contain_text("Refused:")
        expect(bob.locator(".note.bad")).to_contain_text("ann")
        ann.get_by_label("Hand over to").click()
        ann.get_by_role("option", name="bob").click()
        ann.get_by_role("button", name="Hand over").click()
        expect(bob.get_by_text("You drive.")).to_be_visible()
        put(bob, "source_temperature", "250")
        expect(bob.locator(".note.good")).to_contain_text("source_temperature = 250")
        expect(ann.get_by_label(re.compile("^source_temperature"))).to_have_value(re.compile("^250"))
        bob.get_by_role("button", name="Release").click()
        expect(bob.get_by_text("Nobody drives.")).to_be_visible()


def test_people_talk_and_put_notes_on_the_field(site: Site) -> None:
    with site.visitor("joe") as joe, site.visitor("bob") as bob:
        open_heat(joe)
        open_heat(bob)
        expect(joe.get_by_role("region", name="Talk")).to_contain_text("bob")
        joe.get_by_label("Message", exact=True).fill("look at the <b>corner</b>")
        joe.keyboard.press("Enter")
        expect(bob.get_by_role("log")).to_contain_text("look at the <b>corner</b>")
        joe.locator(".field img").click(position={"x": 20, "y": 30})
        expect(joe.get_by_label("x", exact=True)).not_to_have_value("0")
        joe.get_by_label("Annotation").fill("hot spot")
        joe.get_by_role("button", name="Annotate").click()
        expect(bob.locator(".field svg")).to_contain_text("joe: hot spot")
        bob.get_by_role("link", name="History").click()
        history = bob.get_by_role("region", name="What you got and sent")
        expect(history).to_contain_text("hot spot")
        expect(history).to_contain_text("message")


def test_when_the_broker_dies_the_page_says_so_and_comes_back(site: Site) -> None:
    """Nothing in the network needs the portal, and the portal waits for the network."""
    first = site.network.brokers[0]
    with site.visitor("ann", path="applications/heat") as page:
        expect(page.locator(".field img")).to_have_attribute("src", re.compile("^data:image/png"))
        site.network.kill(first)
        try:
            expect(page.get_by_role("alert")).to_contain_text("does not answer")
        finally:
            site.network.restart(first)
        expect(page.get_by_role("alert")).to_have_count(0)
        before = picture(page)
        page.wait_for_function("before => document.querySelector('.field img').src !== before", arg=before)


def test_what_an_adviser_proposes_is_done_on_a_click_by_those_who_may(site: Site) -> None:
    """FUT-07, FUT-09: a publisher far from its audience roams to it, each step visible; a junior only looks."""
    login = {"user": "root", "password": PASSWORDS["root"]}
    with (
        veena.blocking.connect(site.network.url("west.us.boston.1"), client_id="root/writer", **login) as writer,
        veena.blocking.connect(site.network.url("west.eu.rome.1"), client_id="root/reader", **login) as reader,
        site.visitor("joe", path="adviser") as joe,
        site.visitor("root", path="adviser") as page,
    ):
        expect(joe.get_by_text("you need the right")).to_be_visible()
        wanted = reader.subscribe(topic="far")
        for _ in range(10):
            writer.publish_many([Event(topic="far", body=b"x") for _ in range(40)])
            for _ in range(40):
                wanted.next(timeout=30)
        page.get_by_role("button", name="Look again").click()
        proposal = page.locator("section.panel", has_text="root/writer")
        proposal.get_by_role("button", name="Carry it out").click()
        expect(proposal).to_contain_text("1 of 1 clients arrived at west.eu.rome.1")
        expect(proposal.get_by_role("status")).to_have_text("Done.")
