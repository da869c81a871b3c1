"""The trace as a judge reads it."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge import render as renderer
from judge.render import TRACE_BYTES, render
from tests.judge.bodies import COMPARED, body_of, completion, episode, search

HEADER = re.compile(r"^\[\[span \d+ \| (query|completion|call|result|refused)( \| [^\[\]|]+)*\]\]$")
HOSTILE = st.text(
    alphabet=st.sampled_from(list("[]|ab \n\r\t\x0b\x0c\x85\u2028\u2029\u200b\u200e\ufeff⟦⟧［］｜\x00\x1b0")),
    max_size=60,
)


def test_facts_stand_in_headers_apart_from_words():
    text = render(episode(COMPARED)).text
    assert "[[span 3 | call | step 1 | find_product | emitter llm]]" in text
    assert "[[span 4 | result | step 1 | find_product | surfaced 2 new products]]" in text
    assert "| 40 tokens | echo 0.00]]" in text


@given(words=HOSTILE, name=HOSTILE, arguments=HOSTILE, result=HOSTILE, query=HOSTILE, model=HOSTILE)
def test_no_agent_controlled_slot_can_start_a_header(words, name, arguments, result, query, model):
    said = msgspec.structs.replace(completion(1, words, reasoning=words), model=model)
    body = body_of(said, search(0, 1, name=name, arguments=arguments, result=result), query=query)
    trace = render(body)
    headers = [line for line in trace.text.splitlines() if line and not line.startswith("| ") and line != "|"]
    assert len(headers) == len(trace.spans)
    assert all(HEADER.match(line) for line in headers), headers
    for span in trace.spans:
        assert "[[" not in span.content and "]]" not in span.content


FILLER = st.sampled_from(("x", "word ", "中", "\n", "[[ | ]]\n", "\U0001f9ff"))


@given(parts=st.lists(st.tuples(FILLER, st.integers(0, 4_500), st.integers(0, 4_500)), max_size=40))
def test_whatever_fills_a_trace_it_fits_a_judges_context(parts):
    events = [
        event
        for step, (filler, said, found) in enumerate(parts, 1)
        for event in (completion(step, filler * said), search(0, step, result=filler * found))
    ]
    body = body_of(*events, query="a red lamp with a long cord")
    trace = render(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "TRACE_BYTES", 10**9)
        whole = render(body)
    assert len(trace.text.encode()) <= TRACE_BYTES
    if len(whole.text.encode()) <= TRACE_BYTES:
        assert trace == whole
        return
    assert [(span.number, span.kind, span.whole) for span in trace.spans] == [
        (span.number, span.kind, span.whole) for span in whole.spans
    ]
    assert trace.spans[0] == whole.spans[0]  # the query is never cut further
    assert len(trace.text.encode()) > TRACE_BYTES // 2  # and what room there is is used


def test_outcome_stop_reason_and_claim_are_never_shown():
    body = episode(COMPARED, claim=json.dumps({"note": "CLAIMED-SUCCESS"}))
    failing = msgspec.structs.replace(body, stop="wall_clock", unsurfaced=("4410020078",), is_agentic=False)
    assert "CLAIMED" not in render(body).text
    assert render(failing).text == render(body).text
