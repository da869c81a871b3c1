"""How races of 1, 2, 3 and 5 validators end, by what their settlements mean: kept, and equal after every change.

Results are missing, faulted, void, late (their verdict is owed) or restarted (an attempt faulted before the one that
counts), by a seed. After a change that is meant to change it: `python -m tests.arena.test_race_frozen`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from arena.race.settle import settle
from arena.records.model import CountedLog, Top
from tests.arena import test_race_together as together
from tests.arena.race_stand import candidate, changed, controlled, raced

GOLDEN = Path(__file__).parent / "golden" / "settlements.json"
COUNTS = (1, 2, 3, 5)
NAMES = "abcd"
TOP = Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=5)


def settled(count: int, seed: int) -> dict[str, object]:
    """One race of `count` validators."""
    chance = random.Random(f"settlement {count} {seed}")
    validators = tuple(f"val-{number}" for number in range(count))
    sizes = {"validators_per_problem": min(3, count), "results_required": min(2, count)}
    rules = controlled(**sizes)
    skill = {f"v-{name}": chance.random() for name in NAMES}
    missing, faulted, late, lacking = (chance.choice([0.0, 0.15, 0.4]) for _ in range(4))
    void = chance.choice([0.0, 0.05, 0.2])

    def outcome(agent: str, problem_id: str, validator: str) -> tuple[bool, int | None] | None:
        dice = random.Random(f"{count} {seed} {agent} {problem_id} {validator}")
        if dice.random() < missing:
            return None
        return dice.random() < skill[agent], None if dice.random() < late else dice.randrange(3_000, 10_000)

    def faults(agent: str, problem_id: str, validator: str) -> int:
        dice = random.Random(f"fault {count} {seed} {agent} {problem_id} {validator}")
        return dice.choice([-1, 1, -3, 2]) if dice.random() < faulted else 0

    made = raced(
        [candidate(name, block=10 + place) for place, name in enumerate(NAMES)],
        outcome,
        faults,
        rules=rules,
        validators=validators,
        lacks_control=lambda problem_id, validator: random.Random(f"{seed} {problem_id}").random() < void,
        lacks_witness=lambda *pair: random.Random(f"witness {seed} {pair}").random() < lacking,
        incumbent=chance.choice([None, TOP]),
        logs=tuple(CountedLog(validator=each, note_sha256="0" * 64, size=10_000, root="") for each in validators)
        if count > 1
        else (),
    )
    if chance.random() < 0.1:
        made = changed(made, beacon=None)
    found = settle(made)
    return {
        "state": found.state,
        "reason": found.reason,
        "top": found.top_agent_version_id,
        "promoted": found.is_promotion,
        "void": list(found.void),
        "weights": dict(zip(map(str, found.uids), found.weights_u16, strict=True)),
        "standings": [
            f"{row.agent_version_id} {row.race_score_e4} {row.low_e4}-{row.high_e4} solved {row.success_e4} quality "
            f"{row.mean_quality_e4} missing {row.missing} faulted {row.faulted or 0} duel {row.wins}:{row.losses}"
            for row in found.standings
        ],
    }


def agreed(count: int, seed: int) -> dict[str, str]:
    """By honest validator: how a race of `count` ended for it, with a liar, losses and absences in some."""
    chance = random.Random(f"agreement {count} {seed}")
    network = together.run(
        {f"val-{number}": chance.randrange(20, 60) for number in range(count)},
        {"liar": 15} if count > 1 and seed % 2 else {},
        seed,
        loss=chance.choice([0.0, 0.4]),
        away=chance.choice([0.0, 0.3, 0.8]),
        wakes_ms={"val-0": together.PLAN.countersign_ms} if seed % 3 == 2 else None,
    )
    ends, alike = {}, list[str]()
    for hotkey, member in sorted(network.members.items()):
        made, is_own = member.state.settlement, not member.state.is_adopted
        ends[hotkey] = f"{member.state.stage} {'own' if is_own else 'adopted'} {made.reason if made else ''}".strip()
        if member.outcome:
            alike += [] if member.outcome in alike else [member.outcome]
            ends[hotkey] += f", settlement {alike.index(member.outcome)}"
    return ends


def found() -> dict[str, object]:
    return {
        kind: {f"{count} validators, seed {seed}": make(count, seed) for count in COUNTS for seed in seeds}
        for kind, make, seeds in (("settlements", settled, (1, 2, 3, 5, 6, 7)), ("agreement", agreed, range(8)))
    }


def test_races_end_as_they_were_frozen():
    made, kept = found(), json.loads(GOLDEN.read_text("utf-8"))
    for kind, cases in made.items():
        assert cases.keys() == kept[kind].keys()
        assert {name: end for name, end in cases.items() if end != kept[kind][name]} == {}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(found(), indent=1) + "\n", "utf-8")
