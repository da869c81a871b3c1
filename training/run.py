"""One run of one stage on disk: begun once, resumed after any kill, finished once.

```
recipe.json          what the run was given, whole; another recipe is refused in the same folder
parent.sha256        lineage of the parent it began from; another parent is refused in the same folder
trainer/             the engine's own checkpoints, for resuming
log.jsonl            one line a logged step: loss, gradient norm, and what the stage adds (one file a swept rate)
checkpoint/          weights and tokenizer, once finished
lineage.json         written last: without it the run is not finished
```

A finished folder is returned as it is; an unfinished one goes on from its newest engine checkpoint; the
lineage names everything the weights depend on. Of several processes (`accelerate launch`) the
first alone writes and samples; the others wait for it and read what it wrote. Rows of a step are shared out, never
added to: a step is the step of one process.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from foundation.canonical import content_hash, file_sha256
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError
from foundation.long_work import Progress
from training.recipe import SAMPLING_STAGES, EngineRules, Recipe, read_recipe

WAIT = timedelta(days=14)  # sampling may take days, and the others wait all of it
OF_FIRST = "raised in the first process, for all"  # the note of an error that each of them ends with
_Value = TypeVar("_Value")


class PreemptionError(ArenaError):
    """V2125: the run was asked to end by SIGTERM; what it has done is on disk."""


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """`count` processes of one run; this is number `index`, from 0. `is_sharded`: each holds a part of the weights."""

    index: int = 0
    count: int = 1
    is_sharded: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this process writes and samples for all."""
        return self.index == 0

    def wait(self) -> None:
        """Go on when all have come here. The engine takes over the process group that the first call opens."""
        if self.count == 1:
            return
        import torch
        from accelerate import PartialState

        PartialState(cpu=not torch.cuda.is_available(), timeout=WAIT).wait_for_everyone()

    def gather(self, value: _Value) -> list[_Value]:
        """The value of each process, by number. All have to come here."""
        if self.count == 1:
            return [value]
        from accelerate.utils import gather_object

        found: list[_Value] = gather_object([value])
        return found

    def by_first(self, work: Callable[[], _Value]) -> _Value:
        """What `work` gives in the first process, for all; an error of it is raised in all."""
        if self.count == 1:
            return work()
        from accelerate.utils import broadcast_object_list

        told: list[Any] = [None, None]
        if self.is_first:
            try:
                told[0] = work()
            except Exception as error:  # noqa: BLE001 - the others wait for an answer, whatever it is
                error.add_note(OF_FIRST)
                told[1] = error
        broadcast_object_list(told)
        if told[1] is not None:
            raise told[1]
        return told[0]  # type: ignore[no-any-return]


ALONE = Processes()


def launched(environment: Mapping[str, str]) -> Processes:
    """The processes that torchrun or `accelerate launch` names in `environment`; one without a launcher."""
    if "LOCAL_RANK" not in environment:
        return ALONE
    return Processes(
        index=int(environment.get("RANK", "0")),
        count=int(environment.get("WORLD_SIZE", "1")),
        is_sharded=environment.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true"),
    )


def require_shareable(recipe: Recipe, processes: Processes) -> None:
    """Raises ArenaError V2120 for steps that the processes can't share out, V2124 for weights that one has to hold."""
    count, optim, rules = processes.count, recipe.optim, recipe.grpo
    if count == 1:
        return
    samples_here = bool(recipe.data.dev_problems) if recipe.stage == "kto" else not recipe.sampler
    if processes.is_sharded and recipe.stage in SAMPLING_STAGES and (samples_here or not recipe.lora.r):
        raise ArenaError(
            "V2124",
            f"{recipe.stage} needs whole weights in one process here: launch it without FSDP (`accelerate launch "
            "--multi_gpu`), or train an adapter and let a server sample",
        )
    shared, name = optim.accumulation, f"optim.accumulation = {optim.accumulation}"
    if recipe.stage == "kto":
        shared, name = optim.batch_rows, f"optim.batch_rows = {optim.batch_rows}"
    elif recipe.stage == "grpo":
        shared = rules.problems_per_step * rules.samples // optim.batch_rows
        name = f"a step of {shared} batches of optim.batch_rows"
    if shared % count:
        raise ArenaError(
            "V2120",
            f"{name} does not divide among {count} processes: a step would hold other rows than the recipe says",
        )


PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "renderers", "tokenizers", "datasets")
RECIPE, LINEAGE, LOG, CHECKPOINT, ENGINE = "recipe.json", "lineage.json", "log.jsonl", "checkpoint", "trainer"
PARENT = "parent.sha256"


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run stood on."""

    code_commit: str
    packages: dict[str, str]
    device: str


class RunLineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a checkpoint comes from; its hash is the checkpoint's identity."""

    recipe: Recipe
    parent_sha256: str  # lineage of the parent checkpoint, or of the base model's weights
    corpus_sha256s: tuple[str, ...] = ()
    codec_sha256: str
    partition_sha256: str
    versions: Versions
    weights_sha256: str
    steps: int
    metrics: dict[str, float] = {}
    dropped: dict[str, int] = {}  # rows and rollouts left out, by reason
    stopped_by: str = ""  # the guard that ended it early
    dev_sha256s: tuple[str, ...] = ()  # corpora of the `dev` pool, by which a rate was chosen
    problem_files: dict[str, str] = {}  # files of problems that it sampled on or was watched on: sha256 by file name

    @property
    def sha256(self) -> str:
        """Identity of the checkpoint."""
        recipe = _decisive(self.recipe)
        named = msgspec.to_builtins(replace(self, recipe=recipe))
        if recipe.engine == EngineRules():
            del named["recipe"]["engine"]
        return hashlib.sha256(msgspec.json.encode(named, order="sorted")).hexdigest()


def _decisive(recipe: Recipe) -> Recipe:
    """Without what no weight depends on: where a run reports and is sent."""
    return replace(recipe, engine=replace(recipe.engine, report_to=(), push_to_hub=""))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage's training came to. `losses` by step; `dropped` counts rows or rollouts left out, by reason."""

    parent_sha256: str
    steps: int
    metrics: dict[str, float] = {}
    dropped: dict[str, int] = {}
    losses: tuple[float, ...] = ()
    stopped_by: str = ""  # the guard that ended it early


class RunFolder:
    """A run's folder. Raises ArenaError V2124 when it belongs to another recipe."""

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        progress: Progress | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.path, self.recipe, self.processes = folder, recipe, processes
        self.engine = folder / ENGINE  # where the engine keeps what it resumes from
        self.progress = progress if processes.is_first else None
        self.is_preempted = False  # SIGTERM has come
        if processes.is_first:
            folder.mkdir(parents=True, exist_ok=True)
            kept = folder / RECIPE
            if not kept.exists():
                write_whole(kept, msgspec.json.format(msgspec.json.encode(recipe), indent=2))
            if _decisive(read_recipe(kept)) != _decisive(recipe):
                raise ArenaError("V2124", f"{folder} holds a run of another recipe")
        processes.wait()

    def pin_parent(self, parent_sha256: str) -> None:
        """Begin from this parent (its lineage's hash, or that of the base's weights), or go on from it.

        Raises ArenaError V2166 when the run was begun from another: its episodes and engine state are of that one.
        """
        done, kept = self.finished(), self.path / PARENT
        if done is None and not kept.exists() and self.processes.is_first:
            write_whole(kept, parent_sha256.encode())
        self.processes.wait()
        begun = done.parent_sha256 if done else kept.read_text(encoding="utf-8")
        if begun != parent_sha256:
            place = self.recipe.parent or self.recipe.model
            raise ArenaError(
                "V2166", f"{self.path} was begun from {begun[:12]} at {place}, which is {parent_sha256[:12]} now"
            )

    def require_time(self) -> None:
        """Raises PreemptionError once SIGTERM has come."""
        if self.is_preempted:
            raise PreemptionError("V2125", str(self.path))

    def finished(self) -> RunLineage | None:
        """The lineage of a finished run, or None. Raises ArenaError V2166 for an invalid lineage."""
        path = self.path / LINEAGE
        return read_lineage(path) if path.exists() else None

    def log(self, line: Mapping[str, float], name: str = LOG) -> None:
        """Add a line to a log of this run."""
        if not self.processes.is_first:
            return
        with (self.path / name).open("ab") as file:
            file.write(msgspec.json.encode(dict(line)) + b"\n")

    def lines(self, name: str = LOG) -> list[dict[str, float]]:
        """The whole lines of a log of this run."""
        path = self.path / name
        whole = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [msgspec.json.decode(line) for line in whole if line.endswith(b"\n")]

    def rewind(self, step: int, name: str = LOG) -> None:
        """Drop the lines of steps after `step`, and one that a kill cut short."""
        path = self.path / name
        if path.exists() and self.processes.is_first:
            lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
            kept = [line for line in lines if msgspec.json.decode(line)["step"] <= step]
            path.write_bytes(b"".join(kept))

    def save(self, model: Any, **state_dict: Any) -> None:
        """Write weights and tokenizer to `checkpoint/`. `state_dict`: whole weights of which `model` holds a part."""
        target = self.path / CHECKPOINT
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        model.save_pretrained(str(target), **state_dict)
        copy_tokenizer(Path(self.recipe.tokenizer or self.recipe.model), target)

    def finish(
        self,
        outcome: Outcome,
        *,
        codec_sha256: str,
        partition_sha256: str,
        code_commit: str,
        device: str,
        corpus_sha256s: tuple[str, ...] = (),
        dev_sha256s: tuple[str, ...] = (),
        problem_files: Mapping[str, str] = {},
    ) -> RunLineage:
        """Write the lineage of the weights in `checkpoint/`, and drop the engine's state."""
        if not self.processes.is_first:
            self.processes.wait()
            return read_lineage(self.path / LINEAGE)
        count = self.processes.count
        lineage = RunLineage(
            recipe=self.recipe,
            parent_sha256=outcome.parent_sha256,
            corpus_sha256s=corpus_sha256s,
            codec_sha256=codec_sha256,
            partition_sha256=partition_sha256,
            versions=Versions(
                code_commit=code_commit, packages=installed(), device=device if count == 1 else f"{count} x {device}"
            ),
            weights_sha256=weights_sha256(self.path / CHECKPOINT),
            steps=outcome.steps,
            metrics={name: value for name, value in outcome.metrics.items() if math.isfinite(value)},  # no NaN in JSON
            dropped=outcome.dropped,
            stopped_by=outcome.stopped_by,
            dev_sha256s=dev_sha256s,
            problem_files=dict(problem_files),
        )
        write_whole(self.path / LINEAGE, msgspec.json.format(msgspec.json.encode(lineage), indent=2))
        shutil.rmtree(self.engine, ignore_errors=True)
        self.processes.wait()
        return lineage


