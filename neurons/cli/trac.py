"""`arena corpus trac`: the later stages of Trac over a corpus, with any OpenAI-compatible endpoint, costed first.

It opens the inputs and prints the results; the decisions are in `training.trac`.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import to_builtins

from foundation.codes import lookup
from foundation.codes.names import OVER_LIMIT
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from neurons.cli.options import AnswerTimeoutOption, BenchFlags, CorpusArgument, JsonOption
from neurons.cli.presenter import show, show_progress
from neurons.cli.train import MICRO, parse_price, usage_lines
from neurons.practice.opening import SCRIPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.inference.port import Upstream
    from neurons.settings.settings import Settings
    from training.corpus.model import Trace
    from training.trac.asking import Asker
    from training.trac.model import OracleReport, OracleRules, Roles
    from training.trac.oracle import CostEstimate


_AllowFailed = Annotated[
    bool, typer.Option("--allow-failed", help="Admit traces that were no success.", envvar="ORO_ALLOW_FAILED_TRACES")
]
_Prices = Annotated[
    list[str] | None, typer.Option("--price", metavar="MODEL=IN,OUT", help="Dollars for a million tokens. Repeatable.")
]
_PriceMax = Annotated[
    float | None, typer.Option("--price-max", min=0.0, help="Dollars this run may cost; it stops before more.")
]
_Minutes = Annotated[
    float | None, typer.Option("--minutes", min=0.0, help="Minutes this run may take; then it asks no more.")
]
_ReplyTokens = Annotated[int, typer.Option("--reply-tokens", min=1, help="Of one annotation or tasklet, at most.")]


def trac(
    folder: CorpusArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder of answers and results; an unfinished one goes on.")],
    base_url: Annotated[
        str, typer.Option("--base-url", help="Endpoint with its version path, or `scripted`.", envvar="OPENAI_BASE_URL")
    ],
    annotator: Annotated[str, typer.Option("--annotator", help="Model of the five annotators.")],
    teacher: Annotated[str, typer.Option("--teacher", help="The stronger model of the trials.")],
    student: Annotated[str, typer.Option("--student", help="The weaker model of the trials.")],
    bench_flags: BenchFlags,
    allow_failed: _AllowFailed = False,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Of each model at one tasklet.")] = 4,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Only the first; any stretch is a sample.")] = None,
    price: _Prices = None,
    price_max: _PriceMax = None,
    minutes: _Minutes = None,
    reply_tokens: _ReplyTokens = 1_024,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Traces at a time.")] = 4,
    timeout: AnswerTimeoutOption = 180,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print calls, tokens and price; ask nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask models about every trace of a corpus: the paper's quality oracle, which it did not run at scale for its cost.

    Four stages: freeze admits successful traces; five annotators cite the trace word for word, the last one decides;
    an author turns the trace into a task whose answer can be found by the task's own words; a teacher has to solve it
    where a student fails, by more than luck. The corpus is not changed: OUT/tasklets.jsonl lists what was accepted.

    Look at --dry-run first. Every answer is kept in OUT/answers, so the same command goes on after a stop and asks
    nothing twice. A timeout, an error or an unreadable reply is no failure of a model: its trace is counted as
    not_answered, with the code, and asked about again by the next run. The endpoint's key is read from OPENAI_API_KEY.
    Exit code 1 when --price-max or --minutes left traces not_reached, 3 when the endpoint is missing or fell silent.
    """
    from harness.inference.client import SdkUpstream
    from neurons.settings.inputs import policy_of
    from training.corpus.corpus_files import read_rows
    from training.trac.asking import Answers, Asker
    from training.trac.model import OracleRules, Roles
    from training.trac.oracle import estimate
    from training.trac.scripted import ScriptedOracle

    prices = dict(map(parse_price, price or []))
    roles = Roles(annotator=annotator, author=annotator, teacher=teacher, student=student)
    rules = OracleRules(admits_failed=allow_failed, trials=trials, reply_tokens_max=reply_tokens)
    settings = bench_flags.settings()
    traces = [row.trace for row in itertools.islice(read_rows(folder), rows)]
    if dry_run:
        cost = estimate(traces, rules, roles, prices, policy_of(settings))
        sums = {"likely_micro_usd": cost.likely_micro_usd, "most_micro_usd": cost.most_micro_usd}
        show({**to_builtins(cost), **sums}, _estimate_lines(cost), as_json=as_json)
        return
    if price_max is not None and (unpriced := sorted({annotator, teacher, student, roles.author} - prices.keys())):
        raise typer.BadParameter(f"a limit needs the price of {unpriced[0]}: --price {unpriced[0]}=IN,OUT")
    upstream: Upstream = ScriptedOracle()
    if base_url != SCRIPTED:
        upstream = SdkUpstream("trac", base_url, os.environ.get("OPENAI_API_KEY", ""), timeout * 1_000)
    asker = Asker(
        upstream,
        Answers(out / "answers"),
        prices,
        micro_usd_max=None if price_max is None else round(price_max * MICRO),
        seconds_max=None if minutes is None else minutes * 60,
    )
    report = _run(traces, rules, roles, asker, settings, out, parallel=parallel, is_quiet=as_json)
    show({**to_builtins(report), "micro_usd": report.micro_usd}, _report_lines(report, out), as_json=as_json)
    if left := dict(report.fates)["not_reached"]:
        raise ArenaError(OVER_LIMIT, f"{left:,} of {report.traces:,} traces were not reached")
    if (silence := asker.silence()) is not None:
        raise ArenaError(silence.code, silence.detail)


