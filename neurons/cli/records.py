"""`arena records`: follow, serve, price, export, verify and prove the signed log; the text of its records.

It finds the store of a state folder by itself, starts the embedded server when it is not running and stops it again
when nobody else uses it. On the node's own machine every record is shown; over HTTP only what the release rule permits.
It never writes a record. What agents and models wrote is shown as it is: never as markup or terminal control codes.

An export carries its own checkpoints, and a forger with the validator's key could sign others; what was kept elsewhere
or committed on chain he cannot change. So an export that verifies by itself is also held against those.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from arena.chain.keys import verify as verify_signature
from arena.chain.port import Subtensor
from arena.export.assembly import check_request, kind_of
from arena.export.files import MANIFEST, SOURCES, read_manifest
from arena.export.model import Filters, LogRange, Manifest, Request
from arena.records import model
from arena.records.log import Checkpoint, read_checkpoint, require_anchor
from foundation.errors import ArenaError, counted, printable
from judge.verdict import Verdict
from neurons.cli import options, presenter
from neurons.cluster.ray_executor import open_executor
from neurons.race.sentences import names_of
from problems.model import OutcomeScore

if TYPE_CHECKING:
    from arena.records.verification import VerifyReport
    from arena.store.postgres import PostgresStore

POLL_S = 1.0
PORT = 8750
DEFECTS_SHOWN = 10
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

_Texts = list[str] | None


@options.command(app)
def verify(
    store: options.StoreFlags,
    export: Annotated[str | None, typer.Option(help="Check an export: a folder, or s3://bucket/prefix.")] = None,
    checkpoint: Annotated[list[Path] | None, typer.Option(help="Signed checkpoint that the log must contain.")] = None,
    signer: Annotated[str, typer.Option(help="Hotkey that has to have signed the --export.")] = "",
    chain: Annotated[str, typer.Option(help="Compare anchors with this network: local, finney, test, a URL.")] = "",
    netuid: Annotated[int, typer.Option(min=0, help="The subnet on --chain.")] = 15,
    processes: Annotated[int | None, typer.Option(min=0, help="Processes; 0: only this one. Default: cores.")] = None,
    cluster: options.ClusterOption = "",
) -> None:
    """Check every signature, hash, link, body and reference of every log this login may read.

    Of a state folder every log in it is checked. With --dsn a validator's own login reads its own log; give the owner's
    to check all logs of a shared server.

    Ends with 0 when nothing is wrong. Ends with 4 when something is, and names the first bad record. The log's stored
    checkpoints are checked too, how the store files each record, and the agents' sources kept beside the log. If
    someone deletes the newest records and their checkpoints, the rest still verifies. To detect that, pass --checkpoint
    FILE saved elsewhere, or --chain.

    An export in an object store is brought into the state folder first. It is held against itself, then against the
    checkpoints given here, and with --chain against the block it names.

    """
    if export is None and (cluster or signer):
        hint = "--cluster" if cluster else "--signer"
        raise typer.BadParameter("a store is verified where it is; give --export", param_hint=hint)
    from arena.chain.opening import open_subtensor
    from arena.records.verification import verify_store
    from neurons.settings.inputs import unix_ms

    given = (path.read_bytes().decode(errors="replace") for path in checkpoint or ())
    points, subtensor = [read_checkpoint(note, verify_signature) for note in given], None
    if chain:
        subtensor = open_subtensor(chain, netuid=netuid, state_dir=store.folder, now_ms=unix_ms)
    if export is not None:
        verify_folder(
            options.export_folder(export, store.folder / "exports"),
            processes=processes,
            cluster=cluster,
            state_dir=store.state_dir,
            points=points,
            signer=signer,
            subtensor=subtensor,
        )
        return

    async def verified(logs: PostgresStore) -> VerifyReport:
        total = sum([(await logs.head(name)).seq for name in await logs.validators()])
        progress = presenter.show_progress()
        with open_executor("", processes, total, state_dir=None) as executor:
            return await verify_store(
                logs,
                verify_signature,
                checkpoints=points,
                sources=logs.sources(),
                subtensor=subtensor,
                executor=executor,
                progress=lambda done, _: progress("verify", done, max(total, done)),
            )

    report = store.run(verified, is_owner=True)  # every log that a state folder holds, also one of another hotkey
    shown = {"ok": report.is_ok, **msgspec.to_builtins(report)}
    presenter.show(shown, report_lines(report), 0 if report.is_ok else presenter.EXIT_INTEGRITY)


@options.command(app, has_json=False)
async def prove(
    which: Annotated[str, typer.Argument(metavar="SEQ|ID", help="Record number, or beginning of an id.")],
    store: options.StoreFlags,
    out: Annotated[Path, typer.Option(help="File to write the proof to.")],
    older: Annotated[Path | None, typer.Option("--from", help="Older checkpoint: prove that it still holds.")] = None,
    content: Annotated[Path | None, typer.Option(help="Also write the record's content here, byte for byte.")] = None,
    validator: options.ValidatorOption = "",
) -> None:
    """Write a proof that a record stands in the log whose state its validator signed.

    Anybody checks it with `python verify_proof.py FILE`: one short script of this package (`arena/records`), which
    needs `pip install bittensor-core` and nothing else. The proof is made under the newest stored checkpoint. It says
    nothing about what the record holds; its content is a file of its own, and not public before the problem's release.
    """
    from arena.records.proof import encode_proof
    from arena.records.proof import prove as prove_record

    older_note = older.read_bytes().decode(errors="replace") if older else ""
    async with store.open() as log:
        found = await options.find_record(log, which, validator)
        if found is None:
            raise presenter.refuse(options.MESSAGE_NOT_FOUND.format(which=which), presenter.EXIT_USAGE)
        record, _ = found
        covering = await log.checkpoints(record.validator, after_size=record.seq - 1)
        if not covering:
            raise ArenaError("V2053", f"no stored checkpoint of {record.validator} covers record {record.seq} yet")
        note = covering[-1].note
        validator, seq = record.validator, record.seq
        proof, record = await prove_record(log, validator, seq, note, verify_signature, older_note=older_note)
    out.write_bytes(encode_proof(proof))
    typer.echo(f"{out}: record {proof.seq} of {proof.validator}, {len(proof.inclusion)} hashes to the signed root")
    if content:
        content.write_bytes(record.content)
        typer.echo(f"{content}: its content, {len(record.content)} bytes")
    typer.echo(f"check: python -m arena.records.verify_proof {out}")


@options.command(app)
async def export(
    out: Annotated[Path, typer.Option(help="Folder to write; it must hold nothing.")],
    store: options.StoreFlags,
    wallet: options.WalletFlags,
    formats: Annotated[
        _Texts, typer.Option("--format", help="jsonl, parquet (both: default), messages, datasets, inspect, verifiers.")
    ] = None,
    pool: Annotated[_Texts, typer.Option("--pool", help="train (default), dev, eval or never_touch.")] = None,
    from_day: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="UTC day of recording, inclusive.")] = "",
    to_day: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="UTC day of recording, inclusive.")] = "",
    race: Annotated[_Texts, typer.Option("--race", help="Only this race.")] = None,
    agent: Annotated[_Texts, typer.Option("--agent", help="Only this agent version id or miner hotkey.")] = None,
    bucket: Annotated[_Texts, typer.Option("--bucket", help="product, shop or voucher.")] = None,
    min_coefficient: Annotated[float, typer.Option(min=0.0, max=1.0, help="Least coefficient of the verdict.")] = 0.0,
    agentic: Annotated[bool, typer.Option("--agentic", help="Only runs whose calls came from the model.")] = False,
    since_cursor: Annotated[Path | None, typer.Option(exists=True, help="Bring what is new since this export.")] = None,
    arguments: Annotated[
        str,
        typer.Option(metavar="text|object", help="How `messages` show calls' arguments (FORMATS.md says which model)."),
    ] = "text",
    privacy: Annotated[bool, typer.Option("--privacy", help="Count personal data; needs the extra `privacy`.")] = False,
    validator: options.ValidatorOption = "",
) -> None:
    """Export released trajectories with the signed log they come from.

    Every record up to the newest signed checkpoint stands in OUT/log, whole or as a stub with its reason, so that
    `arena records verify --export OUT` can check the lot on any machine, without a store. OUT/README.md is a dataset
    card: what is in it, and how to read it. Nothing of a race goes out before its release, nor traces and the
    winner's source before its embargo has ended. With --wallet.hotkey, the log's own, the manifest is signed too, and
    with it what was left out: `arena corpus build` wants that. OUT appears when it is whole; stopped half-way, give
    the command again.

    arena records export --out day1 --format parquet --format messages

    arena records export --out day2 --format parquet --since-cursor day1
    """
    filters = {
        "from_day": from_day,
        "to_day": to_day,
        "races": race or [],
        "agents": agent or [],
        "buckets": bucket or [],
        "coefficient_e4_min": round(min_coefficient * 10_000),
        "is_agentic_only": agentic,
    }
    asked = {"formats": formats or ["jsonl", "parquet"], "pools": pool or ["train"], "arguments": arguments}
    try:
        request = msgspec.convert(asked | {"validator": "", "filters": msgspec.convert(filters, Filters)}, Request)
    except msgspec.ValidationError as error:
        raise ArenaError("V2030", str(error)) from error
    check_request(request)
    signer = wallet.open() if wallet.wallet_hotkey else None
    from arena.export.exporter import continued, export_records
    from arena.export.libraries import Libraries

    try:
        libraries = Libraries() if privacy else None
    except ImportError as error:
        raise typer.BadParameter(f"{error}; install agent-arena[privacy]", param_hint="--privacy") from error
    previous = read_manifest(since_cursor) if since_cursor else None
    async with store.open() as log:
        names = await options.logs_of(log, validator or (previous.request.validator if previous else ""))
        if len(names) != 1:
            logs = ", ".join(names) or "none"
            raise typer.BadParameter(f"name one log with --validator; this store has: {logs}")
        request = msgspec.structs.replace(request, validator=names[0])
        manifest = await export_records(
            log,
            request,
            out,
            verify_signature=verify_signature,
            software=f"agent-arena {version('agent-arena')}",
            now_ms=int(time.time() * 1000),
            start=continued(previous, request) if previous else None,
            signer=signer,
            libraries=libraries,
            progress=functools.partial(presenter.show_progress(), "export"),
        )
    presenter.show(manifest, summary_lines(manifest, out))


def summary_lines(manifest: Manifest, out: Path) -> list[str]:
    """What an export holds, what it leaves out and why, and how to go on."""
    from arena.export.card import WITHHELD

    log, size_mb = manifest.log, sum(file.size_bytes for file in manifest.files) / 1e6
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in manifest.records.items())
    traces = counted(manifest.trajectories, "trajectory")
    lines = [
        f"{out}: {traces} in {counted(len(manifest.files), 'file')}, {size_mb:,.1f} MB",
        f"log of {log.validator}: records {log.first_seq} to {log.last_seq}; whole: {kinds or 'none'}",
    ]
    lines += [f"{counted(count, 'record')} skipped: {WITHHELD[reason]}" for reason, count in manifest.withheld.items()]
    if manifest.quarantined:
        lines.append(f"quarantined: {', '.join(map(str, manifest.quarantined))}")
    if manifest.scrubbed:
        lines.append(f"credentials removed from the views of {manifest.scrubbed:,} trajectories")
    opened = sum(file.path.startswith(f"{SOURCES}/") for file in manifest.files)
    lines.append(f"files of {counted(opened, 'agent')}; agents.jsonl says of each other why its file is not here yet")
    lines.append(f"read it:   {out / 'README.md'}")
    lines.append(f"check it:  arena records verify --export {out}")
    lines.append(f"go on:     arena records export --since-cursor {out} --out NEXT")
    return lines


@options.command(app)
def tail(
    store: options.StoreFlags,
    count: Annotated[int, typer.Option("-n", min=1, help="Records of each log, unless --after is given.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and show what is appended.")] = False,
    url: Annotated[str, typer.Option(help="Read a live tail over HTTP, as JSON lines.")] = "",
    after: Annotated[int | None, typer.Option(min=0, help="Begin behind this record.")] = None,
    validator: options.ValidatorOption = "",
) -> None:
    """List the last records, one line each: number, time, kind, problem, agent and result. JSON lines with --json.

    With --follow it stays. With --url it reads another machine's log (`arena records serve`, or a validator's
    `serve_port`), one JSON row a line: every link, hash and signature is checked before the row is printed, and a break
    ends it with exit code 4. It comes back by itself after a lost connection, behind the last row it printed.
    """

    async def show_records(log: PostgresStore) -> None:
        """The last records of each log, or those behind `after`; then, when following, what is appended to any."""
        names, shown = names_of(await log.submissions()), dict[str, int]()
        while True:
            for name in await options.logs_of(log, validator):
                if name not in shown:
                    shown[name] = max(0, (await log.head(name)).seq - count) if after is None else after
                async for record in log.records(name, after_seq=shown[name]):
                    content, line = options.read_or_none(record), f"{record.seq:>7}  not decoded"
                    if isinstance(content, model.RecordContent):
                        line = record_line(record, content, names)
                    presenter.show(record_row(record, content), [line])
                    shown[name] = record.seq
            if not follow:
                return
            await asyncio.sleep(POLL_S)

    try:
        if url:
            from arena.api.client import TailClient

            client = TailClient(
                url, verify_signature=verify_signature, sleep=time.sleep, tell=lambda text: typer.echo(text, err=True)
            )
            if after is None:
                heads = client.heads()
                known = heads.get(validator, 0) if validator else max(heads.values(), default=0)
                after = max(0, known - count)
            for row in client.lines(validator, after=after, is_following=follow):
                typer.echo(row)
        else:
            store.run(show_records)
    except KeyboardInterrupt:
        raise typer.Exit(presenter.EXIT_INTERRUPTED) from None


@options.command(app, has_json=False)
async def serve(
    store: options.StoreFlags,
    host: Annotated[str, typer.Option(help="Address to serve on; all who reach it may read.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = PORT,
    sn15: Annotated[bool, typer.Option("--sn15", help="Also serve the reads of the published SN15 API.")] = False,
    catalogue: options.CatalogueOption = None,
) -> None:
    """Serve the logs of a store over HTTP, as a validator does with `serve_port`, until Ctrl-C or SIGTERM.

    Anybody who reaches the address may read; records of races that are not released leave as stubs. The routes are
    listed at /openapi.json; `arena records tail --url` is the client. Pages of released traces say what each constraint
    asked and what was found, from the state folder's batches and catalogues, or over --catalogue.
    """
    from arena.web.server import TailServer
    from harness.catalogue.server import listen
    from neurons.race.log import open_explainer
    from neurons.settings.inputs import unix_ms

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with listen(host, port) as listener:
        async with store.open() as logs:
            explain = open_explainer(store.folder, catalogue).explain
            server = TailServer(logs, listener, now_ms=unix_ms, explain=explain, is_sn15_served=sn15)
            typer.echo(f"serving {counted(len(await logs.validators()), 'log')} at {server.address}; Ctrl-C stops it")
            await server.run(stop)


@options.command(app)
def costs(
    store: options.StoreFlags,
    by: Annotated[
        Literal["race", "agent", "day", "model", "endpoint"], typer.Option(help="What a row is of.")
    ] = "race",
) -> None:
    """Show what model endpoints were asked for and what it cost, faulted attempts included.

    Tokens are the endpoints' own counts, of agents' inference and, apart, of judges; prices stand with the tables
    `upstreams` of the settings file, and a request without a price is counted apart, never as free. A request that no
    endpoint answered stands under "none". Episodes are attempts at an endpoint with a model: one that used two models
    counts in both.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in store.run(lambda log: log.usage_totals()):
        group = {"race": one.race_id or one.stage, "agent": one.agent_version_id, "day": one.day, "model": one.model}
        named, asked_by = group.get(by, one.upstream or "none"), "judges" if one.is_judging else "agents"
        row = rows.setdefault((named, asked_by), {"group": named, "asked_by": asked_by})
        unpriced = one.requests if one.cost_micro_usd is None else 0
        sums = {**msgspec.structs.asdict(one), "cost_micro_usd": one.cost_micro_usd or 0, "unpriced": unpriced}
        for name in (*_COUNTS, "attempts", "probes", "latency_ms", "cost_micro_usd", "unpriced"):
            row[name] = row.get(name, 0) + sums[name]
    headings, cells = ("episodes", "requests", "tokens in", "out", "s each", "USD", "no price"), []
    for _, row in sorted(rows.items()):
        seconds = row["latency_ms"] / 1_000 / max(1, row["requests"])
        dollars = "?" if row["unpriced"] == row["requests"] else f"{row['cost_micro_usd'] / _MICRO:,.4f}"
        counts = (f"{row[name]:,}" for name in _COUNTS)
        name = "  judges" if row["asked_by"] == "judges" else row["group"][:_GROUP_CHARS]
        cells.append((name, *counts, f"{seconds:.2f}", dollars, f"{row['unpriced']:,}"))
    table = presenter.table_text((by, *headings), cells, right=headings)
    presenter.show(list(rows.values()), [table if rows else "no model was asked for anything yet"])


