"""How a wallet, a network and a subnet are spelled on a command line: once, for every command and both programs."""

from __future__ import annotations

NAME = ("--wallet.name", "--wallet", "--wallet-name", "-w")
HOTKEY = ("--wallet.hotkey", "--wallet-hotkey", "-H")
PATH = ("--wallet.path", "--wallet-path")
NETWORK = ("--subtensor.network", "--network", "-n")
NETUID = ("--netuid",)
SETTINGS = {  # spelling -> the setting it gives
    **dict.fromkeys(NAME, "wallet_name"),
    **dict.fromkeys(HOTKEY, "wallet_hotkey"),
    **dict.fromkeys(PATH, "wallet_path"),
    **dict.fromkeys((*NETWORK, "--subtensor.chain_endpoint"), "network"),
}
