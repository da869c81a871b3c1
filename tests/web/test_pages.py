"""The pages over HTTP: every foreign text is shown as text, no page is large or reads the whole log, and what a race
asked and how it ended is told to whom the rule lets see it."""

from __future__ import annotations

import hashlib
import html
import re
from html.parser import HTMLParser

import httpx2
import pytest
from starlette.testclient import TestClient

from arena.api.http import add_refusals, make_app
from arena.records.body import decode_content
from arena.web.server import refusal_page
from tests.arena.tail_stand import Author, serving
from tests.keys import generate_signer
from tests.web.site_stand import ANSWER, ASKED, HOUR_MS, NOW_MS, PUBLISHED, RACES, Site, explain, traces_of

PAGE_BYTES_MAX = 200_000
LINKS = ("href", "src", "action", "formaction", "srcset", "data", "poster")
NEVER = {"img", "iframe", "object", "embed", "base", "video", "audio", "foreignobject", "template", "link", "style"}


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[str | None] = []
        self.wrong: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "script":
            self.scripts.append(found.get("src"))
        elif tag in NEVER and not (tag == "link" and found.get("rel") in ("stylesheet", "icon")):
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or (name == "style" and not re.fullmatch(r"width:[\d.]+%", value or "")):
                self.wrong.append(f"{name}={value}")
            if name in LINKS and not re.match(r"[/#](?!/)|data:,$", value or ""):
                self.wrong.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages(hostile) -> dict[str, httpx2.Response]:
    """Every page that links and forms lead to, with the first answer of each."""
    odd = "/races/%3Cscript%3E", "/no/<script>alert(1)</script>", "/agents?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"
    waiting = ["/", "/races", "/agents", "/firehose", "/validators", "/verify", "/api", *odd]
    waiting += [f"/races/{race}?pool=eval" for race in RACES] + ["/firehose?wrote=code", "/agents?state=review"]
    found: dict[str, httpx2.Response] = {}
    while waiting:
        target = waiting.pop()
        if target in found or target.startswith(("/v1/", "/static/", "/openapi")):
            continue
        found[target] = hostile.get(target)
        waiting += [html.unescape(link) for link in re.findall(r'href="(/[^"#]*)', found[target].text)]
    return found


def test_every_foreign_text_is_text_every_link_leads_somewhere_and_no_page_grows(pages):
    assert len(pages) > 40
    shown = set()
    for target, answer in pages.items():
        read = Elements(answer.text)
        assert (read.wrong, read.scripts) == ([], ["/static/site.js"]), target
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x08\x0b-\x1f]", read.text), target
        assert len(answer.content) <= PAGE_BYTES_MAX, target
        assert answer.status_code == 200 or "script" in target, target
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        shown |= {target} if "alert(1)" in read.text else set()
    assert all("{{7*7}}" in pages[target].text for target in shown if target.startswith("/traces/"))
    kinds = ("/races/", "/agents/", "/traces/", "/agents?", "/firehose", "/")
    assert all(any(target.startswith(kind) for target in shown) for kind in kinds)


def test_the_firehose_names_the_host_that_was_asked_and_no_command_of_a_client(served):
    def named(host: str) -> str:
        page = served.http.get("/firehose", headers={"host": host}).text
        return re.findall(r"arena records tail --url (.*) --after", page)[0]

    for host in ("other.example", "node.example:8080", "[::1]:80"):
        assert named(host) == f"http://{host}/"
    for host in ("x';id;'", "x$(id)", "a b", "["):
        assert named(host) == f"{served.http.base_url}/", host


# -- what a race asked, and how it ended


def page_of(served, path: str) -> str:
    return served.http.get(path, headers={"accept": "text/html"}).text


def test_trace_and_problem_have_what_was_asked_and_which_products_the_rule_accepts(served):
    for place in traces_of(served.http, ASKED):
        page = page_of(served, f"/traces/{place}")
        solved = ">solved, rule" in page
        rows = page[page.index("What was asked, and what was found") : page.index("Scores by product and axis")]
        assert [">at most 500 PHP</td>" in rows, ">480 PHP</td>" in rows] == [True, solved]
        assert ("NO</td>" in rows) == (not solved) and rows.count("<tr>") == 3
    page = page_of(served, f"/races/{PUBLISHED[1]}/problems/{ASKED}")
    asked = page[page.index("What counts as met") : page.index("Who solved it")]
    assert "<td>price</td><td>at most 500 PHP</td>" in asked and "Accepted products" in asked
    assert f"<code>{ANSWER}</code>" in asked and asked.count("(the answer)") == 1
    assert "<code>1010</code>" in asked and asked.count("which an agent recommended") == 1


