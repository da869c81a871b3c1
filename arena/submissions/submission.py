"""A signed submission: what a miner sends, how it is identified, what stands on chain for it, and its row in a store;
and whether it may enter the queue, and beside which earlier ones the gate looks at it.

Identities are content hashes, never signatures (which are randomised). The commitment binds a hotkey to one source,
which leaves the miner only after the chain took it; the signature binds name, time and source to that hotkey. Admission
is decided from public values alone: two validators that see the same chain and the same earlier submissions decide the
same, since cooldown and neighbours go by the blocks of *commitments*, never by arrival.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from itertools import groupby
from typing import Literal

import msgspec

from arena.chain.port import Commitment, Metagraph, Signer, Subtensor, Verifier
from arena.gate.rules import LIKENESS, GateReport
from arena.policy import CooldownRules
from arena.records.log import agent_version_id, canonical, commitment_sha256
from arena.records.model import Hold, Subject
from arena.records.port import GATED, StoredSubmission, SubmissionState
from foundation.canonical import canonical_bytes, text_hash
from foundation.codes import COOLDOWN, NOT_COMMITTED
from foundation.errors import ArenaError

SUBMISSION_DOMAIN = b"agent-arena/submission/1\n"
SUBMISSION_BYTES_MAX = 8 << 20  # a 1 MB source, escaped in JSON, with room
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class SignedSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """One agent file offered by a hotkey. `signature` is hex over `signed_message`; "": none, the commitment speaks."""

    name: str
    source: str
    hotkey: str
    agent_sha256: str
    submitted_ms: int
    signature: str

    @property
    def agent_version_id(self) -> str:
        """Identity of this agent version."""
        return agent_version_id(self.hotkey, self.agent_sha256)

    @property
    def commitment_sha256(self) -> str:
        """The hash that must stand on chain for this submission."""
        return commitment_sha256(self.hotkey, self.source)


def make_submission(signer: Signer, name: str, source: str, now_ms: int) -> SignedSubmission:
    """Sign a source. `now_ms` is unix milliseconds. Raises ArenaError A1010 for a malformed name."""
    if not is_agent_name(name):
        raise ArenaError("A1010", name[:80])
    unsigned = SignedSubmission(
        name=name,
        source=source,
        hotkey=canonical(signer.hotkey),
        agent_sha256=text_hash(source),
        submitted_ms=now_ms,
        signature="",
    )
    return msgspec.structs.replace(unsigned, signature=signer.sign(signed_message(unsigned)).hex())


def signed_message(submission: SignedSubmission) -> bytes:
    """The bytes the hotkey signs: a domain tag, then the canonical fields with the source by hash."""
    fields = {
        "name": submission.name,
        "hotkey": submission.hotkey,
        "agent_sha256": submission.agent_sha256,
        "submitted_ms": submission.submitted_ms,
    }
    return SUBMISSION_DOMAIN + canonical_bytes(fields)


def is_authentic(submission: SignedSubmission, verify: Verifier, *, is_commitment_enough: bool = False) -> bool:
    """True when the hash is the source's and the signature the hotkey's. Total: malformed input is a False.

    `is_commitment_enough`: the policy takes a submission that has no signature at all, too. The caller compares
    the commitment on chain, which the hotkey made over itself and this source; name and time are nobody's word then.
    """
    try:
        signature = bytes.fromhex(submission.signature)
        is_own_hash = text_hash(submission.source) == submission.agent_sha256
        message = signed_message(submission)
    except (ValueError, TypeError):
        return False
    if is_commitment_enough and not submission.signature:
        return is_own_hash
    return is_own_hash and verify(submission.hotkey, message, signature)


async def commit(
    signer: Signer, name: str, source: str, *, subtensor: Subtensor, now_ms: int, is_anew: bool = False
) -> tuple[SignedSubmission, int]:
    """Sign a source and commit to it: what is handed in afterwards, and the block of its commitment. Safe to repeat: a
    commitment that stands already is kept, with its block.

    `now_ms` is unix milliseconds. `is_anew`: also where this commitment stands already, as after a refusal for the
    cooldown, which counts from commitment to commitment. Raises ArenaError A1008 when the hotkey isn't registered,
    A1010 for a malformed name, U3030 and U3031 when the chain can't be reached or refuses.
    """
    submission = make_submission(signer, name, source, now_ms)
    standing = await subtensor.commitment(submission.hotkey)
    if not is_anew and standing is not None and standing.sha256 == submission.commitment_sha256:
        return submission, standing.block
    result = await subtensor.commit(signer, submission.commitment_sha256)
    if result.status == "not_registered":
        raise ArenaError("A1008", signer.hotkey)
    if result.status != "ok":
        raise ArenaError("U3031", f"{result.status}: {result.detail}" if result.detail else result.status)
    return submission, result.block


def waiting_row(submission: SignedSubmission, commitment_block: int) -> StoredSubmission:
    """The row of a submission that waits for the gate. `commitment_block`: where its commitment was seen on chain."""
    return StoredSubmission(
        subject=Subject(
            agent_version_id=submission.agent_version_id,
            miner_hotkey=submission.hotkey,
            agent_sha256=submission.agent_sha256,
            commitment_block=commitment_block,
            commitment_sha256=submission.commitment_sha256,
        ),
        name=submission.name,
        state="waiting",
        submitted_ms=submission.submitted_ms,
        signature=submission.signature,
    )


def signed_submission(row: StoredSubmission, source: str) -> SignedSubmission:
    """What was handed in, made again from its row."""
    return SignedSubmission(
        name=row.name,
        source=source,
        hotkey=row.subject.miner_hotkey,
        agent_sha256=row.subject.agent_sha256,
        submitted_ms=row.submitted_ms,
        signature=row.signature,
    )


def is_agent_name(name: str) -> bool:
    """True for 1 to 64 letters, digits, dots, dashes or underscores."""
    return _NAME.fullmatch(name) is not None


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


_NEIGHBOURS_DOMAIN = b"agent-arena/neighbours/1\n"


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """The submissions committed up to the block of one, and the winners revealed by then. `sha256` is over both."""

    others: tuple[Subject, ...]
    winners: tuple[Subject, ...] = ()
    sha256: str


def commitment_order(subject: Subject) -> tuple[int, str]:
    """Where a submission is listed, by block; who was first within one says `arena.gate.likeness.Author.place`."""
    return subject.commitment_block, subject.agent_version_id


def hashes_before(subjects: Iterable[Subject], reveals: Mapping[str, int] = {}) -> dict[str, str]:
    """By agent version: the hash over what was committed before it and in its block. `reveals` are the blocks at which
    the sources of winners opened, by agent version: those that had opened by its commitment stand in its hash."""
    digest = hashlib.sha256(_NEIGHBOURS_DOMAIN)
    found: dict[str, str] = {}
    for block, members in groupby(sorted(subjects, key=commitment_order), lambda each: each.commitment_block):
        agents = [each.agent_version_id for each in members]
        digest.update("".join(f"{block} {agent}\n" for agent in agents).encode())
        opened = digest.copy()
        for winner in sorted(winner for winner, revealed in reveals.items() if revealed <= block):
            opened.update(f"winner {winner}\n".encode())
        found |= dict.fromkeys(agents, opened.hexdigest())
    return found


def neighbourhood(subject: Subject, known: Iterable[Subject], reveals: Mapping[str, int] = {}) -> Neighbourhood:
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
