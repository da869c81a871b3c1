"""U3xxx: a model endpoint, a judge, the chain or the beacon is at fault."""

from __future__ import annotations

from problems.codes.row import NO_SCORE, STOPS, row

ROWS = (
    row(
        "U3001",
        "model endpoint is missing or refuses the key",
        NO_SCORE,
        "set OPENAI_BASE_URL and OPENAI_API_KEY",
        True,
    ),
    row(
        "U3002",
        "model endpoint failed after retries",
        NO_SCORE,
        "wait; the episode restarts when the endpoint answers a probe",
        True,
    ),
    row(
        "U3003",
        "model endpoint answered with something unreadable",
        NO_SCORE,
        "check that the endpoint speaks the OpenAI protocol",
        True,
    ),
    row(
        "U3004",
        "model endpoint refuses more requests for now",
        NO_SCORE,
        "lower the number of workers or raise the endpoint's rate limit",
        True,
    ),
    row(
        "U3005",
        "model endpoint does not serve a model of the policy",
        STOPS,
        "serve it there, add an endpoint that does, or set `models` (which changes the policy's hash)",
    ),
    row("U3010", "catalogue lookup failed", NO_SCORE, "check the catalogue service", True),
    row(
        "U3020",
        "judge endpoint failed after retries",
        "the verdict is owed; the stored body is judged later",
        "check the judge endpoint",
        True,
    ),
    row(
        "U3021",
        "judge gave no usable verdict",
        "the trajectory stays unscored until it is judged again",
        "read the refused replies with `arena records show`",
        True,
    ),
    row("U3030", "chain is not reachable", "work pauses and is tried again", "check the chain endpoint", True),
    row(
        "U3031",
        "chain refused the extrinsic",
        "nothing was set; tried again within the rate limit",
        "read the chain's error in the result row",
        True,
    ),
    row("U3032", "beacon round is not available", "the draw waits", "wait for the round; it is public", True),
)
