"""Tokens of a conversation: the template's own, masks on exactly what was sampled, and never made twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.canonical import foreign_text
from foundation.errors import ArenaError
from harness.chat import Call, Message
from harness.tools.registry import PROFILES, profile_schemas
from tests.training.stock import TOKENIZER, Stock
from tests.training.trimmed_tokenizer import trim_tokenizer
from training.corpus.model import Trace
from training.corpus.tokens import served_tools
from training.model import TokenRow
from training.models.mask import mask_defect, masked_runs, run_defect
from training.models.render import Qwen3Codec

GOLDEN = Path(__file__).with_name("qwen3_rendered.jsonl")
TOOLS = (
    '[{"type":"function","function":{"name":"find_product","description":"Search","parameters":{"type":"object",'
    '"properties":{"q":{"type":"string"},"page":{"type":"integer"}},"required":["q"]}}}]'
)
ROOM = 100_000


class Golden(msgspec.Struct, frozen=True):
    """A conversation and the text Qwen3's chat template makes of it."""

    name: str
    messages: tuple[Message, ...]
    tools: str
    text: str


def goldens() -> list[Golden]:
    return [msgspec.json.decode(line, type=Golden) for line in GOLDEN.read_bytes().splitlines()]


@pytest.fixture(scope="module", params=["trimmed", "qwen3"])
def codec(request: pytest.FixtureRequest) -> Qwen3Codec:
    if request.param == "trimmed":
        return Qwen3Codec(TOKENIZER)
    return Qwen3Codec(request.getfixturevalue("qwen3"))


SEARCH = (Call(id="1", name="find_product", arguments='{"q": "red tee"}'),)


def conversation(calls: tuple[Call, ...] = SEARCH) -> tuple[Message, ...]:
    return (
        Message(role="system", content="You shop."),
        Message(role="user", content="Find a red tee, 日本 €."),
        Message(role="assistant", reasoning="Search first.", calls=calls),
        *(Message(role="tool", content='[{"product_id": "1"}]', call_id=call.id) for call in calls),
        Message(role="assistant", content="Found.", reasoning="It fits."),
    )


@pytest.mark.parametrize("golden", goldens(), ids=lambda golden: golden.name)
def test_a_rendered_conversation_reads_back_as_the_templates_text(codec: Qwen3Codec, golden: Golden) -> None:
    if not any(message.role == "assistant" for message in golden.messages):
        pytest.skip("no turn to learn")
    row = codec.row("t", golden.messages, golden.tools, ROOM)
    assert codec.decode(row.token_ids) == golden.text


@pytest.mark.parametrize("golden", goldens(), ids=lambda golden: golden.name)
def test_the_mask_marks_exactly_the_assistant_turns_with_their_stop_tokens(codec: Qwen3Codec, golden: Golden) -> None:
    turns = [message for message in golden.messages if message.role == "assistant" and message.is_model]
    if not turns:
        pytest.skip("no turn to learn")
    row = codec.row("t", golden.messages, golden.tools, ROOM)
    assert mask_defect(row, golden.messages, codec) is None
    runs = masked_runs(row.token_ids, row.mask)
    assert [run.count(codec.stop_id) for run in runs] == [1] * len(turns)
    assert all(run[-1] == codec.stop_id for run in runs)
    for run, turn in zip(runs, turns, strict=True):
        text = codec.decode(run)
        assert "<|im_start|>" not in text and "tool_response" not in text
        assert turn.content.rpartition("</think>")[2].strip() in text
        assert all(call.arguments in text for call in turn.calls)


class FunctionDefinition(pydantic.BaseModel):
    """As vLLM's chat endpoint has it: what a request's tool is read into before the template sees it."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class ChatCompletionToolsParam(pydantic.BaseModel):
    """As vLLM's chat endpoint has it."""

    type: str = "function"
    function: FunctionDefinition


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_tools_are_rendered_as_a_server_renders_those_of_a_request(profile: str) -> None:
    sent = json.loads(foreign_text(json.loads(profile_schemas(profile))))
    dumped = [ChatCompletionToolsParam.model_validate(tool).model_dump() for tool in sent]
    assert json.dumps(served_tools(profile_schemas(profile))) == json.dumps(dumped)


