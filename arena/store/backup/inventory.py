"""The object store compared with the log: bodies that are missing, and objects that no record names.

An orphan is what an append that failed or was killed left behind, or what one that still runs has just written: it is
harmless. A missing object is a body that can't be read: verification names its record.
"""

from __future__ import annotations

import msgspec

from arena.store.objects import BodyObjects
from arena.store.postgres.log import PostgresLog
from foundation.progress import PhaseProgress

SHARDS = 256  # by the first byte of the sha256: the names of one are held in memory at a time
NAMES_KEPT = 100


class ObjectsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one validator. `missing` and `orphans` hold the first 100 names; sizes are bytes of frames."""

    validator: str
    objects: int = 0
    size: int = 0
    named: int = 0  # bodies that the log says lie here
    missing_count: int = 0
    missing: tuple[str, ...] = ()
    orphan_count: int = 0
    orphan_size: int = 0
    orphans: tuple[str, ...] = ()


async def compare_objects(
    log: PostgresLog, objects: BodyObjects, validator: str, progress: PhaseProgress | None = None
) -> ObjectsReport:
    """Compare all objects of a validator with its log. `progress` gets the number of shards (of 256) done.

    Raises ArenaError V2021, V2028 and V2029 when one of the two is away.
    """
    total = ObjectsReport(validator=validator)
    for shard in range(SHARDS):
        named = await log.bodies_elsewhere(validator, shard)  # before the objects: what is named has been written
        stored = await objects.stored(validator, shard)
        missing, orphans = sorted(named - stored.keys()), sorted(stored.keys() - named)
        total = ObjectsReport(
            validator=validator,
            objects=total.objects + len(stored),
            size=total.size + sum(stored.values()),
            named=total.named + len(named),
            missing_count=total.missing_count + len(missing),
            missing=(*total.missing, *missing)[:NAMES_KEPT],
            orphan_count=total.orphan_count + len(orphans),
            orphan_size=total.orphan_size + sum(stored[name] for name in orphans),
            orphans=(*total.orphans, *orphans)[:NAMES_KEPT],
        )
        if progress:
            progress(shard + 1, SHARDS)
    return total
