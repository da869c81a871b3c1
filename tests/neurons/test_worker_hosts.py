"""Workers on other machines: what reaches them, what comes back, and what the loss of one costs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from foundation.canonical import text_hash
from foundation.errors import ArenaError, Failure
from harness.catalogue.engines.native import open_catalogue
from harness.catalogue.index.builder import build_index
from harness.catalogue.index.documents import write_documents
from harness.catalogue.synthetic.generator import generate
from harness.inference.journal import FileJournal, MemoryJournal
from harness.inference.port import RecordedAnswer
from harness.sandbox.port import SandboxLevel
from neurons.health.worker_hosts import check_worker_hosts
from neurons.node.model_endpoints import open_endpoints
from neurons.node.settings import resolve
from neurons.node.wiring import away_setups, worker_setup
from neurons.worker.likeness import differences
from neurons.worker.pipe_journal import PipeJournal, answer_call
from neurons.worker.pool import WorkerHost, WorkerPool, greet
from neurons.worker.protocol import Endpoint, Evaluated, EvaluateJob, Faulted, Ready
from neurons.worker.slots import RESTS, FreeSlots, RestingSlot
from problems.model import Problem
from problems.synthesis.generator import synthesize
from tests.harness.jail_stand import WHY_NO_JAIL, has_jail
from tests.neurons.arena_stand import SMALL
from tests.neurons.away_stand import Away
from tests.readme_blocks import ROOT, block_under

QUICK = "from arena_sdk import tools\ndef agent_main(problem): tools.find_product(q='lamp')"
ASKS = """
from arena_sdk import llm
def agent_main(problem):
    llm.chat([{"role": "user", "content": "one lamp"}])
"""


@asynccontextmanager
async def pool_with(
    base: Path, catalogue: Path, away: Away, told: Callable[[RestingSlot], None] = lambda slot: None
) -> AsyncIterator[WorkerPool]:
    """One slot here, one away."""
    table = {
        "name": "w1",
        "launch": list(away.launch),
        "python": sys.executable,
        "catalogue_dir": str(catalogue),
        "guest_dir": str(base),
    }
    settings = resolve(
        {
            "state_dir": base,
            "catalogue_dir": catalogue,
            "guest_dir": base,
            "policy": "demo",
            "worker_hosts": [table],
        }
    ).settings
    with open_endpoints(settings, SMALL) as (upstreams, judge):
        ((setup, host),) = away_setups(settings, SMALL, upstreams, 1)
        setups = (worker_setup(settings, SMALL, upstreams, judge, 0), setup)
        pool = WorkerPool(setups, 60.0, hosts={1: host}, told=told)
        try:
            await pool.start()
            yield pool
        finally:
            await pool.stop()


@pytest.fixture(scope="module")
def other_catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    with (folder / "documents.jsonl").open("wb") as stream:
        write_documents(generate(50, 12), stream)
    build_index(folder / "documents.jsonl", folder / "index")
    return folder / "index"


async def until_free(pool: WorkerPool, away: Away, problem: Problem) -> None:
    """Wait until the other machine's worker has had a job."""
    async with asyncio.timeout(60):
        while not away.episodes_begun():
            await asyncio.gather(*(pool.run(job(f"warm-{n}", QUICK, problem)) for n in range(2)))


def of(away: Away) -> WorkerHost:
    return WorkerHost(name="w1", launch=away.launch, python=sys.executable)


def job(name: str, source: str, problem: Problem, journal: str = "") -> EvaluateJob:
    return EvaluateJob(job_id=name, source=source, problem=problem, journal=journal)


def one_problem(catalogue: Path) -> Problem:
    (problem,) = synthesize(tuple(open_catalogue(catalogue).products()), seed=3, counts={"voucher": 1})
    return problem


@pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
async def test_a_job_gives_the_same_bytes_wherever_it_runs_and_no_answer_leaves_this_machine(
    arena_base, small_catalogue, tmp_path
):
    away, problem = Away(tmp_path), one_problem(small_catalogue)
    async with pool_with(arena_base, small_catalogue, away) as pool:
        await until_free(pool, away, problem)
        seen = away.log.stat().st_size
        journals = [str(tmp_path / f"{n}.journal") for n in range(4)]
        replies = await asyncio.gather(
            *(pool.run(job(f"{n}", ASKS, problem, journal)) for n, journal in enumerate(journals))
        )
    assert all(isinstance(reply, Evaluated) for reply in replies), replies
    assert away.log.stat().st_size > seen  # some of them ran there
    assert len({reply.evaluation.body.body_hash() for reply in replies}) == 1
    assert len({msg_of(reply) for reply in replies}) == 1
    assert {reply.job_id for reply in replies} == {"0", "1", "2", "3"}
    assert all(reply.usage and reply.usage[0].requests == 1 for reply in replies)
    for journal in journals:  # what was answered there is kept here
        assert FileJournal(Path(journal)).owed() == 1
    frames = away.log.read_bytes()
    assert problem.query.encode() in frames
    for answer in (*(item.product_id for item in problem.rewards), *(item.title[0] for item in problem.rewards)):
        assert answer.encode() not in frames


