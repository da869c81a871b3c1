"""The chain ports: signer, subtensor, beacon, timelock. Each has a local twin that demo and tests run on.

Only `arena/chain` imports bittensor. Blocks are the clock of commitments, cooldowns and rate limits; the beacon is the
clock of draws.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from foundation.errors import ArenaError

LOCAL_NETWORK = "local"


def is_local(network: str) -> bool:
    """Whether a network is the local twin, here or at another machine's address: no real chain, and no real money."""
    return network == LOCAL_NETWORK or network.startswith("http://")


class Signer(Protocol):
    """A hotkey that can sign. Signatures are randomised: never an identity."""

    @property
    def hotkey(self) -> str:
        """ss58 address, prefix 42."""
        ...

    def sign(self, message: bytes) -> bytes:
        """64 bytes over `message`, which must start with a domain tag."""
        ...


Verifier = Callable[[str, bytes, bytes], bool]
"""Whether a hotkey (ss58) signed a message: hotkey, message, signature. Never raises."""


class Neuron(msgspec.Struct, frozen=True, kw_only=True):
    """One uid of the subnet at a block."""

    uid: int
    hotkey: str
    coldkey: str = ""
    has_validator_permit: bool = False
    stake_rao: int = 0
    endpoint: str = ""  # `http://host:port` where this hotkey says it answers; "" where it says nothing


class Metagraph(msgspec.Struct, frozen=True, kw_only=True):
    """The subnet at one block."""

    netuid: int
    block: int
    tempo: int
    neurons: tuple[Neuron, ...]

    def uid_of(self, hotkey: str) -> int | None:
        """The uid of a hotkey, or None when it is not registered at this block."""
        return next((n.uid for n in self.neurons if n.hotkey == hotkey), None)


class Commitment(msgspec.Struct, frozen=True, kw_only=True):
    """What a hotkey committed, and in which block."""

    hotkey: str
    sha256: str
    block: int


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """How an extrinsic ended."""

    status: Literal["ok", "rate_limited", "not_registered", "failed"]
    block: int
    detail: str = ""


Vector = tuple[tuple[int, ...], tuple[int, ...]]  # uids and their u16 weights
Renew = Callable[[], Awaitable[Vector]]


class StatePrunedError(ArenaError):
    """U3033: the node behind the chain no longer keeps the state of a block of the past."""


class Subtensor(Protocol):
    """The chain as this software needs it.

    Raises ArenaError U3030 when it can't be reached, U3049 for a block that isn't sealed yet, and StatePrunedError.
    """

    @property
    def netuid(self) -> int: ...

    async def check(self, hotkey: str | None = None) -> None:
        """Whether this release can do all its work on this chain, and the proxy that is set sign for `hotkey`.

        Raises ArenaError U3037 (a runtime it doesn't know, weights of a newer release), U3039 (no
        such subnet), V2032 (the chain would refuse the proxy), U3030. The twin has all of it.
        """
        ...

    async def block(self) -> int: ...

    async def finalized_block(self) -> int: ...

    async def block_at(self, unix_ms: int) -> int | None:
        """The last block whose timestamp is not later than `unix_ms`, or None while a later block may still be one:
        until a finalized block is later. 0: the moment lies before the first block. Raises U3033 as every read of the
        past does."""
        ...

    async def head_ms(self) -> int:
        """When the newest block was made, by the chain: unix milliseconds."""
        ...

    async def block_hash(self, block: int) -> str:
        """The hash of a sealed block. It can change while the block isn't final, and never after."""
        ...

    async def metagraph(self, block: int | None = None) -> Metagraph: ...

    async def commitments(self, hotkeys: Sequence[str], block: int) -> dict[str, Commitment]:
        """`commitment` of several hotkeys at one block; those without one are left out."""
        ...

    async def publish(self, signer: Signer, endpoint: str) -> ChainResult:
        """Say on chain where this hotkey answers, as `http://<ip>:<port>`. `failed` for an endpoint of another form."""
        ...

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None: ...

    async def commitment_place(self, hotkey: str, sha256: str, block: int) -> int:
        """Where that commitment stands in its sealed block, from 0; behind all that it holds where it is not found."""
        ...

    async def commit(self, signer: Signer, sha256: str) -> ChainResult: ...

    async def register(self, signer: Signer) -> ChainResult: ...

    async def set_weights(
        self, signer: Signer, uids: tuple[int, ...], weights_u16: tuple[int, ...], *, renew: Renew | None = None
    ) -> ChainResult:
        """Set weights. `renew` says them anew where the hotkey had to wait for its turn as a sender."""
        ...

    async def weights(self, hotkey: str) -> tuple[tuple[int, int], ...]:
        """(uid, u16) pairs last set by a validator, by uid."""
        ...

    async def owner_hotkey(self) -> str | None:
        """The hotkey of the subnet's owner, ss58; None where the chain names none."""
        ...


