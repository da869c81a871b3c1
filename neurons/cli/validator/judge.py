"""`arena judge`: explain verdicts, judge stored traces again, measure how wrong a panel is, let people rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from neurons.cli.options import DsnOption, JsonOption, RecordArgument, StateDirOption, ValidatorOption
from neurons.cli.presenter import cut, echo_json, printable, share_text
from neurons.cli.store_reading import MESSAGE_NOT_FOUND, find_record, run_on_store
from neurons.cli.validator.judge_calibration import (
    ApiKeyOption,
    BaseUrlOption,
    RubricPolicyOption,
    calibrate,
    check_calibration_file,
    judge_meter,
    panel_of,
    rubric_of,
)
from neurons.cli.validator.judge_replay import body_and_verdicts, replay_records
from neurons.cli.validator.judge_sheet import agreement, sheet

if TYPE_CHECKING:
    from arena.store.postgres.store import PostgresStore
    from harness.trace import EvaluationBody
    from judge.explanation import Explanation
    from judge.verdict import UnscoredVerdict, Verdict

app = typer.Typer(
    help="""Explain verdicts, judge again, measure the judge.

    arena judge explain 7 --state-dir DIR

    arena judge replay 7 --state-dir DIR
    """,
    no_args_is_help=True,
)


@app.callback()
def judge() -> None:
    """Explain verdicts, judge again, measure the judge."""


@app.command()
def explain(
    record: RecordArgument,
    policy: RubricPolicyOption = "demo",
    validator: ValidatorOption = "",
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show why a trace has its quality: what code required, the quotes in their place, what was refused.

    arena judge explain 42
    arena judge explain 42 --json

    Exit code 1 when the record is not there or is no evaluation, 4 when its body is missing.
    """
    from judge.explanation import explain_verdicts

    found = run_on_store(dsn, state_dir, lambda store: _body_and_verdicts(store, record, validator))
    if found is None:
        typer.echo(MESSAGE_NOT_FOUND.format(which=record), err=True)
        raise typer.Exit(EXIT_FAILED)
    explanation = explain_verdicts(found[0], rubric_of(policy, ""), found[1])
    if as_json:
        echo_json(explanation)
    else:
        _print(explanation)


@app.command("body")
def judge_body_file(
    body: Annotated[Path, typer.Option(help="An evaluation body as JSON.", exists=True, dir_okay=False)],
    policy: RubricPolicyOption = "demo",
    base_url: BaseUrlOption = "",
    api_key: ApiKeyOption = "",
    as_json: JsonOption = False,
) -> None:
    """Judge one evaluation body in a file and print the verdict with its citations.

    The scripted judge of the demo policy needs no endpoint. What a judge is shown: arena view BODY
    --as-judged. Exit code 1 when no verdict could be given.
    """
    import msgspec

    from harness.trace import EvaluationBody
    from judge.explanation import explain_verdicts
    from judge.panel import judge_body
    from judge.verdict import Verdict

    try:
        trace = msgspec.json.decode(body.read_bytes(), type=EvaluationBody)
    except msgspec.DecodeError as error:
        typer.echo(f"{body} is no evaluation body: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from error
    rubric = rubric_of(policy, "")
    verdict = judge_body(trace, rubric, panel_of(rubric, base_url, api_key, None, judge_meter((0, 0))))
    if as_json:
        echo_json(verdict)
    else:
        _print(explain_verdicts(trace, rubric, [verdict]))
    raise typer.Exit(0 if isinstance(verdict, Verdict) else EXIT_FAILED)


app.command("replay")(replay_records)
app.command("calibrate")(calibrate)
app.command("check-calibration")(check_calibration_file)
app.command("sheet")(sheet)
app.command("agreement")(agreement)


async def _body_and_verdicts(
    store: PostgresStore, which: str, validator: str
) -> tuple[EvaluationBody, list[Verdict | UnscoredVerdict]] | None:
    from arena.records.model import EvaluationRecord, RecordContent, VerdictRecord

    found = await find_record(store, which, validator)
    if found is None:
        return None
    record, content = found
    if not isinstance(content, RecordContent) or not isinstance(content.payload, EvaluationRecord | VerdictRecord):
        return None
    payload = content.payload
    sha256 = payload.verdict.body_sha256 if isinstance(payload, VerdictRecord) else payload.body_sha256
    return await body_and_verdicts(store, record.validator, sha256)


def _print(found: Explanation) -> None:
    from judge.rubric import GATES
    from judge.verdict import UnscoredVerdict

    typer.echo("What code found, before any model was asked")
    for one in found.completions:
        kind = "inference" if one.is_inference else "too short" if one.own_chars else "repeats its request"
        typer.echo(
            f"  span {one.span}, step {one.step}: {kind} ({one.tokens} tokens, repeated {share_text(one.echo_e4)}, "
            f"{one.own_chars} characters of its own"
            f"{'' if one.is_before_recommendation else ', said after the recommendation: counts for nothing'})"
        )
    for gate in GATES:
        typer.echo(f"  {gate:<20} {'possible' if gate in found.possible else 'not carried by the words of the trace'}")
    typer.echo(f"  highest quality that any judge can give: {share_text(found.ceiling_e4)}")
    for verdict in found.verdicts:
        if isinstance(verdict, UnscoredVerdict):
            typer.echo(f"No verdict: {verdict.failure.code} {printable(verdict.failure.detail)}")
        else:
            typer.echo(
                f"Verdict by {verdict.rubric_id}: quality {share_text(verdict.quality_e4)}, coefficient "
                f"{share_text(verdict.coefficient_e4)}, spread {share_text(verdict.spread_e4)}"
            )
            for opinion in verdict.opinions:
                typer.echo(
                    f"  {opinion.model}: {share_text(opinion.quality_e4)} after {opinion.attempts} "
                    f"{'reply' if opinion.attempts == 1 else 'replies'}. {printable(cut(opinion.explanation))}"
                )
            if not verdict.opinions and not verdict.refused:
                typer.echo("  code decided: no inference before the recommendation, so no model was asked")
        for refusal in verdict.refused:
            whose = "put off by the trace" if refusal.is_by_trace else "no usable reply"
            typer.echo(
                f"  {refusal.model}: {whose} after {refusal.attempts} replies. Last: {printable(cut(refusal.reason))}"
            )
    for quote in found.quotes:
        typer.echo(f"  [{quote.gate}] span {quote.span}, {quote.model}{'' if quote.is_there else ': NOT IN THE TRACE'}")
        typer.echo(f"    …{printable(quote.before)}»{printable(quote.quote)}«{printable(quote.after)}…")
