"""The filter: each rule alone, the leak guard, token counts, what only a set can tell, and one answer for one set of
traces however it comes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import ArenaError
from harness.chat import Message
from problems.clusters import content_words
from problems.model import BUCKETS, Pool, Problem
from problems.partition import OpenPartition, freeze
from problems.synthesis import synthesize
from tests.training.labelled import (
    Maker,
    Stored,
    Turn,
    agentic_turns,
    call,
    closing,
    disguise,
    make_labelled,
    make_trace,
    messages_of,
    query_text,
    replace,
    reword,
    search,
    select,
    stand_guard,
)
from training.corpus import model
from training.corpus.building import FilterResult, ablations
from training.corpus.duplicates import Likeness, fingerprint, likenesses, normal_words
from training.corpus.foreign import convert_row
from training.corpus.gates import Guard, codes_of, gates, recommended_ids
from training.corpus.report import funnel_of
from training.corpus.selection import Task, appraise, codes_under, decide, kept_rows, merit, rejections
from training.corpus.tokens import open_counter, render

# without what the filter's own rules do not ask for
OF_ONE_TRACE: tuple[model.RejectCode, ...] = tuple(code for code in get_args(model.RejectCode)[:12] if code != "failed")


def test_every_trace_is_rejected_for_exactly_what_is_wrong_with_it_and_of_repeats_one_stays() -> None:
    many = make_labelled(2_000)
    found = select([lambda: [one.trace for one in many]], Task(arms=(model.Rules(),)), stand_guard)
    codes = [codes_under(one, model.Rules()) for one in found.appraised]
    wrong = {(one.kind, one.codes, codes) for one, codes in zip(many, codes, strict=True) if codes != one.codes}
    assert not wrong
    groups: dict[tuple[str, str], list[str]] = {}
    decision = found.decisions[0]
    for one, rank, why in zip(many, decision.ranks, decision.codes, strict=True):
        if one.group:
            groups.setdefault((one.kind, one.group), []).append(f"kept {rank}" if rank else why[0])
    for (kind, _), fates in groups.items():
        repeats = [["kept 1", "duplicate", "duplicate", "near_duplicate"], ["kept 1", *["near_duplicate"] * 3]]
        assert sorted(fates) in (map(sorted, repeats) if kind == "repeats" else [["kept 1", "kept 2"]])


def test_a_gate_that_is_off_rejects_nothing_and_changes_no_other() -> None:
    every = gates()
    for one in make_labelled(60):
        for code in set(OF_ONE_TRACE) - model.NEVER_OFF:
            expected = tuple(found for found in codes_of(one.trace, model.Rules(), every) if found != code)
            assert codes_of(one.trace, model.Rules(off=(code,)), every) == expected


@pytest.mark.parametrize(
    ("arguments", "strict", "lenient"),
    [
        ('{"product_ids": "1, 2,,1"}', ("1", "2"), ("1", "2")),
        ('{"product_ids": ["1", "2"]}', (), ("1", "2")),
        ('{"product_id": "1"}', (), ("1",)),
        ('{"product_ids": ["1", 2]}', (), ()),
        ('{"product_ids": null}', (), ()),
        ("[" * 5_000, (), ()),
        ('"1"', (), ()),
    ],
)
def test_the_forms_of_a_recommendation_that_are_read(
    arguments: str, strict: tuple[str, ...], lenient: tuple[str, ...]
) -> None:
    assert recommended_ids(arguments, is_strict=True) == strict
    assert recommended_ids(arguments, is_strict=False) == lenient


def guessed_of(style: str) -> str | None:
    """What is guessed of a dialogue of which nothing was recorded."""
    maker = Maker(11)
    goods, rng = maker.goods(), maker.rng
    turns = agentic_turns(rng, goods, is_silent=style == "silent", emitter=None)
    searches = [search(rng, goods, rng.sample(goods.words, 3), emitter=None) for _ in range(4)]
    ends = closing(goods, None)
    said = Turn(content='{"match": true, "score": 7}')
    turns = {
        "narrator": [
            Turn(calls=searches[:1]),
            *(Turn(content="It can be paid.", calls=(one,)) for one in searches[1:]),
        ],
        "judge of matches": [Turn(calls=tuple(searches)), said, said, said, Turn(calls=ends)],
        "sweep": [Turn(calls=(search(rng, goods, goods.words[:3], page, None),)) for page in (1, 2, 3, 4)],
        "copies": [Turn(calls=(call("find_product", {"q": query_text(goods)}, "[]", None), *ends))],
        "calls nothing": [said],
    }.get(style, turns)
    trace = make_trace(goods, messages_of(goods, turns), place="a", kind="sn15", is_agentic=None, is_linear=None)
    return next((code for code in codes_of(trace, model.Rules(), gates()) if code.startswith("subtask")), None)


@pytest.mark.parametrize(
    "style", ["thinks", "silent", "narrator", "judge of matches", "sweep", "copies", "calls nothing"]
)
def test_a_program_that_has_its_model_talk_is_found_by_a_guess_and_no_model_is_accused(style: str) -> None:
    assert guessed_of(style) == (None if style in ("thinks", "silent") else "subtask_guess")


def test_each_signal_ranks_as_the_paper_says() -> None:
    plain = model.Signals(depth=5, reformulations=2, has_verification=True, longest_repeat=1, shape=("a",))
    for changed in ({"depth": 6}, {"reformulations": 3}):
        assert merit(replace(plain, **changed)) < merit(plain)
    for changed in ({"has_verification": False}, {"longest_repeat": 3}, {"depth": 4}):
        assert merit(replace(plain, **changed)) > merit(plain)
    assert merit(replace(plain, longest_repeat=2)) == merit(plain)


NEAR_E4 = model.Rules().near_duplicate_e4


def likeness_of(*prints: model.Fingerprint) -> list[Likeness | None]:
    """What each of some fingerprints is to those before it."""
    found = list(likenesses(enumerate(prints, 7), NEAR_E4))
    assert [number for number, _ in found] == list(range(7, 7 + len(prints)))
    return [likeness for _, likeness in found]


def story(seed: int) -> tuple[model.Trace, model.Trace, model.Trace]:
    """A trace, its disguised copy and its reworded copy."""
    maker = Maker(seed)
    goods = maker.goods()
    other = replace(goods, ids=tuple(str(int(one) + 1_234_567) for one in goods.ids))
    messages = maker.good_messages(goods)
    return (
        make_trace(goods, messages, place="a"),
        make_trace(other, disguise(messages, goods, other), place="b"),
        make_trace(goods, reword(maker.rng, messages), place="c"),
    )


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_other_ids_are_no_difference_filler_words_a_small_one_and_another_run_is_another_lesson(seed: int) -> None:
    plain, disguised, reworded = map(fingerprint, story(seed))
    assert likeness_of(plain, disguised) == [None, "duplicate"]
    assert likeness_of(plain, reworded) == likeness_of(reworded, plain) == [None, "near_duplicate"]
    maker = Maker(seed)
    goods = maker.goods()
    one, other = (make_trace(goods, maker.good_messages(goods), place=place) for place in "ab")
    assert likeness_of(fingerprint(one), fingerprint(other)) == [None, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("123456789,987654321", ["id0", "id1"]),
        ("1,299.50 PHP", ["#", "php"]),
        ("page 2 of 10", ["page", "2", "of", "#"]),
        ("USB3 at 99", ["usb3", "at", "#"]),
    ],
)
@pytest.mark.parametrize("sign", ["", "…"])
def test_numbers_become_ids_signs_or_stay(text: str, words: list[str], sign: str) -> None:
    trace = make_trace(Maker(1).goods(), [Message(role="assistant", reasoning=text + sign)], place="a")
    assert [word.decode() for word in normal_words(replace(trace, query="q"))[2:]] == words


TASK = Task(arms=(model.Rules(),))


@pytest.fixture(scope="module")
def traces() -> list[model.Trace]:
    return [one.trace for one in make_labelled(420, seed=5)]


@pytest.fixture(scope="module")
def selection(traces: list[model.Trace]) -> FilterResult:
    return select([Stored(traces)], TASK, stand_guard)


def rows_of(shards: Sequence[Stored], found: FilterResult) -> list[model.CorpusRow]:
    rows = kept_rows(shards, found.appraised, found.decisions[0])
    return sorted(rows, key=lambda row: (row.trace.trace_id, row.trace.source.place))


def rejected(found: FilterResult) -> list[model.Rejection]:
    return sorted(rejections(found.appraised, found.decisions[0]), key=lambda one: one.place)


def test_shuffled_and_dealt_to_shards_one_corpus_comes_out(traces: list[model.Trace], selection: FilterResult) -> None:
    shuffled = traces[:]
    random.Random(3).shuffle(shuffled)
    shards = [Stored(shuffled[start::7]) for start in range(7)]
    other = select(shards, TASK, stand_guard)
    assert rows_of(shards, other) == rows_of([Stored(traces)], selection)
    assert rejected(other) == rejected(selection)
    assert other.funnels[0] == selection.funnels[0]


def test_the_funnel_adds_up(traces: list[model.Trace], selection: FilterResult) -> None:
    one = selection.funnels[0]
    assert one.traces == len(traces)
    assert one.kept == selection.decisions[0].kept
    assert sum(count for _, count in one.removed) == one.traces - one.kept
    for parts in (one.days, one.buckets, one.agents):
        assert sum(part.traces for part in parts) == one.traces
        assert sum(part.kept for part in parts) == one.kept
        for code in one.codes:
            assert sum(dict(part.codes).get(code.code, 0) for part in parts) == code.count
    assert all(0 < len(code.examples) <= 5 for code in one.codes)
    assert (one.before.turns.traces, one.after.turns.traces, one.after.tokens.missing) == (one.traces, one.kept, 0)
    assert one.after.teams == 5 and one.before.shape_entropy_mbit > 0


def test_one_reading_serves_every_ablation(traces: list[model.Trace]) -> None:
    arms = ablations(model.Rules())
    shard = Stored(traces[:110])
    read_once = appraise([shard], Task(arms=tuple(arm.rules for arm in arms)), stand_guard)
    for arm in arms:
        alone = select([shard], Task(arms=(arm.rules,)), stand_guard)
        decision = decide(read_once, arm.rules)
        assert decision.codes == alone.decisions[0].codes
        assert funnel_of(read_once, decision).kept == alone.funnels[0].kept
        assert "leak" in {code.code for code in alone.funnels[0].codes}


def test_a_size_matched_corpus_is_a_seeded_part_of_all(traces: list[model.Trace], selection: FilterResult) -> None:
    read_once = selection.appraised
    whole = {i for i, rank in enumerate(selection.decisions[0].ranks) if rank}
    draws = []
    for seed in (1, 1, 2):
        decision = decide(read_once, model.Rules(rows=30, seed=seed))
        draws.append({i for i, rank in enumerate(decision.ranks) if rank})
        assert Counter(decision.codes)["sampled_out",] == len(whole) - 30
    assert draws[0] == draws[1] != draws[2]
    assert all(len(drawn) == 30 and drawn < whole for drawn in draws)
    assert decide(read_once, model.Rules(rows=10_000)).kept == len(whole)


def test_a_source_that_changed_between_readings_is_noticed(traces: list[model.Trace], selection: FilterResult) -> None:
    for changed in (traces[1:], traces[:1]):
        with pytest.raises(ArenaError) as caught:
            list(kept_rows([Stored(changed)], selection.appraised, selection.decisions[0]))
        assert caught.value.failure.code == "V2027"


KEY = bytes(range(32))


@pytest.fixture(scope="module")
def bank() -> tuple[Problem, ...]:
    from harness.catalogue.synthetic import generate

    return synthesize(list(generate(4_000, 5)), seed=9, counts={"product": 105, "shop": 100, "voucher": 100})


@pytest.fixture(scope="module")
def partition(bank: Sequence[Problem]) -> OpenPartition:
    """The bank in its four pools: 75 to evaluate on, 60 for `dev`, 90 in the suites, the rest to train on."""
    suites = [problem for bucket in BUCKETS for problem in bank if problem.bucket == bucket][::3][:90]
    return OpenPartition(freeze(bank, suites, seed=4, key=KEY), KEY)


@pytest.fixture(scope="module")
def by_pool(bank: Sequence[Problem], partition: OpenPartition) -> dict[Pool, list[Problem]]:
    pools: dict[Pool, list[Problem]] = {"never_touch": [], "eval": [], "dev": [], "train": []}
    for problem in bank:
        row = partition.row_of(partition.token(f"problem {problem.problem_id}"))
        assert row is not None
        pools[row.pool].append(problem)
    return pools


@pytest.fixture(scope="module")
def held_out(by_pool: dict[Pool, list[Problem]]) -> dict[Pool, list[Problem]]:
    return {pool: problems for pool, problems in by_pool.items() if pool != "train"}


@pytest.fixture(scope="module")
def guard(partition: OpenPartition, held_out: dict[Pool, list[Problem]]) -> Guard:
    return Guard(partition.manifest, held_out)


def foreign(problem: Problem, *, query: str = "", ids: Sequence[str] = (), titles: Sequence[str] = ()) -> model.Trace:
    """A chat row somebody made of a problem; it recommends `ids`, which a search listed under `titles`."""
    hits = [{"product_id": one, "title": title} for one, title in zip(ids, titles, strict=False)]
    call = {"id": "c1", "function": {"name": "find_product", "arguments": "{}"}}
    last = {"id": "c2", "function": {"name": "recommend_product", "arguments": {"product_ids": ",".join(ids)}}}
    messages = [
        {"role": "user", "content": query or problem.query},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": hits},
        {"role": "assistant", "tool_calls": [last]},
    ]
    return convert_row({"messages": messages, "metadata": {"pool": "train"}}, "rows.jsonl:1", "00" * 32)


def arena(trace: model.Trace, **facts: object) -> model.Trace:
    """The same as a row of an export, with these facts of its release."""
    return replace(trace, source=replace(trace.source, kind="arena"), facts=replace(model.TraceFacts(), **facts))


def test_a_released_row_enters_by_its_pool_and_cluster(
    guard: Guard, partition: OpenPartition, by_pool: dict[Pool, list[Problem]]
) -> None:
    for pool, problems in by_pool.items():
        for problem in problems:
            row = partition.row_of(partition.token(f"problem {problem.problem_id}"))
            assert row is not None
            trace = arena(foreign(problem), pool=pool, cluster_id=row.cluster)
            assert guard(trace) == (() if pool == "train" else ("pool",))
            mislabelled = arena(foreign(problem), pool="train", cluster_id=row.cluster)
            assert guard(mislabelled) == (() if pool == "train" else ("leak",))


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_released_row_that_answers_its_problem_with_a_held_out_product_does_not_enter(
    partition: OpenPartition, by_pool: dict[Pool, list[Problem]], held_out: dict[Pool, list[Problem]], is_keyed: bool
) -> None:
    """By the product's id alone, and by its title under another id."""
    guard = Guard(partition=partition) if is_keyed else Guard(partition.manifest, held_out)
    asked = by_pool["train"][0]
    row = partition.row_of(partition.token(f"problem {asked.problem_id}"))
    released = {"pool": "train", "cluster_id": row.cluster if row else "ab" * 32}
    own = [item.product_id for item in asked.rewards]
    assert guard(arena(foreign(asked, ids=own, titles=[item.title[0] for item in asked.rewards]), **released)) == ()
    for problem in (one for problems in held_out.values() for one in problems):
        for item in problem.rewards:
            for ids, titles in (([*own, item.product_id], []), (["9" + item.product_id], [item.title[0]])):
                assert guard(arena(foreign(asked, ids=ids, titles=titles), **released)) == ("leak",)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_no_held_out_problem_enters_from_elsewhere(
    partition: OpenPartition, held_out: dict[Pool, list[Problem]], is_keyed: bool
) -> None:
    """By its query alone, by its answer alone, and by its answer's title under another id; with the key alone too."""
    guard = Guard(partition=partition) if is_keyed else Guard(partition.manifest, held_out)
    for problem in (one for problems in held_out.values() for one in problems):
        ids = [item.product_id for item in problem.rewards]
        other = {"ids": [f"9{one}" for one in ids], "titles": [item.title[0] for item in problem.rewards]}
        assert guard(foreign(problem)) == ("leak",)
        for answer in ({"ids": ids}, other):
            assert guard(foreign(problem, query="something else entirely", **answer)) == ("leak",)


