"""What goes out of a log: each released episode once, nothing that waits, no credential, all else as stubs; whatever a
hostile log holds, and wherever an export is killed."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import resource
import signal
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.export import exporter
from arena.export.exporter import continued
from arena.export.files import read_lines, read_manifest, write_manifest
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from arena.records.body import compress_bodies, decode_content, encode_body
from arena.records.log import head_after
from arena.records.model import EvaluationRecord, Payload, RecordContent, StoredBody, VerdictRecord
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError, Failure
from harness.trace import FailedCompletion
from judge.verdict import Refusal, UnscoredVerdict
from neurons.cli.view import traces_of_export
from problems.model import POOLS
from tests.arena.export_stand import SECRET, ExportLog, export, promotion, raced, released_race, request_of, rows
from tests.arena.log_stand import HOST, START_MS, attempt, body, episode, gate, release, settlement, signed_bytes


@pytest.fixture
def log() -> ExportLog:
    return ExportLog()


def brought(folder: Path) -> list[tuple[str, str]]:
    """Race and problem of every evaluation that is whole."""
    found = []
    for row in rows(folder):
        if row.content is not None:
            payload = decode_content(bytes(row.content)).payload
            if isinstance(payload, EvaluationRecord):
                found.append((payload.context.race_id, payload.context.problem_id))
    return found


def test_an_export_holds_every_record_of_its_range_and_verifies_without_a_store(log, tmp_path):
    released_race(log, "r1")
    log.add([settlement("r1"), attempt(9)])
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    assert [row.seq for row in rows(tmp_path / "out")] == list(range(1, len(log.log) + 1))
    assert manifest.trajectories == 3
    assert manifest.records == {"attempt": 3, "evaluation": 3, "release": 1, "settlement": 1, "verdict": 3}
    assert manifest.withheld == {"pool": 1}  # the released batch has no problem 9
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong
    assert (report.first_seq, report.last_seq, report.signer) == (1, len(log.log), "")


def test_filters_leave_out_evaluations_and_the_export_still_verifies(log, tmp_path):
    released_race(log, "r1")
    released_race(log, "r2", [4])
    log.add([gate(1), gate(1, decided_by="person", outcome="accept")])
    log.checkpoint()
    for number, (filters, count, gates) in enumerate(
        (
            ({}, 4, 2),
            ({"races": ("r2",)}, 1, 0),
            ({"agents": ("5miner",)}, 4, 2),
            ({"agents": ("nobody",)}, 0, 0),
            ({"buckets": ("shop",)}, 0, 2),
            ({"coefficient_e4_min": 9_125}, 4, 2),
            ({"coefficient_e4_min": 9_126}, 0, 2),
            ({"is_agentic_only": True}, 4, 2),
            ({"from_day": "2026-09-21", "to_day": "2026-09-21"}, 4, 2),
            ({"to_day": "2026-09-20"}, 0, 2),
            ({"from_day": "2026-09-22"}, 0, 2),
        )
    ):
        manifest = export(log, tmp_path / str(number), **filters)
        assert (manifest.trajectories, manifest.records.get("gate", 0)) == (count, gates), filters
        assert sum(manifest.records.values()) + sum(manifest.withheld.values()) == len(log.log)
        assert verify_export(tmp_path / str(number), verify).wrong == ()


def test_the_first_verdict_of_the_races_own_rubric_counts_and_before_a_refusal(log, tmp_path):
    (*before, judged), stored = raced(1, "r1", "a1", "dear")
    foreign = replace(judged, verdict=replace(judged.verdict, rubric_id="other/1", coefficient_e4=4_000))
    away = Failure(code="U3020", detail="the judge is away")
    refusal = UnscoredVerdict(body_sha256=stored.body_sha256, rubric_id="reasoning/1", failure=away)
    later = replace(judged, verdict=replace(judged.verdict, coefficient_e4=5_000))
    log.add([*before, replace(judged, verdict=refusal)], [stored])
    log.add([foreign, judged, later])
    log.add_episode(2)
    log.add([promotion("r1", "a1", START_MS), release("r1", (1, 2))])
    log.checkpoint()
    assert export(log, tmp_path / "out", coefficient_e4_min=9_125).trajectories == 2
    assert verify_export(tmp_path / "out", verify).wrong == ()
    assert all(
        view.result.endswith("coefficient 0.9125, score 0.9125") for view, _ in traces_of_export(tmp_path / "out")
    )


def test_without_a_checkpoint_there_is_no_export_unless_the_logs_hotkey_signs_one(log, tmp_path):
    released_race(log, "r1")
    with pytest.raises(ArenaError, match="V2053"):
        export(log, tmp_path / "refused")
    assert export(log, tmp_path / "out", signer=log.signer).log.last_seq == len(log.log)
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok, report.wrong
    assert report.signer == log.validator


def test_an_earlier_export_is_continued_by_the_same_request_alone(log, tmp_path):
    released_race(log, "r1")
    log.checkpoint()
    manifest = export(log, tmp_path / "out")
    assert export(log, tmp_path / "out") == manifest, "a finished export is given back"
    assert continued(manifest, request_of(log)) == manifest.cursor
    for other in ({"pools": ("eval",)}, {"races": ("r1",)}):
        with pytest.raises(ArenaError, match="V2030"):
            continued(manifest, request_of(log, **other))
        with pytest.raises(ArenaError, match="V2027"):
            export(log, tmp_path / "out", **other)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abcABCe"), max_size=24), st.integers(1, 4))
def test_any_series_of_incremental_exports_brings_every_released_episode_once(steps, rows_per_shard):
    """Small letters append an episode of that race, capitals release it, `e` exports what is new."""
    log, released, number = ExportLog(), set[str](), 0
    episodes: list[tuple[str, str]] = []
    found: list[tuple[str, str]] = []
    cursor = None
    planned = {race: [n + 1 for n, step in enumerate(steps) if step == race] for race in "abc"}
    with tempfile.TemporaryDirectory() as made:
        for count, step in enumerate([*steps, "e"]):
            if step == "e":
                if not log.log:
                    continue
                log.checkpoint()
                folder = Path(made) / str(count)
                manifest = export(log, folder, start=cursor, rows_per_shard=rows_per_shard)
                assert verify_export(folder, verify).wrong == ()
                found += brought(folder)
                cursor = read_manifest(folder).cursor
                assert manifest.cursor == cursor
            elif step.islower():
                number = count + 1
                log.add_episode(number, step)
                episodes.append((step, f"p{number:04d}"))
            elif step.lower() not in released:
                released.add(step.lower())
                log.add([release(step.lower(), planned[step.lower()])])
        assert sorted(found) == sorted(about for about in episodes if about[0] in released)


def test_a_control_agent_is_no_miners_work_and_stays_out_unless_asked_for(log, tmp_path):
    log.add_episode(1)
    payloads, body = episode(2, agent="c0")
    log.add([replace(each, subject=replace(each.subject, miner_hotkey="")) for each in payloads], [body])
    log.add([release("r1", [1, 2])])
    log.checkpoint()
    manifest = export(log, tmp_path / "all")
    assert (manifest.trajectories, manifest.withheld, brought(tmp_path / "all")) == (
        1,
        {"filter": 3},
        [("r1", "p0001")],
    )
    assert export(log, tmp_path / "asked", agents=("c0" * 32,)).trajectories == 1
    assert brought(tmp_path / "asked") == [("r1", "p0002")]
    for name in ("all", "asked"):
        assert verify_export(tmp_path / name, verify).is_ok


WAITING, LATE = "r-waiting", "r-late"


def log_with_secrets() -> tuple[ExportLog, list[bytes]]:
    """A released race, one that waits and one whose release stands behind the checkpoint; what names the last two."""
    log = ExportLog()
    released_race(log, "r-open", [1, 2])
    log.add([settlement("r-open")])
    for race_id, problem in ((WAITING, 3301), (LATE, 4401)):
        log.add_episode(problem, race_id)
        log.add([replace(settlement(race_id), drawn=(f"p{problem}",))])
    log.checkpoint()
    log.add([release(LATE, [4401])])
    held = [r for r in log.log if WAITING.encode() in r.content or LATE.encode() in r.content]
    names = [decode_content(r.content).payload for r in held if b'"kind":"evaluation"' in r.content]
    return log, [b"p3301", b"p4401", WAITING.encode(), LATE.encode(), *(name.body_sha256.encode() for name in names)]


requests = st.fixed_dictionaries(
    {
        "pools": st.lists(st.sampled_from(POOLS), min_size=1, unique=True).map(tuple),
        "races": st.lists(st.sampled_from(["r-open", WAITING, LATE]), unique=True).map(tuple),
        "agents": st.sampled_from([(), ("5miner",), ("a1" * 32,)]),
        "buckets": st.sampled_from([(), ("product",)]),
        "is_agentic_only": st.booleans(),
        "coefficient_e4_min": st.sampled_from([0, 9_000]),
        "from_day": st.sampled_from(["", "2026-09-21"]),
        "rows_per_shard": st.integers(1, 3),
    }
)


@settings(max_examples=12, deadline=None)
@given(requests, st.integers(0, 8), st.lists(st.sampled_from([WAITING, LATE]), unique=True), st.integers(0, 40))
def test_no_request_and_no_cursor_brings_anything_of_a_race_that_waits(fields, after_seq, races, exported_to):
    """The cursor's claims about earlier exports come from a file that anybody may have written."""
    log, secrets = log_with_secrets()
    named = [race.encode() for race in fields["races"]]  # the request itself is in the manifest
    named += [race.encode() for race in races]
    with tempfile.TemporaryDirectory() as made:
        first = log.cursor_at(after_seq)
        start = replace(first, races=tuple(races), exported_to=exported_to)
        export(log, Path(made) / "out", formats=FORMATS, start=start, **fields)
        found = everything(Path(made) / "out")
        assert [word for word in secrets if word in found and word not in named] == []
        assert verify_export(Path(made) / "out", verify).is_ok


