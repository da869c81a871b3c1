"""The door over real HTTP: what is taken, what is refused and how, and that the database alone decides."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.door.form import HEADER_BYTES_MAX, Parser, SubmissionForm, read_form
from arena.door.service import DoorRules
from arena.exchange.peer_service import ShareRules
from arena.policies import POLICIES
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from tests.arena.chain_faults import deregister, set_finality_lag
from tests.arena.door_stand import AGENT, WIDE_RULES, Miner, Stand, send, serving
from tests.keys import generate_signer

SHAPE = {"code", "message", "whose_fault", "what_it_costs", "what_to_do"}


@pytest.fixture
def stand(postgres: EmbeddedServer, tmp_path: Path) -> Stand:
    uri = f"//Door{generate_signer().hotkey[-8:]}"
    made = Stand(tmp_path, "", uri)
    made.dsn = postgres.dsn_for(made.validator)
    return made


@pytest.fixture
def served(stand: Stand) -> Iterator[Stand]:
    with serving(stand, WIDE_RULES):
        yield stand


async def refusal(request: httpx2.Request) -> tuple[int, str]:
    answer = await send(request)
    told = answer.json()
    assert set(told) - {"line"} == SHAPE, told
    assert all(told[name] for name in SHAPE)
    assert (answer.status_code < 500) == (told["whose_fault"] == "client")
    return answer.status_code, told["code"]


async def test_a_committed_agent_is_taken_once_and_answered_alike(served: Stand) -> None:
    miner = await Miner(served).register()
    made = await miner.commit()
    first = await send(miner.request(made))
    assert first.status_code == 202, first.text
    taken, target = first.json(), f"/v1/submissions/{made.agent_version_id}"
    assert (taken["agent_version_id"], taken["state"]) == (made.agent_version_id, "waiting")
    assert first.headers["location"] == target
    again = (await send(miner.request(made, agent_name="another-name"))).json()  # the first name stays
    status = (await send(miner.signed("GET", target))).json()
    assert [each | {"block": 0} for each in (again, status)] == [taken | {"block": 0}] * 2


async def test_a_repeated_request_is_refused_by_every_server_and_after_a_restart(stand: Stand) -> None:
    twin = Stand(stand.folder, stand.dsn, stand.uri)
    with serving(stand, WIDE_RULES), serving(twin, WIDE_RULES):
        other = twin.address
        miner = await Miner(stand).register()
        made = [await miner.commit(f"{AGENT}# {number}\n") for number in range(4)]
        requests = [miner.request(made[number % 4]) for number in range(24)]
        for request in requests[::2]:
            request.url = httpx2.URL(f"{other}/v1/submissions")
        answers = await asyncio.gather(*map(send, requests))  # of many at two servers at once one is taken
        assert len({one.json()["agent_version_id"] for one in answers if one.status_code == 202}) == 1
        assert {answer.status_code for answer in answers} == {202, 422}
        request = miner.request(made[-1])
        assert (await send(request)).status_code == 202
        assert await refusal(request) == (401, "V2110")
        elsewhere = httpx2.Request("POST", f"{other}/v1/submissions", content=request.content, headers=request.headers)
        assert await refusal(elsewhere) == (401, "V2110")
    with serving(stand, WIDE_RULES):
        anew = httpx2.Request(
            "POST", f"{stand.address}/v1/submissions", content=request.content, headers=request.headers
        )
        assert await refusal(anew) == (401, "V2110")


async def test_who_may_not_submit_is_told_why(served: Stand) -> None:
    miner = await Miner(served).register()
    made = await miner.commit()
    stranger = Miner(served)
    assert await refusal(stranger.request(made)) == (403, "A1008")
    unsigned = httpx2.Request("POST", f"{served.address}/v1/submissions", content=b"x")
    assert await refusal(unsigned) == (401, "V2110")
    tampered = miner.request(made)
    body = tampered.content.replace(b"return None", b"return True")
    headers = {**tampered.headers, "content-length": str(len(body))}
    assert await refusal(httpx2.Request("POST", tampered.url, content=body, headers=headers)) == (401, "V2110")
    assert await refusal(miner.request(made, signature="00" * 64)) == (422, "A1007")
    uncommitted = miner.request(made, file=AGENT.encode() + b"# more\n")
    assert await refusal(uncommitted) == (422, "A1007")


async def test_a_deregistered_hotkey_and_a_stale_chain_are_refused(stand: Stand) -> None:
    miner = await Miner(stand).register()
    made = await miner.commit()
    with serving(stand, WIDE_RULES):
        assert (await send(miner.request(made))).status_code == 202
        await deregister(stand.chain, miner.signer.hotkey)
        await Miner(stand).register()  # waits until that is final
        assert await refusal(miner.request(made)) == (403, "A1008")
    with serving(stand, WIDE_RULES, stale_s=-1.0):
        assert await refusal(miner.request(made)) == (503, "V2200")


FILES: list[tuple[bytes, str, int | None]] = [
    (b"x = 1\ny = '\xff'\n", "A1001", 2),
    (b"x = 1\ndef agent_main(problem:\n    pass\n", "A1002", 2),
    (b"x = 1\n", "A1002", None),
    (b"#" * 1_000_001, "A1004", None),
    (b"def agent_main(problem):\n    return " + b"(" * 50_000 + b"\n", "A1002", 2),
]


async def test_a_file_that_cannot_race_is_refused_with_its_line(served: Stand) -> None:
    miner = await Miner(served).register()
    for source, expected, line in FILES:
        answer = await send(miner.request(await miner.commit(), file=source))
        assert (answer.status_code, answer.json()["code"], answer.json().get("line")) == (422, expected, line)


async def test_what_is_no_form_is_refused(served: Stand) -> None:
    miner = await Miner(served).register()
    bomb = gzip.compress(b"0" * 50_000_000)
    for body, headers in ((b"{}", {"content-type": "application/json"}), (bomb, {"content-encoding": "gzip"})):
        assert await refusal(miner.signed("POST", "/v1/submissions", body, headers)) == (400, "V2081")


async def test_a_large_body_is_refused_before_it_is_read(served: Stand) -> None:
    miner = await Miner(served).register()
    sent = 0

    async def endless():
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield b"0" * (1 << 16)

    headers = miner.auth.sign("POST", "/v1/submissions", served.validator)
    async with httpx2.AsyncClient(timeout=30) as client:
        try:
            answer = await client.post(f"{served.address}/v1/submissions", content=endless(), headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "V2202")
        except httpx2.TransportError:
            pass  # it was closed while we wrote: the answer can be lost to that
    assert sent < 1 << 26
    assert await refusal(miner.signed("GET", "/v1/submissions", b"a body")) == (413, "V2202")


async def test_a_slow_body_ends_in_408_and_slow_ones_keep_nobody_out(stand: Stand) -> None:
    rules = DoorRules(body_s=0.5, bodies=8, bodies_per_network=2, address=WIDE_RULES.address, hotkey=WIDE_RULES.hotkey)
    with serving(stand, rules):
        miner = await Miner(stand).register()
        made = await miner.commit()
        host, port = stand.address.removeprefix("http://").split(":")

        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"X\r\n\r\n")  # no HTTP is answered as everything is
        head, body = (await reader.read()).split(b"\r\n\r\n")
        assert b" 400 " in head and b'"code":"V2081"' in body

        async def slow() -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            headers = miner.auth.sign("POST", "/v1/submissions", stand.validator)
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"POST /v1/submissions HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n{lines}\r\nx".encode())
            line = await reader.readline()
            writer.close()
            return line

        answers = Counter(await asyncio.gather(*(slow() for _ in range(20))))
        assert {line.split()[1] for line in answers} == {b"408", b"429"}
        assert answers[b"HTTP/1.1 408 Request Timeout\r\n"] == 2
        assert (await send(miner.request(made))).status_code == 202


async def test_shares_end_in_429(stand: Stand) -> None:
    few = ShareRules(requests_per_s=0.001, requests_burst=3)
    with serving(stand, DoorRules(address=WIDE_RULES.address, hotkey=few)):
        first, second = await Miner(stand).register(), await Miner(stand).register()
        for _ in range(3):
            assert (await send(first.signed("GET", "/v1/submissions"))).status_code == 200
        assert await refusal(first.signed("GET", "/v1/submissions")) == (429, "V2112")
        assert (await send(second.signed("GET", "/v1/submissions"))).status_code == 200
    with serving(stand, DoorRules(address=few)):
        for _ in range(3):
            assert (await send(httpx2.Request("GET", f"{stand.address}/v1/door"))).status_code == 200
        assert await refusal(httpx2.Request("GET", f"{stand.address}/v1/door")) == (429, "V2112")


async def test_a_version_is_withdrawn_while_it_waits(served: Stand) -> None:
    miner = await Miner(served).register()
    made = await miner.commit()
    await send(miner.request(made))
    target = f"/v1/submissions/{made.agent_version_id}"
    another = await miner.commit(AGENT + "# 2\n")
    assert await refusal(miner.request(another)) == (409, "A1012")
    stranger = await Miner(served).register()
    assert await refusal(stranger.signed("DELETE", target)) == (404, "V2113")
    assert await refusal(stranger.signed("GET", target)) == (404, "V2113")
    answer = await send(miner.signed("DELETE", target))
    assert (answer.status_code, answer.json()["state"]) == (200, "withdrawn")
    assert (await send(miner.request(another))).status_code == 202
    store = await PostgresStore.open(served.dsn, served.validator)
    assert await store.set_submission_state(another.agent_version_id, "review", was="waiting")
    await store.close()
    assert await refusal(miner.signed("DELETE", f"/v1/submissions/{another.agent_version_id}")) == (409, "A1012")


# -- what it saves itself


async def test_a_commitment_that_is_not_final_hides_none_that_is(served: Stand) -> None:
    miner = await Miner(served).register()
    first = await miner.commit()
    await Miner(served).register()  # waits until it is final
    await set_finality_lag(served.chain, 1_000_000)
    second = await miner.commit(f"{AGENT}# second\n")
    answer = await send(miner.request(first))
    assert answer.status_code == 202, answer.text
    assert answer.json()["commitment_block"] <= await served.chain.finalized_block()
    assert await refusal(miner.request(second)) == (409, "A1012")  # it is known, and another of the hotkey waits
    assert await refusal(miner.request(second, file=AGENT.encode() + b"# none\n")) == (422, "A1007")


async def test_a_file_that_no_process_could_parse_is_the_gates_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    parser, bad = Parser(POLICIES["demo"].gate, within_s=60), b"def agent_main(problem:\n"
    finding = await parser.first_finding(bad)
    assert finding is not None and finding.rule == "parse" and await parser.first_finding(AGENT.encode()) is None
    monkeypatch.setattr(asyncio, "create_subprocess_exec", mock.AsyncMock(side_effect=OSError))
    assert await parser.first_finding(bad) is None


FORM = SubmissionForm(agent_name="one", source=b"two\r\n--", submitted_ms=3, signature="four")
CONTENTS = {"agent_name": b"one", "file": b"two\r\n--", "submitted_ms": b"3", "signature": b"four"}
PLAIN_HEADS = {name: f'Content-Disposition: form-data; name="{name}"' for name in CONTENTS}


def body_between(boundary: str, heads: dict[str, str]) -> bytes:
    return b"".join(
        b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), heads[name].encode("latin-1"), content)
        for name, content in CONTENTS.items()
    ) + b"--%s--\r\n" % (boundary.encode())


HEAD = b'--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n'
PART = HEAD % b"file" + b"x\r\n"
KIND = "multipart/form-data; boundary=b"
WRONG = {
    "no boundary": (PART + b"--b--", "multipart/form-data"),
    "a content type that is long to read": (PART + b"--b--", 'multipart/form-data; boundary=b; x="' + ";" * 4_000),
    "no end": (PART, KIND),
    "parts missing": (PART + b"--b--\r\n", KIND),
    "a part twice": (PART * 2 + b"--b--", KIND),
    "ten thousand parts": (PART * 10_000 + b"--b--", KIND),
    "an unknown part": (HEAD % b"exec" + b"x\r\n--b--", KIND),
    "an encoded part": (
        PART.replace(b"\r\n\r\n", b"\r\ncontent-transfer-encoding: base64\r\n\r\n") + b"--b--",
        KIND,
    ),
    "a long head": (b"--b\r\n" + b"x" * 5_000 + b"\r\n\r\nx\r\n--b--", KIND),
    "a long disposition": (PART.replace(b"; name", b"; " + b'a="' * 300 + b"; name") + b"--b--", KIND),
    "nothing": (b"", KIND),
}


@pytest.mark.parametrize("encoding", ["7bit", "8bit ", " Binary", ""])
def test_a_part_may_say_that_it_is_not_encoded(encoding: str) -> None:
    head = f"Content-Transfer-Encoding: {encoding}\r\nContent-Disposition: form-data; filename=x; name=file"
    assert read_form(KIND, body_between("b", PLAIN_HEADS | {"file": head})) == FORM


@pytest.mark.parametrize("which", WRONG)
def test_bytes_that_are_no_form_are_refused(which: str) -> None:
    body, kind = WRONG[which]
    for now_ms in (None, 0):
        with pytest.raises(ArenaError, match="V2081"):
            read_form(kind, body, now_ms)


@given(st.text(st.sampled_from(' \t;="\\ab'), max_size=HEADER_BYTES_MAX - 40))
def test_any_short_header_is_read_or_refused(text: str) -> None:
    body = body_between("b", PLAIN_HEADS)
    try:
        assert read_form(f"multipart/form-data; boundary=b;{text}", body) == FORM
    except ArenaError as refused:
        assert refused.failure.code == "V2081"
