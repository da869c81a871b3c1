"""Another OpenAI-compatible server under the same agents: no code change, only OPENAI_BASE_URL and the model's name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from arena.chain.keys import keypair_signer
from arena.records.body import decode_body
from arena.store.embedded.server import start_embedded
from arena.store.postgres.store import PostgresStore
from harness.trace import Completion, ToolCall
from neurons.demo.demo import RACE, VALIDATOR, running_validator, watch
from tests.harness.inference_stand import OtherServer
from tests.neurons.arena_stand import SMALL, make_run

PROBLEMS = (SMALL.qualifying.problems, SMALL.race.problems)


def shopper(request: dict[str, object]) -> tuple[int, bytes]:
    """Searches with the last user text, recommends the first hit, ends: a model of three moves."""
    messages = request["messages"]
    assert isinstance(messages, list)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    wish = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    message: dict[str, object] = {"role": "assistant", "content": "I look for it."}
    if "tools" in request:
        if not results:
            name, arguments = "find_product", {"q": str(wish)[:80], "page": 1}
        elif len(results) == 1:
            hits = json.loads(results[0])
            name, arguments = "recommend_product", {"product_ids": hits[0]["product_id"] if hits else "0"}
        else:
            name, arguments = "terminate", {"status": "success"}
        call = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call-{len(results)}", "type": "function", "function": call}]
    answer = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "other-model",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 40, "total_tokens": 90},
    }
    return 200, json.dumps(answer).encode()


def test_the_same_agents_race_on_a_second_server(arena_base: Path, small_catalogue: Path) -> None:
    with OtherServer(then=shopper) as server:
        run = make_run(
            arena_base,
            small_catalogue,
            names=("expert", "subtask"),
            openai_base_url=server.base_url,
            models="other-model",
        )

        async def follow() -> None:
            with running_validator(run) as process:
                async with asyncio.timeout(150):
                    async for view in watch(run, process, PROBLEMS):
                        settled = view.race.settlement
            assert settled is not None

        asyncio.run(follow())
        assert {body["model"] for body in server.bodies} == {"other-model"}
    completions, calls = asyncio.run(read_traces(run.folder))
    assert completions
    assert {call.emitter for call in calls} == {"llm", "code"}
    assert any(call.name == "recommend_product" and call.emitter == "llm" for call in calls)


async def read_traces(folder: Path) -> tuple[list[Completion], list[ToolCall]]:
    hotkey = keypair_signer(VALIDATOR).hotkey
    server = await asyncio.to_thread(start_embedded, folder)
    try:
        store = await PostgresStore.open(server.dsn_for(hotkey), hotkey)
        try:
            from neurons.race.log import RaceLog

            names = []
            for race_id in ("", RACE):
                log = RaceLog(store, race_id)
                await log.refresh()
                names += [row.record.body_sha256 for row in log.evaluations]
            events = [event for body in await store.bodies(names) for event in decode_body(body.content).events]
        finally:
            await store.close()
    finally:
        await asyncio.to_thread(server.stop)
    return (
        [event for event in events if isinstance(event, Completion)],
        [event for event in events if isinstance(event, ToolCall)],
    )
