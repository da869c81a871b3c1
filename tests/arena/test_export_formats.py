"""Views: the tools people use open them, they say what the log says, and equal rows give equal bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
import zstandard

from arena.export.agents import AgentRow
from arena.export.conversation import ExecutedCall, Turn
from arena.export.facts import EpisodeFacts, TrajectoryFacts, ViewContext, facts_of
from arena.export.formats.nested import object_of, values_of
from arena.export.formats.parquet import schema
from arena.export.model import FORMATS, Cursor, Format, LogRange, Manifest, Request, ShardFile, Trajectory
from arena.export.row import row_of
from arena.export.views import finish_export, open_view
from foundation.errors import Failure
from harness.chat import ChatMessage
from harness.tools.registry import profile_schemas
from judge.verdict import UnscoredVerdict
from problems.scoring.outcome import UnscoredOutcome
from tests.arena.trajectory_stand import appending, narrating, replace, trajectory

VIEWS: tuple[Format, ...] = tuple(view for view in FORMATS if view != "jsonl")
PAGE = Path(__file__).parents[2] / "arena" / "export" / "FORMATS.md"
FAILED = Failure(code="U3002")
CONTEXT = ViewContext(version=3, names={"a1" * 32: "lamps"})
COLUMNS = schema(3).names


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


def written(folder: Path, view: Format, trajectories: Sequence[Trajectory], *, batch: int = 2) -> tuple[ShardFile, ...]:
    folder.mkdir(exist_ok=True)
    writer = open_view(view, folder, 3, CONTEXT)
    for start in range(0, len(trajectories), batch):
        writer.write(trajectories[start : start + batch])
    return writer.finish()


def manifest_of(files: Sequence[ShardFile]) -> Manifest:
    start = Cursor(validator="5validator")
    return Manifest(
        request=Request(validator="5validator", formats=("jsonl", "datasets"), pools=("train", "dev")),
        log=LogRange(validator="5validator", first_seq=1, last_seq=40, start=start, end_note="note"),
        cursor=start,
        records={"evaluation": 6},
        withheld={"pool": 2, "unreleased": 7},
        trajectories=6,
        policies=("e5",),
        partitions=("p1",),
        races=("r1",),
        diversity=(),
        files=tuple(replace(file, path=f"views/datasets/{file.path}") for file in files),
        software="agent-arena 0.1.0",
    )


# -- every view


@pytest.mark.parametrize("view", VIEWS)
def test_equal_rows_give_equal_bytes_however_they_are_handed_over(view: Format, tmp_path: Path) -> None:
    first = written(tmp_path / "a", view, rows(), batch=6)
    assert written(tmp_path / "b", view, rows(), batch=1) == first
    assert written(tmp_path / "b", view, rows(), batch=4) == first  # over the files of an earlier try
    assert written(tmp_path / "c", view, rows()[:5]) != first


@pytest.mark.parametrize("view", VIEWS)
def test_files_are_what_is_said_of_them(view: Format, tmp_path: Path) -> None:
    files = written(tmp_path, view, rows())
    assert {file.path for file in files} == {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    for file in files:
        content = (tmp_path / file.path).read_bytes()
        assert (file.sha256, file.size_bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert sum(file.rows for file in files) == (5 + 6 if view == "verifiers" else 6)  # both of its forms


@pytest.mark.parametrize("view", VIEWS)
def test_a_shard_may_be_empty(view: Format, tmp_path: Path) -> None:
    assert sum(file.rows for file in written(tmp_path, view, [])) == 0


def test_the_log_is_no_view(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a view"):
        open_view("jsonl", tmp_path, 0)


# -- facts


def test_what_was_not_scored_or_judged_is_null_and_never_zero() -> None:
    facts = {one.seq: facts_of(one, row_of(one).conversation) for one in rows()}
    scored, unscored, unjudged, unread = facts[1], facts[3], facts[4], facts[5]
    assert (scored.is_success, scored.reward_e4, scored.unscored_code) == (True, 10_000, "")
    assert (scored.attribute_hits, scored.attribute_total, scored.service_total) == (1, 2, 0)
    assert (unscored.is_success, unscored.reward_e4, unscored.unscored_code) == (None, None, "U3002")
    assert (unjudged.quality_e4, unjudged.rubric_id, unjudged.unjudged_code) == (None, "reasoning/1", "U3002")
    assert (unread.quality_e4, unread.rubric_id, unread.unjudged_code) == (None, "", "")


def test_facts_say_who_emitted_the_calls_and_whether_the_chat_is_the_models() -> None:
    facts = {one.seq: row_of(one).facts for one in rows()}
    assert (facts[1].llm_calls, facts[1].is_agentic, facts[1].is_model_written) == (3, True, True)
    assert (facts[2].code_calls, facts[2].is_agentic, facts[2].is_model_written) == (2, False, False)


def test_tools_are_those_the_record_names_or_none() -> None:
    assert json.loads(row_of(rows()[0]).tools) == json.loads(profile_schemas("sn15"))
    assert json.loads(row_of(rows()[3]).tools) == []


def test_the_page_documents_every_column_and_field_and_no_other() -> None:
    text = PAGE.read_text("utf-8")
    for title, struct in (
        ("### Messages", ChatMessage),
        ("### Completions", Turn),
        ("### Calls", ExecutedCall),
        ("## Facts", TrajectoryFacts),
        ("## Episode", EpisodeFacts),
        ("## Agents and policies", AgentRow),
    ):
        section = re.split(r"^#{2,3} ", text.partition(f"{title}\n")[2], flags=re.MULTILINE)[0]
        named = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
        assert named == [field.encode_name for field in msgspec.structs.fields(struct)]
    extra = [name for name in COLUMNS if name not in TrajectoryFacts.__struct_fields__]
    assert all(f"`{name}`" in text for name in extra)


# -- Parquet


def test_parquet_opens_in_pandas_with_typed_columns(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "parquet", rows())
    frame = pq.read_table(tmp_path / file.path).to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert list(frame.seq) == [1, 2, 3, 4, 5, 6]
    assert frame.reward_e4.isna().tolist() == [False, False, True, False, False, False]
    assert frame[frame.is_agentic & frame.is_model_written].seq.tolist() == [1, 3, 4, 5]
    assert [message["role"] for message in frame.messages[0]][:3] == ["system", "user", "assistant"]


def test_parquet_holds_the_row_and_nothing_filled_in(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "parquet", rows())
    table = pq.read_table(tmp_path / file.path)
    for stored, one in zip(table.to_pylist(), rows(), strict=True):
        row = row_of(one)
        assert {name: stored[name] for name in TrajectoryFacts.__struct_fields__} == msgspec.structs.asdict(row.facts)
    for name, kind in (("messages", tuple[ChatMessage, ...]), ("calls", tuple[ExecutedCall, ...])):
        (chunk,) = table.column(name).chunks
        told = [getattr(row_of(one).conversation, name) for one in rows()]
        assert [msgspec.convert(value, kind) for value in values_of(chunk)] == told
    for stored, one in zip(table.column("tools").to_pylist(), rows(), strict=True):
        functions = [tool["function"] for tool in json.loads(row_of(one).tools)]
        assert [json.loads(tool["function"]["parameters"]) for tool in stored] == [f["parameters"] for f in functions]


@pytest.mark.parametrize("version", [1, 2])
def test_parquet_of_an_earlier_version_is_as_it_was(tmp_path: Path, version: int) -> None:
    writer = open_view("parquet", tmp_path, 0, ViewContext(version=version, has_argument_objects=True))
    writer.write(rows())
    (file,) = writer.finish()
    table = pq.read_table(tmp_path / file.path)
    assert {str(table.schema.field(name).type) for name in ("messages", "tools", "calls")} == {"string"}
    assert [
        msgspec.json.decode(text, type=tuple[ChatMessage, ...]) for text in table.column("messages").to_pylist()
    ] == [row_of(one).conversation.messages for one in rows()]


def test_arguments_are_objects_where_they_are_asked_for(tmp_path: Path) -> None:
    made = appending()
    odd = replace(made, messages=tuple(text.replace('\\"q\\"', "q") for text in made.messages))
    context = ViewContext(version=3, has_argument_objects=True)
    for view in ("messages", "parquet"):
        (tmp_path / view).mkdir()
        writer = open_view(view, tmp_path / view, 0, context)
        writer.write([trajectory(1), trajectory(2, odd)])
        (file,) = writer.finish()
        if view == "parquet":
            talks = pq.read_table(tmp_path / view / file.path).column("messages").to_pylist()
            calls = [c["function"]["arguments"] for talk in talks for one in talk for c in one["tool_calls"]]
            assert all(isinstance(json.loads(one), dict) for one in calls)
        else:
            raw = zstandard.ZstdDecompressor().stream_reader((tmp_path / view / file.path).read_bytes()).read()
            talks = [json.loads(line)["messages"] for line in raw.splitlines()]
            calls = [c["function"]["arguments"] for talk in talks for one in talk for c in one.get("tool_calls", ())]
            assert calls[0] == {"q": "red lamp"}
    assert object_of("{q: 1}") == {"_text": "{q: 1}"} and object_of("[1]") == {"_text": "[1]"}


def test_a_parquet_row_group_is_bounded_by_rows(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "parquet", [trajectory(number) for number in range(1, 600)], batch=100)
    parquet = pq.ParquetFile(tmp_path / file.path)
    assert [parquet.metadata.row_group(index).num_rows for index in range(parquet.num_row_groups)] == [256, 256, 87]


def test_a_parquet_row_group_is_bounded_by_bytes(tmp_path: Path) -> None:
    made = appending()
    large = replace(made, messages=(json.dumps({"role": "system", "content": "x" * (3 << 20)}), *made.messages[1:]))
    (file,) = written(tmp_path, "parquet", [trajectory(number, large) for number in range(1, 6)])
    parquet = pq.ParquetFile(tmp_path / file.path)
    assert [parquet.metadata.row_group(index).num_rows for index in range(parquet.num_row_groups)] == [3, 2]


# -- messages


def test_messages_are_in_the_shape_of_fine_tuning(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "messages", rows())
    with (tmp_path / file.path).open("rb") as raw:
        lines = zstandard.ZstdDecompressor().stream_reader(raw).read().splitlines()
    first = json.loads(lines[0])
    assert list(first) == ["messages", "tools", "metadata"]
    asked = [call for message in first["messages"] for call in message.get("tool_calls", [])]
    assert all(call["type"] == "function" and isinstance(call["function"]["arguments"], str) for call in asked)
    answered = [message["tool_call_id"] for message in first["messages"] if message["role"] == "tool"]
    assert answered == [call["id"] for call in asked]
    assert first["tools"][0]["type"] == "function"
    assert [json.loads(line)["metadata"]["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.skipif(not (shutil.which("zstdcat") and shutil.which("jq")), reason="zstdcat and jq are not installed")
def test_zstdcat_and_jq_read_messages(tmp_path: Path) -> None:
    (file,) = written(tmp_path, "messages", rows())
    clean = ".metadata | select(.is_agentic and .is_linear and .is_model_written) | .seq"
    plain = subprocess.run(["zstdcat", tmp_path / file.path], capture_output=True, check=True)
    found = subprocess.run(["jq", clean], input=plain.stdout, capture_output=True, check=True)
    assert found.stdout.split() == [b"1", b"3", b"4", b"5"]


# -- datasets


def test_datasets_opens_the_folder_offline_with_a_split_for_each_pool(tmp_path: Path) -> None:
    folder = tmp_path / "datasets"
    files = written(folder, "datasets", rows())
    (card,) = finish_export("datasets", folder, manifest_of(files))
    assert card.path == "README.md"
    code = """
