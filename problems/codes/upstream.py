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
    row(
        "U3033",
        "chain node no longer keeps the state of that block",
        "what needs that block waits; the rest goes on",
        "name an archive node as `network`, such as wss://archive.chain.opentensor.ai:443",
        True,
    ),
    row(
        "U3034",
        "chain's newest block stands still",
        "nothing is decided from it that needs a newer block",
        "look whether the network or only this endpoint stands; name another node as `network`",
        True,
    ),
    row(
        "U3035",
        "hotkey is not registered on the subnet, or holds no validator permit",
        "nothing is set or committed on chain, and no race counts this validator",
        "`btcli subnets register` with the coldkey; a permit follows the stake at the next epoch",
        True,
    ),
    row(
        "U3036",
        "validators run under different policies or guests",
        "this validator and those don't agree on results",
        "read the announced policy hash, and update whoever is behind",
        True,
    ),
    row(
        "U3040",
        "another validator is away or too slow",
        "its answer is missing; the next one is asked",
        "nothing here; its operator looks at its address and port",
        True,
    ),
    row(
        "U3041",
        "another validator refuses to answer",
        "its answer is missing; the next one is asked",
        "read the reason; a permit on chain and a right clock are what it asks for",
        True,
    ),
    row(
        "U3042",
        "another validator answered with something that is not what the chain holds",
        "nothing of its answer is used; the next one is asked",
        "nothing here; tell its operator which record was wrong",
        True,
    ),
    row(
        "U3043",
        "a validator's log cannot be held, by its own note",
        "none of its results count in this race",
        "nothing here; its operator reads this reason",
    ),
    row(
        "U3044",
        "a validator's log was rewritten since it was last read",
        "it counts as it stands now; what was settled before stays",
        "ask its operator why; both signed notes are kept",
    ),
    row(
        "U3050",
        "annotator gave no usable annotation",
        "the trace is not accepted, and counted as such",
        "name a model that cites verbatim; the refused replies stand in the oracle's answers",
    ),
    row(
        "U3051",
        "model gave no usable tasklet",
        "the trace makes no training row, and is counted as such",
        "name a stronger author; the refused replies stand in the oracle's answers",
    ),
)
