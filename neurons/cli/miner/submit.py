"""`arena submit`, `arena commit` and `arena withdraw`: a miner's agent to the validators, and back. The rules are in
`arena/door`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.codes.row import Owner
from foundation.errors import ArenaError
from neurons.cli.miner.doors import (
    Config,
    MinerSession,
    Netuid,
    Policy,
    StateDir,
    Urls,
    WalletHotkey,
    WalletName,
    failure_row,
    open_session,
    read_settings,
)
from neurons.cli.options import JsonOption, NetworkOption, WalletPathOption
from neurons.cli.presenter import badge, show

if TYPE_CHECKING:
    from arena.door.client import FoundDoor
    from neurons.node.settings import Settings

app = typer.Typer()

FINAL_PAUSE_S = 0.5
Register = Annotated[bool, typer.Option("--register", help="Register the hotkey first (local network only).")]


@app.command()
def submit(
    agent: Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.")],
    name: Annotated[str, typer.Option(help="Name shown beside the agent; else the file's.")] = "",
    url: Urls = None,
    register: Register = False,
    wallet_name: WalletName = "",
    wallet_hotkey: WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: Netuid = "",
    network: NetworkOption = "",
    state_dir: StateDir = "",
    policy: Policy = "",
    config: Config = None,
    as_json: JsonOption = False,
) -> None:
    """Sign an agent file and submit it.

    First the gate's rules on form and names are checked here, so that a typing mistake costs nothing (`arena check`
    also knows the catalogue), and validators are looked for: on chain, or at --url. Then sha256(hotkey, source) is
    committed on chain, and only then the source is handed in, to as many validators as are to qualify it. The others
    fetch it from those. Doing it again with the same file is safe. Exit code 1 when the gate would reject it or the
    hotkey may not submit, 3 when wallet, chain or validators are not there.
    """
    settings = read_settings(
        config,
        wallet_name=wallet_name,
        wallet_hotkey=wallet_hotkey,
        wallet_path=wallet_path,
        netuid=netuid,
        network=network,
        state_dir=state_dir,
        policy=policy,
    )
    source, review = _checked_source(settings, agent)
    answer = asyncio.run(_submit(settings, name or agent.stem, source, url or [], is_registering=register))
    answer["review"] = review
    show(answer, _submit_lines(answer), as_json=as_json)


@app.command()
def commit(
    agent: Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.")],
    again: Annotated[
        bool, typer.Option("--again", help="Commit anew where this commitment stands: after a cooldown.")
    ] = False,
    register: Register = False,
    wallet_name: WalletName = "",
    wallet_hotkey: WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: Netuid = "",
    network: NetworkOption = "",
    state_dir: StateDir = "",
    policy: Policy = "",
    config: Config = None,
    as_json: JsonOption = False,
) -> None:
    """Commit to an agent file on chain; hand nothing in.

    The first half of `arena submit`: the same checks, then sha256(hotkey, source). Clients of the published SN15 API
    sign no file, so a validator that speaks it takes from them only what was committed before: first this command, then
    `oro submit --base-url http://VALIDATOR ...` with the same wallet and file.

    The commitment binds the hotkey to these bytes: change the file and commit again. Exit code 1 when the gate would
    reject it or the hotkey is not registered, 3 when wallet or chain are not there.
    """
    settings = read_settings(
        config,
        wallet_name=wallet_name,
        wallet_hotkey=wallet_hotkey,
        wallet_path=wallet_path,
        netuid=netuid,
        network=network,
        state_dir=state_dir,
        policy=policy,
    )
    source, review = _checked_source(settings, agent)
    answer = asyncio.run(_commit(settings, source, is_registering=register, is_anew=again))
    answer["review"] = review
    lines = [
        f"{badge('committed', 'cyan', 9)}  {answer['commitment_sha256'][:16]} in block {answer['commitment_block']}"
        f" by {answer['hotkey']}",
        *(f"note: {found}; a person will look" for found in review),
        "next: arena submit with the same file, or oro submit to a validator that speaks the SN15 API",
    ]
    show(answer, lines, as_json=as_json)


@app.command()
def withdraw(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Agent version id, or the beginning of one.")],
    url: Urls = None,
    wallet_name: WalletName = "",
    wallet_hotkey: WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: Netuid = "",
    network: NetworkOption = "",
    state_dir: StateDir = "",
    config: Config = None,
    as_json: JsonOption = False,
) -> None:
    """Take a submitted version back that waits for the gate.

    It is dropped by the validators that have it and costs no cooldown. What a gate has looked at stays: of a hotkey's
    versions the one that qualified best races. Exit code 1 where no validator dropped it.
    """
    settings = read_settings(
        config,
        wallet_name=wallet_name,
        wallet_hotkey=wallet_hotkey,
        wallet_path=wallet_path,
        netuid=netuid,
        network=network,
        state_dir=state_dir,
    )
    answer = asyncio.run(_withdraw(settings, version, url or []))
    lines = [f"version {answer['agent_version_id'][:16]} is withdrawn from {each}" for each in answer["withdrawn_from"]]
    lines += [f"not from {row['validator']}: {row['code']} {row['detail']}" for row in answer["kept_by"]]
    show(answer, lines, as_json=as_json)


async def _submit(
    settings: Settings, name: str, source: str, urls: list[str], *, is_registering: bool
) -> dict[str, Any]:
    from arena.door.client import ask_doors, deliver
    from arena.race.consensus.assignment import permitted_validators
    from arena.race.consensus.rulings import asked_count
    from arena.submissions.model import agent_version_id, commit, is_agent_name
    from foundation.canonical import text_hash
    from neurons.node.public_inputs import policy_of
    from neurons.node.wiring import unix_ms

    if not is_agent_name(name):
        raise ArenaError("A1010", name[:80])
    async with open_session(settings) as session:
        metagraph = await session.chain.metagraph()
        if not is_registering and metagraph.uid_of(session.signer.hotkey) is None:
            raise ArenaError("A1008", session.signer.hotkey)
        doors = await session.doors(urls, metagraph)
        version, block = agent_version_id(session.signer.hotkey, text_hash(source)), await session.chain.block() + 1
        doors = await ask_doors(session.client, doors, version, block, is_registered=not is_registering)
        refusals = [door.failure for door in doors if door.failure is not None]
        if len(refusals) == len(doors):  # before anything is committed
            failure = next((each for each in refusals if each.owner is Owner.AGENT), refusals[0])
            raise ArenaError(failure.code, failure.detail)
        if is_registering:
            await _register(session)
        submission, block = await commit(session.signer, name, source, subtensor=session.chain, now_ms=unix_ms())
        wanted = asked_count(policy_of(settings), len(permitted_validators(metagraph)))
        said = await deliver(session.client, submission, doors, wanted)
    if not any(each.taken for each in said):
        failures = [(each.url, each.failure) for each in said if each.failure is not None]
        for _, failure in failures:
            if failure.owner is Owner.AGENT:  # it is the miner's to mend, with every validator
                raise ArenaError(failure.code, failure.detail)
        raise ArenaError("U3052", "; ".join(f"{at}: {failure.code} {failure.detail}" for at, failure in failures))
    taken = [each.taken for each in said if each.taken is not None]
    return {
        "name": name,
        "agent_version_id": submission.agent_version_id,
        "agent_sha256": submission.agent_sha256,
        "commitment_sha256": submission.commitment_sha256,
        "commitment_block": block,
        "hotkey": submission.hotkey,
        "network": settings.network,
        "next_allowed_block": max(each.next_allowed_block for each in taken),
        "wanted": wanted,
        "taken_by": [{"validator": each.validator, "url": each.url} for each in said if each.taken],
        "refused_by": [
            {"validator": each.validator, "url": each.url, "code": each.failure.code, "detail": each.failure.detail}
            for each in said
            if each.failure is not None
        ],
        "not_reached": [failure_row(door) for door in doors if door.failure is not None],
    }


async def _commit(settings: Settings, source: str, *, is_registering: bool, is_anew: bool) -> dict[str, Any]:
    from arena.submissions.model import commit
    from neurons.node.wiring import unix_ms

    async with open_session(settings) as session:
        if is_registering:
            await _register(session)
        submission, block = await commit(
            session.signer, "committed", source, subtensor=session.chain, now_ms=unix_ms(), is_anew=is_anew
        )
    return {
        "agent_version_id": submission.agent_version_id,
        "agent_sha256": submission.agent_sha256,
        "commitment_sha256": submission.commitment_sha256,
        "commitment_block": block,
        "hotkey": submission.hotkey,
        "network": settings.network,
    }


async def _register(session: MinerSession) -> None:
    """Register the session's hotkey, and wait until validators see it. Raises ArenaError U3030, U3031."""
    registered = await session.chain.register(session.signer)
    if registered.status != "ok":
        raise ArenaError("U3031", registered.detail)
    typer.echo("registered; waiting until that block is final, by which validators go ...", err=True)
    while (await session.chain.metagraph(await session.chain.finalized_block())).uid_of(session.signer.hotkey) is None:
        await asyncio.sleep(FINAL_PAUSE_S)


