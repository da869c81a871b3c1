"""A study in its folder: runs its parts in order, each once, and goes on after any kill.

```
plan.toml             what it was told; another plan is refused in the same folder
market/               catalogue, problems, partition
tokenizer/            what the market's own texts make of Qwen3's
records/              the arena's log of its episodes, and the export
corpora/              what the filter made of the export; `matched/` for ablations
runs/NAME/            base and stages (`training.stages.run`)
reports/              episodes and evaluation reports
report.html, report.json
done/                 one empty file a finished part
failed/               why a part failed when it was last tried
```

Promise: it only opens what the parts work with; each part runs the same code as the commands. Nothing is written before
a part is run. The report says what of the plan it lacks.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from foundation.progress import Progress
from harness.catalogue.engines.native import open_catalogue
from harness.inference.port import Upstream
from problems.scoring.title_matching import LexicalTitles
from problems.suites.formats import read_problems
from training.corpus.building import FULL
from training.evaluation.report import EvalReport
from training.guards import require_train_pool
from training.model import RunLineage
from training.recipe import Recipe, parse_recipe, read_whole_text
from training.report.document import Document, controls_of, make_document
from training.report.page import render_page
from training.report.series import read_curves
from training.run_context import RunContext
from training.stages.pipeline import run_stage
from training.stages.run import LINEAGE
from training.study.base_model import build_base
from training.study.corpora import MATCHED, build_corpora
from training.study.market import INDEX, Market, make_market, open_partition, read_market
from training.study.measure import measure
from training.study.notes import arm_lines, progress_notes, read_arms
from training.study.parts import BASE, Part, parts_of, recipe_text, run_folder, run_name
from training.study.plan import StudyPlan
from training.study.policies import ScriptedUpstream
from training.study.records import EXPORT, record_study, study_policy
from training.study.vocabulary import make_tokenizer

PLAN, HTML, JSON = "plan.toml", "report.html", "report.json"
DONE, FAILED = "done", "failed"
_SAID = (
    "A study on a synthetic catalogue of {documents} products with short ids, titles of words alone, at most"
    " {title_chars_max} characters long, at most {options_max} options and attributes and no descriptions: its numbers"
    " say nothing of ShoppingBench.",
    "The tokenizer is Qwen3's frame around {tokens} base tokens learnt from the market's own texts.",
    "The base was pre-trained from scratch: two heads start in the shape of an induction circuit, then it learns to"
    " repeat random tokens, then transcripts of the random tool-caller alone. It is no Qwen3 checkpoint.",
    "Teacher and expert are the scripted model, which uses the tools alone. Tools: {tools}. Episodes: at most {turns}"
    " turns and {context} tokens, a turn at most {turn_tokens}; the expert, a control, may write {context} in a turn.",
)


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
        progress: Progress | None = None,
    ) -> None:
        """`recipes` is the folder of the plan's recipes, `tokenizer` a Qwen3 tokenizer's, which the study's follows."""
        self.plan, self.folder = plan, folder.resolve()
        self._recipes, self._source = recipes, tokenizer.resolve()
        self._tokenizer = self.folder / "tokenizer"
        self._commit, self._now_ms, self._progress = code_commit, now_ms, progress
        self._plan_text = plan_text
        self._require_plan()

    def parts(self, *, with_ablations: bool = False) -> tuple[Part, ...]:
        """What the study consists of."""
        return parts_of(self.plan, self.folder, with_ablations=with_ablations)

    def is_done(self, part: Part) -> bool:
        """Whether a part is finished. A report is made anew each time."""
        return part.kind != "report" and self._mark(part).exists()

    def run(self, part: Part) -> None:
        """Run a part; a finished one is left as it is.

        Raises what the part raises, V2123 among it: a guard that fires before anything was trained.
        """
        if self.is_done(part):
            return
        self._require_plan()
        (self.folder / DONE).mkdir(parents=True, exist_ok=True)
        (self.folder / PLAN).write_text(self._plan_text, "utf-8")
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
                build_base(self.plan, self._tokenizer, run_folder(self.folder, BASE), self._market_dir, self._bench)
            case "stage":
                path = self._recipes / f"{part.recipe}.toml"
                text = recipe_text(read_whole_text(path), self.folder, part.arm, arm_start=self.plan.arm_recipes[0])
                recipe, bench = parse_recipe(text, str(path)), self._bench
                if recipe.data.problems:  # those it names, never others than `train` has
                    named = read_problems(Path(recipe.data.problems).read_bytes().splitlines())
                    require_train_pool((problem.problem_id for problem in named), bench.train_ids)
                    bench = dataclasses.replace(bench, problems=named)
                target = run_folder(self.folder, run_name(part.recipe, part.arm))
                run_stage(recipe, text, target, bench, open_teacher=_scripted_teacher)
            case "measure":
                assert part.measurement is not None
                problems = self._market.eval if part.measurement.set == "eval" else self._market.second
                measure(part.measurement, problems, self.plan, self._tokenizer, self._bench, self.folder / "reports")
            case "report":
                document = self.document()
                (self.folder / HTML).write_text(render_page(document), "utf-8")
                (self.folder / JSON).write_bytes(msgspec.json.encode(document))
        self._mark(part).touch()
        self._mark(part, FAILED).unlink(missing_ok=True)

    def keep_failure(self, part: Part, why: str) -> None:
        """Say on the page why a part failed, until it is done."""
        path = self._mark(part, FAILED)
        path.parent.mkdir(exist_ok=True)
        path.write_text(why, "utf-8")

    def document(self) -> Document:
        """The report as a value, of whatever was measured so far."""
        parts = self.parts(with_ablations=True)
        files = [self.folder / "reports" / f"{part.measurement.file_name}.json" for part in parts if part.measurement]
        reports = [msgspec.json.decode(file.read_bytes(), type=EvalReport) for file in files if file.exists()]
        runs = sorted(path.parent for path in (self.folder / "runs").glob("*/recipe.toml"))
        plan = self.plan
        said = {
            "documents": plan.market.documents,
            "title_chars_max": plan.market.title_chars_max,
            "options_max": plan.market.options_max,
            "tokens": plan.vocabulary.tokens,
            "tools": plan.tool_profile,
            "turns": plan.turns_max,
            "turn_tokens": plan.turn_tokens_max,
            "context": plan.base.context,
        }
        curves = [curve for run in runs for curve in read_curves(run)]
        return make_document(
            reports,
            curves,
            title=f"Study {self.plan.name}",
            notes=[*(line.format_map(said) for line in _SAID), *self._progress_notes(parts)],
            arms=self._arm_lines(),
            controls=controls_of(part.measurement.label for part in parts if part.measurement),
        )

    def _progress_notes(self, parts: Sequence[Part]) -> list[str]:
        """What the plan has and the page lacks."""
        kept = {part.name: self._mark(part, FAILED) for part in parts}
        failed = {name: path.read_text("utf-8") for name, path in kept.items() if path.exists()}
        own = self.parts()
        ablations = [part for part in parts if part not in own]
        return [
            *progress_notes(own, self.is_done, failed, where="the plan"),
            *progress_notes(ablations, self.is_done, failed, where="the ablations"),
        ]

    def _arm_lines(self) -> list[str]:
        plan = self.plan
        arms = read_arms(self.folder / "corpora" / MATCHED, [FULL, *(arm for arm in plan.arms if arm != FULL)])
        finished = (self.folder / "runs").glob(f"*@*/{LINEAGE}")
        runs = {path.parent.name: msgspec.json.decode(path.read_bytes(), type=RunLineage) for path in finished}
        return arm_lines(arms, runs, [*plan.arm_recipes, *plan.headline_recipes])

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
        if kept.exists() and kept.read_text("utf-8") != self._plan_text:
            raise ArenaError("V2124", f"{self.folder} holds a study of another plan")

    def _mark(self, part: Part, where: str = DONE) -> Path:
        return self.folder / where / part.name.replace(" ", "_")


@contextlib.contextmanager
def _scripted_teacher(recipe: Recipe) -> Iterator[Upstream]:
    """The scripted model, in this process."""
    yield ScriptedUpstream()
