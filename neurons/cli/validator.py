"""`arena validator` and `doctor`: run a validator, and look whether this host is ready.

The settings of a node are options of `arena validator` and `arena doctor`, in groups: `neurons.settings.settings`
merges them with the environment and the file.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from foundation.errors import ArenaError, counted, printable
from foundation.logs import configure_logs, get_logger
from neurons.cli import options
from neurons.cli.presenter import EXIT_FAILED, EXIT_NOT_READY, say, show, table_text

if TYPE_CHECKING:
    from arena.records.port import UsageTotal
    from arena.store.postgres import PostgresStore
    from neurons.race.beside import Beside
    from neurons.race.log import SettledRace

_RUN, _WORDS = "run", ("status", "pause", "report")
_MARK = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}

GROUPS: dict[str, str] = {
    "Who this validator is": "wallet_name wallet_hotkey wallet_path wallet_password_file wallet_proxy network netuid"
    " mechanism",
    "Rules of the race": "policy operator_hotkey bank_hotkey models shadow",
    "Folders and store": "state_dir catalogue_dir guest_dir database_dsn bodies_url",
    "Jails and workers": "workers sandbox",
    "Model endpoint": "openai_base_url openai_api_key",
    "Judge endpoint": "judge_base_url judge_api_key judge_reasoning_tokens judge_reasoning_effort",
    "Door for miners": "public_host door_port local_chain_port",
    "Public reads": "serve_port serve_sn15",
    "Racing with other validators": "share public_endpoint",
    "Checkpoints and anchors": "checkpoint_dir",
    "Log and metrics": "log_level metrics_host metrics_port parent_pid",
}
LOG_SWITCHES = ("debug", "info")  # `--logging.debug`, as the ecosystem's launch scripts have it


class SettingsCommand(TyperCommand):
    """A command with an option for every setting; `ctx.obj` is what they resolve to."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own parameters, and one for each setting."""
        return [*super().get_params(ctx), *setting_options()]

    def invoke(self, ctx: Any) -> Any:
        """Resolve the settings, then run the command. Raises ArenaError V2030."""
        from neurons.settings.settings import resolve

        given = {option.name: ctx.params.pop(option.name) for option in setting_options()}
        config = given.pop("config")
        for level in LOG_SWITCHES:
            if given.pop(f"logging_{level}"):
                given["log_level"] = level
        ctx.obj = resolve(given, config)
        return super().invoke(ctx)


