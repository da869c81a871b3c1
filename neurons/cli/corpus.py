"""`arena corpus`: from exports of the log to a corpus that a model may be trained on, a look at what was dropped,
thoughts for runs that code drove, and the later stages of Trac with any OpenAI-compatible endpoint, costed first.

It opens the inputs and prints the results; the decisions are in `training`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins
from msgspec.json import Encoder

from arena.chain.keys import verify
from arena.export.files import is_location, read_manifest
from foundation.canonical import content_hash
from foundation.codes import lookup
from foundation.errors import counted
from harness.inference.client import SdkUpstream
from harness.limits import TokenPrice
from neurons.cli import options
from neurons.cli.presenter import show, show_progress, table_text
from neurons.cluster.ray_executor import open_executor
from neurons.practice.opening import SCRIPTED, open_bench
from training.agents import distilled_prompt
from training.corpus.gates import codes_of, gates
from training.corpus.model import ExecutedTrace, RejectCode, Trace
from training.trac.asking import Asker, Usage, write_results

if TYPE_CHECKING:
    from training.corpus.building import Built
    from training.corpus.report import Funnel
    from training.trac.oracle import OracleReport


app = typer.Typer(
    help="""Filter exports into a training corpus, see what was dropped.

    arena corpus build day1 --out corpora/train

    arena corpus show corpora/train

    arena corpus sample corpora/train --out sheet --rows 20
    """,
    no_args_is_help=True,
)

_Exports = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="EXPORT...", help="Folders of `arena records export`, or where such a folder lies: s3://bucket/prefix."
    ),
]
_BaseUrl = Annotated[str, typer.Option(help="Endpoint with version path, or `scripted`.", envvar="OPENAI_BASE_URL")]
_PriceMax = Annotated[float | None, typer.Option(min=0.0, help="Dollars this run may cost; it stops before more.")]
_Rule = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="KEY=VALUE", help="One rule of the filter: pool=dev, off=tokens,pairing."),
]


_Tokenizer = Annotated[
    Path | None,
    typer.Option(help="The trained model's folder or tokenizer.json.", metavar="PATH", parser=options.shipped_path),
]
_Ablation = Annotated[list[str] | None, typer.Option(help="Also build this filter in OUT/NAME, all of one size.")]


@options.command(app)
def build(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    leaks: options.LeakFlags,
    exports: _Exports = None,
    foreign: Annotated[
        list[Path] | None, typer.Option(help="JSON (Lines) of elsewhere; needs --held-out or --partition.")
    ] = None,
    rewritten: Annotated[
        list[Path] | None, typer.Option(help="Folder of `arena corpus rewrite`: lifts its runs.")
    ] = None,
    trust_unsigned: options.TrustUnsignedOption = False,
    rule: _Rule = None,
    ablation: _Ablation = None,
    tokenizer: _Tokenizer = None,
    catalogue: Annotated[Path | None, typer.Option(help="Built index: which ids exist.", exists=True)] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes. Default: a core each for large exports.")
    ] = None,
    cluster: options.ClusterOption = "",
    state_dir: options.StateDirOption = None,
) -> None:
    """Filter exports into a training corpus.

    Each export is verified whole before a row of it is read. Then every trace meets the paper's rules: the judge's
    coefficient, the five format rejects, the agentic split, duplicates, one to two traces a problem; held-out problems
    are kept out whatever is switched off. With --rewritten, runs that code drove stand with the thoughts that were
    written for them, marked by their provenance. OUT gets Parquet, dataset card, lineage, funnel, every rejection
    with its codes, and report.html. A corpus is never changed. An export in an object store is brought into the state
    folder; a cluster's machines fetch its shards.

    Exit code 1 when nothing passes (the funnel says why), 2 for unreadable files or rules, 4 for a changed export.

    arena corpus build day1 day2 --out corpus --tokenizer Qwen3-4B

    arena corpus build day1 --out corpora/dev --rule pool=dev --rule coefficient_e4_min=8000

    arena corpus build day1 --out study --ablation no_structural_filter --ablation coefficient_7000

    Rules: coefficient_e4_min (9000), tokens_max (14336), pool (train or dev), per_problem_max (2), near_duplicate_e4
    (7000), off (codes between commas), rows, tokens, seed, is_success_needed.
    """
    from harness.catalogue.native import open_catalogue
    from neurons.settings.inputs import code_commit
    from training.corpus import building, selection
    from training.rewriting.writing import with_rewrites

    if not (exports or foreign):
        raise typer.BadParameter("name at least one export, or a --foreign file")
    plan = building.read_rules(rule or ())
    options.refuse_existing(out)
    arms = building.arms_of(plan, ablation or ())
    guard = leaks.guard(catalogue, plan.pool, is_needed=bool(foreign))
    known = None if catalogue is None else frozenset(open_catalogue(catalogue).product_ids())
    if tokenizer is not None and tokenizer.is_dir():
        tokenizer /= "tokenizer.json"
    below = options.state_folder(state_dir) / "exports"
    # the exports' folders, and the location of each that was brought here from an object store, else ""
    places = {options.export_folder(one, below): one if is_location(one) else "" for one in exports or ()}
    records = sum(read_manifest(folder).trajectories for folder in places)
    executor = context.with_resource(open_executor(cluster, workers, records, state_dir=state_dir))
    progress = show_progress()
    sources = building.open_sources(
        list(places),
        [path.absolute() for path in foreign or ()],
        verify,
        trust_unsigned=trust_unsigned,
        executor=executor,
        progress=progress,
        locations=places,
    )
    sources = with_rewrites(sources, rewritten or (), distilled_prompt())
    task = selection.Task(arms=(plan,), tokenizer=tokenizer and tokenizer.absolute(), known_ids=known)
    filtered = building.filter_sources(sources, task, arms, guard, executor=executor, progress=progress)
    empty = {arm.name: one for arm, one in zip(filtered.arms, filtered.funnels, strict=True) if not one.kept}
    if empty:  # nothing is written then (V2147)
        show({"built": [], "funnels": empty}, [_funnel_text(next(iter(empty.values())))])
    made = {"partition_sha256": guard.partition_sha256, "code_commit": code_commit()}
    built = building.write_filtered(filtered, out, guard, **made, executor=executor, progress=progress)
    show({"built": built}, _built_lines(built))


@options.command(app, "show")
def show_corpus(folder: options.CorpusArgument) -> None:
    """Show what a corpus was made from and what was dropped on the way.

    Counts and example places per rule; per day, bucket and agent; lengths, turns, calls, queries and coefficients
    before and after; who wrote the calls. report.html in its folder is the same with plots.
    """
    from training.corpus.building import read_funnel, read_lineage

    lineage, funnel = read_lineage(folder), read_funnel(folder)
    lines = [_funnel_text(funnel), "", f"identity   {content_hash(lineage)}"]
    lines += [f"tokens by  {lineage.tokenizer_sha256 or 'nothing'}", f"sources    {' '.join(lineage.sources)}"]
    if lineage.is_trusted_unsigned:
        lines.append("read from unsigned or unverified sources, because somebody said to trust them")
    show({"identity": content_hash(lineage), "lineage": lineage, "funnel": funnel}, lines)


@options.command(app)
def sample(
    folder: options.CorpusArgument,
    out: Annotated[Path, typer.Option(help="Folder of the sheet; it must not exist.")],
    rows: Annotated[int, typer.Option(min=1, help="Traces on the sheet.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
) -> None:
    """Draw a blind sheet of traces for people to read.

    sheet.html is for reading, sheet.csv takes the answers: who decided, the model or a program? Neither says which
    agent wrote a trace or how it was judged. The key does; a reader must not have it.
    """
    from training.corpus.building import read_rows
    from training.corpus.report import draw_sample, sheet_csv, sheet_html

    key = out.with_name(f"{out.name}.key.jsonl")
    for path in (out, key):
        options.refuse_existing(path)
    items, keys = draw_sample(read_rows(folder), rows, seed)
    out.mkdir(parents=True)
    with (out / "sheet.csv").open("w", encoding="utf-8", newline="") as file:
        file.write(sheet_csv(items))
    (out / "sheet.html").write_text(sheet_html(items), "utf-8")
    key.write_bytes(Encoder().encode_lines(keys))
    read = "read sheet.html, answer in sheet.csv"
    lines = [f"{out}: {counted(len(items), 'trace')}; {read}", f"{key}: keep it from the readers"]
    show({"rows": len(items), "sheet": str(out), "key": str(key)}, lines)


def _built_lines(built: tuple[Built, ...]) -> Iterator[str]:
    yield _funnel_text(built[0].funnel)
    yield ""
    for one in built:
        name = f"  ({one.name})" if len(built) > 1 else ""
        yield f"{one.folder}: {one.funnel.kept:,} of {one.funnel.traces:,} traces{name}"
    yield f"page: {Path(built[0].folder) / 'report.html'}"
    yield f"check by eye: arena corpus sample {built[0].folder} --out SHEET --rows 50"


def _funnel_text(funnel: Funnel) -> str:
    """The report as tables of 80 columns."""
    from training.corpus.report import sections

    text = ""
    for one in sections(funnel):
        names = [name.removeprefix(">") for name in one.header]
        right = [name for name, heading in zip(names, one.header, strict=True) if name != heading]
        text += table_text(names, one.rows, right=right, title=one.title, width=80)
        text += f"\n{one.note}\n\n" if one.note else "\n\n"
    return text


_MICRO = 1_000_000  # of a dollar, or of a token's price
_ANSWER_MS = 180_000  # to wait for one answer


def parse_price(text: str) -> tuple[str, TokenPrice]:
    """`MODEL=IN,OUT` in dollars. A model's name may hold "=" itself."""
    model, _, amounts = text.rpartition("=")
    try:
        prompt, completion = (round(float(part) * _MICRO) for part in amounts.split(","))
    except ValueError:
        prompt = completion = -1
    if not model or min(prompt, completion) < 0:
        raise typer.BadParameter(f"{text!r} is not MODEL=IN,OUT, such as small=0.15,0.60")
    return model, TokenPrice(prompt_micro_usd=prompt, completion_micro_usd=completion)


