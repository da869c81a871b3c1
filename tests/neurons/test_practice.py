"""What a miner reads: a trace as a page, and where submissions stand."""

from __future__ import annotations

import html.parser
from typing import get_args

import msgspec

from arena.door.status import JudgedProblem, QualifyingStatus, RaceStatus, SubmissionStatus
from arena.gate.report import finding
from arena.store.port import AgreedStanding, SubmissionState
from arena.view.page import trace_page
from arena.view.reading import view_trace
from foundation.errors import Failure
from judge.verdict import Citation, Opinion, Verdict
from neurons.cli.submission import status_lines
from tests.judge.bodies import COMPARED, episode


class Page(html.parser.HTMLParser):
    """What a browser would take for markup: tags with attributes, and all targets of links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "srcset", "style")]
        for name, value in attrs:
            if name == "href":
                self.links.add(value or "")
            if name == "id":
                self.ids.append(value or "")


HOSTILE = '</div><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e"\' {{ 7*7 }} <a href="x:1">'


def hostile_view():
    body = episode(COMPARED)
    content = msgspec.structs.replace(body.events[0], content=HOSTILE + body.events[0].content)  # the first completion
    body = msgspec.structs.replace(body, query=HOSTILE, events=(content, *body.events[1:]), claim=HOSTILE)
    quote = next(word for word in content.content[len(HOSTILE) :].split("\n") if len(word) > 20)
    cited = (
        Citation(span=2, quote=quote, gate="data_cited"),
        Citation(span=2, quote="never said", gate="data_cited"),
    )
    said = Opinion(
        model=HOSTILE, quality_e4=5_000, citations=cited, explanation=HOSTILE, attempts=1, reply_sha256="0" * 64
    )
    verdict = Verdict(
        body_sha256=body.body_hash(),
        rubric_id="reasoning/2",
        prompt_sha256="0" * 64,
        quality_e4=5_000,
        coefficient_e4=7_375,
        spread_e4=0,
        opinions=(said,),
    )
    return view_trace(body, verdicts=[verdict], facts=[("miner", HOSTILE)], proof=[("signature", HOSTILE)])


def test_a_page_shows_hostile_text_as_text_loads_nothing_and_links_quotes_to_their_words() -> None:
    text = trace_page(hostile_view())
    page = Page(text)
    assert not page.tags & {"script", "img", "iframe", "object", "link", "form", "base"}
    assert page.links and all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in text
    assert "alert(1)" in text and "{{ 7*7 }}" in text
    assert "not in span 2" in text
    assert "\x1b" not in text and "\u202e" not in text


def told(state: SubmissionState, **fields: object) -> SubmissionStatus:
    told = SubmissionStatus(
        agent_version_id="a" * 64,
        name="mine",
        hotkey="5F",
        state=state,
        commitment_block=1,
        received_ms=1,
        next_allowed_block=9,
        block=5,
        failure=Failure(code="A1005", detail="import") if state in ("refused", "rejected") else None,
        findings=(finding("import", 3, "socket"),) if state == "rejected" else (),
        held_until_block=7 if state == "review" else 0,
        qualifying=None,
        agreed=None,
        races=(),
        judged=(),
        what_to_do="nothing",
    )
    return msgspec.structs.replace(told, **fields)


def test_status_walks_every_state_of_a_submission_and_of_its_races() -> None:
    settled = RaceStatus(race_id="r", stage="settled", closes_ms=0, agents=3)
    races = (
        RaceStatus(race_id="r", stage="upcoming", closes_ms=1_700_000_000_000),
        RaceStatus(race_id="r", stage="upcoming", closes_ms=2**53 - 1),
        RaceStatus(race_id="r", stage="racing", closes_ms=0, done=1, total=6, agents=3),
        RaceStatus(race_id="r\x1b[2J", stage="cancelled", closes_ms=0, reason="no quorum"),
        settled,
        msgspec.structs.replace(settled, rank=1, score_e4=5_000, low_e4=4_000, high_e4=6_000, is_top=True),
    )
    qualifying = [
        QualifyingStatus(done=done, total=6, score_e4=score, needed_e4=2_000) for done, score in ((1, None), (6, 5_000))
    ]
    counts = {"accepts": 2, "rejects": 1, "speakers": 3, "needed": 2, "suite_passes": 2, "suite_finished": 3}
    agreed = [
        AgreedStanding(is_racing=one == "accepted", state=one, suite_needed=2, **counts)
        for one in ("accepted", "rejected", "held", "cooldown")
    ]
    judged = (JudgedProblem(race_id="r", problem_id="p", quality_e4=5_000, sentences=("said",)),) * 5
    shown = [told(state) for state in get_args(SubmissionState)]
    shown += [told("qualified", races=races, judged=judged, qualifying=one) for one in qualifying]
    shown += [told("accepted", agreed=one) for one in agreed]
    door = {"url": "http://door", "validator": "5V", "submissions": shown}
    head = {"hotkey": "5F", "network": "local", "netuid": 15, "uid": None, "block": 5, "finalized_block": 5}
    answer = {**head, "commitment": None, "validators": [door], "failed": []}
    text = "\n".join(status_lines(answer))
    assert all(state in text for state in get_args(SubmissionState))
    assert "rank 1 of 3, at the top" in text
    assert "and 2 problems more" in text
    assert "\x1b[2J" not in text
    assert msgspec.json.encode(answer)
