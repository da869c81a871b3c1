"""`python -m studies.shopping`: the study from nothing to its page, resumable (README.md). A study in its folder:

```
plan.toml             the plan; one that differs in more than rows and arms is refused in the same folder
market/ tokenizer/ records/ corpora/     what rows stand on
runs/NAME/            base and stages (`training.run`)
reports/              episodes and evaluation reports
done/                 one file a finished part: the processor seconds it took
```

Killed anywhere it goes on. Results lie in a folder of their own: with them and without this one, what an open row
stands on is made again, and a finished row never.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from foundation.codes import GUARD_STOPPED, RUN_UNUSABLE
from foundation.errors import ArenaError
from foundation.long_work import Progress
from harness.catalogue.native import open_catalogue
from harness.inference.scripted.model import ScriptedUpstream
from neurons.cli.app import run_guarded
from neurons.cli.presenter import EXIT_FAILED, show_progress
from neurons.settings import inputs
from problems.formats import read_problems
from problems.titles import LexicalTitles
from studies.shopping.market import INDEX, Market, make_market, make_tokenizer, open_partition, read_market
from studies.shopping.models import Measurement, build_base, file_name, measure
from studies.shopping.plan import BASE, CONTROLS, STUDY_MARK, StudyPlan, parents_of, read_toml, recipe_of, row_named
from studies.shopping.records import MATCHED, build_corpora, record_study, study_policy
from studies.shopping.results import EDITION, Results, RowResult, render_page
from training.evaluation.report import EvalReport
from training.guards import require_train_pool
from training.recipe import Recipe, read_recipe
from training.run import lineage_chain
from training.run_context import RunContext
from training.stages.pipeline import run_stage


@dataclasses.dataclass(frozen=True)
class Study:
    """One study. `recipes` holds the plan (plan.toml) and its recipes, `source` is a Qwen3 tokenizer's folder."""

    plan: StudyPlan
    recipes: Path
    source: Path
    folder: Path  # absolute
    results: Results
    code_commit: str
    now_ms: Callable[[], int]
    progress: Progress | None = None

    def make(self, label: str) -> None:
        """Make a row with all that it stands on; a finished one is left.

        Raises ArenaError V2124 for the folder of another plan, and what its parts raise, V2123 among it.
        """
        if label in self.results.read():
            return
        kept = self.folder / "plan.toml"
        if kept.exists() and read_toml(kept, StudyPlan).plan_sha256 != self.plan.plan_sha256:
            raise ArenaError("V2124", f"{self.folder} holds a study of another plan")
        self.folder.mkdir(parents=True, exist_ok=True)
        kept.write_text((self.recipes / "study.toml").read_text("utf-8"), "utf-8")
        self._once("market", lambda: make_market(self.plan, self.folder / "market"))
        self._once("tokenizer", lambda: make_tokenizer(self.plan, self.source, self.folder / "tokenizer", self._bench))
        market_dir, records = self.folder / "market", self.folder / "records"
        self._once("records", lambda: record_study(self.plan, market_dir, records, self.code_commit, self.now_ms))
        if not all((self.folder / "corpora" / MATCHED / arm).exists() for arm in self.plan.arms):
            self._mark("corpora").unlink(missing_ok=True)
        self._once("corpora", lambda: build_corpora(self.plan, self.folder, self.code_commit))
        run = None if label in CONTROLS else self._run(label)
        asked = [  # a control draws nothing, so greedily alone
            Measurement(label=label, run=run, set=place, decode=rules)
            for rules in self.plan.decodes
            for place in rules.sets
            if run is not None or rules.temperature == 0
        ]
        for one in asked:
            problems = getattr(self._market, one.set)
            self._once(f"measure {one.name}", lambda: measure(one, problems, self.plan, self.folder, self._bench))  # noqa: B023
        self.results.add(self._result(label, asked, run))

    def _run(self, name: str) -> Path:
        """The folder of a base's or a row's finished run; its parents are trained first, where they are not."""
        folder = self.folder / "runs" / name
        if name == BASE:
            self._once(name, lambda: build_base(self.plan, folder, self.folder, self._bench))
            return folder
        row = row_named(name)
        recipe = recipe_of(read_recipe(self.recipes / f"{row.recipe}.toml"), self.folder, row)
        for parent in (BASE, *sorted(parents_of(recipe))):
            self._run(parent)
        self._once(f"stage {name}", lambda: self._train(recipe, folder))
        return folder

    def _train(self, recipe: Recipe, folder: Path) -> None:
        bench = self._bench
        if recipe.data.problems:  # those it names, never others than `train` has
            named = read_problems(Path(recipe.data.problems).read_bytes().splitlines())
            require_train_pool((problem.problem_id for problem in named), bench.train_ids)
            bench = dataclasses.replace(bench, problems=named)
        run_stage(recipe, folder, bench, open_teacher=lambda recipe: ScriptedUpstream())

    def _result(self, label: str, asked: list[Measurement], run: Path | None) -> RowResult:
        files = (self.folder / "reports" / f"{one.name}.json" for one in asked)
        parts = (f"stage {label}", *(f"measure {one.name}" for one in asked))
        return RowResult(
            row=label,
            edition=EDITION,
            plan_sha256=self.plan.plan_sha256,
            code_commit=self.code_commit,
            lineage=tuple(
                msgspec.json.decode(msgspec.json.encode(one).replace(str(self.folder).encode(), STUDY_MARK.encode()))
                for _, one in (lineage_chain(run) if run is not None else ())
            ),
            reports=tuple(msgspec.json.decode(file.read_bytes(), type=EvalReport) for file in files),
            seconds={name: float(self._mark(name).read_text()) for name in parts if self._mark(name).exists()},
        )

    def _mark(self, name: str) -> Path:
        return self.folder / "done" / file_name(name)

    def _once(self, name: str, make: Callable[[], None]) -> None:
        """Make a part that is not marked as done, and mark it with the seconds of the process that finished it."""
        mark, begun_s = self._mark(name), time.process_time()
        if not mark.exists():
            make()
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(f"{time.process_time() - begun_s:.1f}\n", "utf-8")

    @cached_property
    def _market(self) -> Market:
        return read_market(self.folder / "market")

    @cached_property
    def _bench(self) -> RunContext:
        return RunContext(
            policy=study_policy(self.plan),
            catalogue=open_catalogue(self.folder / "market" / INDEX),
            titles=LexicalTitles(),
            problems=self._market.train,
            dev=self._market.dev,
            held_out=(*self._market.eval, *self._market.second),
            partition_sha256=open_partition(self.folder / "market").manifest.sha256,
            code_commit=self.code_commit,
            progress=self.progress,
        )


