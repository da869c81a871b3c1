"""`arena records`: follow, serve and price the signed log; the text of its records.

It finds the store of a state folder by itself, starts the embedded server when it is not running and stops it again
when nobody else uses it. On the node's own machine every record is shown; over HTTP only what the release rule permits.
It never writes a record. What agents and models wrote is shown as it is: never as markup or terminal control codes.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from neurons.cli.exit_codes import EXIT_INTERRUPTED
from neurons.cli.export import export
from neurons.cli.options import (
    CatalogueOption,
    JsonOption,
    StoreFlags,
    ValidatorOption,
    command,
    logs_of,
    open_store,
    read_or_none,
    state_folder,
)
from neurons.cli.presenter import cut, echo_json, make_table, printable, share_text
from neurons.cli.verify import prove, verify

if TYPE_CHECKING:
    from arena.records.model import Payload, RecordContent, SignedRecord
    from arena.records.port import UsageTotal
    from arena.store.postgres import PostgresStore
    from arena.view.page import StyledLine

POLL_S = 1.0
PORT = 8750
EMPTY: Mapping[str, str] = MappingProxyType({})
_MICRO = 1_000_000
_GROUP_CHARS = 16  # enough to find it with `arena view`
_COUNTS = ("episodes", "requests", "prompt_tokens", "completion_tokens")

app = typer.Typer(
    help="""Read, verify and export the signed log.

    arena records verify --state-dir DIR

    arena records export --out day1 --state-dir DIR --wallet.hotkey //Alice

    arena records tail --state-dir DIR

    Every record is signed, chained to the one before and never changed. One record: `arena view NUMBER`.
    """,
    no_args_is_help=True,
)
for _command in (verify, prove, export):
    command(app)(_command)


@command(app)
def tail(
    store: StoreFlags,
    count: Annotated[int, typer.Option("-n", min=1, help="Records of each log, unless --after is given.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and show what is appended.")] = False,
    url: Annotated[str, typer.Option("--url", help="Read a live tail over HTTP, as JSON lines.")] = "",
    after: Annotated[int | None, typer.Option("--after", min=0, help="Begin behind this record.")] = None,
    validator: ValidatorOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the last records, one line each: number, time, kind, problem, agent and result. JSON lines with --json.

    With --follow it stays. With --url it reads another machine's log (`arena records serve`, or a validator's
    `serve_port`), one JSON row a line: every link, hash and signature is checked before the row is printed, and a break
    ends it with exit code 4. It comes back by itself after a lost connection, behind the last row it printed.
    """
    try:
        if url:
            from arena.api.client import TailClient
            from arena.chain.keys import verify

            client = TailClient(
                url, verify_signature=verify, sleep=time.sleep, tell=lambda text: typer.echo(text, err=True)
            )
            if after is None:
                heads = client.heads()
                known = heads.get(validator, 0) if validator else max(heads.values(), default=0)
                after = max(0, known - count)
            for line in client.lines(validator, after=after, is_following=follow):
                typer.echo(line)
        else:
            store.run(lambda log: _tail_store(log, validator, after, count, follow, as_json))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


