"""One network, one portal and one browser for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.site import Site
from tests.browser.site import site as make_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sync_playwright() as playwright, make_site(tmp_path_factory.mktemp("portal"), playwright) as made:
        yield made
