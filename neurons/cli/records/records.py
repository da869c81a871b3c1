"""`arena records`: read and verify the signed log.

It finds the store of a state folder by itself, starts the embedded server when it is not running and stops it again
when nobody else uses it. It never writes a record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from neurons.cli.exit_codes import EXIT_USAGE
from neurons.cli.options import DsnOption, JsonOutOption, RecordArgument, StateDirOption, ValidatorOption
from neurons.cli.presenter import echo_json, echo_styled, field_lines, show, text_width
from neurons.cli.records.costs import costs
from neurons.cli.records.export import export
from neurons.cli.records.tail import serve, tail
from neurons.cli.records.verify import prove, schema, verifier, verify
from neurons.cli.store_reading import MESSAGE_NOT_FOUND, find_record, read_or_none, run_on_store, state_folder

if TYPE_CHECKING:
    from pathlib import Path

    from arena.records.body import Unread
    from arena.records.model import RecordContent, SignedRecord
    from arena.store.postgres.store import PostgresStore
    from arena.view.model import TraceView
    from harness.trace import EvaluationBody
    from judge.verdict import UnscoredVerdict, Verdict

    Found: TypeAlias = tuple[
        SignedRecord,
        RecordContent | Unread | None,
        EvaluationBody | None,
        list[Verdict | UnscoredVerdict],
        TraceView | None,
    ]


app = typer.Typer(
    help="""Read, verify and export the signed log.

    arena records verify --state-dir DIR

    arena records export --out day1 --state-dir DIR --wallet.hotkey //Alice

    arena records tail --state-dir DIR

    Every record is signed, chained to the one before and never changed.
    """,
    no_args_is_help=True,
)
app.command("verify")(verify)
app.command("prove")(prove)
app.command("export")(export)
app.command("tail")(tail)
app.command("serve")(serve)
app.command("costs")(costs)
app.command("schema")(schema)
app.command("verifier")(verifier)


@app.command("show")
def show_record(
    which: RecordArgument,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
    is_whole: Annotated[bool, typer.Option("--whole", help="Fold no result and cut no text.")] = False,
    as_json: JsonOutOption = False,
) -> None:
    """Show one record: what it says, and of an evaluation its trace, as `arena view` shows it."""
    from neurons.cli.records import view

    found = run_on_store(dsn, state_dir, lambda store: _find(store, which, validator, state_folder(state_dir)))
    if found is None:
        typer.echo(MESSAGE_NOT_FOUND.format(which=which), err=True)
        raise typer.Exit(EXIT_USAGE)
    record, content, body, verdicts, trace = found
    if as_json:
        shown = {"content": view.plain_content(record, content), "body": body, "verdicts": verdicts}
        echo_json({**view.envelope(record), **view.plain(shown)})
        return
    echo_styled(view.record_lines(record, content, trace, width=text_width(), is_whole=is_whole))


@app.command()
def stats(dsn: DsnOption = "", state_dir: StateDirOption = None, as_json: JsonOutOption = False) -> None:
    """Count what the logs hold: records by kind, attempts by end, outcomes, faults by code, mean reasoning quality."""
    summary = run_on_store(dsn, state_dir, _summarise)
    fields = {
        name: " ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else value
        for name, value in summary.items()
    }
    lines = field_lines(((name, "-" if value in ("", None) else value) for name, value in fields.items()), 16)
    show(summary, lines, as_json=as_json)


async def _find(store: PostgresStore, which: str, validator: str, state_dir: Path) -> Found | None:
    """The record of a number or an id's beginning; of an evaluation its body, the verdicts on it and its view too, with
    what its problem asked where the state folder has its batch."""
    from arena.records.body import Unread, decode_content, read_body
    from arena.records.model import EvaluationRecord, RecordContent, VerdictRecord
    from neurons.cli.records.traces import view_stored
    from neurons.cli.records.view import attribution_facts
    from neurons.race.explaining import open_explainer
    from neurons.race.sentences import names_of

    found = await find_record(store, which, validator)
    if found is None:
        return None
    record, content = found
    if not isinstance(content, RecordContent) or not isinstance(content.payload, EvaluationRecord):
        return record, content, None, [], None
    stored = await store.body(content.payload.body_sha256, record.validator)
    read = read_body(stored.content) if stored else None
    body = None if isinstance(read, Unread) else read
    on_body = await store.verdicts_on([content.payload.body_sha256], record.validator)
    payloads = [decode_content(other.content).payload for other in on_body]
    verdicts = [payload.verdict for payload in payloads if isinstance(payload, VerdictRecord)]
    points = await store.checkpoints(record.validator)
    facts = attribution_facts(body) if body else ()
    names = names_of(await store.submissions())
    asked = open_explainer(state_dir).explain(content.payload, body.catalogue_sha256).constraints if body else ()
    view = view_stored(record, content.payload, body, verdicts, points, names, facts, constraints=asked)
    return record, content, body, verdicts, view


async def _summarise(store: PostgresStore) -> dict[str, Any]:
    from arena.records.model import AttemptRecord, EvaluationRecord, RecordContent, VerdictRecord
    from judge.verdict import Verdict
    from neurons.cli.records import view
    from problems.scoring.outcome import OutcomeScore

    kinds, ends, faults, outcomes = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    qualities: list[int] = []
    times: list[int] = []
    async for record in store.records():
        content = read_or_none(record)
        if not isinstance(content, RecordContent):
            kinds[content.name if content else "undecodable"] += 1
            continue
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