def _checked_source(settings: Settings, agent: Path) -> tuple[str, list[str]]:
    """The text of an agent file that the gate's rules on form and names let pass, and what a person would look at.

    Raises ArenaError as `read_source`, or with the first rejection."""
    from arena.gate.isolation import inspect_isolated
    from arena.gate.knowledge import make_knowledge
    from arena.submissions.model import read_source
    from neurons.node.public_inputs import policy_of

    rules = policy_of(settings).gate
    source = read_source(agent, rules.source_bytes)
    # without a catalogue: every rule but the tables, in a process of its own
    report = inspect_isolated(source, rules, make_knowledge([], [], [], rules))
    if report.failure is not None:
        for found in report.rejections:
            typer.echo(f"{agent}:{found.line}: {found}", err=True)
        raise ArenaError(report.failure.code, report.failure.detail)
    return source, [str(found) for found in report.findings]


async def _withdraw(settings: Settings, version: str, urls: list[str]) -> dict[str, Any]:
    async with open_session(settings) as session:
        doors = [door for door in await session.doors(urls, await session.chain.metagraph()) if door.state is not None]
        having: dict[str, list[FoundDoor]] = {}
        for door in doors:
            for each in await session.client.statuses(door.url, door.validator):
                if each.agent_version_id.startswith(version):
                    having.setdefault(each.agent_version_id, []).append(door)
        if len(having) != 1:
            raise typer.BadParameter(f"{len(having)} versions of this hotkey begin with {version!r}: arena versions")
        ((agent, having_it),) = having.items()
        dropped, kept = [], []
        for door in having_it:
            try:
                await session.client.withdraw(door.url, door.validator, agent)
                dropped.append(door.validator)
            except ArenaError as error:
                failure = error.failure
                kept.append({"validator": door.validator, "code": failure.code, "detail": failure.detail})
    if not dropped:
        raise ArenaError(str(kept[0]["code"]), str(kept[0]["detail"]))
    return {"agent_version_id": agent, "withdrawn_from": dropped, "kept_by": kept}


def _submit_lines(answer: dict[str, Any]) -> list[str]:
    lines = [
        f"{badge('waiting', 'cyan', 8)}  {answer['name']}  version {answer['agent_version_id'][:16]}",
        f"committed {answer['commitment_sha256'][:16]} in block {answer['commitment_block']} by {answer['hotkey']}",
        *(f"taken by {row['validator']} at {row['url']}" for row in answer["taken_by"]),
        *(f"refused by {row['validator']}: {row['code']} {row['detail']}" for row in answer["refused_by"]),
        *(f"not reached: {row['url']}: {row['code']} {row['detail']}" for row in answer["not_reached"]),
        *(f"note: {found}; a person will look" for found in answer["review"]),
    ]
    if len(answer["taken_by"]) < answer["wanted"]:
        lines.append(f"note: {answer['wanted']} validators were wanted; the others fetch it by its commitment")
    return [*lines, "next: arena status --watch, with the same flags"]
