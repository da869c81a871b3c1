"""A crawler over a node whose every foreign text attacks the page: all of it is shown as text, and no page grows."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser

import httpx
import pytest

from arena.chain.keys import generate_signer
from arena.web.routes import STATIC, static_file
from tests.arena.tail_stand import Author, serving
from tests.web.browser_stand import Visitor
from tests.web.episode_stand import NAMES, NOW_MS, RACES, Words, agent_id, explain
from tests.web.site_stand import Site

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
PAGE_BYTES_MAX = 200_000
ATTRIBUTES_OF_LINKS = ("href", "src", "action", "formaction", "srcset", "data", "poster")
ELEMENTS_NEVER = {
    "img",
    "iframe",
    "object",
    "embed",
    "base",
    "video",
    "audio",
    "foreignobject",
    "template",
    "link",
    "style",
}


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[dict[str, str | None]] = []
        self.wrong: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "script":
            self.scripts.append(found)
        elif tag in ELEMENTS_NEVER and not (tag == "link" and found.get("rel") in ("stylesheet", "icon")):
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or (name == "style" and not re.fullmatch(r"width:[\d.]+%", value or "")):
                self.wrong.append(f"{name}={value}")
            if name in ATTRIBUTES_OF_LINKS and not re.match(r"[/#](?!/)|data:,$", value or ""):
                self.wrong.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def hostile(postgres) -> Iterator[httpx.Client]:
    signer = generate_signer()
    site = Site(Author(postgres.dsn_for(signer.hotkey), signer), HOSTILE)
    site.fill(agents=2)
    with (
        serving(
            site.author.dsn, now_ms=lambda: NOW_MS, explain=partial(explain, words=HOSTILE), requests_per_s=1e6
        ) as server,
        httpx.Client(base_url=server.address, timeout=60, headers={"accept": "text/html"}) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def pages(hostile) -> dict[str, httpx.Response]:
    """Every page that links and forms lead to, with the first answer of each."""
    odd = "/races/%3Cscript%3E", "/no/<script>alert(1)</script>", "/agents?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"
    waiting = ["/", "/races", "/agents", "/firehose", "/validators", "/verify", "/api", *odd]
    waiting += [f"/races/{race}?pool=eval" for race in RACES] + ["/firehose?wrote=code", "/agents?state=review"]
    found: dict[str, httpx.Response] = {}
    while waiting:
        target = waiting.pop()
        if target in found or target.startswith(("/v1/", "/static/", "/openapi")):
            continue
        found[target] = hostile.get(target)
        waiting += [html.unescape(link) for link in re.findall(r'href="(/[^"#]*)', found[target].text)]
    return found


def test_every_foreign_text_is_text(pages):
    assert len(pages) > 40
    for target, answer in pages.items():
        read = Elements(answer.text)
        assert read.wrong == [], target
        assert [one.get("src") for one in read.scripts] == ["/static/site.js"], target
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x08\x0b-\x1f]", "".join(read.text)), target
    shown = [target for target, answer in pages.items() if "alert(1)" in "".join(Elements(answer.text).text)]
    assert all("{{7*7}}" in pages[target].text for target in shown if target.startswith("/traces/"))
    kinds = ("/races/", "/agents/", "/traces/", "/agents?", "/firehose", "/")
    assert all(any(target.startswith(kind) for target in shown) for kind in kinds)


def test_no_page_grows_with_what_it_shows(pages):
    sizes = {target: len(answer.content) for target, answer in pages.items()}
    assert {target: size for target, size in sizes.items() if size > PAGE_BYTES_MAX} == {}


def test_the_script_is_short_and_our_own():
    """Three files are served besides the pages: a stylesheet, a script, and the program that checks proofs."""
    assert set(STATIC) == {"site.css", "site.js", "verify_proof.py"}
    assert static_file("site.js").count(b"\n") <= 300
    assert max(map(len, static_file("site.js").splitlines())) <= 220  # lines that can be read, not a packed library


def test_a_browser_runs_none_of_it(hostile, browser, pages):
    chosen = ["/", f"/agents/{agent_id(0)}", next(target for target in pages if target.startswith("/traces/"))]
    chosen.append(next(target for target in pages if "/problems/" in target))
    with Visitor(browser, str(hostile.base_url).rstrip("/")) as visitor:
        for target in chosen:
            visitor.go(target)
            assert visitor.too_wide() == 0, target
        assert visitor.said == [] and visitor.elsewhere == []
