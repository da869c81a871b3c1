"""The oracle as a whole, with scripted models over a real catalogue: fates, resuming, costs, faults, the command."""

from __future__ import annotations

import itertools
import json
import shutil
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
from neurons.cli.app import main
from problems.titles import LexicalTitles
from tests.training.export_reading import read_traces
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_records
from training.corpus.exports import open_export
from training.corpus.model import Trace
from training.trac.asking import ATTEMPTS, SILENT_MAX, Answers, Asker
from training.trac.model import FATES, OracleReport, OracleRules, Price, Roles, TrialVerdict
from training.trac.oracle import estimate, judge_traces, report
from training.trac.scripted import ANNOTATOR, ScriptedOracle
from training.trac.trials import Episodes, Stage

ROLES = Roles(annotator=ANNOTATOR, author=ANNOTATOR, teacher="scripted-expert", student="scripted-hasty")
PRICES = {name: Price(prompt_micro_usd=1_000_000, completion_micro_usd=1_000_000) for name in (ANNOTATOR,)}
RULES = OracleRules()
ONCE = msgspec.structs.replace(DEMO, inference=msgspec.structs.replace(DEMO.inference, attempts=1))

Fault = Callable[[dict[str, object]], ArenaError | None]  # what a request meets instead of its answer


class Counting(ScriptedOracle):
    """The scripted models, counted, with replies that a test changes."""

    def __init__(self, change: tuple[str, str] = ("", ""), fails_after: int = 10**9) -> None:
        self.calls = 0
        self._change, self._fails_after = change, fails_after

    def complete(self, request: str) -> ModelReply:
        self.calls += 1
        if self.calls > self._fails_after:
            raise ArenaError("U3001", "the key is used up")
        reply = super().complete(request)
        return msgspec.structs.replace(reply, content=reply.content.replace(*self._change))


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
        return super().complete(request)

    def probe(self, request: str) -> Failure | None:
        return self._probed


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a catalogue's `index` and an `export` of real episodes on it."""
    folder = tmp_path_factory.mktemp("market")
    agents = ("baseline:scripted-expert", "baseline:scripted-hasty")
    episodes = real_episodes(folder, counts={"product": 3, "shop": 1}, agents=agents)
    write_records(Firehose(episodes).as_recorded(), folder / "export")
    return folder


@pytest.fixture(scope="module")
def catalogue(market: Path) -> Catalogue:
    return open_catalogue(market / "index")


@pytest.fixture(scope="module")
def traces(market: Path) -> list[Trace]:
    return [row for row in read_traces(open_export(market / "export", verify)) if isinstance(row, Trace)]


@pytest.fixture(scope="module")
def solved(traces: list[Trace]) -> list[Trace]:
    found = [trace for trace in traces if trace.facts.is_success][:3]
    assert len(found) > 1
    return found


def run(
    traces: list[Trace],
    catalogue: Catalogue,
    folder: Path,
    upstream: ScriptedOracle,
    rules: OracleRules = RULES,
    parallel: int = 1,
    **limits: object,
) -> tuple[list[TrialVerdict], OracleReport, Asker]:
    asker = Asker(upstream, Answers(folder), PRICES, sleep=lambda _: None, **limits)
    stage = Stage(policy=ONCE, catalogue=catalogue, titles=LexicalTitles(), upstream=upstream)
    attempt = Episodes(stage=stage, rules=rules, asker=asker)
    found = list(judge_traces(traces, rules, ROLES, asker, catalogue, attempt, parallel=parallel))
    return found, report(found, rules, ROLES, asker), asker


def test_every_trace_has_one_fate_and_an_accepted_one_has_all_it_needs(
    traces: list[Trace], catalogue: Catalogue, tmp_path: Path
) -> None:
    found, counted, _ = run(traces, catalogue, tmp_path, ScriptedOracle())
    assert [one.trace_id for one in found] == [trace.trace_id for trace in traces]
    assert tuple(fate for fate, _ in counted.fates) == FATES
    assert sum(count for _, count in counted.fates) == counted.traces == len(traces)
    accepted = [one for one in found if one.fate == "accepted"]
    assert accepted
    for one in accepted:
        assert len(one.annotations) == 5 and one.tasklet is not None
        assert (one.teacher_successes or 0) - (one.student_successes or 0) >= counted.margin
    by_id = {trace.trace_id: trace for trace in traces}
    for one in found:
        assert (one.fate == "not_admitted") is (by_id[one.trace_id].facts.is_success is not True)


