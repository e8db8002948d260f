"""The portal in a real Chromium, with several people at once.

One module, so that one network, one portal and one browser do for all of it; and no wider than a module, because
Playwright leaves a loop running in the thread of the tests for as long as it lives.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

import veena.blocking
from tests.browser.site import PASSWORDS, PATIENCE_MS, PHONE, Site, paused, portal, sign_in
from tests.browser.site import site as make_site
from tests.dashboard.pages.test_live_panel import write as write_live
from tests.runtime.processes import veena as started
from veena.event import Event


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sync_playwright() as playwright, make_site(tmp_path_factory.mktemp("portal"), playwright) as made:
        yield made


# --- the network ---


def crumbs(page: Page) -> list[str]:
    return page.get_by_label("Where you are").locator("li").all_inner_texts()


def test_only_those_whom_the_broker_knows_are_let_in(site: Site) -> None:
    page_faults = "Failed to load resource: the server responded with a status of 403 (Forbidden)"
    context = site.browser.new_context()
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.goto(site.url + "topology")
    assert page.url.endswith("/sign-in?next=%2Ftopology")
    sign_in(page, "ann", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("password is wrong")
    assert page.get_by_label("Password").input_value() == ""
    sign_in(page, "ann")
    expect(page.get_by_role("heading", name="Topology", level=1)).to_be_visible()
    expect(page.locator("svg.network")).to_be_visible()
    [cookie] = [each for each in context.cookies() if each["name"] == "veena-portal"]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert PASSWORDS["ann"] not in page.content() and "ann" not in cookie["value"]
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.goto(site.url + "clients")
    assert "/sign-in" in page.url
    context.close()
    assert set(faults) <= {page_faults}, faults


def test_the_picture_leads_into_every_unit_by_click_and_by_keyboard(site: Site) -> None:
    with site.visitor("ann") as page:
        picture = page.locator("svg.network")
        for broker in site.network.brokers:
            expect(picture.locator(f'a[data-unit="{broker}"]')).to_be_visible()
        assert picture.locator("path.link.level-3").count() and picture.locator("circle.broker.level-3").count()
        picture.locator('a[data-unit="west"] > text').click()
        expect(page.get_by_role("heading", name="Super-super-cluster west")).to_be_visible()
        expect(picture.locator('a[data-unit="east"]')).to_have_count(0)
        picture.locator('a[data-unit="west.eu"]').focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Super-cluster west.eu")).to_be_visible()
        assert crumbs(page) == ["Network", "west", "eu"]
        picture.locator('a[data-unit="west.eu.paris.1"]').click()
        expect(page.get_by_role("heading", name="Broker west.eu.paris.1")).to_be_visible()
        expect(page.get_by_label("About this unit")).to_contain_text("Subscriptions")
        expect(picture.locator("circle.selected")).to_have_count(1)
        page.get_by_label("Where you are").get_by_role("link", name="west").click()
        expect(page.get_by_role("heading", name="Super-super-cluster west")).to_be_visible()


def test_a_broker_that_died_is_shown_as_silent_until_it_is_back(site: Site) -> None:
    with site.visitor("ann", path="topology") as page:
        expect(page.locator("svg.network")).to_be_visible()
        page.locator('a[data-unit="west.eu.paris.2"]').focus()
        site.network.kill("west.eu.paris.2")
        try:
            expect(page.locator("circle.broker.silent")).to_have_count(1)
            held = page.evaluate("document.activeElement.dataset.unit")
            assert held == "west.eu.paris.2", "the keyboard's place is kept while the picture changes"
        finally:
            site.network.restart("west.eu.paris.2")
        expect(page.locator("circle.broker.silent")).to_have_count(0)


LINE = """
[network]
name = "line"
levels = 2
fanout = 32

[[broker]]
address = "a.1"

[[broker]]
address = "a.2"

[[broker]]
address = "b.1"

[[link]]
between = ["a.1", "a.2"]

