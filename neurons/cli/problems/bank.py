"""`arena problems seal`, `stock` and `release`: batches for coming races, and the release of a finished one."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.exit_codes import EXIT_FAILED, EXIT_INTEGRITY
from neurons.cli.options import (
    CatalogueOption,
    ClosesPolicyOption,
    DocumentsOption,
    DsnOption,
    JsonLinesOption,
    NetworkOption,
    ProblemFiles,
    StateDirOption,
    WalletHotkeyOption,
    WalletNameOption,
    WalletPathOption,
    open_signing_key,
)
from neurons.cli.presenter import show
from neurons.cli.problems.reading import has_catalogue, read_classes, read_files, read_release, refuse_existing
from neurons.cli.progress import show_progress
from neurons.cli.store_reading import run_on_store, state_folder

if TYPE_CHECKING:
    from arena.bank.batches.disclosure import Disclosure
    from arena.bank.batches.sealed_file import BatchNotice, SealedFile
    from arena.bank.partition_file import PoolAssignment
    from arena.chain.port import Signer, Timelock
    from arena.store.postgres.store import PostgresStore
    from problems.model import Problem
    from problems.pools.product_classes import ProductClasses


def seal(
    paths: ProblemFiles,
    out: Annotated[Path, typer.Option(help="Folder for the sealed files; those that stand there are continued.")],
    races: Annotated[int, typer.Option(min=1, max=400, help="For how many races.")] = 30,
    size: Annotated[int, typer.Option(min=0, help="Problems a batch; 0: as many as the policy says.")] = 0,
    policy: ClosesPolicyOption = "",
    partition: Annotated[
        Path | None, typer.Option(help="The bank's private partition file; the problems are entered into it.")
    ] = None,
    titles: Annotated[
        Path | None, typer.Option(help="Title release of these problems; each batch takes its own part inside.")
    ] = None,
    documents: DocumentsOption = None,
    catalogue: CatalogueOption = None,
    wallet_name: WalletNameOption = "",
    wallet_hotkey: WalletHotkeyOption = "",
    wallet_path: WalletPathOption = "",
    network: NetworkOption = "",
    as_json: JsonLinesOption = False,
) -> None:
    """Seal batches for the coming races: signed, and encrypted to the beacon's round after each race's close.

    Writes one NAME.sealed.json (for validators: whoever holds it can read it once the round is out) and one
    NAME.notice.json (public: commitments, random ids, round, signature) a race. Nobody can read a sealed file before
    its round, you included; keep the problem files apart, or delete them. On the network `local` the beacon is the
    twin, and there is no secret; elsewhere --partition and --titles have to be given. Run it again to continue where
    the folder ends. Next: `arena operator publish OUT`, which brings them to every validator.
    """
    from arena.bank.batches.sealing import deal, lock_all
    from arena.bank.stock.sealed_stock import SealedStock
    from arena.chain.keys import verify
    from arena.chain.opening import open_beacon, open_timelock
    from arena.chain.port import is_local
    from arena.race.state.schedule import coming_closes_ms
    from neurons.node.public_inputs import policy_of
    from neurons.node.settings import resolve
    from neurons.node.wiring import unix_ms
    from problems.scoring.title_matching import cut_titles

    settings = resolve({"policy": policy, "network": network}).settings
    rules = policy_of(settings)
    if rules.race.closes_after_ms is not None:
        raise typer.BadParameter(
            f"races of policy {rules.name} close some time after they open: no round can be known ahead",
            param_hint="--policy",
        )
    is_real = not is_local(settings.network)  # whose validators will ask both of every batch
    if is_real and partition is None:
        raise typer.BadParameter("a real network's batches name their pools", param_hint="--partition")
    if is_real and titles is None:
        raise typer.BadParameter("a real network's batches hold their accepted titles", param_hint="--titles")
    problems = read_files(paths)
    accepted = cut_titles(read_release(titles), problems) if titles else None
    signer = open_signing_key(wallet_name, wallet_hotkey, wallet_path, network)
    timelock, beacon = open_timelock(settings.network), open_beacon(settings.network, unix_ms)
    before = SealedStock(out, signer.hotkey, verify, timelock, beacon).notices()
    start_ms = max([unix_ms(), *(timelock.opens_ms(notice.round) for notice in before)])
    closes_ms = coming_closes_ms(start_ms, rules.race, races)
    assigned = _assigned(problems, partition, signer, documents, catalogue)
    used = frozenset(problem_id for notice in before for problem_id in notice.problem_ids)
    dealt = deal(assigned, closes_ms, size or rules.race.batch_problems, used)
    locked = lock_all(
        dealt,
        timelock=timelock,
        beacon=beacon,
        signer=signer,
        random_bytes=secrets.token_bytes,
        now_ms=unix_ms,
        titles=accepted,
    )
    made = _write_sealed(out, locked, races)
    _show_sealed(made, assigned, timelock, as_json)
    if not as_json:
        typer.echo(
            f"{len(made)} batches in {out}: *.sealed.json for validators, *.notice.json for everybody\n"
            f"next: arena operator publish {out}; validators set operator_hotkey = {signer.hotkey}"
        )


def stock(
    state_dir: StateDirOption = None,
    policy: ClosesPolicyOption = "",
    network: NetworkOption = "",
    bank_hotkey: Annotated[
        str, typer.Option("--bank-hotkey", help="Whose sealed batches count; empty: the node's own stock.")
    ] = "",
    as_json: JsonLinesOption = False,
) -> None:
    """Show for how long a node's bank lasts, and how old it is.

    Counts the coming races, in the order of their closes, up to the first that has no batch. Exit code 1 when that is
    sooner than the setting bank_days_min (30 days): seal more with `arena problems seal`, or add problem files.
    """
    from arena.bank.stock.level import DAY_MS
    from arena.bank.stock.sealed_stock import SUFFIX
    from neurons.node.bank_preparation import measure_stock
    from neurons.node.released_settings import with_held_release
    from neurons.node.settings import resolve
    from neurons.node.wiring import unix_ms

    flags = {"state_dir": state_dir, "policy": policy, "network": network, "bank_hotkey": bank_hotkey}
    settings, now_ms = with_held_release(resolve(flags).settings), unix_ms()
    level = measure_stock(settings, now_ms)
    is_low = level.is_low(settings.bank_days_min)
    row = {
        "folder": str(settings.state_dir / "bank"),
        "bank": settings.bank_hotkey or "own stock",
        "races": level.races,
        "days": level.lasts_ms // DAY_MS,
        "days_min": settings.bank_days_min,
        "age_days": None if level.oldest_made_ms is None else (now_ms - level.oldest_made_ms) // DAY_MS,
        "is_made_here": level.is_made_here,
        "is_low": is_low,
    }
    if level.is_made_here:
        text = f"{row['folder']}: {level.races} races in stock, and more is made when it is empty (local network)"
    else:
        age = "nothing waits" if row["age_days"] is None else f"the oldest is {row['age_days']} days old"
        text = f"{row['folder']} ({row['bank']}): {level.races} races, {row['days']} days; {age}"
        text += f"\nLOW: {row['days_min']} days are to be kept" * is_low
    show(row, [text], as_json=as_json)
    if settings.bank_hotkey and level.newest_made_ms is None and not as_json:
        files = len(list((settings.state_dir / "bank").glob(f"*{SUFFIX}")))
        if files:
            typer.echo(f"{files} sealed files stand there, of rounds that are out or of another network than this one")
    raise typer.Exit(EXIT_FAILED if is_low else 0)


def release(
    race: Annotated[str, typer.Argument(help="The race, e.g. race-000001.")],
    dsn: DsnOption = "",
    state_dir: StateDirOption = None,
    titles_out: Annotated[
        Path | None, typer.Option("--titles", help="Write the batch's accepted titles here, to publish them.")
    ] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Check what a race's release opened against what the race committed to when it opened, and print it.

    With the salt of the release record every cluster commitment is computed again; where the batch stands in
    STATE_DIR/bank, its problems, answers, pools and hash too. Nothing is released by this command: a race does that by
    itself once it is over, and until then there is nothing to print (exit code 1). Exit code 4 when a commitment was
    broken. With --titles the titles that the batch accepted are written for everybody to score it again, or to train on
    it: put them as titles-RACE.json beside the index.
    """
    from arena.bank.batches.batch import read_batch
    from problems.scoring.title_matching import encode_accepted

    if titles_out is not None:
        refuse_existing(titles_out)
    folder = state_folder(state_dir) / "bank"
    found = run_on_store(dsn, state_dir, lambda store: _disclosure(store, race, folder))
    if isinstance(found, str):
        text = f"{race} has not begun here" if found == "new" else f"{race} is {found}: nothing is open"
        show({"race_id": race, "state": found}, [text], as_json=as_json)
        raise typer.Exit(EXIT_FAILED)
    lines = [f"{one.problem_id:<20} {one.pool:<6} {one.cluster_id[:16]}  {one.cluster}" for one in found.problems]
    lines.append(f"{race}: salt {found.salt}\nbatch {found.batch_sha256}: {found.batch}")
    lines += [f"broken: {fault}" for fault in found.faults]
    lines.append(f"{len(found.problems)} problems, {'every commitment is kept' if found.is_ok else 'NOT as committed'}")
    show(found, lines, as_json=as_json)
    if not found.is_ok:
        raise typer.Exit(EXIT_INTEGRITY)
    if titles_out is not None:
        path = folder / f"{found.race_id}.batch.json"
        released = read_batch(path).titles if found.batch == "kept" else None
        if released is None:
            held = "holds no titles of its own" if found.batch == "kept" else "does not stand there"
            raise typer.BadParameter(f"{path} {held}", param_hint="--titles")
        titles_out.write_bytes(encode_accepted(released))
        typer.echo(f"{titles_out}: {len(released.accepted)} titles of {released.name}", err=True)


