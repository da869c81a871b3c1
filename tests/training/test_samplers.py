"""One contract for every sampler: in this process, behind vLLM's protocol, scripted; then what is each one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from foundation.errors import ArenaError
from harness.chat import Message
from tests.hostile_http import DRIPS, GUARD_S, Behaviour, HostileServer, bomb, ended, endless, says
from tests.training.stock import EPISODE, Stock
from tests.training.vllm_double import VllmDouble, serve
from training.corpus.tokens import served_tools
from training.model import Decode, Sampler
from training.models.mask import run_defect
from training.recipe import parse_recipe
from training.rollouts.rollout import jobs_of
from training.samplers.choice import outside_sampler
from training.samplers.scripted import EXPERT, ScriptedSampler, read_prompt
from training.samplers.vllm import VllmSampler
from training.stages.run import weights_sha256

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


@pytest.fixture(params=["local", "vllm", "scripted"])
def sampler(request: pytest.FixtureRequest, stock: Stock) -> Sampler:
    if request.param == "scripted":
        return ScriptedSampler(stock.codec)
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


def test_the_same_seed_gives_the_same_turn(stock: Stock, sampler: Sampler) -> None:
    assert sampler.sample(prompt_of(stock), SHORT, 4) == sampler.sample(prompt_of(stock), SHORT, 4)


def test_a_sampler_has_a_name(sampler: Sampler) -> None:
    assert sampler.version


def test_a_rollout_is_one_sequence_whoever_samples(stock: Stock, sampler: Sampler) -> None:
    decode = msgspec.structs.replace(EPISODE, turn_tokens_max=600, turns_max=3)
    if not isinstance(sampler, ScriptedSampler):
        decode = msgspec.structs.replace(decode, turn_tokens_max=12)
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


def adapter(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder


def test_an_adapter_is_served_under_a_name_of_its_weights_and_the_one_before_is_let_go(
    stock: Stock, local: Any, tmp_path: Path
) -> None:
    double = VllmDouble(lambda model, prompt, decode, seed: local.sample(prompt, decode, seed), stock.codec.stop_id)
    first, second = adapter(tmp_path / "a", b"one"), adapter(tmp_path / "b", b"two")
    with serve(double) as url:
        sampler = VllmSampler(url, "base", stock.codec)
        names = []
        for folder in (first, second):
            sampler.load_adapter(folder)
            sampler.sample(prompt_of(stock), SHORT, 0)
            assert double.requests[-1]["model"] == sampler.version
            names.append(sampler.version)
        assert len({"base", *names}) == 3
        assert double.models == {"base": "", names[1]: str(second)}
        resumed = VllmSampler(url, "base", stock.codec)  # as a run that was killed and goes on
        resumed.load_adapter(second)
        assert resumed.version == names[1] and double.models == {"base": "", names[1]: str(second)}
        with pytest.raises(ArenaError) as wrong:
            sampler.load_adapter(tmp_path)
        assert wrong.value.failure.code == "V2124" and sampler.version == names[1]
        sampler.close()
        resumed.close()


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


def without(name: str) -> Any:
    def change(body: dict[str, Any]) -> dict[str, Any]:
        del body["choices"][0][name]
        return body

    return change


def one_logprob_less(body: dict[str, Any]) -> dict[str, Any]:
    body["choices"][0]["logprobs"]["token_logprobs"].pop()
    return body


@pytest.mark.parametrize(
    "fault",
    [
        without("token_ids"),
        without("logprobs"),
        one_logprob_less,
        lambda body: {"choices": []},
        lambda body: body["id"],
    ],
)
def test_a_reply_without_tokens_is_refused_and_never_guessed_at(stock: Stock, local: Any, fault: Any) -> None:
    double = VllmDouble(lambda model, prompt, decode, seed: local.sample(prompt, decode, seed), stock.codec.stop_id)
    double.answer = fault
    with serve(double) as url, pytest.raises(ArenaError) as wrong:
        VllmSampler(url, "base", stock.codec).sample(prompt_of(stock), SHORT, 0)
    assert wrong.value.failure.code == "U3003"


@pytest.mark.parametrize(("status", "code"), [(500, "U3002"), (503, "U3002"), (429, "U3002"), (401, "U3001")])
def test_a_server_that_is_away_is_an_upstream_fault(stock: Stock, local: Any, status: int, code: str) -> None:
    double = VllmDouble(lambda *given: local.sample(*given[1:]), stock.codec.stop_id)
    double.status = status
    with serve(double) as url, pytest.raises(ArenaError) as wrong:
        VllmSampler(url, "base", stock.codec).sample(prompt_of(stock), SHORT, 0)
    assert wrong.value.failure.code == code


def test_no_server_and_no_model_are_told_apart(stock: Stock, vllm: VllmSampler, local: Any) -> None:
    double = VllmDouble(lambda *given: local.sample(*given[1:]), stock.codec.stop_id)
    with serve(double) as url:
        gone = url
        with pytest.raises(ArenaError) as unknown:
            VllmSampler(url, "absent", stock.codec).sample(prompt_of(stock), SHORT, 0)
    with pytest.raises(ArenaError) as away:
        VllmSampler(gone, "base", stock.codec).sample(prompt_of(stock), SHORT, 0)
    assert (unknown.value.failure.code, away.value.failure.code) == ("U3001", "U3002")


@pytest.mark.parametrize(
    ("behave", "code"),
    [
        *((behave, "U3002") for behave in DRIPS.values()),
        (bomb("zstd"), "U3003"),
        (bomb("gzip", b"500 Oops"), "U3003"),
        (endless(), "U3003"),
        (says(b'{"choices":[],"more":' + b"[" * 200_000), "U3003"),
    ],
)
def test_a_hostile_server_costs_bounded_memory_and_time(stock: Stock, behave: Behaviour, code: str) -> None:
    with HostileServer(behave) as server:
        sampler = VllmSampler(server.url, "base", stock.codec, timeout_s=0.5 if code == "U3002" else GUARD_S)
        for ask in (lambda: sampler.sample(prompt_of(stock), SHORT, 0), sampler.require_served):
            error = ended(ask)
            assert isinstance(error, ArenaError) and error.failure.code == code


# -- the scripted model


def test_the_scripted_model_reads_a_prompt_as_the_conversation_it_was_made_of(stock: Stock) -> None:
    for trace in stock.traces():
        ids = stock.codec.prompt(trace.messages, trace.tools)
        read = read_prompt(stock.codec.decode(ids), EXPERT)
        assert [one["role"] for one in read["messages"]] == [one.role for one in trace.messages]
        assert msgspec.json.encode(read["tools"]) == msgspec.json.encode(served_tools(trace.tools))
        calls = [call for one in read["messages"] for call in one.get("tool_calls", ())]
        answered = [one["tool_call_id"] for one in read["messages"] if one["role"] == "tool"]
        assert [call["id"] for call in calls] == answered
        assert [call["function"]["name"] for call in calls] == [c.name for one in trace.messages for c in one.calls]
        results = [one["content"] for one in read["messages"] if one["role"] == "tool"]
        assert results == [one.content for one in trace.messages if one.role == "tool"]


def test_the_scripted_expert_solves_by_tokens_what_it_solves_by_messages(stock: Stock) -> None:
    jobs = jobs_of(stock.bench.problems, 1, 0)
    lines = stock.bench.sample(jobs, ScriptedSampler(stock.codec), stock.codec, EPISODE, 2)
    solved = {line.result.problem_id for line in lines if line.result.is_success}
    assert solved == {trace.facts.problem_id for trace in stock.traces()}


def test_a_turn_is_cut_where_the_decoding_says(stock: Stock) -> None:
    whole = ScriptedSampler(stock.codec).sample(prompt_of(stock), EPISODE, 0)
    cut = ScriptedSampler(stock.codec).sample(prompt_of(stock), msgspec.structs.replace(EPISODE, turn_tokens_max=5), 0)
    assert whole.finish == "stop" and cut.finish == "length" and cut.token_ids == whole.token_ids[:5]


def test_a_recipe_names_its_sampler(stock: Stock) -> None:
    def named(more: str) -> Sampler | None:
        return outside_sampler(parse_recipe(stock.recipe_text("rejection", more)), stock.codec)

    assert named("") is None
    assert isinstance(named('sampler = "scripted"'), ScriptedSampler)
    found = named('sampler = "http://127.0.0.1:1/v1"\nsampler_model = "m"')
    assert isinstance(found, VllmSampler) and found.version == "m"
    with pytest.raises(ArenaError) as wrong:
        named('sampler = "scripted"\nsampler_model = "scripted-genius"')
    assert wrong.value.failure.code == "U3001"
