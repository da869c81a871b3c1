"""One site and one browser for all tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import httpx2
import pytest

from tests.arena.conftest import running_server
from tests.arena.tail_stand import Author, serving
from tests.keys import generate_signer
from tests.web.browser_stand import Visitor, open_browser
from tests.web.site_stand import NAMES, NOW_MS, Site, Words, explain

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