def record_line(record: model.SignedRecord, content: model.RecordContent, names: Mapping[str, str]) -> str:
    """One record in one line of 80 columns. `names`: of agent versions, where they are known."""
    payload = content.payload
    if isinstance(payload, model.SettlementRecord | model.ReleaseRecord):
        about = f"race {payload.race_id}"
    elif isinstance(payload, model.GateRecord):
        about = f"{payload.decided_by:<8} {presenter.agent_name(payload.subject.agent_version_id, names):<22}"
    else:
        about = f"{payload.context.problem_id[:8]} {presenter.agent_name(payload.subject.agent_version_id, names):<22}"
    when = _utc(content.recorded_ms)
    return printable(f"{record.seq:>6} {when} {kind_of(content):<10} {about} {result_of(payload, names)}")


def result_of(payload: model.Payload, names: Mapping[str, str]) -> str:
    """One payload's result in a few words."""
    if isinstance(payload, model.EvaluationRecord):
        if not isinstance(payload.outcome, OutcomeScore):
            return f"unscored {payload.outcome.failure.code}"
        ended = f" ({payload.failure.code})" if payload.failure else ""
        return ("success" if payload.outcome.is_success else "failure") + ended
    if isinstance(payload, model.VerdictRecord):
        verdict = payload.verdict
        return (
            f"quality {presenter.share_text(verdict.quality_e4)}"
            if isinstance(verdict, Verdict)
            else verdict.failure.code
        )
    if isinstance(payload, model.AttemptRecord):
        return payload.ended + (f" {payload.failure.code}" if payload.failure else "")
    if isinstance(payload, model.ReleaseRecord):
        return f"{counted(len(payload.problems), 'problem')} released"
    if isinstance(payload, model.GateRecord):
        return " ".join(part for part in (payload.outcome, payload.severity or payload.hold) if part)
    return f"{payload.state}, top {presenter.agent_name(payload.top_agent_version_id, names)}".strip()


