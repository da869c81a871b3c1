"""Judges, one contract for all, and the panel that they are."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import verify
from arena.chain.opening import open_signer
from arena.view.reading import view_trace
from foundation.errors import ArenaError
from judge import render as renderer
from judge.calibration.measurement import (
    Calibration,
    JudgedTrace,
    LabelledTrace,
    Spending,
    check_calibration,
    judge_traces,
    measure,
    quadratic_kappa,
    sign_calibration,
)
from judge.calibration.traces import CalibrationShop, families, is_held, make_trace, open_shop, recipes
from judge.citations import ceiling_e4, check_citations
from judge.client import OpenAIJudge, RetryPolicy, judge_messages
from judge.panel import judge_body, neutral_twin
from judge.parse import RefusedReplyError, parse_reply
from judge.render import TRACE_BYTES, JudgeReply, RenderedTrace, render
from judge.rubric import GATES, QUALITY_LEVELS_E4, Rubric, prompt_text
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from tests.judge.bodies import (
    ANALYSED,
    CITED,
    COMPARED,
    PLAN,
    QUERY,
    RUBRIC,
    VAGUE,
    body_of,
    completion,
    episode,
    search,
)
from tests.judge.endpoint import Answer, ScriptedEndpoint, chat, serving


def panel(*models: str) -> Rubric:
    return msgspec.structs.replace(RUBRIC, models=models)


def test_a_trace_without_inference_is_decided_by_code_and_nobody_is_asked():
    verdict = judge_body(body_of(search(0, 0)), RUBRIC, [])
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4, verdict.opinions) == (1_000, 3_875, ())


@pytest.mark.parametrize(
    ("words", "quality_e4", "coefficient"),
    [(VAGUE, 3_000, 5_625), (ANALYSED, 5_000, 7_375), (CITED, 7_000, 9_125), (COMPARED, 9_000, 10_000)],
)
def test_the_scripted_judge_walks_the_decision_tree(words, quality_e4, coefficient):
    verdict = judge_body(episode(words), RUBRIC, [ScriptedJudge()])
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4) == (quality_e4, coefficient)
    assert verdict.body_sha256 == episode(words).body_hash()


class FussyJudge:
    """A judge that is put off by a word of the trace, and reads every other trace."""

    def __init__(self, model: str, put_off: str | ArenaError, word: str = "gruesome") -> None:
        self.model, self._put_off, self._word = model, put_off, word

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        if self._word not in trace.text:
            return ScriptedJudge(self.model).opine(trace, rubric)
        if isinstance(self._put_off, ArenaError):
            raise self._put_off
        return JudgeReply(text=self._put_off)


GRUESOME = COMPARED.replace("better", "less gruesome, hence better")
PUT_OFF = (
    ArenaError("U3020", "HTTP 413: too large"),
    ArenaError("U3020", "HTTP 403: moderation"),
    "I can't help with that.",
    "",
)


@pytest.mark.parametrize("put_off", PUT_OFF)
@pytest.mark.parametrize("kind_ones", [0, 1])
def test_a_trace_that_no_model_reads_or_only_the_kindest_has_the_lowest_quality(put_off, kind_ones):
    judges = [FussyJudge("a", put_off), FussyJudge("b", put_off), ScriptedJudge("c")]
    rubric = panel("a", "b", "c") if kind_ones else panel("a", "b")
    verdict = judge_body(episode(GRUESOME), rubric, judges)
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4) == (1_000, 3_875)
    (shown,) = view_trace(episode(GRUESOME), verdicts=[verdict]).judges
    assert ceiling_e4(episode(GRUESOME), RUBRIC) == 9_000 and "inference" not in shown.headline  # code decided nothing
    assert [who for who, _ in shown.sentences] == (["c", "a", "b"] if kind_ones else ["a", "b"])


def test_one_abstention_of_three_is_no_verdict_where_another_model_reads_nothing():
    mute = FussyJudge("b", "", word="")  # put off by every trace
    judges = [FussyJudge("a", ""), mute, ScriptedJudge("c")]
    owed = judge_body(episode(GRUESOME), panel("a", "b", "c"), judges)
    assert isinstance(owed, UnscoredVerdict) and owed.failure.code == "U3021"


@pytest.mark.parametrize("words", ["", "中文", "😀" * 3_000, "x" * 9_000, "é\n" * 500])
def test_the_twin_has_the_traces_size_and_says_nothing_of_it(words):
    trace = render(episode(words + GRUESOME))
    twin = neutral_twin(trace)
    assert [(s.kind, len(s.content.encode())) for s in twin.spans] == [
        (s.kind, len(s.content.encode())) for s in trace.spans
    ]
    assert "gruesome" not in twin.text and QUERY not in twin.text


# -- the calibration set is what it says, its statistics are the literature's, and a result can be signed and pinned


@pytest.fixture(scope="module")
def shop() -> Iterator[CalibrationShop]:
    with open_shop() as opened:
        yield opened


@pytest.fixture(scope="module")
def traces(shop: CalibrationShop) -> list[LabelledTrace]:
    """One of each family."""
    first = {recipe.family: recipe for recipe in reversed(recipes())}
    return [make_trace(recipe, shop) for recipe in first.values()]


@pytest.fixture(scope="module")
def judged(traces: list[LabelledTrace]) -> tuple[JudgedTrace, ...]:
    return judge_traces(traces, RUBRIC, [ScriptedJudge()])


def test_there_are_enough_recipes_and_no_cluster_lies_in_both_splits(shop):
    made = recipes()
    held = {family.name for family in families() if is_held(family)}
    assert len(made) >= 240 and len(set(made)) == len(made)
    split = [{shop.clusters[one.problem] for one in made if (one.family in held) == is_in} for is_in in (True, False)]
    assert not split[0] & split[1]
    levels = Counter({family.name: family.quality_e4 for family in families()}[recipe.family] for recipe in made)
    assert set(levels) == {1_000, 3_000, 5_000, 7_000, 9_000}


def test_the_scripted_judge_is_near_the_labels_and_blind_to_the_outcome(judged):
    found = measure(judged, RUBRIC, Spending(verdicts=len(judged), ms=5))
    whole = found.population("all")
    assert whole.owed == 0 and whole.kappa_e4 is not None and whole.kappa_e4 >= 9_000
    assert whole.accuracy_e4 is not None and whole.accuracy_e4 >= 8_000
    effects = {effect.trait: effect for effect in found.effects}
    assert effects["outcome"].pairs >= 2 and effects["outcome"].moved == 0
    assert found == measure(judged, RUBRIC, Spending(verdicts=len(judged), ms=99))


def test_a_signed_result_holds_for_its_panel_alone(judged):
    signer = open_signer("local", name="", hotkey="//Alice", path="")
    found = measure(judged, RUBRIC, Spending())
    signed = sign_calibration(found, signer.hotkey, signer.sign)
    pinned = msgspec.structs.replace(RUBRIC, calibration_sha256=signed.sha256)
    assert check_calibration(signed, pinned, verify) == found == check_calibration(signed, RUBRIC, verify)
    other = msgspec.structs.replace(RUBRIC, calibration_sha256="0" * 64)
    changed = msgspec.structs.replace(signed, result=signed.result.replace('"owed":0', '"owed":1', 1))
    for wrong, rubric in (
        (signed, other),
        (signed, msgspec.structs.replace(RUBRIC, models=("m",))),
        (changed, RUBRIC),
        (msgspec.structs.replace(signed, hotkey=open_signer("local", name="", hotkey="//Bob", path="").hotkey), RUBRIC),
        (msgspec.structs.replace(signed, signature="zz"), RUBRIC),
    ):
        with pytest.raises(ArenaError, match="V2050"):
            check_calibration(wrong, rubric, verify)
    assert msgspec.json.decode(signed.result, type=Calibration) == found


def test_kappa_is_one_for_equals_and_cohens_for_two_levels():
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert quadratic_kappa(pairs) == pytest.approx(0.4)  # Cohen's own, since with two levels all errors weigh alike
    assert quadratic_kappa([(0, 0), (4, 4)]) == 1
    assert quadratic_kappa([(2, 2)]) is None and quadratic_kappa([]) is None
    assert quadratic_kappa([(0, 4), (4, 0)]) == -1


class AwayJudge(ScriptedJudge):
    def opine(self, trace, rubric, refusals=()):
        raise ArenaError("U3020", "away")


def test_an_owed_verdict_is_counted_as_owed_and_is_no_zero(traces):
    found = measure(judge_traces(traces[1:4], RUBRIC, [AwayJudge()]), RUBRIC, Spending())
    whole = found.population("all")
    assert (whole.owed, whole.accuracy_e4, whole.kappa_e4) == (3, None, None)


# -- the trace as a judge reads it


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


BODIES = tuple(episode(words) for words in (VAGUE, ANALYSED, CITED, COMPARED))
TRACES = {render(body).text: render(body) for body in BODIES}


def client(base_url: str, pauses: list[float] | None = None, **patience: int) -> OpenAIJudge:
    kept = RetryPolicy(**{"timeout_ms": 5_000, **patience})
    sleep = [].append if pauses is None else pauses.append
    return OpenAIJudge(model="scripted-judge", base_url=base_url, patience=kept, sleep=sleep)


@given(
    st.lists(st.sampled_from([VAGUE, ANALYSED, CITED, COMPARED]), min_size=1, max_size=4, unique=True),
    st.integers(0, 60),
    st.integers(8, 40),
)
def test_the_scripted_judge_cites_no_words_that_the_program_planted(said, first, size):
    words = " ".join(said)
    planted = " ".join(words.split()[first : first + size])
    messages = tuple(json.dumps({"role": "user", "content": text}) for text in ("Go on.", planted))
    trace = render(body_of(completion(1, PLAN, request=(0,)), search(0, 1), completion(2, words), messages=messages))
    check_citations(parse_reply(ScriptedJudge().opine(trace, RUBRIC).text), trace)


def test_the_client_sends_the_pinned_prompt_at_temperature_zero():
    endpoint = ScriptedEndpoint(TRACES)
    with serving(endpoint) as base_url:
        reply = client(base_url).opine(render(episode(CITED)), RUBRIC, ("the quote was false",))
    (request,) = endpoint.requests
    assert request["temperature"] == 0 and request["model"] == "scripted-judge"
    assert request["messages"][0] == {"role": "system", "content": prompt_text("reasoning/1")}
    assert render(episode(CITED)).text in request["messages"][1]["content"]
    assert "the quote was false" in request["messages"][2]["content"]
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)
    with pytest.raises(ArenaError, match="V2030"):
        judge_messages(render(episode(CITED)), msgspec.structs.replace(RUBRIC, prompt_sha256="0" * 64))


# -- whatever an endpoint does, a verdict is given or owed, and none becomes a zero


def answers(status: int, value: object, headers: dict[str, str] | None = None) -> Callable[[Any], Answer]:
    return lambda _: (status, value, headers or {})


CUT_OFF = chat('{"gates": {')
CUT_OFF["choices"][0]["finish_reason"] = "length"


@pytest.mark.parametrize(
    "fault",
    [
        answers(200, chat("")),
        answers(200, CUT_OFF),
        answers(200, chat("I think it is fine.")),
        answers(200, b"<html>"),
        answers(200, None),
        answers(500, {"error": "oops"}),
    ],
    ids=["empty", "cut off", "no JSON", "HTML", "dropped", "500"],
)
def test_an_endpoint_that_stumbles_is_asked_again(fault):
    with serving(ScriptedEndpoint(TRACES, fault, fault)) as base_url:
        verdict = judge_body(BODIES[3], RUBRIC, [client(base_url)])
    assert isinstance(verdict, Verdict) and verdict.quality_e4 == 9_000


@pytest.mark.parametrize(("fault", "code"), [(answers(500, {}), "U3020"), (answers(200, chat("so")), "U3021")])
def test_a_verdict_that_no_attempt_gave_is_owed(fault, code):
    with serving(fault) as base_url:
        verdict = judge_body(BODIES[3], RUBRIC, [client(base_url)])
    assert isinstance(verdict, UnscoredVerdict) and verdict.failure.code == code


def test_pauses_are_the_endpoints_own_where_it_names_them_and_none_is_an_hour():
    busy = {"error": "slow down"}
    faults = [answers(429, busy, {"retry-after": "2"}), answers(429, busy), answers(429, busy)]
    pauses: list[float] = []
    with serving(ScriptedEndpoint(TRACES, *faults)) as base_url:
        assert client(base_url, pauses).opine(render(BODIES[3]), RUBRIC).text
    assert pauses == [2.0, 4.0, 8.0]
    with serving(answers(429, busy, {"retry-after": "3600"})) as base_url, pytest.raises(ArenaError, match="U3020"):
        client(base_url).opine(render(BODIES[3]), RUBRIC)


def test_what_an_endpoint_refuses_is_left_out_and_remembered():
    scripted = ScriptedEndpoint(TRACES)

    def refusing(request: dict[str, Any]) -> Answer:
        refused = {"response_format", "max_tokens"} & request.keys()
        answer = scripted(request)
        return (400, {"error": {"message": f"{refused} is not supported"}}, {}) if refused else answer

    with serving(refusing) as base_url:
        judge = client(base_url, reasoning_tokens=1_000)
        for body in BODIES[:2]:
            judge.opine(render(body), RUBRIC)
    assert len(scripted.requests) == 5 and scripted.requests[-1]["max_completion_tokens"] == 4_072


# -- replies are read strictly, and every refusal says why


def reply(held: int, **changes: object) -> str:
    fields = {
        "gates": {gate: place < held for place, gate in enumerate(GATES)},
        "quality": QUALITY_LEVELS_E4[held] / 10_000,
        "citations": [{"span": 2, "quote": "a quote long enough", "gate": "data_cited"}],
        "explanation": "why",
    }
    return json.dumps(fields | changes)


@pytest.mark.parametrize("held", range(5))
def test_a_reply_of_the_agreed_form_gives_the_quality_of_its_gates(held):
    assert parse_reply(reply(held)).quality_e4 == QUALITY_LEVELS_E4[held]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not one JSON object"),
        (reply(2) + reply(4), "not one JSON object"),
        ("x" * 401 + reply(2), "not one JSON object"),
        (reply(2) + " That is all.", "not one JSON object"),
        ("<think>a</think>b</think>" + reply(2), "not one JSON object"),
        ('one {"quality": 0.9} </think>' + reply(2), "another form"),
        (reply(2).replace('"quality"', '"quality": 0.9, "quality"'), "twice"),
        ('{"extra": ' + "[" * 5_000 + "]" * 5_000 + "}", "not one JSON object"),
        ("[]", "another form"),
        (reply(2, quality="0.5"), "another form"),
        (reply(2, citations=[{"span": "2", "quote": "x", "gate": "data_cited"}]), "another form"),
        (reply(2, quality=0.6), "not one of"),
        (reply(2, quality=0.9), "contradicts"),
    ],
)
def test_every_other_reply_is_refused_with_its_reason(text, reason):
    with pytest.raises(RefusedReplyError, match=reason):
        parse_reply(text)


@pytest.mark.parametrize(
    "text",
    [
        "I think: {}",
        "<think>Is it {good}? Yes.</think>\n{}",
        "so it is.\n</think>\n{}",
        "<thinking>hm</thinking>Here it is:\n```json\n{}\n```",
        "```\n{}\n```",
    ],
)
def test_a_thought_a_sentence_or_a_fence_around_one_object_is_passed_over(text):
    assert parse_reply(text.replace("{}", reply(3))).quality_e4 == 7_000


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with pytest.raises(RefusedReplyError):
        parse_reply(text)


def test_a_quotation_of_a_tag_does_not_end_the_reply():
    citations = [{"span": 2, "quote": "it said </think> and went on", "gate": "data_cited"}]
    assert parse_reply(reply(3, citations=citations)).quality_e4 == 7_000