@pytest.mark.parametrize(
    ("change", "fate"),
    [
        (('"quote":"', '"quote":"never said: '), "not_annotated"),
        (('"train_use_decision":true', '"train_use_decision":false'), "not_accepted"),
        (('"search_terms":["', '"search_terms":["unheardof '), "no_tasklet"),
    ],
)
def test_a_model_that_does_not_deliver_stops_its_trace_and_not_the_run(
    traces: list[Trace], catalogue: Catalogue, tmp_path: Path, change: tuple[str, str], fate: str
) -> None:
    found, _, _ = run(traces, catalogue, tmp_path, Counting(change))
    assert {one.fate for one in found} == {"not_admitted", fate}


def test_a_run_that_broke_off_goes_on_where_it_was(traces: list[Trace], catalogue: Catalogue, tmp_path: Path) -> None:
    whole, _, _ = run(traces, catalogue, tmp_path / "whole", in_one := Counting())
    with pytest.raises(ArenaError, match="used up"):
        run(traces, catalogue, tmp_path / "parts", Counting(fails_after=8))
    found, _, _ = run(traces, catalogue, tmp_path / "parts", rest := Counting())
    assert found == whole
    assert rest.calls < in_one.calls


def test_the_estimate_bounds_what_is_then_paid(traces: list[Trace], catalogue: Catalogue, tmp_path: Path) -> None:
    expected = estimate(traces, RULES, ROLES, PRICES, DEMO)
    _, paid, _ = run(traces, catalogue, tmp_path, ScriptedOracle())
    calls = {one.model: one.calls for one in paid.usage}
    assert expected.admitted == sum(trace.facts.is_success is True for trace in traces)
    assert paid.micro_usd <= expected.most_micro_usd
    assert expected.likely_micro_usd <= expected.most_micro_usd
    assert calls[ANNOTATOR] <= sum(one.calls for one in expected.stages if one.model == ANNOTATOR)
    assert [one.is_priced for one in expected.stages] == [True, True, False, False]


@pytest.fixture(scope="module")
def whole(solved: list[Trace], catalogue: Catalogue, tmp_path_factory: pytest.TempPathFactory) -> list[TrialVerdict]:
    """The fates with an endpoint that does nothing wrong; some traces come to their trials."""
    found, _, _ = run(solved, catalogue, tmp_path_factory.mktemp("whole"), Faulty())
    assert {one.fate for one in found} & {"accepted", "no_margin", "trivial"}
    return found


@pytest.mark.parametrize(
    ("code", "detail", "counted_as"),
    [
        ("U3002", "APITimeoutError: Request timed out.", "U3054"),
        ("U3003", "JSONDecodeError in ''", "U3054"),
        ("U3004", "HTTP 429: too many requests", "U3004"),
    ],
)
def test_an_endpoint_s_fault_in_a_trial_is_no_failed_trial_and_the_next_run_draws_it_anew(
    solved: list[Trace],
    catalogue: Catalogue,
    whole: list[TrialVerdict],
    tmp_path: Path,
    code: str,
    detail: str,
    counted_as: str,
) -> None:
    def in_second_draw(asked: dict[str, object]) -> ArenaError | None:
        return ArenaError(code, detail) if asked["model"] == ROLES.student and asked["seed"] == 1 else None

    found, counted, asker = run(solved, catalogue, tmp_path, Faulty(in_second_draw))
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
    again, counted, _ = run(solved, catalogue, tmp_path, Faulty())
    assert again == whole and not counted.faults


