"""What a raced problem asked, beside what was found: for whom the rule lets see the problem, and for nobody else."""

from __future__ import annotations

import asyncio

import pytest

from arena.records.model import EvaluationRecord
from arena.store.postgres import PostgresStore
from neurons.cli.traces import FoundTraces, ReadRules, traces_of_store
from tests.web.episode_stand import ANSWER, EMBARGOED, NOW_MS, PUBLISHED, RUNNING, drawn_of, explain
from tests.web.places import ASKED, traces_of


def found_of(served, race_id: str, viewer: str) -> tuple[FoundTraces, set[str]]:
    """The traces of a race as `arena view` finds them, and the problems that were explained for it."""
    explained = set()

    def note(record: EvaluationRecord, catalogue_sha256: str):
        explained.add(record.context.problem_id)
        return explain(record, catalogue_sha256)

    async def read() -> FoundTraces:
        store = await PostgresStore.open(served.site.author.dsn)
        try:
            return await traces_of_store(store, race_id, ReadRules(viewer, ("train",), NOW_MS, 500, explain=note))
        finally:
            await store.close()

    return asyncio.run(read()), explained


def test_a_trace_page_has_each_constraint_with_both_values_and_whether_it_was_met(served):
    for place in traces_of(served.http, ASKED):
        page = served.http.get(f"/traces/{place}", headers={"accept": "text/html"}).text
        solved = ">solved, rule" in page
        rows = page[page.index("What was asked, and what was found") : page.index("Scores by product and axis")]
        assert "<td>price</td><td>at most 500 PHP</td><td>480 PHP</td>" in rows or not solved
        assert ("NO</td>" in rows) == (not solved)
        assert rows.count("<tr>") == 5 if solved else rows.count("<tr>") >= 5


def test_no_page_asks_what_a_problem_asked_before_everybody_may_know(served):
    published = {name for race in PUBLISHED for name in drawn_of(race)}
    served.explained.clear()
    statuses = {}
    for seq in range(1, served.site.size + 1, 2):
        path = f"/traces/{served.site.author.signer.hotkey}/{seq}"
        statuses[seq] = served.http.get(path, headers={"accept": "text/html"}).status_code
    assert served.explained and served.explained <= published
    assert not any(name.startswith((EMBARGOED, RUNNING)) for name in served.explained)
    assert {drawn_of(race)[-1] for race in PUBLISHED}.isdisjoint(served.explained)  # of pool eval, not asked for
    assert set(statuses.values()) == {200, 404}


@pytest.mark.parametrize("race_id", [EMBARGOED, RUNNING])
def test_the_public_gets_nothing_of_a_sealed_race_in_the_terminal(served, race_id):
    found, explained = found_of(served, race_id, "public")
    assert found.traces == () and explained == set() and found.withheld


def page_of(served, race_id: str, problem_id: str) -> str:
    return served.http.get(f"/races/{race_id}/problems/{problem_id}", headers={"accept": "text/html"}).text


def test_a_problems_page_has_what_was_asked_and_which_products_the_rule_accepts(served):
    page = page_of(served, PUBLISHED[1], ASKED)
    asked = page[page.index("What counts as met") : page.index("Who solved it")]
    assert "price: at most 500 PHP" in asked and "Accepted products" in asked
    assert f"<code>{ANSWER}</code>" in asked and asked.count("(the answer)") == 1
    assert "<code>1010</code>" in asked and asked.count("which an agent recommended") == 1


@pytest.mark.parametrize("race_id", [EMBARGOED, RUNNING])
def test_no_product_is_said_to_be_accepted_before_the_traces_open(served, race_id):
    served.explained.clear()
    for problem_id in drawn_of(race_id):
        page = page_of(served, race_id, problem_id)
        assert "Accepted products" not in page and ANSWER not in page
        assert "Sealed" in page or "Not here" in page  # of pool eval, not asked for
    assert served.explained == set()