def _utc(unix_ms: int) -> str:
    """A time of a record, in UTC to the second; as a number where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(unix_ms // 1_000, UTC):%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"


def record_row(record: model.SignedRecord, content: model.RecordContent | None) -> dict[str, Any]:
    """A record as JSON shows it: its envelope, and its content's builtins, or the text of one that was not decoded."""
    is_read = isinstance(content, model.RecordContent)
    plain = msgspec.to_builtins(content) if is_read else record.content.decode(errors="replace")
    return {**model.envelope_of(record), "content": plain}


def verify_folder(
    folder: Path,
    *,
    processes: int | None = None,
    cluster: str = "",
    state_dir: Path | None = None,
    points: Sequence[Checkpoint] = (),
    signer: str = "",
    subtensor: Subtensor | None = None,
) -> None:
    """What `arena records verify --export FOLDER` does: check an export on any machine, without a store.

    `processes` None: one a core, for exports of many records; `cluster`, where given, is in their place. `points`,
    `subtensor`: what stands outside of the export; the chain is asked when the export holds. `signer`: who has to have
    signed the manifest. Ends the command
    with exit code 4 when anything is wrong; the first wrong place is named first. Raises ArenaError V2052 when
    processes died, and V2207, V2060 for a cluster.
    """
    from arena.export.verification import Wrong, verify_export

    log: LogRange | None = None
    with contextlib.suppress(ArenaError):  # verification will say so
        log = read_manifest(folder).log
        for point in points:
            if point.validator != log.validator or not log.start.after_seq <= point.size <= log.last_seq:
                held = f"records {log.first_seq} to {log.last_seq} of {log.validator}"
                other = f"a checkpoint of {point.size} of {point.validator}"
                raise typer.BadParameter(f"the export holds {held}: it can't be compared with {other}")
        if subtensor is not None and not log.anchor_block:
            raise typer.BadParameter("--chain: the export's last checkpoint was not on chain when it was exported")
    records = log.last_seq - log.first_seq + 1 if log else 0
    tell = functools.partial(presenter.show_progress(), "verify")
    with open_executor(cluster, processes, records, state_dir=state_dir) as executor:
        report = verify_export(folder, verify_signature, executor=executor, progress=tell, checkpoints=points)
    fault = ""
    if report.is_ok and signer not in ("", report.signer):
        fault = f"signed by {report.signer or 'nobody'}, not by {signer}"
    elif report.is_ok and log is not None and subtensor is not None:
        at, note = log.anchor_block, log.end_note
        last = model.StoredCheckpoint(
            validator=log.validator, size=log.last_seq, note=note, signed_ms=0, anchor_block=at
        )
        try:
            require_anchor(last, asyncio.run(subtensor.commitment(log.validator, at)), verify_signature)
        except ArenaError as error:
            fault = f"anchor: {error.failure.detail}"
    if fault:
        report = msgspec.structs.replace(report, wrong=(Wrong(place=MANIFEST, detail=fault),))
    lines = [f"log of {report.validator}: records {report.first_seq} to {report.last_seq} are as signed"]
    lines += [f"compared with {counted(len(points), 'checkpoint')} kept elsewhere"] if points else []
    lines += ["its last checkpoint stands on chain, in the block it names"] if subtensor else []
    unsigned = "not signed: the records are the validator's, the manifest is anybody's (--signer HOTKEY demands one)"
    lines.append(f"manifest signed by {report.signer}" if report.signer else unsigned)
    lines.append(f"ok: {counted(report.trajectories, 'trajectory')}")
    for wrong in () if presenter.is_json() else report.wrong:
        typer.echo(printable(f"WRONG {wrong.place}: {wrong.detail}"), err=True)
    shown = {"ok": report.is_ok, **msgspec.to_builtins(report)}
    presenter.show(shown, lines if report.is_ok else (), 0 if report.is_ok else presenter.EXIT_INTEGRITY)


