"""Our ids as that API spells them, and back: UUIDs for races, agents and problems, numbers for suites.

Promise: pure, and the same on every node. A UUID says nothing that the id it is made from does not say.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "agent-arena/sn15")
_DIGITS = re.compile(r"\d{1,6}$")


def version_uuid(agent_version_id: str) -> str:
    """The UUID of an agent version."""
    return str(uuid.uuid5(_NAMESPACE, f"version {agent_version_id}"))


def agent_uuid(miner_hotkey: str, name: str) -> str:
    """The UUID of all versions that a hotkey submits under one name."""
    return str(uuid.uuid5(_NAMESPACE, f"agent {miner_hotkey} {name}"))


def race_uuid(race_id: str) -> str:
    """The UUID of a race."""
    return str(uuid.uuid5(_NAMESPACE, f"race {race_id}"))


def problem_uuid(problem_id: str) -> str:
    """The UUID of a problem."""
    return str(uuid.uuid5(_NAMESPACE, f"problem {problem_id}"))


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
