"""Neighbours: which submissions a submission is compared with, in the order of their commitments.

Pure. Arrival plays no part: validators that know the same submissions compare each with the same ones, and the
hash says which they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from arena.records.model import Subject

_DOMAIN = b"agent-arena/neighbours/1\n"
_NO_REVEALS: Mapping[str, int] = {}


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """The submissions committed before one, and which of them were revealed winners by then. `sha256` is over both."""

    others: tuple[Subject, ...]
    winners: tuple[Subject, ...] = ()
    sha256: str


def commitment_order(subject: Subject) -> tuple[int, str]:
    """Where a submission stands: by the block of its commitment, within one block by its version's hash."""
    return subject.commitment_block, subject.agent_version_id


def hashes_before(subjects: Iterable[Subject], reveals: Mapping[str, int] = _NO_REVEALS) -> dict[str, str]:
    """By agent version: the hash over what was committed before it. `reveals` are the blocks at which the sources of
    winners opened, by agent version: those that had opened by its commitment stand in its hash."""
    digest, found = hashlib.sha256(_DOMAIN), {}
    for subject in sorted(subjects, key=commitment_order):
        opened = digest.copy()
        for agent in sorted(agent for agent, block in reveals.items() if block <= subject.commitment_block):
            opened.update(f"winner {agent}\n".encode())
        found[subject.agent_version_id] = opened.hexdigest()
        digest.update(f"{subject.commitment_block} {subject.agent_version_id}\n".encode())
    return found


def neighbourhood(
    subject: Subject, known: Iterable[Subject], reveals: Mapping[str, int] = _NO_REVEALS
) -> Neighbourhood:
    """What a submission is compared with, of those that are known: itself is none of them. Its owner's own versions are
    told apart by the rule (`arena.gate.likeness`), which has to know what they held first."""
    agent = subject.agent_version_id
    all_known = [*(each for each in known if each.agent_version_id != agent), subject]
    others = tuple(
        sorted((each for each in all_known if commitment_order(each) < commitment_order(subject)), key=commitment_order)
    )
    by_now = {name for name, block in reveals.items() if block <= subject.commitment_block}
    return Neighbourhood(
        others=others,
        winners=tuple(each for each in others if each.agent_version_id in by_now),
        sha256=hashes_before([*others, subject], reveals)[agent],
    )
