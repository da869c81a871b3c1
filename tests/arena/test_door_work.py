"""What the door saves itself, and that it refuses and takes the same for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from msgspec.structs import replace

from arena.chain.keys import generate_signer
from arena.door.form import Parser
from arena.door.service import PauseState, put_pause
from arena.policies import policy_by_name
from arena.records.model import Subject
from arena.store.embedded import EmbeddedServer
from arena.store.port import EVERY_STATE, HotkeyState, StoredSubmission
from arena.store.postgres import PostgresStore
from tests.arena.chain_faults import set_finality_lag
from tests.arena.door_stand import AGENT, WIDE_RULES, Miner, Stand, serving


@pytest.fixture
def stand(postgres: EmbeddedServer, tmp_path: Path) -> Stand:
    made = Stand(tmp_path, "", f"//Door{generate_signer().hotkey[-8:]}")
    made.dsn = postgres.dsn_for(made.validator)
    return made


@pytest.fixture
def served(stand: Stand) -> Iterator[Stand]:
    with serving(stand, WIDE_RULES):
        yield stand


async def send(request: httpx.Request) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.send(request)


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_what_stands_of_a_hotkey_comes_with_its_nonce_once(stand: Stand) -> None:
    store, other = [await PostgresStore.open(stand.dsn, stand.validator) for _ in range(2)]
    look: dict[str, Any] = {"keep_ms": 60_000, "most": 3, "stream": "door"}
    nothing = await store.spend_and_look("5m", 1, **look)
    assert nothing == HotkeyState(event="", submissions=())
    for number, miner in enumerate(("5m", "5n", "5m")):
        subject = Subject(agent_version_id=f"{number:064x}", miner_hotkey=miner, agent_sha256="ab" * 32)
        report = '{"said": "a \\"quoted\\" \\u0000 line"}'
        await store.put_submission(
            StoredSubmission(subject=subject, name='é\n"', state="rejected", report=report),
            "x",
        )
        waiting = replace(subject, agent_version_id=f"{number + 7:064x}")
        await store.put_submission(StoredSubmission(subject=waiting, name="ü", state="waiting"), "y", is_alone=True)
    for paused in (True, False):
        await put_pause(store, PauseState(is_paused=paused, reason="é", since_ms=1))
    found = await store.spend_and_look("5m", 2, **look)
    assert found is not None
    assert list(found.submissions) == await store.submissions(EVERY_STATE, miner_hotkey="5m")
    assert [row.state for row in found.submissions] == ["rejected", "waiting", "rejected"]
    assert found.event == (await store.events("door"))[-1]
    assert await other.spend_and_look("5m", 2, **look) is None
    assert await other.spend_and_look("5m", 3, **look) is not None
    assert await store.spend_and_look("5m", 3, **look) is None
    assert await store.spend_and_look("5m", 4, **look) is None  # three of one hotkey are kept
    for each in (store, other):
        await each.close()


async def test_a_commitment_that_is_not_final_hides_none_that_is(served: Stand) -> None:
    miner = await Miner(served).register()
    first = await miner.commit()
    await Miner(served).register()  # waits until it is final
    await set_finality_lag(served.chain, 1_000_000)
    second = await miner.commit(f"{AGENT}# second\n")
    answer = await send(miner.request(first))
    assert answer.status_code == 202, answer.text
    assert answer.json()["commitment_block"] <= await served.chain.finalized_block()
    assert refused(await send(miner.request(second))) == (409, "A1012")  # it is known, and another of the hotkey waits
    assert refused(await send(miner.request(second, file=AGENT.encode() + b"# none\n"))) == (422, "A1007")


async def test_the_parser_is_asked_once_of_a_file_it_could_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Parser(policy_by_name("demo").gate)
    good, bad = AGENT.encode(), b"def agent_main(problem:\n"
    assert await parser.first_finding(good) is None
    finding = await parser.first_finding(bad)
    assert finding is not None and finding.rule == "parse"
    await parser.close()
    with monkeypatch.context() as broken:
        broken.setattr(asyncio, "create_subprocess_exec", mock.AsyncMock(side_effect=OSError))
        assert [await parser.first_finding(each) for each in (good, bad)] == [None, finding]
        assert await parser.first_finding(bad + b"# unknown") is None  # nobody could say
    unknown = await parser.first_finding(bad + b"# unknown")
    assert unknown is not None and unknown.rule == "parse"
    await parser.close()


async def test_a_refusal_ends_its_connection_only_where_a_body_is_still_on_its_way(served: Stand) -> None:
    miner = await Miner(served).register()
    made = await miner.commit()
    read = [await send(request) for request in (miner.request(made, file=b"x = 1"), miner.request(made))]
    assert [(answer.status_code, answer.headers.get("connection")) for answer in read] == [(422, None), (202, None)]
    host, port = served.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/elsewhere HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\nx")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404") and b"connection: close" in head
    writer.close()
