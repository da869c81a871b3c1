"""Every page of the site that the tests fill, by the state it is in."""

from __future__ import annotations

import httpx2

from tests.web.episode_stand import EMBARGOED, PUBLISHED, RUNNING, VOID, agent_id, drawn_of

ASKED = drawn_of(PUBLISHED[1])[0]


def traces_of(http: httpx2.Client, problem_id: str) -> list[str]:
    """The traces of a problem of the second race, as `VALIDATOR/SEQ`, in log order."""
    rows = http.get(f"/v1/races/{PUBLISHED[1]}/trajectories", params={"problem": problem_id}).json()["items"]
    return [row["href"].removeprefix("/v1/trajectories/").partition("?")[0] for row in rows]


def every_page(http: httpx2.Client) -> dict[str, str]:
    """Name of each page and state, and its path."""
    first, second = traces_of(http, ASKED)[:2]
    return {
        "leaderboard": "/",
        "races": "/races",
        "race": f"/races/{PUBLISHED[1]}",
        "race-under-embargo": f"/races/{EMBARGOED}",
        "race-void": f"/races/{VOID}",
        "race-running": f"/races/{RUNNING}",
        "problem": f"/races/{PUBLISHED[1]}/problems/{ASKED}",
        "problem-under-embargo": f"/races/{EMBARGOED}/problems/{drawn_of(EMBARGOED)[0]}",
        "problem-sealed": f"/races/{RUNNING}/problems/{drawn_of(RUNNING)[0]}",
        "agents": "/agents",
        "agents-none": "/agents?name=nobody-is-called-so",
        "agent": f"/agents/{agent_id(0)}",
        "agent-sealed": f"/agents/{agent_id(7)}",
        "trace": f"/traces/{first}",
        "trace-step": f"/traces/{first}#span-3",
        "compare": f"/traces/{first}?with={second}",
        "firehose": "/firehose",
        "validators": "/validators",
        "verify": "/verify",
        "api": "/api",
        "error": "/races/race-none",
        "unknown": "/no/such/page",
    }
