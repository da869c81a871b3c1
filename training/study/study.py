"""A study in its folder: runs its parts in order, each once, and goes on after any kill.

```
plan.toml             what it was told; a plan that differs in more than rows and arms is refused in the same folder
market/               catalogue, problems, partition
tokenizer/            what the market's own texts make of Qwen3's
records/              what the gate said of the agents, the arena's log of their episodes, and the export
corpora/              what the filter made of the export; `matched/` for ablations
runs/NAME/            base and stages (`training.stages.run`)
generations/ROW/      records and corpus of a row that learns from races of the one before
reports/              episodes and evaluation reports
report.html, report.json
done/                 one file a finished part: the processor seconds it took
failed/               why a part failed when it was last tried
```

It only opens what the parts work with; each part runs the same code as the commands. Nothing is written before
a part is run. The report says what of the plan it lacks. The results of finished rows lie in a folder of their own:
with them and without this one, the same command makes again what an open row needs, and goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from foundation.progress import Progress
from harness.catalogue.engines.native import open_catalogue
from harness.inference.port import Upstream
from problems.scoring.title_matching import LexicalTitles
from problems.suites.formats import read_problems
from training.evaluation.failures import count_reasons
from training.evaluation.report import EvalReport
from training.evaluation.run_eval import episodes_path
from training.guards import require_train_pool, require_uncut
from training.recipe import Recipe, parse_recipe, read_whole_text
from training.report.document import Document
from training.report.page import render_page
from training.rollouts.episode_file import EpisodeFile
from training.run_context import RunContext
from training.stages.pipeline import run_stage
from training.stages.run import lineage_chain
from training.study.base_model import build_base
from training.study.corpora import MATCHED, build_corpora
from training.study.findings.document import study_document
from training.study.findings.notes import progress_notes
from training.study.findings.results import ResultFolder, RowResult, kept_curves
from training.study.generations.counts import read_counts
from training.study.generations.racing import run_generation
from training.study.market import INDEX, Market, make_market, open_partition, read_market
from training.study.measure import UNCUT, file_name, measure
from training.study.parts import (
    BASE,
    GENERATIONS,
    GROUND,
    STUDY_MARK,
    Part,
    base_run,
    named_runs,
    parts_of,
    recipe_text,
    run_folder,
)
from training.study.plan import UNDER, StudyPlan, TrainedRow, read_plan
from training.study.policies import ScriptedUpstream
from training.study.records import EXPORT, record_study, study_policy
from training.study.vocabulary import make_tokenizer

PLAN, HTML, JSON = "plan.toml", "report.html", "report.json"
DONE, FAILED, REPORTS = "done", "failed", "reports"


class Study:
    """One study. Raises ArenaError V2124 for a folder that holds another plan's."""

    def __init__(
        self,
        plan: StudyPlan,
        plan_text: str,
        recipes: Path,
        tokenizer: Path,
        folder: Path,
        *,
        code_commit: str,
        now_ms: Callable[[], int],
        results: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`recipes` is the folder of the plan's recipes, `tokenizer` a Qwen3 tokenizer's, which the study's follows;
        `results` that of finished rows, in the study's own where none is named."""
        self.plan, self.folder = plan, folder.resolve()
        self._recipes, self._source = recipes, tokenizer.resolve()
        self._tokenizer = self.folder / "tokenizer"
        self._commit, self._now_ms, self._progress = code_commit, now_ms, progress
        self._plan_text = plan_text
        self.results = ResultFolder(results or self.folder / "results", plan.sha256_of)
        self._require_plan()

    def parts(self) -> tuple[Part, ...]:
        """What the study consists of."""
        return parts_of(self.plan, self.folder)

    def is_done(self, part: Part) -> bool:
        """Whether a part is finished, or nothing that is open needs it. A report is made anew each time."""
        match part.kind:
            case "report":
                return False
            case "result":
                return self.results.has(part.row)
            case "measure":
                return self.results.has(part.row) or self._mark(part).exists()
            case "stage" | "generation":
                return self._mark(part).exists() or part.row not in self._needed
            case "base":
                return self._mark(part).exists() or base_run(part.base) not in self._needed
            case "corpora":
                matched = self.folder / "corpora" / MATCHED
                is_whole = self._mark(part).exists() and all((matched / arm).exists() for arm in self.plan.arms)
                return is_whole or not self._open_rows
            case _:
                return self._mark(part).exists() or not self._open_rows

    @property
    def _open_rows(self) -> list[str]:
        return [part.row for part in self.parts() if part.kind == "result" and not self.results.has(part.row)]

    @property
    def _needed(self) -> set[str]:
        """The open rows, and the runs that they start from, learn from or ask."""
        parents = {f"{row}{UNDER}{rules.name}": {row} for rules in self.plan.harnesses for row in rules.rows}
        for row in self.plan.trained:
            parents[row.name] = {base_run(row.base), *named_runs(self._text(row))}
            if row.generation:
                parents[row.name].add(self.plan.racer_of(row).name)
        needed, waiting = set[str](), self._open_rows
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += parents.get(name, ())
        return needed

    def _text(self, row: TrainedRow) -> str:
        return recipe_text(read_whole_text(self._recipes / f"{row.recipe}.toml"), self.folder, row)

    def run(self, part: Part) -> None:
        """Run a part; a finished one is left as it is.

        Raises what the part raises, V2123 among it: a guard that fires before anything was trained.
        """
        if self.is_done(part):
            return
        self._require_plan()
        (self.folder / DONE).mkdir(parents=True, exist_ok=True)
        (self.folder / PLAN).write_text(self._plan_text, "utf-8")
        begun_s = time.process_time()
        match part.kind:
            case "market":
                make_market(self.plan, self._market_dir)
            case "tokenizer":
                make_tokenizer(self.plan, self._source, self._tokenizer, self._bench)
            case "records":
                record_study(
                    self.plan,
                    self._market_dir,
                    self.folder / "records",
                    code_commit=self._commit,
                    now_ms=self._now_ms,
                    progress=self._progress,
                )
            case "corpora":
                build_corpora(
                    self.plan,
                    self._market_dir,
                    self.folder / "records" / EXPORT,
                    self.folder / "corpora",
                    self._tokenizer,
                    code_commit=self._commit,
                    progress=self._progress,
                )
            case "base":
                rules, target = self.plan.base_of(part.base), run_folder(self.folder, base_run(part.base))
                build_base(self.plan, rules, self._tokenizer, target, self._market_dir, self._bench)
            case "generation":
                assert part.trained is not None
                run_generation(
                    part.trained,
                    self.plan,
                    self.folder,
                    self._market_dir,
                    self._tokenizer,
                    code_commit=self._commit,
                    now_ms=self._now_ms,
                    progress=self._progress,
                )
            case "stage":
                assert part.trained is not None
                text = self._text(part.trained)
                recipe, bench = parse_recipe(text, part.trained.recipe), self._bench
                if recipe.data.problems:  # those it names, never others than `train` has
                    named = read_problems(Path(recipe.data.problems).read_bytes().splitlines())
                    require_train_pool((problem.problem_id for problem in named), bench.train_ids)
                    bench = dataclasses.replace(bench, problems=named)
                target = run_folder(self.folder, part.row)
                run_stage(recipe, text, target, bench, open_teacher=_scripted_teacher)
            case "measure":
                assert part.measurement is not None
                problems = self._market.of(part.measurement.set)
                measure(part.measurement, problems, self.plan, self._tokenizer, self._bench, self.folder / REPORTS)
            case "result":
                self._require_uncut(part)
                self.results.add(self._result(part))
            case "report":
                document = self.document()
                (self.folder / HTML).write_text(render_page(document), "utf-8")
                (self.folder / JSON).write_bytes(msgspec.json.encode(document))
        self._keep_seconds(part, time.process_time() - begun_s)
        self._mark(part, FAILED).unlink(missing_ok=True)

    def keep_failure(self, part: Part, why: str) -> None:
        """Say on the page why a part failed, until it is done."""
        path = self._mark(part, FAILED)
        path.parent.mkdir(exist_ok=True)
        path.write_text(why, "utf-8")

    def seconds(self) -> dict[str, float]:
        """Processor seconds of the parts that ran, here or for a finished row."""
        rows = [part.row for part in self.parts() if part.kind == "result"]
        here = {part.name: took for part in self.parts() if (took := self._seconds(part)) is not None}
        return {**self.results.seconds(rows), **here}

    def document(self) -> Document:
        """The report as a value, of whatever was measured so far."""
        parts = self.parts()
        finished = self.results.read([BASE, *(part.row for part in parts if part.kind == "result")])
        kept = {part.name: self._mark(part, FAILED) for part in parts}
        return study_document(
            self.plan,
            finished,
            [
                msgspec.json.decode(file.read_bytes(), type=EvalReport)
                for part in parts
                if part.measurement and part.row not in finished and (file := self._report(part)).exists()
            ],
            self.seconds(),
            parts,
            self._recipes,
            self.folder,
            progress_notes(
                [
                    part
                    for part in parts  # what finished rows stand on was made, wherever their folder is now
                    if (part.row or part.name) not in finished and not (finished and part.name in GROUND)
                ],
                self.is_done,
                {name: path.read_text("utf-8") for name, path in kept.items() if path.exists()},
            ),
        )

    def _result(self, part: Part) -> RowResult:
        """What was measured of a row, which is whole."""
        measured = [one for one in self.parts() if one.row == part.row and one.measurement is not None]
        run: str | None = None
        failures: dict[str, dict[str, dict[str, int]]] = {}
        for one in measured:
            assert one.measurement is not None
            problems = {found.problem_id: found for found in self._market.of(one.measurement.set)}
            lines = EpisodeFile(episodes_path(self._report(one))).lines()
            place = f"{one.measurement.set} {one.measurement.decode.name}"
            failures[place] = count_reasons(lines, problems, self.plan.turn_tokens_max)
            run = one.measurement.run
        chain = lineage_chain(Path(run)) if run is not None else []
        took = {one.name: self._seconds(one) for one in self.parts() if one.row in ("", part.row)}
        return RowResult(
            row=part.row,
            plan_sha256=self.plan.sha256_of(part.row),
            code_commit=self._commit,
            lineage=tuple(
                msgspec.structs.replace(lineage, recipe=lineage.recipe.replace(str(self.folder), STUDY_MARK))
                for _, _, lineage in chain
            ),
            reports=tuple(msgspec.json.decode(self._report(one).read_bytes(), type=EvalReport) for one in measured),
            failures=failures,
            seconds={name: value for name, value in took.items() if value is not None},
            generation=read_counts(self.folder / GENERATIONS / part.row),
            curves=kept_curves(chain[0][0]) if chain and chain[0][2].stage == "grpo" and UNDER not in part.row else (),
        )

    def _require_uncut(self, part: Part) -> None:
        """A teacher or expert loses nothing to the bounds of turn and context. Raises GuardStopError where one does."""
        if not part.row.endswith(UNCUT):
            return
        for one in self.parts():
            if one.row == part.row and one.measurement is not None:
                whole_at = self._report(one)
                within_at = whole_at.with_name(whole_at.name.replace(file_name(UNCUT), "", 1))
                whole, within = (
                    msgspec.json.decode(path.read_bytes(), type=EvalReport) for path in (whole_at, within_at)
                )
                solved = {problem.problem_id for problem in whole.problems if problem.is_success}
                lost = len(solved.difference(problem.problem_id for problem in within.problems if problem.is_success))
                require_uncut(within.label, lost=lost, solved=len(solved), overflows=within.overflows)

    def _report(self, part: Part) -> Path:
        assert part.measurement is not None
        return self.folder / REPORTS / f"{part.measurement.file_name}.json"

    def _keep_seconds(self, part: Part, took_s: float) -> None:
        """Mark a part as finished, with the seconds of the process that finished it; killed ones are not counted."""
        self._mark(part).write_text(f"{took_s:.1f}\n", "utf-8")

    def _seconds(self, part: Part) -> float | None:
        path = self._mark(part)
        text = path.read_text("utf-8").strip() if path.exists() else ""
        return float(text) if text else None

    # -- what parts work with
    @property
    def _market_dir(self) -> Path:
        return self.folder / "market"

    @cached_property
    def _market(self) -> Market:
        return read_market(self._market_dir)

    @cached_property
    def _bench(self) -> RunContext:
        return RunContext(
            policy=study_policy(self.plan),
            catalogue=open_catalogue(self._market_dir / INDEX),
            titles=LexicalTitles(),
            problems=self._market.train,
            dev=self._market.dev,
            held_out=self._market.held_out,
            partition_sha256=open_partition(self._market_dir).manifest.sha256,
            code_commit=self._commit,
            progress=self._progress,
        )

    def _require_plan(self) -> None:
        kept = self.folder / PLAN
        if kept.exists() and not self.plan.goes_on_from(read_plan(kept)):
            raise ArenaError("V2124", f"{self.folder} holds a study of another plan")

    def _mark(self, part: Part, where: str = DONE) -> Path:
        return self.folder / where / file_name(part.name)


@contextlib.contextmanager
def _scripted_teacher(recipe: Recipe) -> Iterator[Upstream]:
    """The scripted model, in this process."""
    yield ScriptedUpstream()
