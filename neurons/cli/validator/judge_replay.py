"""`arena judge replay`: judge the traces of a log again, beside the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from neurons.cli.options import DsnOption, JsonOption, StateDirOption, ValidatorOption
from neurons.cli.presenter import echo_json, make_table, share_text
from neurons.cli.progress import show_progress
from neurons.cli.store_reading import logs_of, read_or_none, run_on_store
from neurons.cli.validator.judge_calibration import (
    ApiKeyOption,
    BaseUrlOption,
    CacheOption,
    ModelsOption,
    PriceOption,
    RubricPolicyOption,
    judge_meter,
    panel_of,
    rubric_of,
)

if TYPE_CHECKING:
    from arena.evaluate.replay import ReplayComparison, ReplayRow
    from arena.records.model import EvaluationRecord
    from arena.store.postgres.store import PostgresStore
    from harness.trace import EvaluationBody
    from judge.verdict import UnscoredVerdict, Verdict

_Found = tuple[str, int, "EvaluationRecord"]
_MICRO = 1_000_000


def replay_records(
    out: Annotated[Path, typer.Option("--out", help="Folder of the replay; run again, it goes on.", file_okay=False)],
    policy: RubricPolicyOption = "demo",
    models: ModelsOption = "",
    base_url: BaseUrlOption = "",
    api_key: ApiKeyOption = "",
    cache: CacheOption = None,
    race: Annotated[str, typer.Option("--race", help="Only this race's records.")] = "",
    budget_tokens: Annotated[int, typer.Option("--budget-tokens", min=0, help="Stop after so many; 0: no bound.")] = 0,
    budget_usd: Annotated[float, typer.Option("--budget-usd", min=0, help="Stop after so much; needs --price.")] = 0,
    price: PriceOption = (0, 0),
    validator: ValidatorOption = "",
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge recorded traces again with another rubric or panel, and compare.

    arena judge replay --out build/replay --policy my-policy.json --race race-000014
    arena judge replay --out build/replay --base-url http://127.0.0.1:8000/v1 --models qwen --budget-tokens 2000000

    Rows of kind `replay` go to replay.jsonl, beside the log and never into it: nothing counts them. An interrupted or
    owed replay goes on where it stopped. Shows what each agent's traces would have earned.
    """
    import msgspec

    from arena.evaluate.replay import compare_replay, replay_row, rubric_sha256, settled_keys
    from foundation.errors import ArenaError
    from judge.panel import judge_body
    from judge.verdict import Verdict

    if budget_usd and not any(price):
        raise ArenaError("V2030", "--budget-usd needs --price: what a token costs is not known")
    rubric, meter = rubric_of(policy, models), judge_meter(price)
    judges = panel_of(rubric, base_url, api_key, cache, meter)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "replay.jsonl"
    rows = [row for row in read_rows(path) if row.rubric_sha256 == rubric_sha256(rubric)]
    done, tokens, micro_usd, is_stopped = settled_keys(rows), 0, 0, False

    async def work(store: PostgresStore) -> None:
        nonlocal tokens, micro_usd, is_stopped
        found = await evaluations_of(store, validator, race)
        if not found:
            raise typer.BadParameter(f"no evaluation{f' of {race}' if race else ''} stands in this log")
        with show_progress(is_quiet=as_json) as progress, path.open("ab") as stream:
            for number, (name, seq, record) in enumerate(found, 1):
                if (record.body_sha256, rubric_sha256(rubric)) in done:
                    continue
                if (budget_tokens and tokens >= budget_tokens) or (budget_usd and micro_usd >= budget_usd * _MICRO):
                    is_stopped = True
                    return
                body, counted = await body_and_verdicts(store, name, record.body_sha256)
                verdict = judge_body(body, rubric, judges)
                spent = meter.take(int(isinstance(verdict, Verdict)))
                tokens, micro_usd = tokens + spent.tokens, micro_usd + spent.micro_usd
                row = replay_row(name, seq, record, rubric, counted[-1] if counted else None, verdict, spent)
                _append(stream, row)
                rows.append(row)
                progress("replay", number, len(found))

    run_on_store(dsn, state_dir, work)
    compared = compare_replay(rows)
    if as_json:
        echo_json({**msgspec.to_builtins(compared), "is_stopped": is_stopped})
        return
    _print(compared)
    if is_stopped:
        typer.echo("stopped: the budget is spent. Run the same command again to go on.")


def read_rows(path: Path) -> Iterator[ReplayRow]:
    """The rows of a file; a last line that a kill cut short is left out. Raises ArenaError V2050 for any other one."""
    import msgspec

    from arena.evaluate.replay import ReplayRow
    from foundation.errors import ArenaError

    if not path.exists():
        return
    content = path.read_bytes()
    *lines, cut_short = content.split(b"\n")
    if cut_short:
        os.truncate(path, len(content) - len(cut_short))
    for number, line in enumerate(lines, 1):
        try:
            yield msgspec.json.decode(line, type=ReplayRow)
        except msgspec.DecodeError as error:
            raise ArenaError("V2050", f"{path}:{number} is no replay row: {error}") from error


def _append(stream: BinaryIO, row: ReplayRow) -> None:
    import msgspec

    stream.write(msgspec.json.encode(row) + b"\n")
    stream.flush()
    os.fsync(stream.fileno())


async def evaluations_of(store: PostgresStore, validator: str, race: str) -> list[_Found]:
    """The evaluations of a log, or of all; `race` "" takes every race. Each with its log and number."""
    from arena.records.model import EvaluationRecord, RecordContent

    found = []
    for name in await logs_of(store, validator):
        async for record in store.records(name, kinds=("evaluation",), race_id=race or None):
            content = read_or_none(record)
            if isinstance(content, RecordContent) and isinstance(content.payload, EvaluationRecord):
                found.append((name, record.seq, content.payload))
    return found


async def body_and_verdicts(
    store: PostgresStore, validator: str, body_sha256: str
) -> tuple[EvaluationBody, list[Verdict | UnscoredVerdict]]:
    """A body and the verdicts on it in a log, the oldest first. Raises ArenaError V2050 where the body is missing."""
    from arena.records.body import decode_body, decode_content
    from arena.records.model import VerdictRecord
    from foundation.errors import ArenaError

    stored = await store.body(body_sha256, validator)
    if stored is None:
        raise ArenaError("V2050", f"no body {body_sha256}")
    on_body = [decode_content(one.content).payload for one in await store.verdicts_on([body_sha256], validator)]
    return decode_body(stored.content), [one.verdict for one in on_body if isinstance(one, VerdictRecord)]


def _print(found: ReplayComparison) -> None:
    from rich.console import Console

    change = "-" if found.mean_change_e4 is None else f"{found.mean_change_e4 / 10_000:+.4f}"
    typer.echo(f"{found.rows} traces replayed, {found.owed} owed, {found.unlike} with another quality (mean {change})")
    typer.echo(
        f"cost: {found.spent.requests} replies, {found.spent.tokens} tokens, {found.spent.micro_usd / _MICRO:.4f} USD"
    )
    if found.agents:
        columns = ("traces", "score", "replayed")
        table = make_table("race", "agent", *columns, right=columns, box=None, pad_edge=False)
        for one in found.agents:
            scores = (share_text(one.score_e4), share_text(one.replayed_e4))
            table.add_row(one.race_id or "qualifying", one.agent_version_id[:12], str(one.traces), *scores)
        Console().print(table)
    for race, (before, after) in found.tops.items():
        if race and before != after:
            typer.echo(f"{race}: the best agent would have been {after[:12]}, not {before[:12]}")
