"""`arena winner`: what everybody may learn from: the file of the agent that the latest race has at the top."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import ArenaError
from neurons.cli.miner.doors import Config, Netuid, StateDir, Urls, read_settings
from neurons.cli.options import JsonOption, NetworkOption
from neurons.cli.presenter import printable, share_text, show

if TYPE_CHECKING:
    from neurons.node.settings import Settings

app = typer.Typer()


@app.command()
def winner(
    out: Annotated[Path | None, typer.Option("--out", help="File to write; else AGENT_VERSION.py here.")] = None,
    url: Urls = None,
    netuid: Netuid = "",
    network: NetworkOption = "",
    state_dir: StateDir = "",
    config: Config = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch the file of the agent at the top, once it is public.

    Asks a validator that the chain names, or the one at --url, for its latest settled race; no wallet is needed. The
    file is written if its hash is the one that was committed for that agent version. Until the embargo of the race
    is over exit code 3 says from when on it can be read.
    """
    from arena.api.client import read_winner
    from foundation.durable_files import write_whole

    settings = read_settings(config, netuid=netuid, network=network, state_dir=state_dir)
    found = read_winner(asyncio.run(_reads_url(settings, url or [])))
    agent = found.agent.agent
    path = out or Path(f"{agent.agent_version_id[:16]}.py")
    write_whole(path, found.source)
    answer: dict[str, Any] = {
        "race_id": found.race_id,
        "agent_version_id": agent.agent_version_id,
        "name": agent.name,
        "miner_hotkey": agent.miner_hotkey,
        "score_e4": found.score_e4,
        "file": str(path),
    }
    scored = f" with {share_text(found.score_e4)}" if found.score_e4 is not None else ""
    lines = [
        f"{printable(agent.name)} by {agent.miner_hotkey} is at the top after {found.race_id}{scored}",
        f"its file: {path} ({len(found.source)} bytes, sha256 {agent.agent_sha256[:16]})",
    ]
    show(answer, lines, as_json=as_json)


async def _reads_url(settings: Settings, urls: list[str]) -> str:
    """Where the first validator that can be asked serves its public reads. Raises ArenaError U3053 for none."""
    from urllib.parse import urlsplit

    from arena.door.client import DoorClient, find_doors
    from neurons.node.wiring import chain_of

    chain = chain_of(settings)
    async with DoorClient() as client:
        doors = await find_doors(client, await chain.metagraph(), urls)
    for door in doors:
        if door.state is not None and door.state.reads_port:
            host = urlsplit(door.url).hostname or ""
            return f"http://{f'[{host}]' if ':' in host else host}:{door.state.reads_port}"
    reasons = [f"{door.url}: {door.failure.code} {door.failure.detail}" for door in doors if door.failure]
    raise ArenaError("U3053", "; ".join(reasons) or "none serves public reads")