def msg_of(reply: Evaluated) -> tuple[object, ...]:
    done = reply.evaluation
    return done.status, done.outcome, done.verdict, done.failure, done.sandbox


@pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
async def test_a_lost_machine_costs_the_job_it_had_and_swallows_no_other(arena_base, small_catalogue, tmp_path):
    away, problem, told = Away(tmp_path), one_problem(small_catalogue), []
    async with pool_with(arena_base, small_catalogue, away, told.append) as pool:
        await until_free(pool, away, problem)
        away.lose()
        replies = await asyncio.gather(*(pool.run(job(f"{n}", QUICK, problem)) for n in range(20)))
        faults = [reply for reply in replies if isinstance(reply, Faulted)]
        assert len(faults) <= 1 and {fault.failure.code for fault in faults} <= {"V2005"}
        assert sum(isinstance(reply, Evaluated) for reply in replies) == 20 - len(faults)
        async with asyncio.timeout(30):
            while not pool.resting:
                await asyncio.sleep(0.05)
        (resting,) = pool.resting
        assert (resting.slot, resting.host, resting.failure.code) == (1, "w1", "V2005")
        assert told and told[0].tries == 1
        away.come_back()
        async with asyncio.timeout(60):
            while pool.resting:
                await asyncio.sleep(0.1)
        seen = away.log.stat().st_size
        replies = await asyncio.gather(*(pool.run(job(f"back-{n}", QUICK, problem)) for n in range(4)))
        assert all(isinstance(reply, Evaluated) for reply in replies)
        assert away.log.stat().st_size > seen


async def expect_rest(pool: WorkerPool, code: str, words: str, jobs: Sequence[EvaluateJob]) -> None:
    """The other machine's slot rests, for this reason, and the own one does all jobs."""
    try:
        await pool.start()
        async with asyncio.timeout(60):
            while not pool.resting:
                await asyncio.sleep(0.05)
        (resting,) = pool.resting
        assert resting.failure.code == code and words in resting.failure.detail
        replies = [await pool.run(one) for one in jobs]
        assert all(isinstance(reply, Evaluated) for reply in replies)
    finally:
        await pool.stop()


@pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
async def test_a_machine_with_another_index_gets_no_job(arena_base, small_catalogue, tmp_path, other_catalogue):
    away, problem = Away(tmp_path), one_problem(small_catalogue)
    settings = resolve({"state_dir": arena_base, "catalogue_dir": small_catalogue, "policy": "demo"}).settings
    with open_endpoints(settings, SMALL) as (upstreams, judge):
        setup = worker_setup(settings, SMALL, upstreams, judge, 0)
        setup = replace(setup, guest_dir=str(arena_base))
        other = replace(setup, slot=1, catalogue_dir=str(other_catalogue), is_away=True)
        pool = WorkerPool(
            (setup, other), 60.0, hosts={1: WorkerHost(name="w1", launch=away.launch, python=sys.executable)}
        )
        await expect_rest(pool, "V2008", "index", [job(f"{n}", QUICK, problem) for n in range(3)])
    assert not away.episodes_begun()


@pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
async def test_a_machine_that_reaches_no_endpoint_of_a_model_gets_no_job(arena_base, small_catalogue, tmp_path):
    away, problem = Away(tmp_path), one_problem(small_catalogue)
    settings = resolve({"state_dir": arena_base, "catalogue_dir": small_catalogue, "policy": "demo"}).settings
    with open_endpoints(settings, SMALL) as (upstreams, judge):
        setup = replace(worker_setup(settings, SMALL, upstreams, judge, 0), guest_dir=str(arena_base))
        gone = (Endpoint(name="model", base_url="http://127.0.0.1:9/v1"),)  # there is nobody, there
        other = replace(setup, slot=1, upstreams=gone, is_away=True)
        pool = WorkerPool((setup, other), 60.0, hosts={1: of(away)})
        await expect_rest(
            pool, "U3002", "model at http://127.0.0.1:9/v1", [job(f"{n}", ASKS, problem) for n in range(3)]
        )
    assert not away.episodes_begun()


def test_a_launcher_that_is_not_there_is_told_by_its_name(tmp_path):
    host = WorkerHost(name="w1", launch=(str(tmp_path / "no-ssh"),), python="python3")
    settings = resolve({"state_dir": tmp_path, "policy": "demo"}).settings
    with pytest.raises(ArenaError) as raised:
        asyncio.run(greet(worker_setup(settings, SMALL, (), None, 0), host))
    assert raised.value.failure.code == "V2005" and "no-ssh" in raised.value.failure.detail


async def test_jobs_for_this_machine_never_get_a_slot_of_another_and_none_is_lost_to_a_cancelled_one():
    free = FreeSlots({1})
    free.give(1)
    home, any_one = asyncio.create_task(free.take(is_home=True)), asyncio.create_task(free.take(is_home=False))
    await asyncio.sleep(0)
    assert await any_one == 1 and not home.done()
    free.give(1)
    assert not home.done()
    free.give(0)
    home.cancel()  # granted and cancelled in one moment: the slot is free again
    with pytest.raises(asyncio.CancelledError):
        await home
    assert sorted([await free.take(is_home=True), await free.take(is_home=False)]) == [0, 1]