def test_the_settlement_of_a_race_that_was_never_drawn_goes_out_and_holds_up_no_cursor(tmp_path):
    """No release will ever come for it: it used to wait for one, and every later export began there again."""
    log = ExportLog()
    log.add([replace(settlement("r-undrawn"), state="cancelled", drawn=(), reason="the beacon did not come")])
    released_race(log, "r-open", [1])
    log.add([settlement("r-open")])
    log.checkpoint()
    first = export(log, tmp_path / "first", formats=FORMATS, pools=POOLS)
    assert "unreleased" not in first.withheld and b"r-undrawn" in everything(tmp_path / "first")
    assert first.cursor.after_seq == first.cursor.exported_to  # nothing waits
    assert verify_export(tmp_path / "first", verify).is_ok


DEPTH = 100_000


def put(log: ExportLog, content: bytes) -> int:
    """Append bytes as its validator would sign them, whatever they are; the record's number."""
    log.log.append(signed_bytes(log.signer, content, log.end))
    log.end = head_after(log.log[-1])
    return log.end.seq


def content_of(payload: Payload) -> bytes:
    return canonical_bytes(RecordContent(recorded_ms=START_MS, host=HOST, payload=payload))


def poisons() -> dict[str, bytes]:
    sound = content_of(attempt(9))
    return {
        "empty": b"",
        "no JSON": b"\x00\xff",
        "not UTF-8": sound.replace(b'"p9:1"', b'"\xff"'),
        "half a surrogate": sound.replace(b'"p9:1"', b'"\\ud800"'),
        "nested without end": sound[:-1] + b',"zz":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        "a member twice": sound[:-1] + b',"version":1}',
        "another layout": sound.replace(b'"version":1', b'"version": 1'),
        "two lines": sound.replace(b'"version":1', b'"version":1\n'),
        "members in another order": b'{"version":1,' + sound[1:].replace(b',"version":1', b""),
        "a number beyond exact ones": sound.replace(str(START_MS).encode(), b"18446744073709551616"),
        "a float": sound.replace(str(START_MS).encode(), b"1.5"),
        "of a later version": sound.replace(b'"version":1', b'"version":2'),
        "of an unknown kind": sound.replace(b'"kind":"attempt"', b'"kind":"rebuttal"'),
        "a list": b"[]",
        "null": b"null",
    }


