"""`arena validator status`: the same facts give the same page, and it says what needs a person and only that."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
import structlog
from msgspec.structs import replace
from typer.testing import CliRunner

from arena.bank.batch import Batch, SealedProblem
from arena.chain.port import Metagraph, Neuron
from arena.policies import DEMO, PAPER
from arena.race.machine import ChainRead, RaceState, open_race
from arena.race.schedule import timeline
from arena.records.model import StoredCheckpoint
from arena.records.port import StoreSize, WeightsResult
from arena.store.embedded import EmbeddedServer
from arena.store.location import StoreLocation, write_location
from foundation import logs
from foundation.codes import lookup
from foundation.errors import Failure
from neurons.cli.app import app
from neurons.health import status as health
from neurons.health.metrics import Metrics
from neurons.node.reporting import next_deadline, serve_probes
from neurons.race.sentences import top_sentence, weights_sentence
from tests.arena.log_stand import settlement
from tests.arena.tail_stand import free_port
from tests.keys import generate_signer

NOW_MS = 1_800_000_000_000  # Fri 15 Jan 2027 08:00 UTC
HOUR_MS = 3_600_000
ROOMY = 100 << 30
OK = WeightsResult(race_id="race-000001", block=5_000, uids=(0,), weights_u16=(65_535,), status="ok")
BEAT = health.Heartbeat(
    hotkey="5Hot",
    netuid=15,
    process_id=42,
    started_ms=NOW_MS - 3 * health.DAY_MS,
    beat_ms=NOW_MS - 12_000,
    policy="paper",
    policy_sha256="aa" * 32,
    guest_sha256="bb" * 32,
    sandbox="bubblewrap",
    code_commit="c",
    records=900,
    owed_verdicts=2,
    chain=health.ChainFacts(
        seen_ms=NOW_MS - 12_000,
        block=5_100,
        finalized_block=5_097,
        grew_ms=NOW_MS - 8_000,
        uid=7,
        has_permit=True,
        placed_block=5_090,
    ),
    bank_until_ms=NOW_MS + 40 * health.DAY_MS,
)
STORE = health.StoreFacts(
    hotkey="5Hot",
    records=900,
    checkpoint=StoredCheckpoint(validator="5Hot", size=890, note="", signed_ms=NOW_MS - 240_000),
    anchor=StoredCheckpoint(validator="5Hot", size=700, note="", signed_ms=NOW_MS - HOUR_MS, anchor_block=4_900),
    race=health.RaceFacts(
        race_id="race-000002",
        stage="running",
        deadline=health.Deadline(what="results end", at_ms=NOW_MS + HOUR_MS),
        open_items=3,
    ),
    weights=(OK,),
    size=StoreSize(bytes=3 << 29, day_bytes=61 << 20),
)


def status(
    beat: health.Heartbeat = BEAT, store: health.StoreFacts | None = STORE, *, free: int = ROOMY, **node: object
) -> health.Status:
    return health.assess(NOW_MS, health.NodeFile(beat=beat, **node), store, free)  # type: ignore[arg-type]


def test_a_node_that_is_well_needs_nobody_and_the_page_has_every_line() -> None:
    found = status()
    shown = health.page(found)
    assert (found.needs_person, found.is_running, found.points) == (False, True, ())
    assert shown.startswith("all is well · validator 5Hot on netuid 15")
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [
        *("node", "rules", "chain", "log", "race", "work", "weights", "peers", "bank", "disk"),
    ]
    parts = ("uid 7, permit", "900 records", "890 signed 4 min ago", "2 verdicts owed", "40 d left", "aa" * 6)
    for part in (*parts, "100.0 GiB free; database 1.50 GiB, 61.0 MiB more a day: 1678 days of that fit here"):
        assert part in shown


def chain(**changes: object) -> health.Heartbeat:
    return replace(BEAT, chain=replace(BEAT.chain, **changes))


def waiting(age_ms: int) -> health.Wait:
    return health.Wait(loop="race", code="U3030", detail="away", since_ms=NOW_MS - age_ms, failures=3)


def resting(age_ms: int) -> health.RestingSlot:
    return health.RestingSlot(slot=3, since_ms=NOW_MS - age_ms, tries=2, failure=Failure(code="V2005"))


def refused(state: str, times: int = 1) -> health.StoreFacts:
    """Tries of which the latest failed, one every ten blocks after one that was taken."""
    rows = (replace(OK, status=state, detail="why", block=OK.block + 10 * n) for n in range(times, 0, -1))  # type: ignore[arg-type]
    return replace(STORE, weights=(*rows, OK))


def late(what: str, age_ms: int) -> health.StoreFacts:
    return replace(STORE, **{what: replace(getattr(STORE, what), signed_ms=NOW_MS - age_ms)})


OVERDUE = replace(STORE, race=replace(STORE.race, deadline=health.Deadline(what="x", at_ms=NOW_MS - 2 * HOUR_MS)))
URGENT = [
    (status(replace(BEAT, beat_ms=NOW_MS - HOUR_MS)), ["V2116"]),
    (status(ending=health.Ending(at_ms=NOW_MS, failure=Failure(code="V2080", detail="cut"))), ["V2080", "V2116"]),
    (status(free=1 << 30), ["V2115"]),
    (status(chain(is_stale=True)), ["U3034"]),
    (status(chain(has_permit=False)), ["U3035"]),
    (status(replace(BEAT, bank_until_ms=NOW_MS + 29 * health.DAY_MS)), ["P4014"]),
    (status(store=late("checkpoint", HOUR_MS)), ["V2117"]),
    (status(store=late("anchor", 5 * HOUR_MS)), ["V2117"]),
    (status(store=refused("not_registered")), ["U3035"]),
    (status(store=refused("failed")), ["U3031"]),
    (status(store=refused("rate_limited", 80)), ["U3031"]),  # longer than any subnet's limit
    (status(store=OVERDUE), ["V2117"]),
    (status(replace(BEAT, waits=(waiting(HOUR_MS), replace(waiting(0), code="P4001")))), ["U3030", "P4001"]),
    (status(replace(BEAT, resting=(resting(HOUR_MS),))), ["V2007"]),
    (status(replace(BEAT, not_ours=Failure(code="V2101", detail="race-000001: differs in standings"))), ["V2101"]),
]


@pytest.mark.parametrize(("found", "codes"), URGENT)
def test_what_waits_for_a_person_is_named_by_its_code_with_its_fix(found: health.Status, codes: list[str]) -> None:
    shown = health.page(found)
    assert found.needs_person and shown.startswith("NEEDS A PERSON")
    assert [point.code for point in found.points if point.is_urgent] == codes
    assert all(f"{code}  " in shown and lookup(code).remedy in shown for code in codes)


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        (status(chain(skew_ms=92_000)), ("V2060  this host's clock is 1 min 32 s ahead of", "fix: set the clock")),
        (status(chain(skew_ms=-92_000)), ("V2060  this host's clock is 1 min 32 s behind", "fix: set the clock")),
        (
            status(ending=health.Ending(at_ms=NOW_MS), log="/var/log/a"),
            ("V2116", "its log (/var/log/a), then start it"),
        ),
        (
            health.assess(NOW_MS, health.NodeFile(), None, ROOMY, Failure(code="V2027")),
            ("V2116", "V2027", "by --state-dir or --config"),
        ),
    ],
)
def test_a_wrong_clock_a_silent_nodes_log_and_another_folder_are_named(
    found: health.Status, parts: tuple[str, ...]
) -> None:
    assert found.needs_person and all(part in health.page(found) for part in parts)


def test_what_mends_itself_is_shown_and_wakes_nobody() -> None:
    waits = (status(replace(BEAT, waits=(waiting(60_000),))), status(replace(BEAT, resting=(resting(60_000),))))
    waits += (status(replace(BEAT, missed=Failure(code="V2101", detail="race-000001"))),)
    starting = status(replace(BEAT, started_ms=NOW_MS - 70_000, waits=(waiting(60_000),)))  # a chain that was away
    for found in (*waits, starting, status(store=refused("rate_limited", 20))):  # races of seconds outpace the limit
        assert not found.needs_person and "mends itself" in health.page(found)


# -- deadlines


def test_the_next_deadline_follows_the_stage_and_the_policy() -> None:
    problems = tuple(SealedProblem(problem_id=f"p{n}") for n in range(DEMO.race.batch_problems))
    opened = open_race("race-000001", DEMO, Batch(batch_sha256="d" * 64, problems=problems), NOW_MS, NOW_MS + 15_000)
    at, run_ms = opened.closes_ms, opened.closes_ms + DEMO.race.run_ms
    states = {"open": at, "closed": at + DEMO.race.qualifying_grace_ms, "running": run_ms, "settling": run_ms}
    for stage, wanted in states.items():
        deadline = next_deadline(RaceState(race_id="race-000001", stage=stage, opened=opened), "5Hot", NOW_MS)  # type: ignore[arg-type]
        assert deadline is not None and deadline.at_ms == wanted
    assert next_deadline(RaceState(race_id="race-000001", stage="settled", opened=opened), "5Hot", NOW_MS) is None
    assert next_deadline(RaceState(race_id="race-000001"), "5Hot", NOW_MS) is None
    neurons = tuple(Neuron(uid=n, hotkey=f"5{n}", has_validator_permit=True, stake_rao=10**15) for n in range(3))
    metagraph = Metagraph(netuid=15, block=9, tempo=360, neurons=neurons)
    read = ChainRead(moment="closing", block=9, commitments=(), metagraph=metagraph)
    problems = tuple(SealedProblem(problem_id=f"p{n}") for n in range(PAPER.race.batch_problems))
    opened = open_race("race-000001", PAPER, Batch(batch_sha256="d" * 64, problems=problems), NOW_MS, NOW_MS + 15_000)
    shared = RaceState(race_id="race-000001", stage="running", opened=opened, reads=(read,))
    moments = timeline(opened.closes_ms, PAPER.race)  # one that is shared goes by these
    for before_ms, wanted_ms in (
        (moments.closing_ms, moments.field_anchor_ms),
        (moments.settling_ms, moments.results_receipt_ms),
        (moments.abandon_ms + 1, moments.abandon_ms),
    ):
        deadline = next_deadline(shared, "50", before_ms)
        assert deadline is not None and deadline.at_ms == wanted_ms


# -- the command


def test_the_command_reads_a_node_that_does_not_run_and_exits_with_1(server: EmbeddedServer, tmp_path: Path) -> None:
    hotkey = generate_signer().hotkey
    write_location(tmp_path, StoreLocation(kind="external", validator=hotkey, dsn=server.dsn_for(hotkey)))
    health.write_node_file(tmp_path, health.NodeFile(beat=replace(BEAT, hotkey=hotkey)))
    result = CliRunner().invoke(app, ["validator", "status", "--state-dir", str(tmp_path), "--json"])
    shown = CliRunner().invoke(app, ["validator", "status", "--state-dir", str(tmp_path)])
    report = json.loads(result.stdout)
    assert (result.exit_code, shown.exit_code) == (1, 1)
    read, beat = report["store"], report["node"]["beat"]
    assert (read["hotkey"], read["records"], beat["records"]) == (hotkey, 0, 900)
    assert "V2116" in {point["code"] for point in report["points"] if point["is_urgent"]}
    assert "0 records; none signed; none anchored" in shown.stdout and "SILENT (pid 42)" in shown.stdout


# -- the probes


def test_the_probes_tell_a_well_node_from_one_that_waits_is_silent_or_ended(tmp_path: Path) -> None:
    now_ms = [NOW_MS]
    port = free_port()
    serve_probes(Metrics().registry, tmp_path, lambda: now_ms[0], "127.0.0.1", port)

    def asked() -> tuple[int, int, list[str]]:
        """Statuses of the two probes, and the codes that readiness names."""
        alive, ready = (httpx2.get(f"http://127.0.0.1:{port}/{path}") for path in ("healthz", "readyz"))
        return alive.status_code, ready.status_code, [point["code"] for point in ready.json()["points"]]

    assert asked() == (503, 503, ["V2116"])  # never ran
    health.write_node_file(tmp_path, health.NodeFile(beat=BEAT))
    assert asked() == (200, 200, [])
    health.write_node_file(tmp_path, health.NodeFile(beat=chain(has_permit=False)))
    assert asked() == (200, 503, ["U3035"])
    health.write_node_file(
        tmp_path, health.NodeFile(beat=BEAT, ending=health.Ending(at_ms=NOW_MS, failure=Failure(code="V2021")))
    )
    assert asked()[:2] == (503, 503)
    health.write_node_file(tmp_path, health.NodeFile(beat=BEAT))
    now_ms[0] += health.SILENT_MS + 1
    assert asked() == (503, 503, ["V2116"])
    assert httpx2.get(f"http://127.0.0.1:{port}/nothing").status_code == 404


SETTLED = settlement()
NAMES = {row.agent_version_id: f"agent{row.rank}" for row in SETTLED.standings}


def test_who_stays_at_the_top_is_named_with_the_reason() -> None:
    other = replace(SETTLED, top_agent_version_id="f" * 64, is_promotion=False)
    assert top_sentence(other, {**NAMES, "f" * 64: "champion"}).startswith("champion stays at the top: agent1 did not")


def test_weights_name_who_is_paid_and_a_rate_limit_says_that_nothing_is_to_do() -> None:
    row = WeightsResult(race_id="race-000001", block=18, uids=(0, 2), weights_u16=(65_535, 21_845), status="ok")
    said = weights_sentence(row, {2: "5FBhYxDBoQ2uM9x8E75w"}, {"5FBhYxDBoQ2uM9x8E75w": "expert"})
    assert said == "Weights of race-000001 are set in block 18: burn 75.0%, expert 5FBh…75w 25.0%"
    waiting = weights_sentence(replace(row, status="rate_limited", detail="29 blocks left"), {}, {})
    assert waiting == "Weights of race-000001 wait for the chain's rate limit; retried by itself. (29 blocks left)"


def test_a_terminal_shows_an_events_sentence_and_nothing_else_of_it() -> None:
    render = logs._for_people(lambda *given: "fields")  # type: ignore[arg-type]
    stamp = "2026-11-23T09:28:39.6Z"
    event = {"event": "race", "timestamp": stamp}
    assert render(None, "info", {**event, "text": "it is settled"}) == "09:28:39 UTC  it is settled"
    assert render(None, "info", event) == "fields"
    with pytest.raises(structlog.DropEvent):
        render(None, "info", {**event, "text": ""})
