"""`arena store`: prepare a Postgres server of your own for validators. The embedded server needs none of this."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

app = typer.Typer(help="Prepare a Postgres server of your own.", no_args_is_help=True)

OwnerDsn = Annotated[
    str, typer.Option("--owner-dsn", envvar="ARENA_OWNER_DSN", help="DSN of the database's owner; used only here.")
]


@app.command()
def migrate(owner_dsn: OwnerDsn) -> None:
    """Bring the schema of a database to what this code needs. Safe to repeat."""
    from arena.store.schema import migrate as migrate_schema

    migrate_schema(owner_dsn)
    typer.echo("the schema is up to date")


@app.command()
def provision(
    owner_dsn: OwnerDsn,
    hotkey: Annotated[str, typer.Option(help="The validator's ss58 address, whose login role this makes.")],
) -> None:
    """Make the login role of one validator, with a generated password that is printed once.

    The role can append to and read its own hotkey's log and nothing else. Give the validator a DSN with this role and
    password in ARENA_DATABASE_DSN; the owner's DSN never belongs on a validator.
    """
    from arena.store.schema import provision_validator

    password = secrets.token_urlsafe(24)
    role = provision_validator(owner_dsn, hotkey, password)
    typer.echo(f"role      {role}\npassword  {password}")