def test_records_that_can_not_be_read_are_quarantined_and_named_and_the_rest_goes_out(tmp_path: Path) -> None:
    log, bad = ExportLog(), []
    for content in poisons().values():
        bad.append(put(log, content))
    released_race(log, "r1")
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert manifest.quarantined == tuple(bad)
    assert (manifest.withheld, manifest.trajectories) == ({"undecodable": len(bad)}, 3)
    assert verify_export(tmp_path / "out", verify).wrong == ()


@pytest.mark.parametrize("harm", ["nested", "layout", "missing", "not a frame"])
def test_a_body_that_can_not_be_read_quarantines_its_evaluation_alone(tmp_path: Path, harm: str) -> None:
    log = ExportLog()
    sound = encode_body(body(5)).content
    content = {
        "nested": sound[:-1] + b',"zz":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
        "layout": sound.replace(b'"version":1', b'"version": 1'),
    }.get(harm, sound)
    name = hashlib.sha256(content).hexdigest()
    attempted, evaluated, judged = episode(5)[0]
    assert isinstance(judged, VerdictRecord)
    named = [replace(attempted, body_sha256=name), replace(evaluated, body_sha256=name)]
    log.add([*named, replace(judged, verdict=replace(judged.verdict, body_sha256=name))])
    if harm != "missing":
        (frame,) = asyncio.run(compress_bodies([StoredBody(body_sha256=name, content=content)]))
        log.stored[name] = replace(frame, content=b"junk") if harm == "not a frame" else frame
    log.add_episode(1)
    log.add([release("r1", [1, 5])])
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert (manifest.quarantined, manifest.trajectories) == ((2,), 1)
    assert verify_export(tmp_path / "out", verify).is_ok


