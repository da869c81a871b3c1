"""`arena submissions`: what the gate holds for review. A heuristic never rejects; a person decides here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from neurons.cli.exit_codes import EXIT_USAGE
from neurons.cli.options import JsonOption
from neurons.cli.presenter import echo_json
from neurons.cli.store_reading import location_of, state_folder

if TYPE_CHECKING:
    from arena.store.port import StoredSubmission
    from arena.store.postgres.store import PostgresStore

app = typer.Typer(
    help="""See what the gate holds for review, and decide it.

    arena submissions list --state-dir DIR

    arena submissions accept 3f9a --state-dir DIR

    arena submissions reject 3f9a --reason "answers by table" --state-dir DIR
    """,
    no_args_is_help=True,
)

REASON_CHARS_MAX = 200
StateDirOption = Annotated[Path | None, typer.Option("--state-dir", help="State folder of the running validator.")]
AgentArgument = Annotated[str, typer.Argument(metavar="AGENT", help="Agent version id, or the beginning of one.")]


@app.command("list")
def list_submissions(
    state: Annotated[
        str, typer.Option(help="Only this state; `review` waits for you, `all` shows everything.")
    ] = "review",
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List submissions with the findings that put them where they are."""
    import msgspec

    from arena.gate.report import GateReport
    from arena.store.port import EVERY_STATE
    from neurons.race.sentences import short

    async def read() -> list[StoredSubmission]:
        async with _store(state_dir) as store:
            return await store.submissions(EVERY_STATE)

    found = [submission for submission in asyncio.run(read()) if state in ("all", submission.state)]
    if as_json:
        echo_json(found)
        return
    for submission in found:
        who = f"{submission.name} {short(submission.subject.miner_hotkey)}"
        typer.echo(f"{submission.subject.agent_version_id[:16]}  {submission.state:<11}  {who}")
        if submission.report:
            for finding in msgspec.json.decode(submission.report, type=GateReport).findings:
                typer.echo(f"    {finding}")
    if not found:
        typer.echo("no submission yet" if state == "all" else f"no submission is in state {state}")


@app.command()
def accept(agent: AgentArgument, state_dir: StateDirOption = None) -> None:
    """Let a reviewed submission qualify.

    The running validator takes it up at its next turn. Where the policy admits by agreement, it also signs your
    decision into its log: the agent races once more than half of the validators accept it, or its hold has run out.
    """
    asyncio.run(_decide(state_dir, agent, "accepted"))


@app.command()
def reject(
    agent: AgentArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="Why, in one line; its miner reads it in `arena status`.")
    ] = "",
    state_dir: StateDirOption = None,
) -> None:
    """Reject a reviewed submission; its report stays with it.

    Where the policy admits by agreement, the running validator signs your decision into its log: the agent is out once
    more than half of the validators reject it.
    """
    if not reason.isprintable() or len(reason) > REASON_CHARS_MAX:
        raise typer.BadParameter(f"one line of at most {REASON_CHARS_MAX} characters", param_hint="--reason")
    asyncio.run(_decide(state_dir, agent, "rejected", reason.strip()))


async def _decide(state_dir: Path | None, agent: str, state: Literal["accepted", "rejected"], reason: str = "") -> None:
    from foundation.errors import Failure

    async with _store(state_dir) as store:
        matches = [s for s in await store.submissions(("review",)) if s.subject.agent_version_id.startswith(agent)]
        if len(matches) != 1:
            typer.echo(f"{len(matches)} submissions under review begin with {agent!r}", err=True)
            raise typer.Exit(EXIT_USAGE)
        version = matches[0].subject.agent_version_id
        failure = Failure(code="A1005", detail=f"a person rejected it: {reason}") if reason else None
        await store.set_submission_state(version, state, was="review", failure=failure)
    typer.echo(f"{version[:16]}  {state}  {matches[0].name}")


@asynccontextmanager
async def _store(state_dir: Path | None) -> AsyncIterator[PostgresStore]:
    """The validator's store, through its own role; the server is started when the validator is not running."""
    from arena.store.embedded.server import embedded_server
    from arena.store.postgres.store import PostgresStore

    folder = state_folder(state_dir)
    location = location_of("", folder)
    async with AsyncExitStack() as stack:
        if location.kind == "embedded":
            await stack.enter_async_context(embedded_server(folder))
        store = await PostgresStore.open(location.dsn, location.validator)
        stack.push_async_callback(store.close)
        yield store
