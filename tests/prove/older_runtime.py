"""A client of a real chain for a runtime older than the SDK, with the names of what had to be stood in for.

Storage items that the runtime lacks read as unset, calls are composed under the name that they had, and the nonce is
asked for under the name of the executor's method. The product knows none of this.
"""

from __future__ import annotations

from typing import Any

import bittensor
from bittensor._transport.errors import StorageFunctionNotFound, SubstrateRequestException

from arena.chain.sdk_client import NodeSubstrate

_EARLIER = {"set_mechanism_weights": "set_weights", "commit_timelocked_mechanism_weights": "commit_crv3_weights"}


class OlderRuntime(NodeSubstrate):
    """The product's backend; `stood_in` fills with what the chain lacks."""

    stood_in: set[str] = set()

    async def connect(self) -> None:
        await super().connect()
        session = self.raw._session
        request = session.request

        async def request_under_either_name(method: str, params: Any = None) -> Any:
            try:
                return await request(method, params)
            except SubstrateRequestException as error:
                if method != "account_nextIndex" or "not found" not in str(error).lower():
                    raise
                self.stood_in.add("rpc account_nextIndex")
                return await request("system_accountNextIndex", params)

        session.request = request_under_either_name

    async def query(self, module: str, storage: str, params: Any = None, block_hash: str | None = None) -> Any:
        try:
            return await super().query(module, storage, params, block_hash)
        except StorageFunctionNotFound:
            self.stood_in.add(f"storage {module}.{storage}")
            return 0

    async def compose(self, call: Any, *rest: Any, **settings: Any) -> Any:
        try:
            return await super().compose(call, *rest, **settings)
        except ValueError:
            pallet, name, arguments = call[0], call[1], dict(call[2])
            if name not in _EARLIER:
                raise
            self.stood_in.add(f"call {pallet}.{name}")
            for argument in ("mecid", "commit_reveal_version"):
                arguments.pop(argument, None)
            return await super().compose((pallet, _EARLIER[name], arguments), *rest, **settings)


def make_client(url: str) -> Any:
    """The SDK's client over `OlderRuntime`."""
    return bittensor.Client(url, substrate=OlderRuntime(url))