def test_a_query_is_found_behind_another_and_among_other_text(
    guard: Guard, held_out: dict[Pool, list[Problem]], by_pool: dict[Pool, list[Problem]]
) -> None:
    other = by_pool["train"][0]
    for problem in held_out["eval"]:
        trace = foreign(problem)
        assert guard(replace(trace, query=other.query)) == ("leak",)
        if len(content_words(problem.query)) >= 4:
            told = f"You are a careful assistant and answer in tags. <user>{problem.query}</user> <think>So.</think>"
            assert guard(foreign(other, query=told)) == ("leak",)


GOLDEN = [json.loads(line) for line in (Path(__file__).parent / "qwen3_rendered.jsonl").read_text("utf-8").splitlines()]
needs_library = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="the library `tokenizers` comes with the extra `train`"
)


def trace_of(messages: object, tools: str) -> model.Trace:
    return model.Trace(
        trace_id="0",
        source=model.TraceSource(kind="openai", place="golden", sha256="", is_verified=False),
        messages=msgspec.convert(messages, tuple[Message, ...]),
        tools=tools,
        query="",
        facts=model.TraceFacts(),
    )


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["name"])
def test_the_text_is_what_the_chat_template_of_qwen3_renders(golden: dict[str, str]) -> None:
    assert render(trace_of(golden["messages"], golden["tools"])) == golden["text"]


TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer" / "tokenizer.json"


@needs_library
def test_a_chat_tokenizer_counts_marks_and_any_other_file_is_refused(tmp_path: Path) -> None:
    counter = open_counter(TOKENIZER)
    assert [counter.count(text) for text in ("", "<|im_start|>", "<|im_start|><|im_end|>")] == [0, 1, 2]
    assert counter.count("日") >= 1
    assert counter.identity == hashlib.sha256(TOKENIZER.read_bytes()).hexdigest()
    (tmp_path / "wrong.json").write_text("{}", "utf-8")
    (tmp_path / "plain.json").write_text(TOKENIZER.read_text("utf-8").replace("<|im_start|>", "<|start|>"), "utf-8")
    for name in ("wrong.json", "absent.json", "plain.json"):
        with pytest.raises(ArenaError, match="im_start" if name == "plain.json" else "V2120"):
            open_counter(tmp_path / name)


def test_only_traces_that_pass_everything_else_are_counted() -> None:
    maker = Maker(1)
    made = [maker.good("silent"), maker.malformed("pool"), maker.malformed("orphan"), maker.malformed("too long")]
    found = appraise([lambda: [one.trace for one in made]], Task(arms=(model.Rules(),)), stand_guard)
    assert [one.tokens is not None for one in found] == [True, False, False, True]
