"""A client whose first extrinsic carries a nonce that is spent, as another machine of the hotkey would leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arena.chain.sender import is_taken_nonce


def spending(make_client: Callable[[str], Any], refusals: list[str]) -> Callable[[str], Any]:
    """Makes such clients; the chain's words to each extrinsic whose nonce it calls taken go into `refusals`."""

    def make(url: str) -> Any:
        client = make_client(url)
        prepare, submit = client.prepare_call, client.submit_signature
        is_spent = False

        async def prepare_spent(call: Any, *, address: str) -> Any:
            nonlocal is_spent
            if is_spent:
                return await prepare(call, address=address)
            is_spent = True
            following = await client._substrate.account_next_index(address)
            client._substrate.raw.clear_nonce_cache_for_account(address)
            return await prepare(call, address=address, nonce=following - 1)

        async def submit_and_note(unsigned: Any, signature: bytes) -> Any:
            result = await submit(unsigned, signature)
            if is_taken_nonce(result):
                refusals.append(result.message)
            return result

        client.prepare_call, client.submit_signature = prepare_spent, submit_and_note
        return client

    return make