def open_asker(base_url: str, out: Path, models: Sequence[str], price: Sequence[str], price_max: float | None) -> Asker:
    """Who asks these models, and keeps their answers in `out`. Raises typer.BadParameter for a limit without prices."""
    from training.trac.scripted import ScriptedModels

    prices = dict(map(parse_price, price))
    if price_max is not None and (unpriced := sorted(set(models) - prices.keys())):
        raise typer.BadParameter(f"a limit needs the price of {unpriced[0]}: --price {unpriced[0]}=IN,OUT")
    key, limit = os.environ.get("OPENAI_API_KEY", ""), None if price_max is None else round(price_max * _MICRO)
    upstream = ScriptedModels() if base_url == SCRIPTED else SdkUpstream("asked", base_url, key, _ANSWER_MS)
    return Asker(upstream, out / "answers", prices, micro_usd_max=limit)


def usage_lines(usage: Sequence[Usage]) -> Iterator[str]:
    """One line a model: what it was asked for and what that cost."""
    for one in usage:
        tokens = f"{one.prompt_tokens:,} + {one.completion_tokens:,} tokens"
        yield f"  {one.model:<28}{one.calls:,} calls, {one.kept:,} kept; {tokens}; ${one.micro_usd / _MICRO:,.2f}"


@options.command(app)
def trac(
    folder: options.CorpusArgument,
    out: Annotated[Path, typer.Option(help="Folder of answers and results; an unfinished one goes on.")],
    base_url: _BaseUrl,
    annotator: Annotated[str, typer.Option(help="Model of the five annotators.")],
    teacher: Annotated[str, typer.Option(help="The stronger model of the trials.")],
    student: Annotated[str, typer.Option(help="The weaker model of the trials.")],
    bench_flags: options.BenchFlags,
    allow_failed: Annotated[
        bool,
        typer.Option("--allow-failed", help="Admit failed traces.", envvar="ORO_ALLOW_FAILED_TRACES"),
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="Of each model at one tasklet.")] = 4,
    rows: Annotated[int | None, typer.Option(min=1, help="Only the first; any stretch is a sample.")] = None,
    price: Annotated[
        list[str] | None, typer.Option(metavar="MODEL=IN,OUT", help="Dollars for a million tokens.")
    ] = None,
    price_max: _PriceMax = None,
    parallel: Annotated[int, typer.Option(min=1, help="Traces at a time.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print calls and the highest price; ask nothing.")] = False,
) -> None:
    """Ask models about every trace of a corpus: the paper's quality oracle, which it did not run at scale for its cost.

    Four stages: freeze admits successful traces; five annotators cite the trace word for word, the last one decides;
    an author turns the trace into a task whose answer can be found by the task's own words; a teacher has to solve it
    where a student fails, by more than luck. The corpus is not changed: OUT/tasklets.jsonl lists what was accepted.

    Look at --dry-run first. Every answer is kept in OUT/answers, so the same command goes on after a stop and asks
    nothing twice. A timeout, an error or an unreadable reply is no failure of a model: its trace is counted as
    not_answered, with the code, and asked about again by the next run. The endpoint's key is read from OPENAI_API_KEY.
    Exit code 1 when --price-max ended the run, 3 when the endpoint is missing or fell silent.
    """
    from neurons.settings import inputs
    from training.corpus.building import read_rows
    from training.rollouts.rollout import for_each
    from training.trac.oracle import Oracle, OracleRules, Roles, estimate

    roles = Roles(annotator=annotator, teacher=teacher, student=student)
    rules = OracleRules(admits_failed=allow_failed, trials=trials)
    settings = bench_flags.settings()
    policy = inputs.policy_of(settings)
    traces = [row.trace for row in itertools.islice(read_rows(folder), rows)]
    if dry_run:
        stages = estimate(traces, rules, roles, dict(map(parse_price, price or ())), policy)
        most = sum(one.most_micro_usd or 0 for one in stages)
        lines = ["Where each admitted trace passes every stage, at most:"]
        for stage in stages:
            asked = f"{stage.calls:,} {'trials' if stage.stage in ('student', 'teacher') else 'calls'}"
            cost = "?" if stage.most_micro_usd is None else f"${stage.most_micro_usd / _MICRO:,.2f}"
            lines.append(f"  {stage.stage:<10}{stage.model:<28}{asked:>14}{cost:>14}")
        lines.append(f"  {'together':<52}{f'${most / _MICRO:,.2f}':>14}")
        lines.append("Answers that OUT holds already cost nothing again. A ? has no --price.")
        show({"stages": stages, "most_micro_usd": most}, lines)
        return
    asker = open_asker(base_url, out, (annotator, teacher, student), price or (), price_max)
    oracle = Oracle(rules=rules, roles=roles, bench=open_bench(settings), asker=asker)
    judged, progress = [], show_progress()
    try:
        for one in for_each(traces, oracle.judge, parallel):
            judged.append(one)
            progress("trac", len(judged), len(traces))
    finally:  # what was found stays, too, of a run that the limit or its endpoint ended
        found = oracle.report(judged)
        accepted = [{"trace_id": one.trace_id, **to_builtins(one.tasklet)} for one in judged if one.fate == "accepted"]
        write_results(out, ("oracle.json", found), {"judged.jsonl": judged, "tasklets.jsonl": accepted})
        show(found, _report_lines(found, out))


