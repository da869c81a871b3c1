"""Views: the tools people use open them, they say what the log says, and equal rows give equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from arena.chain.keys import verify
from arena.export.agents import AgentRow
from arena.export.files import describe
from arena.export.forms import ParquetFile, convert, read_rows, schema
from arena.export.model import FORMATS, Format, ShardFile, Trajectory
from arena.export.row import ExecutedCall, TrajectoryFacts, Turn, converse, row_of
from arena.export.verification import verify_export
from arena.records.model import StoredCheckpoint
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError, Failure
from harness.chat import ChatMessage
from harness.trace import Completion, ToolCall
from judge.verdict import UnscoredVerdict
from neurons.cli.presenter import exit_code
from neurons.cli.records import app
from neurons.cli.view import app as view_app
from problems.model import UnscoredOutcome
from tests.arena.export_stand import ExportLog, export, released_race
from tests.arena.log_stand import HOST, Clock, episode, release, signed_note
from tests.arena.trajectory_stand import (
    SEARCH,
    SYSTEM,
    USER,
    Episode,
    appending,
    narrating,
    replace,
    says,
    trajectory,
    wild,
)
from tests.keys import generate_signer

VIEWS: tuple[Format, ...] = tuple(view for view in FORMATS if view != "jsonl")
PAGE = Path(__file__).parents[2] / "arena" / "export" / "FORMATS.md"
FAILED = Failure(code="U3002")
NAMES = {"a1" * 32: "lamps"}


def rows() -> list[Trajectory]:
    """One of each sort: agentic, driven by Python, unscored, unjudged, of another pool and day."""
    unjudged = UnscoredVerdict(body_sha256="ab", rubric_id="reasoning/1", failure=FAILED)
    return [
        trajectory(1),
        trajectory(2, narrating(), agent="a2", hotkey="5other"),
        trajectory(3, outcome=UnscoredOutcome(failure=FAILED)),
        trajectory(4, replace(appending(), tools_sha256="another"), verdict=unjudged),
        trajectory(5, verdict=None, verdict_seq=0, pool="dev", day=1),
        trajectory(6, replace(appending(), events=(), messages=(), recommended=None)),
    ]


def written(folder: Path, view: Format, trajectories: Sequence[Trajectory], **options) -> tuple[ShardFile, ...]:
    """A shard's view, the third, made of its Parquet file."""
    home = folder if view == "parquet" else folder.parent / f"{folder.name}-rows"
    file = ParquetFile(home / "000003.parquet")
    for one in trajectories:
        file.add(row_of(one, NAMES))
    file.close()
    made = [(file.path, file.rows)] if view == "parquet" else convert(view, file.path, folder, 3, **options)
    return tuple(describe(folder, path, count) for path, count in made)


# -- every view


def test_an_export_in_every_format_verifies_and_all_say_the_same(tmp_path: Path) -> None:
    log = ExportLog()
    released_race(log, "r1", range(1, 8))
    manifest = export(log, tmp_path, signer=log.signer, formats=FORMATS, rows_per_shard=3)
    assert not verify_export(tmp_path, verify).wrong
    assert manifest.trajectories == 7
    views = tmp_path / "views"
    assert {path.name for path in views.iterdir()} == set(VIEWS)
    parquet = [row for path in sorted((views / "parquet").glob("*")) for row in pq.read_table(path).to_pylist()]
    traces = [line for path in sorted((views / "verifiers").glob("*/*")) for line in path.read_bytes().splitlines()]
    chats = [json.loads(line) for path in sorted((views / "messages").glob("*")) for line in unpacked(path)]
    assert len(parquet) == len(traces) == len(chats) == 7
    for row, chat, trace in zip(parquet, chats, map(json.loads, traces), strict=True):
        facts, info = chat["metadata"], trace["traces"][0]["info"]
        assert {name: row[name] for name in facts} == facts == {name: info[name] for name in facts}
        assert [message["content"] for message in row["messages"]] == [one["content"] for one in chat["messages"]]


def unpacked(path: Path) -> list[bytes]:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()


# -- facts


def test_what_was_not_scored_or_judged_is_null_and_never_zero() -> None:
    facts = {one.seq: row_of(one).facts for one in rows()}
    scored, unscored, unjudged, unread = facts[1], facts[3], facts[4], facts[5]
    assert (scored.is_success, scored.reward_e4, scored.unscored_code) == (True, 10_000, "")
    assert (scored.attribute_hits, scored.attribute_total, scored.service_total) == (1, 2, 0)
    assert (unscored.is_success, unscored.reward_e4, unscored.unscored_code) == (None, None, "U3002")
    assert (unjudged.quality_e4, unjudged.rubric_id, unjudged.unjudged_code) == (None, "reasoning/1", "U3002")
    assert (unread.quality_e4, unread.rubric_id, unread.unjudged_code) == (None, "", "")


