"""How the published SN15 API writes ids, times and scores.

Ids are UUIDs of version 8 (RFC 9562, section 5.8) made from ours: 122 bits of a sha256 beside the six that say so, the
same on every node. An agent version's id is a sha256 itself, so its UUID begins with the same digits: `arena withdraw`
takes the eight before the first dash.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from datetime import UTC, datetime

_DIGITS = re.compile(r"\d{1,6}$")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def version_uuid(agent_version_id: str) -> str:
    """The UUID of an agent version."""
    is_sha256 = _SHA256.fullmatch(agent_version_id)
    return _uuid8(bytes.fromhex(agent_version_id)) if is_sha256 else _of("version", agent_version_id)


def agent_uuid(miner_hotkey: str, name: str) -> str:
    """The UUID of all versions that a hotkey submits under one name."""
    return _of("agent", miner_hotkey, name)


def race_uuid(race_id: str) -> str:
    """The UUID of a race."""
    return _of("race", race_id)


def problem_uuid(problem_id: str) -> str:
    """The UUID of a problem."""
    return _of("problem", problem_id)


def run_uuid(validator: str, race_id: str, agent_version_id: str) -> str:
    """The UUID of what one validator runs of an agent version: in a race, or ("") on the suite."""
    return _of("run", validator, race_id, agent_version_id)


def suite_number(suite: str) -> int:
    """The number at the end of a suite's name; 0 for a name without one."""
    found = _DIGITS.search(suite)
    return int(found.group()) if found else 0


def utc_text(unix_ms: int) -> str:
    """A time as that API writes it."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def fraction(score_e4: int | None) -> float | None:
    """A score in ten-thousandths as a fraction."""
    return None if score_e4 is None else score_e4 / 10_000


def _of(kind: str, *parts: str) -> str:
    return _uuid8(hashlib.sha256("\n".join((f"agent-arena/sn15/{kind}", *parts)).encode()).digest())


def _uuid8(digest: bytes) -> str:
    """48 bits, the version, 12 bits, the variant, 62 bits. The standard library makes these from Python 3.14 on."""
    bits = int.from_bytes(digest[:16])
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 8 << 76 | 2 << 62
    return str(uuid.UUID(int=bits))
