"""A validator's races beside those that the published SN15 API tells of, agent by agent: `arena validator report`.

The other side is what that API answers of its races (`GET /v1/public/races/{race_id}`) and of the top miner's pay. An
agent is the same on both sides by its miner's hotkey, else by its name. Every race counts alike, whatever it lasted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import combinations

import httpx2
import msgspec

from arena.chain.port import Metagraph, Neuron
from arena.policy import WeightRules
from arena.race.forecast import Cost, spent
from arena.race.settle import readable_policy
from arena.race.weights import Finisher, chain_vector, reference_vector
from arena.records.model import SettlementRecord
from arena.records.port import UsageTotal
from foundation.bounded_http import BoundedClient, UnfitAnswerError
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError

BLOCKS_PER_DAY = 7_200
TOP_E4 = 2_500  # of what SN15's rule pays, the top's (its `t_top`); the rest but a tail of thousandths is burned
RACES_MAX = 100
ANSWER_BYTES_MAX, ANSWER_S = 8 << 20, 30.0
BURNED = "burned"


class ForeignAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a race, as that API answers (`RaceQualifierPublic`). A score is null while it is sealed."""

    agent_version_id: str
    miner_hotkey: str | None = None
    agent_name: str | None = None
    race_score: float | None = None


class ForeignFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A race itself (`RacePublic`). Times are ISO 8601."""

    race_id: str
    race_number: int | None = None
    race_completed_at: str | None = None
    qualifying_closes_at: str | None = None


class ForeignRace(msgspec.Struct, frozen=True, kw_only=True):
    """A race with its field (`RaceDetailResponse`)."""

    race: ForeignFacts
    qualifiers: tuple[ForeignAgent, ...] = ()

    @property
    def ended(self) -> datetime:
        """When it was over, or closed; raises ValueError for a race that says neither."""
        return datetime.fromisoformat(self.race.race_completed_at or self.race.qualifying_closes_at or "")


class ForeignPay(msgspec.Struct, frozen=True, kw_only=True):
    """What the top miner is paid a day (`TopMinerPayoutResponse`)."""

    as_of: str
    tao_per_day: float | None = None


Other = tuple[list[ForeignRace], ForeignPay | None]  # what was read of the other side


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent did on one side: means over the races it ran, and over all races its share of the weights."""

    races: int = 0
    score_e4: int = 0
    rank: float = 0.0
    share_e4: int = 0
    tao_per_day: float | None = None  # None where the top's pay is not known
    costs: tuple[Cost, Cost] | None = None  # inference, judging; None where they are not published


class AgentBeside(msgspec.Struct, frozen=True, kw_only=True):
    """One agent on both sides; None where it did not race."""

    name: str
    miner_hotkey: str
    here: Side | None = None
    there: Side | None = None


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """The report. Pairs are (here, there), but `same_order`: of the pairs of agents that raced on both sides, those
    whose scores are in one order, and all."""

    days: int
    races: tuple[tuple[str, ...], tuple[str, ...]]
    without_scores: tuple[int, int]
    agents: tuple[AgentBeside, ...]
    same_order: tuple[int, int]
    burned_e4: tuple[int, int]
    void: int  # here: problems that counted for nobody
    missing: int  # and those that an agent has no result of, or lost to faults
    faulted: int
    cost_days: tuple[str, str] | None  # here: the last `days` (UTC) up to the last one on which a race asked a model
    costs: tuple[Cost, Cost]  # of these days, with qualifying, the control agent and agents that did not race


_Race = dict[str, tuple[int, int]]  # by hotkey, and BURNED: score and share of the weights, ten-thousandths


