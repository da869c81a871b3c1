"""Neighbours: which submissions a submission is compared with, in the order of their commitments.

Promise: pure. Arrival plays no part: validators that know the same submissions compare each with the same ones, and the
hash says which they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from arena.records.model import Subject

_DOMAIN = b"agent-arena/neighbours/1\n"


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """The submissions of other hotkeys committed before one. `sha256` is over all that were committed before it."""

    others: tuple[Subject, ...]
    sha256: str


def commitment_order(subject: Subject) -> tuple[int, str]:
    """Where a submission stands: by the block of its commitment, within one block by its version's hash."""
    return subject.commitment_block, subject.agent_version_id


def hashes_before(subjects: Iterable[Subject]) -> dict[str, str]:
    """By agent version: the hash over what was committed before it."""
    digest, found = hashlib.sha256(_DOMAIN), {}
    for subject in sorted(subjects, key=commitment_order):
        found[subject.agent_version_id] = digest.copy().hexdigest()
        digest.update(f"{subject.commitment_block} {subject.agent_version_id}\n".encode())
    return found


def neighbourhood(subject: Subject, known: Iterable[Subject]) -> Neighbourhood:
    """What a submission is compared with, of those that are known; itself and its hotkey's own are none of them."""
    agent = subject.agent_version_id
    all_known = [*(each for each in known if each.agent_version_id != agent), subject]
    earlier = sorted(
        (each for each in all_known if commitment_order(each) < commitment_order(subject)), key=commitment_order
    )
    others = tuple(each for each in earlier if each.miner_hotkey != subject.miner_hotkey)
    return Neighbourhood(others=others, sha256=hashes_before([*earlier, subject])[agent])
