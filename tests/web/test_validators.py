"""What is told of a validator: from its signed records alone, and nothing of a race before its settlement."""

from __future__ import annotations

import httpx

from arena.chain.keys import generate_signer
from arena.records.body import decode_content
from tests.arena.tail_stand import Author, serving
from tests.web.episode_stand import HOUR_MS, NOW_MS


def test_hours_and_races_are_those_of_the_log(served):
    (row,) = served.http.get("/v1/validators").json()["items"]
    recorded = {decode_content(one.content).recorded_ms // HOUR_MS for one in served.site.author.records()}
    week = set(range(NOW_MS // HOUR_MS - 167, NOW_MS // HOUR_MS + 1))
    assert (row["signed_hours"], row["hours"]) == (len(recorded & week), 168)
    assert 0 < row["signed_hours"] < len(recorded)
    assert (row["races_run"], row["races"]) == (3, 3)  # the void one was not drawn, and the last runs
    page = " ".join(served.http.get("/validators", headers={"accept": "text/html"}).text.split())
    assert f">{row['signed_hours']} of 168</td>" in page and ">3 of 3</td>" in page


def test_what_a_validator_runs_under_is_told_when_its_race_is_settled(postgres):
    signer = generate_signer()
    author = Author(postgres.dsn_for(signer.hotkey), signer)
    author.race("race-000001", [1, 2])

    def told() -> tuple[str, str]:
        with (
            serving(author.dsn, now_ms=lambda: NOW_MS, requests_per_s=1e6) as server,
            httpx.Client(base_url=server.address, timeout=30) as http,
        ):
            (row,) = http.get("/v1/validators").json()["items"]
            return row["code"], row["scoring"]

    assert told() == ("", "")
    author.finish("race-000001", [1, 2])
    assert told() == ("f6", "scoring/1")
