"""The form that what goes on chain must have: one rule for the real chain and its twin.

Weights: the SDK rescales a vector so that its largest entry becomes 65535; only a vector that already has that maximum
reaches the chain bit for bit. Vectors of any other form are refused here, not repaired. Endpoints: `http://<ip>:<port>`
in one spelling, IPv6 in brackets. A name is refused, because the chain holds an address. What somebody else published
is total to read: an address that can't be one reads as "", never as an exception. Whether an endpoint may be connected
to is the caller's decision.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from foundation.errors import ArenaError

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


def split_endpoint(endpoint: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Address and port of `http://<ip>:<port>`. Raises ArenaError V2119 for anything else, and for 0 as either."""
    try:
        parts = urlsplit(endpoint)
        address, port = ipaddress.ip_address(parts.hostname or ""), parts.port or 0
    except ValueError as error:
        raise ArenaError("V2119", f"{endpoint!r}: {error}") from error
    if format_endpoint(int(address), port, address.version) != endpoint.rstrip("/"):
        raise ArenaError("V2119", f"{endpoint!r} is not http://<ip>:<port>")
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