def test_the_first_page_says_who_is_champion_what_that_pays_and_how_far_the_race_is(served):
    top = served.http.get("/v1/leaderboard").json()["race"]["top_agent_version_id"]
    panel = page_of(served, "/").partition("<h2>Champion</h2>")[2].partition("<h2>Take part</h2>")[0]
    assert (
        f'<p class="big"><a href="/agents/{top}">' in panel
        and "<b>25.0\u00a0%</b> of all that this network pays" in panel
    )
    assert "running, 4 agents, 8 of 80 episodes evaluated" in panel and '<i style="width:10.0%">' in panel
    assert "where fewer than three validators hold a permit it takes 600" in page_of(served, "/rule")


def test_the_data_page_counts_what_the_log_holds_and_its_head_and_checkpoint_are_served(served):
    page, (row,) = page_of(served, "/firehose"), served.http.get("/v1/validators").json()["items"]
    shown = re.findall(r'class="big">([+\d,]+)</span>', page)
    assert shown[:3] == [str(row["episodes"]), "+8", "72"] and f"{row['records']} signed records" in page
    (head,), (point,) = (served.http.get(f"/v1/{name}").json() for name in ("head", "checkpoints"))
    assert head["seq"] == point["size"] == row["records"] and point["validator"] == head["validator"]
    assert point["note_sha256"] == hashlib.sha256(point["note"].encode()).hexdigest()
    assert served.http.get("/v1/checkpoints", params={"after_size": point["size"]}).json() == []
    assert served.http.get("/v1/health").json() == {"status": "ok"}


def test_a_miners_evidence_is_a_curve_over_its_races_beside_what_takes_the_top(served):
    for shown in served.http.get("/v1/agents").json()["items"]:
        detail = served.http.get(f"/v1/agents/{shown['agent_version_id']}").json()
        held = [f"{one['race_id']}: {one['evidence']:.4g}" for one in detail["races"]]
        page = page_of(served, f"/agents/{shown['agent_version_id']}")
        assert held == re.findall("<title>(race-.*?)</title>", page)
        assert ("600 take the top" in page) == bool(shown["best_rank"])


def test_hours_and_races_of_a_validator_are_those_of_the_log(served):
    (row,) = served.http.get("/v1/validators").json()["items"]
    recorded = {decode_content(one.content).recorded_ms // HOUR_MS for one in served.site.author.records()}
    week = set(range(NOW_MS // HOUR_MS - 167, NOW_MS // HOUR_MS + 1))
    assert (row["signed_hours"], row["hours"]) == (len(recorded & week), 168)
    assert 0 < row["signed_hours"] < len(recorded)
    assert (row["races_run"], row["races"]) == (3, 3)  # the void one was not drawn, and the last runs
    assert (row["code"], row["scoring"]) == ("f6", "scoring/1")  # of a settled race


def test_a_node_of_one_agent_has_its_pages_and_an_empty_one_too(postgres):
    signer = generate_signer()
    (site := Site(Author(postgres.dsn_for(signer.hotkey), signer))).fill(agents=1)
    with serving(site.author.dsn, now_ms=lambda: NOW_MS, explain=explain, requests_per_s=1e6) as server:
        assert {httpx2.get(f"{server.address}/{one}").status_code for one in ("", f"races/{PUBLISHED[1]}")} == {200}
    with serving(postgres.dsn_for(generate_signer().hotkey), now_ms=lambda: NOW_MS, requests_per_s=1e6) as server:
        pages = ("", "races", "agents", "firehose", "validators")
        assert {httpx2.get(f"{server.address}/{path}").status_code for path in pages} == {200}


def test_a_bug_of_ours_is_one_shape_for_programs_and_a_page_for_people():
    def broken() -> None:
        raise ZeroDivisionError

    app = make_app("broken")
    add_refusals(app, page=refusal_page)
    for path in ("/v1/broken", "/broken"):
        app.get(path)(broken)
    http = TestClient(app, raise_server_exceptions=False, headers={"accept": "text/html"})
    told, shown = http.get("/v1/broken"), http.get("/broken")
    assert told.status_code == shown.status_code == 500 and "That did not work" in shown.text
    assert told.json()["code"] == "V2004" and "ZeroDivisionError" not in told.text + shown.text