def _assigned(
    problems: list[Problem], partition: Path | None, signer: Signer, documents: Path | None, catalogue: Path | None
) -> PoolAssignment:
    from arena.bank.partition_file import PartitionFile, unpartitioned
    from arena.chain.keys import verify

    if partition is None:
        return unpartitioned(problems)

    def classes() -> ProductClasses:
        if not has_catalogue(documents, catalogue):
            typer.echo("new problems enter by their titles alone; --catalogue finds near-identical products", err=True)
        return read_classes(documents, catalogue)

    return PartitionFile(partition, signer, verify, classes).assign(problems)


def _write_sealed(out: Path, locked: Iterable[SealedFile], total: int) -> list[BatchNotice]:
    """Write each file with its public notice beside it, as it is made."""
    from arena.bank.batches.sealed_file import notice_bytes, write_sealed
    from arena.bank.stock.sealed_stock import SUFFIX

    out.mkdir(parents=True, exist_ok=True)
    made: list[BatchNotice] = []
    with show_progress() as progress:
        for sealed in locked:
            write_sealed(out / f"{sealed.notice.race_id}{SUFFIX}", sealed)
            (out / f"{sealed.notice.race_id}.notice.json").write_bytes(notice_bytes(sealed))
            made.append(sealed.notice)
            progress("seal", len(made), total)
    return made


