"""The rows that API, pages and SN15 routes show: one frozen value per kind, and lists of them page by page.

Shares and scores are ten-thousandths (`_e4`). A value is None, or a list empty, where it is not public yet; `moment`
and `opens_ms` say what it waits for. A cursor is opaque to clients and holds the key of the last row they have, so
pages fit together whatever was added between.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from fastapi import Query

from arena.records.model import Standing
from arena.store.port import SubmissionState
from arena.visibility.rule import Moment
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError
from problems.model import Bucket, Pool

RaceStage = Literal["open", "closed", "running", "settling", "settled", "cancelled", "unknown"]


class RaceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A race. `number` counts the races of this validator; `moment` says what of it is public; `opens_ms`: when source
    and traces open, None while the race is not released, 0 where the release opened them."""

    number: int
    race_id: str
    stage: RaceStage
    moment: Moment
    closes_ms: int | None
    opens_ms: int | None
    agents: int  # that race; 0 before the field is fixed
    episodes: int  # that were evaluated so far
    top_agent_version_id: str = ""  # after the race
    is_promotion: bool = False


class PromotionBasis(msgspec.Struct, frozen=True, kw_only=True):
    """What decided who is at the top after a race: the rule, and what the best agent had against the incumbent."""

    rule: Literal["margin", "window", "sequential", ""]
    margin_e4: int
    decay_ms: int
    incumbent_agent_version_id: str
    incumbent_since_ms: int
    text: str


class RaceDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A race and, once it is settled, what it came to."""

    race: RaceRow
    reason: str = ""  # of a cancelled race
    policy_sha256: str = ""
    seed: str = ""
    beacon_round: int = 0
    closing_block: int = 0
    settling_block: int = 0
    problems: int = 0  # drawn
    void: int = 0
    decision: PromotionBasis | None = None


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version. `source` says whether its file may be read here, and if not, when."""

    agent_version_id: str
    miner_hotkey: str
    name: str
    state: SubmissionState | Literal["unknown"]
    agent_sha256: str
    commitment_block: int
    suite_episodes: int
    race_episodes: int
    best_rank: int | None
    promoted_in: tuple[str, ...]  # races after which it came to the top
    source: SourceAccess


class SourceAccess(msgspec.Struct, frozen=True, kw_only=True):
    """`opens` is the moment from which everybody reads it, "never" for an agent that no race promoted."""

    is_public: bool
    opens: str
    opens_ms: int | None
    href: str


class ShownFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate found in a published source."""

    rule: str
    outcome: str
    severity: str
    line: int
    detail: str


class AgentDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version, its versions before and after, and where it stood in settled races."""

    agent: ListedAgent
    versions: tuple[str, ...]  # of the same hotkey, by commitment
    races: tuple[AgentRace, ...]
    findings: tuple[ShownFinding, ...] | None


class AgentRace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent stood in one settled race."""

    race_id: str
    standing: Standing


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """One validator's result for one agent on one problem. `coefficient_e4` None: no verdict (a failure needs none)."""

    agent_version_id: str
    validator: str
    seq: int
    is_success: bool | None  # None: unscored
    is_agentic: bool
    coefficient_e4: int | None
    body_sha256: str
    bucket: Bucket | Literal[""] = ""  # unscored: ""
    rule_e4: int | None = None  # how much of what was asked is met; None: unscored
    missed: tuple[str, ...] = ()  # axes on which a recommended product falls short
    failure: str = ""  # code of the fault that the run ended in
    tool_calls: int = 0
    tokens: int = 0  # of prompts and completions
    cost_micro_usd: int = 0  # by the policy's price table


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One released problem of a race, with every result on it."""

    problem_id: str
    pool: Pool
    is_drawn: bool
    is_void: bool
    results: tuple[PairResult, ...]


class TrajectoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """A published trajectory: `href` has it whole."""

    problem_id: str
    pool: Pool
    result: PairResult
    href: str


class SuiteProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a public suite, as an agent is asked it."""

    problem_id: str
    category: Bucket
    query: str


class SuiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """A public suite. `episodes`: of qualifying, on it."""

    suite: str
    problems: int
    episodes: int


class ValidatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A validator whose log is served here. `code` and `scoring`: what its newest public evaluation says it ran under.
    `signed_hours`: of the last `hours` UTC hours, those in which it signed a record; one with nothing to do signs none.
    `races_run`: of the `races` settled ones in which it held a permit, those in which it has a result."""

    validator: str
    records: int
    head: str
    episodes: int
    last_recorded_ms: int | None
    code: str = ""  # a commit, or a released version
    scoring: str = ""
    signed_hours: int = 0
    hours: int = 0  # 168, or fewer where the log is younger
    races_run: int = 0
    races: int = 0


class DayRow(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one UTC day. `solved` counts the suite and settled races alone, out of `scored`."""

    day: str
    episodes: int
    suite_episodes: int
    race_episodes: int
    scored: int
    solved: int
    agents: int


ROWS_MAX = 500
Key = str | int
Row = TypeVar("Row")

CursorOption = Annotated[
    str, Query(max_length=512, alias="cursor", description="`next` of the page before; empty: from the beginning.")
]
RowsOption = Annotated[int, Query(ge=1, le=ROWS_MAX, alias="limit", description="Most rows of a page.")]


class ListPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """Some rows of a list. `next` is the cursor of the page after this one, "" where the list ends for now."""

    items: tuple[Row, ...]
    next: str = ""


def page_of(
    rows: Iterable[Row],
    key: Callable[[Row], tuple[Key, ...]],
    *,
    scope: str,
    cursor: str,
    limit: int,
    is_newest_first: bool = False,
) -> ListPage[Row]:
    """The next `limit` rows behind a cursor, in the order of their keys, which tell all rows apart.

    `scope` names the list, and so whose cursors it takes. Raises ArenaError V2081 for a cursor that is not its own.
    """
    ordered = sorted(rows, key=key, reverse=is_newest_first)
    if cursor:
        after = read_cursor(cursor, scope)
        try:
            ordered = [row for row in ordered if (key(row) < after if is_newest_first else key(row) > after)]
        except TypeError as error:
            raise ArenaError("V2081", "cursor: it is of another list") from error
    shown = ordered[:limit]
    following = write_cursor(scope, key(shown[-1])) if len(ordered) > limit else ""
    return ListPage(items=tuple(shown), next=following)


def write_cursor(scope: str, key: tuple[Key, ...]) -> str:
    """A cursor behind the row with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode([scope, *key])).decode().rstrip("=")


def read_cursor(cursor: str, scope: str) -> tuple[Key, ...]:
    """The key of a cursor of this list. Raises ArenaError V2081."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        found, *key = msgspec.json.decode(text, type=list[str | int])
    except (*UNREADABLE_JSON, ValueError, binascii.Error) as error:
        raise ArenaError("V2081", "cursor: it is none of ours") from error
    if found != scope or not key:
        raise ArenaError("V2081", "cursor: it is of another list")
    return tuple(key)