[[link]]
between = ["a.2", "b.1"]
"""


def test_a_link_that_is_suspected_has_another_colour_until_it_answers(site: Site, tmp_path: Path) -> None:
    """FLT-02: of a broker that is there and does nothing the neighbour suspects the link, and the picture shows it."""
    (tmp_path / "line.toml").write_text(LINE)
    with started("network", "up", str(tmp_path / "line.toml"), "--json") as network:
        first, _, last = sorted((network.told() for _ in range(3)), key=lambda told: str(told["address"]))
        assert network.told()["ready"]
        with (
            portal(first["url"], tmp_path / "portal.log") as url,
            site.at(url).visitor(path="topology") as page,
            paused(last["pid"]) as pause,
        ):
            page.get_by_label("Name").fill("ann")
            page.get_by_role("button", name="Sign in").click()
            links, suspected = page.locator("svg.network path.link"), page.locator("svg.network .link.suspected")
            expect(links).to_have_count(2)
            expect(suspected).to_have_count(0)
            usual = links.first.evaluate("e => getComputedStyle(e).stroke")
            pause.begin()
            expect(suspected).to_have_count(1)
            assert suspected.evaluate("e => getComputedStyle(e).stroke") != usual
            pause.end()
            expect(suspected).to_have_count(0)
            expect(links).to_have_count(2)


def test_an_events_way_is_a_path_on_the_picture(site: Site) -> None:
    far = site.network.url("east.jp.tokyo.2")
    login = {"user": "root", "password": PASSWORDS["root"]}
    with (
        veena.blocking.connect(far, client_id="root/reader", **login) as reader,
        veena.blocking.connect(site.network.url("west.eu.rome.1"), client_id="root/writer", **login) as writer,
        site.visitor("root", path="events") as page,
    ):
        quotes = reader.subscribe(topic="quotes", selector="price > 10")
        event_id = writer.publish(topic="quotes", properties={"price": 12.5}, reliable=True)
        quotes.next(timeout=30)
        page.get_by_label("Event id").fill(str(event_id))
        page.get_by_role("button", name="Trace").click()
        picture = page.locator("svg.network")
        expect(picture.locator("g.hop").first).to_be_visible()
        ways = [hop.get_attribute("data-hop") or "" for hop in picture.locator("g.hop").all()]
        assert ways[0].startswith("west.eu.rome.1>") and any(way.endswith(">east.jp.tokyo.2") for way in ways), ways
        expect(picture.locator('a[data-unit="east.jp.tokyo.2"] circle.handed')).to_be_visible()
        expect(page.get_by_role("region", name="Handed to")).to_contain_text("root/reader")
        page.get_by_label("Client id, to explain").fill("root/reader")
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("region", name="Explanation")).to_contain_text("delivered")
        cheap = writer.publish(topic="quotes", properties={"price": 1.5}, reliable=True)
        page.goto(f"{site.url}events?event={cheap}&about=root/reader")
        expect(page.get_by_role("region", name="Explanation")).to_contain_text("price")
        page.get_by_label("Event id").fill("what?")
        page.get_by_role("button", name="Trace").click()
        expect(page.locator(".note.bad")).to_contain_text("what?")


def test_the_box_for_queries_finds_and_says_what_is_wrong(site: Site) -> None:
    with (
        veena.blocking.connect(
            site.network.url("east.jp.tokyo.1"), client_id="root/press", user="root", password=PASSWORDS["root"]
        ) as press,
        site.visitor("ann", path="discovery") as page,
    ):
        press.advertise("printer", properties={"colour": True, "pages": 12})
        box = page.get_by_label("Query")
        box.fill("SELECT client, pages FROM adverts WHERE pages > 10")
        page.get_by_role("button", name="Find").click()
        expect(page.get_by_role("status")).to_contain_text("1 advertisement found")
        expect(page.get_by_role("region", name="Found")).to_contain_text("root/press")
        box.fill("SELECT * FROM adverts WHERE pages >")
        page.get_by_role("button", name="Find").click()
        expect(page.locator(".note.bad")).to_be_visible()


def test_traffic_and_clients_are_listed(site: Site) -> None:
    with site.visitor("ann", path="traffic") as page:
        table = page.get_by_role("region", name="Brokers")
        for broker in site.network.brokers:
            expect(table).to_contain_text(broker)
        expect(page.locator(".chart canvas").first).to_be_visible()
        page.get_by_role("link", name="Clients").click()
        expect(page.get_by_role("region", name="Clients")).to_contain_text("sim/heat")


def test_traffic_shows_what_a_job_on_spark_follows(site: Site, tmp_path: Path) -> None:
    url = site.network.url(site.network.brokers[0])
    with (
        portal(url, tmp_path / "portal.log", "--live", str(tmp_path)) as place,
        site.at(place).visitor("ann", path="traffic") as page,
    ):
        expect(page.get_by_text("waiting for")).to_be_visible()
        write_live(tmp_path, 3)
        expect(page.get_by_text("windows of 10 s")).to_be_visible()
        chart = page.get_by_role("region", name="Latency of deliveries, by Spark").locator("canvas")
        expect(chart).to_be_visible()
        write_live(tmp_path, 2, seconds=20)
        expect(page.get_by_text("windows of 20 s")).to_be_visible()


def test_a_phone_in_the_dark_sees_everything_without_scrolling_sideways(site: Site) -> None:
    with site.visitor("ann", size=PHONE, dark=True, path="topology") as page:
        for path in (
            "topology",
            "traffic",
            "clients",
            "events",
            "discovery",
            "applications",
            "applications/heat",
            "shadow",
        ):
            page.goto(site.url + path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            if path == "topology":
                expect(page.locator("svg.network")).to_be_visible()
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE[0], f"{path} is {width} pixels wide"
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))
        for look, dark in (("Light", False), ("Dark", True), ("Auto", True)):
            page.get_by_label("Light or dark").click()
            expect(page.get_by_label("Light or dark")).to_have_text(look)
            has = re.compile("body--dark" if dark else "body--light")
            expect(page.locator("body")).to_have_class(has)


def test_a_keyboard_reaches_everything_and_sees_where_it_is(site: Site) -> None:
    with site.visitor("ann", path="discovery") as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Skip to the content"
        seen = set()
        for _ in range(25):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate(
                    "(e => (e.innerText || e.getAttribute('aria-label') || '').trim())(document.activeElement)"
                )
            )
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            shown = page.evaluate("document.activeElement.closest('.q-field--focused, body') !== null")
            assert outline != "none" or shown
        assert {"Topology", "Discovery", "Sign out", "Query", "FIND"} & seen >= {"Topology", "Discovery", "Sign out"}
        assert page.locator("main").count() == 1 and page.locator("header").count() == 1
        assert page.locator("nav[aria-label]").count() >= 1
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input,textarea,select')]"
            ".filter(e => e.type !== 'hidden' && !e.labels?.length && !e.getAttribute('aria-label')).length"
        )
        assert unnamed == 0


# --- the collaboratory ---


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
    """COL-02, COL-04, DIC-11: a senior steers, a junior sees the change and who made it, and has no wheel; both find it
    in the record, the senior also who came in."""
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
        for page, is_told in ((ann, True), (joe, False)):
            page.get_by_role("link", name="History").click()
            rows = page.get_by_role("region", name="Who came in, who was refused, who steered")
            expect(rows).to_contain_text("change source_x = 0.25")
            expect(rows).to_contain_text("release")
            came = rows.locator("tr", has_text="came in as junior").filter(has_text="joe")
            expect(came).to_have_count(1 if is_told else 0)


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


def test_one_looks_over_the_shoulder_of_another_who_agrees(site: Site) -> None:
    """COL-03: what bob gets ann gets too, live; not before he agrees, and nothing more when he does no longer."""
    with site.visitor("bob") as bob, site.visitor("ann") as ann:
        open_heat(bob)
        for page in (bob, ann):
            page.get_by_role("link", name="Shoulder").click()
            expect(page.get_by_role("heading", name="Over the shoulder")).to_be_visible()
        ann.get_by_label("Member").click()
        ann.get_by_role("option", name="bob").click()
        ann.get_by_role("button", name="Follow").click()
        expect(ann.locator(".note.bad")).to_contain_text("ask for it")
        bob.get_by_role("switch", name="Let others see what I see").click()
        seen = ann.get_by_role("region", name="What is seen there")
        end = time.monotonic() + PATIENCE_MS / 1000
        while not ann.locator(".note.good").is_visible():  # his broker hears of the switch in a moment
            assert time.monotonic() < end
            ann.get_by_role("button", name="Follow").click()
        expect(seen.get_by_role("status")).to_have_text("What bob sees now.")
        expect(seen.locator("img")).to_have_attribute("src", re.compile("^data:image/png"))
        expect(seen).to_contain_text("computing")
        bob.goto(site.url + "applications/heat")
        bob.get_by_label("Message", exact=True).fill("do you see it too?")
        bob.keyboard.press("Enter")
        expect(seen.get_by_role("log")).to_contain_text("do you see it too?")
        bob.get_by_role("link", name="Shoulder").click()
        bob.get_by_role("switch", name="Let others see what I see").click()
        expect(seen.get_by_role("status")).to_have_text("bob shows nothing now.")


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
