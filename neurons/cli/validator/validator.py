"""`arena validator`: the program of `python neurons/validator.py`, and beside it `status`, `pause` and `resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import JsonOutOption, StateDirOption, json_flag
from neurons.cli.validator.setting_options import SettingsCommand

_RUN, _STATUS = "run", "status"
_WORDS = (_STATUS, "pause", "resume")


class _ValidatorGroup(TyperGroup):
    """`validator` runs one, whatever flags follow; only `status`, `pause` and `resume` ask for something else."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        chosen = args if args and args[0] in _WORDS else [_RUN, *args]
        parsed: list[str] = super().parse_args(ctx, chosen)
        return parsed


app = typer.Typer(cls=_ValidatorGroup, help="Run a validator.")


@app.command(
    _RUN, cls=SettingsCommand, hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def validator(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option(help="Print every setting with its source, start nothing.")] = False,
    as_json: Annotated[bool, json_flag("With --dry-run: print JSON.")] = False,
) -> None:
    """Run a validator.

    arena validator --wallet.hotkey //Alice --policy demo --state-dir alice

    arena validator status --state-dir alice

    arena validator pause --state-dir alice --reason "maintenance until 18:00 UTC"

    arena validator resume --state-dir alice

    Gates submissions, qualifies and races agents in jails, judges, signs records into Postgres, settles, sets
    weights. Every setting below can also stand in arena.toml (another file: --config FILE) or the environment
    (--state-dir: state_dir, ARENA_STATE_DIR); --dry-run shows the value of each and where it comes from. Several model
    endpoints are tables named `upstreams` in arena.toml. Ctrl-C and SIGTERM stop it cleanly: running episodes get 30 s
    to finish.
    """
    from neurons.node.public_inputs import policy_of
    from neurons.node.settings import refuse_unknown_flags, resolve_arguments, show_settings

    resolved = resolve_arguments(context.args)
    refuse_unknown_flags(resolved.rest)
    policy_of(resolved.settings)  # a name that is none is told by --dry-run, too
    if dry_run:
        show_settings(resolved, is_json=as_json)
        return
    from neurons.node.supervisor import run_validator

    run_validator(resolved.settings)


@app.command(_STATUS)
def status(state_dir: StateDirOption = None, as_json: JsonOutOption = False) -> None:
    """Show how the validator of a state folder is doing, whether or not it runs.

    One line per thing: node, rules, chain, log, race with its next deadline, work, weights, peers, bank, disk. Below
    them what needs a person, each with its fix, and what mends itself. Exit code 1 when something needs a person.
    """
    from foundation.errors import ArenaError
    from neurons.cli.presenter import show
    from neurons.cli.store_reading import run_on_store, state_folder
    from neurons.health.status import StoreFacts
    from neurons.health.status_page import page
    from neurons.health.status_reading import look, read_store
    from neurons.node.wiring import unix_ms

    folder, now_ms = state_folder(state_dir), unix_ms()
    facts: StoreFacts | None = None
    failure = None
    try:
        facts = run_on_store("", folder, lambda store: read_store(store, now_ms))
    except ArenaError as error:  # a store that can't be read is part of the status
        failure = error.failure
    found = look(folder, facts, now_ms, failure)
    show(found, [page(found)], as_json=as_json)
    if found.needs_person:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def pause(
    reason: Annotated[str, typer.Option("--reason", help="Shown to every miner that is turned away.")],
    state_dir: StateDirOption = None,
) -> None:
    """Take no more submissions, and tell miners why.

    What was taken goes on: gate, qualifying and races. Miners' commitments keep their place on chain. Also for a
    validator that does not run at present.
    """
    from arena.door.service import REASON_CHARS_MAX

    if not reason.strip() or len(reason) > REASON_CHARS_MAX or not reason.isprintable():
        raise typer.BadParameter(f"give a reason of one line, at most {REASON_CHARS_MAX} characters")
    _switch(state_dir, reason.strip())
    typer.echo("paused: submissions are answered 503 with this reason; next: arena validator resume")


@app.command()
def resume(state_dir: StateDirOption = None) -> None:
    """Take submissions again."""
    _switch(state_dir, "")
    typer.echo("submissions are taken again")


def _switch(state_dir: Path | None, reason: str) -> None:
    from arena.door.service import PauseState, put_pause
    from neurons.cli.store_reading import run_on_store, state_folder
    from neurons.node.wiring import unix_ms

    state = PauseState(is_paused=bool(reason), reason=reason, since_ms=unix_ms())
    run_on_store("", state_folder(state_dir), lambda store: put_pause(store, state))
