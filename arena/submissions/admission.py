"""Admission: whether a submission may enter the queue, decided from public values alone; and beside which earlier ones
the gate looks at it.

Pure functions. Two validators that see the same chain and the same earlier submissions decide the same. The cooldown
counts between *commitment* blocks, and neighbours stand in the order of commitments: arrival differs from validator to
validator and plays no part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from arena.chain.port import Commitment, Metagraph, Verifier
from arena.gate.rules import LIKENESS, GateReport
from arena.policy import CooldownRules
from arena.records.log import AgentVersionId
from arena.records.model import Hold, Subject
from arena.records.port import GATED, StoredSubmission, SubmissionState
from arena.submissions.model import SignedSubmission, is_agent_name, is_authentic
from foundation.errors import Failure

CooldownClass = Literal["accepted", "integrity", "security", "form"]

What = TypeVar("What")


class PastSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier submission of the same hotkey: the block of its commitment and how it ended."""

    block: int
    ended: CooldownClass


class Submitted(msgspec.Struct, Generic[What], frozen=True, kw_only=True):
    """One submission of a hotkey as the chain orders it, and the blocks that it costs when it counts."""

    what: What
    block: int
    sha256: str  # the commitment: two of one block are in the order of their hashes
    cost_blocks: int


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The decision. `next_allowed_block` is the first block whose commitment this hotkey may submit next."""

    agent_version_id: AgentVersionId
    submitted_block: int
    next_allowed_block: int
    refusal: Failure | None = None

    @property
    def is_accepted(self) -> bool:
        """True when the submission may enter the gate."""
        return self.refusal is None


def admit(
    submission: SignedSubmission,
    *,
    commitment: Commitment | None,
    past: Sequence[PastSubmission],
    metagraph: Metagraph,
    rules: CooldownRules,
    verify: Verifier,
    is_commitment_enough: bool = False,
) -> Admission:
    """Decide on one submission.

    `commitment` is the hotkey's latest finalized one, `metagraph` the subnet at the deciding block, `past` the
    hotkey's other submissions (not this one: asking again for a stored version is the caller's no-op).
    `is_commitment_enough` is the policy's: a submission may have no signature. Refusals:
    A1010 name, A1007 signature or commitment, A1008 not registered, A1006 cooldown with the first allowed block.
    """
    earliest = next_allowed_block(past, rules)
    is_own = is_authentic(submission, verify, is_commitment_enough=is_commitment_enough)
    refusal = _refusal(submission, commitment, earliest, metagraph, is_own=is_own)
    block = commitment.block if commitment is not None else metagraph.block
    if refusal is None:
        earliest = block + rules.accepted_blocks
    return Admission(
        agent_version_id=submission.agent_version_id,
        submitted_block=block,
        next_allowed_block=earliest,
        refusal=refusal,
    )


def next_allowed_block(past: Sequence[PastSubmission], rules: CooldownRules) -> int:
    """The first block at which a new commitment counts; 0 for a hotkey without a past."""
    return max((entry.block + cooldown_blocks(entry.ended, rules) for entry in past), default=0)


def refused_by_cooldown(submissions: Iterable[Submitted[What]]) -> dict[What, int]:
    """Of one hotkey's submissions those that were committed too early, each with the first block allowed then.

    They are taken in the order of their commitments, and one that is refused costs nothing.
    """
    refused: dict[What, int] = {}
    allowed = 0
    for entry in sorted(submissions, key=lambda entry: (entry.block, entry.sha256)):
        if entry.block < allowed:
            refused[entry.what] = allowed
        else:
            allowed = entry.block + entry.cost_blocks
    return refused


def cooldown_blocks(ended: CooldownClass, rules: CooldownRules) -> int:
    """What a submission costs, in blocks. A file that could not be read costs nothing."""
    costs = {"accepted": rules.accepted_blocks, "integrity": rules.integrity_blocks, "security": rules.security_blocks}
    return costs.get(ended, 0)


def cooldown_class(report: GateReport | None) -> CooldownClass:
    """How a submission with this gate report ended. One without a report, or under review, counts as accepted."""
    return "accepted" if report is None or report.severity is None else report.severity


def read_report(submission: StoredSubmission) -> GateReport | None:
    """The gate's report on a stored submission, or None."""
    return msgspec.json.decode(submission.report, type=GateReport) if submission.report else None


def hold_of(report: GateReport | None) -> Hold:
    """What a report holds its agent for: `likeness` before any heuristic, since only that one does not run out."""
    if report is None or report.outcome != "review":
        return ""
    return "likeness" if any(each.rule in LIKENESS for each in report.findings) else "heuristic"


def past_submissions(
    stored: Iterable[StoredSubmission], hotkey: str, states: Container[SubmissionState] = GATED
) -> tuple[PastSubmission, ...]:
    """A hotkey's submissions in these states as the cooldown counts them: what the gate has looked at."""
    return tuple(
        PastSubmission(block=each.subject.commitment_block, ended=cooldown_class(read_report(each)))
        for each in stored
        if each.subject.miner_hotkey == hotkey and each.state in states
    )


def _refusal(
    submission: SignedSubmission,
    commitment: Commitment | None,
    earliest: int,
    metagraph: Metagraph,
    *,
    is_own: bool,
) -> Failure | None:
    if not is_agent_name(submission.name):
        return Failure(code="A1010", detail=submission.name[:80])
    if not is_own:
        return Failure(code="A1007", detail="the signature is not the hotkey's over this source")
    if metagraph.uid_of(submission.hotkey) is None:
        return Failure(code="A1008", detail=f"at block {metagraph.block}")
    if commitment is None:
        return Failure(code="A1007", detail="no finalized commitment of this hotkey")
    if commitment.hotkey != submission.hotkey or commitment.sha256 != submission.commitment_sha256:
        return Failure(code="A1007", detail=f"the commitment of block {commitment.block} is for another source")
    if commitment.block < earliest:
        detail = f"committed in block {commitment.block}, allowed from block {earliest}: commit again then"
        return Failure(code="A1006", detail=detail)
    return None


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
