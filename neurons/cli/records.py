"""`arena records`: read and verify the signed log.

It finds the store of a state folder by itself, starts the embedded server when it is not running and stops it again
when nobody else uses it. It never writes a record.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from neurons.cli.records_export import export
from neurons.cli.records_tail import serve, tail
from neurons.cli.store_reading import DsnOption, JsonOption, StateDirOption, ValidatorOption, logs_of, run_on_store

if TYPE_CHECKING:
    from arena.records.model import Payload, RecordContent, SignedRecord
    from arena.records.verify import VerifyReport
    from arena.store.postgres import PostgresStore
    from harness.trace import EvaluationBody
    from judge.verdict import UnscoredVerdict, Verdict

    Found: TypeAlias = tuple[SignedRecord, RecordContent, EvaluationBody | None, list[Verdict | UnscoredVerdict]]

EXIT_USAGE, EXIT_INTEGRITY = 2, 4
MESSAGE_NOT_FOUND = "no record matches {which!r}; give a number, or the beginning of a record, body or attempt id"

app = typer.Typer(
    help="Read and verify the signed log. Every record is signed, chained to the one before and append-only.",
    no_args_is_help=True,
)
app.command("export")(export)
app.command("tail")(tail)
app.command("serve")(serve)


@app.command()
def verify(
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    checkpoint: Annotated[
        list[Path] | None, typer.Option("--checkpoint", help="A signed checkpoint the log must contain. Repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every signature, hash, link, body and reference of every log this login may read.

    A validator's own login reads its own log; give the owner's with --dsn to check all logs of a shared server.

    Ends with 0 when nothing is wrong. Ends with 4 when something is, and names the first bad record. A log whose tail
    was cut together with its head looks whole from inside: give a checkpoint that was kept elsewhere.
    """
    from neurons.cli import records_view as view

    report = run_on_store(dsn, state_dir, lambda store: _verify(store, checkpoint or [], as_json))
    if as_json:
        _echo_json({"ok": report.is_ok, **view.plain(report)})
    else:
        for line in view.report_lines(report):
            typer.echo(line)
    if not report.is_ok:
        raise typer.Exit(EXIT_INTEGRITY)


@app.command()
def show(
    which: Annotated[
        str, typer.Argument(metavar="SEQ|ID", help="Record number, or beginning of a record, body or attempt id.")
    ],
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show one record: what it says, and for an evaluation its outcome by slot and axis, its verdict and its turns."""
    from rich.console import Console

    from neurons.cli import records_view as view

    found = run_on_store(dsn, state_dir, lambda store: _find(store, which, validator))
    if found is None:
        typer.echo(MESSAGE_NOT_FOUND.format(which=which), err=True)
        raise typer.Exit(EXIT_USAGE)
    record, content, body, verdicts = found
    if as_json:
        _echo_json(
            {
                **view.envelope(record),
                "content": view.plain(content),
                "body": view.plain(body),
                "verdicts": view.plain(verdicts),
            }
        )
        return
    console = Console()
    for part in view.render_record(record, content, body, verdicts):
        console.print(part)


@app.command()
def stats(dsn: DsnOption = "", state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Count what the logs hold: records by kind, attempts by end, outcomes, faults by code, mean reasoning quality."""
    summary = run_on_store(dsn, state_dir, _summarise)
    if as_json:
        _echo_json(summary)
        return
    for name, value in summary.items():
        shown = "  ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else value
        typer.echo(f"{name:<16} {shown if shown not in ('', None) else '-'}")


async def _verify(store: PostgresStore, checkpoints: list[Path], is_quiet: bool) -> VerifyReport:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    from arena.chain.keys import verify as verify_signature
    from arena.records.checkpoint import read_checkpoint
    from arena.records.verify import verify_store

    points = [read_checkpoint(path.read_text(encoding="utf-8"), verify_signature) for path in checkpoints]
    total = sum([(await store.head(name)).seq for name in await store.validators()])
    columns = (SpinnerColumn(), "verifying records", MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=is_quiet or not console.is_terminal) as progress:
        task = progress.add_task("verify", total=total)
        return await verify_store(
            store,
            verify_signature,
            checkpoints=points,
            progress=lambda done: progress.update(task, completed=done, total=max(total, done)),
        )


async def _find(store: PostgresStore, which: str, validator: str) -> Found | None:
    """The record of a number or an id's beginning, with its body and the verdicts on it."""
    from arena.records.body import decode_body, decode_content
    from arena.records.model import EvaluationRecord, VerdictRecord

    found: tuple[SignedRecord, RecordContent] | None = None
    verdicts: dict[str, list[Verdict | UnscoredVerdict]] = {}
    for name in await logs_of(store, validator):
        async for record in store.records(name, after_seq=int(which) - 1 if which.isdecimal() else 0):
            content = decode_content(record.content)
            if found is None and (record.seq == int(which) if which.isdecimal() else _has_id(record, content, which)):
                found = record, content
            if isinstance(content.payload, VerdictRecord):
                verdicts.setdefault(content.payload.verdict.body_sha256, []).append(content.payload.verdict)
    if found is None:
        return None
    record, content = found
    if not isinstance(content.payload, EvaluationRecord):
        return record, content, None, []
    stored = await store.body(content.payload.body_sha256, record.validator)
    body = decode_body(stored.content) if stored else None
    return record, content, body, verdicts.get(content.payload.body_sha256, [])


def _has_id(record: SignedRecord, content: RecordContent, which: str) -> bool:
    names = (record.content_sha256, _name(content.payload, "body_sha256"), _name(content.payload, "attempt_id"))
    return any(name and name.startswith(which) for name in names)


def _name(payload: Payload, field: str) -> str:
    return str(getattr(payload, field, ""))


async def _summarise(store: PostgresStore) -> dict[str, Any]:
    from arena.records.body import decode_content
    from arena.records.model import AttemptRecord, EvaluationRecord, VerdictRecord
    from judge.verdict import Verdict
    from neurons.cli import records_view as view
    from problems.outcome import OutcomeScore

    kinds, ends, faults, outcomes = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    qualities: list[int] = []
    times: list[int] = []
    async for record in store.records():
        content = decode_content(record.content)
        payload = content.payload
        times.append(content.recorded_ms)
        kinds[view.kind_of(payload)] += 1
        if isinstance(payload, AttemptRecord):
            ends[payload.ended] += 1
            if payload.failure:
                faults[payload.failure.code] += 1
        elif isinstance(payload, EvaluationRecord):
            outcome = payload.outcome
            is_success = outcome.is_success if isinstance(outcome, OutcomeScore) else None
            outcomes[{True: "success", False: "failure", None: "unscored"}[is_success]] += 1
        elif isinstance(payload, VerdictRecord) and isinstance(payload.verdict, Verdict):
            qualities.append(payload.verdict.quality_e4)
    return {
        "logs": {name: (await store.head(name)).seq for name in await store.validators()},
        "records": dict(sorted(kinds.items())),
        "attempts": dict(sorted(ends.items())),
        "outcomes": dict(sorted(outcomes.items())),
        "faults": dict(sorted(faults.items())),
        "mean_quality_e4": sum(qualities) // len(qualities) if qualities else None,
        "first": view.utc_time(min(times)) if times else None,
        "last": view.utc_time(max(times)) if times else None,
    }


def _echo_json(value: object) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())
