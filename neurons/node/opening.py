"""Opens one validator node from settings, and closes everything in the reverse order.

What can't be opened is a coded error before any loop starts, and nothing opened earlier is left running. On
the local network a node prepares what an operator otherwise provides: catalogue, suite and a stock of batches, which
are seeded with secret randomness, so that no one can compute them. On a real network nothing is made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import platform
import secrets
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from arena.bank.batch import SALT_BYTES, seal
from arena.bank.sealing import SealedFile, lock_batch
from arena.bank.stock import Bank
from arena.chain.keys import verify
from arena.chain.local import LocalSubtensor
from arena.chain.opening import local_chain_path, open_beacon, open_timelock
from arena.chain.port import LOCAL_NETWORK, Beacon, Signer, Subtensor, Timelock, is_local
from arena.chain.sender import held_as_validator
from arena.exchange.peer_service import PeerService
from arena.policy import Policy
from arena.race.admission import lone_race_refusal
from arena.race.draw import permitted_validators
from arena.race.machine import replay
from arena.records.model import Conditions, HostFacts
from arena.records.sequencer import Sequencer
from arena.store.embedded import embedded_server
from arena.store.location import StoreLocation, read_location, write_location
from arena.store.log_copy import take_copy
from arena.store.objects import BodyObjects, open_objects
from arena.store.postgres import PostgresStore
from foundation.codes import HOTKEY_IN_USE
from foundation.durable_files import coded
from foundation.errors import ArenaError, counted
from foundation.logs import get_logger
from harness.catalogue.server import listen
from harness.sandbox.port import SandboxLevel
from neurons.health.metrics import Metrics
from neurons.health.status import read_node_file
from neurons.loops.node import Node, Sharing, suite_variants
from neurons.loops.operator_files import OperatorFiles, held_sketches, operator_of
from neurons.loops.purse import Purse
from neurons.loops.serving import Serving, ServingSetup
from neurons.race.clock import RaceClock
from neurons.race.log import newest_race, owners_of
from neurons.race.peers import SharingLoop, exchange_port, open_sharing
from neurons.settings import inputs
from neurons.settings.endpoints import check_endpoints, chosen_endpoints, episode_costs, most_of_episode
from neurons.settings.inputs import chain_of, signer_of, unix_ms
from neurons.settings.settings import Endpoint, Settings
from neurons.worker.pool import WorkerPool
from neurons.worker.ports import episode_deadline_s, usable_memory_bytes, worker_count, worker_setup
from problems.model import SCORING_PIPELINE, Problem
from problems.suites import shipped_answers
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex

if TYPE_CHECKING:
    from arena.web.server import ExchangeServer

BODIES_LOOKED_FOR = 16


@contextlib.asynccontextmanager
async def open_node(settings: Settings, metrics: Metrics) -> AsyncIterator[Node]:
    """A node with its worker pool running.

    Raises ArenaError: V2001 (jail), V2010 (index), V2014 (address of tail, door, exchange or metrics), V2020 to V2024,
    V2026, V2028 and V2029 (store), V2080 (the copy of the log), V2027 (state folder), V2064 (sharing), V2030 (wallet,
    other settings), U3001 (model endpoint), U3030 (chain), U3048 and V2105 (the operator's files), V2040 (accepted
    titles of the suite), P4001, P4006, P4014 or P4010 (the suite), V2062 and U3035 (this node may not race), U3037,
    U3039 and V2032 (the chain has not what this release asks). The rows of `arena doctor` call what raises them.
    """
    stage = functools.partial(get_logger().info, "starting")
    signer, objects = require_settings(settings), open_bodies(settings)
    make_own_folder(settings.state_dir)
    require_ports(settings)
    chain = chain_of(settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(alone_on_host(settings, signer.hotkey))
        await prepare_local_chain(chain, signer)
        permitted = await require_permit(chain, signer.hotkey)
        stage(text="starting: the database")
        store, location = await _open_store(settings, signer.hotkey, objects, stack)
        sharing = await stack.enter_async_context(open_sharing(settings, signer, location))
        operator, operator_files = await operator_of(settings, chain), None
        if operator is not None:
            operator_files = OperatorFiles(settings, operator, signer.hotkey, chain, sharing, metrics)
            settings = await operator_files.start(await newest_race(store))
        policy = inputs.policy_of(settings)
        require_company(settings, policy, len(permitted))
        made = "" if inputs.catalogue_path(settings).exists() else " of synthetic products is made, once: about 20 s"
        stage(text=f"starting: the catalogue{made}")
        await asyncio.to_thread(inputs.prepare_catalogue, settings)
        upstreams, judges = chosen_endpoints(settings, policy)
        spending = policy, upstreams, judges
        if upstreams:
            await asyncio.to_thread(check_endpoints, upstreams, policy.inference.models)
        stage(text="starting: workers and their jails")
        pool = await _open_pool(settings, policy, upstreams, judges, stack)
        stage(text="starting: the public problems and the gate")
        suite = inputs.prepare_suite(settings, policy, signer.hotkey)
        beacon = open_beacon(settings.network, unix_ms)
        serving = open_serving(settings, location, policy, suite, stack)
        host, local_chain = HostFacts(machine=platform.machine(), cores=os.cpu_count() or 0), None
        if settings.local_chain_port and isinstance(chain, LocalSubtensor):
            from arena.web.server import ChainServer  # few nodes serve a chain; the servers of pages come with it

            listener = stack.enter_context(listen(settings.public_host, settings.local_chain_port))
            local_chain = ChainServer(chain, listener)
        yield Node(
            policy=policy,
            signer=signer,
            chain=chain,
            beacon=beacon,
            store=store,
            sequencer=Sequencer(store, signer, unix_ms, host),
            pool=pool,
            bank=open_bank(settings, policy, suite, beacon, open_timelock(settings.network), signer),
            suite=suite,
            knowledge=inputs.gate_knowledge(settings, policy, suite, held_sketches(settings)),
            conditions=Conditions(
                policy_sha256=policy.policy_sha256,
                scoring_pipeline=SCORING_PIPELINE,
                code_commit=inputs.code_commit(),
                sandbox=pool.sandbox,
            ),
            host=host,
            state_dir=settings.state_dir,
            now_ms=unix_ms,
            metrics=metrics,
            log=get_logger(),
            purse=Purse(store, settings.budget, most_of_episode(*spending), episode_costs(*spending), unix_ms),
            variants=suite_variants(suite, lambda: inputs.catalogue_products(settings)),
            serving=serving,
            operator_files=operator_files,
            local_chain=local_chain,
            sharing=sharing,
            upstreams=upstreams,
            judges=judges,
        )


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
    """The node's bank: the batches sealed by the key that the settings name, or else by the node's own.

    A real network's batches name their partition manifest and hold their accepted titles, else they serve no race
    (P4014). On the local network a node without an operator's key makes a batch where there is none, from secret
    randomness: problems nobody has seen, none of whose answers, nor a near-identical product, is an answer of a public
    suite or of an earlier batch. Without a `signer` the bank
    can only be looked at.
    """
    is_real, own = not is_local(settings.network), signer.hotkey if signer else ""
    bank_hotkey, folder = settings.bank_hotkey or own, settings.state_dir / "bank"
    open_it = functools.partial(Bank, folder, bank_hotkey, verify, timelock, beacon, is_real=is_real)
    if is_real or settings.bank_hotkey:
        return open_it()
    public = shipped_answers().union(reward.product_id for problem in suite for reward in problem.rewards)

    @functools.cache
    def maker() -> ProblemMaker:
        """Over one index of the open catalogue, built once and kept."""
        get_logger().info("index", text="an index is built, of which races' problems are made: about 20 s")
        made = ProblemMaker(TitleIndex(inputs.catalogue_products(settings)))
        made.exclude(public)
        return made

    def make(race_id: str, round_number: int, earlier: frozenset[str]) -> SealedFile:
        """A batch for one more race, readable from that round on; `earlier` are the product ids that answered. Raises
        ArenaError P4011 when the catalogue has no more."""
        assert signer is not None, "a bank that is only looked at seals nothing"
        maker().exclude(earlier)
        counts = inputs.spread_evenly(policy.race.batch_problems)
        made = maker().make(seed=secrets.randbits(256), counts=counts)  # ids and answers follow
        batch = seal(race_id, sorted(made, key=lambda problem: problem.problem_id), secrets.token_bytes(SALT_BYTES))
        return lock_batch(batch, round_number, timelock=timelock, signer=signer, made_ms=unix_ms())

    return open_it(make=make, prepare=maker)


def require_settings(settings: Settings) -> Signer:
    """The hotkey of settings that a node can start with, as far as they say it by themselves. Raises ArenaError V2030,
    also for a state folder that another hotkey's log was begun in: `arena records` would not find a second one; V2029
    for what is no location of bodies."""
    inputs.policy_of(settings)
    open_bodies(settings)
    signer, location = signer_of(settings), read_location(settings.state_dir)
    is_made = settings.network != LOCAL_NETWORK or local_chain_path(settings.state_dir).exists()
    if is_made or settings.mechanism or settings.wallet_proxy:  # asking for a new local chain would make it
        chain_of(settings)
    if settings.local_chain_port and settings.network != LOCAL_NETWORK:
        raise ArenaError("V2030", f"local_chain_port: the chain of {settings.network} is not this machine's to serve")
    if location is not None and location.validator != signer.hotkey:
        folder = settings.state_dir
        detail = f"state folder {folder} holds the log of {location.validator}, and --wallet.hotkey is {signer.hotkey}"
        raise ArenaError("V2030", detail, fix="give this hotkey a --state-dir of its own")
    if settings.share and exchange_port(settings) == settings.serve_port:
        detail = f"serve_port and the exchange both want port {settings.serve_port}: set another serve_port"
        raise ArenaError("V2030", detail)
    return signer


def alone_on_host(settings: Settings, hotkey: str) -> contextlib.AbstractContextManager[None]:
    """To be the one validator of a hotkey on a subnet; a local chain is its state folder's. Raises ArenaError V2024."""
    if is_local(settings.network):
        return contextlib.nullcontext()
    return held_as_validator(hotkey, settings.network, settings.netuid)


