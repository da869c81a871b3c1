"""Rollouts are evaluations, as tokens: ids appended and never made again, breaches counted, results as scored."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.evaluate import Evaluation
from foundation.errors import ArenaError
from harness.sandbox.port import GuestJob
from tests.training.rollouts import make_line
from tests.training.stock import EPISODE, Stock
from training.agents import distilled_source
from training.model import Decode, TurnSample
from training.models.render import masked_runs
from training.rollouts import rewards
from training.rollouts.rollout import (
    EpisodeLine,
    InProcessSandbox,
    Job,
    TokenUpstream,
    jobs_of,
    read_line,
    read_rollout,
)


class Told:
    """A sampler that says what it is told, turn by turn; its logprobs are -0.5."""

    version = "told"

    def __init__(self, stock: Stock, *texts: str) -> None:
        self._codec, self._texts = stock.codec, list(texts)
        self.prompts: list[tuple[int, ...]] = []

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> TurnSample:
        self.prompts.append(prompt_ids)
        ids = (*self._codec.tokenizer.encode(self._texts[len(self.prompts) - 1]), self._codec.stop_id)
        return TurnSample(token_ids=ids, logprobs=(-0.5,) * len(ids), finish="stop")


def run_job(stock: Stock, job: Job, sampler: Any, decode: Decode = EPISODE, source: str = "") -> Evaluation:
    bench = dataclasses.replace(stock.bench, source=source or stock.bench.source)
    return bench.run(job, TokenUpstream(sampler, stock.codec, decode, job.seed), sampler.version, decode)


def call(name: str, arguments: str) -> str:
    # spacing of its own: rendered anew these would be other ids
    return f'<tool_call>\n{{"name":"{name}","arguments":{arguments}}}\n</tool_call>'


def test_every_prompt_is_the_last_one_and_what_was_sampled_and_what_the_tools_said(stock: Stock) -> None:
    (job,) = jobs_of(stock.bench.problems[:1], 1, 0)
    sampler = Told(
        stock,
        "Looking.\n" + call("find_product", '{"q":"tee","page":1}'),
        call("find_product", '{"q":"lamp"}') + "\n" + call("find_product", '{"q":"shelf"}'),
        call("terminate", '{"status":"success"}'),
    )
    evaluation = run_job(stock, job, sampler)
    rollout = read_rollout(evaluation)
    whole = rollout.prompt_ids + rollout.completion_ids
    for before, after in zip(sampler.prompts, sampler.prompts[1:], strict=False):
        assert after[: len(before)] == before and whole[: len(after)] == after
    said = masked_runs(rollout.completion_ids, rollout.mask)
    assert [stock.codec.decode(run) for run in said] == [f"{text}<|im_end|>" for text in sampler._texts]
    assert rollout.turns[0].first == 0
    for turn, run in zip(rollout.turns, said, strict=True):
        assert rollout.completion_ids[turn.first : turn.last] == run
    assert [len(turn.tools) for turn in rollout.turns] == [1, 2, 1]
    assert {p for p, bit in zip(rollout.logprobs, rollout.mask, strict=True) if bit} == {-0.5}
    assert {p for p, bit in zip(rollout.logprobs, rollout.mask, strict=True) if not bit} == {0.0}
    result = read_line(job, evaluation, "[]").result
    assert result.reward == 0.0 and result.steps == 3


def test_a_conversation_that_outgrows_the_context_is_counted_and_is_no_crash(stock: Stock) -> None:
    (job,) = jobs_of(stock.bench.problems[:1], 1, 0)
    first = Told(stock, "x")
    run_job(stock, job, first)
    room = len(first.prompts[0]) + 200
    sampler = Told(stock, *[call("find_product", '{"q":"tee"}')] * 8)
    decode = msgspec.structs.replace(EPISODE, context_tokens_max=room)
    evaluation = run_job(stock, job, sampler, decode)
    result = read_line(job, evaluation, "[]").result
    assert result.is_overflow and result.reward == 0.0 and len(sampler.prompts) < 8
    assert read_rollout(evaluation) is not None


def test_a_prompt_that_an_agent_rewrites_is_rendered_afresh_and_is_no_rollout(stock: Stock) -> None:
    forgetful = distilled_source().replace("llm.chat(messages,", "llm.chat(messages[:2],")
    (job,) = jobs_of(stock.bench.problems[:1], 1, 0)
    sampler = Told(stock, call("find_product", '{"q":"tee"}'), "Done.")
    evaluation = run_job(stock, job, sampler, source=forgetful)
    assert read_rollout(evaluation) is None
    assert read_line(job, evaluation, "[]").result.reward == 0.0
    assert sampler.prompts[0] == sampler.prompts[1]


def test_only_agents_of_ours_run_outside_a_jail(stock: Stock) -> None:
    sandbox = InProcessSandbox(frozenset(["0" * 64]))
    assert sandbox.level.may_race is False
    guest = GuestJob(source="boom", problem="{}", limits=stock.bench.policy.limits, tools="[]", models=())

    class Nobody:
        def call(self, method: str, params: object) -> object:
            raise AssertionError(method)

    with pytest.raises(ArenaError, match="V2001"):
        sandbox.run(guest, Nobody())  # type: ignore[arg-type]


def test_rows_of_episodes_are_what_was_sampled_where_it_fits_and_its_mask_holds(stock: Stock) -> None:
    from training.stages.pipeline import rows_of_episodes

    def sampled(sample: int, tail: int, length: int) -> EpisodeLine:
        line = make_line(reward=1.0, sample=sample)
        assert line.rollout is not None
        ids = (*[5] * length, tail)
        rollout = msgspec.structs.replace(
            line.rollout, completion_ids=ids, mask=(1,) * len(ids), logprobs=(-1.0,) * len(ids)
        )
        return msgspec.structs.replace(line, rollout=rollout)

    recipe = stock.recipe("rejection", "[data]\ntokens_max = 40\n[guards]\nmask_drift_max = 1.0\n")
    forged = min(stock.codec.template_only_ids)
    found = rows_of_episodes([sampled(0, 5, 4), sampled(1, forged, 4), sampled(2, 5, 60)], stock.codec, recipe)
    (row,) = found.rows
    assert row.token_ids == (1, 2, 3, *[5] * 5) and row.mask == (0, 0, 0, *[1] * 5)
    assert (row.prompt_length, row.is_wanted) == (3, True)
    assert {name: count for name, count in found.dropped.items() if count} == {"unfit": 1, "mask": 1}


# -- rewards and credit, by hand-computed cases: the mean as baseline, nothing for tokens that were not sampled


def use(name: str, **arguments: Any) -> rewards.ToolUse:
    return name, json.dumps(arguments)


def step(name: str, **arguments: Any) -> rewards.Step:
    return (use(name, **arguments),)


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (use("find_product", q="red tee"), use("find_product", q="red tee"), 1.0),
        (use("find_product", q="red tee"), use("find_product", q="blue tee"), 0.75),  # F1 of 1 common word in 2 and 2
        (use("find_product", q="red tee", page=1), use("find_product", q="red tee"), 0.75),  # an argument too many
        (use("find_product", q="x", price="0-9"), use("find_product", q="x", price="0-8"), 0.75),  # exact, else 0
        (use("terminate"), use("terminate"), 1.0),
        (use("find_product", q="x"), use("terminate"), 0.0),
        (("", ""), ("", ""), 0.0),
        (use("recommend_product", product_ids="a,b"), use("recommend_product", product_ids="a,c"), 0.75),
        (use("recommend_product", product_ids=["a", "b"]), use("recommend_product", product_ids="a"), 0.5 + 1 / 3),
        (("find_product", "{broken"), use("find_product", q="x"), 0.5),
        (("find_product", "[1]"), ("find_product", "[1]"), 1.0),
    ],
)
def test_a_call_is_half_its_name_and_half_its_arguments(
    ours: rewards.ToolUse, theirs: rewards.ToolUse, wanted: float
) -> None:
    assert rewards.match_call(ours, theirs) == pytest.approx(wanted)


def test_all_calls_of_a_turn_count_in_whatever_order() -> None:
    red, blue, view = use("find_product", q="red"), use("find_product", q="blue"), use("view", product_id="1")
    assert rewards.match_step((red, blue), (blue, red)) == 1.0
    assert rewards.match_step((red,), (red, blue)) == 0.5  # a call that is left out
    assert rewards.match_step((red, view), (red,)) == 0.5  # and one too many
    assert rewards.match_step((red, blue), (red, view)) == pytest.approx(0.5)
    assert rewards.match_step((), ()) == rewards.match_step((red,), ()) == 0.0  # a turn without a call matches nothing


def earned(line: EpisodeLine, teacher: Mapping[str, Sequence[rewards.Step]]) -> rewards.Reward:
    assert line.rollout is not None
    return rewards.reward_of(line.rollout, line.result, teacher, 0.5)


def credited(
    lines: list[EpisodeLine], teacher: Mapping[str, Sequence[rewards.Step]], turn_weight: float
) -> list[list[float]]:
    rollouts = [line.rollout for line in lines if line.rollout is not None]
    return rewards.token_advantages(rollouts, [earned(line, teacher) for line in lines], turn_weight=turn_weight)


VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=8)


def reward(value: float | None) -> rewards.Reward:
    return rewards.Reward(value=value, outcome=value, tool_match=None)


@given(VALUES)
def test_advantages_sum_to_zero_and_an_unscorable_rollout_is_outside(values: list[float | None]) -> None:
    found = rewards.group_advantages([reward(value) for value in values])
    assert sum(found) == pytest.approx(0, abs=1e-9)
    assert all(one == 0 for one, value in zip(found, values, strict=True) if value is None)
    scored = [value for value in values if value is not None]
    kept = [one for one, value in zip(found, values, strict=True) if value is not None]
    assert kept == list(rewards.group_advantages([reward(value) for value in scored]))


@pytest.mark.parametrize("turn_weight", [0.0, 0.5, 1.0])
def test_tokens_of_the_environment_get_nothing(turn_weight: float) -> None:
    teacher = {"p": ((("a", "{}"),), (("b", "{}"),))}
    group = [
        make_line([("a", "{}"), ("b", "{}"), None], reward=1.0),
        make_line([("b", "{}")], reward=0.0),
        make_line([("a", "{}"), ("a", "{}")], reward=None),
    ]
    rows = credited(group, teacher, turn_weight)
    for rollout, row in zip((line.rollout for line in group), rows, strict=True):
        assert len(row) == len(rollout.completion_ids)
        assert all(value == 0 for value, bit in zip(row, rollout.mask, strict=True) if not bit)
    assert not any(rows[2])  # a fault of ours teaches nothing


def test_a_turn_is_credited_with_its_own_match_where_the_blend_is_per_turn() -> None:
    teacher = {"p": ((("a", "{}"),), (("b", "{}"),))}
    group = [
        make_line([("a", "{}"), ("b", "{}")], reward=0.0),  # both right
        make_line([("a", "{}"), ("x", "{}")], reward=0.0),  # the second wrong
    ]
    rows = credited(group, teacher, 0.5)
    assert rows == [[0.0, 0.0, 0.0, 0.25, 0.25], [0.0, 0.0, 0.0, -0.25, -0.25]]
