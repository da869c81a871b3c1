"""What `oro submit` and the generated client of oro-sdk 7.0.2 put on the wire, sent here byte for byte but for the
signature: methods, paths, headers and bodies as recorded (`docs/compatibility.md` has the clients' own runs)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from arena.chain.keys import generate_signer
from arena.sn15.values import version_uuid
from arena.store.embedded import EmbeddedServer
from tests.arena.door_stand import AGENT, WIDE_RULES, Stand, serving
from tests.arena.sn15_stand import LegacyAuth, LegacyMiner, open_to_commitments, told

HEADERS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "keep-alive",
    "User-Agent": "python-httpx/0.28.1",
    "X-Oro-Client-Name": "oro-sdk-python",
    "X-Oro-Client-Version": "7.0.2",
}
FORM = (
    b'--+++\r\nContent-Disposition: form-data; name="agent_name"\r\nContent-Type: text/plain\r\n\r\nguest\r\n'
    b'--+++\r\nContent-Disposition: form-data; name="file"; filename="agent.py"\r\nContent-Type: text/x-python\r\n\r\n'
    b"%b\r\n--+++--\r\n"
)
FORM_TYPE = {"Content-Type": "multipart/form-data; boundary=+++"}


@pytest.fixture
def stand(postgres: EmbeddedServer, tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path, "", f"//Clients{generate_signer().hotkey[-8:]}")
    made.dsn = postgres.dsn_for(made.validator)
    with serving(open_to_commitments(made), WIDE_RULES):
        yield made


async def send(miner: LegacyMiner, method: str, path: str, body: bytes = b"", **more: str) -> httpx.Response:
    """One recorded request. What is under /v1/miner/ is signed, as the client does it."""
    signed = LegacyAuth(miner.signer).headers() if path.startswith("/v1/miner/") else {}
    headers = HEADERS | {name.replace("_", "-"): value for name, value in more.items()} | signed
    async with httpx.AsyncClient(timeout=30) as http:
        return await http.send(httpx.Request(method, miner.stand.address + path, headers=headers, content=body))


async def submit(miner: LegacyMiner) -> httpx.Response:
    body = FORM % AGENT.encode()
    return await send(miner, "POST", "/v1/miner/submit", body, **FORM_TYPE)


async def test_oro_submit_is_told_of_the_missing_commitment_and_taken_with_it(stand: Stand) -> None:
    miner = await LegacyMiner(stand).register()
    listing = (await send(miner, "GET", "/v1/miner/inference-auth")).raise_for_status().json()
    assert [each["connected"] for each in listing["providers"]] == [True] and listing["default_provider"] != "chutes"
    refused = await submit(miner)
    assert told(refused) == (409, "COMMITMENT_MISSING") and "`arena commit AGENT.py`" in refused.json()["detail"]
    await miner.commit()
    taken = (await submit(miner)).raise_for_status().json()
    assert taken["admission_status"] == "ACCEPTED" and taken["message"] and taken["next_allowed_at"]


async def test_the_generated_client_reads_a_version_the_leaderboard_and_a_download(stand: Stand) -> None:
    miner = await LegacyMiner(stand).register()
    made = await miner.commit()
    version = version_uuid(made.agent_version_id)
    assert (await submit(miner)).json()["agent_version_id"] == version
    public = (await send(miner, "GET", f"/v1/public/agent-versions/{version}/status")).raise_for_status().json()
    own = (await send(miner, "GET", f"/v1/miner/agent-versions/{version}")).raise_for_status().json()
    assert public["state"] == own["state"] == "RECEIVED"
    agents = (await send(miner, "GET", "/v1/miner/agents")).raise_for_status().json()["agents"]
    assert [each["latest_version"]["agent_version_id"] for each in agents] == [version]
    asked = "/v1/public/leaderboard?score_type=qualifying&limit=100&offset=0"
    assert (await send(miner, "GET", asked)).raise_for_status().json()["total"] == 0
    body = b'{"artifact_type":"AGENT_CODE","agent_version_id":"%b"}' % version.encode()
    json_type = {"Content-Type": "application/json"}
    waiting = await send(miner, "POST", "/v1/public/artifacts/download-url", body, **json_type)
    assert told(waiting) == (404, "ARTIFACT_NOT_RELEASED")
