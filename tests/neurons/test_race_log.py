"""The race log: a fold over records that counts each once and lets every validator speak for itself alone."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.policies import DEMO, POLICIES
from arena.race.admission import REFUSALS_MAX
from arena.race.settle import settle
from arena.records.model import EvaluationRecord, Payload, RecordContent, SettlementRecord, SignedRecord, VerdictRecord
from arena.records.sequencer import Sequencer
from arena.store.postgres import PostgresStore
from foundation.canonical import canonical_bytes
from foundation.errors import Failure
from judge.calibration.traces import make_trace, open_shop, recipes
from judge.render import render
from judge.rubric import GATES
from judge.verdict import UnscoredVerdict
from neurons.cli import race as race_cli
from neurons.cli.explain import app as explain_app
from neurons.cli.judge import app
from neurons.cli.options import StoreFlags
from neurons.cli.race import app as race_app
from neurons.race.log import RaceLog, SettledRace, read_settled
from tests.arena import race_stand as stand
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt
from tests.judge.endpoint import ScriptedEndpoint, chat, serving
from tests.keys import generate_signer

ME, OTHER = "val-a", "val-b"
AGENT = stand.candidate("x")
POLICY = stand.policy()
SUITE = ("p0", "p1", "p2", "p3")


class Log(RaceLog):
    """A log of two validators that is fed by hand."""

    def __init__(self, *payloads: Payload, is_lasting: bool = False) -> None:
        super().__init__(cast(PostgresStore, SimpleNamespace(validator=ME)), "", is_lasting=is_lasting)
        self._seq = itertools.count(1)
        self.add(*payloads)

    def add(self, *payloads: Payload, validator: str = ME) -> None:
        for payload in payloads:
            seq = next(self._seq)
            self.take(validator, seq, stand.digest(seq), payload)

    def mean(self) -> int | None:
        end = self.own_suite_end(AGENT.subject.agent_version_id, SUITE, POLICY)
        return end and end.mean_e4


def test_a_row_that_was_doubled_in_the_store_counts_once() -> None:
    store = MemoryLog((signer := generate_signer()).hotkey)
    asyncio.run(Sequencer(store, signer, Clock(), HOST).append([attempt(1, ended="faulted")]))
    log, store.log = RaceLog(cast(PostgresStore, store), "r1"), store.log * 2
    asyncio.run(log.refresh())
    assert len(log.attempts) == 1


def evaluation(problem: str, *, is_success: bool) -> EvaluationRecord:
    return stand.evaluation(POLICY, AGENT, problem, ME, is_success=is_success, stage="qualifying")


def verdict(record: EvaluationRecord) -> VerdictRecord:
    return stand.verdict(POLICY, record)


def refusal(record: EvaluationRecord) -> VerdictRecord:
    why, rubric_id = Failure(code="U3021"), POLICY.rubric.rubric_id
    unscored = UnscoredVerdict(body_sha256=record.body_sha256, rubric_id=rubric_id, failure=why)
    return VerdictRecord(subject=record.subject, context=record.context, verdict=unscored)


def test_a_body_the_judge_refused_often_enough_is_owed_no_more():
    record = evaluation("p0", is_success=True)
    log = Log(record, *[refusal(record)] * (REFUSALS_MAX - 1))
    log.add(*[refusal(record)] * 9, validator=OTHER)
    assert len(log.owed(ME)) == 1 and log.owed_successes() == 1
    log.add(refusal(record))
    assert not log.owed(ME) and not log.owed_successes()


def test_a_lasting_log_keeps_what_is_owed_and_the_mean_it_came_to():
    *records, owing = (evaluation(problem, is_success=problem == "p3") for problem in SUITE)
    log = Log(*(each for record in records for each in (record, verdict(record))), owing, is_lasting=True)
    assert [row.record for row in log.owed(ME)] == [owing] and log.mean() is None
    log.add(verdict(owing))
    assert log.mean() == log.mean() == 2_500
    assert not log.owed(ME) and log.evaluations == log.verdicts == []


# -- which settlement is in force here, this validator's own or the others', and in what its own differs


VALIDATOR, RACE = "5Alice", "race-000001"
FIELD = (stand.candidate("a"), stand.candidate("b"))


def settlement(**shares: int) -> SettlementRecord:
    return replace(settle(stand.inputs(FIELD, stand.solves(shares))), race_id=RACE)


OURS, THEIRS = settlement(a=8, b=2), settlement(a=2, b=8)
CANCELLED = replace(OURS, state="cancelled", reason="no quorum")


async def settled(own: SettlementRecord | None, in_force: SettlementRecord, *, is_adopted: bool = True) -> SettledRace:
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


# -- `arena race` and `arena judge` at the terminal


RUN = CliRunner()


def test_weights_prints_a_line_per_case_with_a_vector_or_the_error(tmp_path):
    finishers = [{"miner_hotkey": f"h{n}", "agent_version_id": f"v{n}", "race_score": 1 - n / 10} for n in range(4)]
    case = {"metagraph_hotkeys": ["owner", "h0", "h1"], "finishers": finishers, "t_top": 0.25, "t_burn": 0.75}
    path = tmp_path / "cases.jsonl"
    rows = [{"case_id": "good", **case}, {"case_id": "bad", **case, "t_top": 1.0, "t_burn": 0.0}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    result = RUN.invoke(race_app, ["weights", "--cases", str(path)])
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"case_id": "good", "uids": [0, 1, 2], "weights": [65_535, 21_845, 1]},
        {"case_id": "bad", "error": "ValueError"},
    ]
    path.write_text("{}\n")
    malformed = RUN.invoke(race_app, ["weights", "--cases", str(path)])
    assert malformed.exit_code == 2 and "line 1" in malformed.output


def test_a_policy_prints_whole_and_its_hash_can_be_recomputed():
    shown = json.loads(RUN.invoke(explain_app, ["demo", "--json"]).stdout)
    assert shown["policy_sha256"] == DEMO.policy_sha256
    assert msgspec.convert(shown["policy"], type(DEMO)) == DEMO
    listed = {row["name"] for row in json.loads(RUN.invoke(explain_app, ["--all", "--json"]).stdout)}
    assert listed >= set(POLICIES)


GATE = GATES[0]  # all that it saw
NOTHING_READ = {"gates": {gate: gate == GATE for gate in GATES}, "quality": 0.3, "citations": [], "explanation": ""}


def test_two_models_at_two_endpoints_are_measured_as_one_panel(tmp_path: Path) -> None:
    every = recipes()
    with open_shop() as shop:
        made = [make_trace(every[place * len(every) // 6], shop) for place in range(6)]
    reads = ScriptedEndpoint({render(one.body).text: render(one.body) for one in made})
    command = ["calibrate", "--traces", "6", "--json", "--out", str(tmp_path / "found")]
    with serving(reads) as one, serving(lambda _: (200, chat(json.dumps(NOTHING_READ)))) as other:
        command += ["--models", "reads,skims", "--base-url", f"{one},{other}"]
        found = json.loads(CliRunner().invoke(app, command).stdout)
    whole = found["populations"][0]
    assert (whole["traces"], whole["owed"]) == (6, 0)
    assert 0 < whole["kappa_e4"] < 8_000
    rows = [json.loads(line) for line in (tmp_path / "found" / "rows.jsonl").read_bytes().splitlines()]
    assert [one["model"] for one in rows[-1]["verdict"]["opinions"]] == ["reads", "skims"]
