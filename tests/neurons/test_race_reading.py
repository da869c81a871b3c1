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
from arena.records.body import encode_content
from arena.records.model import RecordContent, SettlementRecord, SignedRecord
from arena.store.postgres import PostgresStore
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


async def settled(own: SettlementRecord | None, in_force: SettlementRecord, *, is_adopted: bool = True) -> Settled:
    """A race as read from a store: the settlement in the validator's log, if there is one, and how the race ended."""
    log = []
    if own is not None:
        content = encode_content(RecordContent(recorded_ms=1, host=HOST, payload=own))
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
    cancelled = replace(OURS, state="cancelled", reason="no quorum")
    assert (await settled(OURS, cancelled, is_adopted=False)).force == "none"
    assert (await settled(OURS, OURS, is_adopted=False)).force == "own"


@pytest.mark.parametrize(
    ("race", "said"),
    [
        (Settled(settlement=THEIRS, force="own"), ""),
        (Settled(settlement=THEIRS, force="none"), "no quorum settled alike"),
        (Settled(settlement=THEIRS, force="adopted", differing=None), "has none of its own"),
        (Settled(settlement=THEIRS, force="adopted", differing=("void", "standings")), "differs in void, standings"),
    ],
)
def test_show_says_whose_settlement_is_in_force(race: Settled, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreFlags, "run", lambda *_: ([race], {}))
    shown = CliRunner().invoke(race_cli.app, ["show", RACE])
    assert shown.exit_code == 0, shown.output
    assert said in shown.stdout and ("in force" in shown.stdout) is bool(said)
    row = json.loads(CliRunner().invoke(race_cli.app, ["show", RACE, "--json"]).stdout)
    assert (row["race_id"], row["force"]) == (RACE, race.force)
    assert row["differing"] == (None if race.differing is None else list(race.differing))
