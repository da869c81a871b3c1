"""`arena problems pool`: the problems of a pool that races have released, as a file that a recipe can name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neurons.cli.problems.reading import JsonOption, json_line, read_files, refuse_existing
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from arena.bank.batches.batch import SealedBatch
    from arena.bank.batches.released_problems import LearntPool, ReleasedPool
    from arena.records.model import ReleaseRecord
    from problems.pools.partition import OpenPartition

_EXIT_FAILED = 1
_POOLS: tuple[LearntPool, ...] = ("train", "dev")
_WHY = {
    "held_out": "held out by name",
    "cluster": "shares a leak cluster with another pool's problem",
    "partition": "the partition gives it, or an answer of it, another pool",
}


def pool(
    exports: Annotated[
        list[Path], typer.Argument(metavar="EXPORT...", help="Signed exports: their releases say what is public.")
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write; it must not exist.")],
    wanted: Annotated[str, typer.Option("--pool", help="train or dev; no other pool comes out.")] = "train",
    batches: Annotated[
        Path | None, typer.Option("--batches", help="Folder of RACE.batch.json files. Default: STATE_DIR/bank.")
    ] = None,
    held_out: Annotated[
        list[Path] | None, typer.Option("--held-out", help="Problems kept out, and their leak clusters. Repeatable.")
    ] = None,
    partition: Annotated[
        Path | None, typer.Option("--partition", help="The bank's private file: it knows what is sealed, too.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="State folder of the validator. Default: ARENA_STATE_DIR.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the released problems of a pool, to sample on and learn from.

    An export says which problems its races released, of which pools; what they ask and what answers them stands in no
    record, only in the batches that a validator keeps once a race has opened them. So whoever runs the validator runs
    this, and hands the file on with the export. A batch counts when it is the one that was released, byte for byte
    (exit code 4 otherwise). A held-out problem never comes out, nor does one that shares a leak cluster with a problem
    of another pool: those are named on stderr. Exit code 1 when nothing is left.

    arena problems pool export --pool train --out problems/train.jsonl
    """
    from arena.bank.batches.released_problems import released_pool
    from problems.suites.formats import write_problems

    chosen = next((one for one in _POOLS if one == wanted), None)
    if chosen is None:
        raise typer.BadParameter(f"{wanted!r} is none of {', '.join(_POOLS)}", param_hint="--pool")
    out.parent.mkdir(parents=True, exist_ok=True)
    refuse_existing(out)
    state = _state(state_dir)
    folder = batches or state / "bank"
    held = _batches(folder)
    taken = released_pool(
        chosen,
        _releases(exports, state),
        held,
        held_out=read_files(held_out or []),
        partition=_partition(partition),
    )
    if taken.problems:
        out.write_text("".join(f"{line}\n" for line in write_problems(taken.problems)), encoding="utf-8")
    _show(taken, chosen, out, folder, as_json=as_json)
    raise typer.Exit(0 if taken.problems else _EXIT_FAILED)


def _show(taken: ReleasedPool, chosen: LearntPool, out: Path, folder: Path, *, as_json: bool) -> None:
    if as_json:
        row = {"pool": chosen, "path": str(out) if taken.problems else None, "problems": len(taken.problems)}
        rest = {"races": taken.races, "left_out": taken.left_out, "titles": taken.titles}
        typer.echo(json_line(row | rest | {"batches_missing": taken.batches_missing}))
        return
    for one in taken.left_out:
        typer.echo(f"left out: {one.problem_id}: {_WHY[one.reason]}", err=True)
    if taken.batches_missing:
        typer.echo(f"released, and not in {folder}: {', '.join(taken.batches_missing)}", err=True)
    for race in taken.titles:
        typer.echo(
            f"{race} brought accepted titles: arena problems release {race} --titles titles-{race}.json", err=True
        )
    if not taken.problems:
        typer.echo(f"no released problem of {chosen}: nothing was written", err=True)
        return
    typer.echo(f"{out}: {len(taken.problems)} problems of {chosen}, of {len(taken.races)} races")


def _state(given: Path | None) -> Path:
    from arena.store.location import default_state_dir

    return given or default_state_dir()


def _batches(folder: Path) -> list[SealedBatch]:
    """Every open batch of a bank. Raises ArenaError P4001 and P4010 for one that can't be read or was edited,
    typer.BadParameter for a folder without any."""
    from arena.bank.batches.batch import read_batch

    paths = sorted(folder.glob("*.batch.json"))
    if not paths:
        raise typer.BadParameter(f"{folder} holds no *.batch.json", param_hint="--batches")
    return [read_batch(path) for path in paths]


def _releases(exports: list[Path], state: Path) -> list[ReleaseRecord]:
    """The releases of exports, each verified whole before. Raises ArenaError V2074, V2095, V2096."""
    from arena.chain.keys import verify
    from arena.export.releases import read_releases
    from training.corpus.sources.verified import open_export

    found: list[ReleaseRecord] = []
    with show_progress() as progress:
        for folder in exports:
            open_export(
                folder,
                verify,
                seals=state / "corpus" / "seals",
                progress=lambda done, total: progress("verify", done, total),
            )
            found += read_releases(folder)
    return found


def _partition(path: Path | None) -> OpenPartition | None:
    from arena.bank.partition_file import read_partition
    from arena.chain.keys import verify

    return None if path is None else read_partition(path, verify)
