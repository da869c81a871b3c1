"""KTO's rows: an episode is learnt as it was sampled, and every episode is a row, a count or a fault of ours."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.training.stock import EPISODE, Stock
from training.model import Decode, Sampled
from training.models.mask import masked_runs
from training.recipe import Recipe, parse_recipe
from training.rollouts.episode_file import EpisodeLine
from training.rollouts.rollout import jobs_of
from training.rollouts.token_rows import rollout_id
from training.stages.labels import labelled_rows

BROKEN = "<tool_call>\n{broken\n</tool_call>"
SEARCH = '<tool_call>\n{"name":"find_product","arguments":{"q":"tee"}}\n</tool_call>'  # spacing of its own


class Told:
    """A sampler that says what it is told; its last turn of three ends without a stop token."""

    version = "told"

    def __init__(self, stock: Stock) -> None:
        self._codec, self._texts = stock.codec, iter([f"{BROKEN}\n{SEARCH}", SEARCH, "I give"])

    def sample(self, prompt_ids: tuple[int, ...], decode: Decode, seed: int) -> Sampled:
        text = next(self._texts)
        is_cut = text == "I give"
        ids = (*self._codec.tokenizer.encode(text), *(() if is_cut else (self._codec.stop_id,)))
        return Sampled(token_ids=ids, logprobs=(-0.5,) * len(ids), finish="length" if is_cut else "stop")


def recipe() -> Recipe:
    return parse_recipe('name = "k"\nstage = "kto"\nmodel = "m"\n[data]\ntokens_max = 100000\n[optim]\nbatch_rows = 2')


def episodes(stock: Stock, count: int = 1) -> list[EpisodeLine]:
    jobs = jobs_of(stock.bench.problems[:1], count, 0)
    return [next(iter(stock.bench.sample([job], Told(stock), stock.codec, EPISODE, 1))) for job in jobs]


def scored(line: EpisodeLine, *, is_success: bool | None) -> EpisodeLine:
    """The line with another verdict, in its rollout too."""
    result = msgspec.structs.replace(line.result, is_success=is_success)
    rollout = line.rollout and msgspec.structs.replace(line.rollout, result=result)
    return msgspec.structs.replace(line, result=result, rollout=rollout)


def said(stock: Stock, lines: Sequence[EpisodeLine]) -> list[str]:
    (row,), _ = labelled_rows(lines, stock.codec, recipe())
    return [stock.codec.decode(run) for run in masked_runs(row.row.token_ids, row.row.mask)]


def test_malformed_calls_and_a_cut_turn_are_learnt_as_they_were_sampled(stock: Stock) -> None:
    assert said(stock, episodes(stock)) == [f"{BROKEN}\n{SEARCH}<|im_end|>", f"{SEARCH}<|im_end|>", "I give"]


def test_an_episode_without_tokens_is_rendered_from_its_messages(stock: Stock) -> None:
    line = msgspec.structs.replace(episodes(stock)[0], rollout=None)
    first, *_ = said(stock, [line])
    assert BROKEN not in first and '"find_product"' in first


def test_success_is_what_is_wanted_and_a_fault_of_ours_is_no_label(stock: Stock) -> None:
    won, lost, ours, again = episodes(stock, 4)
    lines = [
        scored(won, is_success=True),
        scored(lost, is_success=False),
        scored(ours, is_success=None),
        scored(again, is_success=False),
    ]
    lines[3] = msgspec.structs.replace(lines[1])  # the same episode twice
    rows, dropped = labelled_rows(lines, stock.codec, recipe())
    assert lines[0].rollout is not None and lines[1].rollout is not None
    wanted = {row.row.trace_id: row.is_wanted for row in rows}
    assert wanted == {rollout_id(lines[0].rollout): True, rollout_id(lines[1].rollout): False}
    assert dropped["unscored"] == 1 and dropped["repeated"] == 1
