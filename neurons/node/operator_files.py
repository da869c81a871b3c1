"""How a node starts with the operator's files: asks the other validators, places what it got, completes its settings.

A node that names its operator and no policy waits until it has a whole release, and starts under its policy;
every other node asks once, briefly. A race past its close under another policy than the released one is first
finished under its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from arena.chain.keys import canonical_hotkey, verify
from arena.chain.port import Signer, Subtensor
from arena.exchange.operator_files import FilesRelease, Operator, ReleaseStore, of_operator
from arena.exchange.pull import ReleasePuller
from arena.policy import Policy
from arena.race.machine import runs_under_another
from arena.store.postgres import PostgresStore
from foundation.backoff import Backoff
from foundation.codes import FILES_LACKING, POLICY_WAITS
from foundation.errors import ArenaError
from neurons.loops.node import OperatorFiles, Sharing
from neurons.race.log import race_names, read_state
from neurons.race.sharing import log_turn, peers_of
from neurons.settings.released import (
    AT_START,
    NOBODY,
    complete_settings,
    open_releases,
    place_files,
    released_policy,
    write_policy,
)
from neurons.settings.settings import Settings

START_S = 30.0  # for a node that could start with what it has
PAUSES = Backoff(first_ms=1_000, most_ms=5_000)  # a start waits for it


async def take_operator_files(
    settings: Settings,
    signer: Signer,
    chain: Subtensor,
    store: PostgresStore,
    sharing: Sharing | None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[Settings, OperatorFiles | None]:
    """The settings as the operator's newest whole release completes them, and what the node keeps of it.

    Raises ArenaError V2030 for a malformed operator's key, U3048 where the node has to wait and has nobody to ask,
    V2105 for a policy that this software does not know, V2064, V2115, U3030.
    """
    operator = await operator_of(settings, chain)
    if operator is None:
        return settings, None
    releases = open_releases(settings.state_dir)
    release = await _first_release(settings, operator, releases, signer, chain, sharing, sleep)
    if release is None:
        return settings, OperatorFiles(operator=operator, store=releases, settings=settings)
    completed = await asyncio.to_thread(complete_settings, settings, releases, release)
    log = structlog.get_logger()
    for failure in await asyncio.to_thread(place_files, completed, releases, release, (*AT_START, "batch")):
        log.warning("operator's file", code=failure.code, detail=failure.detail)
    policy_sha256 = ""
    if not settings.policy and (policy := released_policy(releases, release)) is not None:
        policy_sha256 = policy.policy_sha256
        if (raced := await _unfinished_policy(store, policy)) is not None:
            path = await asyncio.to_thread(write_policy, settings.state_dir, raced, raced.policy_sha256)
            completed = completed.model_copy(update={"policy": str(path)})
            log.warning(
                "policy of the release waits: a race past its close is finished under its own",
                code=POLICY_WAITS,
                now=raced.policy_sha256[:12],
                released=policy_sha256[:12],
            )
            policy_sha256 = raced.policy_sha256
    log.info(
        "started with the operator's files",
        operator=operator.hotkey,
        release=release.sequence,
        sha256=release.release_sha256[:16],
        files=len(release.files),
        policy=policy_sha256[:12] or f"setting {settings.policy or 'default'}",
    )
    return completed, OperatorFiles(
        operator=operator, store=releases, settings=settings, started_with=release, policy_sha256=policy_sha256
    )


async def operator_of(settings: Settings, chain: Subtensor) -> Operator | None:
    """Whose files this node takes: the key that the settings name, else the subnet owner's. None: nobody's.

    Raises ArenaError V2030 for a malformed key, U3030, U3037.
    """
    if settings.operator_hotkey == NOBODY:
        return None
    named = settings.operator_hotkey or await chain.owner_hotkey()
    hotkey = canonical_hotkey(named) if named else None
    if named and hotkey is None:
        raise ArenaError("V2030", f"operator_hotkey {named!r} is no ss58 address")
    return Operator(hotkey=hotkey, netuid=chain.netuid) if hotkey else None


async def _first_release(
    settings: Settings,
    operator: Operator,
    releases: ReleaseStore,
    signer: Signer,
    chain: Subtensor,
    sharing: Sharing | None,
    sleep: Callable[[float], Awaitable[None]],
) -> FilesRelease | None:
    """The newest whole release to be had now; for a node that can't start without one, whenever it comes."""
    puller = ReleasePuller(sharing.peers, releases, operator, verify) if sharing else None
    must_wait, said, failures = bool(settings.operator_hotkey) and not settings.policy, set[tuple[str, str]](), 0
    log = structlog.get_logger()
    while True:
        whole = of_operator(releases.whole(), operator)
        if puller is not None:
            limit_s = None if must_wait and whole is None else START_S
            try:
                async with asyncio.timeout(limit_s):
                    peers = peers_of(await chain.metagraph(), signer.hotkey)
                    log_turn(await puller.turn(peers), releases, said)
            except TimeoutError:
                log.info("operator's files are fetched while the node runs", seconds=limit_s)
            except ArenaError as error:
                if not error.entry.is_retryable:
                    raise
                log.warning("operator's files", code=error.failure.code, detail=error.failure.detail)
            whole = of_operator(releases.whole(), operator)
        if whole is not None or not must_wait:
            return whole.release if whole else None
        lacking = f"no whole release of {operator.hotkey} for netuid {operator.netuid} in {releases.folder}"
        if puller is None:
            detail = f"{lacking}, and this node shares no races: `arena operator publish`, or set policy"
            raise ArenaError(FILES_LACKING, detail)
        failures += 1
        pause_s = PAUSES.pause_ms(failures) / 1_000
        log.warning("waiting for the operator's files", code=FILES_LACKING, detail=lacking, seconds=pause_s)
        await sleep(pause_s)


async def _unfinished_policy(store: PostgresStore, policy: Policy) -> Policy | None:
    """The policy of the newest race, where that is past its close under another than `policy` and not settled."""
    for name in (await race_names(store))[-1:]:
        state = await read_state(store, name)
        if state.opened is not None and runs_under_another(state, policy) and state.stage != "open":
            return state.opened.policy
    return None
