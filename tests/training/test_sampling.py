"""Sampling in this process: eval mode, logprobs a trainer agrees with, draws that depend on their own seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from foundation.errors import ArenaError
from harness.chat import Message
from tests.training.stock import Stock
from tests.training.vllm_double import VllmDouble, serve
from training.guards import GuardStopError
from training.model import Decode, TurnSample
from training.run import weights_sha256
from training.samplers.in_process import LocalSampler
from training.samplers.vllm import VllmSampler


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
) -> list[TurnSample]:
    """Turns that are asked for at the same time."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt, seed: sampler.sample(prompt, decode, seed), prompts, seeds))


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
    # as if another thread trained the model: a module is in training mode again after each step
    model.model.layers[0].mlp.register_forward_hook(lambda module, *given: module.train() and None)
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


@pytest.mark.parametrize("temperature", [1.0, 0.9])
def test_a_trainer_agrees_with_every_logprob_of_rows_that_come_and_go_with_much_and_little_of_their_own(
    stock: Stock, model: Any, temperature: float
) -> None:
    sampler = LocalSampler(model, stop_id=stock.codec.stop_id, suppressed_ids=[], version="v", batch_rows=4)
    shared = tuple(range(100, 160))
    own = (0, 1, 40, 300, 300, 5)
    jobs = [((*shared, *(200 + place % 250 for place in range(length))), 5 + 9 * at) for at, length in enumerate(own)]

    def talk_twice(job: tuple[tuple[int, ...], int]) -> list[tuple[tuple[int, ...], TurnSample]]:
        prompt, tokens = job
        decode = Decode(temperature=temperature, top_p=0.95, turn_tokens_max=tokens)
        first = sampler.sample(prompt, decode, tokens)
        longer = (*prompt, *first.token_ids, 7, 8, 9)
        return [(prompt, first), (longer, sampler.sample(longer, decode, tokens))]

    with ThreadPoolExecutor(len(jobs)) as pool:
        found = [turn for turns in pool.map(talk_twice, jobs) for turn in turns]
    for prompt, sampled in found:
        wanted = trained_logprobs(model, prompt, sampled.token_ids, temperature)
        assert (wanted - torch.tensor(sampled.logprobs)).abs().max() < 1e-4


def test_a_turn_computes_only_what_its_conversation_and_others_have_not(stock: Stock) -> None:
    model = stock.load()
    seen: list[int] = []  # the number of tokens of each forward pass
    model.model.embed_tokens.register_forward_hook(lambda _, given, __: seen.append(given[0].numel()))
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


SHORT = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=10)


@pytest.fixture(scope="module")
def local(stock: Stock) -> Any:
    torch.set_num_threads(1)
    return stock.sampler(stock.load())


def prompt_of(stock: Stock, place: int = 0) -> tuple[int, ...]:
    problem = stock.bench.problems[place]
    messages = (Message(role="system", content="You shop."), Message(role="user", content=problem.query))
    return stock.codec.prompt(messages, stock.bench.tools)


# -- vLLM's protocol


def test_the_server_is_asked_in_ids_and_told_what_must_not_be_drawn(stock: Stock, local: Any) -> None:
    prompt, double = prompt_of(stock, 1), VllmDouble(lambda *given: local.sample(*given[1:]))
    with serve(double) as url:
        found = VllmSampler(url, "base", stock.codec).sample(prompt, SHORT, 9)
    assert found == local.sample(prompt, SHORT, 9)
    asked = double.requests[-1]
    assert tuple(asked["prompt"]) == prompt and asked["return_token_ids"] is True
    assert asked["stop_token_ids"] == [stock.codec.stop_id] and asked["seed"] == 9
    assert {int(token) for token in asked["logit_bias"]} == set(stock.codec.template_only_ids)
    assert set(asked["logit_bias"].values()) == {-100.0}


def test_the_server_is_asked_which_weights_it_holds(stock: Stock, local: Any, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder, content in ((mine, b"one"), (other, b"two")):
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_bytes(content)
    digest = weights_sha256(mine)
    double = VllmDouble(lambda *given: local.sample(*given[1:]))
    double.models |= {f"model@{digest[:16]}": str(mine), f"stale@{digest[:16]}": str(other), "adapter-x": ""}
    with serve(double) as url:

        def held(name: str) -> str:
            return VllmSampler(url, name, stock.codec).served_weights()

        assert held(f"model@{digest[:16]}") == digest and held("base") == held("adapter-x") == ""
        double.models[f"adapter-{digest[:16]}"] = str(other)  # another's weights under the name of ours
        with pytest.raises(ArenaError, match=r"U3001.*serves weights"):
            held(f"stale@{digest[:16]}")
        with pytest.raises(ArenaError, match=r"U3001.*serves weights"):
            VllmSampler(url, "base", stock.codec).load_adapter(mine)


def test_an_adapter_whose_folder_is_gone_is_loaded_anew_or_refused(stock: Stock, local: Any, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "adapter_model.safetensors").write_bytes(b"one")
    name, double = f"adapter-{weights_sha256(mine)[:16]}", VllmDouble(lambda *given: local.sample(*given[1:]))
    double.models |= {"base": str(stock.model), name: str(tmp_path / "gone")}
    with serve(double) as url:
        with pytest.raises(ArenaError, match=r"U3001.*is gone"):
            VllmSampler(url, name, stock.codec).served_weights()
        VllmSampler(url, "base", stock.codec).load_adapter(mine)
    assert double.models[name] == str(mine)


def one_logprob_less(body: dict[str, Any]) -> dict[str, Any]:
    body["choices"][0]["logprobs"]["token_logprobs"].pop()
    return body


FAULTS = [({"answer": one_logprob_less}, "U3003"), ({"answer": lambda body: body["id"]}, "U3003")]
FAULTS += [({"status": 503}, "U3002"), ({"status": 401}, "U3001"), ({"status": 400}, "U3007")]


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_a_reply_without_tokens_is_never_guessed_at_and_a_server_that_is_away_is_an_upstream_fault(
    stock: Stock, local: Any, fault: dict[str, Any], code: str
) -> None:
    double = VllmDouble(lambda *given: local.sample(*given[1:]))
    vars(double).update(fault)
    with serve(double) as url, pytest.raises(ArenaError) as wrong:
        VllmSampler(url, "base", stock.codec).sample(prompt_of(stock), SHORT, 0)
    assert wrong.value.failure.code == code
