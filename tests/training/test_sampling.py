"""Sampling in this process: eval mode, logprobs a trainer agrees with, draws that depend on their own seed alone."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from tests.training.sampling_speed import Load, measure_speed
from tests.training.stock import Stock
from training.guards import GuardStopError
from training.model import Decode, Sampled
from training.samplers.in_process import LocalSampler, draw_nucleus, eval_mode

SHORT = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=12)


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


def leave_eval_mode(model: Any) -> None:
    """As if another thread trained the model: a module is in training mode again after each step."""

    def train(module: Any, *_: Any) -> None:
        module.train()

    model.model.layers[0].mlp.register_forward_hook(train)


@pytest.mark.parametrize("temperature", [1.0, 0.9])
@pytest.mark.parametrize("rows", [1, 3])
def test_sampler_and_trainer_agree_on_every_logprob(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]], temperature: float, rows: int
) -> None:
    decode = Decode(temperature=temperature, top_p=0.95, turn_tokens_max=12)
    sampler = stock.sampler(model, batch_rows=rows)
    taken = prompts[:rows]
    for prompt, sampled in zip(taken, sampler.sample_all(taken, decode, range(rows)), strict=True):
        wanted = trained_logprobs(model, prompt, sampled.token_ids, temperature)
        assert (wanted - torch.tensor(sampled.logprobs)).abs().max() < 1e-4


def test_a_turn_depends_on_its_own_seed_and_prompt_alone(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]]
) -> None:
    sampler = stock.sampler(model)
    together = stock.sampler(model, batch_rows=3).sample_all(prompts, SHORT, [5, 6, 7])
    alone = [sampler.sample(prompt, SHORT, seed) for prompt, seed in zip(prompts, [5, 6, 7], strict=True)]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert sampler.sample(prompts[0], SHORT, 5) == alone[0]
    assert sampler.sample(prompts[0], SHORT, 8).token_ids != alone[0].token_ids


@pytest.mark.parametrize("rows", [1, 4])
def test_a_seed_draws_what_it_always_drew(stock: Stock, model: Any, rows: int) -> None:
    """Rollouts that are kept name their seeds: a change of these tokens is a change of what they mean."""
    prompts = [(*range(100, 160), *range(200, 200 + 9 * (number // 2))) for number in range(4)]
    stop = stock.codec.stop_id
    sampler = LocalSampler(model, stop_id=stop, suppressed_ids=[], version="v", batch_rows=rows)
    decode = Decode(temperature=1.0, top_p=0.95, turn_tokens_max=8)
    found = sampler.sample_all(prompts, decode, range(4))
    assert [one.token_ids for one in found] == [
        (1196, 0, 1067, 243, 494, 1866, 436, 1784),
        (31, 1089, 1667, 1324, 356, 77, 15, 1204),
        (1885, 528, 269, 586, 450, 1068, 47, 835),
        (223, 1559, 939, 1382, 1684, 1846, 1666, 1280),
    ]
    greedy = sampler.sample_all(prompts, Decode(temperature=0.0, turn_tokens_max=3), [0] * 4)
    assert [one.token_ids for one in greedy] == [(159,) * 3, (159,) * 3, (208,) * 3, (208,) * 3]


def test_turns_asked_for_by_many_threads_are_those_asked_for_one_by_one(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]]
) -> None:
    jobs = [(prompt, seed) for prompt in prompts for seed in range(4)]
    alone = [stock.sampler(model).sample(prompt, SHORT, seed).token_ids for prompt, seed in jobs]
    for rows in (1, 4):
        sampler = stock.sampler(model, batch_rows=rows)
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda job, s=sampler: s.sample(job[0], SHORT, job[1]).token_ids, jobs))
        assert found == alone


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


def test_a_model_that_is_put_back_into_training_mode_while_sampling_ends_the_run(
    stock: Stock, prompts: list[tuple[int, ...]]
) -> None:
    model = stock.load()
    leave_eval_mode(model)
    for decode in (SHORT, Decode(turn_tokens_max=1)):
        with pytest.raises(GuardStopError) as stop:
            stock.sampler(model).sample(prompts[0], decode, 0)
        assert stop.value.guard == "dropout"


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


def test_eval_mode_is_left_by_an_error_too() -> None:
    model = torch.nn.Dropout()
    with pytest.raises(RuntimeError), eval_mode(model):
        raise RuntimeError
    assert model.training


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


def sharp(stock: Stock) -> Any:
    """The random model with logits far apart."""
    model = stock.load()
    with torch.no_grad():
        model.model.norm.weight.mul_(20)
    return model


def counted_tokens(model: Any) -> list[int]:
    """Grows by the number of tokens of each forward pass."""
    seen: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda _, given, __: seen.append(given[0].numel()))
    return seen


def talk(sampler: LocalSampler, prompt: tuple[int, ...], seed: int) -> list[tuple[tuple[int, ...], Sampled]]:
    """A conversation of three turns that only grows: (prompt, turn) of each."""
    turns = []
    for turn in range(3):
        sampled = sampler.sample(prompt, SHORT, 10 * seed + turn)
        turns.append((prompt, sampled))
        prompt = (*prompt, *sampled.token_ids, *range(30 + seed, 50 + seed))
    return turns


def conversations(count: int) -> list[tuple[int, ...]]:
    """Prompts of different lengths that begin alike, some of them the same one."""
    return [(*range(100, 160), *range(200, 200 + 7 * (number // 2))) for number in range(count)]


def test_a_trainer_agrees_with_every_logprob_of_conversations_that_share_what_they_have_computed(
    stock: Stock, model: Any
) -> None:
    sampler = stock.sampler(model, batch_rows=4)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda job: talk(sampler, job[1], job[0]), enumerate(conversations(6))))
    for prompt, sampled in (turn for turns in found for turn in turns):
        wanted = trained_logprobs(model, prompt, sampled.token_ids, 1.0)
        assert (wanted - torch.tensor(sampled.logprobs)).abs().max() < 1e-4


def test_a_trainer_agrees_with_every_logprob_of_rows_that_come_and_go_with_much_and_little_of_their_own(
    stock: Stock, model: Any
) -> None:
    sampler = LocalSampler(model, stop_id=stock.codec.stop_id, suppressed_ids=[], version="v", batch_rows=4)
    shared = tuple(range(100, 160))
    own = (0, 1, 40, 300, 300, 700, 5, 310)  # on both sides of what is copied, some of them the same
    jobs = [
        ((*shared, *(200 + place % 250 for place in range(length))), 5 + 9 * (at % 3)) for at, length in enumerate(own)
    ]
    jobs[1] = (jobs[1][0], 1_100)  # more than a slot of the table holds, twice, while most others come and go

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


@pytest.mark.parametrize("held_bytes", [0, 100_000, None])
def test_greedy_turns_are_the_same_alone_and_in_a_batch_of_32(stock: Stock, held_bytes: int | None) -> None:
    model, greedy = sharp(stock), Decode(temperature=0.0, turn_tokens_max=12)
    jobs = [(*range(100, 140 + 3 * number), *prompt) for number, prompt in enumerate(conversations(32))]
    wide = LocalSampler(
        model, stop_id=stock.codec.stop_id, suppressed_ids=[], version="v", batch_rows=32, held_bytes=held_bytes
    )
    narrow = LocalSampler(model, stop_id=stock.codec.stop_id, suppressed_ids=[], version="v")
    together = wide.sample_all(jobs, greedy, range(32))
    assert [one.token_ids for one in together] == [narrow.sample(prompt, greedy, 0).token_ids for prompt in jobs]
    again = wide.sample_all(jobs, greedy, range(32))
    assert [one.token_ids for one in again] == [one.token_ids for one in together]


def test_a_turn_computes_only_what_its_conversation_and_others_have_not(stock: Stock) -> None:
    model = stock.load()
    seen = counted_tokens(model)
    sampler = stock.sampler(model, batch_rows=4)
    prompt = conversations(1)[0]
    first = sampler.sample(prompt, SHORT, 0)
    assert sum(seen) == len(prompt) + len(first.token_ids) - 1  # the last token of a turn is not computed with it
    seen.clear()
    longer = (*prompt, *first.token_ids, 7, 8, 9)
    second = sampler.sample(longer, SHORT, 1)
    assert sum(seen) == 1 + 3 + len(second.token_ids) - 1
    seen.clear()
    other = sampler.sample((*prompt, 11, 12), SHORT, 2)  # begins as the others did
    assert sum(seen) == 2 + len(other.token_ids) - 1
    seen.clear()
    sampler.renew("next")
    renewed = sampler.sample(prompt, SHORT, 0)
    assert sum(seen) == len(prompt) + len(renewed.token_ids) - 1


@pytest.mark.parametrize("change", ["optimiser", "copy", "data", "renew"])
def test_nothing_computed_with_other_weights_is_ever_used_again(stock: Stock, change: str) -> None:
    model = stock.load()
    sampler = stock.sampler(model, batch_rows=4)
    prompt = conversations(1)[0]
    before = sampler.sample(prompt, SHORT, 0)
    if change == "optimiser":
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model(torch.tensor([prompt]), labels=torch.tensor([prompt])).loss.backward()
        optimiser.step()
    else:
        for weight in model.parameters():
            with torch.no_grad():
                target = weight.data if change == "data" else weight
                target.copy_(weight * 1.3)
    if change == "renew":
        sampler.renew("next")
    after = sampler.sample(prompt, SHORT, 0)
    assert after.logprobs != before.logprobs
    wanted = trained_logprobs(model, prompt, after.token_ids, 1.0)
    assert (wanted - torch.tensor(after.logprobs)).abs().max() < 1e-4


def test_a_model_trains_and_attends_as_before_once_it_has_sampled(stock: Stock, prompts: list[tuple[int, ...]]) -> None:
    model = stock.load()
    ids = torch.tensor([prompts[1]])
    before, attention = model(ids, labels=ids).loss, model.config._attn_implementation
    stock.sampler(model, batch_rows=2).sample_all(prompts, SHORT, [0, 1, 2])
    assert model.config._attn_implementation == attention != "arena_ragged"
    loss = model(ids, labels=ids).loss
    loss.backward()
    assert torch.equal(loss, before) and all(weight.grad is not None for weight in model.parameters())


def test_adapters_are_sampled_as_they_are_trained(stock: Stock, prompts: list[tuple[int, ...]]) -> None:
    from peft import LoraConfig, get_peft_model

    plain = stock.sampler(stock.load()).sample(prompts[1], SHORT, 3)
    model = get_peft_model(stock.load(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    sampled = stock.sampler(model, batch_rows=2).sample(prompts[1], SHORT, 3)
    wanted = trained_logprobs(model.eval(), prompts[1], sampled.token_ids, 1.0)
    assert (wanted - torch.tensor(sampled.logprobs)).abs().max() < 1e-4
    assert sampled.logprobs != plain.logprobs


def test_a_model_that_forgets_is_refused(stock: Stock, prompts: list[tuple[int, ...]]) -> None:
    layered, windowed = stock.load(), stock.load()
    layered.config.layer_types = ["sliding_attention", "full_attention"]
    windowed.model.layers[1].self_attn.sliding_window = 8
    for model in (layered, windowed):
        with pytest.raises(ArenaError) as refused:
            stock.sampler(model).sample(prompts[0], SHORT, 0)
        assert refused.value.failure.code == "V2124"


def test_turns_of_different_decoding_wait_for_one_another_and_all_are_answered(
    stock: Stock, model: Any, prompts: list[tuple[int, ...]]
) -> None:
    sampler = stock.sampler(model, batch_rows=4)
    decodes = [SHORT, Decode(temperature=0.0, turn_tokens_max=5), Decode(temperature=0.9, turn_tokens_max=3)]
    jobs = [(prompt, decode) for prompt in prompts for decode in decodes] * 2
    with ThreadPoolExecutor(len(jobs)) as pool:
        found = list(pool.map(lambda job: sampler.sample(job[0], job[1], 5), jobs))
    wanted = [stock.sampler(model).sample(prompt, decode, 5) for prompt, decode in jobs]
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]


@given(seed=st.integers(0, 2**31), top_p=st.sampled_from([0.3, 0.9, 0.99]))
def test_a_nucleus_is_the_same_whether_the_vocabulary_was_sorted_or_not(seed: int, top_p: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    peaked = torch.randn(1, 300, generator=draw) * 4
    flat = torch.randn(1, 300, generator=draw) * 0.01  # its nucleus holds most of the vocabulary
    points = torch.rand(1, generator=draw)
    both = draw_nucleus(torch.log_softmax(torch.cat([peaked, flat]), -1), top_p, points.repeat(2))
    alone = draw_nucleus(torch.log_softmax(peaked, -1), top_p, points)
    assert int(both[0]) == int(alone[0])


def test_the_nucleus_holds_the_least_tokens_of_its_mass() -> None:
    chances = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    points = torch.linspace(0, 0.999, 400)
    drawn = draw_nucleus(chances.log().repeat(400, 1), 0.8, points)
    counts = Counter(drawn.tolist())
    assert set(counts) == {0, 1}
    assert counts[0] / 400 == pytest.approx(0.5 / 0.8, abs=0.02)


@given(point=st.floats(0, 0.9999), top_p=st.floats(0.01, 1.0))
def test_some_token_is_always_drawn_and_never_one_outside_the_nucleus(point: float, top_p: float) -> None:
    scores = torch.log_softmax(torch.tensor([[2.0, 1.0, 0.0, -torch.inf]]), -1)
    drawn = int(draw_nucleus(scores, top_p, torch.tensor([point]))[0])
    assert drawn in (0, 1, 2)
    if top_p < float(scores[0, 0].exp()):
        assert drawn == 0


def test_speed_is_of_the_tokens_that_were_sampled_and_the_clocks_that_were_given(stock: Stock, model: Any) -> None:
    stop = stock.codec.stop_id
    sampler = LocalSampler(model, stop_id=stop, suppressed_ids=[stop], version="v", batch_rows=2)
    load = Load(conversations=3, parallel=2, turns=2, prompt_tokens=60, shared_tokens=40, turn_tokens=4, told_tokens=5)
    walls, processors = iter([10.0, 14.0]), iter([3.0, 5.0])
    speed = measure_speed(sampler, 300, load, wall=lambda: next(walls), processor=lambda: next(processors))
    assert (speed.conversations, speed.sampled_tokens, speed.prompt_tokens) == (3, 24, 3 * (60 + 69))
    assert (speed.wall_s, speed.processor_s) == (4.0, 2.0)
    assert speed.rollouts_per_s == 0.75 and speed.tokens_per_s == 6.0