def compare(
    settled: Sequence[SettlementRecord],
    names: Mapping[str, str],
    other: Other,
    days: int,
    usage: Sequence[UsageTotal] = (),
) -> Beside:
    """The last `days` of both sides, each counted back from its latest race.

    `settled` is in order of time; `names` are agents' names by version; `usage` is this side's ledger. Weights here
    follow each race's own policy, there SN15's rule, both for a subnet on which every agent of the race is registered.
    """
    foreign, pay = other
    since_block = settled[-1].closing_block - days * BLOCKS_PER_DAY if settled else 0
    recent = [each for each in settled if each.closing_block > since_block]
    ours = [each for each in recent if each.standings]
    called = {row.miner_hotkey: names.get(row.agent_version_id, "") for each in ours for row in each.standings}
    over = sorted((_as_here(each, called) for each in foreign), key=lambda each: each.ended)
    ended = [each for each in over if each.ended > over[-1].ended - timedelta(days=days)]
    theirs = [each for each in ended if any(one.race_score is not None for one in each.qualifiers)]
    for each in theirs:
        called = {one.miner_hotkey or "": one.agent_name or "" for one in each.qualifiers} | called
    here = _sides([_race_here(each) for each in ours], pay)
    race_ids = {each.race_id for each in recent}
    last_day = max((row.day for row in usage if row.race_id in race_ids), default="")
    since_day = last_day and (date.fromisoformat(last_day) - timedelta(days=days - 1)).isoformat()
    counted = [row for row in usage if since_day <= row.day <= last_day]
    hotkeys = {row.agent_version_id: row.miner_hotkey for each in ours for row in each.standings}
    for hotkey, side in here.items():
        own = spent(row for row in counted if hotkeys.get(row.agent_version_id) == hotkey)
        here[hotkey] = msgspec.structs.replace(side, costs=own)
    there = _sides([_race_there(each) for each in theirs], pay)
    agents = [
        AgentBeside(name=called[hotkey], miner_hotkey=hotkey, here=here.get(hotkey), there=there.get(hotkey))
        for hotkey in {**here, **there}
        if hotkey != BURNED
    ]

    def best_first(one: AgentBeside) -> tuple[int, int, str]:
        here_e4, there_e4 = (side.score_e4 if side else -1 for side in (one.here, one.there))
        return -here_e4, -there_e4, one.miner_hotkey

    both = [(one.here.score_e4, one.there.score_e4) for one in agents if one.here and one.there]
    pairs = list(combinations(both, 2))
    return Beside(
        days=days,
        races=(
            tuple(each.race_id for each in ours),
            tuple(str(each.race.race_number or each.race.race_id) for each in theirs),
        ),
        without_scores=(len(recent) - len(ours), len(ended) - len(theirs)),
        agents=tuple(sorted(agents, key=best_first)),
        same_order=(sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs), len(pairs)),
        burned_e4=(here.get(BURNED, Side()).share_e4, there.get(BURNED, Side()).share_e4),
        void=sum(len(each.void) for each in ours),
        missing=sum(row.missing for each in ours for row in each.standings),
        faulted=sum(row.faulted for each in ours for row in each.standings),
        cost_days=(since_day, last_day) if last_day else None,
        costs=spent(counted),
    )


def _as_here(race: ForeignRace, called: Mapping[str, str]) -> ForeignRace:
    """The race with the hotkeys that its agents have here, where their names are those of one here."""
    hotkeys = {name: hotkey for hotkey, name in called.items() if name}
    agents = []
    for one in race.qualifiers:
        hotkey = one.miner_hotkey or one.agent_version_id
        known = hotkey if hotkey in called else hotkeys.get(one.agent_name or "", hotkey)
        agents.append(msgspec.structs.replace(one, miner_hotkey=known))
    return msgspec.structs.replace(race, qualifiers=tuple(agents))


def _race_here(record: SettlementRecord) -> _Race:
    hotkeys = {row.agent_version_id: row.miner_hotkey for row in record.standings}
    neurons = tuple(Neuron(uid=uid, hotkey=hotkey) for uid, hotkey in enumerate([BURNED, *hotkeys.values()]))
    policy = readable_policy(record)
    vector = chain_vector(
        list(hotkeys.values()) if isinstance(record.places, msgspec.UnsetType) else record.places,
        hotkeys.get(record.top_agent_version_id, ""),
        Metagraph(netuid=0, block=record.settling_block, tempo=0, neurons=neurons),
        msgspec.structs.replace(policy.weights if policy else WeightRules(), burn_uid=0),
    )
    weights = {neurons[uid].hotkey: weight for uid, weight in zip(vector.uids, vector.weights, strict=True)}
    return _shared({row.miner_hotkey: row.race_score_e4 for row in record.standings}, weights)