def require_ports(settings: Settings, *more: tuple[str, int]) -> None:
    """Raises ArenaError V2014 for a port that the settings name and another process, or another of them, has. `more`:
    addresses beside those that are opened late."""
    named = [settings.serve_port, settings.local_chain_port]
    named += [exchange_port(settings)] if settings.share else []
    places = [place for place in (*((settings.public_host, port) for port in named), *more) if place[1]]
    with contextlib.ExitStack() as stack:
        open_door(settings, stack)
        for host, port in places:
            stack.enter_context(listen(host, port))


def require_company(settings: Settings, policy: Policy, permitted: int) -> None:
    """Raises ArenaError V2062 where the policy wants the results of more validators than race with this one."""
    if refusal := None if settings.share else lone_race_refusal(policy, permitted):
        fix = "choose a policy that needs the results of one validator, or race with the others (`share`)"
        raise ArenaError("V2062", refusal, fix=fix)


async def require_permit(chain: Subtensor, hotkey: str) -> tuple[str, ...]:
    """Who holds a validator permit, this hotkey among them. Raises ArenaError U3035, U3030, U3037."""
    metagraph = await chain.metagraph()
    permitted = permitted_validators(metagraph)
    if hotkey not in permitted:
        uid = metagraph.uid_of(hotkey)
        detail = f"{hotkey} {'is not registered' if uid is None else 'has no permit'} on netuid {chain.netuid}"
        raise ArenaError("U3035", detail)
    return permitted