@functools.cache
def setting_options() -> tuple[Any, ...]:
    """The options that settings are given by, under the headings of `GROUPS`."""

    from neurons.settings.settings import KINDS, abouts

    def option(name: str, kind: Any, *spellings: str, **look: Any) -> inspect.Parameter:
        annotation = Annotated[kind | None, typer.Option(*spellings, **look)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    def of_setting(name: str, group: str) -> inspect.Parameter:
        spelled = f"--{name.replace('_', '-')}"
        look = {"help": abouts()[name], "rich_help_panel": group}
        if KINDS[name] is bool:
            return option(name, bool, f"{spelled}/--no-{spelled[2:]}", **look)
        return option(name, str, *options.WALLET_SPELLINGS.get(name, (spelled,)), metavar="VALUE", **look)

    def settings() -> None:
        """Only its signature is read."""

    parameters = [
        option("config", Path, "--config", help="TOML file with settings instead of arena.toml here."),
        *(option(f"logging_{level}", bool, f"--logging.{level}", hidden=True) for level in LOG_SWITCHES),
        *(of_setting(name, group) for group, names in GROUPS.items() for name in names.split()),
    ]
    vars(settings)["__signature__"] = inspect.Signature(parameters)
    shown = typer.Typer(add_completion=False)
    shown.command()(settings)
    return tuple(typer.main.get_command(shown).params)


class _ValidatorGroup(TyperGroup):
    """`validator` runs one, whatever flags follow; only `status` and `pause` ask for something else."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        chosen = args if args and args[0] in (_RUN, *_WORDS) else [_RUN, *args]
        parsed: list[str] = super().parse_args(ctx, chosen)
        return parsed


app = typer.Typer(cls=_ValidatorGroup, help="Run a validator.")
doctor_app = typer.Typer()


@options.command(app, _RUN, cls=SettingsCommand, hidden=True)
def validator(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option(help="Print every setting with its source, and why a start would end, by `arena doctor`.")
    ] = False,
) -> None:
    """Run a validator.

    arena validator --wallet.hotkey //Alice --policy demo --state-dir alice

    arena validator status --state-dir alice

    arena validator pause --state-dir alice --reason "maintenance until 18:00 UTC"

    arena validator pause --end --state-dir alice

    arena validator report https://HOST --state-dir alice

    Gates submissions, qualifies and races agents in jails, judges, signs records into Postgres, settles, sets
    weights. Every setting below can also stand in arena.toml (another file: --config FILE) or the environment
    (--state-dir: state_dir, ARENA_STATE_DIR); --dry-run shows the value of each and where it comes from. Several model
    endpoints are tables named `upstreams` in arena.toml, caps on what models cost the table `budget`. Ctrl-C and
    SIGTERM stop it cleanly: running episodes get 30 s to finish.
    """
    resolved = context.obj
    if dry_run:
        from neurons.loops.operator_files import with_held_release
        from neurons.node.doctor import require_startable
        from neurons.settings.settings import format_rows

        say(*format_rows(resolved.rows))
        require_startable(with_held_release(resolved.settings))
        show(resolved.rows, [])
        return
    configure_logs(resolved.settings.log_level)
    get_logger().info("starting", text="starting: the program")  # its imports take a second or two
    from neurons.validator import run_validator

    run_validator(resolved.settings)


@options.command(app)
def status(
    state_dir: options.StateDirOption = None,
    config: Annotated[Path | None, typer.Option("--config", help="The node's TOML file; it names its folder.")] = None,
) -> None:
    """Show how the validator of a state folder is doing, whether or not it runs.

    One line per thing: node, rules, chain, log, race with its next deadline, work, weights, what models cost, peers,
    bank, disk. Below them what needs a person, each with its fix, and what mends itself. Exit code 1 when something
    needs a person.
    """
    from neurons.health.status import page
    from neurons.node.reporting import look, read_store
    from neurons.settings.inputs import unix_ms

    if config is not None:
        state_dir = options.settings_of({"state_dir": state_dir}, config).state_dir
    folder, now_ms = options.state_folder(state_dir), unix_ms()
    if folder.exists() and not os.access(folder, os.R_OK | os.X_OK):
        raise typer.BadParameter(f"this user can't read {folder}; ask as its owner or as root")
    facts = failure = None
    try:
        facts = options.StoreFlags(state_dir=folder).run(lambda store: read_store(store, now_ms, with_money=True))
    except ArenaError as error:  # a store that can't be read is part of the status
        failure = error.failure
    found = look(folder, facts, now_ms, failure)
    show(found, [printable(page(found))], EXIT_FAILED if found.needs_person else 0)  # it quotes what others answered


@app.command()
def pause(
    reason: Annotated[str, typer.Option(help="Shown to every miner that is turned away.")] = "",
    is_over: Annotated[bool, typer.Option("--end", help="Take submissions again.")] = False,
    state_dir: options.StateDirOption = None,
) -> None:
    """Take no more submissions and tell miners why, or take them again.

    What was taken goes on: gate, qualifying and races. Miners' commitments keep their place on chain. Also for a
    validator that does not run at present.
    """
    from arena.door.answers import PauseState
    from arena.door.service import REASON_CHARS_MAX, put_pause
    from neurons.settings.inputs import unix_ms

    reason = reason.strip()
    if is_over is bool(reason) or len(reason) > REASON_CHARS_MAX or not reason.isprintable():
        raise typer.BadParameter(f"give a --reason of one line, at most {REASON_CHARS_MAX} characters, or --end")
    state = PauseState(is_paused=not is_over, reason=reason, since_ms=unix_ms())
    options.StoreFlags(state_dir=state_dir).run(lambda store: put_pause(store, state))
    said = "submissions are answered 503 with this reason; next: arena validator pause --end"
    typer.echo("submissions are taken again" if is_over else f"paused: {said}")


@options.command(app)
def report(
    other: Annotated[str, typer.Argument(metavar="URL|FILE", help="Of an SN15 API, or of its answers, one a line.")],
    store: options.StoreFlags,
    days: Annotated[int, typer.Option(min=1, max=3_650, help="How far back from each side's latest race.")] = 7,
    validator: options.ValidatorOption = "",
) -> None:
    """Set this validator's races beside those of SN15's software.

    arena validator report https://HOST --state-dir node

    For one that runs beside another node with --shadow, which races and sets no weights. By agent: scores, ranks,
    shares of the weights, what it would have been paid a day, and what its models and judges cost here. A file holds
    what `/v1/public/races/RACE` and `/v1/public/top-miner-payout` answered. An agent is found by its hotkey, else by
    its name.
    """
    from neurons.cli.race import settled_and_named
    from neurons.race.beside import compare, fetch_other, read_other

    async def read(logs: PostgresStore) -> tuple[list[SettledRace], dict[str, str], list[UsageTotal]]:
        return *await settled_and_named(logs, validator), await logs.usage_totals()

    settled, names, usage = store.run(read)
    if re.match(r"https?://", other):
        found = fetch_other(other)
    else:
        try:
            found = read_other(Path(other).read_bytes().splitlines(), other)
        except OSError as error:
            raise typer.BadParameter(f"{other}: {error.strerror}") from error
    plain = {version: name.split(" ")[0] for version, name in names.items()}
    beside = compare([each.settlement for each in settled], plain, found, days, usage)
    show(beside, beside_lines(beside))


def beside_lines(beside: Beside) -> Iterator[str]:
    """The report in a terminal."""
    from neurons.health.status import dollars

    here, there = beside.races
    yield f"the last {counted(beside.days, 'day')}: {counted(len(here), 'race')} here, {len(there)} there"
    headings = ("score", "there", "rank", "there", "weights", "there", "TAO a day", "there")
    rows = []
    for one in beside.agents:
        sides = one.here, one.there
        cells = [f"{side.score_e4 / 10_000:.3f}" if side else "-" for side in sides]
        cells += [f"{side.rank:.1f}" if side else "-" for side in sides]
        cells += [f"{side.share_e4 / 10_000:.1%}" if side else "-" for side in sides]
        cells += ["-" if side is None or side.tao_per_day is None else f"{side.tao_per_day:.2f}" for side in sides]
        rows.append((one.name[:14], one.miner_hotkey[:8], *cells))
    yield table_text(("agent", "miner", *headings), rows, right=headings)
    yield f"burned: {beside.burned_e4[0] / 10_000:.1%} here, {beside.burned_e4[1] / 10_000:.1%} there"
    yield f"same order: {beside.same_order[0]} of {beside.same_order[1]} pairs of agents that raced on both sides"
    yield f"races without scores: {beside.without_scores[0]} here, {beside.without_scores[1]} there"
    yield f"faults here: {beside.void} problems void, {beside.missing} results missing, {beside.faulted} lost to faults"
    days = f"{' to '.join(beside.cost_days)} (UTC)" if beside.cost_days else "no race asked a model"
    yield f"costs in tokens and USD, there: not published; here: {days}"
    amounts = ("inference", "USD", "judging", "USD")
    costs = [((one.name[:14], one.miner_hotkey[:8]), one.here.costs) for one in beside.agents if one.here]
    costs.append((("all", "qualifying too"), beside.costs))
    spent = [(name, [(f"{one.tokens:,}", dollars(one.micro_usd)) for one in both]) for name, both in costs if both]
    yield table_text(("agent", "miner", *amounts), [(*name, *a, *b) for name, (a, b) in spent], right=amounts)


@options.command(doctor_app, cls=SettingsCommand)
def doctor(context: typer.Context) -> None:
    """Check this host; print the fix for what is missing.

    Looks at memory, disk, the jail and its Python, Postgres, the model endpoint, the search engine, the bank's stock,
    and on a real network this hotkey's place there, for a node with these settings: give the flags that `arena
    validator` is started with. Changes no setting. `warn` means it runs with less; exit code 3 that something failed.
    """
    from neurons.loops.operator_files import with_held_release
    from neurons.node.doctor import CHECKS, examine

    rows, settings = [], context.obj.settings
    with contextlib.suppress(ArenaError):  # of a release that can't be used there is a row
        settings = with_held_release(settings)
    for row in examine(settings, CHECKS):
        rows.append(row)
        mark, colour = _MARK[row.status]
        say(f"{typer.style(mark, fg=colour)}  {row.name:<14}  {row.found}")
        if row.fix and row.status != "ok":
            say(f"      fix: {row.fix}")
    following = f"{'arena demo, or ' if settings.network == 'local' else ''}arena validator with the same flags"
    is_ready = all(row.status != "fail" for row in rows)
    lines = [f"\nThis host is ready. Next: {following}"] if is_ready else ()
    show({"is_ready": is_ready, "rows": rows}, lines, 0 if is_ready else EXIT_NOT_READY)
