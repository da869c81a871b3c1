"""The filter: each rule alone, what only a set can tell, and one answer for one set of traces however it comes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import ArenaError
from foundation.executors import executor_of
from harness.chat import Message
from tests.training.labelled import Labelled, Maker, disguise, make_labelled, reword, select, stand_guard
from tests.training.stories import (
    Turn,
    agentic_turns,
    call,
    closing,
    make_trace,
    messages_of,
    query_text,
    search,
)
from training.corpus.building import (
    PER_TRACE,
    SET_LEVEL,
    Filtered,
    Mix,
    MixRow,
    ablations,
    mix,
)
from training.corpus.duplicates import (
    Likeness,
    fingerprint,
    likenesses,
    normal_words,
)
from training.corpus.gates import NEVER_OFF, codes_of, gates, recommended_ids
from training.corpus.model import (
    Appraisal,
    CorpusRow,
    Fingerprint,
    Quarantined,
    RejectCode,
    Rejection,
    Rules,
    Signals,
    Trace,
)
from training.corpus.report import funnel_of
from training.corpus.selection import (
    Appraised,
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


@pytest.fixture(scope="module")
def many() -> list[Labelled]:
    return make_labelled(2_400)


@pytest.fixture(scope="module")
def appraised(many: list[Labelled]) -> Appraised:
    return appraise([lambda: [one.trace for one in many]], Task(arms=(Rules(),)), stand_guard)


def test_every_trace_is_rejected_for_exactly_what_is_wrong_with_it(many: list[Labelled], appraised: Appraised) -> None:
    assert len(many) >= 2_000
    found = [codes_under(one, Rules()) for one in appraised]
    wrong = {(one.kind, one.codes, codes) for one, codes in zip(many, found, strict=True) if codes != one.codes}
    assert not wrong


def test_a_gate_that_is_off_rejects_nothing_and_changes_no_other(many: list[Labelled]) -> None:
    every = gates()
    for one in many[:200]:
        for code in set(OF_ONE_TRACE) - NEVER_OFF:
            expected = tuple(found for found in codes_of(one.trace, Rules(), every) if found != code)
            assert codes_of(one.trace, Rules(off=(code,)), every) == expected


@pytest.mark.parametrize("code", sorted(NEVER_OFF))
def test_the_leak_guard_cannot_be_switched_off(code: RejectCode) -> None:
    with pytest.raises(ValueError, match=code):
        codes_of(Maker(1).good("silent").trace, Rules(off=(code,)), gates())
    with pytest.raises(ValueError, match=code):
        Task(arms=(Rules(), Rules(off=(code,))))


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


@pytest.mark.parametrize("style", ["thinks", "silent"])
def test_no_model_that_searches_by_itself_is_accused(style: str) -> None:
    assert guessed_of(style) is None


@pytest.mark.parametrize("style", ["narrator", "judge of matches", "sweep", "copies", "calls nothing"])
def test_a_program_that_has_its_model_talk_is_found_by_a_guess(style: str) -> None:
    assert guessed_of(style) == "subtask_guess"


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
    known = dict.fromkeys(("problem", "bucket", "day", "agent", "team", "place"), "")
    nothing = {
        "codes": (),
        "coefficient_e4": None,
        "tokens": None,
        "fingerprint": None,
    }
    return Appraisal(shard=0, ordinal=0, trace_id=name, signals=signals, turns=1, **known, **nothing)


def candidate(name: str, **signals: object) -> Appraisal:
    known = {"depth": 5, "reformulations": 2, "has_verification": True, "longest_repeat": 1, "shape": ("a",), **signals}
    return candidate_of(name, Signals(**known))


def test_each_signal_ranks_as_the_paper_says() -> None:
    plain = candidate("p")
    better = [candidate("b", depth=6), candidate("b", reformulations=3)]
    worse = [candidate("w", has_verification=False), candidate("w", longest_repeat=3), candidate("w", depth=4)]
    assert all(merit(one.signals) < merit(plain.signals) for one in better)
    assert all(merit(one.signals) > merit(plain.signals) for one in worse)
    assert merit(candidate("x", longest_repeat=2).signals) == merit(plain.signals)


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


def are_exact(one: Trace, other: Trace) -> bool:
    return likeness_of(fingerprint(one), fingerprint(other)) == [None, "duplicate"]


def are_near(one: Trace, other: Trace) -> bool:
    return likeness_of(fingerprint(one), fingerprint(other)) == [None, "near_duplicate"]


def story(seed: int) -> tuple[Trace, Trace, Trace]:
    """A trace, its disguised copy and its reworded copy."""
    maker = Maker(seed)
    goods = maker.goods()
    other = msgspec.structs.replace(goods, ids=tuple(str(int(one) + 1_234_567) for one in goods.ids))
    messages = maker.good_messages(goods)
    return (
        make_trace(goods, messages, place="a"),
        make_trace(other, disguise(messages, goods, other), place="b"),
        make_trace(goods, reword(maker.rng, messages), place="c"),
    )


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_other_ids_numbers_spacing_case_and_key_order_are_no_difference(seed: int) -> None:
    plain, disguised, _ = story(seed)
    assert plain.trace_id != disguised.trace_id
    assert are_exact(plain, disguised)


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_filler_words_make_a_near_duplicate_and_no_exact_one(seed: int) -> None:
    plain, _, reworded = story(seed)
    assert not are_exact(plain, reworded)
    assert are_near(plain, reworded)
    assert are_near(reworded, plain)


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_two_runs_at_one_problem_are_two_lessons(seed: int) -> None:
    maker = Maker(seed)
    goods = maker.goods()
    one, other = (make_trace(goods, maker.good_messages(goods), place=place) for place in "ab")
    assert not are_exact(one, other)
    assert not are_near(one, other)


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
    assert normal_words(msgspec.structs.replace(trace, query="q"))[2:] == words


TASK = Task(arms=(Rules(),))


class Stored:
    """A shard in memory that a process can be sent."""

    def __init__(self, rows: Sequence[Trace | Quarantined]) -> None:
        self._rows = tuple(rows)

    def __call__(self) -> tuple[Trace | Quarantined, ...]:
        return self._rows


class Dying:
    """A shard whose reader dies."""

    def __call__(self) -> tuple[Trace, ...]:
        os._exit(3)


@pytest.fixture(scope="module")
def labelled() -> list[Labelled]:
    return make_labelled(420, seed=5)


@pytest.fixture(scope="module")
def traces(labelled: list[Labelled]) -> list[Trace]:
    return [one.trace for one in labelled]


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
    for code in one.codes:
        places = {
            trace.source.place
            for trace, codes in zip(traces, selection.decisions[0].codes, strict=True)
            if code.code in codes
        }
        assert code.count == len(places)
        assert 0 < len(code.examples) <= 5
        assert places.issuperset(code.examples)
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


def test_a_process_that_dies_is_named_and_nothing_is_decided() -> None:
    with pytest.raises(ArenaError) as caught:
        appraise([Dying(), Dying()], TASK, stand_guard, executor=executor_of(2))
    assert caught.value.failure.code == "V2052"


_BUCKETS = ("product", "shop", "voucher")


def rows(count: int, name: str) -> list[MixRow]:
    return [MixRow(key=f"{name}{number}", bucket=_BUCKETS[number % 3]) for number in range(count)]


@given(
    st.integers(1, 60), st.integers(1, 60), st.sampled_from([5_000, 7_000, 3_333]), st.integers(1, 3), st.integers(0, 5)
)
def test_the_shares_hold_to_within_a_row_and_no_row_stands_more_often_than_it_may(
    first: int, second: int, share_e4: int, times: int, seed: int
) -> None:
    corpus, rollouts = rows(first, "c"), rows(second, "r")
    drawn = mix(corpus, rollouts, Mix(corpus_share_e4=share_e4, voucher_times=times, seed=seed))
    from_corpus = sum(draw.is_corpus for draw in drawn)
    assert abs(from_corpus * 10_000 - share_e4 * len(drawn)) <= 10_000
    assert len(set(drawn)) == len(drawn)
    for draw in drawn:
        row = (corpus if draw.is_corpus else rollouts)[draw.index]
        assert draw.copy < (times if row.bucket == "voucher" else 1)


def test_every_gate_has_an_arm_without_it_and_the_guard_is_in_all() -> None:
    arms = {arm.name: arm.rules for arm in ablations(Rules())}
    assert arms["full"] == Rules()
    switched = {code for name, rules in arms.items() if name.startswith("no_") for code in rules.off}
    assert switched == {*PER_TRACE, *SET_LEVEL}
    assert switched | NEVER_OFF | {"sampled_out", "failed"} == set(get_args(RejectCode))
    assert "tokens" not in arms["no_structural_filter"].off
    assert {*arms["no_agentic_split"].off} == {"subtask", "subtask_guess"}
