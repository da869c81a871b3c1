"""What a miner's commands share: their options, the hotkey, the chain, and the validators' doors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import ArenaError
from neurons import wallet_flags
from neurons.cli.options import WalletHotkeyOption, WalletNameOption

if TYPE_CHECKING:
    from arena.chain.port import Metagraph, Signer, Subtensor
    from arena.door.client import DoorClient, FoundDoor
    from neurons.node.settings import Settings

WalletName = WalletNameOption
WalletHotkey = WalletHotkeyOption
Netuid = Annotated[str, typer.Option(*wallet_flags.NETUID, help="The subnet.", metavar="INTEGER")]
StateDir = Annotated[
    str, typer.Option("--state-dir", help="With network local: the validator's folder, where the chain lies.")
]
Policy = Annotated[str, typer.Option("--policy", help="Policy by name or JSON file.")]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file of settings.")]
Urls = Annotated[
    list[str] | None,
    typer.Option("--url", help="A validator's door, http://host:port; repeatable. Default: those the chain names."),
]


@dataclass(frozen=True)
class MinerSession:
    """A hotkey, its chain, and a client for doors."""

    settings: Settings
    signer: Signer
    chain: Subtensor
    client: DoorClient

    async def doors(self, urls: Sequence[str], metagraph: Metagraph) -> list[FoundDoor]:
        """The doors that can be asked and those that can't, with their reasons. Raises ArenaError U3053 for none."""
        from arena.door.client import find_doors

        found = await find_doors(self.client, metagraph, urls)
        if not any(door.state for door in found):
            reasons = [f"{door.url}: {door.failure.code} {door.failure.detail}" for door in found if door.failure]
            raise ArenaError("U3053", "; ".join(reasons) or "none publishes an address on chain")
        return found


def read_settings(config: Path | None, **flags: str) -> Settings:
    """The settings under these flags. Raises ArenaError V2030."""
    from neurons.node.settings import resolve

    return resolve(flags, config).settings


@contextlib.asynccontextmanager
async def open_session(settings: Settings) -> AsyncIterator[MinerSession]:
    """The session of the settings' hotkey. Raises ArenaError V2031, U3030."""
    from arena.chain.auth import HttpAuth
    from arena.door.client import DoorClient
    from neurons.node.wiring import chain_of, signer_of

    signer = signer_of(settings)
    chain = chain_of(settings)
    async with DoorClient(HttpAuth(signer, time.time_ns), settings.netuid) as client:
        yield MinerSession(settings=settings, signer=signer, chain=chain, client=client)


def failure_row(door: FoundDoor) -> dict[str, Any]:
    """A door that can't be asked, as `--json` prints it."""
    assert door.failure is not None
    return {"url": door.url, "validator": door.validator, "code": door.failure.code, "detail": door.failure.detail}
