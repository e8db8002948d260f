"""The pages about the network in a real Chromium: signing in, the picture, traces, discovery."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

import veena.blocking
from tests.browser.site import PASSWORDS, PHONE, Site, sign_in


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


def test_a_phone_in_the_dark_sees_everything_without_scrolling_sideways(site: Site) -> None:
    with site.visitor("ann", size=PHONE, dark=True, path="topology") as page:
        for path in ("topology", "traffic", "clients", "events", "discovery", "applications", "applications/heat"):
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
