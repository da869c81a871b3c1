"""V2104, V2105, V2110-V2114, U3040-U3048: what validators ask each other, and the operator's files between them."""

from __future__ import annotations

from foundation.codes.row import row

ROWS = (
    row(
        "V2104",
        "operator's newer policy is not in force here yet",
        "this validator goes on under the policy it started with",
        "restart the validator; a race past its close is still finished under its own policy",
        True,
    ),
    row(
        "V2105",
        "file cannot be used, or published, as one of the operator's release",
        "what stands in its place stays; nothing is published with it",
        "read the reason: update this software, remove the file in its place, or give whole, signed files",
    ),
    row(
        "V2110",
        "request is not signed, not for this validator and subnet, too old or repeated",
        "nothing was answered",
        "sign each request anew with the hotkey, for this receiver and netuid; check the clock",
        True,
    ),
    row(
        "V2111",
        "caller holds no validator permit",
        "nothing was answered",
        "ask again once the chain shows the permit",
    ),
    row(
        "V2112",
        "caller asks more than its share, or every place for a stream is taken",
        "nothing was answered; later requests are",
        "wait as long as `retry-after` says, or follow `GET /v1/tail` instead of asking again and again",
        True,
    ),
    row(
        "V2113",
        "validator does not have this, or may not show it yet",
        "nothing was answered",
        "ask once the block that reveals it is final, or ask another validator",
        True,
    ),
    row(
        "V2114",
        "folder of held logs or sources cannot be read or written",
        "what is damaged is not believed and is asked for again",
        "check the disk and its free space",
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
        "another validator answered with something that the chain does not hold, or the operator did not sign",
        "nothing of its answer is used; the next one is asked",
        "nothing here; tell its operator what was wrong; if it is most of them, compare operator_hotkey and netuid",
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
        "U3046",
        "another validator shows an older release of the operator's files than this one holds",
        "nothing changes here: a release is never taken back",
        "nothing, while it catches up; if it stays so, see whether it reaches other validators",
        True,
    ),
    row(
        "U3047",
        "operator signed two different releases with one number",
        "each validator keeps the one it saw first, so they may differ",
        "the operator publishes a release with a higher number; until then compare `arena operator publish`",
        True,
    ),
    row(
        "U3048",
        "operator's files are not here yet",
        "what needs them waits; it is asked for again",
        "see `arena operator publish`; a validator that has them must share races and be reachable",
        True,
    ),
)
