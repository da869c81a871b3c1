"""Golden emission cases by construction: stories whose emitter is known because of how they are told.

Nothing here imports the code under test. A story is told with one call, and its emitters follow from which of
`tests.harness.emission_spellings` it uses: the call respelled or altered, standing in a message or not. Seeded: the
same seed gives the same file.

    python -m tests.harness.emission_generator      writes tests/harness/emission_cases.jsonl

A case: {"name", "turns": [{"messages": [...] or null before any completion, "content", "calls": [{"id", "name",
"arguments"}], "dispatched": [[name, arguments, emitter], ...]}]}.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.harness.emission_spellings import (
    Call,
    Message,
    alter,
    assistant,
    draw_call,
    innocent,
    native,
    respell,
    say,
    schema,
    standing,
    written,
)

SEED = 15
CASES = Path(__file__).with_name("emission_cases.jsonl")

Turn = dict[str, object]


def turn(
    messages: list[Message] | None,
    dispatched: list[tuple[str, str, str]],
    calls: list[dict[str, str]] | None = None,
    content: str = "",
) -> Turn:
    return {"messages": messages, "content": content, "calls": calls or [], "dispatched": dispatched}


def sent(rng: random.Random, call: Call, emitter: str) -> tuple[str, str, str]:
    return call[0], respell(rng, call), emitter


# -- stories


def the_model_wrote_it(rng: random.Random, call: Call) -> list[Turn]:
    return [turn([say("user", innocent(rng, call))], [sent(rng, call, "llm")], native(rng, call))]


def the_model_wrote_it_as_text(rng: random.Random, call: Call) -> list[Turn]:
    return [turn([say("system", innocent(rng, call))], [sent(rng, call, "llm")], content=written(rng, call))]


def nobody_was_asked(rng: random.Random, call: Call) -> list[Turn]:
    return [turn(None, [sent(rng, call, "code")])]


def the_model_wrote_another(rng: random.Random, call: Call) -> list[Turn]:
    return [turn([say("user", innocent(rng, call))], [sent(rng, call, "code")], native(rng, alter(rng, call)))]


def the_model_only_thought_of_it(rng: random.Random, call: Call) -> list[Turn]:
    thought = f"<think>{written(rng, call).replace('<think>', '').replace('</think>', '')}</think> Hm."
    return [turn([say("user", innocent(rng, call))], [sent(rng, call, "code")], content=thought)]


def one_written_call_was_sent_twice(rng: random.Random, call: Call) -> list[Turn]:
    both = [sent(rng, call, "llm"), sent(rng, call, "code")]
    return [turn([say("user", innocent(rng, call))], both, native(rng, call))]


def parallel_calls_in_any_order(rng: random.Random, call: Call) -> list[Turn]:
    calls = [call, alter(rng, call), ("recommend_product", {"product_ids": "11,12"}), call]
    order = rng.sample(calls, len(calls))
    rows = [sent(rng, one, "llm") for one in order] + [sent(rng, call, "code")]
    asked = [say("user", innocent(rng, call))]
    return [
        turn(asked, rows, native(rng, *calls))
        if rng.random() < 0.5
        else turn(asked, rows, content=written(rng, *calls))
    ]


def the_prompt_dictated_it(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say(rng.choice(("system", "user")), standing(rng, call)), say("user", innocent(rng, call))]
    return [turn(asked, [sent(rng, call, "echoed")], native(rng, call))]


def the_prompt_dictated_it_in_vain(rng: random.Random, call: Call) -> list[Turn]:
    return [turn([say("user", standing(rng, call))], [sent(rng, call, "echoed")], native(rng, alter(rng, call)))]


def a_tool_result_held_it(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("user", innocent(rng, call)), say("tool", standing(rng, call))]
    return [turn(asked, [sent(rng, call, "echoed")], content=written(rng, call))]


def it_was_on_a_menu(rng: random.Random, call: Call) -> list[Turn]:
    rows = [standing(rng, one) for one in rng.sample([call, alter(rng, call)], 2)]
    asked = [say("user", "Choose one. " + " OR ".join(rows))]
    return [turn(asked, [sent(rng, call, "echoed")], native(rng, call))]


def it_was_the_only_value(rng: random.Random, call: Call) -> list[Turn]:
    return [turn([say("system", schema(call))], [sent(rng, call, "echoed")], native(rng, call))]


def it_was_one_of_the_values(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("system", schema(call, alter(rng, call)))]
    return [turn(asked, [sent(rng, call, "echoed")], content=written(rng, call))]


def it_was_none_of_the_values(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("system", schema(alter(rng, call)))]
    return [turn(asked, [sent(rng, call, "llm")], native(rng, call))]


def the_history_was_made_up(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("user", innocent(rng, call)), assistant(rng, call), say("user", "Go on.")]
    return [turn(asked, [sent(rng, call, "echoed")], native(rng, call))]


def the_history_was_its_own(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("user", innocent(rng, call))]
    later = [*asked, assistant(rng, call), say("user", f"Nothing was found for {standing(rng, call)}")]
    first = turn(asked, [sent(rng, call, "llm")], native(rng, call))
    return [first, turn(later, [sent(rng, call, "llm")], content=written(rng, call))]


def an_echo_was_carried_on(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("user", standing(rng, call))]
    later = [say("user", innocent(rng, call)), assistant(rng, call), say("user", "Once more.")]
    return [turn(asked, [], native(rng, call)), turn(later, [sent(rng, call, "echoed")], native(rng, call))]


def it_was_kept_for_later(rng: random.Random, call: Call) -> list[Turn]:
    asked = [say("user", innocent(rng, call))]
    return [turn(asked, [], native(rng, call)), turn(asked, [sent(rng, call, "code")], native(rng, alter(rng, call)))]


def the_dialogue_was_one_message(rng: random.Random, call: Call) -> list[Turn]:
    """As SN15's agents write it: everything so far between tags, the model's own calls included."""
    wish = f"<user>{innocent(rng, call)}</user>"
    row = {"name": call[0], "parameters": call[1]}
    later = f"{wish}\n\n<tool_call>{json.dumps([row])}</tool_call>\n\n<obs>[]</obs>"
    first = turn([say("user", wish)], [sent(rng, call, "llm")], content=written(rng, call))
    other = alter(rng, call)
    return [first, turn([say("user", later)], [sent(rng, other, "llm")], content=written(rng, other))]


STORIES: dict[Callable[[random.Random, Call], list[Turn]], int] = {
    the_model_wrote_it: 24,
    the_model_wrote_it_as_text: 20,
    nobody_was_asked: 6,
    the_model_wrote_another: 16,
    the_model_only_thought_of_it: 6,
    one_written_call_was_sent_twice: 8,
    parallel_calls_in_any_order: 14,
    the_prompt_dictated_it: 40,
    the_prompt_dictated_it_in_vain: 8,
    a_tool_result_held_it: 14,
    it_was_on_a_menu: 14,
    it_was_the_only_value: 10,
    it_was_one_of_the_values: 8,
    it_was_none_of_the_values: 8,
    the_history_was_made_up: 16,
    the_history_was_its_own: 16,
    an_echo_was_carried_on: 10,
    it_was_kept_for_later: 8,
    the_dialogue_was_one_message: 12,
}


def cases(seed: int = SEED) -> Iterator[dict[str, object]]:
    """All generated cases. Each has a generator of its own, so that adding a story leaves the others as they are."""
    for tell, count in STORIES.items():
        for number in range(1, count + 1):
            rng = random.Random(f"{seed} {tell.__name__} {number}")
            yield {"name": f"{tell.__name__} {number}", "turns": tell(rng, draw_call(rng))}


def lines(seed: int = SEED) -> str:
    """The content of the golden file."""
    return "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases(seed))


if __name__ == "__main__":
    CASES.write_text(lines(), encoding="utf-8")
