"""`arena corpus`: from exports of the log to a corpus that a model may be trained on, a look at what was dropped, and
thoughts for runs that code drove. It opens the inputs and prints the results; the decisions are in `training`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.canonical import content_hash
from foundation.errors import ArenaError
from neurons.cli.options import (
    AnswerTimeoutOption,
    ClusterOption,
    CorpusArgument,
    JsonOption,
    TrustUnsignedOption,
    command,
    state_folder,
)
from neurons.cli.presenter import make_table, show, show_progress
from neurons.cli.trac import open_asker, trac, usage_lines
from neurons.cli.train import LeakFlags

if TYPE_CHECKING:
    from training.corpus.building import Built
    from training.corpus.model import RejectCode
    from training.corpus.report import Funnel
    from training.rewriting.writing import RewriteReport


app = typer.Typer(
    help="""Filter exports into a training corpus, see what was dropped.

    arena corpus build day1 --out corpora/train

    arena corpus show corpora/train

    arena corpus sample corpora/train --out sheet --rows 20
    """,
    no_args_is_help=True,
)

_StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", help="Keeps exports of an object store. Default: ARENA_STATE_DIR."),
]


_Exports = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="EXPORT...",
        help="Folders of `arena records export`, or where such a folder lies: s3://bucket/prefix.",
    ),
]
_Foreign = Annotated[
    list[Path] | None,
    typer.Option("--foreign", help="JSON or JSON Lines of another source; needs --held-out or --partition."),
]
_Rewritten = Annotated[
    list[Path] | None,
    typer.Option("--rewritten", help="Folder of `arena corpus rewrite`: lifts its runs. Repeatable."),
]
_Ablation = Annotated[
    list[str] | None,
    typer.Option("--ablation", help="Also build this filter, all of one size, in OUT/NAME. Repeatable."),
]
_Tokenizer = Annotated[
    Path | None, typer.Option("--tokenizer", help="Folder or tokenizer.json of the trained model; else a stand-in.")
]
_Rule = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="KEY=VALUE", help="One rule of the filter: pool=dev, off=tokens,pairing."),
]


@command(app)
def build(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="Folder to write; it must not exist.")],
    leaks: LeakFlags,
    exports: _Exports = None,
    foreign: _Foreign = None,
    rewritten: _Rewritten = None,
    trust_unsigned: TrustUnsignedOption = False,
    rule: _Rule = None,
    ablation: _Ablation = None,
    tokenizer: _Tokenizer = None,
    catalogue: Annotated[Path | None, typer.Option("--catalogue", help="Built index: which ids exist.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes. Default: one a core for large exports.")
    ] = None,
    cluster: ClusterOption = "",
    state_dir: _StateDir = None,
    as_json: JsonOption = False,
) -> None:
    """Filter exports into a training corpus.

    Each export is verified whole before a row of it is read. Then every trace meets the paper's rules: the judge's
    coefficient, the five format rejects, the agentic split, duplicates, one to two traces a problem; held-out problems
    are kept out whatever is switched off. With --rewritten, runs that code drove stand with the thoughts that were
    written for them, marked by their provenance. OUT gets Parquet, dataset card, lineage, funnel, every rejection
    with its codes, and report.html. A corpus is never changed. An
    export in an object store is brought into the state folder; a cluster's machines fetch its shards.

    Exit code 1 when nothing passes (the funnel says why), 2 for unreadable files or rules, 4 for a changed export.

    arena corpus build day1 day2 --out corpus --tokenizer Qwen3-4B

    arena corpus build day1 --out corpora/dev --rule pool=dev --rule coefficient_e4_min=8000

    arena corpus build day1 --out study --ablation no_structural_filter --ablation coefficient_7000

    Rules: coefficient_e4_min (9000), tokens_max (14336), pool (train or dev), per_problem_max (2), near_duplicate_e4
    (7000), off (codes between commas), rows, tokens, seed, is_success_needed.
    """
    from arena.chain.keys import verify
    from arena.export.files import read_manifest
    from harness.catalogue.native import open_catalogue
    from neurons.cluster.ray_executor import open_executor
    from neurons.settings.inputs import code_commit
    from training.agents import distilled_prompt
    from training.corpus import building
    from training.corpus.selection import Task
    from training.rewriting.writing import with_rewrites

    if not (exports or foreign):
        raise typer.BadParameter("name at least one export, or a --foreign file")
    plan = building.read_rules(rule or ())
    _refuse_existing(out)
    arms = building.arms_of(plan, ablation or ())
    guard = leaks.guard(catalogue, plan.pool)
    known = frozenset(one.product_id for one in open_catalogue(catalogue).products()) if catalogue else None
    if tokenizer is not None:
        tokenizer = (tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer).absolute()
    places = _brought(exports or [], state_folder(state_dir) / "exports", is_quiet=as_json)
    records = sum(read_manifest(folder).trajectories for folder in places)
    executor = context.with_resource(open_executor(cluster, workers, records, state_dir=state_dir))
    with show_progress(is_quiet=as_json) as progress:
        named = [path.absolute() for path in foreign or ()]
        kept: dict[str, Any] = {"trust_unsigned": trust_unsigned, "locations": places}
        ways: dict[str, Any] = {"executor": executor, "progress": progress}
        sources = building.open_sources(list(places), named, verify, **kept, **ways)
        sources = with_rewrites(sources, rewritten or (), distilled_prompt())
        task = Task(arms=(plan,), tokenizer=tokenizer, known_ids=known)
        filtered = building.filter_sources(sources, task, arms, guard, **ways)
    empty = {arm.name: one for arm, one in zip(filtered.arms, filtered.funnels, strict=True) if not one.kept}
    if empty:
        show({"built": [], "funnels": empty}, [_funnel_text(one) for one in list(empty.values())[:1]], as_json=as_json)
        raise ArenaError("V2147", "" if len(filtered.arms) == 1 else f"under {', '.join(empty)}")
    with show_progress(is_quiet=as_json) as bar:
        made = {"partition_sha256": guard.partition_sha256, "code_commit": code_commit()}
        built = building.write_filtered(filtered, out, guard, **made, executor=executor, progress=bar)
    show({"built": built}, _built_lines(built), as_json=as_json)


@app.command("show")
def show_corpus(folder: CorpusArgument, as_json: JsonOption = False) -> None:
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
    show({"identity": content_hash(lineage), "lineage": lineage, "funnel": funnel}, lines, as_json=as_json)


@app.command()
def sample(
    folder: CorpusArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder of the sheet; it must not exist.")],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Traces on the sheet.")] = 50,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draw.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Draw a blind sheet of traces for people to read.

    sheet.html is for reading, sheet.csv takes the answers: who decided, the model or a program? Neither says which
    agent wrote a trace or how it was judged. The key does; a reader must not have it.
    """
    from training.corpus.building import read_rows
    from training.corpus.report import draw_sample, key_json, sheet_csv, sheet_html

    key = out.with_name(f"{out.name}.key.jsonl")
    for path in (out, key):
        _refuse_existing(path)
    items, keys = draw_sample(read_rows(folder), rows, seed)
    out.mkdir(parents=True)
    with (out / "sheet.csv").open("w", encoding="utf-8", newline="") as file:
        file.write(sheet_csv(items))
    (out / "sheet.html").write_text(sheet_html(items), "utf-8")
    key.write_bytes(key_json(keys))
    lines = [f"{out}: {len(items)} traces; read sheet.html, answer in sheet.csv", f"{key}: keep it from the readers"]
    show({"rows": len(items), "sheet": str(out), "key": str(key)}, lines, as_json=as_json)


