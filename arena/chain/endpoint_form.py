"""The form of an endpoint on chain: one rule for what a hotkey may publish and for how a reader understands it.

Promise: `http://<ip>:<port>` in one spelling, IPv6 in brackets. A name is refused, because the chain holds an address.
What somebody else published is total to read: an address that can't be one reads as "", never as an exception. Whether
an endpoint may be connected to is the caller's decision.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from foundation.errors import ArenaError

PORT_MAX = 65_535
_VERSIONS = {4: ipaddress.IPv4Address, 6: ipaddress.IPv6Address}


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