import json, sys
from datasets import load_dataset
rows = load_dataset(sys.argv[1])
train = rows["train"].filter(lambda row: row["is_agentic"] and row["is_model_written"])
print(json.dumps([{name: len(split) for name, split in rows.items()}, train["seq"][:], train.features["seq"].dtype,
                  train.features["is_agentic"].dtype, len(train[0]["messages"]),
                  train[0]["tools"][0]["function"]["parameters"]["type"]]))
"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    environment = {**os.environ, **offline}
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert b"warn" not in done.stderr.lower(), done.stderr.decode()
    counts, seqs, seq_type, agentic_type, length, kind = json.loads(done.stdout.splitlines()[-1])
    assert kind == "object"  # a tool's parameters are what they were
    assert counts == {"dev": 1, "train": 5}
    assert (seqs, seq_type, agentic_type, length) == ([1, 3, 4], "int64", "bool", 7)


def test_the_card_says_what_was_left_out_and_how_to_verify(tmp_path: Path) -> None:
    files = written(tmp_path, "datasets", rows())
    finish_export("datasets", tmp_path, manifest_of(files))
    card = (tmp_path / "README.md").read_text("utf-8")
    for stated in (
        "| unreleased | 7 |",
        "| pool | 2 |",
        "`e5`",
        "dev (1), train (5)",
        "arena records verify",
        "1 to 40",
    ):
        assert stated in card


def test_a_card_of_nothing_still_opens(tmp_path: Path) -> None:
    nothing = replace(manifest_of(()), trajectories=0, withheld={}, policies=())
    finish_export("datasets", tmp_path, nothing)
    assert "| splits | none |" in (tmp_path / "README.md").read_text("utf-8")
