"""What an endpoint does wrong while the oracle runs: data with a code, no failure of a model, and asked again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from arena.policies import DEMO
from foundation.codes.row import Owner
from foundation.errors import ArenaError, Failure
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.inference.port import ModelReply
from problems.titles import LexicalTitles
from tests.training.export_reading import read_traces
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_records
from training.corpus.exports import open_export
from training.corpus.model import Trace
from training.trac.asking import ATTEMPTS, SILENT_MAX, Answers, Asker
from training.trac.model import OracleReport, OracleRules, Roles, TrialVerdict
from training.trac.oracle import judge_traces, report
from training.trac.scripted import ANNOTATOR, ScriptedOracle
from training.trac.trials import Episodes, Stage

STUDENT = "scripted-hasty"
ROLES = Roles(annotator=ANNOTATOR, author=ANNOTATOR, teacher="scripted-expert", student=STUDENT)
RULES = OracleRules()
ONCE = msgspec.structs.replace(DEMO, inference=msgspec.structs.replace(DEMO.inference, attempts=1))

Fault = Callable[[dict[str, object]], ArenaError | ModelReply | None]  # what a request meets instead of its answer


class Faulty(ScriptedOracle):
    """The scripted models behind an endpoint that fails as a test says; `probed` is what a short question meets."""

    def __init__(self, fault: Fault = lambda _: None, probed: Failure | None = None) -> None:
        self._fault, self._probed = fault, probed
        self.calls = 0

    def complete(self, request: str) -> ModelReply:
        self.calls += 1
        met = self._fault(json.loads(request))
        if isinstance(met, ArenaError):
            raise met
        return met or super().complete(request)

    def probe(self, request: str) -> Failure | None:
        return self._probed


@pytest.fixture(scope="module")
def catalogue_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue's `index` and an `export` of real episodes on it."""
    folder = tmp_path_factory.mktemp("faults")
    write_records(
        Firehose(real_episodes(folder, counts={"product": 3}, agents=("baseline:scripted-expert",))).as_recorded(),
        folder / "export",
    )
    return folder


@pytest.fixture(scope="module")
def catalogue(catalogue_folder: Path) -> Catalogue:
    return open_catalogue(catalogue_folder / "index")


@pytest.fixture(scope="module")
def traces(catalogue_folder: Path) -> list[Trace]:
    rows = read_traces(open_export(catalogue_folder / "export", verify))
    found = [row for row in rows if isinstance(row, Trace) and row.facts.is_success]
    assert len(found) > 1
    return found


def run(
    traces: list[Trace], catalogue: Catalogue, folder: Path, upstream: ScriptedOracle, **limits: object
) -> tuple[list[TrialVerdict], OracleReport, Asker]:
    asker = Asker(upstream, Answers(folder), {}, sleep=lambda _: None, **limits)
    stage = Stage(policy=ONCE, catalogue=catalogue, titles=LexicalTitles(), upstream=upstream)
    attempt = Episodes(stage=stage, rules=RULES, asker=asker)
    found = list(judge_traces(traces, RULES, ROLES, asker, catalogue, attempt))
    return found, report(found, RULES, ROLES, asker), asker


@pytest.fixture(scope="module")
def whole(traces: list[Trace], catalogue: Catalogue, tmp_path_factory: pytest.TempPathFactory) -> list[TrialVerdict]:
    """The fates with an endpoint that does nothing wrong; some traces come to their trials."""
    found, _, _ = run(traces, catalogue, tmp_path_factory.mktemp("whole"), Faulty())
    assert {one.fate for one in found} & {"accepted", "no_margin", "trivial"}
    return found


@pytest.mark.parametrize(
    ("code", "detail", "counted_as"),
    [
        ("U3002", "APITimeoutError: Request timed out.", "U3054"),
        ("U3002", "HTTP 503: overloaded", "U3054"),
        ("U3003", "JSONDecodeError in ''", "U3054"),
        ("U3004", "HTTP 429: too many requests", "U3004"),
    ],
)
def test_an_endpoint_s_fault_in_a_trial_is_no_failed_trial_and_the_next_run_draws_it_anew(
    traces: list[Trace],
    catalogue: Catalogue,
    whole: list[TrialVerdict],
    tmp_path: Path,
    code: str,
    detail: str,
    counted_as: str,
) -> None:
    def in_second_draw(asked: dict[str, object]) -> ArenaError | None:
        return ArenaError(code, detail) if asked["model"] == STUDENT and asked["seed"] == 1 else None

    found, counted, asker = run(traces, catalogue, tmp_path, Faulty(in_second_draw))
    for one, expected in zip(found, whole, strict=True):
        if expected.student_successes is None:
            assert one == expected
        else:
            assert (one.fate, one.code) == ("not_answered", counted_as) and detail in one.detail
            assert (one.tasklet, one.annotations) == (expected.tasklet, expected.annotations)
    (fault,) = counted.faults
    assert (fault.code, fault.owner, fault.traces) == (
        counted_as,
        Owner.UPSTREAM,
        dict(counted.fates)["not_answered"],
    )
    assert asker.silence() is None
    again, counted, _ = run(traces, catalogue, tmp_path, Faulty())
    assert again == whole and not counted.faults


def test_an_endpoint_that_fell_silent_is_not_asked_for_ever(
    traces: list[Trace], catalogue: Catalogue, whole: list[TrialVerdict], tmp_path: Path
) -> None:
    many = traces * 4
    upstream = Faulty(lambda _: ArenaError("U3002", "no route to host"), Failure(code="U3002"))
    found, _counted, asker = run(many, catalogue, tmp_path, upstream)
    assert {(one.fate, one.code) for one in found} == {("not_answered", "U3002")}
    assert len(found) == len(many) > SILENT_MAX and upstream.calls == SILENT_MAX * ATTEMPTS
    assert asker.silence() == Failure(code="U3002", detail="no route to host")
    again, _, _ = run(traces, catalogue, tmp_path, Faulty())
    assert again == whole


def test_what_the_time_did_not_reach_is_told_apart_and_judged_by_the_next_run(
    traces: list[Trace], catalogue: Catalogue, whole: list[TrialVerdict], tmp_path: Path
) -> None:
    for seconds in (3, 30):
        found, counted, _ = run(
            traces, catalogue, tmp_path, upstream := Faulty(), seconds_max=seconds, clock_s=itertools.count().__next__
        )
        assert {one.code for one in found if one.fate == "not_reached"} == {"V2148"}
        assert upstream.calls <= seconds
        assert [(one.code, one.owner) for one in counted.faults] == [("V2148", Owner.VALIDATOR)]
    again, _, _ = run(traces, catalogue, tmp_path, Faulty())
    assert again == whole
