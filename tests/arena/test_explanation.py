"""What raced problems asked and what was found: as the signed score counts it, or nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.bank.batch import NOTHING, BatchExplainer, seal, write_batch
from arena.records.model import EvaluationRecord
from arena.view.reading import result_line, view_trace
from foundation.errors import Failure
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from judge.render import SPANS_MAX
from judge.verdict import UnscoredVerdict
from neurons.race.log import open_explainer
from problems.model import OutcomeScore
from problems.score import score
from problems.titles import LexicalTitles
from tests.arena.log_stand import episode
from tests.judge.bodies import PLAN, RUBRIC, body_of, completion, search
from tests.problems.stand import PROBLEMS, PRODUCTS

CATALOGUE = "22"
BATCH = seal("race-1", PROBLEMS, bytes(range(32)))
UNSURFACED = st.frozensets(st.sampled_from([*PRODUCTS]))
ids = st.lists(st.sampled_from([*PRODUCTS, "999"]), max_size=2, unique=True)


def record_of(number: int, recommended: list[str], unsurfaced: frozenset[str] = frozenset()) -> EvaluationRecord:
    """A record of the race on one of the problems, scored over the catalogue."""
    problem = PROBLEMS[number]
    outcome = score(problem, recommended, PRODUCTS.get, LexicalTitles(), unsurfaced=unsurfaced)
    (_, made, _), _ = episode(number)
    assert isinstance(made, EvaluationRecord) and isinstance(outcome, OutcomeScore)
    context = replace(
        made.context, stage="race", race_id="race-1", problem_id=problem.problem_id, batch_sha256=BATCH.batch_sha256
    )
    return replace(made, context=context, outcome=outcome)


@pytest.fixture(scope="module")
def explainer(tmp_path_factory) -> BatchExplainer:
    folder = tmp_path_factory.mktemp("bank")
    write_batch(folder / "race-1.batch.json", BATCH)
    return BatchExplainer(folder, {CATALOGUE: PRODUCTS.get}.get)


@given(number=st.integers(0, len(PROBLEMS) - 1), recommended=ids, unsurfaced=UNSURFACED)
def test_every_constraint_is_there_and_as_many_are_met_as_the_score_counts(explainer, number, recommended, unsurfaced):
    record = record_of(number, recommended, unsurfaced)
    found = explainer.explain(record, CATALOGUE).constraints
    asked = sum(
        len(item.title) + len(item.price) + len(item.service) + sum(map(len, (*item.sku_options, *item.attributes)))
        for item in PROBLEMS[number].rewards
    )
    together = sum(flag is not None for flag in (record.outcome.is_one_shop, record.outcome.is_within_budget))
    assert len(found) == asked + together and all(one.asked and one.found for one in found)
    met = Counter(one.slot for one in found if one.is_met)
    for place, slot in enumerate(record.outcome.slots, 1):
        if not slot.is_answer:
            assert met[place] == slot.rule_hits


def test_nothing_is_said_where_batch_catalogue_titles_or_score_are_others(explainer):
    record = record_of(0, ["103"])
    assert explainer.explain(record, CATALOGUE) != NOTHING
    others = {
        "of another catalogue": (record, "33"),
        "of another batch": (replace(record, context=replace(record.context, batch_sha256="ab" * 32)), CATALOGUE),
        "of a race whose batch is not here": (replace(record, context=replace(record.context, race_id="x")), CATALOGUE),
        "of a problem of none": (replace(record, context=replace(record.context, problem_id="x")), CATALOGUE),
        "of qualifying": (replace(record, context=replace(record.context, stage="qualifying")), CATALOGUE),
        "by other titles": (replace(record, outcome=replace(record.outcome, titles="qwen@1")), CATALOGUE),
    }
    said = {name: explainer.explain(*asked) for name, asked in others.items()}
    assert said == dict.fromkeys(others, NOTHING)
    slot = replace(record.outcome.slots[0], price=record_of(0, ["101"]).outcome.slots[0].price)
    assert explainer.explain(replace(record, outcome=replace(record.outcome, slots=(slot,))), CATALOGUE) == NOTHING


def test_a_state_folder_has_what_it_takes_and_an_index_may_be_named(tmp_path):
    record, state = record_of(1, ["102", "104"]), tmp_path / "state"
    documents = tmp_path / "documents.jsonl"
    with documents.open("wb") as stream:
        write_documents(PRODUCTS.values(), stream)
    index = tmp_path / "index"
    build_index(documents, index)
    (state / "bank").mkdir(parents=True)
    (state / "catalogues" / "torn").mkdir(parents=True)
    write_batch(state / "bank" / "race-1.batch.json", BATCH)
    sha256 = open_catalogue(index).content_sha256
    assert open_explainer(state).explain(record, sha256) == NOTHING
    named = open_explainer(state, index).explain(record, sha256)
    assert {one.axis for one in named.constraints if one.slot == 0} == {"shop"}
    (state / "catalogues" / "mine").symlink_to(index)
    assert open_explainer(state).explain(record, sha256) == named


def test_a_trace_longer_than_what_judges_see_is_shown_to_its_end():
    calls = [search(number, 1) for number in range(SPANS_MAX)]
    last = completion(2, "These are the very last words.")
    steps = view_trace(body_of(completion(1, PLAN), *calls, last)).steps
    assert len(steps) == 3 + 2 * len(calls) > SPANS_MAX
    assert [piece.text for piece in steps[-1].pieces] == ["These are the very last words."]
    assert (steps[-3].kind, steps[-3].badge, steps[-2].kind) == ("call", "llm", "result")


def test_the_result_goes_by_the_verdict_that_a_settlement_counts():
    (_, _, judging), _ = episode(0)
    first, later = judging.verdict, replace(judging.verdict, coefficient_e4=3_000)
    refusal = UnscoredVerdict(body_sha256="ab", rubric_id=first.rubric_id, failure=Failure(code="U3020"))
    outcome = record_of(0, ["101"]).outcome
    assert outcome.is_success and first.coefficient_e4 == 9_125
    rubric = replace(RUBRIC, prompt_sha256=first.prompt_sha256)
    for said in ((first,), (first, later), (first, refusal), (refusal, replace(later, rubric_id="x"), first, later)):
        assert result_line(outcome, said, rubric).endswith("coefficient 0.9125, score 0.9125")
    assert [result_line(outcome, said).endswith("not judged") for said in ((), (refusal, refusal))] == [True, True]