def report_lines(report: VerifyReport) -> Iterator[str]:
    """The verification's result: how far it went, what it could not check, and the bad records, the first one first."""
    from arena.records.verification import DEFECTS_KEPT

    kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    held = f"{counted(report.bodies, 'body')}, {counted(len(report.logs), 'log')}"
    yield f"{counted(report.records, 'record')} ({kinds or 'none'}), {held}"
    for log in report.logs:
        point = log.checkpoint
        size = counted(log.head.seq, "record")
        yield f"  {point.validator}  {size}  head {log.head.hash[:16]}  root {point.root[:16]}"
    if report.checkpoints:
        on_chain = f"{report.anchors_checked} of them with the chain"
        yield f"  compared with {counted(report.checkpoints, 'signed checkpoint')}, {on_chain}"
    if unchecked := report.anchors - report.anchors_checked:
        yield f"  anchors not checked against the chain: {unchecked}; --chain checks them"
    if report.sources:
        yield f"  {counted(report.sources, 'source')} of agents"
    if report.is_ok:
        yield "ok: every signature, link, body and reference holds"
        return
    for number, defect in enumerate(report.defects[:DEFECTS_SHOWN]):
        about = f"record {defect.seq} of {defect.validator}"
        text = f"V2050 {about} does not verify: " if number == 0 else f"      {about}: "
        yield printable(f"{text}{defect.rule}: {defect.detail}")
    if report.defect_count > DEFECTS_SHOWN:
        yield f"      and {report.defect_count - DEFECTS_SHOWN} more; up to {DEFECTS_KEPT} of them with --json"
