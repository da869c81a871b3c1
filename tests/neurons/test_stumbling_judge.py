"""A race whose judge stumbles in every way that endpoints do ends, and each of its verdicts is given or owed."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from judge.verdict import UnscoredVerdict, Verdict
from neurons.demo.demo import RACE, VALIDATOR, running_validator
from neurons.race.log import QUALIFYING
from tests.judge.stumbling import STUMBLES, StumblingEndpoint
from tests.neurons.arena_stand import make_run, read_back
from tests.neurons.test_outages import follow

HOTKEY = keypair_signer(VALIDATOR).hotkey
SOME = ("think block", "empty", "500", "cut off", "dropped", "false quote", "refuses schema", "429 without")


@pytest.mark.parametrize("stumbles", [SOME, pytest.param(STUMBLES, marks=pytest.mark.prove)], ids=["some", "all"])
def test_a_race_with_a_stumbling_judge_ends_with_every_verdict_given_or_owed(
    stumbles: tuple[str, ...], arena_base: Path, small_catalogue: Path
) -> None:
    endpoint = StumblingEndpoint({}, stumbles, slow_s=1.0)
    with endpoint.serving() as address:
        run = make_run(arena_base, small_catalogue, names=("expert",), judge_base_url=address)
        with running_validator(run) as process:
            view = follow(run, lambda view: view.is_over, process)
    assert len(endpoint.requests) >= len(stumbles)
    assert view.race.settlement is not None and view.race.settlement.state == "settled"
    report, logs = read_back(run, HOTKEY, (QUALIFYING, RACE))
    assert report.is_ok
    for log in logs:
        last = {row.record.verdict.body_sha256: row.record.verdict for row in log.records.verdicts}
        given = {name: verdict for name, verdict in last.items() if isinstance(verdict, Verdict)}
        owed = {name: verdict for name, verdict in last.items() if isinstance(verdict, UnscoredVerdict)}
        assert log.evaluations and len(log.owed(HOTKEY)) == len(owed)
        assert {row.record.body_sha256 for row in log.evaluations} == given.keys() | owed.keys()
        assert {verdict.quality_e4 for verdict in given.values()} <= {1_000, 3_000}
        assert {verdict.failure.code for verdict in owed.values()} <= {"U3020", "U3021"}
