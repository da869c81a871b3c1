"""The pages: every one answers, asks for nothing elsewhere, is small, and shows hostile words as text."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

import arena.web
from arena.chain.keys import generate_signer
from arena.records.model import Subject
from arena.store.port import StoredSubmission
from arena.store.postgres import PostgresStore
from arena.view.reading import Piece, TraceStep, TraceView
from arena.web.figures import bins, shape_panel
from arena.web.reading import LEADERS, TRACE_CHARS, read_source, shorten_trace
from arena.web.routes import render_page
from tests.arena.sealed_stand import OPEN, OPENS_MS, RACES, fill
from tests.arena.tail_stand import Author, serving

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202eevil{{7*7}}"
PAGE_BYTES_MAX = 200_000
PAGES = ("/", "/races", "/agents", "/firehose", "/validators", "/verify", "/api", *(f"/races/{race}" for race in RACES))


@pytest.fixture(scope="module")
def site(postgres) -> Iterator[tuple[httpx.Client, Author]]:
    signer = generate_signer()
    author = Author(postgres.dsn_for(signer.hotkey), signer)
    fill(author)
    with (
        serving(author.dsn, now_ms=lambda: OPENS_MS, requests_per_s=1e6) as server,
        httpx.Client(base_url=server.address, timeout=30) as http,
    ):
        yield http, author


def reached(http: httpx.Client, starts: tuple[str, ...]) -> dict[str, httpx.Response]:
    """Every page that links lead to."""
    found: dict[str, httpx.Response] = {}
    waiting = list(starts)
    while waiting:
        target = waiting.pop()
        if target not in found:
            found[target] = http.get(target)
            if "html" in found[target].headers["content-type"]:
                waiting += [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]*)', found[target].text)]
    return found


def test_every_link_of_every_page_leads_somewhere(site):
    http, _ = site
    found = reached(http, PAGES)
    assert len(found) > 25
    assert {target: answer.status_code for target, answer in found.items() if answer.status_code != 200} == {}


def test_a_page_asks_for_nothing_elsewhere_and_is_small(site):
    http, _ = site
    for target, answer in reached(http, PAGES).items():
        if "html" not in answer.headers["content-type"]:
            continue
        assert len(answer.content) <= PAGE_BYTES_MAX, target
        assert set(re.findall(r"<script[^>]*>", answer.text)) == {'<script src="/static/site.js" defer>'}
        assert not re.search(r"""(?:src|action)=["'](?!/|data:)""", answer.text), target
        assert not re.search(r"""<link[^>]+href=["'](?!/|data:)""", answer.text), target
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.text.count("<h1") == 1 and 'lang="en"' in answer.text
    style = http.get("/static/site.css").text
    assert "url(" not in style and "@import" not in style


def test_the_script_is_short_and_ours_alone():
    script = (Path(arena.web.__file__).parent / "static" / "site.js").read_text()
    assert script.count("\n") <= 300 and "http" not in script.replace("https://", "http")


def test_a_refusal_is_a_page_with_its_code(site):
    http, _ = site
    answer = http.get("/races/race-none")
    assert answer.status_code == 404 and "V2082" in answer.text and "There is no race race-none." in answer.text
    assert http.get("/races?cursor=nonsense").status_code == 400
    assert http.get("/static/../secret").status_code == 404


def test_hostile_names_are_shown_as_text(site):
    http, author = site

    name, hostile = HOSTILE, "fe" * 32

    async def submit() -> None:
        store = await PostgresStore.open(author.dsn)
        subject = Subject(agent_version_id=hostile, miner_hotkey="5hostile", agent_sha256="ab" * 32)
        stored = StoredSubmission(subject=subject, name=name, state="accepted")
        await store.put_submission(stored, f"# {name}\n" + "x" * 1_000_000)
        await store.close()

    asyncio.run(submit())
    deadline = time.monotonic() + 30
    while "&lt;" not in http.get("/agents").text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for target in ("/", "/agents", f"/agents/{hostile}", f"/races/{OPEN}"):
        text = http.get(target).text
        assert "<script>alert" not in text and "<img" not in text and "\u202e" not in text, target
        assert len(text.encode()) < PAGE_BYTES_MAX


def test_a_long_trace_is_cut_but_no_quote():
    quoted = Piece(text="q" * 5_000, quotes=(1,))
    steps = tuple(
        TraceStep(span=n, kind="said", pieces=(quoted if n == 2 else Piece(text="x" * 9_000),)) for n in range(99)
    )
    view = TraceView(name="t", heading="t", result="", query="", facts=(), steps=steps)
    cut = shorten_trace(view)
    assert cut.steps[2].pieces == (quoted,)
    assert sum(len(step.text) for step in cut.steps) <= TRACE_CHARS
    assert "more steps" in cut.steps[-1].title
    assert shorten_trace(msgspec.structs.replace(view, steps=steps[:2])).steps == steps[:2]


def test_a_source_is_shown_with_its_findings_and_counts_what_it_leaves_out():
    lines, more = read_source("a\n" * 5_000 + "b" * 10_000, [(2, "entropy: a key")])
    assert lines[1].findings == ("entropy: a key",) and lines[0].text == "a"
    assert len(lines) + more == 5_001


def test_bins_count_every_value_once():
    assert [(bar.label, bar.count) for bar in bins([1, 2, 3, 9], (2, 4))] == [
        ("0 to 2", 2),
        ("3 to 4", 1),
        ("over 4", 1),
    ]


def test_the_long_tail_is_counted_and_a_repeated_call_is_told_once():
    often, rare = ("find", "find", "view"), [("find", f"tool{number}") for number in range(12)]
    panel = shape_panel([often] * 5 + rare)
    assert (panel.episodes, panel.ways, panel.once) == (17, 13, 12)
    assert (panel.shapes[0].label, panel.shapes[0].count) == ("2 x find, view", 5)
    assert (panel.shapes[-1].label, panel.shapes[-1].count) == ("5 other ways", 5)
    assert (panel.tools[0].label, panel.tools[0].count) == ("find", 17)


def test_an_empty_page_says_what_will_be_there():

    page = {"board": None, "coming": None, "validators": (), "checkpoint": (0, 0)}
    assert b"No race is settled yet" in render_page("front", page=page, path="/")
    assert LEADERS * 3_000 < PAGE_BYTES_MAX


def test_the_firehose_names_the_host_that_was_asked_and_no_command_of_a_client(site):
    http, _ = site

    def named(host: str) -> str:
        found = re.search(r"arena records tail --url (.*) --out", http.get("/firehose", headers={"host": host}).text)
        assert found is not None
        return found[1]

    for _ in range(2):  # an answer that is kept is as right as a new one
        for host in ("other.example", "node.example:8080", "[::1]:80"):
            assert named(host) == f"http://{host}/"
        for host in ("x';id;'", "x$(id)", "a b", "x&y", "x/../y", "", "["):
            assert named(host) == f"{http.base_url}/", host
