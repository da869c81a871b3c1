"""Who may see what when: the one rule that pages, API, tail, exports and gate findings ask.

Pure and total. What a viewer sees once it sees for ever after, and what the public sees every other viewer sees. Two
rules meet here. Release: nothing about a problem of a race leaves the validators before its batch is released, and then
by pool. Embargo: source and traces of a race stay sealed until the moment that the policy names; then the source of a
promoted winner and what the gate found in it are public. Before a settlement the public gets counts alone. Source:
paper, section 3; docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

from arena.records.model import Context, ReleasedProblem, ReleaseRecord, SettlementRecord
from problems.model import Pool

Viewer = Literal["public", "owner"]  # owner: the miner whose agent it is about
Thing = Literal[
    "gate_verdict",  # accepted, held or rejected, and the class of a rejection
    "score",  # rank, score, interval and what decided them, over the whole race
    "settlement",  # the settlement record, which names the drawn problems
    "problem",  # one problem of a batch: its text, its answer, its pool
    "outcome",  # one agent's result on one problem
    "trace",  # what an agent did on one problem: completions, calls, results
    "verdict",  # what the judge wrote of a trace
    "source",  # the agent's file
    "gate_finding",  # rule, line and detail of what the gate found in a source
]
# of a race: before its close; until it is settled and released; then; and once the embargo is over
Moment = Literal["open", "racing", "settled", "published"]
VIEWERS: tuple[Viewer, ...] = get_args(Viewer)
MOMENTS: tuple[Moment, ...] = get_args(Moment)

# The first moment at which each viewer sees a thing, in the order of VIEWERS.
_FIRST: dict[Thing, tuple[Moment, Moment]] = {
    "gate_verdict": ("open", "open"),
    "score": ("settled", "settled"),
    "settlement": ("settled", "settled"),
    "problem": ("settled", "settled"),
    "outcome": ("settled", "settled"),
    "trace": ("published", "settled"),
    "verdict": ("published", "settled"),
    "source": ("published", "open"),
    "gate_finding": ("published", "open"),
}
_OF_PROBLEM: frozenset[Thing] = frozenset({"problem", "outcome", "trace", "verdict"})  # go out by pool
_WINNERS_ALONE: frozenset[Thing] = frozenset({"source", "gate_finding"})  # those of losers are never published
_WAITS: dict[Moment, str] = {
    "settled": "sealed until the race is settled and released; counts alone are public before",
    "published": "under embargo until the policy's next hour for it after the settlement",
}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Seen, or why not and until when. `opens` is the moment from which the viewer sees it; "named": it is open, and
    its pool was not asked for by name; "never": it stays closed."""

    is_seen: bool
    opens: Moment | Literal["named", "never"]
    reason: str = ""


def may_see(
    viewer: Viewer,
    thing: Thing,
    moment: Moment,
    *,
    is_winner: bool = False,
    pool: Pool | None = None,
    pools: Collection[Pool] = (),
) -> Access:
    """Whether `viewer` sees `thing` at `moment` of its race.

    `is_winner`: the agent it is about was promoted by a race. `pool` is the problem's, None where no released manifest
    gives it one; `pools` are those asked for by name. What belongs to no race (suites, and what ran on them) stands at
    `published`, in pool `never_touch`.
    """
    first = _FIRST[thing][VIEWERS.index(viewer)]
    if thing in _WINNERS_ALONE and not is_winner and first == "published":
        return Access(is_seen=False, opens="never", reason="the source of an agent that was not promoted stays closed")
    if MOMENTS.index(moment) < MOMENTS.index(first):
        return Access(is_seen=False, opens=first, reason=_WAITS[first])
    if thing in _OF_PROBLEM and (pool is None or pool not in pools):
        if pool is None:
            return Access(is_seen=False, opens="never", reason="no release names its pool")
        return Access(is_seen=False, opens="named", reason=f"pool {pool} goes out when it is asked for by name")
    return Access(is_seen=True, opens=first)


_YEAR_9999_MS = 253_402_300_799_000


def released_moment(release: ReleaseRecord | None, now_ms: int) -> Moment:
    """The moment of a race that was drawn, by its release record alone: "racing" while the log has none."""
    if release is None:
        return "racing"
    return "published" if now_ms >= release.opens_ms else "settled"


def opening_text(opens_ms: int) -> str:
    """When a race opens, or another moment of unix time, in UTC; "" for 0: the release itself opened it."""
    if not opens_ms:
        return ""
    within_ms = min(max(opens_ms, 0), _YEAR_9999_MS)
    return datetime.fromtimestamp(within_ms / 1000, UTC).isoformat(timespec="seconds")


def settlement_moment(record: SettlementRecord, race: Moment) -> Moment:
    """The moment for a settlement record whose race stands at `race`. One of a batch that was never drawn from waits
    for no release: it tells of no problem but the random ids that the batch's notice names anyway."""
    is_beacon_out = record.inputs is not None and record.inputs.beacon_signature != ""
    is_drawn = record.state == "settled" or bool(record.drawn) or is_beacon_out
    return race if is_drawn else "published"


def standing_of(
    context: Context, releases: Mapping[str, Mapping[str, ReleasedProblem]], embargoed: Collection[str] = ()
) -> tuple[Moment, Pool | None]:
    """Moment and pool of a record's problem, given the released problems by race and public id.

    Suites are public: what does not belong to a race is `published`, and `never_touch`, so it goes out by name only. A
    problem that its race's release does not name has no pool.
    """
    if context.stage != "race":
        return "published", "never_touch"
    released = releases.get(context.race_id)
    if released is None:
        return "racing", None
    problem = released.get(context.problem_id)
    return "settled" if context.race_id in embargoed else "published", problem.pool if problem else None


def embargoed_races(releases: Mapping[str, ReleaseRecord], now_ms: int) -> frozenset[str]:
    """The released races whose embargo still runs."""
    return frozenset(race for race, record in releases.items() if released_moment(record, now_ms) == "settled")
