"""Newtypes for identifiers, so that a hotkey is never passed where a race id is meant."""

from __future__ import annotations

from typing import NewType

Hotkey = NewType("Hotkey", str)  # ss58, prefix 42
AgentVersionId = NewType("AgentVersionId", str)  # sha256(hotkey, newline, source sha256), hex
RaceId = NewType("RaceId", str)
ProblemId = NewType("ProblemId", str)
Sha256 = NewType("Sha256", str)  # lower-case hex
