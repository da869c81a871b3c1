"""Sources between validators: what the chain knows is fetched from whoever has it, checked, and delivered once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment
from arena.exchange.pull import SourceRelay, require_committed
from arena.records.port import EVERY_STATE
from arena.submissions.submission import make_submission, signed_submission
from foundation.errors import ArenaError
from tests.arena.exchange_stand import Case
from tests.keys import generate_signer

SOURCE = "def agent_main(problem):\n    return None\n"
MINER = keypair_signer("//Miner")
SUBMISSION = make_submission(MINER, "agent", SOURCE, 5)


def commitment(submission=SUBMISSION) -> Commitment:
    return Commitment(hotkey=submission.hotkey, sha256=submission.commitment_sha256, block=7)


class Relaying(Case):
    """A reader that relays what the two others have."""

    def relaying(self, **options) -> SourceRelay:
        return SourceRelay(self.ask, self.reader.store, verify, now_ms=lambda: 1_000_000, **options)


@pytest.fixture
async def relaying(tmp_path: Path) -> Relaying:
    return await Relaying(tmp_path).join()


async def test_a_source_committed_on_chain_reaches_who_lacks_it(relaying: Relaying) -> None:
    await relaying.relay.hold_source(SUBMISSION)
    relay = relaying.relaying()
    for delivered in ([SUBMISSION.commitment_sha256], []):
        assert await relay.fetch([commitment()], relaying.peers[:2]) == (delivered, [])
    (row,) = await relaying.reader.store.submissions(EVERY_STATE)
    assert signed_submission(row, SOURCE) == SUBMISSION and row.subject.commitment_block == commitment().block


async def test_an_unsigned_one_is_relayed_only_where_the_policy_takes_its_commitment(relaying: Relaying) -> None:
    await relaying.relay.hold_source(msgspec.structs.replace(SUBMISSION, signature=""))
    delivered, complaints = await relaying.relaying().fetch([commitment()], relaying.peers[:2])
    assert (delivered, [each.failure.code for each in complaints]) == ([], ["U3042"])
    relay = relaying.relaying(is_commitment_enough=True)
    delivered, _ = await relay.fetch([commitment()], relaying.peers[:2])
    assert delivered == [SUBMISSION.commitment_sha256]


def test_only_the_source_that_the_hotkey_committed_and_signed_is_taken() -> None:
    other = make_submission(generate_signer(), "agent", SOURCE, 5)
    changed = msgspec.structs.replace(SUBMISSION, source=SOURCE + "#")
    unsigned = msgspec.structs.replace(SUBMISSION, signature=other.signature)
    renamed = msgspec.structs.replace(SUBMISSION, name="another")
    ill_named = make_submission(MINER, "agent", SOURCE, 5)
    ill_named = msgspec.structs.replace(ill_named, name="a b")
    require_committed(SUBMISSION, commitment(), verify)
    for wrong in (other, changed, unsigned, renamed, ill_named):
        with pytest.raises(ArenaError) as caught:
            require_committed(wrong, commitment(), verify)
        assert caught.value.failure.code == "U3042"