def test_fields_of_a_later_minor_version_go_out_whole_and_views_leave_them_aside(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1", [1])
    plain = msgspec.json.decode(content_of(attempt(5))) | {"zz_of_later": {"words": ["new"]}}
    seq = put(log, canonical_bytes(plain))
    made = msgspec.json.decode(encode_body(body(1)).content) | {"a_of_later": "new"}
    content = canonical_bytes(made)
    name = hashlib.sha256(content).hexdigest()
    (log.stored[name],) = asyncio.run(compress_bodies([StoredBody(body_sha256=name, content=content)]))
    evaluated = replace(episode(1, agent="b7")[0][1], body_sha256=name)
    later = msgspec.json.decode(content_of(evaluated))
    put(log, canonical_bytes(later | {"payload": later["payload"] | {"of_later": 1}}))
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert manifest.withheld == {"pool": 1}  # the attempt: of a problem that the release does not name
    assert manifest.trajectories == 2
    lines = b"\n".join(read_lines(tmp_path / "out" / "log" / "000000.jsonl.zst"))
    assert b"a_of_later" in lines and b'"of_later":1' in lines
    assert verify_export(tmp_path / "out", verify).wrong == ()
    assert seq == 5


def everything(folder: Path) -> bytes:
    """All that is in an export, unpacked."""
    parts = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".zst":
            parts += read_lines(path)
        elif path.suffix == ".parquet":
            parts.append(repr(pq.read_table(path).to_pylist()).encode())
        elif path.suffix == ".eval":
            with zipfile.ZipFile(path) as log:
                parts += [log.read(name) for name in log.namelist()]
        parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_a_credential_in_any_text_of_a_body_record_or_verdict_reaches_no_file_of_any_format(tmp_path: Path) -> None:
    log, told = ExportLog(), f"it is {SECRET} !"
    fault, refusal = Failure(code="A1050", detail=told), Refusal(model="judge", attempts=1, reason=told)
    first, second = body(1).events
    turn = replace(first, content=told, reasoning=told, logprobs=told)
    call = replace(second, arguments=told, result=told, failure=fault, ignored_parameters=(told,))
    for number, changes in enumerate(
        (
            {"query": told, "events": (turn, call, FailedCompletion(step=2, failure=fault))},
            {"failure": fault, "claim": told, "unsurfaced": (told,), "recommended": (told,), "messages": (told,)},
            {},
        ),
        1,
    ):
        made = encode_body(replace(body(number), **changes))
        attempted, evaluated, judged = episode(number)[0]
        verdict = replace(judged.verdict, body_sha256=made.body_sha256)
        if not changes:  # in the records alone
            attempted = replace(attempted, failure=fault)
            verdict = replace(verdict, refused=(refusal,))
        named = {"body_sha256": made.body_sha256}
        failed = {"failure": changes["failure"]} if "failure" in changes else {}
        log.add(
            [replace(attempted, **named), replace(evaluated, **named, **failed), replace(judged, verdict=verdict)],
            [made],
        )
    log.add([release("r1", [1, 2, 3])])
    log.checkpoint()
    manifest = export(log, tmp_path / "out", formats=FORMATS)
    assert SECRET.encode() not in everything(tmp_path / "out")
    assert (manifest.trajectories, manifest.scrubbed) == (3, 3)  # nothing is lost to the views for it
    assert verify_export(tmp_path / "out", verify).wrong == ()


EPISODES = 40
OPTIONS = {"formats": FORMATS, "rows_per_shard": 8}
WAIT_S = 60
FILE_BYTES_MAX = 20_000


@pytest.fixture(scope="module")
def long_log() -> ExportLog:
    log = ExportLog()
    released_race(log, "r1", range(1, EPISODES + 1), result_bytes=8_000)
    log.checkpoint()
    return log


@pytest.fixture(scope="module")
def whole(long_log: ExportLog, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    export(long_log, folder, **OPTIONS)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def begin(work: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    """Some work in a process of its own."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child


@pytest.mark.parametrize("at", [1, 60, 121])
def test_an_export_killed_at_some_record_ends_in_the_bytes_of_one_that_was_not(
    long_log, whole, tmp_path, at, monkeypatch
):
    monkeypatch.setattr(exporter, "PAGE", 16)

    def kill(done: int, total: int) -> None:
        if done >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = begin(lambda: export(long_log, tmp_path / "out", progress=kill, **OPTIONS))
    child.join()
    assert child.exitcode == -signal.SIGKILL and not (tmp_path / "out").exists()
    export(long_log, tmp_path / "out", **OPTIONS)
    assert contents(tmp_path / "out") == whole
    assert verify_export(tmp_path / "out", verify).is_ok


def test_a_full_disk_is_said_and_leaves_nothing(long_log, whole, tmp_path):
    failed = multiprocessing.get_context("fork").Queue()

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, resource.RLIM_INFINITY))
        try:
            export(long_log, tmp_path / "out", **OPTIONS)
        except ArenaError as error:
            failed.put(error.failure.code)

    child = begin(run)
    assert failed.get(timeout=WAIT_S) == "V2027"
    child.join()
    assert not list(tmp_path.iterdir())


def test_no_end_is_signed_that_the_log_does_not_lead_to(tmp_path):
    log, other = ExportLog(), ExportLog()
    released_race(log, "r1", range(1, 50))
    released_race(other, "r1", range(1, 50))
    begin_at, foreign = log.cursor_at(20), other.cursor_at(20)
    forged = msgspec.structs.replace(begin_at, peaks=foreign.peaks)  # the right record, on another tree
    with pytest.raises(ArenaError, match="V2050"):
        export(log, tmp_path / "out", start=forged, signer=log.signer)
    assert export(log, tmp_path / "good", start=begin_at, signer=log.signer).log.last_seq == len(log.log)


OPENS_MS = 2_000_000_000_000
SEALED = "r-sealed"


def log_under_embargo() -> ExportLog:
    """A race that is open, and one that is settled and released and waits for its moment."""
    log = ExportLog()
    released_race(log, "r-open", [1, 2])
    log.add_episode(7301, SEALED)
    log.add([replace(settlement(SEALED), drawn=("p7301",))])
    log.add([replace(release(SEALED, [7301]), opens_ms=OPENS_MS)])
    log.add_episode(3, "r-open-too")
    log.add([release("r-open-too", [3])])
    log.checkpoint()
    return log


@pytest.mark.parametrize("pools", [("train",), POOLS])
def test_traces_go_out_with_the_first_export_after_the_moment_and_once(tmp_path, pools):
    log = log_under_embargo()
    first = export(log, tmp_path / "first", formats=FORMATS, pools=pools, now_ms=OPENS_MS - 1)
    assert first.log.embargoed == (SEALED,) and first.trajectories == 3
    assert first.withheld == {"unreleased": 3}  # evaluation, attempt, verdict; rank and score are public
    found = everything(tmp_path / "first")
    assert b'"problem_id":"p7301","bucket"' not in found and b"p7301/" not in found
    second = export(log, tmp_path / "second", start=first.cursor, formats=FORMATS, pools=pools, now_ms=OPENS_MS)
    assert second.trajectories == 1 and "unreleased" not in second.withheld
    for name in ("first", "second"):
        assert verify_export(tmp_path / name, verify).wrong == ()


def test_an_export_that_brings_an_embargoed_trace_is_found_out(tmp_path):
    """Its maker says that an embargo ran, and brings what it seals."""
    log = log_under_embargo()
    made = export(log, tmp_path / "out", now_ms=OPENS_MS)
    write_manifest(tmp_path / "out", replace(made, log=replace(made.log, embargoed=(SEALED,))), None)
    report = verify_export(tmp_path / "out", verify)
    assert not report.is_ok and "should be withheld: unreleased" in str(report.wrong)