@command(app)
def serve(
    store: StoreFlags,
    host: Annotated[str, typer.Option(help="Address to serve on; all who reach it may read.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = PORT,
    sn15: Annotated[bool, typer.Option("--sn15", help="Also serve the reads of the published SN15 API.")] = False,
    catalogue: CatalogueOption = None,
) -> None:
    """Serve the logs of a store over HTTP, as a validator does with `serve_port`, until Ctrl-C or SIGTERM.

    Anybody who reaches the address may read; records of races that are not released leave as stubs. The routes are
    listed at /openapi.json; `arena records tail --url` is the client. Pages of released traces say what each constraint
    asked and what was found, from the state folder's batches and catalogues, or over --catalogue.
    """
    asyncio.run(_serve(store, host, port, sn15, catalogue))


class Grouping(StrEnum):
    """What the sums of `costs` are of."""

    RACE = "race"
    AGENT = "agent"
    MODEL = "model"
    ENDPOINT = "endpoint"


@command(app)
def costs(
    store: StoreFlags,
    by: Annotated[Grouping, typer.Option(help="One row for each of these.")] = Grouping.RACE,
    as_json: JsonOption = False,
) -> None:
    """Show what model endpoints were asked for and what it cost, faulted attempts included.

    Tokens are the endpoints' own counts; prices stand with the tables `upstreams` of the settings file, and a
    request without a price is counted apart, never as free. A request that no endpoint answered stands under "none".
    """
    from rich.console import Console

    rows = sum_costs(store.run(lambda log: log.usage_totals()), by)
    if as_json:
        echo_json(rows)
        return
    if not rows:
        typer.echo("no model was asked for anything yet")
        return
    headings = ("episodes", "requests", "tokens in", "tokens out", "s each", "USD", "no price")
    table = make_table(by.value, *headings, right=headings, box=None, pad_edge=False)
    for row in rows:
        seconds = row["latency_ms"] / 1_000 / max(1, row["requests"])
        dollars = "?" if row["unpriced"] == row["requests"] else f"{row['cost_micro_usd'] / _MICRO:,.4f}"
        counts = (f"{row[name]:,}" for name in _COUNTS)
        table.add_row(row["group"][:_GROUP_CHARS], *counts, f"{seconds:.2f}", dollars, f"{row['unpriced']:,}")
    Console().print(table)


def sum_costs(totals: Iterable[UsageTotal], by: Grouping) -> list[dict[str, Any]]:
    """The totals summed by group, in the order in which the groups come. Episodes are attempts at an endpoint with a
    model: one that used two models counts in both. `unpriced` counts requests without a known price."""
    rows: dict[str, dict[str, Any]] = {}
    for one in totals:
        group = {"race": one.race_id or one.stage, "agent": one.agent_version_id, "model": one.model}
        row = rows.setdefault(named := group.get(by, one.upstream or "none"), {"group": named})
        unpriced = one.requests if one.cost_micro_usd is None else 0
        sums = {**msgspec.structs.asdict(one), "cost_micro_usd": one.cost_micro_usd or 0, "unpriced": unpriced}
        for name in (*_COUNTS, "attempts", "probes", "latency_ms", "cost_micro_usd", "unpriced"):
            row[name] = row.get(name, 0) + sums[name]
    return list(rows.values())


async def _tail_store(
    store: PostgresStore, validator: str, after: int | None, count: int, is_following: bool, as_json: bool
) -> None:
    from arena.records.model import RecordContent, envelope_of
    from neurons.race.sentences import names_of

    names = names_of(await store.submissions())
    async for record in _records(store, validator, after, count, is_following):
        content = read_or_none(record)
        if as_json:
            echo_json({**envelope_of(record), "content": plain_content(record, content)})
        elif isinstance(content, RecordContent):
            typer.echo(record_line(record, content, names))
        else:
            typer.echo(f"{record.seq:>7}  not decoded")


async def _records(
    store: PostgresStore, validator: str, after: int | None, count: int, is_following: bool
) -> AsyncIterator[SignedRecord]:
    """The last records of each log, or those behind `after`; then, when following, what is appended to any of them."""
    shown: dict[str, int] = {}
    while True:
        for name in await logs_of(store, validator):
            if name not in shown:
                shown[name] = max(0, (await store.head(name)).seq - count) if after is None else after
            async for record in store.records(name, after_seq=shown[name]):
                yield record
                shown[name] = record.seq
        if not is_following:
            return
        await asyncio.sleep(POLL_S)


async def _serve(store: StoreFlags, host: str, port: int, sn15: bool, catalogue: Path | None) -> None:
    from arena.web.server import TailServer
    from harness.catalogue.server import listen
    from neurons.race.log import open_explainer
    from neurons.settings.inputs import unix_ms

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with listen(host, port) as listener:
        async with open_store(store.dsn, store.state_dir) as logs:
            explain = open_explainer(state_folder(store.state_dir), catalogue).explain
            server = TailServer(logs, listener, now_ms=unix_ms, explain=explain, is_sn15_served=sn15)
            typer.echo(f"serving {len(await logs.validators())} logs at {server.address}; Ctrl-C stops it")
            await server.run(stop)


def record_line(record: SignedRecord, content: RecordContent, names: Mapping[str, str] = EMPTY) -> str:
    """One record in one line of 80 columns. `names`: of agent versions, where they are known."""
    from arena.records.model import GateRecord, ReleaseRecord, SettlementRecord

    payload = content.payload
    if isinstance(payload, SettlementRecord | ReleaseRecord):
        about = f"race {payload.race_id}"
    elif isinstance(payload, GateRecord):
        about = f"{payload.decided_by:<8} {_named(payload.subject.agent_version_id, names)}"
    else:
        about = f"{payload.context.problem_id[:8]} {_named(payload.subject.agent_version_id, names)}"
    when = f"{record.seq:>6} {utc_time(content.recorded_ms)[5:]} {kind_of(payload):<10}"
    return printable(f"{when} {about} {result_of(payload, names)}")


def _named(agent_version_id: str, names: Mapping[str, str]) -> str:
    """An agent's name and its hash, in 22 columns."""
    name = names.get(agent_version_id, "").split(" ")[0]
    return f"{name[:13]} {agent_version_id[:8]}".strip().ljust(22)


def result_of(payload: Payload, names: Mapping[str, str] = EMPTY) -> str:
    """One payload's result in a few words."""
    from arena.records.model import AttemptRecord, EvaluationRecord, GateRecord, ReleaseRecord, VerdictRecord
    from judge.verdict import Verdict
    from problems.model import OutcomeScore

    if isinstance(payload, EvaluationRecord):
        if not isinstance(payload.outcome, OutcomeScore):
            return f"unscored {payload.outcome.failure.code}"
        ended = f" ({payload.failure.code})" if payload.failure else ""
        return ("success" if payload.outcome.is_success else "failure") + ended
    if isinstance(payload, VerdictRecord):
        verdict = payload.verdict
        return f"quality {share_text(verdict.quality_e4)}" if isinstance(verdict, Verdict) else verdict.failure.code
    if isinstance(payload, AttemptRecord):
        return payload.ended + (f" {payload.failure.code}" if payload.failure else "")
    if isinstance(payload, ReleaseRecord):
        return f"{len(payload.problems)} problems released"
    if isinstance(payload, GateRecord):
        return " ".join(part for part in (payload.outcome, payload.severity or payload.hold) if part)
    return f"{payload.state}, top {_named(payload.top_agent_version_id, names)}".strip()


def record_lines(record: SignedRecord, content: RecordContent | None, *, is_whole: bool) -> Iterator[StyledLine]:
    """One record field by field. `is_whole`: nothing is folded or cut."""
    from arena.records.model import RecordContent
    from arena.view.page import StyledLine

    yield StyledLine(f"record {record.seq} of {record.validator}", "heading")
    if not isinstance(content, RecordContent):
        yield StyledLine("its content can't be decoded", "bad")
        yield StyledLine(printable(record.content.decode(errors="replace")))
        return
    payload = content.payload
    yield StyledLine(printable(f"{kind_of(payload)} · {utc_time(content.recorded_ms)} · {result_of(payload)}"), "soft")
    fields = {"content": record.content_sha256, "prev": record.prev, **msgspec.to_builtins(payload)}
    yield from _field_lines(fields, is_whole=is_whole)


def _field_lines(fields: Mapping[str, Any], indent: int = 0, *, is_whole: bool) -> Iterator[StyledLine]:
    """A line a field; the fields of a value inside stand below its name, two further in."""
    from arena.view.page import StyledLine

    for name, value in fields.items():
        label = f"{' ' * indent}{name.replace('_', ' ')}"
        inside = value if isinstance(value, list | tuple) else [value]
        if inside and all(isinstance(one, dict) for one in inside):
            for number, one in enumerate(inside, 1):
                yield StyledLine(f"{label} {number}" if len(inside) > 1 else label)
                yield from _field_lines(one, indent + 2, is_whole=is_whole)
            continue
        text = "-" if value in ("", None, (), []) else str(value)
        yield StyledLine(printable(f"{label:<22} {text if is_whole else cut(text)}"))


def utc_time(unix_ms: int) -> str:
    """A time of a record, in UTC to the second; as a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"


def kind_of(payload: Payload) -> str:
    """The kind's name, as in the canonical bytes."""
    return str(payload.__struct_config__.tag)


def plain_content(record: SignedRecord, content: RecordContent | None) -> Any:
    """A content's builtins; the text of one that was not decoded."""
    from arena.records.model import RecordContent

    return (
        msgspec.to_builtins(content) if isinstance(content, RecordContent) else record.content.decode(errors="replace")
    )
