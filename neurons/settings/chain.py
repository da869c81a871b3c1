"""Signer and chain that settings name, and the clock."""

from __future__ import annotations

import time

from arena.chain.opening import open_signer, open_subtensor
from arena.chain.port import Signer, Subtensor
from neurons.settings.settings import Settings


def signer_of(settings: Settings) -> Signer:
    """The hotkey that the settings name. Raises ArenaError V2030 when it can't be read."""
    return open_signer(
        settings.network,
        name=settings.wallet_name,
        hotkey=settings.wallet_hotkey,
        path=settings.wallet_path,
        password_file=settings.wallet_password_file,
    )


def chain_of(settings: Settings) -> Subtensor:
    """The chain that the settings name. Raises ArenaError as `open_subtensor` does, and V2030 for a proxy's key."""
    of_proxy = settings.model_copy(update={"wallet_hotkey": settings.wallet_proxy})
    return open_subtensor(
        settings.network,
        netuid=settings.netuid,
        state_dir=settings.state_dir,
        now_ms=unix_ms,
        mechanism=settings.mechanism,
        proxy=signer_of(of_proxy) if settings.wallet_proxy else None,
    )


def unix_ms() -> int:
    """The wall clock, passed in wherever a decision needs one."""
    return time.time_ns() // 1_000_000
