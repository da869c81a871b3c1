"""One contract for both samplers: in this process, and behind vLLM's protocol; then what is vLLM's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from foundation.errors import ArenaError
from harness.chat import Message
from tests.training.stock import EPISODE, Stock
from tests.training.vllm_double import VllmDouble, serve
from training.model import Decode, Sampler
from training.models.render import run_defect
from training.rollouts.rollout import jobs_of
from training.run import weights_sha256
from training.samplers.vllm import VllmSampler

SHORT = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=10)
GREEDY = Decode(temperature=0.0, top_p=1.0, turn_tokens_max=10)


@pytest.fixture(scope="module")
def local(stock: Stock) -> Any:
    torch.set_num_threads(1)
    return stock.sampler(stock.load())


@pytest.fixture(scope="module")
def double(stock: Stock, local: Any) -> VllmDouble:
    return VllmDouble(lambda model, prompt, decode, seed: local.sample(prompt, decode, seed), stock.codec.stop_id)


@pytest.fixture(scope="module")
def vllm(stock: Stock, double: VllmDouble) -> Iterator[VllmSampler]:
    with serve(double) as url:
        sampler = VllmSampler(url, "base", stock.codec, timeout_s=60)
        yield sampler
        sampler.close()


@pytest.fixture(params=["local", "vllm"])
def sampler(request: pytest.FixtureRequest) -> Sampler:
    found: Sampler = request.getfixturevalue(request.param)
    return found


def prompt_of(stock: Stock, place: int = 0) -> tuple[int, ...]:
    problem = stock.bench.problems[place]
    messages = (Message(role="system", content="You shop."), Message(role="user", content=problem.query))
    return stock.codec.prompt(messages, stock.bench.tools)


@pytest.mark.parametrize("decode", [SHORT, GREEDY], ids=["sampled", "greedy"])
def test_a_turn_is_ids_with_a_logprob_each_and_no_token_of_the_templates(
    stock: Stock, sampler: Sampler, decode: Decode
) -> None:
    for seed in range(3):
        found = sampler.sample(prompt_of(stock), decode, seed)
        assert 0 < len(found.token_ids) <= decode.turn_tokens_max
        assert len(found.logprobs) == len(found.token_ids) and all(one <= 0 for one in found.logprobs)
        assert run_defect(found.token_ids, stock.codec) is None
        assert (found.finish == "stop") == (found.token_ids[-1] == stock.codec.stop_id)


def test_a_rollout_is_one_sequence_whoever_samples(stock: Stock, sampler: Sampler) -> None:
    decode = msgspec.structs.replace(EPISODE, turn_tokens_max=12, turns_max=3)
    (line,) = stock.bench.sample(jobs_of(stock.bench.problems[:1], 1, 0), sampler, stock.codec, decode, 1)
    assert line.rollout is not None and line.result.version == sampler.version
    assert sum(line.rollout.mask) == sum(turn.last - turn.first for turn in line.rollout.turns)


# -- vLLM's protocol


def test_the_server_is_asked_in_ids_and_told_what_must_not_be_drawn(
    stock: Stock, vllm: VllmSampler, double: VllmDouble, local: Any
) -> None:
    prompt = prompt_of(stock, 1)
    found = vllm.sample(prompt, SHORT, 9)
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
    double = VllmDouble(lambda *given: local.sample(*given[1:]), stock.codec.stop_id)
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


def test_a_reply_without_tokens_is_refused_and_never_guessed_at(stock: Stock, local: Any) -> None:
    def one_logprob_less(body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0]["logprobs"]["token_logprobs"].pop()
        return body

    double = VllmDouble(lambda model, prompt, decode, seed: local.sample(prompt, decode, seed), stock.codec.stop_id)
    for fault in (one_logprob_less, lambda body: body["id"]):
        double.answer = fault
        with serve(double) as url, pytest.raises(ArenaError, match="U3003"):
            VllmSampler(url, "base", stock.codec).sample(prompt_of(stock), SHORT, 0)


@pytest.mark.parametrize(("status", "code"), [(503, "U3002"), (401, "U3001")])
def test_a_server_that_is_away_is_an_upstream_fault(stock: Stock, local: Any, status: int, code: str) -> None:
    double = VllmDouble(lambda *given: local.sample(*given[1:]), stock.codec.stop_id)
    double.status = status
    with serve(double) as url, pytest.raises(ArenaError) as wrong:
        VllmSampler(url, "base", stock.codec).sample(prompt_of(stock), SHORT, 0)
    assert wrong.value.failure.code == code