def _race_there(race: ForeignRace) -> _Race:
    scores = {one.miner_hotkey or "": one.race_score for one in race.qualifiers if one.race_score is not None}
    hotkeys = [BURNED, *scores]
    ran = [Finisher(miner_hotkey=key, agent_version_id=key, race_score=score) for key, score in scores.items()]
    vector = reference_vector(hotkeys, ran, TOP_E4 / 10_000, 1 - TOP_E4 / 10_000)
    weights = dict(zip(hotkeys, vector.weights, strict=True))
    return _shared({key: round(score * 10_000) for key, score in scores.items()}, weights)


def _shared(scores_e4: Mapping[str, int], weights: Mapping[str, int]) -> _Race:
    total = sum(weights.values()) or 1
    return {key: (scores_e4.get(key, 0), weights.get(key, 0) * 10_000 // total) for key in [*scores_e4, BURNED]}


def _sides(races: Sequence[_Race], pay: ForeignPay | None) -> dict[str, Side]:
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for race in races:
        ranked = sorted(race, key=lambda key: -race[key][0])
        for key, (score_e4, share_e4) in race.items():
            found[key].append((score_e4, ranked.index(key) + 1, share_e4))
    per_e4 = pay.tao_per_day / TOP_E4 if pay and pay.tao_per_day else None
    sides = {}
    for key, rows in found.items():
        scores_e4, ranks, shares_e4 = zip(*rows, strict=True)
        share_e4 = sum(shares_e4) // len(races)
        sides[key] = Side(
            races=len(rows),
            score_e4=sum(scores_e4) // len(rows),
            rank=sum(ranks) / len(rows),
            share_e4=share_e4,
            tao_per_day=None if per_e4 is None else share_e4 * per_e4,
        )
    return sides


# -- reading the other side


class _History(msgspec.Struct, frozen=True):
    """The races that are over (`RaceHistoryResponse`)."""

    races: tuple[ForeignFacts, ...]


def read_other(lines: Iterable[bytes], place: str) -> Other:
    """Answers of that API, one a line. Raises ArenaError V2084 for one that is neither of a race that is over nor of a
    pay, with its line."""
    races, pay = list[ForeignRace](), None
    for number, line in enumerate(lines, start=1):
        try:
            if "as_of" in msgspec.json.decode(line, type=dict[str, msgspec.Raw]):
                pay = msgspec.json.decode(line, type=ForeignPay)
                continue
            races.append(race := msgspec.json.decode(line, type=ForeignRace))
            if race.ended.tzinfo is None:
                raise ValueError(f"race {race.race.race_id} ended at {race.ended}, of no time zone")
        except (ValueError, *UNREADABLE_JSON) as error:
            raise ArenaError("V2084", f"{place}, line {number} is not a race of that API: {error}") from error
    return races, pay


def fetch_other(url: str) -> Other:
    """The latest `RACES_MAX` races of the API at `url`, and its top miner's pay. Raises ArenaError V2084."""

    def ask(path: str) -> bytes:
        """What it answers; nothing of what it doesn't offer."""
        answer = client.ask("GET", f"/v1/public{path}", bytes_max=ANSWER_BYTES_MAX, within_s=ANSWER_S)
        if answer.status_code == httpx2.codes.NOT_FOUND:
            return b""
        answer.raise_for_status()
        return answer.content

    try:
        with BoundedClient(silence_s=ANSWER_S, connect_s=ANSWER_S, base_url=url) as client:
            over = msgspec.json.decode(ask(f"/races/history?limit={RACES_MAX}"), type=_History).races
            answers = [ask(f"/races/{each.race_id}") for each in over]
            paid = ask("/top-miner-payout")
    except (httpx2.HTTPError, httpx2.InvalidURL, UnfitAnswerError, ValueError, *UNREADABLE_JSON) as error:
        raise ArenaError("V2084", f"{url}: {str(error) or type(error).__name__}") from error
    return read_other([*answers, *([paid] if paid else [])], url)
