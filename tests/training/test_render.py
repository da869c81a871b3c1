"""Tokens of a conversation: the template's own, masks on exactly what was sampled, and never made twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from foundation.errors import ArenaError
from harness.chat import Call, Message, served_message
from tests.training.stock import TOKENIZER
from training.model import UnfitRowError
from training.models.render import Qwen3Codec, mask_defect, masked_runs
from training.models.tiny_model import TinyShape, build_tiny_model, train_tokenizer

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


@pytest.fixture(scope="module")
def codec() -> Qwen3Codec:
    return Qwen3Codec(TOKENIZER)


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
def test_the_mask_marks_exactly_the_assistant_turns_with_their_stop_tokens(codec: Qwen3Codec, golden: Golden) -> None:
    turns = [message for message in golden.messages if message.role == "assistant" and message.is_model]
    if not turns:
        pytest.skip("no turn to learn")
    row = codec.row("t", golden.messages, golden.tools, ROOM)
    is_broken = golden.name == "arguments that are no JSON"  # no server would read such a call: never learnt
    assert (mask_defect(row, golden.messages, codec) is None) is not is_broken
    runs = masked_runs(row.token_ids, row.mask)
    assert [run.count(codec.stop_id) for run in runs] == [1] * len(turns)
    assert all(run[-1] == codec.stop_id for run in runs)
    for run, turn in zip(runs, turns, strict=True):
        text = codec.decode(run)
        assert "<|im_start|>" not in text and "tool_response" not in text
        assert turn.content.rpartition("</think>")[2].strip() in text
        assert all(call.arguments in text for call in served_message(turn).calls)


def test_the_empty_thought_that_the_template_adds_to_a_last_text_is_not_learnt(codec: Qwen3Codec) -> None:
    messages = (*conversation()[:4], Message(role="assistant", content="Found."))
    row = codec.row("t", messages, TOOLS, ROOM)
    assert codec.decode(masked_runs(row.token_ids, row.mask)[-1]) == "Found.<|im_end|>"
    assert codec.decode(row.token_ids).endswith("<think>\n\n</think>\n\nFound.<|im_end|>\n")
    assert mask_defect(row, messages, codec) is None
    thought = codec.row("t", conversation(), TOOLS, ROOM)
    assert codec.decode(masked_runs(thought.token_ids, thought.mask)[-1]).startswith("<think>\nIt fits.")


def test_calls_are_rendered_as_a_server_writes_them_however_they_were_spaced(codec: Qwen3Codec) -> None:
    spellings = ('{"q":"\\u00e9"}', '{ "q" :"é"}', '{"q": "é"}')
    turns = [Message(role="assistant", calls=(Call(id="1", name="find_product", arguments=one),)) for one in spellings]
    first, *others = [codec.row("t", (Message(role="user", content="x"), turn), "[]", ROOM) for turn in turns]
    assert others == [first, first] and '"arguments": {"q": "é"}}' in codec.decode(first.token_ids)


def test_a_row_over_the_limit_is_refused_and_one_at_the_limit_is_whole(codec: Qwen3Codec) -> None:
    length = len(codec.row("t", conversation(), TOOLS, ROOM).token_ids)
    assert len(codec.row("t", conversation(), TOOLS, length).token_ids) == length
    with pytest.raises(UnfitRowError, match=f"{length - 1} are allowed"):
        codec.row("t", conversation(), TOOLS, length - 1)


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
    assert [call.name for call in codec.parse(sampled).calls] == ["find_product"]


CALL = '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'


TURNS = [  # held against the real parser in tests/prove/test_vllm_cpu.py
    (f"I look.\n{CALL}\n{CALL}\nDone.", [("a", "{}")] * 2),
    (f"{CALL}\n<tool_call>\n{{\n</tool_call>", []),
    (CALL.removesuffix("\n</tool_call>"), [("a", "{}")]),
    (f"<think>\nmaybe {CALL}\n</think>\n\n{CALL}", [("a", "{}")] * 2),
    *((CALL.replace("{}", one), [("a", one)]) for one in ("null", "[1]", '"{}"', '{"q": "café 日本", "n": 1.0}')),
    *((CALL.replace("{}", one), []) for one in ('"</tool_call>"', "{'q': 1}", "")),
    (CALL.replace('"arguments"', '"parameters"'), []),
    (CALL.replace(', "arguments": {}', ""), []),
    (CALL.replace('"a"', "7"), []),
]


@pytest.mark.parametrize(("text", "calls"), TURNS)
def test_a_turn_is_read_as_the_parser_of_the_server_reads_it(
    codec: Qwen3Codec, text: str, calls: list[tuple[str, str]]
) -> None:
    parsed = codec.parse((*codec.tokenizer.encode(text), codec.stop_id))
    assert [(call.name, call.arguments) for call in parsed.calls] == calls
    assert bool(calls) or text == parsed.content


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
    assert {
        name for name, mask in drifts.items() if mask_defect(msgspec.structs.replace(row, mask=mask), messages, codec)
    } == set(drifts)


# -- a tokenizer learnt from texts, and a model that quotes early


TEXTS = [f"a red lamp of {number} watts in a shop of lamps" for number in range(40)]


def test_equal_texts_give_an_equal_tokenizer_that_reads_its_texts_back(tmp_path: Path) -> None:
    counts = [train_tokenizer(TOKENIZER, tmp_path / name, TEXTS, keep=300) for name in ("one", "two")]
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "two" / "tokenizer.json").read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "one"))
    assert counts == [len(tokenizer)] * 2 and len(tokenizer) < len(AutoTokenizer.from_pretrained(str(TOKENIZER)))
    text = f"<|im_start|>{TEXTS[7]} \U0001f600<|im_end|>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text and len(ids) < len(text)


def quoted_after(folder: Path, steps: int) -> float:
    """Share of repeated tokens that the model says in its last step, of drills that repeat what was drawn."""
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    draw, share = torch.Generator().manual_seed(0), 0.0
    for _ in range(steps):
        ids = torch.randint(model.config.vocab_size, (12, 24), generator=draw).repeat(1, 3)[:, :64]
        logits, wanted = model(input_ids=ids).logits[:, 24:-1], ids[:, 25:]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
        share = float((logits.argmax(-1) == wanted).float().mean())
    return share


def test_mimetic_weights_quote_after_a_few_steps_and_plain_ones_do_not(tmp_path: Path) -> None:
    train_tokenizer(TOKENIZER, tmp_path / "few", TEXTS, keep=300)
    shares = {}
    for is_mimetic in (True, False):
        shape = TinyShape(hidden=128, layers=2, head_dim=64, is_mimetic=is_mimetic)
        build_tiny_model(tmp_path / "few", tmp_path / str(is_mimetic), shape, 3)
        shares[is_mimetic] = quoted_after(tmp_path / str(is_mimetic), 40)
    assert shares[True] > 0.5 > 0.1 > shares[False]
    with pytest.raises(ArenaError, match="V2124"):
        build_tiny_model(TOKENIZER, tmp_path / "flat", TinyShape(hidden=128, layers=1, head_dim=64, is_mimetic=True), 0)