class BeaconRound(msgspec.Struct, frozen=True, kw_only=True):
    """One verified beacon round. `signature` is hex; the seed is derived from it."""

    network: str
    round: int
    signature: str


class Beacon(Protocol):
    """A public randomness beacon."""

    @property
    def network(self) -> str: ...

    def round_after(self, unix_ms: int) -> int:
        """The first round published strictly after that moment."""
        ...

    async def fetch(self, round_number: int) -> BeaconRound | None:
        """The verified round, or None while it is not published. Raises ArenaError U3032 on a bad signature."""
        ...


class Timelock(Protocol):
    """Encryption to a round of a beacon: unreadable before the round is published, readable offline with it."""

    @property
    def network(self) -> str:
        """The beacon whose rounds open it."""
        ...

    def opens_ms(self, round_number: int) -> int:
        """Unix milliseconds at which that round is published."""
        ...

    def encrypt(self, content: bytes, round_number: int) -> bytes:
        """Content sealed to a round."""
        ...

    def decrypt(self, sealed: bytes, beacon_round: BeaconRound) -> bytes:
        """The content. Raises ArenaError P4026 when this round does not open it, or when it was damaged."""
        ...


U16_MAX = 65_535
PORT_MAX = 65_535
_VERSIONS = {4: ipaddress.IPv4Address, 6: ipaddress.IPv6Address}


def weights_refusal(uids: tuple[int, ...], weights_u16: tuple[int, ...]) -> str | None:
    """Why the vector can't be set, or None when it is well formed."""
    if len(uids) != len(weights_u16):
        return f"{len(uids)} uids for {len(weights_u16)} weights"
    if not uids:
        return "the vector is empty"
    if len(set(uids)) != len(uids):
        return "a uid stands twice"
    if any(not 0 <= uid <= U16_MAX for uid in uids):
        return "a uid is outside 0..65535"
    if any(not 0 <= weight <= U16_MAX for weight in weights_u16):
        return "a weight is outside 0..65535"
    if max(weights_u16) != U16_MAX:
        return "the largest weight is not 65535"
    return None


def hash_refusal(sha256: str) -> str | None:
    """Why the text is no sha256 to commit, or None when it is 64 lower-case hex digits."""
    if len(sha256) == 64 and set(sha256) <= set("0123456789abcdef"):
        return None
    return "a commitment is 64 lower-case hex digits"


def endpoint_refusal(endpoint: str) -> str | None:
    """Why the text can't be published, or None when it is `http://<ip>:<port>`."""
    try:
        split_endpoint(endpoint)
    except ArenaError as error:
        return error.failure.detail
    return None


def split_endpoint(endpoint: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Address and port of `http://<ip>:<port>`. Raises ArenaError V2030 for anything else, and for 0 as either."""
    try:
        parts = urlsplit(endpoint)
        address, port = ipaddress.ip_address(parts.hostname or ""), parts.port or 0
    except ValueError:  # no address, or no port
        address, port = ipaddress.IPv4Address(0), 0
    if not port or format_endpoint(int(address), port, address.version) != endpoint.rstrip("/"):
        raise ArenaError("V2030", f"{endpoint!r} is not http://<ip>:<port>")
    return address, port


def format_endpoint(ip: int, port: int, ip_version: int) -> str:
    """The endpoint that a number, a port and 4 or 6 stand for; "" where they stand for none."""
    make = _VERSIONS.get(ip_version)
    if make is None or ip <= 0 or not 1 <= port <= PORT_MAX:
        return ""
    try:
        address = make(ip)
    except ValueError:  # a number too large for its version
        return ""
    return f"http://[{address}]:{port}" if ip_version == 6 else f"http://{address}:{port}"