def _show_sealed(made: Collection[BatchNotice], assigned: PoolAssignment, timelock: Timelock, as_json: bool) -> None:
    from arena.bank.batches.sealed_file import opening_time

    for notice in made:
        opens = opening_time(notice, timelock)
        row = {"race_id": notice.race_id, "round": notice.round, "opens": opens, "problems": len(notice.problems)}
        text = f"{notice.race_id}  round {notice.round}  opens {opens}  {len(notice.problems)} problems"
        show(row | {"batch_sha256": notice.batch_sha256}, [text], as_json=as_json)
    for problem_id in assigned.refused:
        typer.echo(f"left out: {problem_id} would join two pools, or shares a cluster with a suite", err=True)


async def _disclosure(store: PostgresStore, race: str, folder: Path) -> Disclosure | str:
    """The check, or the state of a race that released nothing."""
    from arena.bank.batches.batch import read_batch
    from arena.bank.batches.disclosure import check_release
    from arena.records.body import decode_content
    from arena.records.model import ReleaseRecord
    from neurons.race.listing import read_state

    state = await read_state(store, race)
    if state.opened is None or not state.is_released:
        return state.stage if state.opened is None or state.draw is None else f"{state.stage}, not released"
    path = folder / f"{race}.batch.json"
    batch = state.opened.batch
    async for signed in store.records(kinds=("release",), race_id=race):
        payload = decode_content(signed.content).payload
        if isinstance(payload, ReleaseRecord):
            return check_release(
                payload,
                batch_sha256=batch.batch_sha256,
                partition_sha256=batch.partition_sha256,
                commitments={problem.problem_id: problem.cluster_commitment for problem in batch.problems},
                batch=read_batch(path) if path.exists() else None,
            )
    return "released, but the log holds no release record"