def _run(
    traces: Sequence[Trace],
    rules: OracleRules,
    roles: Roles,
    asker: Asker,
    settings: Settings,
    out: Path,
    *,
    parallel: int,
    is_quiet: bool,
) -> OracleReport:
    """Judge the traces and write what came of them."""
    from harness.catalogue.native import open_catalogue
    from neurons.settings import inputs
    from training.trac.oracle import judge_traces, report
    from training.trac.trials import Episodes, Stage

    inputs.prepare_catalogue(settings)
    catalogue = open_catalogue(inputs.catalogue_path(settings))
    stage = Stage(
        policy=inputs.policy_of(settings),
        catalogue=catalogue,
        titles=inputs.open_released_titles(settings),
        upstream=asker.upstream,
    )
    attempt = Episodes(stage=stage, rules=rules, asker=asker)
    with show_progress(is_quiet=is_quiet) as progress:
        tell = functools.partial(progress, "trac")
        judged = list(judge_traces(traces, rules, roles, asker, catalogue, attempt, parallel=parallel, progress=tell))
    found = report(judged, rules, roles, asker)
    accepted = [
        {"trace_id": one.trace_id, **msgspec.to_builtins(one.tasklet)} for one in judged if one.fate == "accepted"
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "judged.jsonl", b"".join(msgspec.json.encode(one) + b"\n" for one in judged))
    write_whole(out / "tasklets.jsonl", b"".join(msgspec.json.encode(one) + b"\n" for one in accepted))
    write_whole(out / "oracle.json", msgspec.json.encode(found) + b"\n")
    return found


def _estimate_lines(found: CostEstimate) -> Iterator[str]:
    yield f"{found.admitted:,} of {found.traces:,} traces are admitted; where each of them passes every stage:"
    yield f"  {'stage':<10}{'model':<28}{'asked':>14}  {'likely tokens, million':<24}{'likely':>12}{'at most':>14}"
    for one in found.stages:
        what = "trials" if one.stage in ("student", "teacher") else "calls"
        tokens = f"{one.likely.prompt_tokens / MICRO:,.2f} in, {one.likely.completion_tokens / MICRO:,.2f} out"
        prices = [f"${amount.micro_usd / MICRO:,.2f}" if one.is_priced else "?" for amount in (one.likely, one.most)]
        asked = f"{one.calls:,} {what}"
        yield f"  {one.stage:<10}{one.model:<28}{asked:>14}  {tokens:<24}{prices[0]:>12}{prices[1]:>14}"
    together = [f"${one / MICRO:,.2f}" for one in (found.likely_micro_usd, found.most_micro_usd)]
    yield f"  {'together':<78}{together[0]:>12}{together[1]:>14}"
    yield "Answers that OUT holds already cost nothing again. A ? has no --price."


def _report_lines(found: OracleReport, out: Path) -> Iterator[str]:
    yield f"{found.traces:,} traces; a teacher has to be better by {found.margin} of {found.rules.trials} trials"
    for fate, count in found.fates:
        yield f"  {fate:<16}{count:>8,}"
    for one in found.faults:
        title = lookup(one.code).title
        yield f"  {one.code} {title} ({one.owner.value}): {one.traces:,}"
    yield from usage_lines(found.usage)
    yield f"{out / 'tasklets.jsonl'}: accepted; {out / 'judged.jsonl'}: every trace with its annotations"
