"""A trace as a page: what an agent or a judge wrote is text there."""

from __future__ import annotations

import re

import msgspec

from arena.view.page import trace_page
from arena.view.reading import view_trace
from judge.verdict import Citation, Opinion, Verdict
from tests.judge.bodies import COMPARED, episode

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
        rubric_id="reasoning/1",
        prompt_sha256="0" * 64,
        quality_e4=5_000,
        coefficient_e4=7_375,
        spread_e4=0,
        opinions=(said,),
    )
    return view_trace(body, verdicts=[verdict], facts=[("miner", HOSTILE)], proof=[("signature", HOSTILE)])


def test_a_page_shows_hostile_text_as_text_loads_nothing_and_links_quotes_to_their_words() -> None:
    text = trace_page(hostile_view())
    tags, ids, links = (re.findall(form, text) for form in (r"<([a-z]\w*)", r'\bid="([^"]*)"', r'href="([^"]*)"'))
    assert not {*tags} & {"script", "img", "iframe", "object", "link", "form", "base"}
    assert not re.search(r"<[^>]*\s(?:on\w+|src|srcset|style)=", text)
    assert links and all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= {*ids} and len(ids) == len({*ids})
    assert "default-src 'none'" in text
    assert "alert(1)" in text and "{{ 7*7 }}" in text
    assert "not in span 2" in text
    assert "\x1b" not in text and "\u202e" not in text