RECIPES = Path(__file__).with_name("recipes")
TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer"
app = typer.Typer(add_completion=False)


@app.command()
def study(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; an unfinished one goes on.")],
    recipes: Annotated[Path, typer.Option("--recipes", help="Folder of study.toml and its recipes.")] = RECIPES,
    quick: Annotated[bool, typer.Option("--quick", help="The small plan: an hour of one core.")] = False,
    results: Annotated[Path | None, typer.Option("--results", help="Folder of finished rows. Default: in OUT.")] = None,
    only: Annotated[str, typer.Option("--only", help="Make only rows whose names begin so; `report`: none.")] = "",
    plan: Annotated[bool, typer.Option("--plan", help="List the rows and their hours; run nothing.")] = False,
) -> None:
    """Make the rows that have no result yet, then OUT/report.md. A row that fails ends no other (exit code 1)."""
    folder = recipes / "quick" if quick else recipes
    rules = read_toml(folder / "study.toml", StudyPlan)
    kept = Results(results or out / "results", rules)
    running = Study(
        plan=rules,
        recipes=folder,
        source=TOKENIZER,
        folder=out.resolve(),
        results=kept,
        code_commit=inputs.code_commit(),
        now_ms=inputs.unix_ms,
        progress=show_progress(),
    )
    done = kept.read()
    chosen = [label for label in rules.labels if label.startswith(only)]
    if plan:
        for label in chosen:
            took_s = sum(done[label].seconds.values()) if label in done else 0.0
            typer.echo(f"{'done' if label in done else 'open'} {took_s / 3600:5.1f} h  {label}")
        return
    if not chosen and only != "report":
        raise typer.BadParameter(f"no row begins with {only!r}", param_hint="--only")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is resumable is kept, servers are stopped
    failed = False
    for label in (one for one in chosen if one not in done):
        typer.echo(label)
        try:
            running.make(label)
        except ArenaError as error:  # of a stage or a measurement: it ends its row and no other
            if error.failure.code not in (GUARD_STOPPED, RUN_UNUSABLE):
                raise
            typer.echo(f"{label}: {error}", err=True)
            failed = True
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(render_page(rules, folder, kept.read()), "utf-8")
    typer.echo(out / "report.md")
    if failed:
        raise typer.Exit(EXIT_FAILED)


if __name__ == "__main__":
    raise SystemExit(run_guarded(lambda: app()))
