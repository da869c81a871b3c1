"""Reading replies of endpoints that agree on the protocol and on little else."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError, Failure
from harness.inference.client import OpenAIUpstream, SdkUpstream, read_retry_after
from harness.inference.reply import read_reply
from tests.harness.inference_stand import OtherServer, answer
from tests.hostile_http import DRIPS, HostileServer, bomb, ended, endless, says


def reply_of(message: dict[str, object], **body: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    choice |= body.pop("choice", {})  # type: ignore[arg-type]
    return json.dumps({"model": "m", "choices": [choice], **body}).encode()


LAMP = ("find_product", '{"q": "lamp"}')


@pytest.mark.parametrize(
    ("call", "read"),
    [
        ({"function": {"name": LAMP[0], "arguments": LAMP[1]}, "id": "x"}, ("x", *LAMP)),
        ({"function": {"name": LAMP[0], "arguments": {"q": "lamp"}}, "id": ""}, ("call_0", LAMP[0], '{"q":"lamp"}')),
        ({"function": {"name": LAMP[0], "arguments": json.dumps(LAMP[1])}}, ("call_0", LAMP[0], '{"q":"lamp"}')),
        ({"name": LAMP[0], "arguments": f"```json\n{LAMP[1]}\n```", "id": 7}, ("call_0", LAMP[0], '{"q":"lamp"}')),
        ({"function": {"name": f"functions.{LAMP[0]}:0"}, "id": "<|im_end|>"}, ("call_0", LAMP[0], "{}")),
        ({"function": {"name": f"{LAMP[0]}<|channel|>json", "arguments": ""}}, ("call_0", LAMP[0], "{}")),
        ({"custom": {"name": f"api/{LAMP[0]}()", "input": LAMP[1]}, "call_id": "x"}, ("x", *LAMP)),
        ({"name": f'"{LAMP[0]}"', "parameters": {"q": "lamp"}}, ("call_0", LAMP[0], '{"q":"lamp"}')),
        ({"function": {"name": "a tool", "arguments": '{"q": '}}, ("call_0", "a tool", '{"q": ')),
    ],
)
def test_a_call_has_one_form_whatever_the_provider_sends(call: dict[str, object], read: tuple[str, ...]) -> None:
    reply = read_reply(reply_of({"tool_calls": [call]}))
    assert [(one.call_id, one.name, one.arguments) for one in reply.calls] == [read]
    assert json.loads(reply.message)["tool_calls"] == [call]


def test_a_call_is_found_where_a_provider_puts_it() -> None:
    part = {"type": "tool_use", "id": "x", "name": LAMP[0], "input": {"q": "lamp"}}
    for message in ({"content": [part]}, {"tool_calls": {"0": part}}, {"tool_calls": [None, part]}):
        (call,) = read_reply(reply_of(message)).calls
        assert (call.call_id, call.name, call.arguments) == ("x", LAMP[0], '{"q":"lamp"}')


def test_no_two_calls_of_a_conversation_share_an_id() -> None:
    calls = [{"id": "a", "function": {"name": "x"}}] * 2
    ids = [one.call_id for turn in "12" for one in read_reply(reply_of({"tool_calls": calls}), turn).calls]
    assert (ids[0], ids[2], len({*ids})) == ("a", "a", 3)


@pytest.mark.parametrize(
    "failed",
    [
        {"choice": {"error": {"code": 502}, "finish_reason": "error"}},
        {"choice": {"finish_reason": "network_error"}},
        {"choice": {"finish_reason": "insufficient_system_resource"}},
        {"choice": {"finish_reason": "stop", "native_finish_reason": "ABORTED"}},
        {"error": "overloaded"},
    ],
)
def test_a_providers_failure_under_the_status_of_success_is_no_completion(failed: dict[str, object]) -> None:
    with pytest.raises(ArenaError, match="U3003"):
        read_reply(reply_of({"content": "half a sent"}, **failed))


BODY = reply_of({"content": "a\ud83d b"}, choice={"logprobs": float("nan")})


SENT = [b": ALIVE\n\n " + BODY, b"\xef\xbb\xbf" + BODY, BODY.decode().encode("utf-16"), BODY + b"\n\0\n: ALIVE\n"]


@pytest.mark.parametrize("sent", [*SENT, b"data: " + BODY + b"\n\ndata: [DONE]\n\n"])
def test_what_common_clients_read_is_read(sent: bytes) -> None:
    assert read_reply(sent).content == "a? b"
    with pytest.raises(ArenaError, match="U3003"):
        read_reply(sent + sent)


def test_token_ids_and_logprobs_are_kept_when_given() -> None:
    given_choice = {"logprobs": {"content": [{"token": "a", "logprob": -0.5}]}, "token_ids": [1, 2]}
    kept = json.loads(read_reply(reply_of({"content": "a"}, choice=given_choice, prompt_token_ids=[9])).logprobs)
    assert kept == {**given_choice, "prompt_token_ids": [9]}
    assert read_reply(reply_of({"content": "a"}, choice={"logprobs": None})).logprobs == ""


def test_a_content_of_parts_is_their_text_and_a_number_is_none() -> None:
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "reasoning", "text": "u"}]
    reply = read_reply(reply_of({"content": [*thought, {"type": "output_text", "text": "a"}, {"text": "b"}, "c"]}))
    assert (reply.content, reply.reasoning) == ("abc", "tu")
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 2), "missing usage is charged by what was written"
    assert read_reply(reply_of({"reasoning_details": thought[1:]})).reasoning == "u"
    for message in ({"content": 5}, {"content": "", "tool_calls": [{"function": {"name": 5}}]}):
        with pytest.raises(ArenaError, match=r"U3003.*TypeError"):
            read_reply(reply_of(message))


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["choices", "message", "content", "tool_calls", "function", "usage"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_are_a_reply_or_unreadable(body: bytes) -> None:
    try:
        reply = read_reply(body)
    except ArenaError as error:
        assert error.failure.code == "U3003"
    else:
        assert isinstance(reply.content, str)


HOSTILE = {
    **{name: (behave, "U3002") for name, behave in DRIPS.items()},
    "zstd": (bomb("zstd"), "U3003"),
    "gzip": (bomb("gzip"), "U3003"),
    "compressed refusal": (bomb("gzip", b"500 Oops"), "U3003"),
    "endless": (endless(), "U3003"),
    "endless refusal": (endless(b"500 Oops"), "U3003"),
    "endless redirect": (endless(b"307 Elsewhere", b"location: /"), "U3002"),
}


@pytest.mark.parametrize("kind", [OpenAIUpstream, SdkUpstream])
@pytest.mark.parametrize("which", HOSTILE)
def test_a_hostile_endpoint_costs_bounded_memory_and_time(which: str, kind: type[OpenAIUpstream]) -> None:
    behave, code = HOSTILE[which]
    with HostileServer(behave) as server:
        upstream = kind("x", server.url, "key", 500 if which in DRIPS else 20_000)
        error = ended(lambda: upstream.complete('{"model": "m", "messages": []}'))
    assert isinstance(error, ArenaError) and error.failure.code == code
    if which in ("zstd", "gzip", "compressed refusal"):  # and not what it would say when it is unpacked
        assert "compressed" in error.failure.detail


@pytest.mark.parametrize("kind", [OpenAIUpstream, SdkUpstream])
@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (b"400 Bad", b'{"error": {"message": "too long"}}', "A1040", "HTTP 400: too long"),
        (b"401 Who", b'{"message": "no such key"}', "U3001", "HTTP 401: no such key"),
        (b"404 Gone", b"<html>", "U3001", "HTTP 404: Gone"),
        (b"429 Slow", b'{"error": {"message": 5}}', "U3004", "HTTP 429: Slow"),
        (b"503 Down", b"[]", "U3002", "HTTP 503: Down"),
    ],
)
def test_a_refusal_has_the_code_of_its_status_and_the_endpoints_words(
    kind: type[OpenAIUpstream], status: bytes, body: bytes, code: str, said: str
) -> None:
    with HostileServer(says(body, status)) as server:
        failure = kind("x", server.url, "key", 20_000).probe('{"model": "m", "messages": []}')
    assert isinstance(failure, Failure) and (failure.code, failure.detail) == (code, said)


@pytest.mark.parametrize(("after", "pause_ms"), [(" 7 ", 7_000), ("soon", None), ("", None), ("²", None)])
def test_when_to_come_back_is_read_in_seconds(after: str, pause_ms: int | None) -> None:
    assert read_retry_after({"retry-after": after}) == pause_ms


ASKS = "import sys; from pathlib import Path; from harness.inference.client import OpenAIUpstream as Ours\n"
ASKS += "Ours('ours', sys.argv[1], '', 60_000, at_once=2, slots=Path(sys.argv[2])).complete('{}')"


def test_all_processes_keep_to_an_endpoints_requests_at_once_and_a_killed_one_holds_none(tmp_path: Path) -> None:
    came, ends = threading.Semaphore(0), threading.Event()
    hangs = lambda request: (came.release(), ends.wait(60), answer()(request))[2]  # noqa: E731
    with OtherServer(hangs, hangs) as server:
        limits = {"at_once": 2, "slots": tmp_path / "ours"}
        ours, patient = (OpenAIUpstream("ours", server.base_url, "", wait_ms, **limits) for wait_ms in (200, 20_000))
        holders = [subprocess.Popen([sys.executable, "-c", ASKS, server.base_url, tmp_path / "ours"]) for _ in range(2)]
        assert all(came.acquire(timeout=60) for _ in holders)
        with pytest.raises(ArenaError, match=r"U3008.*all 2 requests at once were under way for 0\.2 s"):
            ours.complete("{}")
        holders[0].kill()
        assert holders[0].wait(10) and not isinstance(patient.probe("{}"), Failure)
        ends.set()
        assert holders[1].wait(60) == 0 and len(server.bodies) == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(ArenaError, match="V2027"):
        OpenAIUpstream("ours", "", "", 100, at_once=1, slots=tmp_path / "file").complete("{}")
