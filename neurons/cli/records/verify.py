"""`arena records verify`, `prove`, `schema` and `verifier`: what anybody can check, and what a stranger needs for it.

It reads stores and exports and never writes a record.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.records.export import processes_for, verify_folder
from neurons.cli.records.finding import MESSAGE_NOT_FOUND, find_record
from neurons.cli.store_reading import DsnOption, JsonOption, StateDirOption, ValidatorOption, run_on_store

if TYPE_CHECKING:
    from arena.chain.port import Subtensor
    from arena.records.log.checkpoint import Checkpoint
    from arena.records.model import SignedRecord
    from arena.records.verify.proof import Proof
    from arena.records.verify.sources import SourcesReport
    from arena.records.verify.verification import VerifyReport
    from arena.store.postgres.store import PostgresStore

EXIT_USAGE, EXIT_INTEGRITY = 2, 4
NETUID = 15

_Notes = Annotated[
    list[Path] | None, typer.Option("--checkpoint", help="A signed checkpoint the log must contain. Repeatable.")
]
_Since = Annotated[
    list[Path] | None,
    typer.Option("--since", help="A signed checkpoint: up to it check chain and tree only. Repeatable, one a log."),
]
_Chain = Annotated[str, typer.Option("--chain", help="Compare anchors with this network: local, finney, test, a URL.")]
_Processes = Annotated[
    int | None,
    typer.Option("--processes", min=0, help="Processes that verify; 0: only this one. Default: cores."),
]


def verify(
    export: Annotated[Path | None, typer.Option("--export", help="Check an exported folder, without a store.")] = None,
    checkpoint: _Notes = None,
    since: _Since = None,
    chain: _Chain = "",
    netuid: Annotated[int, typer.Option("--netuid", min=0, help="The subnet on --chain.")] = NETUID,
    processes: _Processes = None,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every signature, hash, link, body and reference of every log this login may read.

    A validator's own login reads its own log; give the owner's with --dsn to check all logs of a shared server.

    Ends with 0 when nothing is wrong. Ends with 4 when something is, and names the first bad record. The log's stored
    checkpoints are checked too, how the store files each record, and the agents' sources kept beside the log. A log
    whose tail was cut together with its head and checkpoints looks whole from inside: give a checkpoint that was kept
    elsewhere, or let the chain answer for those it anchors (--chain).

    An export is held against itself first, then against the checkpoints given here, and with --chain against the block
    it names.

    With --since, records up to that checkpoint are not read again: their links and hashes must lead to the root it
    signs, and everything after them is checked in full.
    """
    from neurons.cli.records import view as view

    if export is not None:
        if since:
            raise typer.BadParameter("--since is for a store: an export begins behind the records of an earlier one")
        verify_folder(
            export,
            as_json=as_json,
            processes=processes,
            points=_read_points(checkpoint or []),
            subtensor=_subtensor(chain, netuid, state_dir),
        )
        return
    report, sources = run_on_store(
        dsn,
        state_dir,
        lambda store: _verify(
            store, checkpoint or [], since or [], _subtensor(chain, netuid, state_dir), processes, is_quiet=as_json
        ),
    )
    is_ok = report.is_ok and not sources.defects
    if as_json:
        view.echo_json({"ok": is_ok, **view.plain(report), "sources": view.plain(sources)})
    else:
        for line in (*view.source_lines(sources), *view.report_lines(report)):
            typer.echo(line)
    if not is_ok:
        raise typer.Exit(EXIT_INTEGRITY)


