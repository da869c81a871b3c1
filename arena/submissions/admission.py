"""Admission: whether a submission may enter the queue, decided from public values alone; and beside which earlier ones
the gate looks at it. Two validators that see the same chain and the same earlier submissions decide the same: cooldown
and neighbours go by the blocks of *commitments*, never by arrival.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping
from itertools import groupby
from typing import Literal

import msgspec

from arena.chain.port import Commitment, Metagraph, Verifier
from arena.gate.rules import LIKENESS, GateReport
from arena.policy import CooldownRules
from arena.records.model import Hold, Subject
from arena.records.port import GATED, StoredSubmission, SubmissionState
from arena.submissions.model import SignedSubmission, is_agent_name, is_authentic
from foundation.codes import COOLDOWN, NOT_COMMITTED
from foundation.errors import ArenaError

CooldownClass = Literal["accepted", "integrity", "security", "form"]


class CooldownError(ArenaError):
    """A1006: committed too early; `blocks_left` until a new commitment counts."""

    def __init__(self, detail: str, blocks_left: int) -> None:
        super().__init__(COOLDOWN, detail)
        self.blocks_left = blocks_left


def admit(
    submission: SignedSubmission,
    *,
    commitment: Commitment | None,
    allowed_block: int,
    metagraph: Metagraph,
    verify: Verifier,
    is_commitment_enough: bool = False,
) -> int:
    """The block of the commitment by which a submission may enter the gate.

    `commitment` is the hotkey's latest finalized one, `allowed_block` the first that its cooldown allows, `metagraph`
    the subnet at the deciding block. `is_commitment_enough` is the policy's: a submission may have no signature. Raises
    ArenaError A1010 for the name, A1007 for signature or commitment, A1008 when not registered; CooldownError.
    """
    if not is_agent_name(submission.name):
        raise ArenaError("A1010", ascii(submission.name[:80]))
    if not is_authentic(submission, verify, is_commitment_enough=is_commitment_enough):
        raise ArenaError(NOT_COMMITTED, "the signature is not the hotkey's over this source")
    if metagraph.uid_of(submission.hotkey) is None:
        raise ArenaError("A1008", f"at block {metagraph.block}")
    if commitment is None:
        raise ArenaError(NOT_COMMITTED, "no finalized commitment of this hotkey")
    if commitment.hotkey != submission.hotkey or commitment.sha256 != submission.commitment_sha256:
        raise ArenaError(NOT_COMMITTED, f"the commitment of block {commitment.block} is for another source")
    if commitment.block < allowed_block:
        detail = f"committed in block {commitment.block}, allowed from block {allowed_block}: commit again then"
        raise CooldownError(detail, max(0, allowed_block - metagraph.block))
    return commitment.block


def next_allowed_block(
    stored: Iterable[StoredSubmission],
    hotkey: str,
    rules: CooldownRules,
    states: Container[SubmissionState] = GATED,
) -> int:
    """The first block at which a new commitment of a hotkey counts, by its submissions in these states: what the gate
    has looked at. 0 for a hotkey without a past."""
    mine = (each for each in stored if each.subject.miner_hotkey == hotkey and each.state in states)
    reports = ((each.subject.commitment_block, read_report(each)) for each in mine)
    # without a report, or under review, it counts as accepted
    ends = ((block, (report and report.severity) or "accepted") for block, report in reports)
    return max((block + cooldown_blocks(ended, rules) for block, ended in ends), default=0)


def refused_by_cooldown(costs: Mapping[Subject, int]) -> dict[Subject, int]:
    """The submissions that were committed too early after an earlier one of their hotkey, each with the first block
    allowed then. `costs`: what each costs in blocks when it counts.

    They are taken in the order of their commitments, and one that is refused costs nothing.
    """
    refused: dict[Subject, int] = {}
    allowed: dict[str, int] = {}  # by hotkey
    for subject in sorted(costs, key=lambda each: (each.commitment_block, each.commitment_sha256)):
        first = allowed.get(subject.miner_hotkey, 0)
        if subject.commitment_block < first:
            refused[subject] = first
        else:
            allowed[subject.miner_hotkey] = subject.commitment_block + costs[subject]
    return refused


def cooldown_blocks(ended: CooldownClass, rules: CooldownRules) -> int:
    """What a submission costs, in blocks. A file that could not be read costs nothing."""
    costs = {"accepted": rules.accepted_blocks, "integrity": rules.integrity_blocks, "security": rules.security_blocks}
    return costs.get(ended, 0)


def read_report(submission: StoredSubmission) -> GateReport | None:
    """The gate's report on a stored submission, or None."""
    return msgspec.json.decode(submission.report, type=GateReport) if submission.report else None


def hold_of(report: GateReport | None) -> Hold:
    """What a report holds its agent for: `likeness` before any heuristic, since only that one does not run out."""
    if report is None or report.outcome != "review":
        return ""
    return "likeness" if any(each.rule in LIKENESS for each in report.findings) else "heuristic"


_DOMAIN = b"agent-arena/neighbours/1\n"
_NO_REVEALS: Mapping[str, int] = {}


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """The submissions committed up to the block of one, and the winners revealed by then. `sha256` is over both."""

    others: tuple[Subject, ...]
    winners: tuple[Subject, ...] = ()
    sha256: str


def commitment_order(subject: Subject) -> tuple[int, str]:
    """Where a submission is listed, by block; who was first within one says `arena.gate.likeness.Author.place`."""
    return subject.commitment_block, subject.agent_version_id


def hashes_before(subjects: Iterable[Subject], reveals: Mapping[str, int] = _NO_REVEALS) -> dict[str, str]:
    """By agent version: the hash over what was committed before it and in its block. `reveals` are the blocks at which
    the sources of winners opened, by agent version: those that had opened by its commitment stand in its hash."""
    digest = hashlib.sha256(_DOMAIN)
    found: dict[str, str] = {}
    for block, members in groupby(sorted(subjects, key=commitment_order), lambda each: each.commitment_block):
        agents = [each.agent_version_id for each in members]
        digest.update("".join(f"{block} {agent}\n" for agent in agents).encode())
        opened = digest.copy()
        for winner in sorted(winner for winner, revealed in reveals.items() if revealed <= block):
            opened.update(f"winner {winner}\n".encode())
        found |= dict.fromkeys(agents, opened.hexdigest())
    return found


def neighbourhood(
    subject: Subject, known: Iterable[Subject], reveals: Mapping[str, int] = _NO_REVEALS
) -> Neighbourhood:
    """What a submission is compared with, of those that are known: itself is none of them. Its owner's own versions are
    distinguished by the rule (`arena.gate.likeness`), which has to know what they held first."""
    agent = subject.agent_version_id
    before = (each for each in known if each.commitment_block <= subject.commitment_block)
    others = tuple(sorted((each for each in before if each.agent_version_id != agent), key=commitment_order))
    by_now = {name for name, block in reveals.items() if block <= subject.commitment_block}
    return Neighbourhood(
        others=others,
        winners=tuple(each for each in others if each.agent_version_id in by_now),
        sha256=hashes_before([*others, subject], reveals)[agent],
    )
