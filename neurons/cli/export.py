"""`arena records export`: records of a validator as files that anybody can check.

It reads the store and never writes to it; what goes out is decided by `arena.export`, not here.
"""

from __future__ import annotations

import functools
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from foundation.errors import ArenaError
from neurons.cli.options import JsonOption, StoreFlags, ValidatorOption, WalletFlags, logs_of
from neurons.cli.presenter import show, show_progress

if TYPE_CHECKING:
    from arena.chain.port import Signer
    from arena.export.model import Cursor, Manifest, Request
    from arena.store.postgres import PostgresStore

_Texts = list[str] | None


def _many(name: str, about: str) -> Any:
    return typer.Option(name, help=f"{about} Repeatable.")


def export(
    out: Annotated[Path, typer.Option("--out", help="Folder to write; it must hold nothing.")],
    store: StoreFlags,
    wallet: WalletFlags,
    formats: Annotated[
        _Texts,
        _many(
            "--format",
            "jsonl, parquet, messages, datasets, inspect or verifiers. Default: the log and Parquet.",
        ),
    ] = None,
    pool: Annotated[_Texts, _many("--pool", "train (default), dev, eval or never_touch.")] = None,
    from_day: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="UTC day of recording, inclusive.")] = "",
    to_day: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="UTC day of recording, inclusive.")] = "",
    race: Annotated[_Texts, _many("--race", "Only this race.")] = None,
    agent: Annotated[_Texts, _many("--agent", "Only this agent version id or miner hotkey.")] = None,
    bucket: Annotated[_Texts, _many("--bucket", "product, shop or voucher.")] = None,
    min_coefficient: Annotated[
        float, typer.Option("--min-coefficient", min=0.0, max=1.0, help="Least reasoning coefficient of the verdict.")
    ] = 0.0,
    agentic: Annotated[bool, typer.Option("--agentic", help="Only runs whose calls came from the model.")] = False,
    since_cursor: Annotated[
        Path | None, typer.Option("--since-cursor", exists=True, help="A finished export: bring what is new since.")
    ] = None,
    arguments: Annotated[
        str,
        typer.Option(metavar="text|object", help="How `messages` show calls' arguments (FORMATS.md says which model)."),
    ] = "text",
    validator: ValidatorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Export released trajectories with the signed log they come from.

    Every record up to the newest signed checkpoint stands in OUT/log, whole or as a stub with its reason, so that
    `arena records verify --export OUT` can check the lot on any machine, without a store. OUT/README.md is a dataset
    card: what is in it, and how to read it. Nothing of a race goes out before its release, nor a winner's source before
    its embargo has ended. With --wallet.hotkey, the log's own, the manifest is signed too, and with it what was left
    out: `arena corpus build` wants that. OUT appears when it is whole; stopped half-way, give the command again.

    arena records export --out day1 --format parquet --format messages

    arena records export --out day2 --format parquet --since-cursor day1
    """
    from arena.export.assembly import check_request
    from arena.export.model import Filters, Request

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
    manifest = store.run(lambda log: _export(log, request, out, validator, since_cursor, signer))
    show(manifest, summary_lines(manifest, out), as_json=as_json)


def summary_lines(manifest: Manifest, out: Path) -> list[str]:
    """What an export holds, what it leaves out and why, and how to go on."""
    from arena.export.card import WITHHELD
    from arena.export.files import SOURCES

    log, size_mb = manifest.log, sum(file.size_bytes for file in manifest.files) / 1e6
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in manifest.records.items())
    lines = [
        f"{out}: {manifest.trajectories:,} trajectories in {len(manifest.files)} files, {size_mb:,.1f} MB",
        f"log of {log.validator}: records {log.first_seq} to {log.last_seq}; whole: {kinds or 'none'}",
    ]
    lines += [f"{count:,} records skipped: {WITHHELD[reason]}" for reason, count in manifest.withheld.items()]
    if manifest.quarantined:
        lines.append(f"quarantined: {', '.join(map(str, manifest.quarantined))}")
    if manifest.scrubbed:
        lines.append(f"credentials removed from the views of {manifest.scrubbed:,} trajectories")
    opened = sum(file.path.startswith(f"{SOURCES}/") for file in manifest.files)
    lines.append(f"files of {opened:,} agents; agents.jsonl says of each other agent why its file is not here yet")
    lines.append(f"read it:   {out / 'README.md'}")
    lines.append(f"check it:  arena records verify --export {out}")
    lines.append(f"go on:     arena records export --since-cursor {out} --out NEXT")
    return lines


async def _export(
    store: PostgresStore, request: Request, out: Path, validator: str, since: Path | None, signer: Signer | None
) -> Manifest:

    from arena.chain.keys import verify as verify_signature
    from arena.export.exporter import continued, export_records
    from arena.export.files import read_manifest

    previous = read_manifest(since) if since else None
    names = await logs_of(store, validator or (previous.request.validator if previous else ""))
    if len(names) != 1:
        logs = ", ".join(names) or "none"
        raise typer.BadParameter(f"name one log with --validator; this store has: {logs}")
    request = msgspec.structs.replace(request, validator=names[0])
    start: Cursor | None = continued(previous, request) if previous else None
    try:
        software = f"agent-arena {version('agent-arena')}"
    except PackageNotFoundError:
        software = "agent-arena (from a checkout)"
    with show_progress() as progress:
        return await export_records(
            store,
            request,
            out,
            verify_signature=verify_signature,
            software=software,
            now_ms=int(time.time() * 1000),
            start=start,
            signer=signer,
            progress=functools.partial(progress, "export"),
        )
