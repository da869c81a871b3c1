"""`arena records verify` and `prove`: what anybody can check, and what a stranger needs for it.

It reads stores and exports and never writes a record. An export carries its own checkpoints, and a forger with the
validator's key could sign others; what was kept elsewhere or committed on chain he cannot change. So an export that
verifies by itself is also held against those.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from arena.chain.keys import verify as verify_signature
from arena.chain.port import Subtensor
from arena.export.files import MANIFEST, bring_export, is_location, read_manifest
from arena.records.log import Checkpoint, read_checkpoint, require_anchor
from arena.records.model import StoredCheckpoint
from foundation.errors import ArenaError, printable
from neurons.cli.options import MESSAGE_NOT_FOUND, ClusterOption, StoreFlags, ValidatorOption, find_record
from neurons.cli.presenter import EXIT_INTEGRITY, EXIT_USAGE, is_json, refuse, show, show_progress

if TYPE_CHECKING:
    from arena.records.verification import VerifyReport
    from arena.store.postgres import PostgresStore

NETUID = 15
DEFECTS_SHOWN = 10


def verify(
    store: StoreFlags,
    export: Annotated[str | None, typer.Option(help="Check an export: a folder, or s3://bucket/prefix.")] = None,
    checkpoint: Annotated[list[Path] | None, typer.Option(help="Signed checkpoint that the log must contain.")] = None,
    signer: Annotated[str, typer.Option(help="Hotkey that has to have signed the --export.")] = "",
    chain: Annotated[str, typer.Option(help="Compare anchors with this network: local, finney, test, a URL.")] = "",
    netuid: Annotated[int, typer.Option(min=0, help="The subnet on --chain.")] = NETUID,
    processes: Annotated[int | None, typer.Option(min=0, help="Processes; 0: only this one. Default: cores.")] = None,
    cluster: ClusterOption = "",
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
    from neurons.settings.inputs import unix_ms

    subtensor = None
    if chain:
        subtensor = open_subtensor(chain, netuid=netuid, state_dir=store.folder, now_ms=unix_ms)
    if export is not None:
        if is_location(export):
            with show_progress() as progress:
                below = store.folder / "exports"
                folder = bring_export(export, below, functools.partial(progress, "fetch"))
        elif not (folder := Path(export)).is_dir():
            raise typer.BadParameter(f"there is no folder {export}", param_hint="--export")
        verify_folder(
            folder,
            processes=processes,
            cluster=cluster,
            state_dir=store.state_dir,
            points=_read_points(checkpoint or []),
            signer=signer,
            subtensor=subtensor,
        )
        return
    report = store.run(
        lambda logs: _verify(logs, checkpoint or [], subtensor, processes),
        is_owner=True,  # every log that a state folder holds, also one of another hotkey
    )
    show({"ok": report.is_ok, **msgspec.to_builtins(report)}, report_lines(report))
    if not report.is_ok:
        raise typer.Exit(EXIT_INTEGRITY)


async def prove(
    which: Annotated[str, typer.Argument(metavar="SEQ|ID", help="Record number, or beginning of an id.")],
    store: StoreFlags,
    out: Annotated[Path, typer.Option(help="File to write the proof to.")],
    older: Annotated[Path | None, typer.Option("--from", help="Older checkpoint: prove that it still holds.")] = None,
    content: Annotated[Path | None, typer.Option(help="Also write the record's content here, byte for byte.")] = None,
    validator: ValidatorOption = "",
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
        found = await find_record(log, which, validator)
        if found is None:
            raise refuse(MESSAGE_NOT_FOUND.format(which=which), EXIT_USAGE)
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
    from neurons.cluster.ray_executor import open_executor

    try:
        log = read_manifest(folder).log
        records = log.last_seq - log.first_seq + 1
    except ArenaError:  # verification will say so
        records = 0
    else:
        for point in points:
            if point.validator != log.validator or not log.start.after_seq <= point.size <= log.last_seq:
                held = f"records {log.first_seq} to {log.last_seq} of {log.validator}"
                other = f"a checkpoint of {point.size} of {point.validator}"
                raise typer.BadParameter(f"the export holds {held}: it can't be compared with {other}")
        if subtensor is not None and not log.anchor_block:
            raise typer.BadParameter("--chain: the export's last checkpoint was not on chain when it was exported")
    with open_executor(cluster, processes, records, state_dir=state_dir) as executor, show_progress() as progress:
        report = verify_export(
            folder,
            verify_signature,
            executor=executor,
            progress=functools.partial(progress, "verify"),
            checkpoints=points,
        )
    if report.is_ok and signer not in ("", report.signer):
        wrong = Wrong(place=MANIFEST, detail=f"signed by {report.signer or 'nobody'}, not by {signer}")
        report = msgspec.structs.replace(report, wrong=(wrong,))
    if report.is_ok and subtensor is not None:
        log = read_manifest(folder).log
        at, note = log.anchor_block, log.end_note
        last = StoredCheckpoint(validator=log.validator, size=log.last_seq, note=note, signed_ms=0, anchor_block=at)
        committed = asyncio.run(subtensor.commitment(log.validator, log.anchor_block))
        try:
            require_anchor(last, committed, verify_signature)
        except ArenaError as error:
            wrong = Wrong(place=MANIFEST, detail=f"anchor: {error.failure.detail}")
            report = msgspec.structs.replace(report, wrong=(wrong,))
    lines = [f"log of {report.validator}: records {report.first_seq} to {report.last_seq} are as signed"]
    lines += [f"compared with {len(points)} checkpoints that were kept elsewhere"] if points else []
    lines += ["its last checkpoint stands on chain, in the block it names"] if subtensor else []
    unsigned = "not signed: the records are the validator's, the manifest is anybody's (--signer HOTKEY demands one)"
    lines.append(f"manifest signed by {report.signer}" if report.signer else unsigned)
    lines.append(f"ok: {report.trajectories:,} trajectories")
    show({"ok": report.is_ok, **msgspec.to_builtins(report)}, lines if report.is_ok else ())
    for wrong in () if is_json() else report.wrong:
        typer.echo(printable(f"WRONG {wrong.place}: {wrong.detail}"), err=True)
    if not report.is_ok:
        raise typer.Exit(EXIT_INTEGRITY)


async def _verify(
    store: PostgresStore, checkpoints: list[Path], subtensor: Subtensor | None, processes: int | None
) -> VerifyReport:
    from arena.records.verification import verify_store
    from neurons.cluster.ray_executor import open_executor

    total = sum([(await store.head(name)).seq for name in await store.validators()])
    with show_progress() as progress, open_executor("", processes, total, state_dir=None) as executor:
        return await verify_store(
            store,
            verify_signature,
            checkpoints=_read_points(checkpoints),
            sources=store.sources(),
            subtensor=subtensor,
            executor=executor,
            progress=lambda done, _: progress("verify", done, max(total, done)),
        )


def _read_points(paths: list[Path]) -> list[Checkpoint]:
    """The signed checkpoints of these files. Raises ArenaError V2050 for one not signed by its validator, OSError."""
    return [read_checkpoint(path.read_bytes().decode(errors="replace"), verify_signature) for path in paths]


def report_lines(report: VerifyReport) -> Iterator[str]:
    """The verification's result: how far it went, what it could not check, and the bad records, the first one first."""
    from arena.records.verification import DEFECTS_KEPT

    kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    yield f"{report.records} records ({kinds or 'none'}), {report.bodies} bodies, {len(report.logs)} logs"
    for log in report.logs:
        point = log.checkpoint
        yield f"  {point.validator}  {log.head.seq} records  head {log.head.hash[:16]}  root {point.root[:16]}"
    if report.checkpoints:
        on_chain = f"{report.anchors_checked} of them with the chain"
        yield f"  compared with {report.checkpoints} signed checkpoints, {on_chain}"
    if unchecked := report.anchors - report.anchors_checked:
        yield f"  anchors not checked against the chain: {unchecked}; --chain checks them"
    if report.sources:
        yield f"  {report.sources} sources of agents"
    if report.is_ok:
        yield "ok: every signature, link, body and reference holds"
        return
    for number, defect in enumerate(report.defects[:DEFECTS_SHOWN]):
        about = f"record {defect.seq} of {defect.validator}"
        text = f"V2050 {about} does not verify: " if number == 0 else f"      {about}: "
        yield printable(f"{text}{defect.rule}: {defect.detail}")
    if report.defect_count > DEFECTS_SHOWN:
        yield f"      and {report.defect_count - DEFECTS_SHOWN} more; up to {DEFECTS_KEPT} of them with --json"
