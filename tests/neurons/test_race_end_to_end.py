"""The one path, end to end, on real parts: jails, index, Postgres, local chain, a validator process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from arena.store.objects import folder_location
from neurons.demo.demo import RACE, VALIDATOR, DemoRun, DemoView, conclude, running_validator, watch
from problems.formats import read_problems
from tests.neurons.arena_stand import make_run, read_back

HOTKEY = keypair_signer(VALIDATOR).hotkey
ROOT = Path(__file__).resolve().parents[2]


def race_to_the_end(run: DemoRun) -> DemoView:
    async def follow(process: subprocess.Popen[bytes]) -> DemoView:
        last = None
        async with asyncio.timeout(150):
            async for view in watch(run, process):
                last = view
        assert last is not None
        return last

    with running_validator(run) as process:
        view = asyncio.run(follow(process))
    assert process.returncode == 0, (run.folder / "validator.log").read_text()[-2_000:]
    return view


@pytest.fixture(scope="module")
def finished(
    arena_base: Path, small_catalogue: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DemoRun, DemoView]:
    """A race of a node whose bodies lie in a folder outside of Postgres."""
    url = folder_location(tmp_path_factory.mktemp("bodies") / "of a node")
    run = make_run(arena_base, small_catalogue, bodies_url=url)
    return run, race_to_the_end(run)


def test_race_is_settled_paid_and_verifies_and_counts_every_pair_once(finished: tuple[DemoRun, DemoView]) -> None:
    run, view = finished
    report, weights = asyncio.run(conclude(run))
    kinds, settlement = report.kinds, view.race.settlement
    assert report.is_ok and kinds["settlement"] == kinds["release"] == 1
    assert kinds["attempt"] == kinds["evaluation"] == kinds["verdict"]
    assert settlement is not None and settlement.state == "settled"
    top, names = settlement.standings[0], {s.subject.agent_version_id: s.name for s in view.submissions}
    assert names[top.agent_version_id] == "expert"
    assert sorted(weights.values()) == sorted(settlement.weights_u16)
    assert weights[top.miner_hotkey] == settlement.weights_u16[1] and max(weights.values()) == 65_535
    _, (race,) = read_back(run, (RACE,))
    pairs = [(row.record.subject.agent_version_id, row.record.context.problem_id) for row in race.evaluations]
    # the control agent is one more
    assert len(set(pairs)) == len(pairs) == (len(settlement.standings) + 1) * len(settlement.drawn)


def test_a_local_run_gives_the_body_hash_the_validator_recorded(
    finished: tuple[DemoRun, DemoView], tmp_path: Path
) -> None:
    run, view = finished
    suite = next((run.folder / "suites").glob("*.jsonl"))
    problem_id = read_problems(suite.open(encoding="utf-8"))[0].problem_id
    for name in ("expert", "subtask"):
        agent = next(a for a in run.agents if a.name == name)
        (tmp_path / "agent.py").write_text(agent.source, encoding="utf-8")
        version = next(s.subject.agent_version_id for s in view.submissions if s.name == name)
        recorded = {
            (row.record.context.variant_seed, row.record.body_sha256)
            for row in view.qualifying.evaluations
            if row.record.subject.agent_version_id == version and row.record.context.problem_id == problem_id
        }
        ((seed, _),) = recorded
        assert isinstance(seed, str) and len(seed) == 64
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "neurons.cli.app", "run", str(tmp_path / "agent.py"), "--json"),
                *("--problems", str(suite), "--problem", problem_id, "--variant", seed),
                *("--policy", run.settings.policy),
                *("--catalogue", str(run.settings.catalogue_dir), "--state-dir", str(run.settings.guest_dir)),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        (local,) = json.loads(answer.stdout)
        assert recorded == {(seed, local["body_sha256"])}
