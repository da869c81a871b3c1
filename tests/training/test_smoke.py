"""Everything from a corpus to a checkpoint that races again, on a processor with a random model, by the commands.

The smoke recipes run as they are shipped, in a working directory whose `smoke/` holds what they name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from typer.testing import CliRunner, Result

from arena.evaluate import EvaluatePorts, evaluate
from arena.gate.inspection import inspect
from arena.gate.knowledge import make_knowledge
from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.inference.scripted.model import ScriptedUpstream
from harness.sandbox.probe import open_sandbox
from neurons.cli import evaluate as evaluate_model
from neurons.cli import train
from neurons.cli.presenter import EXIT_INTEGRITY, exit_code
from problems.formats import write_problems
from problems.model import Problem
from tests.training.stock import POLICY, RECIPES, Stock, corpus_of, shortest
from tests.training.vllm_double import VllmDouble, serve
from training.evaluation.model_loader import learnt_by
from training.evaluation.report import EvalReport
from training.guards import GuardStopError
from training.models.opening import open_model, open_run
from training.recipe import Recipe, read_recipe
from training.rollouts.rollout import TokenUpstream
from training.run import RunLineage, lineage_chain, open_checkpoint, weights_sha256
from training.stages.pipeline import run_stage

LEVEL = "reference-agents-only"
AGENT = Path(__file__).parents[2] / "examples" / "compare_and_budget.py"
AGENT_AND_MODEL, SIDES = ("agent", "scripted"), ("own", "served")
STAGES = ("sft", "rejection", "teacher", "kto", "grpo")


@pytest.fixture(scope="module")
def place(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of the recipes, with every stage run by its command."""
    place = tmp_path_factory.mktemp("smoke")
    before = Path.cwd()
    os.chdir(place)
    torch.set_num_threads(1)
    try:
        (place / "smoke").mkdir()
        for name in ("model", "index"):
            shutil.copytree(stock.folder / name, place / "smoke" / name)
        for name in ("dev.jsonl", "eval.jsonl"):
            shutil.copyfile(stock.folder / name, place / "smoke" / name)
        lines = "".join(f"{line}\n" for line in write_problems(trained_on(stock)))
        (place / "smoke" / "train.jsonl").write_text(lines, "utf-8")
        (place / "policy.json").write_bytes(msgspec.json.encode(POLICY))
        corpus_of(shortest(stock.traces(), 4), place / "smoke" / "corpus")
        yield place
    finally:
        os.chdir(before)


def trained_on(stock: Stock) -> list[Problem]:
    """The problems with short episodes: what is learnt of a row costs by its length."""
    return [problem for problem in stock.bench.problems if problem.bucket == "product"]


