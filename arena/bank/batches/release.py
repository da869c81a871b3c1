"""The one release rule: nothing about a problem leaves the validators before its batch is released.

Promise: everything that publishes (API, export, tail, web) asks `reason_withheld` (or `may_leave`, where no pool is
concerned), and nothing else decides. Trace, ids, outcome, reward and cluster of a problem all follow the state of its
batch; counts alone are always public. The rule looks at four things: who asks, for what, in which state of the batch,
and of which pool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from arena.records.model import Context, ReleasedProblem, SettlementRecord
from problems.model import Pool

# of a batch, by its race: sealed until its draw, released when the drawn race is over, settled or cancelled. One that
# was never drawn from stays sealed, whatever became of its race.
BatchState = Literal["sealed", "drawn", "released"]
Audience = Literal["validators", "public"]
Matter = Literal[
    "counts",  # how many of anything: names no problem
    "release",  # the release record itself: what it says is public by being said
    "settlement",  # names the drawn problems of a race; of a batch that stays sealed, its public ids alone
    "problem",  # anything about one problem: evaluation, verdict, attempt, task, score
]
Reason = Literal["", "unreleased", "pool"]


def may_leave(state: BatchState, audience: Audience) -> bool:
    """Whether anything about a problem of a batch in `state` may reach `audience`.

    Validators need the problems of a drawn batch to race them; before the draw not even they pass them on.
    """
    if state == "released":
        return True
    return audience == "validators" and state == "drawn"


def reason_withheld(
    matter: Matter,
    *,
    audience: Audience,
    state: BatchState,
    pool: Pool | None = None,
    pools: Collection[Pool] = (),
) -> Reason:
    """Why something may not go out, or "" when it may (docs/architecture.md#problems-and-pools).

    The settlement of a race that was cancelled before its draw has nothing to wait for: no release will come, and it
    tells of no problem but the random ids that the batch's notice names anyway. `pool` is the problem's, None where no
    released manifest gives it one; `pools` are those asked for by name. To the public a problem goes out of a pool that
    was asked for and of no other; among validators pools keep nothing back.
    """
    if matter in ("counts", "release") or (matter, state) == ("settlement", "sealed"):
        return ""
    if not may_leave(state, audience):
        return "unreleased"
    if matter == "problem" and audience == "public" and (pool is None or pool not in pools):
        return "pool"
    return ""


def settled_state(record: SettlementRecord, *, is_released: bool) -> BatchState:
    """State of the batch of a settled race, by what its settlement says. What was never drawn from stays sealed."""
    if is_released:
        return "released"
    is_beacon_out = record.inputs is not None and record.inputs.beacon_signature != ""
    return "drawn" if record.state == "settled" or record.drawn or is_beacon_out else "sealed"


def standing_of(
    context: Context, releases: Mapping[str, Mapping[str, ReleasedProblem]]
) -> tuple[BatchState, Pool | None]:
    """State and pool of a record's problem, given the released problems by race and public id.

    Suites are public: what does not belong to a race is `released`, and `never_touch`, so it goes out by name only. A
    problem that its race's release does not name has no pool.
    """
    if context.stage != "race":
        return "released", "never_touch"
    released = releases.get(context.race_id)
    if released is None:
        return "drawn", None
    problem = released.get(context.problem_id)
    return "released", problem.pool if problem else None