command(app)(trac)


def _brought(exports: list[str], below: Path, *, is_quiet: bool) -> dict[Path, str]:
    """The exports' folders, and the location of each that was brought here from an object store, else "". Raises
    typer.BadParameter for a file, which may be rows of elsewhere."""
    from arena.export.files import bring_export, is_location

    found = {}
    with show_progress(is_quiet=is_quiet) as progress:
        for named in exports:
            if Path(named).is_file():
                raise typer.BadParameter(f"{named} is no export but a file; rows of elsewhere are --foreign {named}")
            if is_location(named):
                found[bring_export(named, below.absolute(), functools.partial(progress, "fetch"))] = named
            else:
                found[Path(named).absolute()] = ""
    return found


def _refuse_existing(path: Path) -> None:
    """Raises ArenaError V2027: found before hours of reading, not after them."""
    if path.exists():
        raise ArenaError("V2027", f"{path} exists already; choose another --out")


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
    from rich.console import Console

    from training.corpus.report import sections

    text = StringIO()
    console = Console(file=text, width=80, markup=False, emoji=False, highlight=False)
    for one in sections(funnel):
        names = [name.removeprefix(">") for name in one.header]
        right = [name for name, heading in zip(names, one.header, strict=True) if name != heading]
        table = make_table(*names, title=one.title, right=right, box=None, pad_edge=False)
        for row in one.rows:
            table.add_row(*row)
        console.print(table, f"{one.note}\n" if one.note else "", sep="\n")
    return text.getvalue()