def newest_checkpoint(engine: Path, processes: Processes = ALONE) -> str | None:
    """The engine's newest whole checkpoint, or None. The first process writes its state file last.

    Raises ArenaError V2124 for one of another number of processes: nothing would go on where it was.
    """
    parts = {f"rng_state_{index}.pth" for index in range(processes.count)}
    wanted = {"rng_state.pth"} if processes.count == 1 else parts
    found = []
    for path in engine.glob("checkpoint-*"):
        states = {state.name for state in path.glob("rng_state*.pth")}
        if (path / "trainer_state.json").exists() and not states <= wanted:
            raise ArenaError("V2124", f"{path} is not of {processes.count} processes: go on with as many as began")
        if (path / "trainer_state.json").exists() and states == wanted:
            found.append(path)
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None


def open_checkpoint(folder: Path) -> RunLineage:
    """The lineage of a finished run whose `checkpoint/` is what it names.

    Raises ArenaError V2124 when there is none, V2166 when its weights were changed.
    """
    lineage = read_lineage(folder / LINEAGE)
    if weights_sha256(folder / CHECKPOINT) != lineage.weights_sha256:
        raise ArenaError("V2166", f"{folder / CHECKPOINT} does not hold the weights its lineage names")
    return lineage


def lineage_chain(folder: Path) -> list[tuple[Path, RunLineage]]:
    """A finished run and the runs it comes from, back to the base model.

    Raises ArenaError V2124 where one is missing, V2166 where one was changed or is not what its child was trained from.
    """
    chain = [(folder, open_checkpoint(folder))]
    while parent := chain[-1][1].recipe.parent:
        lineage = open_checkpoint(Path(parent))
        if chain[-1][1].parent_sha256 != lineage.sha256:
            raise ArenaError("V2166", f"{parent} is not what {chain[-1][0]} was trained from")
        chain.append((Path(parent), lineage))
    return chain


def weights_sha256(folder: Path) -> str:
    """Of the weight files' names and bytes, whatever else lies beside them. Raises ArenaError V2124 without any."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ArenaError("V2124", f"{folder} holds no weights")
    return content_hash([[file.name, file_sha256(file)] for file in files])


def copy_tokenizer(source: Path, target: Path) -> None:
    """The files that make a tokenizer, unchanged."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def installed() -> dict[str, str]:
    """Versions of Python and the packages that decide what is computed."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def read_lineage(path: Path) -> RunLineage:
    """The lineage in a file. Raises ArenaError V2124 for an absent one, V2166 for one that can't be read."""
    with coded(path, "V2124"):
        content = path.read_bytes()
    with coded(path, "V2166"):
        return msgspec.json.decode(content, type=RunLineage)
