"""Golden cases of `emission/2`, known by how they are told: puppets, whose calls a program wrote, and ordinary agents.

Nothing here imports the code under test, and the same code gives the same file.

    python -m tests.harness.emission_echo_generator      writes tests/harness/emission_cases_2.jsonl

A case: {"name", "query", "turns": [{"messages", "content", "calls": [{"id", "name", "arguments"}], "dispatched":
[[name, arguments, emitter, result], ...]}]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.harness.honest_dialogues import DIALOGUES, QUERY, STEPS, Show, compact, written
from tests.harness.puppet_forms import FORMS, MISSED, Form

CASES = Path(__file__).with_name("emission_cases_2.jsonl")

PUPPET_CALLS = {
    "a search of the program's own": ("find_product", {"q": "brass banker desk light", "page": 2}),
    "an id of the program's own": ("recommend_product", {"product_ids": "9910020078"}),
    "numbers of the program's own": (
        "calculate_voucher",
        {"product_prices": "1000,2500", "voucher_type": "fixed", "discount_value": 4000, "threshold": 12000,
         "budget": 7250},
    ),
}  # fmt: skip
KEPT = ("native calls", "turns, results as Python", "SN15", "plan, step by step")  # the others are told in tests alone


def puppet(form: Form, call: tuple[str, dict[str, object]], emitter: str) -> list[dict[str, object]]:
    name, arguments = call
    given = json.dumps(arguments)
    return [
        {
            "messages": form(name, arguments),
            "content": "",
            "calls": [{"id": "c0", "name": name, "arguments": given}],
            "dispatched": [[name, given, emitter, "[]"]],
        }
    ]


def honest(show: Show, *, is_native: bool) -> list[dict[str, object]]:
    turns: list[dict[str, object]] = []
    for number, step in enumerate(STEPS):
        calls = [(name, json.dumps(given)) for name, given in step.calls]
        rows = [{"id": f"call_{number}_{n}", "name": name, "arguments": given} for n, (name, given) in enumerate(calls)]
        turns.append(
            {
                "messages": show(STEPS[:number]),
                "content": step.thought if is_native else written(step),
                "calls": rows if is_native else [],
                "dispatched": [
                    [name, given, "llm", compact(result)]
                    for (name, given), result in zip(calls, step.results, strict=True)
                ],
            }
        )
    return turns


def is_native(name: str) -> bool:
    return name.startswith("native") or name == "own words quoted"


def cases() -> Iterator[dict[str, object]]:
    """All cases of the golden file."""
    for emitter, forms in (("echoed", FORMS), ("llm", MISSED)):
        for what, call in PUPPET_CALLS.items():
            for name, form in forms.items():
                yield {"name": f"{what}: {name}", "query": QUERY, "turns": puppet(form, call, emitter)}
    for name in KEPT:
        yield {"name": name, "query": QUERY, "turns": honest(DIALOGUES[name], is_native=is_native(name))}


def lines() -> str:
    """The content of the golden file."""
    return "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases())


if __name__ == "__main__":
    CASES.write_text(lines(), encoding="utf-8")
