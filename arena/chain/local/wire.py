"""What is said over HTTP between the local chain and a machine that has no file of it: one question, one answer.

An extrinsic is signed by the hotkey over the very bytes that the chain itself has signed at home, so the chain checks
it alike wherever it comes from.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from foundation.errors import Failure

ROUTE = "/v1/local-chain"
QUESTION_BYTES_MAX, ANSWER_BYTES_MAX = 1 << 20, 16 << 20

Call = Literal[
    "block",
    "finalized_block",
    "block_at",
    "block_hash",
    "metagraph",
    "commitment",
    "commitments",
    "weights",
    "owner_hotkey",
    "register",
    "commit",
    "publish",
    "set_weights",
]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class ChainQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of the port with its arguments; what a call does not take is left out. `signature` is hex."""

    call: Call
    netuid: _Number
    block: _Number | None = None
    unix_ms: _Number = 0
    hotkey: str = ""
    hotkeys: tuple[str, ...] = ()
    sha256: str = ""
    endpoint: str = ""
    uids: tuple[int, ...] = ()
    weights_u16: tuple[int, ...] = ()
    signature: str = ""


class ChainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the port returned, or why it failed."""

    value: Any = None
    failure: Failure | None = None
