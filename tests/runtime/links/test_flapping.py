"""Links that come and go: a source waits when it makes too many, others do not, and nobody is locked out for good."""

from __future__ import annotations

import asyncio

from tests.runtime.brokers import Place
from tests.runtime.raw_link import link_to
from tests.runtime.streams import until
from veena.address import Address
from veena.runtime.links.flapping import BURST, DEFAULT_PER_S, GOOD_LIFE_S, MAX_SOURCES, ShortLinks

HERE: Address = (0, 0, 0, 0)


def test_a_source_may_make_a_burst_and_then_so_many_a_second() -> None:
    found, now, taken = ShortLinks(per_s=8.0), 100.0, 0
    for _ in range(60 * 200):  # 200 attempts a second, for a minute
        if found.why_not("a", now) is None:
            taken += 1
            found.ended("a", 0.0, now)
        now += 0.005
    assert BURST + 8 * 59 <= taken <= BURST + 8 * 61
    assert found.why_not("b", now) is None, "others do not wait for it"
    assert found.why_not("a", now + 1) is None


def test_a_refusal_says_how_long_and_what_to_change() -> None:
    found = ShortLinks(per_s=0.1)
    for _ in range(BURST + 2):
        found.ended("brokers at 10.0.0.7", 0.1, 5.0)
    why = found.why_not("brokers at 10.0.0.7", 5.0)
    assert why is not None and "brokers at 10.0.0.7" in why and "20.0 seconds" in why and "short_links_per_s" in why


def test_links_that_live_do_not_count() -> None:
    found = ShortLinks(per_s=0.001)
    for _ in range(10 * BURST):
        found.ended("a", GOOD_LIFE_S, 0.0)
    assert found.why_not("a", 0.0) is None and len(found) == 0


def test_sources_are_bounded() -> None:
    found = ShortLinks()
    for each in range(MAX_SOURCES + 10):
        found.ended(str(each), 0.0, float(each))
    assert len(found) == MAX_SOURCES


def test_who_dials_again_and_again_is_refused_and_let_in_later() -> None:
    """FLT: the honest link beside it stays, and a source that pauses makes links again."""

    async def run() -> None:
        here = Place(HERE, "veena://127.0.0.1:0")
        await here.start()
        try:
            honest = await link_to(here.url, (0, 0, 0, 30))
            honest.answers = True
            refused, began = "", asyncio.get_running_loop().time()
            for count in range(100 * BURST):
                refused = await _link_and_leave(here.url, count)
                if refused:
                    break
            more = DEFAULT_PER_S * (asyncio.get_running_loop().time() - began)
            assert BURST <= count <= BURST + more + 2 and "of this machine ended within" in refused
            async with asyncio.timeout(30):
                while await _link_and_leave(here.url, 1000):
                    pass
            assert honest.reason is None and not honest.goodbyes()
        finally:
            await here.stop()

    asyncio.run(run())


async def _link_and_leave(url: str, count: int) -> str:
    """Why a link was refused, if it was; it is over in any case."""
    each = await link_to(url, (0, 0, 1, count % 32), name=f"n{count}", nonce=count)
    each.stream.close("gone")
    await until(lambda: each.reason is not None)
    return "".join(each.goodbyes())
