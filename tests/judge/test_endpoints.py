"""Real endpoints stumble. Whatever they do, a verdict is given or owed, and none becomes a zero."""

from __future__ import annotations

import pytest

from judge.budget import JudgeMeter, MeteredJudge, RaceSpending
from judge.client import OpenAIJudge, RetryPolicy
from judge.panel import judge_body
from judge.render import JudgeReply, render
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from tests.judge.bodies import ANALYSED, CITED, COMPARED, RUBRIC, VAGUE, episode
from tests.judge.stumbling import STUMBLES, StumblingEndpoint

BODIES = tuple(episode(words) for words in (VAGUE, ANALYSED, CITED, COMPARED))
TRACES = {render(body).text: render(body) for body in BODIES}
HONEST = {body.body_hash(): judge_body(body, RUBRIC, [ScriptedJudge()]) for body in BODIES}


def client(base_url: str, pauses: list[float], **patience: int) -> OpenAIJudge:
    kept = RetryPolicy(**{"timeout_ms": 2_000, **patience})
    return OpenAIJudge(model="scripted-judge", base_url=base_url, patience=kept, sleep=pauses.append)


def replies(*stumbles: str, **patience: int) -> tuple[str, StumblingEndpoint, list[float]]:
    endpoint, pauses = StumblingEndpoint(TRACES, stumbles, slow_s=0.4), []
    with endpoint.serving() as base_url:
        text = client(base_url, pauses, **patience).opine(render(BODIES[3]), RUBRIC).text
    return text, endpoint, pauses


@pytest.mark.parametrize("offset", range(2))
def test_every_verdict_of_a_race_with_a_stumbling_endpoint_is_given_or_owed(offset):
    """Each stumble meets other requests by the offset; owed verdicts are asked for again, as a node does."""
    stumbles = STUMBLES[offset * 8 :] + STUMBLES[: offset * 8]
    endpoint = StumblingEndpoint(TRACES, stumbles, slow_s=0.4)
    given, owed = {}, []
    with endpoint.serving() as base_url:
        judge = client(base_url, [], timeout_ms=200)
        waiting = [*BODIES, *BODIES, *BODIES]
        for _ in range(4):
            verdicts = [(body, judge_body(body, RUBRIC, [judge])) for body in waiting]
            given.update({body.body_hash(): one for body, one in verdicts if isinstance(one, Verdict)})
            waiting = [body for body, one in verdicts if isinstance(one, UnscoredVerdict)]
            owed += [one.failure.code for _, one in verdicts if isinstance(one, UnscoredVerdict)]
    assert len(endpoint.requests) > len(STUMBLES)
    assert waiting == [] and set(owed) <= {"U3020", "U3021"}
    assert {key: one.quality_e4 for key, one in given.items()} == {key: one.quality_e4 for key, one in HONEST.items()}


def test_pauses_are_the_endpoints_own_where_it_names_them():
    text, endpoint, pauses = replies("429 with seconds", "429 with a date", "429 without")
    assert (pauses, len(endpoint.requests)) == ([2.0, 3.0, 8.0], 4)
    assert text == ScriptedJudge().opine(render(BODIES[3]), RUBRIC).text


def test_what_an_endpoint_refuses_is_left_out_and_remembered():
    endpoint = StumblingEndpoint(TRACES, ("refuses schema",) * 4)
    with endpoint.serving() as base_url:
        judge = client(base_url, [])
        for body in BODIES[:2]:
            judge.opine(render(body), RUBRIC)
    assert [("response_format" in request) for request in endpoint.requests] == [True, False, False]
    endpoint = StumblingEndpoint(TRACES, ("refuses max_tokens",) * 9)
    with endpoint.serving() as base_url:
        client(base_url, [], reasoning_tokens=1_000).opine(render(BODIES[0]), RUBRIC)
    assert endpoint.requests[-1]["max_completion_tokens"] == 4_072
    endpoint = StumblingEndpoint(TRACES, ("refuses both",) * 4)
    with endpoint.serving() as base_url:
        client(base_url, []).opine(render(BODIES[0]), RUBRIC)
    assert len(endpoint.requests) == 4 and endpoint.requests[-1].keys().isdisjoint(("response_format", "max_tokens"))


class PricedJudge(ScriptedJudge):
    """A scripted judge whose replies cost tokens, the more the longer the trace."""

    def opine(self, trace, rubric, refusals=()):
        reply = super().opine(trace, rubric, refusals)
        return JudgeReply(text=reply.text, prompt_tokens=len(trace.text) // 4, completion_tokens=100)


@pytest.mark.parametrize("order", ["by agent", "by problem"])
@pytest.mark.parametrize("tokens", [1, 100_000, 125_000, 400_000, 10**9])
def test_a_spent_budget_stops_whole_problems_and_never_some_agents(order, tokens):
    problems, agents = [f"p{n}" for n in range(12)], range(6)
    pairs = [(p, a) for a in agents for p in problems]
    if order == "by problem":
        pairs.sort()
    spending = RaceSpending().planned(dict.fromkeys(problems, len(agents)))
    meter = JudgeMeter()
    judge = MeteredJudge(PricedJudge(), meter)
    judged = set()
    for _ in range(3):  # owed verdicts are tried again
        for problem, agent in pairs:
            after = spending.begun(problem, tokens)
            if after is None or (problem, agent) in judged:
                continue
            assert isinstance(judge_body(BODIES[agent % 4], RUBRIC, [judge]), Verdict)
            judged.add((problem, agent))
            spending = after.charged(problem, meter.take())
    done = {problem for problem, _ in judged}
    assert judged == {(p, a) for p in done for a in agents}
    assert spending.spent.tokens <= tokens
    assert bool(done) == (tokens > 120_000)  # six verdicts of the first estimate
    if tokens == 10**9:
        assert len(done) == 12