def test_the_order_of_a_schemas_keys_changes_no_prompt(codec: Qwen3Codec) -> None:
    prompt = codec.prompt(conversation()[:2], TOOLS)
    assert codec.prompt(conversation()[:2], foreign_text(json.loads(TOOLS))) == prompt
    assert '{"type": "function", "function": {"name": "find_product", "description"' in codec.decode(prompt)


def test_turns_that_the_model_did_not_write_are_not_learnt(codec: Qwen3Codec) -> None:
    messages = list(conversation())
    messages[2] = msgspec.structs.replace(messages[2], is_model=False)
    row = codec.row("t", tuple(messages), TOOLS, ROOM)
    assert ["Found." in codec.decode(run) for run in masked_runs(row.token_ids, row.mask)] == [True]


def test_the_empty_thought_that_the_template_adds_to_a_last_text_is_not_learnt(codec: Qwen3Codec) -> None:
    messages = (*conversation()[:4], Message(role="assistant", content="Found."))
    row = codec.row("t", messages, TOOLS, ROOM)
    runs = masked_runs(row.token_ids, row.mask)
    assert codec.decode(runs[-1]) == "Found.<|im_end|>"
    assert codec.decode(row.token_ids).endswith("<think>\n\n</think>\n\nFound.<|im_end|>\n")
    assert mask_defect(row, messages, codec) is None
    thought = codec.row("t", conversation(), TOOLS, ROOM)
    assert codec.decode(masked_runs(thought.token_ids, thought.mask)[-1]).startswith("<think>\nIt fits.")


def test_a_row_over_the_limit_is_refused_and_one_at_the_limit_is_whole(codec: Qwen3Codec) -> None:
    length = len(codec.row("t", conversation(), TOOLS, ROOM).token_ids)
    assert len(codec.row("t", conversation(), TOOLS, length).token_ids) == length
    with pytest.raises(ArenaError) as refused:
        codec.row("t", conversation(), TOOLS, length - 1)
    assert refused.value.failure.code == "V2122"


@pytest.mark.parametrize("messages", [2, 0])
def test_a_trace_without_a_turn_of_the_model_is_refused(codec: Qwen3Codec, messages: int) -> None:
    with pytest.raises(ArenaError) as refused:
        codec.row("t", conversation()[:messages], TOOLS, ROOM)
    assert refused.value.failure.code == "V2122"


def test_a_bridge_starts_with_every_token_that_was_sampled(codec: Qwen3Codec) -> None:
    messages = conversation()
    prompt = codec.prompt(messages[:2], TOOLS)
    # a spacing that the template would write otherwise: tokenised anew, these ids would change
    call = '{"name":"find_product","arguments":{"q":"red","page":1}}'
    said = f"<think>\nHm.\n</think>\n\n<tool_call>\n{call}\n</tool_call>"
    sampled = (*codec.tokenizer.encode(said), codec.stop_id)
    bridged = codec.bridge(prompt, sampled, messages[3:4], TOOLS)
    assert bridged is not None and bridged[: len(prompt) + len(sampled)] == prompt + sampled
    added = codec.decode(bridged[len(prompt) + len(sampled) :])
    assert "<tool_response>" in added and added.endswith("<|im_start|>assistant\n")
    assert [call.name for call in codec.parse(sampled).message.calls] == ["find_product"]


def test_a_new_user_message_cannot_be_bridged(codec: Qwen3Codec) -> None:
    prompt = codec.prompt(conversation()[:2], TOOLS)
    sampled = (*codec.tokenizer.encode("Yes."), codec.stop_id)
    assert codec.bridge(prompt, sampled, (Message(role="user", content="And blue?"),), TOOLS) is None


def test_a_malformed_call_is_no_call_and_says_why(codec: Qwen3Codec) -> None:
    for text in ('<tool_call>\n{"name": "find_product", "arg\n</tool_call>', '<tool_call>\n{"name": "find_product"'):
        parsed = codec.parse((*codec.tokenizer.encode(text), codec.stop_id))
        assert parsed.message.calls == () and len(parsed.malformed) == 1


