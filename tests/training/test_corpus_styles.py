"""Eight styles of agent: each is converted, or refused with a code that names what no record holds; and what of a
rebuilt row is trained on, and in front of which prompt."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.chat import Message
from harness.trace import Completion, EvaluationBody
from tests.training.agent_styles import STYLES, StyleRow, run_styles, table
from tests.training.test_corpus_rebuilt_rows import _sent
from training.corpus.model import Trace
from training.models.render import Qwen3Codec, mask_defect, masked_runs

README = Path(__file__).parents[2] / "training" / "corpus" / "README.md"
REFUSED = {  # what is truly missing: all of the view, one dialogue, a model that chose
    "the same with tools of its own": "pairing",  # what a miner's own function answered is in no record
    "results shortened, one message": "view_incomplete",
    "dialogue cut on the way": "view_incomplete",
    "two workers that both call": "not_one_path",
    "Python calls, model narrates (subtask)": "subtask",
}
SAMPLED = ["tool-calling API (baseline)", "several calls a turn, run together", "planner beside a worker"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StyleRow]:
    return run_styles(tmp_path_factory.mktemp("styles"))


@pytest.fixture(scope="module")
def codec() -> Qwen3Codec:
    from tests.training.stock import TOKENIZER  # torch: not for the tests of the corpus

    return Qwen3Codec(TOKENIZER)


def test_the_readme_has_the_table(rows: dict[str, StyleRow]) -> None:
    assert table(rows) in README.read_text("utf-8")


def completions(body: EvaluationBody) -> list[Completion]:
    return [event for event in body.events if isinstance(event, Completion)]


def is_of(turn: Message, written: Completion) -> bool:
    """Whether a trained turn is in a completion: its thought and words as they were, and no call but its own."""
    text = f"{written.reasoning}\n{written.content}"
    own = [(call.name, msgspec.json.decode(call.arguments)) for call in written.calls]
    return all(part.strip() in text for part in (turn.reasoning, turn.content)) and all(
        (call.name, msgspec.json.decode(call.arguments)) in own for call in turn.calls
    )


@pytest.mark.parametrize("name", [name for name in STYLES if name not in REFUSED])
def test_what_is_trained_on_decodes_to_what_the_model_wrote(
    name: str, rows: dict[str, StyleRow], codec: Qwen3Codec
) -> None:
    trace, body = rows[name].traces[0]
    row = codec.row(trace.trace_id, trace.messages, trace.tools, 100_000)
    assert mask_defect(row, trace.messages, codec) is None
    learnt = [codec.parse(run).message for run in masked_runs(row.token_ids, row.mask)]
    assert len(learnt) == sum(one.role == "assistant" and one.is_model for one in trace.messages)
    left = completions(body)
    for turn in learnt:  # in order, each of a completion of its own
        assert turn.calls or turn.content
        while not is_of(turn, left[0]):
            left.pop(0)
        left.pop(0)


def prompts(trace: Trace, body: EvaluationBody, codec: Qwen3Codec) -> list[tuple[int, ...]]:
    """What was sent for each turn of the row, as a sampler would have tokenised it."""
    opening = trace.messages[0].content
    requests = [[msgspec.json.decode(body.messages[at]) for at in turn.request] for turn in completions(body)]
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
