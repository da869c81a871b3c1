"""What `/firehose` is made of: how much there is, what a filter keeps of it, and how episodes differ.

Everything but the days is of the last published races, in pool `train`; what a filter asks of their results is
worked out once between two refreshes of the picture, however many look.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from arena.api.reads.agents import agent_rows
from arena.api.reads.answers import PairResult
from arena.api.reads.board import Board as Picture
from arena.api.reads.board import RaceView
from arena.api.reads.network import day_rows, suite_rows
from arena.records.body import decode_body
from arena.store.bodies import restore_bodies
from arena.web.filters import WROTE, EpisodeFilter
from arena.web.model import FirehosePage
from arena.web.panels import bars, bins, shape_of, shape_panel
from arena.web.reading import Results, name_of
from foundation.errors import ArenaError

RACES_COMPARED = 8
AGENTS_SHOWN, AGENTS_LISTED = 8, 200
DAYS_SHOWN = 30
SAMPLE, SAMPLE_BYTES, CALLED_KEPT = 60, 1 << 20, 20_000  # of the bodies that are looked into


class Firehose:
    """Makes the page of one store."""

    def __init__(self, picture: Picture, results_of: Callable[[RaceView], Awaitable[Results]]) -> None:
        """`results_of`: the results of a race as far as they are public."""
        self._picture, self._results_of = picture, results_of
        self._called: dict[str, tuple[str, ...]] = {}  # by body: the tools called, in order
        self._made: dict[EpisodeFilter, FirehosePage] = {}
        self._epoch = -1  # that the pages were made in

    async def page(self, asked: EpisodeFilter, base_url: str) -> FirehosePage:
        """What there is to train on. Raises ArenaError V2082 for a race that is not published."""
        if self._epoch != self._picture.epoch:
            self._made, self._epoch = {}, self._picture.epoch
        if asked not in self._made:
            self._made[asked] = await self._make(asked)
        return replace(self._made[asked], base_url=base_url)

    async def _make(self, asked: EpisodeFilter) -> FirehosePage:
        told = [race for race in self._picture.races() if race.moment == "published" and race.release][-RACES_COMPARED:]
        if asked.race and asked.race not in {race.race_id for race in told}:
            raise ArenaError("V2082", f"{asked.race} is none of the last {RACES_COMPARED} published races")
        everything = [
            one
            for race in told
            if asked.race in ("", race.race_id)
            for pairs in (await self._results_of(race)).values()
            for one in pairs
        ]
        given = [one for one in everything if asked.holds(one)]
        days = tuple(sorted(day_rows(self._picture), key=lambda row: row.day))[-DAYS_SHOWN:]
        good = [one for one in given if one.is_agentic and one.is_success and (one.coefficient_e4 or 0) >= 9_000]
        funnel = {
            "recorded in published races": len(given),
            "calls by the model": sum(one.is_agentic for one in given),
            "and solved": sum(one.is_agentic and one.is_success is True for one in given),
            "and coefficient .9 or more": len(good),
        }
        rows = agent_rows(self._picture)
        by_agent = Counter(one.agent_version_id for one in given).most_common(AGENTS_SHOWN)
        listed = Counter(one.agent_version_id for one in everything).most_common(AGENTS_LISTED)
        agents = tuple(sorted((name_of(rows, one) for one, _ in listed), key=lambda each: each.name))
        return FirehosePage(
            days=days,
            most=max((row.episodes for row in days), default=0),
            episodes=len(given),
            races=tuple(race.race_id for race in reversed(told)),
            agents=agents,
            race=asked.race,
            agent=asked.agent,
            wrote=asked.wrote,
            choices={str(one): said for one, said in WROTE.items()},
            funnel=bars(funnel, list(funnel)),
            calls=bins((one.tool_calls for one in given), (2, 4, 8, 16, 32)),
            lengths=bins((one.tokens for one in given), (1_000, 4_000, 16_000, 64_000)),
            whose=bars({f"{name_of(rows, one).name} ({one[:6]})": count for one, count in by_agent}),
            called=shape_panel(await self._shapes(given)),
            suites=suite_rows(self._picture),
            base_url="",
        )

    async def _shapes(self, given: list[PairResult]) -> list[tuple[str, ...]]:
        """What a sample of episodes called, evenly taken; bodies that are large, or elsewhere, are left out."""
        sample = given[:: max(1, -(-len(given) // SAMPLE))]
        missing = defaultdict[str, list[str]](list)
        for one in sample:
            if one.body_sha256 not in self._called:
                missing[one.validator].append(one.body_sha256)
        if missing and len(self._called) > CALLED_KEPT:
            self._called.clear()
            return await self._shapes(given)
        for validator, names in missing.items():
            for frame in await self._picture.store.frames(names, validator):
                if frame.size <= SAMPLE_BYTES:
                    (stored,) = await restore_bodies([frame])
                    self._called[frame.body_sha256] = shape_of(decode_body(stored.content))
        return [self._called[one.body_sha256] for one in sample if one.body_sha256 in self._called]
