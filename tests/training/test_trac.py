"""Trac, later stages: the oracle with scripted models over a real catalogue; what counts as evidence, what is luck."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from arena.policies import DEMO
from foundation.errors import ArenaError, Failure
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.inference.port import ModelReply
from harness.limits import TokenPrice
from judge.parse import RefusedReplyError
from judge.render import RenderedTrace
from neurons.cli.app import main
from problems.titles import LexicalTitles
from tests.training.firehose import Firehose, read_traces, real_episodes, write_records
from tests.training.labelled import Maker
from training.corpus.exports import open_export
from training.corpus.model import Trace
from training.run_context import RunContext
from training.trac import oracle as oracles
from training.trac.asking import ATTEMPTS, SILENT_MAX, Asker
from training.trac.scripted import ScriptedModels

ROLES = oracles.Roles(annotator="scripted-annotator", teacher="scripted-expert", student="scripted-hasty")
PRICES = {name: TokenPrice(prompt_micro_usd=1_000_000, completion_micro_usd=1_000_000) for name in (ROLES.annotator,)}
RULES = oracles.OracleRules()
ONCE = msgspec.structs.replace(DEMO, inference=msgspec.structs.replace(DEMO.inference, attempts=1))

Judged = tuple[list[oracles.TrialVerdict], oracles.OracleReport]
Fault = Callable[[int, dict[str, object]], ArenaError | None]  # what a call meets, by its number and request


class Faulty(ScriptedModels):
    """The scripted models behind an endpoint that fails as a test says, with replies that it changes."""

    def __init__(self, fault: Fault = lambda number, asked: None, change: tuple[str, str] = ("", "")) -> None:
        self._fault, self._change, self.calls = fault, change, 0

    def complete(self, request: str) -> ModelReply:
        self.calls += 1
        if (met := self._fault(self.calls, json.loads(request))) is not None:
            raise met
        reply = super().complete(request)
        return msgspec.structs.replace(reply, content=reply.content.replace(*self._change))


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


def run(traces: list[Trace], catalogue: Catalogue, folder: Path, upstream: ScriptedModels) -> Judged:
    asker = Asker(upstream, folder, PRICES, sleep=lambda _: None)
    bench = RunContext(policy=ONCE, catalogue=catalogue, titles=LexicalTitles())
    oracle = oracles.Oracle(rules=RULES, roles=ROLES, bench=bench, asker=asker)
    found = [oracle.judge(trace) for trace in traces]
    return found, oracle.report(found)


@pytest.fixture(scope="module")
def whole(traces: list[Trace], catalogue: Catalogue, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The fates with an endpoint that does nothing wrong."""
    return run(traces, catalogue, tmp_path_factory.mktemp("whole"), Faulty())


def test_every_trace_has_one_fate_and_an_accepted_one_has_all_it_needs(traces: list[Trace], whole: Judged) -> None:
    found, counted = whole
    assert [one.trace_id for one in found] == [trace.trace_id for trace in traces]
    assert tuple(fate for fate, _ in counted.fates) == oracles.FATES
    assert sum(count for _, count in counted.fates) == counted.traces == len(traces)
    stages = oracles.estimate(traces, RULES, ROLES, PRICES, DEMO)
    assert sum(one.micro_usd for one in counted.usage) <= sum(one.most_micro_usd or 0 for one in stages)
    assert [one.most_micro_usd is not None for one in stages] == [True, True, False, False]
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
    found, _ = run(traces, catalogue, tmp_path, Faulty(change=change))
    assert {one.fate for one in found} == {"not_admitted", fate}


