"""Hostile programs, judged by the host: none of them changes a score, a record or the host.

Each attack is told where its target is, must be seen to try, and must leave nothing behind; the same attack without a
jail must succeed, or it would prove nothing. It runs at every sandbox level that this host has, started by root and by
an ordinary user. What the payloads may do: `tests/redteam/README.md`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from foundation.codes import Owner
from harness.limits import EpisodeLimits
from harness.session import EpisodePorts, EpisodeRules, run_episode
from tests.harness.episode_stand import StandGateway, problem, rules
from tests.harness.jail_stand import reference_sandbox
from tests.redteam.driver import CONTROL, WatchingToolbox
from tests.redteam.stages import REPOSITORY, Findings, Stages, Start, open_stages
from tests.redteam.table import ATTACKS, BOMBS, HONEST, LIES

LEVELS: tuple[tuple[Start, str], ...] = tuple(
    (start, jail) for jail in ("bubblewrap", "landlock") for start in ("root", "user")
)


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    with open_stages() as opened:
        for start, wanted in (*LEVELS, ("user", CONTROL)):
            opened.begin(start, wanted)
        yield opened


@pytest.fixture(params=LEVELS, ids=lambda level: f"{level[1]}-by-{level[0]}", scope="module")
def jailed(request: pytest.FixtureRequest, stages: Stages) -> Findings:
    found = stages.findings(*request.param)
    if found.why_none:
        pytest.skip(found.why_none)
    return found


@pytest.fixture(scope="module")
def control(stages: Stages) -> Findings:
    found = stages.findings("user", CONTROL)
    assert not found.why_none
    return found


@pytest.mark.parametrize("arguments", [["--wanted", CONTROL], ["--wanted", CONTROL, "--as-root"], ["--wanted", "auto"]])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused for being root")
def test_a_stage_ends_at_once_under_root(arguments, tmp_path):
    command = [sys.executable, "-m", "tests.redteam.driver", "--state", str(tmp_path), *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "never as root" in done.stderr and not done.stdout
    assert not list(tmp_path.iterdir())


# -- attacks on the host


def each(programs):
    return pytest.mark.parametrize("program", programs, ids=lambda program: program.agent)


@each(ATTACKS)
def test_an_attack_that_succeeds_without_a_jail(program, control):
    trial = control.trials[program.agent]
    assert trial.was_tried, trial
    assert set(program.harm) <= set(trial.harm), trial


@each(ATTACKS)
def test_is_stopped_by_the_jail(program, jailed, control):
    trial = jailed.trials[program.agent]
    assert trial.was_tried, trial
    assert not trial.harm, trial
    # all calls that pass without a jail are refused in one
    assert not set(trial.passed_calls) & set(control.trials[program.agent].passed_calls), trial


def test_an_honest_agent_works_in_the_same_jail(jailed):
    trial = jailed.trials[HONEST.agent]
    assert (trial.stop, trial.code, trial.harm) == (HONEST.stop, "", ()), trial
    assert trial.was_tried and trial.recommended


# -- lies to the host


@each(LIES)
def test_a_lie_changes_neither_score_nor_record(program, jailed):
    trial = jailed.trials[program.agent]
    assert trial.was_tried, trial
    assert (trial.stop, trial.harm) == (program.stop, ()), trial
    assert not trial.code or trial.owner == Owner.AGENT.value
    assert len(trial.detail) < 2_000


def test_an_answer_that_nobody_found_would_count_without_the_surfaced_rule():
    source = "from arena_sdk import tools\ndef agent_main(p): tools.recommend_product('1900000007')"
    lenient = EpisodeRules(policy_sha256="0", catalogue_sha256="1", limits=EpisodeLimits(), is_surfaced_rule_on=False)
    for chosen, unsurfaced in ((rules(), ("1900000007",)), (lenient, ())):
        ports = EpisodePorts(toolbox=WatchingToolbox({}), gateway=StandGateway(), sandbox=reference_sandbox(source))
        body = run_episode(source, problem(), ports, chosen).body
        assert (body.recommended, body.unsurfaced) == (("1900000007",), unsurfaced)


# -- more than an agent may take


def needs_bounds(found: Findings) -> None:
    if not found.is_bounded:
        pytest.skip("no writable cgroup around the whole suite: no bomb is lit (tests/redteam/README.md)")


@each(BOMBS)
def test_too_much_ends_the_episode_for_its_own_reason_and_is_the_agents(program, jailed):
    needs_bounds(jailed)
    little, much = jailed.trials[f"little {program.agent}"], jailed.trials[program.agent]
    assert (little.stop, little.has_reached) == ("returned", True), little
    assert much.was_tried and not much.has_reached, much
    assert (much.stop, much.owner, much.harm) == (program.stop, Owner.AGENT.value, ()), much
