"""`arena records export`: records of a validator as files that anybody can check.

It reads the store and never writes to it; what goes out is decided by `arena.export`, not here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.signing import NetworkOption, WalletHotkeyOption, WalletNameOption, WalletPathOption, open_signing_key
from neurons.cli.store_reading import DsnOption, JsonOption, StateDirOption, ValidatorOption, logs_of, run_on_store

if TYPE_CHECKING:
    from arena.chain.port import Signer, Subtensor
    from arena.export.model import Cursor, Manifest, Request
    from arena.records.log.checkpoint import Checkpoint
    from arena.store.postgres.store import PostgresStore

EXIT_USAGE, EXIT_INTEGRITY = 2, 4
PARALLEL_FROM = 2_000  # records from which starting processes pays
_E4 = 10_000
_WHY = {
    "unreleased": "their race is not released yet; a later export brings them",
    "pool": "of a pool that was not asked for (--pool)",
    "filter": "left out by your filters",
    "exported": "brought by an earlier export",
    "secret": "hold what looks like a credential; the views have them with it removed",
    "oversize": "larger than --max-bytes",
    "undecodable": "can't be read: quarantined",
}

OutOption = Annotated[Path, typer.Option("--out", help="Folder to write, empty or holding this export unfinished.")]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        help="jsonl, parquet, messages, datasets, inspect or verifiers. Repeatable; the log is always there.",
    ),
]
PoolOption = Annotated[
    list[str] | None, typer.Option("--pool", help="train (default), dev, eval or never_touch. Repeatable.")
]
DayOption = Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="UTC day of recording, inclusive.")]
RaceOption = Annotated[list[str] | None, typer.Option("--race", help="Only this race. Repeatable.")]
AgentOption = Annotated[
    list[str] | None, typer.Option("--agent", help="Only this agent version id or miner hotkey. Repeatable.")
]
BucketOption = Annotated[list[str] | None, typer.Option("--bucket", help="product, shop or voucher. Repeatable.")]
CoefficientOption = Annotated[
    float, typer.Option("--min-coefficient", min=0.0, max=1.0, help="Least reasoning coefficient of the verdict.")
]
AgenticOption = Annotated[bool, typer.Option("--agentic", help="Only runs whose calls came from the model.")]
SinceOption = Annotated[
    Path | None, typer.Option("--since-cursor", help="Go on from this finished export: bring what is new since.")
]
RowsOption = Annotated[int, typer.Option("--rows-per-shard", min=1, help="Trajectories in one shard.")]
BytesOption = Annotated[int, typer.Option("--max-bytes", min=1, help="Largest record with its body, in bytes.")]


def export(
    out: OutOption,
    formats: FormatOption = None,
    pool: PoolOption = None,
    from_day: DayOption = "",
    to_day: DayOption = "",
    race: RaceOption = None,
    agent: AgentOption = None,
    bucket: BucketOption = None,
    min_coefficient: CoefficientOption = 0.0,
    agentic: AgenticOption = False,
    since_cursor: SinceOption = None,
    rows_per_shard: RowsOption = 1_000,
    max_bytes: BytesOption = 4 << 20,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
    wallet_name: WalletNameOption = "",
    wallet_hotkey: WalletHotkeyOption = "",
    wallet_path: WalletPathOption = "",
    network: NetworkOption = "",
    as_json: JsonOption = False,
) -> None:
    """Export released trajectories with the signed log they come from.

    Every record up to the newest signed checkpoint stands in OUT/log, whole or as a stub with its reason, so that
    `arena records verify --export OUT` can check the lot on any machine, without a store. Nothing of a race goes out
    before its release. With --wallet.hotkey, the log's own, the manifest is signed too, and with it what was left out:
    `arena corpus build` wants that. Killed half-way? Give the same command again: it goes on behind the last finished
    shard.

    arena records export --out day1 --format parquet --format messages

    arena records export --out day2 --format parquet --since-cursor day1
    """
    from foundation.errors import ArenaError

    request = _request(
        formats=formats or ["jsonl"],
        pools=pool or ["train"],
        rows_per_shard=rows_per_shard,
        row_bytes_max=max_bytes,
        filters={
            "from_day": from_day,
            "to_day": to_day,
            "races": race or [],
            "agents": agent or [],
            "buckets": bucket or [],
            "coefficient_e4_min": round(min_coefficient * _E4),
            "is_agentic_only": agentic,
        },
    )
    if since_cursor is not None and not since_cursor.exists():
        raise ArenaError("V2072", f"{since_cursor} does not exist")
    signer = open_signing_key(wallet_name, wallet_hotkey, wallet_path, network) if wallet_hotkey else None
    manifest = run_on_store(dsn, state_dir, lambda store: _export(store, request, out, validator, since_cursor, signer))
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(manifest).decode())
        return
    for line in summary_lines(manifest, out):
        typer.echo(line)


def verify_folder(
    folder: Path,
    *,
    as_json: bool,
    processes: int | None = None,
    points: Sequence[Checkpoint] = (),
    subtensor: Subtensor | None = None,
) -> None:
    """What `arena records verify --export FOLDER` does: check an export on any machine, without a store.

    `processes` None: one a core, for exports of many records. `points`, `subtensor`: what stands outside of the export
    (`hold_against`), asked when it holds by itself. Ends the command with exit code 4 when anything is wrong;
    the first wrong place is named first. Raises ArenaError V2052 or V2087 when a process died.
    """
    import msgspec

    from arena.chain.keys import verify as verify_signature
    from arena.export.verify.verification import verify_export
    from neurons.cli.progress import show_progress
    from neurons.cli.records.view import printable
    from neurons.cli.records.witness import hold_against

    if processes is None:
        processes = processes_for(_records_in(folder))
    with show_progress() as progress:
        report = verify_export(
            folder,
            verify_signature,
            processes=processes,
            progress=lambda done, total: progress("verify", done, total),
        )
    if report.is_ok:
        report = msgspec.structs.replace(report, wrong=hold_against(folder, points, subtensor))
    if as_json:
        typer.echo(msgspec.json.encode({"ok": report.is_ok, **msgspec.to_builtins(report)}).decode())
    else:
        for wrong in report.wrong:
            typer.echo(printable(f"WRONG {wrong.place}: {wrong.detail}"), err=True)
        if report.is_ok:
            signed = f"manifest signed by {report.signer}" if report.signer else "manifest not signed"
            typer.echo(f"log of {report.validator}: records {report.first_seq} to {report.last_seq} are as signed")
            if points:
                typer.echo(f"compared with {len(points)} checkpoints that were kept elsewhere")
            if subtensor:
                typer.echo("its last checkpoint stands on chain, in the block it names")
            typer.echo(f"ok: {report.trajectories:,} trajectories; {signed}")
    if not report.is_ok:
        raise typer.Exit(EXIT_INTEGRITY)


def processes_for(records: int) -> int:
    """One process a core where there are so many records that starting them pays, else 0."""
    return len(os.sched_getaffinity(0)) if records >= PARALLEL_FROM else 0


def summary_lines(manifest: Manifest, out: Path) -> list[str]:
    """What an export holds, what it leaves out and why, and how to go on."""
    log, size_mb = manifest.log, sum(file.size_bytes for file in manifest.files) / 1e6
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in manifest.records.items())
    lines = [
        f"{out}: {manifest.trajectories:,} trajectories in {len(manifest.files)} files, {size_mb:,.1f} MB",
        f"log of {log.validator}: records {log.first_seq} to {log.last_seq}; whole: {kinds or 'none'}",
    ]
    lines += [f"left out: {count:,} {_WHY[reason]}" for reason, count in manifest.withheld.items()]
    if manifest.quarantined:
        lines.append(f"quarantined: {', '.join(map(str, manifest.quarantined))}")
    if manifest.scrubbed:
        lines.append(f"credentials removed from the views of {manifest.scrubbed:,} trajectories")
    lines.append(f"check it:  arena records verify --export {out}")
    lines.append(f"go on:     arena records export --since-cursor {out} --out NEXT")
    return lines


def _request(**fields: object) -> Request:
    """The request of these options, its validator still open. Raises ArenaError V2073 for a word that is none."""
    import msgspec

    from arena.export.model import Request
    from arena.export.selection import check_request
    from foundation.errors import ArenaError

    try:
        request = msgspec.convert({"validator": "", **fields}, Request)
    except msgspec.ValidationError as error:
        raise ArenaError("V2073", str(error)) from error
    check_request(request)
    return request


async def _export(
    store: PostgresStore, request: Request, out: Path, validator: str, since: Path | None, signer: Signer | None
) -> Manifest:
    import msgspec

    from arena.chain.keys import verify as verify_signature
    from arena.export.writing.exporter import continued, export_records
    from arena.export.writing.manifest import read_manifest
    from neurons.cli.progress import show_progress

    previous = read_manifest(since) if since else None
    names = await logs_of(store, validator or (previous.request.validator if previous else ""))
    if len(names) != 1:
        logs = ", ".join(names) or "none"
        raise typer.BadParameter(f"name one log with --validator; this store has: {logs}")
    request = msgspec.structs.replace(request, validator=names[0])
    start: Cursor | None = continued(previous, request) if previous else None
    with show_progress() as progress:
        return await export_records(
            store,
            request,
            out,
            verify_signature=verify_signature,
            software=_software(),
            start=start,
            signer=signer,
            processes=processes_for((await store.head(names[0])).seq - (start.after_seq if start else 0)),
            progress=lambda done, total: progress("export", done, total),
        )


def _records_in(folder: Path) -> int:
    """The records an export says it covers, 0 where its manifest can't be read: verification will say so."""
    from arena.export.writing.manifest import read_manifest
    from foundation.errors import ArenaError

    try:
        log = read_manifest(folder).log
    except ArenaError:
        return 0
    return log.last_seq - log.first_seq + 1


def _software() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"agent-arena {version('agent-arena')}"
    except PackageNotFoundError:
        return "agent-arena (from a checkout)"
