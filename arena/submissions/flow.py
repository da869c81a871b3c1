"""The miner's side of a submission: commit on chain, then hand the source in.

Promise: the source leaves the miner only after its commitment is accepted, so nobody who sees the source can have
committed it earlier. Submitting again is safe at any point: it commits anew and replaces the file in the inbox.
"""

from __future__ import annotations

import msgspec

from arena.chain.port import Signer, Subtensor
from arena.submissions.inbox import Inbox
from arena.submissions.model import AgentVersionId, make_submission
from foundation.errors import ArenaError


class SubmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was handed in, and the block that holds its commitment."""

    agent_version_id: AgentVersionId
    agent_sha256: str
    commitment_sha256: str
    commitment_block: int
    hotkey: str


async def submit(
    signer: Signer, name: str, source: str, *, subtensor: Subtensor, inbox: Inbox, now_ms: int
) -> SubmissionResult:
    """Commit to a source and put it into the inbox.

    `now_ms` is unix milliseconds. Raises ArenaError A1008 when the hotkey isn't registered, A1010 for a malformed name,
    U3030 and U3031 when the chain can't be reached or refuses, V2060 when the inbox can't be written.
    """
    submission = make_submission(signer, name, source, now_ms)
    result = await subtensor.commit(signer, submission.commitment_sha256)
    if result.status != "ok":
        if result.status == "not_registered":
            raise ArenaError("A1008", submission.hotkey)
        raise ArenaError("U3031", f"{result.status}: {result.detail}" if result.detail else result.status)
    inbox.put(submission)
    return SubmissionResult(
        agent_version_id=submission.agent_version_id,
        agent_sha256=submission.agent_sha256,
        commitment_sha256=submission.commitment_sha256,
        commitment_block=result.block,
        hotkey=submission.hotkey,
    )
