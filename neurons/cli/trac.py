"""`arena corpus trac`: the later stages of Trac over a corpus, with any OpenAI-compatible endpoint, costed first; and
what it shares with `arena corpus rewrite`: opening an endpoint that is asked, prices, how a run ends.

It opens the inputs and prints the results; the decisions are in `training.trac`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from foundation.codes import lookup
from neurons.cli.options import AnswerTimeoutOption, BenchFlags, CorpusArgument, JsonOption
from neurons.cli.presenter import show, show_progress
from neurons.practice.opening import SCRIPTED

if TYPE_CHECKING:
    from training.trac.asking import Asker, Price, Usage
    from training.trac.oracle import OracleReport, StageCost

_MICRO = 1_000_000  # of a dollar, or of a token's price
_AllowFailed = Annotated[
    bool, typer.Option("--allow-failed", help="Admit traces that were no success.", envvar="ORO_ALLOW_FAILED_TRACES")
]
_Prices = Annotated[
    list[str] | None, typer.Option("--price", metavar="MODEL=IN,OUT", help="Dollars for a million tokens. Repeatable.")
]
_PriceMax = Annotated[
    float | None, typer.Option("--price-max", min=0.0, help="Dollars this run may cost; it stops before more.")
]
_ReplyTokens = Annotated[int, typer.Option("--reply-tokens", min=1, help="Of one annotation or tasklet, at most.")]


def parse_price(text: str) -> tuple[str, Price]:
    """`MODEL=IN,OUT` in dollars. A model's name may hold "=" itself."""
    from training.trac.asking import Price

    model, _, amounts = text.rpartition("=")
    try:
        prompt, completion = (round(float(part) * _MICRO) for part in amounts.split(","))
    except ValueError:
        prompt = completion = -1
    if not model or min(prompt, completion) < 0:
        raise typer.BadParameter(f"{text!r} is not MODEL=IN,OUT, such as small=0.15,0.60")
    return model, Price(prompt_micro_usd=prompt, completion_micro_usd=completion)


def open_asker(
    base_url: str, timeout: int, out: Path, models: Sequence[str], price: Sequence[str], price_max: float | None
) -> Asker:
    """Who asks these models, and keeps their answers in `out`. Raises typer.BadParameter for a limit without prices."""
    from harness.inference.client import SdkUpstream
    from training.trac.asking import Asker
    from training.trac.scripted import ScriptedModels

    prices = dict(map(parse_price, price))
    if price_max is not None and (unpriced := sorted(set(models) - prices.keys())):
        raise typer.BadParameter(f"a limit needs the price of {unpriced[0]}: --price {unpriced[0]}=IN,OUT")
    key, limit = os.environ.get("OPENAI_API_KEY", ""), None if price_max is None else round(price_max * _MICRO)
    upstream = ScriptedModels() if base_url == SCRIPTED else SdkUpstream("asked", base_url, key, timeout * 1_000)
    return Asker(upstream, out / "answers", prices, micro_usd_max=limit)


def usage_lines(usage: Sequence[Usage]) -> Iterator[str]:
    """One line a model: what it was asked for and what that cost."""
    for one in usage:
        tokens = f"{one.prompt_tokens:,} + {one.completion_tokens:,} tokens"
        yield f"  {one.model:<28}{one.calls:,} calls, {one.kept:,} kept; {tokens}; ${one.micro_usd / _MICRO:,.2f}"


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
    reply_tokens: _ReplyTokens = 1_024,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Traces at a time.")] = 4,
    timeout: AnswerTimeoutOption = 180,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print calls and the highest price; ask nothing.")] = False,
    as_json: JsonOption = False,
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
    from harness.catalogue.native import open_catalogue
    from neurons.settings import inputs
    from training.corpus.building import read_rows
    from training.trac.asking import write_results
    from training.trac.oracle import Oracle, OracleRules, Roles, estimate

    roles = Roles(annotator=annotator, teacher=teacher, student=student)
    rules = OracleRules(admits_failed=allow_failed, trials=trials, reply_tokens_max=reply_tokens)
    settings = bench_flags.settings()
    policy = inputs.policy_of(settings)
    traces = [row.trace for row in itertools.islice(read_rows(folder), rows)]
    if dry_run:
        stages = estimate(traces, rules, roles, dict(map(parse_price, price or ())), policy)
        most = sum(one.most_micro_usd or 0 for one in stages)
        show({"stages": stages, "most_micro_usd": most}, _estimate_lines(stages), as_json=as_json)
        return
    asker = open_asker(base_url, timeout, out, (annotator, teacher, student), price or (), price_max)
    inputs.prepare_catalogue(settings)
    catalogue = open_catalogue(inputs.catalogue_path(settings))
    titles = inputs.open_released_titles(settings)
    oracle = Oracle(rules=rules, roles=roles, policy=policy, catalogue=catalogue, titles=titles, asker=asker)
    judged = []
    try:
        with show_progress(is_quiet=as_json) as progress:
            for one in oracle.judge_all(traces, parallel=parallel):
                judged.append(one)
                progress("trac", len(judged), len(traces))
    finally:  # what was found stays, too, of a run that the limit or its endpoint ended
        found = oracle.report(judged)
        accepted = [{"trace_id": one.trace_id, **to_builtins(one.tasklet)} for one in judged if one.fate == "accepted"]
        write_results(out, ("oracle.json", found), {"judged.jsonl": judged, "tasklets.jsonl": accepted})
        show(found, _report_lines(found, out), as_json=as_json)


def _estimate_lines(stages: Sequence[StageCost]) -> Iterator[str]:
    yield "Where each admitted trace passes every stage, at most:"
    for one in stages:
        asked = f"{one.calls:,} {'trials' if one.stage in ('student', 'teacher') else 'calls'}"
        price = "?" if one.most_micro_usd is None else f"${one.most_micro_usd / _MICRO:,.2f}"
        yield f"  {one.stage:<10}{one.model:<28}{asked:>14}{price:>14}"
    yield f"  {'together':<52}{f'${sum(one.most_micro_usd or 0 for one in stages) / _MICRO:,.2f}':>14}"
    yield "Answers that OUT holds already cost nothing again. A ? has no --price."


def _report_lines(found: OracleReport, out: Path) -> Iterator[str]:
    yield f"{found.traces:,} traces; a teacher has to be better by {found.margin} of {found.rules.trials} trials"
    for fate, count in found.fates:
        yield f"  {fate:<16}{count:>8,}"
    for code, count in found.faults.items():
        yield f"  {code} {lookup(code).title}: {count:,}"
    yield from usage_lines(found.usage)
    yield f"{out / 'tasklets.jsonl'}: accepted; {out / 'judged.jsonl'}: every trace with its annotations"
