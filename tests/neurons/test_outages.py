"""An outage of a model or a judge costs time, never a score: attempts are recorded, verdicts are owed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from arena.chain.keys import keypair_signer
from foundation.errors import ArenaError
from harness.inference.scripted.model import MODELS
from judge.verdict import UnscoredVerdict, Verdict
from neurons.demo.demo import VALIDATOR, DemoRun, DemoView, running_validator, watch
from neurons.race.log import QUALIFYING
from tests.harness.inference_stand import OtherServer, raw, scripted
from tests.judge.endpoint import serving
from tests.neurons.arena_stand import SMALL, make_run, read_back
from tests.neurons.shared_nodes_stand import free_port

HOTKEY = keypair_signer(VALIDATOR).hotkey
PATIENT = replace(SMALL, name="patient", inference=replace(SMALL.inference, attempts=1, backoff_ms=10))


def follow(run: DemoRun, until: Callable[[DemoView], bool], process: subprocess.Popen[bytes]) -> DemoView:
    """The first view that is wanted; what watches is cut off by an outage of the database too, and comes back."""

    async def look() -> DemoView:
        async with asyncio.timeout(150):
            while True:
                try:
                    async for view in watch(run, process):
                        if until(view):
                            return view
                    raise AssertionError("the race ended first")
                except ArenaError as error:
                    if error.failure.code != "V2021":
                        raise

    return asyncio.run(look())


def status_until(run: DemoRun, is_so: Callable[[str], bool]) -> str:
    """What `arena validator status` says of a running node, once it is so."""
    command = [sys.executable, "-m", "neurons.cli.app", "validator", "status", "--state-dir", str(run.folder)]
    end_s = time.monotonic() + 150
    while not is_so(shown := subprocess.run(command, capture_output=True, text=True, check=False).stdout):
        assert time.monotonic() < end_s, shown
        time.sleep(2.0)
    return shown


def test_a_model_outage_leaves_faulted_attempts_and_no_zero(arena_base: Path, small_catalogue: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/v1"
    run = make_run(arena_base, small_catalogue, policy=PATIENT, names=("expert",), openai_base_url=address)
    with running_validator(run) as process:
        follow(run, lambda view: view.records >= 2, process)
        down = status_until(run, lambda shown: "U3002" in shown)
        assert down.startswith("NEEDS A PERSON") and f"{address} does not answer" in down
        listed = raw(json.dumps({"data": [{"id": name} for name in MODELS]}).encode())
        with OtherServer(then=scripted, listed=listed, port=port):
            view = follow(run, lambda view: view.is_over, process)
            assert status_until(run, lambda shown: "U3002" not in shown).startswith("all is well")
    settlement = view.race.settlement
    assert settlement is not None and settlement.state == "settled"
    report, (qualifying,) = read_back(run, (QUALIFYING,))
    assert report.is_ok
    assert report.kinds["attempt"] - report.kinds["evaluation"] >= 2
    assert not any(standing.missing for standing in settlement.standings)
    assert len(qualifying.evaluations) == PATIENT.qualifying.problems


def test_a_judge_outage_owes_the_verdict_and_keeps_the_trace(arena_base: Path, small_catalogue: Path) -> None:
    with serving(lambda request: (401, {"error": {"message": "no"}})) as address:
        run = make_run(arena_base, small_catalogue, names=("expert",), judge_base_url=address)
        with running_validator(run) as process:
            wanted = SMALL.qualifying.problems
            view = follow(run, lambda view: len(view.qualifying.evaluations) == wanted, process)
            assert {submission.state for submission in view.submissions} == {"accepted"}
    before, (owing,) = read_back(run, (QUALIFYING,))
    assert before.is_ok
    assert {type(row.record.verdict) for row in owing.verdicts} == {UnscoredVerdict}
    assert len(owing.owed(HOTKEY)) == wanted
    settings = replace(run.settings, judge_base_url="")
    back = DemoRun(folder=run.folder, settings=settings, agents=run.agents)
    with running_validator(back) as process:
        follow(back, lambda view: not view.qualifying.owed(HOTKEY), process)
    after, (judged,) = read_back(run, (QUALIFYING,))
    assert after.is_ok and not judged.owed(HOTKEY)
    assert sum(isinstance(row.record.verdict, Verdict) for row in judged.verdicts) == wanted