async def _open_pool(
    settings: Settings,
    policy: Policy,
    upstreams: tuple[Endpoint, ...],
    judges: tuple[Endpoint, ...],
    stack: contextlib.AsyncExitStack,
) -> WorkerPool:
    """The node's workers, running. Raises ArenaError V2001, V2062."""
    workers = worker_count(settings.workers, usable_memory_bytes(), policy.limits)
    if workers < settings.workers:
        get_logger().warning("node.workers_bounded", wanted=settings.workers, memory_holds=workers)
    setups = tuple(worker_setup(settings, policy, upstreams, judges, slot) for slot in range(workers))
    pool = WorkerPool(setups, episode_deadline_s(policy))
    stack.push_async_callback(pool.stop)
    await pool.start()
    require_racing_level(policy, pool.sandbox)
    return pool


def open_door(settings: Settings, stack: contextlib.ExitStack | contextlib.AsyncExitStack) -> socket.socket | None:
    """Where miners submit: the port that is set, on the local network else a free one. Raises ArenaError V2014."""
    if settings.door_port or is_local(settings.network):
        return stack.enter_context(listen(settings.public_host, settings.door_port))
    return None


def open_serving(
    settings: Settings,
    location: StoreLocation,
    policy: Policy,
    suite: tuple[Problem, ...],
    stack: contextlib.AsyncExitStack,
) -> Serving | None:
    """Public reads and live tail where the settings name a port for them, and the door, which on a real network takes
    a port, too; not yet serving. None where neither is asked for. Raises ArenaError V2014."""
    reads = stack.enter_context(listen(settings.public_host, settings.serve_port)) if settings.serve_port else None
    door = open_door(settings, stack)
    if reads is None and door is None:
        return None
    setup = ServingSetup(
        location=location,
        network=settings.network,
        netuid=settings.netuid,
        state_dir=str(settings.state_dir),
        policy=policy,
        suite=suite,
        catalogue_dir=str(inputs.catalogue_path(settings)),
        reads=reads.fileno() if reads else None,
        reads_port=settings.serve_port,
        is_sn15_served=settings.serve_sn15,
        door=door.fileno() if door else None,
        log_level=settings.log_level,
    )
    return Serving(setup, reads, door)


