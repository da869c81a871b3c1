"""The distance of two corpora: what each measure says of corpora made for it, and what chance alone gives."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.chat import Call, Message
from neurons.cli.app import main
from problems.model import PriceRule, Problem, RewardItem
from tests.training.written_rows import write_row
from training.corpus.distance.comparison import Compared, compare
from training.corpus.distance.episodes import CallOutcome, CallSequence, episode_of, outcome_of
from training.corpus.distance.measures import expected_distinct, js_distance, transitions
from training.corpus.distance.page import render_comparison
from training.corpus.model import Trace, TraceFacts, TraceSource

COUNTS = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any).map(lambda one: np.array(one, np.float64))


def episodes(seed: int, count: int, *, loops: float = 0.3, errors: float = 0.2) -> list[CallSequence]:
    """Episodes on count / 2 problems: search, perhaps again, view, recommend; some searches fail."""
    rng, made = random.Random(seed), []
    for number in range(count):
        steps = []
        while not steps or rng.random() < loops:
            outcome = "error" if rng.random() < errors else "ok"
            steps.append(CallOutcome("find_product", "find_product(q)", True, outcome))
        steps += [CallOutcome(name, f"{name}(id)", False, "ok") for name in ("view", "recommend")]
        made.append(CallSequence(f"p{seed}-{number // 2}", tuple(steps), 4, rng.randint(1, 4), None))
    return made


def one_of(measures: tuple[Compared, ...], name: str) -> Compared:
    return next(one for one in measures if one.name == name)


@given(COUNTS, COUNTS)
def test_the_distance_is_a_metric_between_0_and_1(one: np.ndarray, other: np.ndarray) -> None:
    found = js_distance(one, other)
    assert 0 <= found <= 1
    assert found == pytest.approx(js_distance(other, one))
    assert js_distance(one, one * 3) == pytest.approx(0, abs=1e-6)


def test_the_distance_of_known_distributions() -> None:
    assert js_distance(np.array([1.0, 0]), np.array([0, 5.0])) == 1
    half = js_distance(np.array([1.0, 1]), np.array([1.0, 0]))  # Jensen-Shannon divergence 0.3113 bit
    assert half == pytest.approx(math.sqrt(0.311278), abs=1e-5)
    assert math.isnan(js_distance(np.zeros(2), np.ones(2)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_rarefaction_is_the_mean_over_every_draw(kinds: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(kinds)))
    draws = [len(set(draw)) for draw in combinations(kinds, size)]
    assert expected_distinct(Counter(kinds).values(), size) == pytest.approx(sum(draws) / len(draws))


def test_equal_policies_lie_within_chance_and_different_ones_beyond_it() -> None:
    same = compare(episodes(1, 80), episodes(2, 80), ("a", "b"), draws=120)
    apart = compare(episodes(1, 80), episodes(2, 80, loops=0.8), ("a", "b"), draws=120)
    assert all(one.p_value > 0.01 for one in same.distances)
    assert all(one.distance.value > one.shuffled and one.p_value < 0.01 for one in apart.distances)
    assert all(one.distance.value > max(one.halves) for one in apart.distances)
    assert same.length.difference and same.length.difference.low < 0 < same.length.difference.high
    assert apart.length.difference and apart.length.difference.low > 0


def test_an_interval_widens_when_episodes_of_one_problem_are_alike() -> None:
    apart = [
        CallSequence(str(n), (CallOutcome("a", "a()", False, "error" if n % 2 else "ok"),), 0, 0, None)
        for n in range(120)
    ]
    alike = [msgspec.structs.replace(one, problem=f"{n % 2}{n // 20}") for n, one in enumerate(apart)]
    widths = []
    for made in (apart, alike):
        value = one_of(compare(made, apart, ("a", "b"), draws=150).outcomes, "errors").values[0]
        assert value is not None and value.value == 0.5
        widths.append(value.high - value.low)
    assert widths[1] > 1.5 * widths[0]


def test_equal_seeds_give_equal_values_and_the_order_of_episodes_is_nothing() -> None:
    one, other = episodes(1, 30), episodes(2, 30, errors=0.6)
    first = compare(one, other, ("a", "b"), draws=100)
    assert first == compare(one, other, ("a", "b"), draws=100)
    assert first.distances == compare(sorted(one, key=lambda e: e.problem), other, ("a", "b"), draws=100).distances
    assert first != compare(one, other, ("a", "b"), draws=100, seed=1)


def test_more_distinct_behaviours_are_seen_at_an_equal_number_of_episodes() -> None:
    found = compare(episodes(1, 40, loops=0.9), episodes(2, 400, loops=0.1), ("a", "b"), draws=100).behaviours
    assert found.at == 20
    assert found.expected[0].low > found.expected[1].high
    for curve, distinct in zip(found.curves, found.distinct, strict=True):
        assert curve[0] == (1, 1.0) and curve[-1][1] == pytest.approx(distinct)
        assert [y for _, y in curve] == sorted(y for _, y in curve)


def test_what_nothing_was_taken_of_is_not_defined_and_never_0() -> None:
    found = compare(episodes(1, 20, errors=0), episodes(2, 20, errors=0), ("a", "b"), draws=100)
    assert one_of(found.outcomes, "recovered").values == (None, None)
    assert one_of(found.outcomes, "recovered").difference is None
    assert one_of(found.coverage, "price").values == (None, None)
    errors = one_of(found.outcomes, "errors").values[0]
    assert errors and errors.value == 0 and errors.high > 0.05  # none in ten problems is no proof of none
    assert "not defined" in render_comparison(found)


def test_too_few_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="few: 3 problems"):
        compare(episodes(1, 6), episodes(2, 20), ("few", "b"))


def test_rows_of_the_transition_table_add_up_to_1() -> None:
    made = episodes(3, 40)
    table = transitions(made, ("find_product", "never", "recommend", "view"))
    assert table[0] == [1, 0, 0, 0, 0]  # after the start comes a search
    assert all(math.isnan(share) for share in table[2])
    assert table[3] == [0, 0, 0, 0, 1]
    assert sum(table[1]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("result", "is_search", "outcome"),
    [
        (None, True, "unanswered"),
        ("[]", True, "empty"),
        ("[]", False, "ok"),
        ('[{"product_id":"1"}]', True, "ok"),
        ('{"error":"`page` must be an integer","code":"A1050"}', True, "error"),
        ('{"matched":false,"mismatches":["colour"]}', False, "ok"),
        ('"Nothing was recommended: `product_ids` holds no product id."', False, "error"),
        ("Error: timed out", False, "error"),
        ('"Recommended to the user: 5"', False, "ok"),
    ],
)
def test_how_a_call_ended(result: str | None, is_search: bool, outcome: str) -> None:
    assert outcome_of(result, is_search=is_search) == outcome


PROBLEM = Problem(
    problem_id="p1",
    bucket="product",
    query="Find a red steel kettle below 900 with free shipping",
    rewards=(
        RewardItem(
            product_id="1",
            title=("Steel Kettle Deluxe Whistling",),
            sku_options=({"color_family": "red"},),
            attributes=({"material": ("steel", "iron")}, {"capacity": ("2 l",)}),
            service=("freeShipping",),
            price=(PriceRule(mode="less than", high=900.0),),
        ),
    ),
)


def trace_of(*calls: tuple[str, str, str | None], place: str = "f:1", problem_id: str = "p1") -> Trace:
    """A trace that makes these calls (name, arguments, result), one a turn."""
    messages = [Message(role="user", content=PROBLEM.query)]
    for number, (name, arguments, result) in enumerate(calls):
        call = Call(id=f"c{number}", name=name, arguments=arguments)
        messages.append(Message(role="assistant", content="I look.", calls=(call,)))
        if result is not None:
            messages.append(Message(role="tool", content=result, call_id=call.id))
    return Trace(
        trace_id=place,
        source=TraceSource(kind="openai", place=place, sha256="00", is_verified=False),
        messages=tuple(messages),
        tools="[]",
        query=PROBLEM.query,
        facts=TraceFacts(problem_id=problem_id),
    )


def test_what_calls_ask_for_of_what_the_problem_demands() -> None:
    search = ("find_product", '{"q":"red steel kettle","price":"-900","page":1,"service":""}', "[]")
    found = episode_of(trace_of(search, ("recommend_product", '{"product_ids":"1"}', None)), PROBLEM)
    assert found.steps == (
        CallOutcome("find_product", "find_product(page, price, q)", True, "empty"),
        CallOutcome("recommend_product", "recommend_product(product_ids)", False, "unanswered"),
    )
    assert found.demands == {
        "title": (1, 1),
        "price": (1, 1),
        "service": (0, 1),
        "option": (1, 1),
        "attribute": (1, 2),
    }
    assert found.said == found.asked > 1
    part = episode_of(trace_of(("find_product", '{"q":"kettle"}', "[]")), None)
    assert (part.said, part.asked, part.demands) == (1, found.asked, None)


def test_demands_are_found_in_searches_within_an_argument() -> None:
    inner = json.dumps([{"q": "steel kettle", "service": "freeShipping", "price": "-900"}])
    call = ("find_products_in_same_shop", json.dumps({"product_queries": inner}), '{"found":false,"error":"none"}')
    found = episode_of(trace_of(call), msgspec.structs.replace(PROBLEM, bucket="shop"))
    assert found.demands is not None
    assert {kind: found.demands[kind] for kind in ("price", "service", "shop", "option")} == {
        "price": (1, 1),
        "service": (1, 1),
        "shop": (1, 1),
        "option": (0, 1),
    }
    assert found.steps[0].outcome == "error"


def rows(path: Path, seed: int, again: float) -> Path:
    """A file of OpenAI rows: a search, perhaps again, and a recommendation, on twelve problems."""
    rng = random.Random(seed)
    with path.open("wb") as file:
        for number in range(36):
            hit = '[{"product_id":"1"}]'
            calls = [("find_product", '{"q":"kettle"}', "[]")] * (rng.random() < again)
            calls += [
                ("find_product", '{"q":"steel kettle"}', hit),
                ("recommend_product", '{"product_ids":"1"}', '"ok"'),
            ]
            file.write(msgspec.json.encode(write_row(trace_of(*calls, problem_id=f"p{number % 12}"))) + b"\n")
    return path


def test_the_command_writes_a_page_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = rows(tmp_path / "many.jsonl", 1, 0.9), rows(tmp_path / "one.jsonl", 2, 0.0)
    page = tmp_path / "page.html"
    words = ["corpus", "compare", str(one), str(other), "--out", str(page), "--draws", "100"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    text = capsys.readouterr().out
    assert "differ by more than chance" in text and "distinct behaviours" in text
    html = page.read_text("utf-8")
    assert html.count("<svg") == html.count('role="img" aria-label="') >= 6
    assert not re.search(r"<script|src=|https?://(?!www\.w3\.org)|url\(", html)
    assert "color-scheme" in html and "kettle" not in html
    with pytest.raises(SystemExit):
        main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [side["episodes"] for side in found["sides"]] == [36, 36]
    assert page.read_text("utf-8") == html


@pytest.mark.parametrize(
    ("flags", "said"), [(("--names", "a"), "two different names"), (("--out", "{tmp}/none/x.html"), "is no folder")]
)
def test_bad_words_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    one, other = rows(tmp_path / "many.jsonl", 1, 0.9), rows(tmp_path / "one.jsonl", 2, 0.0)
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "compare", str(one), str(other), *(flag.format(tmp=tmp_path) for flag in flags)])
    assert ended.value.code == 2
    assert said.replace(" ", "") in re.sub(r"[\s│]", "", capsys.readouterr().err)
