"""One site and one browser for all tests of the pages."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import pytest

from tests.arena.conftest import running_server
from tests.arena.tail_stand import Author, serving
from tests.keys import generate_signer
from tests.web.site_stand import NAMES, NOW_MS, Site, Words, explain

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDE = 1280  # css pixels
# the screen of a machine without one, and none of the browser's own errands
OPTIONS = ("--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run")
SERIOUS = ("serious", "critical")


def chromium() -> str:
    """The program: where `make test` puts it, or on the path."""
    beside = Path(sys.prefix) / "bin" / "chromium"
    found = str(beside) if beside.exists() else shutil.which("chromium") or ""
    if not found and not os.environ.get("CI"):
        pytest.skip("no Chromium here: `make test` takes it from Debian's package chromium")
    assert found, "Chromium is missing"
    return found


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium until the block ends."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One window of the browser on a site. `elsewhere`: requests for anything that is not this site's; `said`: what
    scripts failed with."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.address = address
        self.elsewhere: list[str] = []
        self.said: list[str] = []
        self._context = browser.new_context(viewport={"width": WIDE, "height": 900})
        self._context.set_default_timeout(15_000)
        self._context.on("request", self._note)
        self.page = self._context.new_page()
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.address + "/", "data:")):
            self.elsewhere.append(request.url)

    def go(self, path: str) -> int:
        """Open a page; its status."""
        answer = self.page.goto(self.address + path, wait_until="load")
        return answer.status if answer else 0

    def text(self, selector: str = "main") -> str:
        """What is read there."""
        return self.page.inner_text(selector)

    def follow(self, selector: str) -> str:
        """Click a link and wait for its page; its path."""
        with self.page.expect_navigation(wait_until="load"):
            self.page.click(selector)
        return self.page.url.removeprefix(self.address)

    def too_wide(self) -> list[int]:
        """Pixels by which the page is wider than a telephone's and a wide window; 0: it never scrolls sideways."""
        found = []
        for width in (390, WIDE):
            self.page.set_viewport_size({"width": width, "height": 900})
            found.append(self.page.evaluate("Math.max(0, document.documentElement.scrollWidth - innerWidth)"))
        return found

    def faults(self) -> list[str]:
        """Serious and critical findings of axe: rule and the elements."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response["violations"]
        return [
            f"{one['id']}: {node['html'][:160]}" for one in found if one["impact"] in SERIOUS for node in one["nodes"]
        ]


BITE = (
    "<script>alert(1)</script>\"'><img src=//evil.example/x onerror=alert(2)><a href=javascript:alert(3)>x</a>{{7*7}}"
)
BIDI = "\u202e\u2066\u200f\u0007\x1b[31m"
LONG = "A" * 1_000_000
HOSTILE = Words(
    names=tuple(f"{BIDI}{BITE}{number}" for number in range(len(NAMES))),
    query=f"{BITE}{BIDI}{LONG[:20_000]}",
    said=f"{BITE}{BIDI} 480 pesos",
    long=LONG,
    product=f"{BITE}{BIDI}",
    judged=f"</dd></dl>{BITE}{BIDI}{LONG[:20_000]}",
    source=f"# {BITE}{BIDI}\n{LONG}\n" + "x\n" * 5_000,
    finding=f"{BITE}{BIDI}",
)


class Served(NamedTuple):
    """A site at an address, and a plain client of it."""

    site: Site
    http: httpx2.Client

    @property
    def address(self) -> str:
        return str(self.http.base_url).rstrip("/")


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def served(postgres) -> Iterator[Served]:
    signer = generate_signer()
    site = Site(Author(postgres.dsn_for(signer.hotkey), signer))
    site.fill()
    with (
        serving(site.author.dsn, now_ms=lambda: NOW_MS, explain=explain, requests_per_s=1e6) as server,
        httpx2.Client(base_url=server.address, timeout=30) as http,
    ):
        yield Served(site, http)


@pytest.fixture(scope="session")
def hostile(postgres) -> Iterator[httpx2.Client]:
    signer = generate_signer()
    site = Site(Author(postgres.dsn_for(signer.hotkey), signer), HOSTILE)
    site.fill(agents=2)
    told = partial(explain, words=HOSTILE)
    with (
        serving(site.author.dsn, now_ms=lambda: NOW_MS, explain=told, requests_per_s=1e6) as server,
        httpx2.Client(base_url=server.address, timeout=60, headers={"accept": "text/html"}) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def browser(served: Served) -> Iterator[Browser]:
    """After the nodes and no longer than a file's tests: its driver keeps an event loop in this thread."""
    with open_browser() as opened:
        yield opened


@pytest.fixture
def visitor(browser: Browser, served: Served) -> Iterator[Visitor]:
    """Somebody with a wide screen."""
    with Visitor(browser, served.address) as made:
        yield made