def open_bodies(settings: Settings) -> BodyObjects | None:
    """The object store that `bodies_url` names, unasked; None: bodies are kept in Postgres. Raises ArenaError V2029."""
    return open_objects(settings.bodies_url) if settings.bodies_url else None


async def _open_store(
    settings: Settings, hotkey: str, objects: BodyObjects | None, stack: contextlib.AsyncExitStack
) -> tuple[PostgresStore, StoreLocation]:
    """The node's store, to be had before the folders of the exchange: the hotkey's holder owns them.

    Refused is a place of bodies that can't be written to, and one that lacks the bodies that the log says lie
    elsewhere. Raises ArenaError V2020 to V2024, V2028, V2029.
    """
    dsn = settings.database_dsn.text
    kind: Literal["embedded", "external"] = "external"
    if not dsn:
        server = await stack.enter_async_context(embedded_server(settings.state_dir))
        dsn, kind = await asyncio.to_thread(server.dsn_for, hotkey), "embedded"
    try:
        store = await PostgresStore.open(dsn, hotkey, is_exclusive=True, objects=objects)
    except ArenaError as error:
        beat = read_node_file(settings.state_dir).beat if error.failure.code == HOTKEY_IN_USE else None
        if beat is None:
            raise
        raise ArenaError(
            HOTKEY_IN_USE, f"{error.failure.detail}, by pid {beat.process_id} since its last start"
        ) from error
    stack.push_async_callback(store.close)
    named = await store.some_bodies_elsewhere(BODIES_LOOKED_FOR)
    try:
        if objects is not None:
            await objects.require_writable(store.validator)
        if named and not (objects and await objects.get(store.validator, named)):
            place = objects.location if objects else "it is empty"
            raise ArenaError("V2029", f"{place}, and bodies of this log lie elsewhere; copy them there first")
        came = await take_copy(store, verify, lambda race, events: owners_of(replay(race, events)))
    except ArenaError as error:
        raise ArenaError(error.failure.code, f"bodies_url: {error.failure.detail}") from error
    if came:
        text = f"{counted(came, 'record')} that this store lacked came back from {settings.bodies_url}"
        get_logger().warning("log goes on from its copy", records=came, text=text)
    was = read_location(settings.state_dir)
    is_restored = was is not None and (was.kind, was.is_restored) == (kind, True)
    location = StoreLocation(kind=kind, validator=hotkey, dsn=dsn, objects=settings.bodies_url, is_restored=is_restored)
    write_location(settings.state_dir, location)
    return store, location


def make_own_folder(state_dir: Path) -> None:
    """Make the state folder, private: it holds other miners' sources. Raises ArenaError V2027 for one that can't be
    written."""
    with coded(f"state folder {state_dir}", "V2027"):
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = state_dir.stat()
        if facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_ISVTX:  # /tmp stays as it is
            state_dir.chmod(stat.S_IMODE(facts.st_mode) & (stat.S_IRWXU | stat.S_IXGRP))  # the group is the database's
        if not os.access(state_dir, os.W_OK | os.X_OK):
            raise PermissionError("it cannot be written to")


def require_racing_level(policy: Policy, level: SandboxLevel, fix: str = "") -> None:
    """Raises ArenaError V2062 where agents may not race in this jail, or under another Python than the policy's. `fix`:
    what would make a jail hold."""
    wanted, found = policy.guest.python_version, level.python_version
    if not policy.guest.is_racing_level_required:
        return
    if not level.may_race:
        raise ArenaError("V2062", f"level {level.name} may not race under policy {policy.name}", fix=fix)
    if found != wanted:
        detail = f"agents race on Python {wanted} under policy {policy.name}; this node is installed on {found}"
        fix = f"make clean install PYTHON=python{wanted} (none here: pip install uv && uv python install {wanted})"
        raise ArenaError("V2062", detail, fix=fix)


def open_exchange(node: Node, ports: Sharing, loop: SharingLoop, clock: RaceClock) -> ExchangeServer:
    """Where and what this node answers the other validators."""
    from arena.exchange.routes import Exchange
    from arena.web.server import ExchangeServer

    service = PeerService(
        ports.store,
        ports.peer_logs,
        has_permit=loop.has_permit,
        gate=clock.reveal_gate,
        progress=clock.progress,
        settled=clock.settlement,
        releases=node.operator_files.store if node.operator_files else None,
    )
    door_port = node.serving.door_port if node.serving else 0
    return ExchangeServer(Exchange(service, ports.auth, door_port=door_port), ports.listener)
