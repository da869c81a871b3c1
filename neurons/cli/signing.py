"""The hotkey a command signs with: its options, and the wallet opened for it. Settings fill in what no flag says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arena.chain.port import Signer

WalletNameOption = Annotated[str, typer.Option("--wallet.name", help="Coldkey's name of the wallet that signs.")]
WalletHotkeyOption = Annotated[
    str, typer.Option("--wallet.hotkey", help="The hotkey that signs; on the local network also //NAME.")
]
WalletPathOption = Annotated[str, typer.Option("--wallet.path", help="Folder of the wallets.")]
NetworkOption = Annotated[str, typer.Option("--subtensor.network", help="local, finney, or the chain's ws:// URL.")]


def open_signing_key(wallet_name: str, wallet_hotkey: str, wallet_path: str, network: str) -> Signer:
    """The signer of that hotkey. Raises ArenaError V2031 for a key that can't be read, V2030 for a setting."""
    from arena.chain.opening import open_signer
    from neurons.node.settings import resolve

    flags = {"wallet_name": wallet_name, "wallet_hotkey": wallet_hotkey, "wallet_path": wallet_path, "network": network}
    settings = resolve(flags).settings
    return open_signer(
        settings.network, name=settings.wallet_name, hotkey=settings.wallet_hotkey, path=settings.wallet_path
    )
