"""An export is read whole, once, in order, the same from log, view and object store, and not at all unless it verifies.
Whatever form an agent keeps its dialogue in, its episode becomes one conversation, or a code, by recorded events."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import verify
from arena.export.files import bring_export
from arena.store.objects import _open_place, folder_location
from foundation.errors import ArenaError
from foundation.executors import HERE, ProcessExecutor
from harness.chat import Message
from harness.trace import Completion, EvaluationBody
from neurons.cli.app import main
from tests.arena.conftest import bucket, s3  # noqa: F401 - fixtures
from tests.arena.trajectory_stand import QUERY, SEARCH, narrating, says, wild
from tests.arena.trajectory_stand import Episode as Run
from tests.prove.test_corpus_scale import folder_sha256
from tests.readme_blocks import ROOT, block_under
from tests.training.agent_styles import (
    TURNS,
    StyleRow,
    as_one_message,
    as_trace,
    calls_in,
    codes,
    run_styles,
    spoken,
    table,
)
from tests.training.conftest import DAY
from training.corpus.exports import ViewShard, export_shards, open_export
from training.corpus.gates import codes_of, gates
from training.corpus.model import Quarantined, Rebuilt, Rules, Trace
from training.models.render import Qwen3Codec


def test_the_block_of_the_page_reads_a_whole_export(day: Path) -> None:
    block = block_under("What comes in", ROOT / "training" / "corpus" / "README.md")
    seen: list[Trace] = []
    names: dict[str, object] = {
        "open_export": open_export,
        "export_shards": export_shards,
        "verify": verify,
        "Trace": Trace,
        "folder": day,
        "guard": lambda row: seen.append(row) or (),
    }
    exec(compile(block.text, block.page, "exec"), names)
    numbers = [int(trace.source.place.rpartition(":")[2]) for trace in seen]
    assert len(numbers) == DAY and numbers == sorted(set(numbers))
    assert all(trace.source.is_verified for trace in seen)


def test_a_message_of_no_known_role_is_refused_by_code() -> None:
    run = Run([says(content="Yes.")])
    run.chat({"role": "narrator", "content": "Once."})
    with pytest.raises(ArenaError, match="V2097"):
        as_trace(run.body())


@pytest.fixture
def location(day: Path, tmp_path: Path) -> str:
    """Where a copy of it lies."""
    shutil.copytree(day, tmp_path / "there")
    return folder_location(tmp_path / "there")


def rows_of(shard: ViewShard) -> list[Trace | Quarantined]:
    return list(shard())


def test_it_comes_whole_once_and_what_is_there_now_is_what_is_here(location: str, day: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    folder = bring_export(location, tmp_path / "exports", lambda done, of: told.append((done, of)))
    assert folder_sha256(folder) == folder_sha256(day) and told[-1][0] == told[-1][1]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.zst")}
    (folder / "log" / "extra").write_text("left by nobody")
    next(iter(before)).write_bytes(b"damaged")
    assert bring_export(location, tmp_path / "exports") == folder and folder_sha256(folder) == folder_sha256(day)
    assert sum(path.stat().st_mtime_ns != before[path] for path in before) == 1
    (tmp_path / "there" / "log" / "more").write_bytes(b"one too many")
    bring_export(location, tmp_path / "exports")
    with pytest.raises(ArenaError, match=r"V2095.*log/more"):
        open_export(folder, verify)


def test_a_machine_without_the_folder_reads_the_same_rows_by_url(
    bucket: str,  # noqa: F811
    day: Path,
    tmp_path: Path,
) -> None:
    for path in (path for path in sorted(day.rglob("*")) if path.is_file()):
        obstore.put(_open_place(bucket), path.relative_to(day).as_posix(), path.read_bytes())
    folder = bring_export(bucket, tmp_path / "exports")
    plain = [rows_of(shard) for shard in export_shards(open_export(day, verify))]
    shards = export_shards(open_export(folder, verify, location=bucket))
    folder.rename(tmp_path / "gone")
    assert sum(map(len, plain)) == DAY
    for executor in (HERE, ProcessExecutor(2)):
        assert list(executor.map(rows_of, shards, died="V2052")) == plain


@pytest.mark.parametrize(("name", "code"), [("log/a\u202eb", "V2050"), ("a\x1b[2Jb", "V2029")])
def test_a_name_that_could_drive_a_terminal_is_refused_before_anything_is_fetched(
    tmp_path: Path, name: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there, location = tmp_path / "there", folder_location(tmp_path / "there")
    (there / name).parent.mkdir(parents=True)
    (there / name).write_bytes(b"x")
    with pytest.raises(ArenaError) as caught:
        bring_export(location, tmp_path / "exports")
    assert caught.value.failure.code == code
    assert not (tmp_path / "exports").exists()
    with pytest.raises(SystemExit):
        main(["records", "verify", "--export", location, "--state-dir", str(tmp_path / "state")])
    said = capsys.readouterr().err
    assert code in said and said.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("shown", "lacks"),
    [
        (lambda parts: "\n".join(parts[:1] + parts[-1:]), ("calls", "results")),  # the last observation alone
        (lambda parts: "\n".join(part for part in parts if "<obs>" not in part), ("results",)),
        (lambda parts: "\n".join(part[:40] if "<obs>" in part else part for part in parts), ("results",)),  # cut
        (lambda parts: f"{QUERY}: so far {len(parts)} steps" if parts[1:] else parts[0], ("calls", "results")),
        (lambda parts: "\n".join(parts[1:]) or parts[0], ("query",)),
    ],
)  # fmt: skip
def test_a_dialogue_that_was_cut_or_summarised_says_what_its_model_was_not_shown(
    shown: Callable[[list[str]], str], lacks: tuple[str, ...]
) -> None:
    trace = as_trace(as_one_message(shown=shown))
    assert trace.rebuilt == Rebuilt(how=("events", "query", "text_calls"), lacks=lacks)
    assert codes(trace) == ("view_incomplete",)
    off = Rules(off=("coefficient", "recommend_arguments", "subtask", "view_incomplete"))
    assert codes_of(trace, off, gates()) == ()


def test_calls_of_the_agents_python_are_marked_and_not_learnt() -> None:
    trace = as_trace(narrating())
    calling = [message for message in trace.messages if message.calls]
    assert [message.is_model for message in calling] in ([], [False, False])
    run, texts = Run([says(content=spoken(turn)) for turn in TURNS[1:]]), [QUERY]
    texts.append(run.tool(*SEARCH))  # Python searches before the model is asked
    for turn in TURNS[1:]:
        run.chat({"role": "user", "content": "\n".join(texts)})
        texts += [spoken(turn), *(run.tool(*call) for call in turn[1])]
    trace = as_trace(run.body())
    assert trace.rebuilt == Rebuilt(how=("agent_calls", "events", "query", "text_calls"))
    assert [(m.is_model, [c.emitter for c in m.calls]) for m in trace.messages if m.calls] == [
        (False, ["code"]), (True, ["llm"]), (True, ["llm", "llm"])
    ]  # fmt: skip


@given(st.data())
def test_whatever_an_agent_does_only_what_was_recorded_stands_there(data: st.DataObject) -> None:
    body = wild(data.draw, ["", spoken(TURNS[0]), spoken(TURNS[1]), "<tool_call>[{</tool_call>"])
    trace = as_trace(body)
    if trace.provenance == "verbatim" or trace.rebuilt == Rebuilt(how=("text_calls",)):
        return
    turns = [event for event in body.events if isinstance(event, Completion)]
    own = [message for message in trace.messages if message.role == "assistant" and message.is_model]
    assert len(own) <= len(turns)
    position = 0
    for message in own:  # in order, each once
        while message.content.strip() not in turns[position].content:
            position += 1
        position += 1
    made = sorted((call.name, call.result, call.emitter == "llm") for call in calls_in(body))
    shown = []
    calls = {}
    for message in trace.messages:
        calls |= {call.id: (call, message.is_model) for call in message.calls}
        if message.role == "tool" and message.call_id in calls:
            call, is_model = calls[message.call_id]
            shown.append((call.name, message.content, is_model and call.emitter == "llm"))
    assert sorted(shown) == made


def _sent(message: dict[str, object]) -> Message:
    from training.rollouts.rollout import _message  # how a request becomes a sampler's prompt

    return _message(message)


README = Path(__file__).parents[2] / "training" / "corpus" / "README.md"
SAMPLED = ["several calls a turn, run together", "planner beside a worker"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StyleRow]:
    return run_styles(tmp_path_factory.mktemp("styles"))


@pytest.fixture(scope="module")
def codec() -> Qwen3Codec:
    from tests.training.stock import TOKENIZER  # torch: not for the tests of the corpus

    return Qwen3Codec(TOKENIZER)


def test_the_readme_has_the_table(rows: dict[str, StyleRow]) -> None:
    assert table(rows) in README.read_text("utf-8")


def prompts(trace: Trace, body: EvaluationBody, codec: Qwen3Codec) -> list[tuple[int, ...]]:
    """What was sent for each turn of the row, as a sampler would have tokenised it."""
    opening = trace.messages[0].content
    requests = [
        [msgspec.json.decode(body.messages[at]) for at in turn.request]
        for turn in body.events
        if isinstance(turn, Completion)
    ]
    own = [sent for sent in requests if sent[0]["content"] == opening]
    return [codec.prompt(tuple(map(_sent, sent)), trace.tools) for sent in own]


@pytest.mark.parametrize("name", SAMPLED)
def test_the_prompt_that_was_sent_is_the_training_prefix_token_for_token(
    name: str, rows: dict[str, StyleRow], codec: Qwen3Codec
) -> None:
    trace, body = rows[name].traces[0]
    row = codec.row(trace.trace_id, trace.messages, trace.tools, 100_000)
    sent = prompts(trace, body, codec)
    assert len(sent) == sum(one.role == "assistant" for one in trace.messages) > 2
    for prompt in sent:
        assert row.token_ids[: len(prompt)] == prompt
        assert (row.mask[len(prompt) - 1], row.mask[len(prompt)]) == (0, 1)