def arena(place: Path, command: str, *words: str, code: int = 0) -> Result:
    """Run a command of `arena`, which ends with `code` or raises."""
    node = ("--policy", str(place / "policy.json"))
    if command in ("train", "eval"):
        node += ("--catalogue", str(place / "smoke" / "index"), "--state-dir", str(place / "state"))
    if command in ("lineage", "report"):
        node = ()
    alone = {"eval": evaluate_model.app, "report": evaluate_model.report_app}
    named = () if command in alone else (command,)
    result = CliRunner().invoke(alone.get(command, train.app), [*named, *words, *node], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def run_of(place: Path, stage: str) -> Path:
    """The folder of a stage, which is run by its command, after those it starts from, where it was not yet."""
    out = place / "smoke" / stage
    if not (out / "lineage.json").exists():
        recipe = read_recipe(RECIPES / f"{stage}.toml")
        if recipe.parent:
            run_of(place, Path(recipe.parent).name)
        words = ("--recipe", str(RECIPES / f"{stage}.toml"), "--out", str(out), "--held-out", "smoke/eval.jsonl")
        arena(place, "train", stage, *words, "--json")
    return out


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_runs_by_its_command_and_is_not_run_again(place: Path, stage: str) -> None:
    out = run_of(place, stage)
    lineage = msgspec.json.decode((out / "lineage.json").read_bytes(), type=RunLineage)
    assert lineage.recipe.stage == stage and lineage.steps > 0 and not lineage.stopped_by
    assert lineage.weights_sha256 == weights_sha256(out / "checkpoint")
    assert (out / "checkpoint" / "tokenizer.json").exists() and not (out / "trainer").exists()
    again = arena(place, "train", stage, "--recipe", str(RECIPES / f"{stage}.toml"), "--out", str(out), "--json")
    assert msgspec.json.decode(again.stdout.strip().splitlines()[-1].encode(), type=RunLineage) == lineage


def test_a_guard_that_fires_stands_in_the_lineage_and_in_the_exit_code(place: Path) -> None:
    run_of(place, "teacher")
    text, found, _ = (RECIPES / "kto.toml").read_text("utf-8").partition("[guards]")
    assert found
    text = text.replace("[data]", '[data]\ndev_problems = "smoke/dev.jsonl"')
    (place / "strict.toml").write_text(f"{text}[guards]\nemission_min = 0.0\nkl_max = 1e-9\n", "utf-8")
    words = ("--recipe", "strict.toml", "--out", "smoke/strict", "--held-out", "smoke/eval.jsonl")
    shown = arena(place, "train", "kto", *words, code=1).stdout
    lineage = open_checkpoint(Path("smoke/strict"))
    assert lineage.stopped_by.startswith("kl: ") and lineage.stopped_by.endswith("1e-09 is allowed")
    assert lineage.stopped_by in shown and lineage.steps > 0


def test_weights_that_were_changed_and_a_parent_that_was_exchanged_are_found(place: Path, tmp_path: Path) -> None:
    copy = tmp_path / "teacher"
    shutil.copytree(run_of(place, "teacher"), copy)
    weights = next((copy / "checkpoint").glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ArenaError) as wrong:
        lineage_chain(copy)
    assert wrong.value.failure.code == "V2166" and "weights" in wrong.value.failure.detail
    assert exit_code(wrong.value) == EXIT_INTEGRITY
    other = tmp_path / "kto"
    shutil.copytree(run_of(place, "kto"), other)
    told = msgspec.json.decode((other / "lineage.json").read_bytes(), type=RunLineage)
    recipe = msgspec.structs.replace(told.recipe, parent="smoke/sft")
    (other / "lineage.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(told, recipe=recipe)))
    for opening in (lineage_chain, lambda run: open_run(run, torch.float32)):
        with pytest.raises(ArenaError, match=r"V2166.*trained"):
            opening(other)


def test_a_run_does_not_go_on_from_another_parent_than_it_began_from(place: Path, stock: Stock, tmp_path: Path) -> None:
    """Its parent was trained anew at the same place: its episodes, and what it trained, are of another policy."""
    parent, out = tmp_path / "sft", tmp_path / "rejection"
    shutil.copytree(run_of(place, "sft"), parent)
    text = (RECIPES / "rejection.toml").read_text("utf-8").replace('parent = "smoke/sft"', f'parent = "{parent}"')
    recipe = msgspec.toml.decode(text, type=Recipe)

    class Killed(BaseException):
        pass

    def kill(phase: str, done: int, of: int) -> None:
        raise Killed

    bench = replace(stock.bench, progress=kill)
    with pytest.raises(Killed):
        run_stage(recipe, out, bench, open_teacher=lambda _: ScriptedUpstream())
    assert (out / "episodes.jsonl").exists()
    told = msgspec.json.decode((parent / "lineage.json").read_bytes(), type=RunLineage)  # of the same training anew
    anew = msgspec.structs.replace(told, versions=msgspec.structs.replace(told.versions, code_commit="another"))
    (parent / "lineage.json").write_bytes(msgspec.json.encode(anew))
    with pytest.raises(ArenaError, match="was begun from") as wrong:
        run_stage(recipe, out, stock.bench, open_teacher=lambda _: ScriptedUpstream())
    assert wrong.value.failure.code == "V2166" and str(parent) in wrong.value.failure.detail
    assert "new folder" in str(wrong.value) and exit_code(wrong.value) == EXIT_INTEGRITY


def test_a_checkpoint_is_examined_greedily_and_sampled_and_compared_with_its_base(place: Path) -> None:
    short = ("--decode", "turn_tokens_max=8", "--decode", "turns_max=2", "--parallel", "2")
    short += ("--problems", "smoke/eval.jsonl")
    teacher = run_of(place, "teacher")
    arena(place, "eval", "smoke/model", *short, "--out", "base.json", "--label", "base")
    words = (*short, "--out", "teacher.json", "--label", "teacher")
    table = arena(place, "eval", str(teacher), *words).stdout
    assert "success (ASR)" in table and "pass@1" in table and "contamination check" in table
    greedy = msgspec.json.decode(Path("teacher.json").read_bytes(), type=EvalReport)
    assert greedy.conditions.tool_profile == "paper4" and greedy.conditions.decode.temperature == 0
    assert greedy.lineage_sha256 == open_checkpoint(teacher).sha256
    sampled = arena(place, "eval", str(teacher), *short, "--seeds", "4", "--json")
    found = msgspec.convert(json.loads(sampled.stdout)["report"], EvalReport)
    assert found.episodes == 4 * greedy.episodes and set(found.pass_at) == {"1", "2", "4"}
    assert len(found.asr_by_seed) == 4
    both = json.loads(arena(place, "report", "base.json", "teacher.json", "--json").stdout)
    assert both["tests"][0]["paired"]["n"] == greedy.conditions.set.problems


def test_a_run_is_examined_at_a_server_as_in_this_process(place: Path, stock: Stock) -> None:
    run = run_of(place, "sft")
    local = stock.sampler(open_run(run, torch.float32))
    double = VllmDouble(lambda name, *turn: local.sample(*turn))
    double.models = {"sft@0123": ""}
    words = (str(run), "--problems", "smoke/eval.jsonl", "--decode", "turn_tokens_max=8", "--decode", "turns_max=2")
    arena(place, "eval", *words, "--out", "own.json")
    with serve(double) as url:
        arena(place, "eval", *words, "--sampler", url, "--model", "sft@0123", "--out", "served.json")
    own, served = (msgspec.json.decode(Path(f"{name}.json").read_bytes(), type=EvalReport) for name in SIDES)
    assert served.weights == "sft@0123" and own.weights == own.lineage_sha256 == served.lineage_sha256
    assert served.conditions == own.conditions and served.problems == own.problems
    assert "contamination check" in served.contamination and "sampled by sft@0123" in served.contamination
    with pytest.raises(ArenaError, match=r"V2124.*holds episodes of sft@0123, not of"):
        arena(place, "eval", *words, "--out", "served.json")


def test_an_agent_file_stands_in_the_table_beside_a_model_with_what_it_took(place: Path) -> None:
    on = ("--problems", "smoke/eval.jsonl")
    done = arena(place, "eval", str(AGENT), *on, "--label", "top miner", "--out", "agent.json")
    assert "seconds a solved" in done.stdout
    arena(place, "eval", "scripted", "--model", "scripted-expert", *on, "--out", "scripted.json")
    agent, other = (msgspec.json.decode(Path(f"{name}.json").read_bytes(), type=EvalReport) for name in AGENT_AND_MODEL)
    assert (agent.conditions.asked_by, other.conditions.asked_by) == ("agent", "")
    assert agent.spent and agent.spent.solved > 0 and agent.spent.episode_ms
    assert other.spent and other.spent.episode_ms is None and other.spent.prompt_tokens > 0
    arena(place, "report", "agent.json", "scripted.json", "--out", "page.html")
    page = Path("page.html").read_text("utf-8")
    assert "as the agent file asks, at most" in page and "time a solved" in page and "top miner" in page
    document = json.loads(arena(place, "report", "agent.json", "scripted.json", "--json").stdout)
    assert document["tests"] == []  # what one decides for itself is not the other's condition


def test_nothing_is_examined_on_what_it_learnt(place: Path, stock: Stock) -> None:
    teacher = run_of(place, "teacher")
    learnt = learnt_by(teacher)
    assert {problem.problem_id for problem in trained_on(stock)} <= learnt.problem_ids and not learnt.unread
    with pytest.raises(GuardStopError, match="contamination"):
        arena(place, "eval", str(teacher), "--problems", "smoke/train.jsonl")
    corpus = Path("smoke/corpus/lineage.json")
    kept = corpus.read_bytes()
    corpus.write_bytes(kept.replace(b'rows_sha256":', b'rows_sha256": "0", "was":'))
    assert learnt_by(teacher).unread == ("smoke/corpus (another corpus stands there now)",)
    corpus.write_bytes(kept)


def test_a_checkpoint_races_again(place: Path, stock: Stock, tmp_path: Path) -> None:
    """Its agent file passes the gate and is evaluated under the policy that lists it, on its served weights."""
    arena(place, "reenter", str(run_of(place, "teacher")), "--name", "small", "--out", str(tmp_path / "e"), "--fp32")
    source = (tmp_path / "e" / "agent.py").read_text("utf-8")
    policy = msgspec.json.decode((tmp_path / "e" / "policy.json").read_bytes(), type=Policy)
    model_id = policy.inference.models[-1]
    served = tmp_path / "e" / "model"
    assert model_id == f"small@{weights_sha256(served)[:16]}" and model_id in source
    ids = [product.product_id for product in stock.bench.catalogue.products()]
    texts = [problem.query for problem in (*stock.bench.problems, *stock.held)]
    assert inspect(source, policy.gate, make_knowledge(ids, texts, [], policy.gate)).outcome == "accept"
    model = open_model(str(served), torch.float32)
    merged = open_run(run_of(place, "teacher"), torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), merged.parameters(), strict=True))
    sampler = stock.sampler(model, model_id)
    decode = read_recipe(RECIPES / "grpo.toml").decode
    ports = EvaluatePorts(
        policy=policy,
        catalogue=stock.bench.catalogue,
        titles=stock.bench.titles,
        sandbox=open_sandbox(tmp_path, reference_sha256s=frozenset([text_hash(source)]), slots=1, wanted=LEVEL),
        upstreams=[TokenUpstream(sampler, stock.codec, decode, 0)],
        judges=(),
    )
    found = evaluate(source, stock.held[0], ports)
    assert found.body.totals.completion_tokens > 0 and found.outcome.is_success is False
    assert {event.model for event in found.body.events if hasattr(event, "model")} == {model_id}
    with pytest.raises(ArenaError, match="written once"):
        arena(place, "reenter", str(run_of(place, "teacher")), "--name", "small", "--out", str(tmp_path / "e"))
