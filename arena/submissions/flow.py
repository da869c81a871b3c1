"""The miner's first step: the commitment on chain, before anybody sees the source.

The source leaves the miner only after its commitment is accepted, so nobody who sees the source can have
committed it earlier. Doing it again is safe at any point: a commitment that stands already is kept, with its block.
"""

from __future__ import annotations

from arena.chain.port import Signer, Subtensor
from arena.submissions.model import SignedSubmission, make_submission
from foundation.errors import ArenaError


async def commit(
    signer: Signer, name: str, source: str, *, subtensor: Subtensor, now_ms: int, is_anew: bool = False
) -> tuple[SignedSubmission, int]:
    """Sign a source and commit to it: what is handed in afterwards, and the block of its commitment.

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
