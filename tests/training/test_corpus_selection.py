"""The filter: each rule alone, what only a set can tell, and one answer for one set of traces however it comes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import ArenaError
from foundation.executors.processes import executor_of
from harness.chat import Message
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
from training.corpus.building import (
    PER_TRACE,
    SET_LEVEL,
    Filtered,
    Mix,
    ablations,
    mix,
)
from training.corpus.duplicates import (
    Likeness,
    fingerprint,
    likenesses,
    normal_words,
)
from training.corpus.gates import codes_of, gates, recommended_ids
from training.corpus.model import (
    NEVER_OFF,
    Appraisal,
    CorpusRow,
    Fingerprint,
    RejectCode,
    Rejection,
    Rules,
    Signals,
    Trace,
)
from training.corpus.report import funnel_of
from training.corpus.selection import (
    Task,
    appraise,
    choose,
    codes_under,
    decide,
    kept_rows,
    merit,
    rejections,
)

# without what the filter's own rules do not ask for
OF_ONE_TRACE: tuple[RejectCode, ...] = tuple(code for code in get_args(RejectCode)[:12] if code != "failed")


def test_every_trace_is_rejected_for_exactly_what_is_wrong_with_it_and_of_repeats_one_stays() -> None:
    many = make_labelled(2_000)
    found = select([lambda: [one.trace for one in many]], Task(arms=(Rules(),)), stand_guard)
    codes = [codes_under(one, Rules()) for one in found.appraised]
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
        for code in set(OF_ONE_TRACE) - NEVER_OFF:
            expected = tuple(found for found in codes_of(one.trace, Rules(), every) if found != code)
            assert codes_of(one.trace, Rules(off=(code,)), every) == expected


def test_ids_of_a_trace_that_records_none_are_held_against_the_callers() -> None:
    one = Maker(2).malformed("nothing known to surface")
    ids = frozenset(one.trace.facts.recommended or ())
    assert codes_of(one.trace, Rules(), gates()) == ("recommend_arguments",)
    assert codes_of(one.trace, Rules(), gates(ids)) == ()
    assert codes_of(one.trace, Rules(), gates(frozenset({"77"}))) == ("recommend_arguments",)


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
    return next((code for code in codes_of(trace, Rules(), gates()) if code.startswith("subtask")), None)


@pytest.mark.parametrize(
    "style", ["thinks", "silent", "narrator", "judge of matches", "sweep", "copies", "calls nothing"]
)
def test_a_program_that_has_its_model_talk_is_found_by_a_guess_and_no_model_is_accused(style: str) -> None:
    assert guessed_of(style) == (None if style in ("thinks", "silent") else "subtask_guess")


_NAMES = st.sampled_from(["find_product", "view_product_information", "recommend_product", "terminate"])
_SHAPES = st.lists(_NAMES, max_size=6).map(tuple)
_SIGNALS = st.builds(
    Signals,
    depth=st.integers(1, 3),
    reformulations=st.integers(0, 2),
    has_verification=st.booleans(),
    longest_repeat=st.integers(1, 4),
    shape=_SHAPES,
)


def candidate_of(name: str, signals: Signals) -> Appraisal:
    texts = dict.fromkeys(("problem", "bucket", "day", "agent", "team", "place"), "")
    nothing = dict.fromkeys(("coefficient_e4", "tokens", "fingerprint"))
    return Appraisal(shard=0, ordinal=0, trace_id=name, signals=signals, turns=1, codes=(), **texts, **nothing)


def test_each_signal_ranks_as_the_paper_says() -> None:
    plain = Signals(depth=5, reformulations=2, has_verification=True, longest_repeat=1, shape=("a",))
    for changed in ({"depth": 6}, {"reformulations": 3}):
        assert merit(replace(plain, **changed)) < merit(plain)
    for changed in ({"has_verification": False}, {"longest_repeat": 3}, {"depth": 4}):
        assert merit(replace(plain, **changed)) > merit(plain)
    assert merit(replace(plain, longest_repeat=2)) == merit(plain)


@given(st.lists(_SIGNALS, max_size=7), st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_the_candidates(
    signals: list[Signals], most: int, rng: object
) -> None:
    field = [candidate_of(str(number), one) for number, one in enumerate(signals)]
    shuffled = field[:]
    rng.shuffle(shuffled)
    assert [field[i] for i in choose(field, most)] == [shuffled[i] for i in choose(shuffled, most)]


NEAR_E4 = Rules().near_duplicate_e4


def likeness_of(*prints: Fingerprint) -> list[Likeness | None]:
    """What each of some fingerprints is to those before it."""
    found = list(likenesses(enumerate(prints, 7), NEAR_E4))
    assert [number for number, _ in found] == list(range(7, 7 + len(prints)))
    return [likeness for _, likeness in found]


def story(seed: int) -> tuple[Trace, Trace, Trace]:
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
def test_numbers_become_ids_signs_or_stay(text: str, words: list[str]) -> None:
    trace = make_trace(Maker(1).goods(), [Message(role="assistant", reasoning=text)], place="a")
    assert normal_words(replace(trace, query="q"))[2:] == words


TASK = Task(arms=(Rules(),))


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return [one.trace for one in make_labelled(420, seed=5)]


@pytest.fixture(scope="module")
def selection(traces: list[Trace]) -> Filtered:
    return select([Stored(traces)], TASK, stand_guard)


def rows_of(shards: Sequence[Stored], found: Filtered, workers: int = 0) -> list[CorpusRow]:
    rows = kept_rows(shards, found.appraised, found.decisions[0], executor=executor_of(workers))
    return sorted(rows, key=lambda row: (row.trace.trace_id, row.trace.source.place))


def rejected(found: Filtered) -> list[Rejection]:
    return sorted(rejections(found.appraised, found.decisions[0]), key=lambda one: one.place)


def test_shuffled_and_dealt_to_shards_the_same_corpus_comes_out(traces: list[Trace], selection: Filtered) -> None:
    shuffled = traces[:]
    random.Random(3).shuffle(shuffled)
    shards = [Stored(shuffled[start::7]) for start in range(7)]
    other = select(shards, TASK, stand_guard)
    assert rows_of(shards, other) == rows_of([Stored(traces)], selection)
    assert rejected(other) == rejected(selection)
    assert other.funnels[0] == selection.funnels[0]


def test_the_funnel_adds_up(traces: list[Trace], selection: Filtered) -> None:
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
    assert one.before.turns.traces == one.traces
    assert one.after.turns.traces == one.kept
    assert one.after.tokens.missing == 0
    assert one.after.teams == 5
    assert one.before.shape_entropy_mbit > 0


def test_one_reading_serves_every_ablation(traces: list[Trace]) -> None:
    arms = ablations(Rules())
    shard = Stored(traces[:110])
    read_once = appraise([shard], Task(arms=tuple(arm.rules for arm in arms)), stand_guard)
    for arm in arms:
        alone = select([shard], Task(arms=(arm.rules,)), stand_guard)
        decision = decide(read_once, arm.rules)
        assert decision.codes == alone.decisions[0].codes
        assert funnel_of(read_once, decision).kept == alone.funnels[0].kept
        assert "leak" in {code.code for code in alone.funnels[0].codes}


def test_a_size_matched_corpus_is_a_seeded_part_of_the_whole(traces: list[Trace], selection: Filtered) -> None:
    read_once = selection.appraised
    whole = {i for i, rank in enumerate(selection.decisions[0].ranks) if rank}
    draws = []
    for seed in (1, 1, 2):
        decision = decide(read_once, Rules(rows=30, seed=seed))
        draws.append({i for i, rank in enumerate(decision.ranks) if rank})
        assert Counter(decision.codes)["sampled_out",] == len(whole) - 30
    assert draws[0] == draws[1] != draws[2]
    assert all(len(drawn) == 30 and drawn < whole for drawn in draws)
    assert decide(read_once, Rules(rows=10_000)).kept == len(whole)


def test_a_source_that_changed_between_the_readings_is_noticed(traces: list[Trace], selection: Filtered) -> None:
    for changed in (traces[1:], traces[:1]):
        with pytest.raises(ArenaError) as caught:
            list(kept_rows([Stored(changed)], selection.appraised, selection.decisions[0]))
        assert caught.value.failure.code == "V2027"


_BUCKETS = ("product", "shop", "voucher")


@given(
    st.integers(1, 60), st.integers(1, 60), st.sampled_from([5_000, 7_000, 3_333]), st.integers(1, 3), st.integers(0, 5)
)
def test_the_shares_hold_to_within_a_row_and_no_row_stands_more_often_than_it_may(
    first: int, second: int, share_e4: int, times: int, seed: int
) -> None:
    parts = {
        is_corpus: [(str(number), _BUCKETS[number % 3]) for number in range(count)]
        for is_corpus, count in ((True, first), (False, second))
    }
    drawn = mix(parts[True], parts[False], Mix(corpus_share_e4=share_e4, voucher_times=times, seed=seed))
    from_corpus = sum(is_corpus for is_corpus, _ in drawn)
    assert abs(from_corpus * 10_000 - share_e4 * len(drawn)) <= 10_000
    for (is_corpus, index), copies in Counter(drawn).items():
        assert copies <= (times if parts[is_corpus][index][1] == "voucher" else 1)


def test_every_gate_has_an_arm_without_it_and_the_guard_is_in_all() -> None:
    arms = {arm.name: arm.rules for arm in ablations(Rules())}
    assert arms["full"] == Rules()
    switched = {code for name, rules in arms.items() if name.startswith("no_") for code in rules.off}
    assert switched == {*PER_TRACE, *SET_LEVEL}
    assert switched | NEVER_OFF | {"sampled_out", "failed"} == set(get_args(RejectCode))
    assert "tokens" not in arms["no_structural_filter"].off
    assert {*arms["no_agentic_split"].off} == {"subtask", "subtask_guess"}