def test_the_page_names_every_column_and_field() -> None:
    said = set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))
    for struct in (ChatMessage, Turn, ExecutedCall, TrajectoryFacts, AgentRow):
        assert {field.encode_name for field in msgspec.structs.fields(struct)} <= said
    assert set(schema().names) | set(FORMATS) - {"jsonl"} <= said


# -- Parquet


def test_a_row_is_read_back_from_parquet_as_it_was_written(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "parquet", rows())
    assert list(read_rows(tmp_path / file.path)) == [row_of(one, NAMES) for one in rows()]


def test_a_parquet_row_group_is_bounded_by_rows_and_by_size(tmp_path: Path) -> None:
    made = appending()
    large = replace(made, messages=(json.dumps({"role": "system", "content": "x" * (3 << 20)}), *made.messages[1:]))
    for shown, expected in (
        ([trajectory(number) for number in range(1, 600)], [256, 256, 87]),
        ([trajectory(number, large) for number in range(1, 6)], [3, 2]),
    ):
        (file,) = written(tmp_path, "parquet", shown)
        parquet = pq.ParquetFile(tmp_path / file.path)
        assert [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)] == expected


# -- messages


def test_arguments_are_objects_where_they_are_asked_for(tmp_path: Path) -> None:
    made = appending()
    odd = replace(made, messages=tuple(text.replace('\\"q\\"', "q") for text in made.messages))
    (file,) = written(tmp_path, "messages", [trajectory(1), trajectory(2, odd)], arguments="object")
    talks = [json.loads(line)["messages"] for line in unpacked(tmp_path / file.path)]
    calls = [c["function"]["arguments"] for talk in talks for one in talk for c in one.get("tool_calls", ())]
    calls += [c["function"]["arguments"] for talk in talks for one in talk for c in one.get("agent_tool_calls", ())]
    assert calls[0] == {"q": "red lamp"} and all(isinstance(one, dict) for one in calls)
    assert any("_text" in one for one in calls)  # text that is no object stands there


# -- inspect


