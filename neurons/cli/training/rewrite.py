"""`arena corpus rewrite`: thoughts for runs that code drove, so that a corpus can lift them.

It opens the inputs and prints the results; the decisions are in `training.rewriting`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.options import (
    AnswerTimeoutOption,
    BankOption,
    CoefficientOption,
    CorpusPoolOption,
    HeldOutOption,
    JsonOutOption,
    PartitionOption,
    TrustUnsignedOption,
)
from neurons.cli.presenter import show
from neurons.cli.progress import show_progress
from neurons.cli.store_reading import state_folder
from neurons.cli.training.run_inputs import (
    MICRO,
    SCRIPTED,
    SEALS,
    open_guard,
    parse_price,
    read_plan,
    usage_lines,
)

if TYPE_CHECKING:
    from harness.inference.port import Upstream
    from training.corpus.model import RejectCode
    from training.rewriting.model import RewriteReport


def rewrite(
    exports: Annotated[list[Path], typer.Argument(metavar="EXPORT...", help="Folders of `arena records export`.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of thoughts; an unfinished one goes on.")],
    base_url: Annotated[
        str, typer.Option("--base-url", help="Endpoint with its version path, or `scripted`.", envvar="OPENAI_BASE_URL")
    ],
    writer: Annotated[str, typer.Option("--writer", help="Model that writes the thoughts.")] = "scripted-writer",
    trust_unsigned: TrustUnsignedOption = False,
    pool: CorpusPoolOption = None,
    coefficient: CoefficientOption = None,
    held_out: HeldOutOption = None,
    partition: PartitionOption = None,
    bank: BankOption = "",
    price: Annotated[
        str | None, typer.Option("--price", metavar="IN,OUT", help="Dollars for a million tokens.")
    ] = None,
    price_max: Annotated[
        float | None, typer.Option("--price-max", min=0.0, help="Dollars this run may cost; it stops before more.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Runs at a time.")] = 4,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Only the first runs: to try a writer.")] = None,
    timeout: AnswerTimeoutOption = 180,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Keeps finished verifications. Default: ARENA_STATE_DIR.")
    ] = None,
    as_json: JsonOutOption = False,
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
    from msgspec import to_builtins

    from arena.chain.keys import verify
    from harness.inference.client import OpenAIUpstream
    from training.corpus.building import open_sources, trajectories_in
    from training.corpus.gates import codes_of, gates
    from training.corpus.model import ExecutedTrace, Trace
    from training.rewriting.model import OmittedRun, Rewrite, RewriteRules
    from training.rewriting.results import with_calls, write_results
    from training.rewriting.scripted import ScriptedWriter
    from training.rewriting.writing import report, rewrite_all
    from training.trac.answers import Answers
    from training.trac.asking import Asker

    if price_max is not None and price is None:
        raise typer.BadParameter("a limit needs the writer's price: --price IN,OUT")
    share_e4 = None if coefficient is None else round(coefficient * 10_000)
    plan, trajectories = read_plan(None, {"pool": pool, "coefficient_e4_min": share_e4}), trajectories_in(exports)
    guard, every, rules = open_guard(held_out or [], partition, bank, None, plan.pool), gates(), RewriteRules()
    prices = {} if price is None else dict([parse_price(f"{writer}={price}")])
    access = ("rewrite", base_url, os.environ.get("OPENAI_API_KEY", ""), timeout * 1_000)
    upstream: Upstream = ScriptedWriter() if base_url == SCRIPTED else OpenAIUpstream(*access)
    limit = None if price_max is None else round(price_max * MICRO)
    asker = Asker(upstream, Answers(out / "answers"), prices, micro_usd_max=limit)

    def would_reject(trace: Trace) -> Sequence[RejectCode]:
        return sorted({*codes_of(trace, plan, every), *guard(trace)})

    made, seals = list[Rewrite | OmittedRun](), state_folder(state_dir) / "corpus" / SEALS
    with show_progress(is_quiet=as_json) as progress:
        sources = open_sources(exports, (), verify, trust_unsigned=trust_unsigned, seals=seals, progress=progress)
        traces = (row for shard in sources.shards for row in with_calls(shard)() if isinstance(row, ExecutedTrace))
        for one in rewrite_all(islice(traces, rows), writer, rules, asker, would_reject, parallel=parallel):
            made.append(one)
            progress("rewrite", len(made), trajectories)
    found = report(made, writer, rules, asker, sources.hashes)
    write_results(out, made, found)
    show(to_builtins(found), _lines(found, out), as_json=as_json)


def _lines(found: RewriteReport, out: Path) -> Iterator[str]:
    yield f"{found.traces:,} runs, {found.rewritten:,} with thoughts"
    yield f"{found.steps:,} thoughts, {found.refused:,} refused on the way"
    for code, count in found.left_out:
        yield f"  {code:<18}{count:>8,}"
    yield from usage_lines(found.usage)
    yield f"{out / 'thoughts.jsonl'}: for `arena corpus build --rewritten {out}`"
    yield f"{out / 'left_out.jsonl'}: the others, and why"
