"""The database server is killed under a running validator: it comes back, and the race ends as if nothing had been."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
from typer.testing import CliRunner

from arena.chain.keys import keypair_signer
from foundation.errors import ArenaError
from neurons.cli.app import app
from neurons.demo.demo import RACE, VALIDATOR, DemoRun, DemoView, running_validator, watch
from neurons.health.node_file import read_node_file
from neurons.race.log import QUALIFYING
from tests.neurons.arena_stand import SMALL, make_run, read_back

HOTKEY = keypair_signer(VALIDATOR).hotkey
PROBLEMS = (SMALL.qualifying.problems, SMALL.race.problems)


def follow(run: DemoRun, until: Callable[[DemoView], bool], process: subprocess.Popen[bytes]) -> DemoView:
    """The first view that is wanted; what watches is cut off by the outage too, and comes back."""

    async def look() -> DemoView:
        async with asyncio.timeout(120):
            while True:
                try:
                    async for view in watch(run, process, PROBLEMS):
                        if until(view):
                            return view
                    raise AssertionError("the race ended first")
                except ArenaError as error:
                    if error.failure.code != "V2021":
                        raise

    return asyncio.run(look())


def kill_server(run: DemoRun) -> int:
    """Kill the postmaster and every process of it, by their ids; its id."""
    process_id = int((run.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    postmaster = psutil.Process(process_id)
    for process in [postmaster, *postmaster.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself since it was listed
            process.kill()
    psutil.wait_procs([postmaster], timeout=10)
    return process_id


def test_a_killed_server_is_started_again_and_nothing_is_lost_or_doubled(
    arena_base: Path, small_catalogue: Path
) -> None:
    run = make_run(arena_base, small_catalogue, names=("expert",))
    with running_validator(run) as process:
        follow(run, lambda view: view.records >= 2, process)
        shown = CliRunner().invoke(app, ["validator", "status", "--state-dir", str(run.folder), "--json"])
        kill_server(run)
        view = follow(run, lambda view: view.is_over, process)
    status = json.loads(shown.stdout)
    assert (shown.exit_code, status["is_running"], status["needs_person"]) == (0, True, False), shown.stdout
    assert status["node"]["beat"]["hotkey"] == status["store"]["hotkey"] == HOTKEY
    assert process.returncode == 0
    assert view.race.settlement is not None and view.race.settlement.state == "settled"
    report, logs = read_back(run, HOTKEY, (QUALIFYING, RACE))
    assert report.is_ok, report.defects
    for log in logs:
        counts = Counter(
            (row.record.subject.agent_version_id, row.record.context.problem_id) for row in log.evaluations
        )
        assert set(counts.values()) == {1}
    lines = [json.loads(line) for line in (run.folder / "validator.log").read_text().splitlines() if line[:1] == "{"]
    assert "database server is back" in {line["event"] for line in lines}
    kept = read_node_file(run.folder)
    assert kept.beat is not None and kept.ending is not None and kept.ending.failure is None
