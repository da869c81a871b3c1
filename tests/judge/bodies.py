"""Bodies for the judge's tests: a small shopping episode with the model's words as parameters."""

from __future__ import annotations

import json

from harness.trace import Completion, EmittedCall, EvaluationBody, Event, Surfaced, ToolCall, Totals
from judge.rubric import REASONING_1_PROMPT_SHA256, Rubric

RUBRIC = Rubric(rubric_id="reasoning/1", models=("scripted-judge",), prompt_sha256=REASONING_1_PROMPT_SHA256)
QUERY = "I want a red cotton scarf below 300 PHP with free shipping."
PRODUCTS = [
    {"product_id": "4410020031", "title": "Merino Loop Scarf Winter Edition", "price": 279.5, "service": ["COD"]},
    {"product_id": "4410020078", "title": "Plain Cotton Scarf Rouge", "price": 249.0, "service": ["freeShipping"]},
]

PLAN = "First I look for scarves that could suit the request and then I decide what to do with them."
VAGUE = "Good, now I carry on with the next thing on my list and finish the job as planned."
ANALYSED = "The shop returned a cotton scarf that fits what was asked, so looking further is not needed."
CITED = "The cotton scarf Plain Cotton Scarf Rouge costs 249.0 and has freeShipping, within the limit."
COMPARED = (
    "Product 4410020078 costs 249.0 with freeShipping while 4410020031 costs 279.5 and lacks it, "
    "so 4410020078 is better because it meets both wishes."
)


def completion(
    step: int, prose: str, *, request: tuple[int, ...] = (0, 1), tokens: int = 40, **fields: object
) -> Completion:
    return Completion(
        step=step,
        model="scripted-expert",
        request=request,
        request_sha256="0" * 64,
        content=prose,
        prompt_tokens=100,
        completion_tokens=tokens,
        response=json.dumps({"role": "assistant", "content": prose}),
        **fields,
    )


def search(
    index: int, step: int, *, arguments: str = '{"q":"scarf"}', result: str | None = None, **fields: object
) -> ToolCall:
    return ToolCall(
        **{
            "index": index,
            "step": step,
            "name": "find_product",
            "arguments": arguments,
            "emitter": "llm",
            "result": json.dumps(PRODUCTS) if result is None else result,
            "surfaced": tuple(Surfaced(product_id=p["product_id"], rank=i) for i, p in enumerate(PRODUCTS, 1)),
            **fields,
        }
    )


def body_of(
    *events: Event, messages: tuple[str, ...] | None = None, claim: str = "", query: str = QUERY
) -> EvaluationBody:
    said = messages or (
        json.dumps({"role": "system", "content": "You are a shopping assistant."}),
        json.dumps({"role": "user", "content": query}),
    )
    return EvaluationBody(
        policy_sha256="1" * 64,
        problem_id="p1",
        bucket="product",
        query=query,
        agent_sha256="2" * 64,
        tool_profile="sn15",
        tools_sha256="3" * 64,
        catalogue_sha256="4" * 64,
        messages=said,
        events=events,
        stop="terminated",
        claim=claim,
        recommended=("4410020078",),
        is_agentic=True,
        totals=Totals(),
    )


def episode(words: str, **fields: object) -> EvaluationBody:
    """Plan, search, then `words` after the results, and a recommendation."""
    call = EmittedCall(call_id="c1", name="find_product", arguments='{"q":"scarf"}')
    return body_of(
        completion(1, PLAN, calls=(call,)),
        search(0, 1),
        completion(2, words),
        ToolCall(
            index=1,
            step=2,
            name="recommend_product",
            arguments='{"product_ids":"4410020078"}',
            emitter="llm",
            result='"ok"',
        ),
        **fields,
    )