def prove(
    which: Annotated[
        str, typer.Argument(metavar="SEQ|ID", help="Record number, or beginning of a record, body or attempt id.")
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write the proof to.")],
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Signed checkpoint to prove under. Default: the newest stored.")
    ] = None,
    older: Annotated[
        Path | None, typer.Option("--from", help="An older signed checkpoint: prove that nothing in it was changed.")
    ] = None,
    content: Annotated[
        Path | None, typer.Option("--content", help="Also write the record's content here, byte for byte.")
    ] = None,
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    validator: ValidatorOption = "",
) -> None:
    """Write a proof that a record stands in the log whose state its validator signed.

    Whoever gets the file checks it with `arena records verifier`, one short script that needs nothing but Python. The
    proof says nothing about what the record holds; its content is a file of its own, and what it says about a problem
    is not public before the problem's release.
    """
    from arena.records.verify.proof import encode_proof

    notes = [_read_note(path) if path else "" for path in (checkpoint, older)]
    found = run_on_store(dsn, state_dir, lambda store: _prove(store, which, validator, *notes))
    if found is None:
        typer.echo(MESSAGE_NOT_FOUND.format(which=which), err=True)
        raise typer.Exit(EXIT_USAGE)
    proof, record = found
    out.write_bytes(encode_proof(proof))
    typer.echo(f"{out}: record {proof.seq} of {proof.validator}, {len(proof.inclusion)} hashes to the signed root")
    if content:
        content.write_bytes(record.content)
        typer.echo(f"{content}: its content, {len(record.content)} bytes")
    typer.echo(f"check: arena records verifier > verify_proof.py; python verify_proof.py {out}")


def schema(
    name: Annotated[str, typer.Argument(metavar="record|body", help="Record contents, or bodies.")] = "record",
) -> None:
    """Print the JSON Schema of records or bodies: every field with its type and its meaning."""
    from arena.records.json_schema import SCHEMA_NAMES, published_schema

    for known in SCHEMA_NAMES:
        if name == known:
            typer.echo(published_schema(known), nl=False)
            return
    raise typer.BadParameter(f"there is no schema {name!r}; there are {' and '.join(SCHEMA_NAMES)}")


def verifier() -> None:
    """Print the stand-alone script that checks a proof: under 200 lines, standard library only, to be read first."""
    from importlib.resources import files

    typer.echo(files("arena.records.verify").joinpath("verify_proof.py").read_text("utf-8"), nl=False)


async def _verify(
    store: PostgresStore,
    checkpoints: list[Path],
    since: list[Path],
    subtensor: Subtensor | None,
    processes: int | None,
    *,
    is_quiet: bool,
) -> tuple[VerifyReport, SourcesReport]:
    import contextlib

    from arena.chain.keys import verify as verify_signature
    from arena.records.verify.sources import verify_sources
    from arena.records.verify.verification import verify_store
    from neurons.cli.progress import show_progress

    points, begins = _read_points(checkpoints), _read_points(since)
    total = sum([(await store.head(name)).seq for name in await store.validators()])
    if processes is None:
        processes = processes_for(total)
    with contextlib.nullcontext() if is_quiet else show_progress() as progress:
        report = await verify_store(
            store,
            verify_signature,
            checkpoints=points,
            since=begins,
            subtensor=subtensor,
            processes=processes,
            progress=(lambda done: progress("verify", done, max(total, done))) if progress else None,
        )
    return report, await verify_sources(store.sources())


def _read_points(paths: list[Path]) -> list[Checkpoint]:
    """The signed checkpoints of these files. Raises ArenaError V2050 for one that its validator did not sign, V2027 for
    a file that can't be read."""
    from arena.chain.keys import verify as verify_signature
    from arena.records.log.checkpoint import read_checkpoint

    return [read_checkpoint(_read_note(path), verify_signature) for path in paths]


def _read_note(path: Path) -> str:
    from foundation.errors import ArenaError

    try:
        return path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise ArenaError("V2027", f"{path}: {error.strerror or error}") from error


def _subtensor(chain: str, netuid: int, state_dir: Path | None) -> Subtensor | None:
    from arena.chain.opening import open_subtensor
    from arena.store.location import default_state_dir
    from neurons.node.wiring import unix_ms

    if not chain:
        return None
    return open_subtensor(chain, netuid=netuid, state_dir=state_dir or default_state_dir(), now_ms=unix_ms)


async def _prove(
    store: PostgresStore, which: str, validator: str, note: str, older_note: str
) -> tuple[Proof, SignedRecord] | None:
    from arena.chain.keys import verify as verify_signature
    from arena.records.verify.proof import prove as prove_record
    from foundation.errors import ArenaError

    found = await find_record(store, which, validator)
    if found is None:
        return None
    record, _ = found
    if not note:
        covering = await store.checkpoints(record.validator, after_size=record.seq - 1)
        if not covering:
            raise ArenaError("V2053", f"no stored checkpoint of {record.validator} covers record {record.seq} yet")
        note = covering[-1].note
    return await prove_record(store, record.validator, record.seq, note, verify_signature, older_note=older_note)
