"""Which settlement is in force here, this validator's own or the others', and in what its own differs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.race.settle import settle
from arena.records.model import RecordContent, SettlementRecord, SignedRecord
from arena.store.postgres import PostgresStore
from foundation.canonical import canonical_bytes
from neurons.cli import race as race_cli
from neurons.cli.options import StoreFlags
from neurons.race.log import Settled, read_settled
from tests.arena import race_stand as stand
from tests.arena.log_stand import HOST

VALIDATOR, RACE = "5Alice", "race-000001"
FIELD = (stand.candidate("a"), stand.candidate("b"))


def settlement(**shares: int) -> SettlementRecord:
    return replace(settle(stand.inputs(FIELD, stand.solves(shares))), race_id=RACE)


OURS, THEIRS = settlement(a=8, b=2), settlement(a=2, b=8)
CANCELLED = replace(OURS, state="cancelled", reason="no quorum")


async def settled(own: SettlementRecord | None, in_force: SettlementRecord, *, is_adopted: bool = True) -> Settled:
    """A race as read from a store: the settlement in the validator's log, if there is one, and how the race ended."""
    log = []
    if own is not None:
        content = canonical_bytes(RecordContent(recorded_ms=1, host=HOST, payload=own))
        about = {"validator": VALIDATOR, "seq": 1, "prev": "", "signature": ""}
        log.append(SignedRecord(**about, content_sha256=hashlib.sha256(content).hexdigest(), content=content))
    events = stand.race_events(stand.policy(), 16_000, own, in_force, is_adopted=is_adopted)

    async def records(validator: str, *, kinds: tuple[str, ...]) -> AsyncIterator[SignedRecord]:
        for record in log:
            yield record

    store = SimpleNamespace(
        validator=VALIDATOR,
        records=records,
        streams=lambda prefix: asyncio.sleep(0, [f"{prefix}{RACE}"]),
        events=lambda stream: asyncio.sleep(0, events),
    )
    (found,) = await read_settled(cast(PostgresStore, store), VALIDATOR)
    return found


async def test_an_adopted_settlement_says_in_what_ones_own_differs() -> None:
    found = await settled(OURS, THEIRS)
    assert (found.settlement, found.force) == (THEIRS, "adopted")
    assert found.differing is not None and "standings" in found.differing
    assert (await settled(THEIRS, THEIRS)).differing == ()
    assert (await settled(None, THEIRS)).differing is None
    assert (await settled(OURS, CANCELLED, is_adopted=False)).force == "none"
    late = await settled(None, CANCELLED, is_adopted=False)  # it could not settle, and nobody's was to be had
    assert (late.force, late.settlement, late.differing) == ("none", CANCELLED, None)
    assert (await settled(OURS, OURS, is_adopted=False)).force == "own"


async def test_show_says_whose_settlement_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    for race, said in (
        (await settled(OURS, OURS, is_adopted=False), ""),
        (await settled(OURS, CANCELLED, is_adopted=False), "no quorum settled alike"),
        (await settled(None, THEIRS), "has none of its own"),
        (await settled(OURS, THEIRS), "differs in"),
    ):
        monkeypatch.setattr(StoreFlags, "run", lambda *_, race=race: ([race], {}))
        shown = CliRunner().invoke(race_cli.app, ["show", RACE]).stdout
        assert said in shown and ("in force" in shown) is bool(said)
        row = json.loads(CliRunner().invoke(race_cli.app, ["show", RACE, "--json"]).stdout)
        assert (row["race_id"], row["force"]) == (RACE, race.force)