def test_arguments_stay_text_through_a_corpus_and_gain_no_key(codec: Qwen3Codec) -> None:
    from training.corpus.corpus_files import chat_json, messages_of

    messages = conversation((Call(id="1", name="find_product", arguments='{"q": "a"}'),))
    row = codec.row("t", messages, TOOLS, ROOM)
    assert codec.row("t", messages_of(chat_json(messages)), TOOLS, ROOM) == row
    assert "null" not in codec.decode(row.token_ids)


@settings(max_examples=40)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_round_trips_through_the_trimmed_tokenizer(text: str) -> None:
    tokenizer = _TRIMMED.tokenizer
    normal = tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == normal


_TRIMMED = Qwen3Codec(TOKENIZER)


def test_the_shipped_tokenizer_is_what_trimming_makes_of_qwen3s(qwen3: Path, tmp_path: Path) -> None:
    assert trim_tokenizer(qwen3, tmp_path, keep=2_000) == len(_TRIMMED.tokenizer)
    assert (tmp_path / "tokenizer.json").read_bytes() == (TOKENIZER / "tokenizer.json").read_bytes()


def test_trimming_keeps_the_bytes_or_refuses(tmp_path: Path) -> None:
    with pytest.raises(ArenaError) as refused:
        trim_tokenizer(TOKENIZER, tmp_path, keep=255)
    assert refused.value.failure.code == "V2121"


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArenaError) as refused:
        Qwen3Codec(tmp_path)
    assert refused.value.failure.code == "V2121" and str(tmp_path) in refused.value.failure.detail


def test_a_template_that_renders_otherwise_is_refused_at_once(tmp_path: Path) -> None:
    shutil.copytree(TOKENIZER, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "tokenizer_config.json").read_text("utf-8"))
    header = "'<|im_start|>' + message.role"
    assert header in config["chat_template"]
    config["chat_template"] = config["chat_template"].replace(header, "'<|im_start|> ' + message.role")
    (tmp_path / "other" / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(ArenaError) as refused:
        Qwen3Codec(tmp_path / "other")
    assert "differ from token" in refused.value.failure.detail


def test_every_episode_of_the_arena_has_an_exact_mask(stock: Stock) -> None:
    traces: list[Trace] = stock.traces()
    assert traces
    for trace in traces:
        row = stock.codec.row(trace.trace_id, trace.messages, trace.tools, ROOM)
        assert mask_defect(row, trace.messages, stock.codec) is None


def broken(row: TokenRow, mask: tuple[int, ...]) -> TokenRow:
    return msgspec.structs.replace(row, mask=mask)


def test_every_way_a_mask_drifts_is_a_defect(codec: Qwen3Codec) -> None:
    messages = conversation()
    row = codec.row("t", messages, TOOLS, ROOM)
    first = row.mask.index(1)
    end = row.mask.index(0, first)
    drifts = {
        "one token early": (*row.mask[: first - 1], 1, *row.mask[first:]),
        "one token late": (*row.mask[:first], 0, *row.mask[first + 1 :]),
        "past the stop token": (*row.mask[:end], 1, *row.mask[end + 1 :]),
        "a run is missing": tuple(bit if place < end else 0 for place, bit in enumerate(row.mask)),
        "everything": (1,) * len(row.mask),
        "nothing": (0,) * len(row.mask),
    }
    assert {name for name, mask in drifts.items() if mask_defect(broken(row, mask), messages, codec)} == set(drifts)


def test_a_run_with_the_templates_tokens_is_a_defect(codec: Qwen3Codec) -> None:
    assert run_defect((), codec) == "has no token"
    assert run_defect(codec.template_only_ids[:1], codec) is not None
    assert run_defect((codec.stop_id,), codec) is None


def test_runs_need_a_bit_for_each_token() -> None:
    with pytest.raises(ValueError, match="2 tokens, 1 mask bits"):
        masked_runs((1, 2), (1,))
