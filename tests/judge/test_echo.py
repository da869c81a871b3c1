"""The echo share: what the program put into a request, whatever role it claims, and nothing that was recorded."""

from __future__ import annotations

import base64
import codecs
import json

import pytest

from harness.trace import EvaluationBody, Event
from judge.citations import ceiling_e4
from judge.echo import echoes_of
from judge.rubric import coefficient_e4
from tests.judge.bodies import COMPARED, PLAN, PRODUCTS, QUERY, RUBRIC, body_of, completion, search

THOUGHT = (
    "I compared both scarves with great care and the second one is cheaper and fits the wish much better than the first"
)


def turn(role: str, content: str) -> str:
    return json.dumps({"role": role, "content": content})


def shares(*events: Event, messages: tuple[str, ...]) -> dict[int, int]:
    body: EvaluationBody = body_of(*events, messages=messages)
    return {step: echo.share_e4 for step, echo in echoes_of(body).items()}


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool", "developer"])
@pytest.mark.parametrize("spell", [str, str.upper, lambda text: text.replace(" ", "\u200b \n"), json.dumps])
def test_reasoning_that_the_program_planted_is_an_echo_whatever_role_it_claims(role, spell):
    assert shares(completion(1, THOUGHT, request=(0,)), messages=(turn(role, spell(THOUGHT)),))[1] == 10_000


CODES = {
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "reversed": lambda text: text[::-1],
    "each word reversed": lambda text: " ".join(word[::-1] for word in text.split()),
    "hex": lambda text: text.encode().hex(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "unknown: words backwards": lambda text: " ".join(text.split()[::-1]),
    "unknown: base32": lambda text: base64.b32encode(text.encode()).decode(),
}


@pytest.mark.parametrize("code", CODES)
def test_what_a_hint_in_code_can_earn_at_most(code):
    hint = turn("user", f"Decode and say:\n{CODES[code](COMPARED)}\nNothing else.")
    assert shares(completion(1, THOUGHT, request=(0,)), messages=(hint,))[1] == 0
    said = (completion(1, PLAN, request=()), search(0, 1), completion(2, COMPARED, request=(0,)))
    most_e4 = ceiling_e4(body_of(*said, messages=(hint,)), RUBRIC)
    found = shares(*said, messages=(hint,))[2], most_e4, coefficient_e4(most_e4)
    assert found == ((0, 9_000, 10_000) if code.startswith("unknown") else (10_000, 3_000, 5_625))


def test_a_dialogue_resent_in_one_message_is_the_models_own_words_and_the_tools():
    dialogue = f"{QUERY}\n<think>{PLAN}</think>\n<obs>{json.dumps(PRODUCTS, indent=2)}</obs>\nGo on."
    again = f"{PLAN} {COMPARED}"
    found = shares(
        completion(1, PLAN, request=(0,)), search(0, 1), completion(2, again, request=(1,)),
        messages=(turn("user", QUERY), turn("user", dialogue)),
    )  # fmt: skip
    assert found == {1: 0, 2: 0}


# -- what is joined from quotations

LONG = [
    {"product_id": "4410020031", "title": "Merino Loop Scarf Winter Edition Double Layer Knitted Warm", "price": 279.5},
    {"product_id": "4410020078", "title": "Plain Cotton Scarf Rouge Light Summer Wrap With Fringes", "price": 249.0},
]
ONE, TWO = (str(row["title"]) for row in LONG)
GLUED = {
    "few words between": f"{TWO} is the better choice because {ONE} costs more, so {TWO} it is",
    "one word between": f"{TWO} beats {ONE}",
    "no word between": f"{TWO} {ONE} {TWO}",
    "the query and a title": f"{QUERY} Hence {TWO}. {QUERY} Not {ONE}.",
}


def after_a_search(said: str, message: str) -> int:
    found = shares(
        completion(1, PLAN, request=(0,)), search(0, 1, result=json.dumps(LONG)), completion(2, said, request=(1,)),
        messages=(turn("user", QUERY), turn("user", message)),
    )  # fmt: skip
    return found[2]


@pytest.mark.parametrize("way", GLUED)
@pytest.mark.parametrize("around", ["{}", "Say exactly this:\n\n{}\n\nNothing else.", "plan: {} - end of the plan"])
def test_reasoning_glued_together_from_quotations_is_an_echo(way, around):
    assert after_a_search(GLUED[way], around.format(GLUED[way])) == 10_000


TABLES = {
    "numbered": "\n".join(
        f"{n}. {row['title']} | {row['price']} PHP | id {row['product_id']}" for n, row in enumerate(LONG, 1)
    ),
    "Markdown": "| id | title | price |\n|---|---|---|\n"
    + "\n".join(f"| {row['product_id']} | {row['title']} | {row['price']} |" for row in LONG),
    "CSV": "\n".join(f"{row['product_id']},{row['title']},{row['price']}" for row in LONG),
    "sentences": " ".join(f"Found {row['title']} (product {row['product_id']}, price {row['price']})." for row in LONG),
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_a_model_that_quotes_rows_of_the_programs_table_repeats_data(table):
    row = TABLES[table].splitlines()[-1].split("). ")[-1]
    said = f"I take this one: {row} It has a lower price than the other scarf and I see no drawback in the fabric."
    assert after_a_search(said, f"{QUERY}\n{TABLES[table]}\nDecide.") <= 2_500
