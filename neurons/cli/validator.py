"""`arena validator`: the same program as `python neurons/validator.py`, under the one command."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def validator(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option(help="Print every setting with its source, start nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: print JSON.")] = False,
) -> None:
    """Run a validator.

    Gates submissions, qualifies and races agents in jails, judges, signs records into Postgres, settles, sets
    weights. Takes the ecosystem's flags (--wallet.name, --wallet.hotkey, --netuid, --subtensor.network) and one flag
    per setting (--state-dir, --policy, --workers, ...); --dry-run lists them all. SIGTERM and SIGINT stop it cleanly:
    running episodes get 30 s to finish.
    """
    from neurons.settings import refuse_unknown_flags, resolve_arguments, show_settings

    resolved = resolve_arguments(context.args)
    refuse_unknown_flags(resolved.rest)
    if dry_run:
        show_settings(resolved, is_json=as_json)
        return
    from neurons.supervisor import run_validator

    run_validator(resolved.settings)
