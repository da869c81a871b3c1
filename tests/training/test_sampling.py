"""Sampling in this process: eval mode, logprobs a trainer agrees with, draws that depend on their own seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from tests.training.stock import Stock
from training.guards import GuardStopError
from training.model import Decode, Sampled
from training.samplers.in_process import LocalSampler

SHORT = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=12)


def leave_eval_mode(model: Any) -> None:
    """As if another thread trained the model: a module is in training mode again after each step."""
    model.model.layers[0].mlp.register_forward_hook(lambda module, *given: module.train() and None)


@pytest.fixture(scope="module")
def model(stock: Stock) -> Any:
    return stock.load()


@pytest.fixture(scope="module")
def prompts(stock: Stock) -> list[tuple[int, ...]]:
    texts = ("Find a red tee.", "A much longer request, for a lamp and a shelf of light wood.", "x")
    return [tuple(stock.codec.tokenizer.encode(text)) for text in texts]


def trained_logprobs(model: Any, prompt: tuple[int, ...], drawn: tuple[int, ...], temperature: float) -> torch.Tensor:
    """What a trainer computes of a turn: one forward pass over the whole sequence."""
    ids = torch.tensor([prompt + drawn])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits.float(), -1).gather(-1, torch.tensor(drawn)[:, None])[:, 0]


def together(
    sampler: LocalSampler, prompts: Sequence[tuple[int, ...]], decode: Decode, seeds: Sequence[int]
) -> list[Sampled]:
    """Turns that are asked for at the same time."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt, seed: sampler.sample(prompt, decode, seed), prompts, seeds))


@pytest.mark.parametrize("temperature", [1.0, 0.9])
@pytest.mark.parametrize("rows", [1, 3])
def test_sampler_and_trainer_agree_on_every_logprob(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]], temperature: float, rows: int
) -> None:
    decode = Decode(temperature=temperature, top_p=0.95, turn_tokens_max=12)
    sampler = stock.sampler(model, batch_rows=rows)
    taken = prompts[:rows]
    for prompt, sampled in zip(taken, together(sampler, taken, decode, range(rows)), strict=True):
        wanted = trained_logprobs(model, prompt, sampled.token_ids, temperature)
        assert (wanted - torch.tensor(sampled.logprobs)).abs().max() < 1e-4


def test_a_turn_depends_on_its_own_seed_and_prompt_alone(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]]
) -> None:
    sampler = stock.sampler(model)
    beside = together(stock.sampler(model, batch_rows=3), prompts, SHORT, [5, 6, 7])
    alone = [sampler.sample(prompt, SHORT, seed) for prompt, seed in zip(prompts, [5, 6, 7], strict=True)]
    assert [one.token_ids for one in beside] == [one.token_ids for one in alone]
    assert sampler.sample(prompts[0], SHORT, 5) == alone[0]
    assert sampler.sample(prompts[0], SHORT, 8).token_ids != alone[0].token_ids


def test_dropout_is_off_while_sampling_and_the_former_mode_comes_back(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]]
) -> None:
    seen: list[bool] = []
    hook = model.register_forward_hook(lambda module, *_: seen.append(module.training))
    try:
        for mode in (True, False):
            model.train(mode)
            stock.sampler(model).sample(prompts[0], SHORT, 0)
            assert model.training is mode
    finally:
        hook.remove()
        model.eval()
    assert seen and not any(seen)


def test_every_waiting_thread_hears_of_a_failure(stock: Stock, prompts: list[tuple[int, ...]]) -> None:
    model = stock.load()
    leave_eval_mode(model)
    sampler = stock.sampler(model, batch_rows=8)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(sampler.sample, prompts[0], SHORT, seed) for seed in range(4)]
        assert all(isinstance(one.exception(timeout=60), GuardStopError) for one in asked)
    whole = stock.load()
    sampler._model = whole  # the sampler itself is as good as new
    assert sampler.sample(prompts[0], SHORT, 0) == stock.sampler(whole, batch_rows=8).sample(prompts[0], SHORT, 0)


def test_suppressed_tokens_are_never_drawn_and_the_stop_token_ends_a_turn(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]]
) -> None:
    greedy = Decode(temperature=0.0, turn_tokens_max=6)
    first = stock.sampler(model).sample(prompts[0], greedy, 0).token_ids[0]
    barred = LocalSampler(model, stop_id=stock.codec.stop_id, suppressed_ids=[first], version="v")
    assert first not in barred.sample(prompts[0], greedy, 0).token_ids
    stopping = LocalSampler(model, stop_id=first, suppressed_ids=[], version="v").sample(prompts[0], greedy, 0)
    assert stopping.token_ids == (first,) and stopping.finish == "stop"
    cut = stock.sampler(model).sample(prompts[0], greedy, 0)
    assert len(cut.token_ids) == 6 and cut.finish == "length"


def counted_tokens(model: Any) -> list[int]:
    """Grows by the number of tokens of each forward pass."""
    seen: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda _, given, __: seen.append(given[0].numel()))
    return seen


def test_a_trainer_agrees_with_every_logprob_of_rows_that_come_and_go_with_much_and_little_of_their_own(
    stock: Stock, model: Any
) -> None:
    sampler = LocalSampler(model, stop_id=stock.codec.stop_id, suppressed_ids=[], version="v", batch_rows=4)
    shared = tuple(range(100, 160))
    own = (0, 1, 40, 300, 300, 5)
    jobs = [((*shared, *(200 + place % 250 for place in range(length))), 5 + 9 * at) for at, length in enumerate(own)]

    def talk_twice(job: tuple[tuple[int, ...], int]) -> list[tuple[tuple[int, ...], Sampled]]:
        prompt, tokens = job
        decode = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=tokens)
        first = sampler.sample(prompt, decode, tokens)
        longer = (*prompt, *first.token_ids, 7, 8, 9)
        return [(prompt, first), (longer, sampler.sample(longer, decode, tokens))]

    with ThreadPoolExecutor(len(jobs)) as pool:
        found = [turn for turns in pool.map(talk_twice, jobs) for turn in turns]
    for prompt, sampled in found:
        wanted = trained_logprobs(model, prompt, sampled.token_ids, 1.0)
        assert (wanted - torch.tensor(sampled.logprobs)).abs().max() < 1e-4


def test_a_turn_computes_only_what_its_conversation_and_others_have_not(stock: Stock) -> None:
    model = stock.load()
    seen = counted_tokens(model)
    sampler = stock.sampler(model, batch_rows=4)
    prompt = (*range(100, 160), *range(200, 230))
    first = sampler.sample(prompt, SHORT, 0)
    assert sum(seen) == len(prompt) + len(first.token_ids) - 1  # the last token of a turn is not computed with it
    seen.clear()
    longer = (*prompt, *first.token_ids, 7, 8, 9)
    second = sampler.sample(longer, SHORT, 1)
    assert sum(seen) == 1 + 3 + len(second.token_ids) - 1
    seen.clear()
    other = sampler.sample((*prompt, 11, 12), SHORT, 2)  # begins as the others did
    assert sum(seen) == 2 + len(other.token_ids) - 1
