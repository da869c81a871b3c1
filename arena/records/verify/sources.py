"""Sources: the agent files a store keeps, held against the hashes by which records and the chain name them.

A record says which agent ran by the hash of its source; the source itself is kept beside the log, in the submissions of
a validator. A kept file that is not the one its submission names is reported, and nothing else of it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable

import msgspec

from arena.store.port import StoredSource
from arena.submissions.model import agent_version_id, commitment_sha256


class SourceDefect(msgspec.Struct, frozen=True, kw_only=True):
    """A kept source that is not what its submission says."""

    validator: str
    agent_version_id: str
    detail: str


class SourcesReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many sources were checked, and those that are wrong, in the order they came."""

    checked: int
    defects: tuple[SourceDefect, ...]


async def verify_sources(sources: AsyncIterable[StoredSource]) -> SourcesReport:
    """Hash every source and compare. Holds one page of them at a time, as the store reads them."""
    checked, defects = 0, []
    async for kept in sources:
        checked += 1
        if wrong := source_fault(kept):
            agent = kept.subject.agent_version_id
            defects.append(SourceDefect(validator=kept.validator, agent_version_id=agent, detail=wrong))
    return SourcesReport(checked=checked, defects=tuple(defects))


def source_fault(kept: StoredSource) -> str:
    """What is wrong with a kept source, or ""."""
    subject = kept.subject
    if hashlib.sha256(kept.source).hexdigest() != subject.agent_sha256:
        return "its source does not have the hash that was submitted"
    if agent_version_id(subject.miner_hotkey, subject.agent_sha256) != subject.agent_version_id:
        return "its id does not follow from its miner and its source"
    if commitment_sha256(subject.miner_hotkey, kept.source.decode(errors="replace")) != subject.commitment_sha256:
        return "its source is not the one that stands on chain"
    return ""
