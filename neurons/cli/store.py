"""`arena store`: look after the database of a node: prepare a Postgres of your own, back up, restore.

The embedded server needs no preparation. A command uses `--owner-dsn` once and does not keep it: a validator must never
have the owner's login.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena.store.location import StoreLocation, write_location
from arena.store.objects import folder_location, open_objects
from foundation.errors import ArenaError, counted
from neurons.cli.options import StateDirOption, command, location_of, state_folder
from neurons.cli.presenter import EXIT_INTEGRITY, show, show_progress

if TYPE_CHECKING:
    from arena.store.backups import PgTools


app = typer.Typer(
    help="""Back up, restore and prepare the database.

    arena store backup --out backup1 --state-dir DIR

    arena store restore backup1 --state-dir NEW

    The database that a node brings with it needs no preparation; `migrate` is for a Postgres server of your own.
    """,
    no_args_is_help=True,
)

OwnerDsn = Annotated[
    str,
    typer.Option(
        "--owner-dsn", envvar="ARENA_OWNER_DSN", help="DSN of the database's owner. Default: the state folder's server."
    ),
]


@app.command()
def migrate(
    owner_dsn: Annotated[str, typer.Option("--owner-dsn", envvar="ARENA_OWNER_DSN", help="The owner's DSN.")],
    hotkey: Annotated[str, typer.Option(help="Also make this validator's login, and print its password.")] = "",
) -> None:
    """Bring the schema of a database to what this code needs. Safe to repeat; appends wait while it runs.

    arena store migrate --owner-dsn DSN --hotkey ADDRESS

    There is no way back to an earlier schema: make a backup first, and start the new code after it. A validator's login
    can append to and read its own hotkey's log and nothing else. Give the validator the DSN that is printed; the
    owner's DSN never belongs on a validator. Run again, it changes the password.
    """
    from arena.store import schema
    from neurons.settings.settings import read_hotkey

    before = schema.migrate(owner_dsn)
    made = f"went from {before or 'nothing'} to {schema.SCHEMA_REVISION}"
    typer.echo(f"the schema {made if before != schema.SCHEMA_REVISION else f'was at {before} already'}")
    if hotkey:
        read_hotkey(hotkey)
        typer.echo(f"ARENA_DATABASE_DSN={_login(owner_dsn, hotkey, is_rekeying=True)}")


@command(app)
async def backup(
    out: Annotated[Path, typer.Option(help="The folder to make. It must not exist.")],
    owner_dsn: OwnerDsn = "",
    state_dir: StateDirOption = None,
) -> None:
    """Back up the whole store to a folder, as of one moment, while validators write.

    The folder holds a pg_dump archive, the bodies of the object store, and manifest.json with row counts and the head
    of every log. It holds no password. A reader of it reads every trace and source in it.
    Ends with 4 when the object store lacks bodies that a log names: the backup then lacks them too.
    """
    from arena.store.backups import back_up

    of_node = location_of(owner_dsn, state_folder(state_dir))
    if of_node.kind == "external" and not owner_dsn:
        raise typer.BadParameter("this node's store is on a server of its own: give its --owner-dsn")
    with _owned(owner_dsn, state_dir) as (dsn, tools, _):
        objects = open_objects(of_node.objects) if of_node.objects else None
        manifest = await back_up(dsn, out, tools, objects=objects, progress=show_progress())
    kept, rows = manifest.objects, manifest.store.rows
    held = f"{counted(rows['record'], 'record')} and {counted(rows['body'], 'body')}"
    lines = [f"{out}: {held} of {counted(len(manifest.store.heads), 'log')}"]
    if kept.bodies:
        lines.append(f"{counted(kept.bodies, 'body')} copied from {kept.location}, {kept.missing} missing there")
    show(manifest, lines, EXIT_INTEGRITY if kept.missing else 0)


@command(app)
async def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The backup.", exists=True, file_okay=False)],
    owner_dsn: OwnerDsn = "",
    state_dir: StateDirOption = None,
    hotkey: Annotated[str, typer.Option(help="Whose node it is, where the backup holds several.")] = "",
    not_run_since: Annotated[
        bool, typer.Option("--not-run-since", help="The validator has not run since the backup was made.")
    ] = False,
) -> None:
    """Restore a backup into an empty database or a new state folder, migrate it, and make the login roles again.

    Refuses a database that holds any record. Logins that are made get new passwords: those of the state folder's server
    are kept in the folder, those of your own server are printed once, as DSNs. A login that your server has already
    keeps its password (a DSN without one): try a backup beside the live store, and nobody is locked out. Verify with
    `arena records verify` afterwards. Bodies of an object store go to the folder `bodies` of the state folder, or with
    --owner-dsn to ARENA_BODIES_URL. A validator that ran after the backup was made goes on from it with the
    `bodies_url` that holds its log's copy. Without one it starts only where `checkpoint_dir` or another validator shows
    that nothing is missing, or with --not-run-since, which you have to know: two logs of one hotkey end it.
    With --owner-dsn keep the old state folder, whose `checkpoints` show it.
    """
    from arena.store.backups import read_manifest
    from arena.store.backups import restore as restore_store

    if not owner_dsn:
        held = sorted(read_manifest(folder).store.hotkeys)
        if hotkey not in held and (hotkey or len(held) > 1):  # the folder would not know whose node it is
            raise typer.BadParameter(f"whose node? the backup holds {', '.join(held)}", param_hint="--hotkey")
    bodies = state_folder(state_dir) / "bodies"
    location = location_of(owner_dsn, bodies.parent).objects if owner_dsn else folder_location(bodies)
    with _owned(owner_dsn, state_dir) as (dsn, tools, dsn_for):
        objects = open_objects(location) if location else None
        restored = await restore_store(dsn, folder, tools, dsn_for, objects=objects, progress=show_progress())
        if not owner_dsn and (mine := hotkey or next(iter(restored.roles), "")):
            node = StoreLocation(
                kind="embedded",
                validator=mine,
                dsn=restored.roles[mine],
                objects=restored.objects,
                is_restored=not not_run_since,
            )
            write_location(state_folder(state_dir), node)
    shown = restored.roles if owner_dsn else list(restored.roles)
    rows, heads = restored.manifest.store.rows, restored.manifest.store.heads
    lines = [f"{counted(rows['record'], 'record')} of {counted(len(heads), 'log')} restored"]
    lines += [f"{name}  {dsn}" if owner_dsn else name for name, dsn in restored.roles.items()]
    show({"manifest": restored.manifest, "objects": restored.objects, "roles": shown}, lines)


@command(app)
async def archive(
    before: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d"], help="The first day (UTC) that stays in the database.")
    ],
    owner_dsn: OwnerDsn = "",
    state_dir: StateDirOption = None,
) -> None:
    """Move old days out of the database into the object store, while validators write.

    arena store archive --before 2026-06-01 --state-dir DIR

    Bodies and the contents of attempts, evaluations and verdicts go; numbers, hashes, signatures, settlements, releases
    and races that are not released stay. Verification, exports and other validators read what was moved from there.
    Needs the setting `bodies_url`; stopped half-way, it goes on where it was.
    """
    from arena.store.archive import archive as archive_days

    of_node = location_of(owner_dsn, state_folder(state_dir))
    if not of_node.objects:
        fix = "set bodies_url (ARENA_BODIES_URL) to a folder or bucket and start the node again, then archive"
        raise ArenaError("V2029", "this store has no object store to move to", fix=fix)
    today, objects = datetime.now(UTC).date(), open_objects(of_node.objects)
    with _owned(owner_dsn, state_dir) as (dsn, _, _):
        done = await archive_days(dsn, before.date(), objects, today=today, progress=show_progress())
    counts = f"{counted(done.records, 'record')} and {counted(done.bodies, 'body')}"
    show(done, [f"{counts} of {counted(len(done.days), 'day')} moved to {done.objects}"])


def _login(owner_dsn: str, hotkey: str, *, is_rekeying: bool) -> str:
    """DSN of a hotkey's role, which is made; without a password where the role exists and keeps its own."""
    from arena.store import connect, schema

    password = secrets.token_urlsafe(24)
    is_keyed = schema.provision_validator(owner_dsn, hotkey, password, is_rekeying=is_rekeying)
    return connect.login_dsn(owner_dsn, schema.role_of(hotkey), password if is_keyed else None)


@contextlib.contextmanager
def _owned(owner_dsn: str, state_dir: Path | None) -> Iterator[tuple[str, PgTools, Callable[[str], str]]]:
    """The server of a DSN, or that of a state folder, which runs while the block does: its owner's DSN, its tools, and
    what makes the login role of a hotkey."""
    from arena.store import backups, connect

    if owner_dsn:
        tools = backups.own_tools(connect.server_major(owner_dsn))
        yield owner_dsn, tools, functools.partial(_login, owner_dsn, is_rekeying=False)
        return
    from arena.store.embedded import start_embedded

    server = start_embedded(state_folder(state_dir))
    try:
        yield server.owner_dsn, backups.PgTools(*server.tools), server.dsn_for
    finally:
        server.stop()
