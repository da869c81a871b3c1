"""The site of the documents in a real browser: reachable, readable, searchable, and asking nobody else."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.browser_stand import PHONE, Visitor, open_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
PAGES = ("/index.html", "/docs/architecture.html", "/docs/operations.html", "/docs/reference/settings.html")

WRAPPED = (
    "document.querySelectorAll('.md-typeset__scrollwrap[tabindex]').length"
    " === document.querySelectorAll('article table:not([class])').length"
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files, without a line for each on the terminal."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (PHONE, "dark"), (320, "light")])
def test_a_page_fits_is_no_barrier_and_asks_nobody_else(browser, address, width, scheme):
    with Visitor(browser, address, width=width, scheme=scheme) as visitor:
        for path in PAGES:
            assert visitor.go(path) == 200
            visitor.page.wait_for_function(WRAPPED)  # by the theme's script, one after the other
            assert visitor.too_wide() == 0, path
            assert visitor.faults() == [], path
        assert visitor.elsewhere == [] and visitor.said == []


def test_a_wide_table_and_a_block_of_code_scroll_by_themselves_on_a_phone(browser, address):
    scrolls = "(one) => one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX === 'auto'"
    with Visitor(browser, address, width=320) as visitor:
        visitor.go("/docs/reference/settings.html")
        table = visitor.page.locator(".md-typeset__scrollwrap").first
        assert table.evaluate(scrolls)
        lines = visitor.page.locator("td:first-child code").first.evaluate("(one) => one.getClientRects().length")
        assert lines == 1  # a setting's name is never broken
        visitor.go("/docs/operations.html")
        assert visitor.page.locator("pre code").first.evaluate(scrolls)


def test_from_the_start_to_a_page_by_the_menu_and_by_the_search(browser, address):
    with Visitor(browser, address) as visitor:
        visitor.go("/index.html")
        assert visitor.follow(".md-tabs a:has-text('Running')") == "/docs/operations.html"
        field, found = (visitor.page.locator(f".md-search{part}").first for part in ("__input", "-result__link"))
        for _ in range(40):  # the theme hears a key once its script has read the index
            field.fill("embarg")
            field.press("o")
            visitor.page.wait_for_timeout(500)
            if found.is_visible():
                break
        with visitor.page.expect_navigation():
            found.click()
        assert "embargo" in visitor.text("article").lower()
        assert visitor.elsewhere == []


def test_the_dark_scheme_is_dark_and_can_be_chosen(browser, address):
    shade = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    with Visitor(browser, address, scheme="dark") as visitor:
        visitor.go("/index.html")
        assert visitor.page.evaluate(shade) < 200
        visitor.page.locator("label[for^=__palette]:visible").click()
        assert visitor.page.evaluate(shade) > 600
