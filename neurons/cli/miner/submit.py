"""`arena submit` and `arena status`: a miner's commands. The rules are in `arena/submissions` and `arena/gate`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import ArenaError
from neurons.cli.options import JsonOption, NetworkOption, WalletPathOption
from neurons.cli.presenter import badge, show

if TYPE_CHECKING:
    from arena.chain.port import Signer, Subtensor
    from arena.submissions.inbox import Inbox
    from neurons.node.settings import Settings

app = typer.Typer()

LOCAL_NETWORK = "local"
_COLOURS = {
    "accepted": "green",
    "qualified": "green",
    "review": "yellow",
    "rejected": "red",
    "refused": "red",
    "unqualified": "red",
    "waiting": "cyan",
}

_WalletName = Annotated[str, typer.Option("--wallet.name", help="Coldkey's name.")]
_WalletHotkey = Annotated[
    str, typer.Option("--wallet.hotkey", help="Hotkey's name; on the local network also a development key: //Alice.")
]
_Netuid = Annotated[str, typer.Option("--netuid", help="The subnet.", metavar="INTEGER")]
_StateDir = Annotated[str, typer.Option("--state-dir", help="State folder; its inbox is where the agent goes.")]
_Policy = Annotated[str, typer.Option("--policy", help="Policy by name or JSON file.")]
_Config = Annotated[Path | None, typer.Option("--config", help="TOML file of settings.")]


@app.command()
def submit(
    agent: Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.")],
    name: Annotated[str, typer.Option(help="Name shown beside the agent; else the file's.")] = "",
    register: Annotated[
        bool, typer.Option("--register", help="Register the hotkey first (local network only).")
    ] = False,
    wallet_name: _WalletName = "",
    wallet_hotkey: _WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: _Netuid = "",
    network: NetworkOption = "",
    state_dir: _StateDir = "",
    policy: _Policy = "",
    config: _Config = None,
    as_json: JsonOption = False,
) -> None:
    """Sign an agent file and submit it.

    First the gate's rules on form and names are checked here, so that a typing mistake costs nothing (`arena check`
    also knows the catalogue). Then sha256(hotkey, source) is committed on chain, and only then the source is handed in.
    Exit code 1 when the gate would reject it or the hotkey may not submit, 3 when wallet or chain are not there.
    """
    settings = _settings(wallet_name, wallet_hotkey, wallet_path, netuid, network, state_dir, policy, config)

    from arena.gate.isolation import inspect_isolated
    from arena.gate.knowledge import make_knowledge
    from arena.submissions.model import read_source
    from neurons.node.wiring import policy_of

    rules = policy_of(settings).gate
    source = read_source(agent, rules.source_bytes)
    # without a catalogue: every rule but the tables, in a process of its own
    report = inspect_isolated(source, rules, make_knowledge([], [], [], rules))
    if report.failure is not None:
        for found in report.rejections:
            typer.echo(f"{agent}:{found.line}: {found}", err=True)
        raise ArenaError(report.failure.code, report.failure.detail)
    answer = asyncio.run(_submit(settings, name or agent.stem, source, is_registering=register))
    answer["review"] = [str(found) for found in report.findings]
    lines = [
        f"{_badge('waiting')}  {answer['name']}  version {answer['agent_version_id'][:16]}",
        f"committed {answer['commitment_sha256'][:16]} in block {answer['commitment_block']} by {answer['hotkey']}",
        f"handed in to {answer['inbox']}",
        *(f"note: {found}; a person will look" for found in answer["review"]),
    ]
    if answer["network"] != LOCAL_NETWORK:
        lines.append("note: only a validator that reads this folder sees it")
    show(answer, [*lines, "next: arena status, with the same flags"], as_json=as_json)


@app.command()
def status(
    wallet_name: _WalletName = "",
    wallet_hotkey: _WalletHotkey = "",
    wallet_path: WalletPathOption = "",
    netuid: _Netuid = "",
    network: NetworkOption = "",
    state_dir: _StateDir = "",
    config: _Config = None,
    as_json: JsonOption = False,
) -> None:
    """Show where submissions stand.

    Of one hotkey: its uid, its latest commitment, agents that wait in the inbox, and a receipt for each answered one:
    accepted, under review, rejected by the gate or refused at the door, why, and the block that may hold the next.
    """
    settings = _settings(wallet_name, wallet_hotkey, wallet_path, netuid, network, state_dir, "", config)
    answer = asyncio.run(_status(settings))
    show(answer, _status_lines(answer), as_json=as_json)


def _settings(
    wallet_name: str,
    wallet_hotkey: str,
    wallet_path: str,
    netuid: str,
    network: str,
    state_dir: str,
    policy: str,
    config: Path | None,
) -> Settings:
    from neurons.node.settings import resolve

    flags = {
        "wallet_name": wallet_name,
        "wallet_hotkey": wallet_hotkey,
        "wallet_path": wallet_path,
        "netuid": netuid,
        "network": network,
        "state_dir": state_dir,
        "policy": policy,
    }
    return resolve(flags, config).settings


def _open(settings: Settings) -> tuple[Signer, Subtensor, Inbox]:
    from arena.chain.opening import open_signer, open_subtensor
    from arena.submissions.inbox import Inbox
    from neurons.node.wiring import unix_ms

    signer = open_signer(
        settings.network, name=settings.wallet_name, hotkey=settings.wallet_hotkey, path=settings.wallet_path
    )
    chain = open_subtensor(settings.network, netuid=settings.netuid, state_dir=settings.state_dir, now_ms=unix_ms)
    return signer, chain, Inbox(settings.state_dir / "inbox")


async def _submit(settings: Settings, name: str, source: str, *, is_registering: bool) -> dict[str, Any]:
    from msgspec import to_builtins

    from arena.submissions.flow import submit as hand_in
    from neurons.node.wiring import unix_ms

    signer, chain, inbox = _open(settings)
    if is_registering:
        registered = await chain.register(signer)
        if registered.status != "ok":
            raise ArenaError("U3031", registered.detail)
    submitted = await hand_in(signer, name, source, subtensor=chain, inbox=inbox, now_ms=unix_ms())
    answer: dict[str, Any] = to_builtins(submitted)
    return {"name": name, **answer, "network": settings.network, "inbox": str(settings.state_dir / "inbox")}


async def _status(settings: Settings) -> dict[str, Any]:
    from msgspec import to_builtins

    signer, chain, inbox = _open(settings)
    commitment = await chain.commitment(signer.hotkey)
    return {
        "hotkey": signer.hotkey,
        "network": settings.network,
        "netuid": settings.netuid,
        "uid": (await chain.metagraph()).uid_of(signer.hotkey),
        "block": await chain.block(),
        "finalized_block": await chain.finalized_block(),
        "commitment": to_builtins(commitment),
        "waiting": [
            {"name": entry.submission.name, "agent_version_id": entry.submission.agent_version_id}
            for entry in inbox.pending()
            if entry.submission is not None and entry.submission.hotkey == signer.hotkey
        ],
        "receipts": [to_builtins(receipt) for receipt in inbox.receipts(signer.hotkey)],
    }


def _status_lines(answer: dict[str, Any]) -> list[str]:
    """What `arena status` says to a person, given the answer that `--json` prints."""
    uid = "not registered" if answer["uid"] is None else f"uid {answer['uid']}"
    held = answer["commitment"]
    committed = "no commitment" if held is None else f"commitment {held['sha256'][:16]} of block {held['block']}"
    lines = [
        f"{answer['hotkey']}  {uid} on {answer['network']} {answer['netuid']}",
        f"block {answer['block']}, finalized {answer['finalized_block']}  {committed}",
    ]
    lines += [f"{_badge('waiting')}  {row['name']}  {row['agent_version_id'][:16]}" for row in answer["waiting"]]
    for row in answer["receipts"]:
        failure, findings = row["failure"], (row["report"] or {}).get("findings", [])
        reason = ""
        if failure is not None:
            reason = f"  {failure['code']} {failure['detail']}".rstrip()
        elif findings:
            reason = f"  {findings[0]['rule']}, line {findings[0]['line']}"
        lines.append(f"{_badge(row['state'])}  {row['name']}  {row['agent_version_id'][:16]}{reason}")
        lines.append(f"    committed in block {row['submitted_block']}, next from block {row['next_allowed_block']}")
        if row["held_until"] and row["state"] == "review":
            lines.append(f"    undecided, it counts as accepted from block {row['held_until']}")
        if row["agreed"]:
            lines += [f"    {line}" for line in _agreed_lines(row["agreed"])]
    if not answer["waiting"] and not answer["receipts"]:
        lines.append("nothing submitted from this folder; next: arena submit AGENT.py")
    return lines


def _agreed_lines(agreed: dict[str, Any]) -> list[str]:
    """Where an agent stood with all validators at the last close."""
    gate = f"gate passed by {agreed['accepts']} of {agreed['speakers']} validators"
    if agreed["rejects"]:
        gate += f", rejected by {agreed['rejects']}"
    suite = f"suite passed by {agreed['suite_passes']} of {agreed['suite_finished']} that finished it"
    needed = f"needed: {agreed['needed']} and {agreed['suite_needed']}"
    ended = "it races" if agreed["is_racing"] else "it does not race"
    if agreed["state"] == "cooldown":
        ended += f": committed too early, submit again from block {agreed['allowed_block']}"
    return [f"at the last close: {ended}", f"{gate}; {suite} ({needed})"]


def _badge(state: str) -> str:
    return badge(state, _COLOURS[state], 8)
