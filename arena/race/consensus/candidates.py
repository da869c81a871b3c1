"""Who races: one agent version per hotkey, committed on chain by the closing block.

Order: the incumbent races whatever else its hotkey has submitted; else the best qualified version;
ties go to the earlier commitment, then to the smaller version id. Source: docs/architecture.md#the-mechanism; SN15's
validator.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.race.model import Candidate


def select_candidates(
    candidates: Iterable[Candidate], closing_block: int, eliminated: frozenset[str] = frozenset()
) -> tuple[Candidate, ...]:
    """The field of a race, by agent version id. Pass only agents that qualified, and the incumbent.

    A candidate needs a commitment in a block up to `closing_block` (the caller passes a finalized one). `eliminated`
    holds version ids that left by an earlier settlement; the incumbent is never among the eliminated.
    """
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        if not candidate.subject.commitment_sha256 or candidate.subject.commitment_block > closing_block:
            continue
        if candidate.subject.agent_version_id in eliminated and not candidate.is_incumbent:
            continue
        rival = best.get(candidate.subject.miner_hotkey)
        if rival is None or _preference(candidate) < _preference(rival):
            best[candidate.subject.miner_hotkey] = candidate
    return tuple(sorted(best.values(), key=lambda candidate: candidate.subject.agent_version_id))


def _preference(candidate: Candidate) -> tuple[bool, int, int, str]:
    """Smaller is preferred."""
    subject = candidate.subject
    return (
        not candidate.is_incumbent,
        -candidate.qualifying_score_e4,
        subject.commitment_block,
        subject.agent_version_id,
    )