def _report_lines(found: OracleReport, out: Path) -> Iterator[str]:
    yield f"{found.traces:,} traces; a teacher has to be better by {found.margin} of {found.rules.trials} trials"
    for fate, count in found.fates:
        yield f"  {fate:<16}{count:>8,}"
    for code, count in found.faults.items():
        yield f"  {code} {lookup(code).title}: {count:,}"
    yield from usage_lines(found.usage)
    yield f"{out / 'tasklets.jsonl'}: accepted; {out / 'judged.jsonl'}: every trace with its annotations"


@options.command(app)
def rewrite(
    exports: Annotated[list[Path], typer.Argument(metavar="EXPORT...", help="Folders of `arena records export`.")],
    out: Annotated[Path, typer.Option(help="Folder of thoughts; an unfinished one goes on.")],
    base_url: _BaseUrl,
    leaks: options.LeakFlags,
    writer: Annotated[str, typer.Option(help="Model that writes the thoughts.")] = "scripted-writer",
    trust_unsigned: options.TrustUnsignedOption = False,
    rule: _Rule = None,
    price: Annotated[str | None, typer.Option(metavar="IN,OUT", help="Dollars for a million tokens.")] = None,
    price_max: _PriceMax = None,
    parallel: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 4,
    rows: Annotated[int | None, typer.Option(min=1, help="Only the first runs: to try a writer.")] = None,
) -> None:
    """Have a model write the reasoning of successful runs in which a program chose every call.

    Calls, results and answers stay as they were recorded; before each call comes a thought that names only what was
    known by then. Code checks every thought, sends it back with the reason, and leaves a run out that cannot be told
    truly: OUT/left_out.jsonl says why. Runs that the corpus would reject anyway are not asked about.

    Then give the folder to the corpus, which checks the thoughts again and puts them before the calls:

    arena corpus rewrite day1 --out thoughts --base-url http://127.0.0.1:8000/v1 --writer qwen3-32b

    arena corpus build day1 --rewritten thoughts --out corpus

    Every answer is kept in OUT/answers: the same command goes on after a stop and asks nothing twice. The endpoint's
    key is read from OPENAI_API_KEY. Exit code 1 when the limit of cost ends the run.
    """
    from training.corpus.building import open_sources, read_rules
    from training.rewriting import writing
    from training.rollouts.rollout import for_each

    plan, trajectories = read_rules(rule or ()), sum(read_manifest(one).trajectories for one in exports)
    guard, every, by = leaks.guard(None, plan.pool), gates(), writing.written_by(writer)
    asker = open_asker(base_url, out, (writer,), [f"{writer}={price}"] if price else (), price_max)

    def would_reject(trace: Trace) -> Sequence[RejectCode]:
        return sorted({*codes_of(trace, plan, every), *guard(trace)})

    made = list[writing.Rewrite]()
    progress = show_progress()
    sources = open_sources(exports, (), verify, trust_unsigned=trust_unsigned, progress=progress)
    traces = (row for shard in sources.shards for row in writing.with_calls(shard)() if isinstance(row, ExecutedTrace))
    try:
        for one in for_each(
            itertools.islice(traces, rows), lambda trace: writing.rewrite(trace, by, asker, would_reject), parallel
        ):
            made.append(one)
            progress("rewrite", len(made), trajectories)
    finally:  # what was written stays, too, of a run that the limit or its endpoint ended
        found = writing.report(made, by, asker, sources.hashes)
        parts = {writing.THOUGHTS: [one for one in made if one.thoughts]}
        parts[writing.LEFT_OUT] = [one for one in made if not one.thoughts]
        write_results(out, (writing.REPORT, found), parts)
    lines = [f"{counted(found.traces, 'run')}, {counted(found.steps, 'thought')}, {found.refused:,} refused on the way"]
    lines += [f"  {fate:<18}{count:>8,}" for fate, count in found.fates.items()]
    lines += usage_lines(found.usage)
    lines.append(f"{out / 'thoughts.jsonl'}: for `arena corpus build --rewritten {out}`")
    show(found, [*lines, f"{out / 'left_out.jsonl'}: the others, and why"])
