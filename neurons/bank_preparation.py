"""What a node reads or, on the local network, makes from the open catalogue: suite, stock of batches, gate knowledge.

Promise: the suite is seeded by its name, so that every miner's desk has the same one; batches are seeded by secret
randomness, so that nobody has them. On a real network both come from the operator and nothing is made here.
"""

from __future__ import annotations

import secrets

from arena.bank.level import HORIZON_RACES, StockLevel
from arena.bank.partition_file import PARTITION_FILE, PartitionFile
from arena.bank.port import Bank
from arena.bank.sealed_stock import SealedStock
from arena.bank.stock import BatchStock
from arena.chain.keys import verify
from arena.chain.local import LocalSubtensor
from arena.chain.opening import open_beacon, open_timelock
from arena.chain.port import Beacon, Signer, Subtensor, Timelock
from arena.gate.isolation import inspect_isolated
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.report import GateReport
from arena.policy import Policy
from arena.race.schedule import coming_closes_ms
from harness.agents.registry import reference_agents
from harness.catalogue.engine import open_catalogue
from neurons.settings import Settings
from neurons.wiring import LOCAL_NETWORK, catalogue_path, policy_of, prepare_catalogue
from problems.canonical import text_hash
from problems.errors import ArenaError
from problems.model import BUCKETS, Bucket, Problem
from problems.product import Product
from problems.shipped_suites import shipped_answers
from problems.suites import read_problems, write_problems
from problems.synthesis import synthesize


def prepare_suite(settings: Settings, policy: Policy) -> tuple[Problem, ...]:
    """The active public suite of `policy`.

    Raises ArenaError P4001 when a real network's node has none, P4015 when its file holds fewer problems than the
    policy asks for, V2064 when a suite made here can't be written.
    """
    path = settings.state_dir / "suites" / f"{policy.qualifying.suite}-{policy.qualifying.problems}.jsonl"
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            found = read_problems(lines)
        if len(found) < policy.qualifying.problems:
            raise ArenaError("P4015", f"{path} holds {len(found)} problems of {policy.qualifying.problems}")
        return found
    if settings.network != LOCAL_NETWORK:
        raise ArenaError("P4001", f"no suite at {path}")
    problems = practice_problems(settings, policy.qualifying.suite, policy.qualifying.problems)
    draft = path.with_suffix(".draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text("".join(f"{line}\n" for line in write_problems(problems)), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ArenaError("V2064", f"{path}: {error.strerror or error}") from error
    return problems


async def prepare_local_chain(chain: Subtensor, signer: Signer) -> None:
    """On the local twin: register this validator's hotkey and put stake behind it."""
    if not isinstance(chain, LocalSubtensor):
        return
    await chain.register(signer)
    metagraph = await chain.metagraph()
    if not any(neuron.hotkey == signer.hotkey and neuron.has_validator_permit for neuron in metagraph.neurons):
        await chain.set_stake(signer.hotkey, 5 * chain.rules.permit_stake_rao)


def open_bank(
    settings: Settings,
    policy: Policy,
    suite: tuple[Problem, ...],
    beacon: Beacon,
    timelock: Timelock,
    signer: Signer | None = None,
) -> Bank:
    """The node's bank: the sealed batches of the key that the settings name, or a stock of its own.

    On the local network an empty stock makes problems nobody has seen, from secret randomness, and none of their
    answers is an answer of a public suite or of an earlier batch. `bank/partition.json`, where it stands, says which
    pool each of the node's own problems belongs to; without a `signer` nothing is entered there.
    """
    folder = settings.state_dir / "bank"
    if settings.bank_hotkey:
        return SealedStock(folder, settings.bank_hotkey, verify, timelock, beacon)
    public = shipped_answers().union(reward.product_id for problem in suite for reward in problem.rewards)

    def replenish(earlier: frozenset[str]) -> tuple[Problem, ...]:
        counts = _counts(policy.race.batch_problems)
        seed = secrets.randbits(256)  # ids and answers follow from it
        return synthesize(catalogue_products(settings), seed=seed, counts=counts, exclude=public | earlier)

    partition = folder / PARTITION_FILE
    return BatchStock(
        folder,
        secrets.token_bytes,
        replenish if settings.network == LOCAL_NETWORK else None,
        PartitionFile(partition, signer, verify).assign if signer and partition.exists() else None,
    )


def measure_stock(settings: Settings, now_ms: int) -> StockLevel:
    """How long the bank of the settings lasts for the policy's races; opens files of the state folder only.

    Raises ArenaError P4001 to P4010 for a stock file that can't be read, V2030 for an unknown policy.
    """
    policy = policy_of(settings)
    beacon = open_beacon(settings.network, lambda: now_ms)
    bank = open_bank(settings, policy, (), beacon, open_timelock(settings.network))
    return bank.level(coming_closes_ms(now_ms, policy.race, HORIZON_RACES), now_ms)


def practice_problems(settings: Settings, name: str, count: int) -> tuple[Problem, ...]:
    """`count` problems over the catalogue, seeded by `name`: the same for everybody who asks for that name."""
    seed = int(text_hash(f"agent-arena/suite/{name}")[:15], 16)
    return synthesize(catalogue_products(settings), seed=seed, counts=_counts(count))


def catalogue_products(settings: Settings) -> tuple[Product, ...]:
    """Every product of the open catalogue, by id."""
    return tuple(open_catalogue(catalogue_path(settings)).products())


def gate_knowledge(settings: Settings, policy: Policy, suite: tuple[Problem, ...]) -> GateKnowledge:
    """What the gate of this node knows: the catalogue's ids, the public suite's texts, the published agents."""
    return make_knowledge(
        open_catalogue(catalogue_path(settings)).product_ids(),
        (problem.query for problem in suite),
        (agent.source for agent in reference_agents() if agent.name != "cheater"),
        policy.gate,
    )


def gate_report(source: bytes, settings: Settings) -> GateReport:
    """The gate's report on a file, from the validator's own rules and knowledge (without other miners' agents)."""
    policy = policy_of(settings)
    prepare_catalogue(settings)
    knowledge = gate_knowledge(settings, policy, prepare_suite(settings, policy))
    return inspect_isolated(source, policy.gate, knowledge)


def _counts(total: int) -> dict[Bucket, int]:
    """`total` problems spread evenly over the buckets, the first ones taking what is left."""
    share, rest = divmod(total, len(BUCKETS))
    return {bucket: share + (place < rest) for place, bucket in enumerate(BUCKETS)}
