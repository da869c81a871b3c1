"""`arena records tail` and `arena records serve`: the end of a log, as it grows, here or over HTTP.

On the node's own machine every record is shown; over HTTP only what the release rule permits. It never writes a record.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.exit_codes import EXIT_INTERRUPTED
from neurons.cli.options import CatalogueOption, DsnOption, JsonOutOption, StateDirOption, ValidatorOption
from neurons.cli.presenter import echo_json
from neurons.cli.store_reading import logs_of, open_store, read_or_none, run_on_store, state_folder

if TYPE_CHECKING:
    from arena.records.model import SignedRecord
    from arena.store.postgres.store import PostgresStore

POLL_S = 1.0
PORT = 8750

_Count = Annotated[int, typer.Option("-n", min=1, help="How many records of each log, unless --after is given.")]
_After = Annotated[int | None, typer.Option("--after", min=0, help="Begin behind this record.")]
_Pool = Annotated[
    list[str] | None, typer.Option("--pool", help="With --url: pools asked for by name. Repeatable. Default: train.")
]


def tail(
    count: _Count = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and show what is appended.")] = False,
    url: Annotated[str, typer.Option("--url", help="Read a live tail over HTTP, as JSON lines.")] = "",
    after: _After = None,
    pool: _Pool = None,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
    as_json: JsonOutOption = False,
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
            for line in client.lines(validator, after=after, is_following=follow, pools=tuple(pool or ())):
                typer.echo(line)
        else:
            run_on_store(dsn, state_dir, lambda store: _tail_store(store, validator, after, count, follow, as_json))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def serve(
    host: Annotated[str, typer.Option(help="Address to serve on; all who reach it may read.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = PORT,
    clients: Annotated[int, typer.Option(min=1, max=1024, help="Streams at once.")] = 32,
    sn15: Annotated[bool, typer.Option("--sn15", help="Also serve the reads of the published SN15 API.")] = False,
    catalogue: CatalogueOption = None,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
) -> None:
    """Serve the logs of a store over HTTP, as a validator does with `serve_port`, until Ctrl-C or SIGTERM.

    Anybody who reaches the address may read; records of races that are not released leave as stubs. The routes are
    listed at /openapi.json; `arena records tail --url` is the client. Pages of released traces say what each constraint
    asked and what was found, from the state folder's batches and catalogues, or over --catalogue.
    """
    asyncio.run(_serve(host, port, clients, sn15, catalogue, dsn, state_dir))


async def _tail_store(
    store: PostgresStore, validator: str, after: int | None, count: int, is_following: bool, as_json: bool
) -> None:
    from arena.records.model import RecordContent
    from neurons.cli.records import view
    from neurons.race.sentences import names_of

    names = names_of(await store.submissions())
    async for record in _records(store, validator, after, count, is_following):
        content = read_or_none(record)
        if as_json:
            echo_json({**view.envelope(record), "content": view.plain_content(record, content)})
        elif isinstance(content, RecordContent):
            typer.echo(view.record_line(record, content, names))
        else:
            typer.echo(f"{record.seq:>7}  not decoded: {content.name if content else 'not a record'}")


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


async def _serve(
    host: str, port: int, clients: int, sn15: bool, catalogue: Path | None, dsn: str, state_dir: Path | None
) -> None:
    from arena.api.server import TailServer
    from harness.catalogue.server.guard import listen
    from neurons.race.explaining import open_explainer

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with listen(host, port) as listener:
        async with open_store(dsn, state_dir) as store:
            explain = open_explainer(state_folder(state_dir), catalogue).explain
            server = TailServer(store, listener, clients=clients, explain=explain, is_sn15_served=sn15)
            typer.echo(f"serving {len(await store.validators())} logs at {server.address}; Ctrl-C stops it")
            await server.run(stop)