def test_an_endpoint_that_fell_silent_is_not_asked_for_ever(
    solved: list[Trace], catalogue: Catalogue, whole: list[TrialVerdict], tmp_path: Path
) -> None:
    many = solved * 4
    upstream = Faulty(lambda _: ArenaError("U3002", "no route to host"), Failure(code="U3002"))
    found, _counted, asker = run(many, catalogue, tmp_path, upstream)
    assert {(one.fate, one.code) for one in found} == {("not_answered", "U3002")}
    assert len(found) == len(many) > SILENT_MAX and upstream.calls == SILENT_MAX * ATTEMPTS
    assert asker.silence() == Failure(code="U3002", detail="no route to host")
    again, _, _ = run(solved, catalogue, tmp_path, Faulty())
    assert again == whole


def test_what_the_time_did_not_reach_is_told_apart_and_judged_by_the_next_run(
    solved: list[Trace], catalogue: Catalogue, whole: list[TrialVerdict], tmp_path: Path
) -> None:
    for seconds in (3, 30):
        found, counted, _ = run(
            solved, catalogue, tmp_path, upstream := Faulty(), seconds_max=seconds, clock_s=itertools.count().__next__
        )
        assert {one.code for one in found if one.fate == "not_reached"} == {"V2148"}
        assert upstream.calls <= seconds
        assert [(one.code, one.owner) for one in counted.faults] == [("V2148", Owner.VALIDATOR)]
    again, _, _ = run(solved, catalogue, tmp_path, Faulty())
    assert again == whole


@pytest.fixture(scope="module")
def built(market: Path) -> Path:
    """A corpus of the export."""
    words = ["corpus", "build", market / "export", "--out", market / "corpus", "--rule", "coefficient_e4_min=1000"]
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--state-dir", str(market / "state"), "--json"])
    assert not ended.value.code
    return market / "corpus"


@pytest.fixture
def corpus(built: Path, tmp_path: Path) -> Path:
    """The corpus, in a folder of the test's own."""
    return Path(shutil.copytree(built, tmp_path / "corpus"))


def command(corpus: Path, market: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    roles = ["--annotator", ANNOTATOR, "--teacher", ROLES.teacher, "--student", ROLES.student]
    if "--base-url" not in words:
        roles += ["--base-url", "scripted"]
    places = ["--out", str(corpus.parent / "trac"), "--catalogue", str(market / "index")]
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "trac", str(corpus), *places, *roles, "--state-dir", str(corpus.parent / "state"), *words])
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


def test_the_command_writes_fates_and_tasklets(corpus: Path, market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(corpus, market, capsys, "--json")
    assert code == 0
    counted = json.loads(out)
    lines = (corpus.parent / "trac" / "judged.jsonl").read_bytes().splitlines()
    judged = [msgspec.json.decode(line, type=TrialVerdict) for line in lines]
    tasklets = (corpus.parent / "trac" / "tasklets.jsonl").read_bytes().splitlines()
    assert counted["traces"] == len(judged) > 0
    assert len(tasklets) == dict(counted["fates"])["accepted"] == sum(one.fate == "accepted" for one in judged)


def test_a_dry_run_asks_nothing_and_leaves_nothing(
    corpus: Path, market: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = command(corpus, market, capsys, "--dry-run", "--price", f"{ANNOTATOR}=3,15")
    assert code == 0
    assert all(stage in out for stage in ("annotate", "compile", "student", "teacher", "together"))
    assert not (corpus.parent / "trac").exists()
    _, out, _ = command(corpus, market, capsys, "--dry-run", "--json", "--price", f"{ANNOTATOR}=3,15")
    value = json.loads(out)
    assert value["most_micro_usd"] == sum(one["most"]["micro_usd"] for one in value["stages"]) > 0


def test_a_limit_of_cost_needs_prices_and_ends_the_run(
    corpus: Path, market: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = command(corpus, market, capsys, "--price-max", "1")
    assert code == 2 and "needs the price of" in err
    prices = [word for one in (ANNOTATOR, ROLES.teacher, ROLES.student) for word in ("--price", f"{one}=3,15")]
    code, out, err = command(corpus, market, capsys, "--price-max", "0.05", "--json", *prices)
    assert code == 1 and "V2148" in err
    assert dict(json.loads(out)["fates"])["not_reached"] > 0
    assert list((corpus.parent / "trac" / "answers").rglob("*.json"))