async def test_what_only_this_machine_may_take_goes_before_episodes_that_asked_earlier():
    free = FreeSlots({1})
    waiting = [asyncio.create_task(free.take(is_home=is_home)) for is_home in (False, True, False, True)]
    await asyncio.sleep(0)
    free.give(1)  # an episode's, for nothing else may run there
    for slot in (10, 11, 12):
        free.give(slot)
    assert [await one for one in waiting] == [1, 10, 12, 11]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"name": "docker"}, "jail docker, here bubblewrap"),
        ({"layers": ("seccomp",), "degraded": ("uid: no",)}, "jail's layers seccomp, here seccomp + own-uid"),
        ({"degraded": ("uid: no",)}, "jail's degraded uid: no, here none"),
        ({"guest_sha256": "f" * 64}, f"jail's guest sha256 {'f' * 12}, here {'a' * 12}"),
        ({"python_version": "3.12"}, "jail's python version 3.12, here 3.11"),
        ({"may_race": False}, "jail's may race False, here True"),
    ],
)
def test_what_is_unlike_in_a_jail_is_named_with_both_values(change, said):
    level = SandboxLevel(
        name="bubblewrap",
        layers=("seccomp", "own-uid"),
        guest_sha256="a" * 64,
        python_version="3.11",
        may_race=True,
    )
    home = Ready(process_id=1, sandbox=level, catalogue_sha256="b" * 64, release="c" * 40)
    assert differences(replace(home, sandbox=replace(level, **change)), home) == said
    told = differences(replace(home, release="d" * 40, catalogue_sha256="e" * 64), home)
    assert told == f"release {'d' * 12}, here {'c' * 12}; index {'e' * 12}, here {'b' * 12}"


def test_pauses_double_and_end():
    pauses = [RESTS.pause_ms(tries) / 1_000 for tries in range(1, 40)]
    assert pauses[:4] == [1, 2, 4, 8] and pauses == sorted(pauses) and pauses[-1] == 300


def test_a_journal_over_the_pipe_answers_like_the_journal_itself():
    here, behind = MemoryJournal(), MemoryJournal()
    over = PipeJournal(lambda call: answer_call(behind, call))
    answers = [
        RecordedAnswer(request_sha256=text_hash(str(n)), model=f"m{n}", refusal=Failure(code="A1043")) for n in range(2)
    ]
    for journal in (here, over):
        for answer in answers:
            journal.add(answer)
    for behind_restart in (here, behind):
        behind_restart.next_attempt()
    for journal in (here, over):
        assert journal.take(answers[1].request_sha256) == answers[1]
        assert journal.take("no such request") is None
    assert (over.owed(), over.models()) == (here.owed(), here.models())
    over.forgive()
    assert behind.owed() == 0
    with pytest.raises(ArenaError):
        PipeJournal(lambda call: answer_call(None, call)).owed()


@pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
def test_the_doctor_names_the_machine_that_is_not_there(arena_base, small_catalogue, tmp_path):
    away = Away(tmp_path)
    table = {"name": "w1", "launch": list(away.launch), "python": sys.executable, "workers": 2}
    table |= {"catalogue_dir": str(small_catalogue), "guest_dir": str(arena_base)}
    flags = {"state_dir": arena_base, "catalogue_dir": small_catalogue, "guest_dir": arena_base, "policy": "demo"}
    settings = resolve({**flags, "worker_hosts": [table]}).settings
    row = check_worker_hosts(settings)  # no endpoint is set: the scripted one is on this machine's loopback
    assert row.status == "warn" and row.found.startswith("w1 (2); on each of them scripted at http://127.0.0.1:")
    assert "openai_base_url" in row.fix
    unserved = check_worker_hosts(
        resolve({**flags, "worker_hosts": [table], "openai_base_url": "http://127.0.0.1:9/v1"}).settings
    )
    assert unserved.status == "warn" and unserved.found.startswith("w1: U3002")
    away.lose()
    row = check_worker_hosts(settings)
    assert row.status == "warn" and row.found.startswith("w1: V2005")
    assert check_worker_hosts(resolve(flags).settings).status == "ok"


def test_the_pages_table_is_what_the_settings_take(tmp_path):
    path = tmp_path / "arena.toml"
    path.write_text(block_under("Worker hosts", ROOT / "neurons/worker/README.md").text)
    settings = resolve({"state_dir": tmp_path, "policy": "demo"}, path).settings
    upstreams = (Endpoint(name="model", base_url="http://10.0.0.2/v1", requests_at_once=4, slots_dir="/here/model"),)
    found = away_setups(settings, SMALL, upstreams, first_slot=2)
    assert [setup.slot for setup, _ in found] == list(range(2, 10)) and all(setup.is_away for setup, _ in found)
    setup, host = found[0]
    assert host.launch[0] == "ssh" and host.launch[-1] == "--" and setup.judge is None
    assert setup.upstreams[0].slots_dir == f"{setup.guest_dir}/upstreams/model"
