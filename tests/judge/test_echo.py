"""The echo share: what the program put into a request, whatever role it claims, and nothing that was recorded."""

from __future__ import annotations

import json

import pytest

from harness.trace import EvaluationBody, Event
from judge.echo import echoes_of
from tests.judge.bodies import COMPARED, PLAN, PRODUCTS, QUERY, body_of, completion, search

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


ROWS = {
    "numbered lines of five words": lambda words: "\n".join(
        f"{n}. {' '.join(words[n : n + 5])}" for n in range(0, len(words), 5)
    ),
    "numbered words": lambda words: " ".join(f"({n}) {word}" for n, word in enumerate(words)),
    "rows of a table": lambda words: "\n".join(
        f"| {n} | {' '.join(words[n : n + 4])} | x |" for n in range(0, len(words), 4)
    ),
    "blanks": lambda words: " ".join(f"{word} ___" if n % 6 == 5 else word for n, word in enumerate(words)),
}  # fmt: skip


def test_a_sentence_whose_blanks_for_ids_and_prices_the_model_fills_is_the_programs():
    blank = (
        "Say that product ___ costs ___ pesos, which is well below what was asked, while ___ costs ___ and is dearer."
    )
    said = blank.replace("Say that ", "")
    for value in ("4410020078", "249.0", "4410020031", "279.5"):
        said = said.replace("___", value, 1)
    assert after_a_search(said, f"{QUERY}\n{blank}") >= 8_000


def test_a_dialogue_resent_in_one_message_is_the_models_own_words_and_the_tools():
    dialogue = f"{QUERY}\n<think>{PLAN}</think>\n<obs>{json.dumps(PRODUCTS, indent=2)}</obs>\nGo on."
    again = f"{PLAN} {COMPARED}"
    found = shares(
        completion(1, PLAN, request=(0,)), search(0, 1), completion(2, again, request=(1,)),
        messages=(turn("user", QUERY), turn("user", dialogue)),
    )  # fmt: skip
    assert found == {1: 0, 2: 0}


@pytest.mark.parametrize("emitter", ["code", "echoed"])
def test_what_a_result_repeats_of_the_programs_arguments_is_no_data(emitter):
    called = search(
        0, 0, name="check_product_match", arguments=json.dumps({"requirements": json.dumps({THOUGHT: "1"})}),
        result=json.dumps({"mismatches": [THOUGHT]}), emitter=emitter,
    )  # fmt: skip
    messages = (turn("user", json.dumps({"mismatches": [THOUGHT]})),)
    assert shares(called, completion(1, THOUGHT, request=(0,)), messages=messages)[1] == 10_000


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


HONEST = {
    "label and query": f"Shopper request: {QUERY}",
    "JSON state": json.dumps({"request": QUERY, "steps_left": 12}),
    "dialogue in one message": f"Question: {QUERY}\nThought: {PLAN}\nObservation: {json.dumps(LONG, indent=2)}\nGo.",
    "Python state": repr({"query": QUERY, "hits": LONG}),
    "YAML": f"query: {QUERY}\nhits:\n" + "\n".join(f"- {row['title']}: {row['price']}" for row in LONG),
    "retry": f"{QUERY}\nYour last call failed: unknown argument 'query', use 'q'.",
    "pager": f"{QUERY}\nPage 1 of 5: {json.dumps(LONG)}\nFor more call find_product with page=2.",
    "slots": f"Slots: product = scarf; colour = red; fabric = cotton; limit = 300 PHP\n{QUERY}",
    "synonyms": f"{QUERY}\nSynonyms: scarf, shawl, wrap; red, crimson; cotton, fabric.",
    "rules": f"{QUERY}\nCompare price, services and every attribute before you recommend one product. Guess no id.",
    "few-shot": f"Thought: The shoes cost 1790 and fit the size, so I recommend them.\nQuestion: {QUERY}",
    "schemas": f"find_product(q, page, price): searches the shop. recommend_product(product_ids): ends it.\n{QUERY}",
    "quoted thought": f"{QUERY}\nYou said: {PLAN}\nGo on.",
}  # fmt: skip
ANSWER = (
    f"The shopper's request is: {QUERY} Both hits are scarves. {TWO} (4410020078) costs 249.0 and {ONE} costs 279.5, "
    "so the second is cheaper and its fabric is the one that was asked for. I recommend it."
)
