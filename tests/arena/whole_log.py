"""Whole logs that lie in memory, verified as a store's are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from arena.chain.port import Verifier
from arena.records.inspection import open_inspector
from arena.records.log import Checkpoint
from arena.records.model import Entry, Head, SignedRecord
from arena.records.verification import BodiesOf, LogCheck, VerifyReport, _loaded, _take
from tests.arena.log_stand import filed


async def verify_records(
    records: Sequence[SignedRecord],
    *,
    verify_signature: Verifier,
    bodies_of: BodiesOf,
    heads: Mapping[str, Head] | None = None,
    checkpoints: Sequence[Checkpoint] = (),
    processes: int = 0,
) -> VerifyReport:
    """Verify logs from their first records. `heads`: where they must end. `checkpoints`: what they must contain."""

    async def rows() -> AsyncIterator[Entry]:
        for record in records:
            yield filed(record)

    check = LogCheck(checkpoints)
    async with open_inspector(verify_signature, processes) as inspector:
        await _take(check, _loaded(rows(), bodies_of), inspector, None)
    for validator, head in (heads or {}).items():
        check.expect_head(validator, head)
    return check.report()