@pytest.mark.parametrize(("code", "detail"), [("U3002", "Request timed out."), ("A1040", "HTTP 400: too long")])
def test_an_endpoint_s_fault_in_a_trial_is_no_failed_trial_and_the_next_run_draws_it_anew(
    traces: list[Trace], catalogue: Catalogue, whole: Judged, tmp_path: Path, code: str, detail: str
) -> None:
    def in_second_draw(number: int, asked: dict[str, object]) -> ArenaError | None:
        return ArenaError(code, detail) if asked["model"] == ROLES.student and asked["seed"] == 1 else None

    tried = [place for place, one in enumerate(whole[0]) if one.student_successes is not None][:2]
    some, expected = [traces[place] for place in tried], [whole[0][place] for place in tried]
    found, counted = run(some, catalogue, tmp_path, Faulty(in_second_draw))
    for one, told in zip(found, expected, strict=True):
        assert (one.fate, one.code) == ("not_answered", code) and detail in one.detail
        assert (one.tasklet, one.annotations) == (told.tasklet, told.annotations)
    assert counted.faults == {code: len(some)}
    again, counted = run(some, catalogue, tmp_path, Faulty())
    assert again == expected and not counted.faults


def test_an_endpoint_that_fell_silent_is_not_asked_for_ever(
    traces: list[Trace], catalogue: Catalogue, tmp_path: Path
) -> None:
    solved = [trace for trace in traces if trace.facts.is_success]
    upstream = Faulty(lambda number, asked: ArenaError("U3002", "no route to host"))
    with pytest.raises(ArenaError, match=r"U3002.*no route to host"):
        run(solved * 4, catalogue, tmp_path, upstream)
    assert upstream.calls == SILENT_MAX * ATTEMPTS


@pytest.fixture(scope="module")
def corpus(market: Path) -> Path:
    """A corpus of the export."""
    words = ["corpus", "build", market / "export", "--out", market / "corpus", "--rule", "coefficient_e4_min=1000"]
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--state-dir", str(market / "state"), "--json"])
    assert not ended.value.code
    return market / "corpus"


def command(
    corpus: Path, out: Path, market: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    capsys.readouterr()
    roles = ["--annotator", ROLES.annotator, "--teacher", ROLES.teacher, "--student", ROLES.student]
    places = ["--out", str(out), "--catalogue", str(market / "index"), "--state-dir", str(out.parent / "state")]
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "trac", str(corpus), *places, *roles, "--base-url", "scripted", *words])
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


def test_the_command_writes_fates_and_tasklets_and_a_dry_run_nothing(
    corpus: Path, market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trac"
    code, shown, _ = command(corpus, out, market, capsys, "--dry-run", "--price", f"{ROLES.annotator}=3,15")
    assert code == 0 and not out.exists()
    assert all(stage in shown for stage in ("annotate", "compile", "student", "teacher", "together"))
    code, shown, _ = command(corpus, out, market, capsys, "--json")
    assert code == 0
    counted = json.loads(shown)
    judged = [
        msgspec.json.decode(line, type=oracles.TrialVerdict)
        for line in (out / "judged.jsonl").read_bytes().splitlines()
    ]
    tasklets = (out / "tasklets.jsonl").read_bytes().splitlines()
    assert counted["traces"] == len(judged) > 0
    assert len(tasklets) == dict(counted["fates"])["accepted"] == sum(one.fate == "accepted" for one in judged)
    code, _, err = command(corpus, tmp_path / "limited", market, capsys, "--price-max", "1")
    assert code == 2 and "needs the price of" in err


class Answering:
    """An upstream that gives prepared texts, or raises prepared errors, and keeps what it was asked."""

    name = "prepared"

    def __init__(self, replies: Sequence[str | Exception]) -> None:
        self._replies = iter(replies)
        self.requests: list[dict[str, object]] = []

    def complete(self, request: str) -> ModelReply:
        self.requests.append(json.loads(request))
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return ModelReply(model="m", content=reply, prompt_tokens=1_000, completion_tokens=100, message="{}")

    def probe(self, request: str) -> Failure | None:
        return None


@pytest.fixture(scope="module")
def shown() -> RenderedTrace:
    return oracles.read_trace(Maker(5).good("plain").trace)


def asker(tmp_path: Path, upstream: Answering, **fields: object) -> Asker:
    return Asker(upstream, tmp_path, {"m": TokenPrice(prompt_micro_usd=3_000_000, completion_micro_usd=0)}, **fields)


def annotation(shown: RenderedTrace, kind: str = "call", **changes: object) -> str:
    span = next(one for one in shown.spans if one.kind == kind and len(one.content) >= 12)
    reply = {"score": 0.5, "citations": [{"span": span.number, "quote": span.content[:40]}], "explanation": "so"}
    return json.dumps(reply | changes)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"citations": []}, "citations"),
        ({"citations": [{"span": 2, "quote": "no such words anywhere here"}]}, "does not stand"),
        ({"citations": [{"span": 1, "quote": "short"}]}, "5 characters"),
        ({"score": 1.5}, "not between"),
        ({"train_use_decision": True}, "supervisor"),
        ({"prompt": "an old red lamp of brass", "search_terms": ["blue lamp"]}, "'blue', which the prompt does not"),
        ({"prompt": "an old red lamp, product 12345", "search_terms": ["red lamp"]}, "names the product 12345"),
        ({"prompt": "lamp", "search_terms": ["lamp"]}, "4 characters"),
        ({"prompt": "an old red lamp of brass", "search_terms": [" "]}, "0 search terms"),
    ],
)
def test_an_annotation_without_its_evidence_and_a_tasklet_that_nobody_could_follow_are_refused(
    shown: RenderedTrace, reply: dict[str, object], said: str
) -> None:
    with pytest.raises(RefusedReplyError, match=said):
        if "prompt" in reply:
            oracles.check_tasklet(json.dumps(reply), ("12345",))
        else:
            oracles.check_annotation(annotation(shown, **reply), shown, "search")


