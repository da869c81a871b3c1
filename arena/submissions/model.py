"""A signed submission: what a miner sends, how it is identified, what stands on chain for it, and its row in a store.

Identities are content hashes, never signatures (which are randomised). The commitment binds a hotkey to one source,
which leaves the miner only after it is accepted; the signature binds name, time and source to that hotkey.
"""

from __future__ import annotations

import re

import msgspec

from arena.chain.port import Signer, Subtensor, Verifier
from arena.records.log import agent_version_id, canonical, commitment_sha256
from arena.records.model import Subject
from arena.records.port import StoredSubmission
from foundation.canonical import canonical_bytes, text_hash
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