def test_the_inspect_reader_opens_a_log_whole_in_part_and_by_sample(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    file, other = written(tmp_path, "inspect", rows())
    assert (file.rows, other.rows) == (5, 1)  # a log an agent
    path = str(tmp_path / file.path)
    whole = log.read_eval_log(path)
    assert (whole.status, whole.eval.task, whole.eval.model) == ("success", "lamps", "stand-1")
    assert [sample.id for sample in whole.samples] == [1, 3, 4, 5, 6]
    header = log.read_eval_log(path, header_only=True)
    means = {score.name: score.metrics["mean"].value for score in header.results.scores}
    assert (means["success"], means["quality"], means["attribute"]) == (1.0, pytest.approx(0.7), 0.5)
    assert [one.id for one in log.read_eval_log_sample_summaries(path)] == [1, 3, 4, 5, 6]
    assert log.read_eval_log_sample(str(tmp_path / other.path), id=2, epoch=1).metadata["code_calls"] == 2


# -- verifiers


def test_a_call_read_off_the_prompt_is_marked_and_its_result_too() -> None:
    run = Episode([says(SEARCH), says(content="done")])
    prompt = {"role": "user", "content": 'Say {"name": "find_product", "arguments": {"q": "red lamp"}}'}
    sent = run.chat(prompt)
    run.chat(prompt, sent, *run.answer(sent))
    talk = converse(run.body())
    assert [call.emitter for call in talk.calls] == ["echoed"]
    turn, result = talk.messages[1:3]
    assert turn.tool_calls == ()
    assert [call.id for call in turn.echoed_tool_calls] == ["c0"]
    assert result.origin == "echoed"
    assert not talk.is_model_written


def test_of_rewritten_prompts_the_path_with_most_turns_is_shown() -> None:
    first, second, third = says(content="one"), says(content="two"), says(content="three")
    run = Episode([first, second, third])
    one = run.chat(SYSTEM, USER)
    two = run.chat(SYSTEM, USER, one, USER)
    run.chat(USER, two, {"role": "user", "content": "and?"})  # the first turn was pruned
    talk = converse(run.body())
    assert not talk.is_linear
    assert [m.content for m in talk.messages if m.role == "assistant"] == ["two", "three"]
    run = Episode([first, second, third])
    one = run.chat(SYSTEM, USER)
    run.chat(SYSTEM, USER, one, USER)
    run.chat(USER)
    talk = converse(run.body())
    assert [m.content for m in talk.messages if m.role == "assistant"] == ["one", "two"]
    assert (talk.messages + talk.other_messages)[talk.completions[2].reply].content == "three"


@given(st.data())
def test_whatever_an_agent_does_nothing_is_lost_and_nobody_is_named_wrongly(data: st.DataObject) -> None:
    talk_body = wild(data.draw)
    talk = converse(talk_body)
    calls = [event for event in talk_body.events if isinstance(event, ToolCall)]
    turns = [event for event in talk_body.events if isinstance(event, Completion)]
    everything = talk.messages + talk.other_messages

    assert [(c.index, c.name, c.arguments, c.emitter) for c in talk.calls] == [
        (c.index, c.name, c.arguments, c.emitter) for c in calls
    ]
    for shown, call in zip(talk.calls, calls, strict=True):
        assert (everything[shown.message].content if shown.message is not None else shown.result) == call.result
    for shown, turn in zip(talk.completions, turns, strict=True):
        sent = [json.loads(talk_body.messages[index]) for index in turn.request]
        assert [everything[index].role for index in shown.request] == [message["role"] for message in sent]
        assert [everything[i].content for i in shown.request] == [message["content"] for message in sent]
        assert everything[shown.reply].content == turn.content
    written = {call.call_id for turn in turns for call in turn.calls}
    assert {call.id for message in everything for call in message.tool_calls} <= written
    if any(call.emitter != "llm" for call in calls):
        assert not talk.is_model_written
    if talk.is_linear:
        assert talk.other_messages == ()


# -- `arena records export` on a real store: files, summary, continuation, and clear answers to bad input


@pytest.fixture
async def dsn(postgres: EmbeddedServer) -> str:
    """The login of a validator whose log holds a released race, one that waits, and a signed checkpoint."""
    signer = generate_signer()
    store = await PostgresStore.open(postgres.dsn_for(signer.hotkey), signer.hotkey)
    sequencer = Sequencer(store, signer, Clock(), HOST)
    for problem in (1, 2):
        payloads, body = episode(problem, result_bytes=2_000)
        await sequencer.append(payloads, [body])
    await sequencer.append([release("r1", [1, 2])])
    payloads, body = episode(3, race_id="r2")
    await sequencer.append(payloads, [body])
    leaves = [leaf async for leaf in store.leaves(signer.hotkey)]
    note = signed_note(signer, leaves)
    await store.put_checkpoint(
        StoredCheckpoint(validator=signer.hotkey, size=len(leaves), note=note, signed_ms=Clock()())
    )
    await store.close()
    return postgres.dsn_for(signer.hotkey)


def records(*arguments: object):
    """As `arena records` ends: a coded failure is its text and its exit code."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, ArenaError):
        told = str(result.exception)
        return SimpleNamespace(exit_code=exit_code(result.exception), output=told, stdout="", stderr=told)
    return result


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "csv"], "V2030"),
        (["--pool", "test"], "V2030"),
        (["--bucket", "shoes"], "V2030"),
        (["--from-day", "yesterday"], "V2030"),
        (["--since-cursor", "nowhere"], "does not exist"),
    ],
)
def test_bad_input_is_told_and_writes_nothing(dsn, tmp_path: Path, arguments, said):
    shown = records("export", "--dsn", dsn, "--out", tmp_path / "out", *arguments)
    assert shown.exit_code == 2
    assert said in shown.output
    assert not (tmp_path / "out").exists()


def view(*arguments: object):
    return CliRunner().invoke(view_app, [str(argument) for argument in arguments])


def test_a_race_in_a_store_and_its_export_are_looked_at_alike(dsn, tmp_path: Path):
    shown = records("export", "--dsn", dsn, "--out", tmp_path / "out")
    assert shown.exit_code == 0 and "2 trajectories" in shown.output and verify_export(tmp_path / "out", verify).is_ok
    assert "3 records skipped: their race is not released yet" in shown.output
    of_race = view("r1", "--dsn", dsn)
    assert of_race.exit_code == 0, of_race.output
    assert "r1: 2 traces" in of_race.output and of_race.output.count("solved, rule 1.0000, coefficient") == 2
    stored = json.loads(view("r1", "--dsn", dsn, "--json").stdout)
    exported = json.loads(view(tmp_path / "out", "--json").stdout)
    assert len(stored) == 2
    assert [one["steps"] for one in stored] == [one["steps"] for one in exported]
    assert [one["judges"] for one in stored] == [one["judges"] for one in exported]
    assert all("holds: signed by" in dict(one["proof"])["signature"] for one in (*stored, *exported))
    one_line = view(tmp_path / "out", "--trace", stored[1]["name"]).output
    assert "What happened" in one_line and "find_product [llm]" in one_line
    assert "[[span 1 | query]]" in view(tmp_path / "out", "--trace", stored[1]["name"], "--as-judged").output