@pytest.mark.parametrize(("trials", "chance_e4"), [(1, 500), (4, 500), (16, 1_000)])
def test_equal_models_reach_the_margin_no_more_often_than_allowed(trials: int, chance_e4: int) -> None:
    def chance(margin: int, skill: float) -> float:
        weight = [comb(trials, k) * skill**k * (1 - skill) ** (trials - k) for k in range(trials + 1)]
        return sum(weight[a] * weight[b] for a in range(trials + 1) for b in range(trials + 1) if a - b >= margin)

    margin = oracles.calibrated_margin(trials, chance_e4)
    for hundredth in range(1, 100):
        assert chance(margin, hundredth / 100) <= chance_e4 / 10_000 + 1e-12
    if margin > 1:
        assert chance(margin - 1, 0.5) > chance_e4 / 10_000


def test_a_passing_fault_is_tried_again_and_a_lasting_one_ends_the_run(tmp_path: Path) -> None:
    pauses: list[float] = []
    busy = ArenaError("U3004", "busy")
    one = asker(tmp_path, Answering([busy, busy, "well"]), sleep=pauses.append)
    assert one.ask("m", (("user", "a"),), 10) == "well"
    assert pauses == [1.0, 2.0]
    for code, tries in (("U3002", 4), ("A1040", 1)):
        upstream = Answering([ArenaError(code, "")] * 9)
        with pytest.raises(ArenaError) as caught:
            asker(tmp_path, upstream, sleep=pauses.append).ask("m", (("user", code),), 10)
        assert caught.value.failure.code == code and len(upstream.requests) == tries


def test_nothing_is_asked_that_could_break_the_limit(tmp_path: Path) -> None:
    upstream = Answering(["x"] * 9)
    one = asker(tmp_path, upstream, micro_usd_max=7_000)
    chats = [(("user", f"{number} " + "x" * 2_985),) for number in range(9)]  # 1,003 tokens at most: 3,009 each
    with pytest.raises(ArenaError, match="V2148"):
        for chat in chats:
            one.ask("m", chat, 10)
    assert len(upstream.requests) == 2 and one.usage()[0].micro_usd == 6_000
    assert one.ask("m", chats[0], 10) == "x"  # what is kept costs nothing