@command(app)
def rewrite(
    exports: Annotated[list[Path], typer.Argument(metavar="EXPORT...", help="Folders of `arena records export`.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of thoughts; an unfinished one goes on.")],
    base_url: Annotated[
        str, typer.Option("--base-url", help="Endpoint with its version path, or `scripted`.", envvar="OPENAI_BASE_URL")
    ],
    leaks: LeakFlags,
    writer: Annotated[str, typer.Option("--writer", help="Model that writes the thoughts.")] = "scripted-writer",
    trust_unsigned: TrustUnsignedOption = False,
    rule: _Rule = None,
    price: Annotated[
        str | None, typer.Option("--price", metavar="IN,OUT", help="Dollars for a million tokens.")
    ] = None,
    price_max: Annotated[
        float | None, typer.Option("--price-max", min=0.0, help="Dollars this run may cost; it stops before more.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Runs at a time.")] = 4,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Only the first runs: to try a writer.")] = None,
    timeout: AnswerTimeoutOption = 180,
    as_json: JsonOption = False,
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
    from arena.chain.keys import verify
    from arena.export.files import read_manifest
    from training.corpus.building import open_sources, read_rules
    from training.corpus.gates import codes_of, gates
    from training.corpus.model import ExecutedTrace, Trace
    from training.rewriting import writing
    from training.rollouts.rollout import for_each
    from training.trac.asking import write_results

    plan, trajectories = read_rules(rule or ()), sum(read_manifest(one).trajectories for one in exports)
    guard, every, by = leaks.guard(None, plan.pool), gates(), writing.written_by(writer)
    asker = open_asker(base_url, timeout, out, (writer,), [f"{writer}={price}"] if price else (), price_max)

    def would_reject(trace: Trace) -> Sequence[RejectCode]:
        return sorted({*codes_of(trace, plan, every), *guard(trace)})

    made = list[writing.Rewrite]()
    with show_progress(is_quiet=as_json) as progress:
        sources = open_sources(exports, (), verify, trust_unsigned=trust_unsigned, progress=progress)
        traces = (
            row for shard in sources.shards for row in writing.with_calls(shard)() if isinstance(row, ExecutedTrace)
        )
        try:
            for one in for_each(
                islice(traces, rows), lambda trace: writing.rewrite(trace, by, asker, would_reject), parallel
            ):
                made.append(one)
                progress("rewrite", len(made), trajectories)
        finally:  # what was written stays, too, of a run that the limit or its endpoint ended
            found = writing.report(made, by, asker, sources.hashes)
            parts = {writing.THOUGHTS: [one for one in made if one.thoughts]}
            parts[writing.LEFT_OUT] = [one for one in made if not one.thoughts]
            write_results(out, (writing.REPORT, found), parts)
    show(found, _rewrite_lines(found, out), as_json=as_json)


def _rewrite_lines(found: RewriteReport, out: Path) -> Iterator[str]:
    yield f"{found.traces:,} runs, {found.steps:,} thoughts, {found.refused:,} refused on the way"
    for fate, count in found.fates.items():
        yield f"  {fate:<18}{count:>8,}"
    yield from usage_lines(found.usage)
    yield f"{out / 'thoughts.jsonl'}: for `arena corpus build --rewritten {out}`"
    yield f"{out / 'left_out.jsonl'}: the others, and why"
