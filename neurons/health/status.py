"""What a node says of itself, what of it needs a person, and the page that says so.

`node.json` in the state folder holds the last heartbeat and, after the node's end, how it ended: replaced whole or not
at all, without a secret. `assess` is pure; every point carries a code of the registry, and only points that need a
person set `Status.needs_person`. Ages are compared with the node's own schedules and policy.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.race.forecast import Cost
from arena.records.model import StoredCheckpoint
from arena.records.port import StoreSize, WeightsResult
from foundation import codes
from foundation.canonical import UNREADABLE_JSON
from foundation.durable_files import write_whole
from foundation.errors import Failure, counted

FILE_NAME = "node.json"
_MODE = 0o600

CHECKPOINT_EVERY_S, ANCHOR_EVERY_S = 600, 3_600  # between two signatures of a log that grew, and two anchors on chain
DAYS_FORESEEN = 3_650  # beyond that a forecast of the disk says nothing
BANK_DAYS_MIN = 30  # a stock of batches that lasts for fewer is warned of


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop waits for: the failure it met last, how often in a row, and since when (unix milliseconds)."""

    loop: str
    code: str
    detail: str
    since_ms: int
    failures: int


class RestingSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A worker slot in which no worker could be started, `tries` times in a row, since `since_ms` (unix ms)."""

    slot: int
    since_ms: int
    tries: int
    failure: Failure


class ChainFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The chain as this node saw it last. `uid` None: not registered; `seen_ms` 0: never seen."""

    seen_ms: int = 0
    block: int = 0
    finalized_block: int = 0
    grew_ms: int = 0  # when the newest block was first seen
    uid: int | None = None
    has_permit: bool = False
    stake_rao: int = 0
    skew_ms: int = 0  # this host's clock less the newest block's, when that was first seen
    placed_block: int = 0  # at which uid, permit and stake were read; 0: never
    is_stale: bool = False


class PeerRules(msgspec.Struct, frozen=True, kw_only=True):
    """What another validator last said of its rules (`arena.exchange.port.Progress`)."""

    hotkey: str
    policy_sha256: str
    guest_sha256: str


class OperatorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's files as this node has them. `sequence` 0: no release was seen yet. `policy_waits` is the hash of
    a released policy that takes effect at the next start, "" for none."""

    operator: str
    sequence: int = 0
    release_sha256: str = ""
    files: int = 0
    lacking: int = 0
    policy_waits: str = ""
    unusable: tuple[str, ...] = ()  # files that can't be used here


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment. All times are unix milliseconds."""

    hotkey: str
    netuid: int
    process_id: int
    started_ms: int
    beat_ms: int
    policy: str
    policy_sha256: str
    guest_sha256: str
    sandbox: str
    code_commit: str
    records: int
    owed_verdicts: int
    chain: ChainFacts
    waits: tuple[Wait, ...] = ()
    peers: tuple[PeerRules, ...] = ()
    bank_until_ms: int | None = None  # when the bank's stock is used up; None: it can't run low, or isn't known
    resting: tuple[RestingSlot, ...] = ()  # worker slots in which none could be started
    unjudged: tuple[str, ...] = ()  # traces whose judging ended the workers of two slots
    not_ours: Failure | None = None  # why the race that ended last has another settlement than this node's, or none
    missed: Failure | None = None  # the same of the first race in a row for which this node only was not ready in time
    release: OperatorFacts | None = None  # None: this node takes nobody's files
    race_usd: float = 0.0  # caps on what models may cost; 0: none
    day_usd: float = 0.0
    capped: Failure | None = None  # the cap that stopped work of this race or of qualifying last


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a node ended: with a failure, or (None) on demand. `since_ms`: since when its process has waited for what the
    failure names, to start again; 0: it has ended, too."""

    at_ms: int
    failure: Failure | None = None
    since_ms: int = 0


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `log`: where what its process prints can be read; "" where that isn't known."""

    beat: Heartbeat | None = None
    ending: Ending | None = None
    log: str = ""


def skewed(beat: Heartbeat) -> tuple[PeerRules, ...]:
    """The peers that run under another policy or guest than this node."""
    own = (beat.policy_sha256, beat.guest_sha256)
    return tuple(peer for peer in beat.peers if (peer.policy_sha256, peer.guest_sha256) != own)


def write_node_file(state_dir: Path, content: NodeFile) -> None:
    """Replace the file in one step, with this process's log. Raises OSError when the folder can't be written."""
    write_whole(state_dir / FILE_NAME, msgspec.json.encode(replace(content, log=_own_log())), mode=_MODE)


def _own_log() -> str:
    with contextlib.suppress(OSError):
        number = sys.stderr.fileno()
        about = os.fstat(number)
        if os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}":
            return f"journalctl _PID={os.getpid()}"
        if stat.S_ISREG(about.st_mode):
            return str(Path(f"/proc/self/fd/{number}").readlink())
    return ""


def read_node_file(state_dir: Path) -> NodeFile:
    """What the node last said; an empty value where it never did, or where the file can't be understood."""
    try:
        return msgspec.json.decode((state_dir / FILE_NAME).read_bytes(), type=NodeFile)
    except (OSError, *UNREADABLE_JSON):
        return NodeFile()


SILENT_MS = 180_000  # of many heartbeats
OVERDUE_MS, WAITING_LONG_MS, STARTING_MS = 3_600_000, 1_800_000, 60_000
CLOCK_AHEAD_MS, CLOCK_BEHIND_MS = 60_000, 10_000  # a new block is seen late, and never early
CHECKPOINT_LATE, ANCHOR_LATE = 3, 4  # times their schedule
DISK_LEAST_BYTES = 2 << 30
LIMIT_LONG_BLOCKS = 720  # two tempos: no subnet's rate limit on weights is as long
DAY_MS = 86_400_000
# What is away for a while and comes back; anything else that a start waits for wants a person.
_OUTAGES = frozenset({codes.STORE_AWAY, "U3030", codes.CHAIN_STANDS, "V2028", codes.HOST_FAILED, codes.WORKER_DIED})
_ENDPOINTS = {
    codes.MODEL_FAILED: "openai_base_url or [[upstreams]]",
    codes.JUDGE_FAILED: "judge_base_url",
}  # where it is set


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """What happens next in a race, at the latest when (unix milliseconds)."""

    what: str
    at_ms: int


class RaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The current race. `stage` is that of `arena.race.machine`."""

    race_id: str
    stage: str
    deadline: Deadline | None = None
    open_items: int = 0
    reason: str = ""  # as its settlement states it


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says: how many records it has, the newest checkpoint and the newest one anchored on chain, and
    the latest tries to set weights, newest first."""

    hotkey: str
    records: int
    checkpoint: StoredCheckpoint | None = None
    anchor: StoredCheckpoint | None = None
    race: RaceFacts | None = None
    open_qualifying: int = 0
    weights: tuple[WeightsResult, ...] = ()
    size: StoreSize | None = None
    # what models cost by the ledger, inference and judging: today (UTC), and in the current race; empty: not asked for
    money: tuple[tuple[Cost, Cost], ...] = ()


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be. `is_urgent`: it waits for a person."""

    code: str
    about: str
    fix: str
    is_urgent: bool = True


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A node at `now_ms`: what it said of itself, what its store says, and the points that follow."""

    now_ms: int
    needs_person: bool
    is_running: bool
    points: tuple[Point, ...]
    node: NodeFile
    store: StoreFacts | None
    disk_free_bytes: int


def assess(
    now_ms: int, node: NodeFile, store: StoreFacts | None, disk_free_bytes: int, store_failure: Failure | None = None
) -> Status:
    """The status. `store` is None where it could not be read, for the reason `store_failure`."""
    is_running = node.beat is not None and node.ending is None and abs(now_ms - node.beat.beat_ms) <= SILENT_MS
    points = [] if is_running else list(_of_silence(now_ms, node))
    if disk_free_bytes < DISK_LEAST_BYTES:
        points.append(_point("V2115", f"{disk_free_bytes / (1 << 30):.1f} GiB free"))
    is_starting = node.ending is not None and node.ending.since_ms > 0 and now_ms - node.ending.at_ms <= SILENT_MS
    if store_failure is not None and not is_starting:  # a start that waits has perhaps no store yet
        points.append(_point(store_failure.code, store_failure.detail))
    if node.beat is not None:
        points += _of_running(now_ms, node.beat) if is_running else ()
        points += _of_beat(now_ms, node.beat)
    if store is not None:
        points += _of_store(now_ms, node.beat if node.ending is None else None, store)
    return Status(
        now_ms=now_ms,
        needs_person=any(point.is_urgent for point in points),
        is_running=is_running,
        points=tuple(sorted(points, key=lambda point: not point.is_urgent)),
        node=node,
        store=store,
        disk_free_bytes=disk_free_bytes,
    )


def _point(code: str, about: str, *, fix: str = "", is_urgent: bool = True) -> Point:
    entry = codes.lookup(code)
    text = f"{entry.title}: {about}" if about else entry.title
    return Point(code=code, about=text, fix=fix or entry.remedy, is_urgent=is_urgent)


def _of_silence(now_ms: int, node: NodeFile) -> Iterator[Point]:
    ending, fix = node.ending, ""
    if ending is not None and ending.failure is not None:
        failure, waited_ms = ending.failure, now_ms - ending.since_ms
        is_waiting = bool(ending.since_ms) and now_ms - ending.at_ms <= SILENT_MS
        is_outage = failure.code in _OUTAGES and waited_ms <= WAITING_LONG_MS
        about = f"{failure.detail}; the start has waited {duration(waited_ms)} for it"
        yield _point(failure.code, about if is_waiting else failure.detail, is_urgent=not (is_waiting and is_outage))
        if is_waiting:
            return
    if node.log:
        fix = f"read the end of its log ({node.log}), then start it: `arena validator`"
    elif node.beat is None and ending is None:
        fix = "name the node's folder by --state-dir or --config, or start it: `arena validator`"
    yield _point("V2116", _life(now_ms, node, is_running=False), fix=fix)


def _of_running(now_ms: int, beat: Heartbeat) -> Iterator[Point]:
    """What the last heartbeat says of chain, waits and slots, which only a running node has."""
    if not -CLOCK_BEHIND_MS <= beat.chain.skew_ms <= CLOCK_AHEAD_MS:
        where = "ahead of" if beat.chain.skew_ms > 0 else "behind"
        about = f"this host's clock is {duration(abs(beat.chain.skew_ms))} {where} the chain's newest block"
        fix = "set the clock: `timedatectl set-ntp true`; other validators refuse what a wrong one signs"
        yield Point(code=codes.HOST_LACKS, about=about, fix=fix)
    if beat.chain.is_stale:
        yield _point("U3034", f"block {beat.chain.block}")
    if beat.chain.placed_block and not beat.chain.has_permit:
        where = f"uid {beat.chain.uid} without a permit" if beat.chain.uid is not None else "not registered"
        yield _point("U3035", f"{where} at block {beat.chain.placed_block}")
    for wait in beat.waits:  # it mends itself, unless it has gone on for long or no retry can mend it (a broken file)
        waited_ms = now_ms - wait.since_ms
        about, is_long = f"{wait.loop} waits for {waited_ms // 60_000} min ({wait.detail})", waited_ms > WAITING_LONG_MS
        if (setting := _ENDPOINTS.get(wait.code)) is None:
            yield _point(wait.code, about, is_urgent=is_long or not codes.lookup(wait.code).is_retryable)
            continue
        fix = f"start the endpoint, and the node finds it by itself; or set {setting} to where it is and restart it"
        is_first = wait.since_ms - beat.started_ms < STARTING_MS  # silent from the start: it may have another address
        yield Point(code=wait.code, about=f"{about}; no agent loses by it", fix=fix, is_urgent=is_long or is_first)
    for slot in beat.resting:
        about = f"slot {slot.slot}, {slot.tries} tries: {slot.failure.code} {slot.failure.detail}".rstrip()
        yield _point(codes.SLOT_RESTS, about, is_urgent=now_ms - slot.since_ms > WAITING_LONG_MS)


def _of_beat(now_ms: int, beat: Heartbeat) -> Iterator[Point]:
    """What the last heartbeat says that stays true after the node's end."""
    if beat.not_ours is not None:
        yield _point(beat.not_ours.code, beat.not_ours.detail)
    if beat.missed is not None:
        yield _point(beat.missed.code, beat.missed.detail, is_urgent=False)
    if beat.capped is not None:
        yield _point(codes.CAP_REACHED, f"{beat.capped.detail}; what it stopped counts for nobody", is_urgent=False)
    for about in beat.unjudged:
        yield _point(codes.JOB_QUARANTINED, about, is_urgent=False)
    if others := skewed(beat):  # urgent when it is most of them, since then it is us
        about = f"{len(others)} of {len(beat.peers)} others"
        yield _point("U3036", about, is_urgent=2 * len(others) > len(beat.peers))
    if beat.bank_until_ms is not None and beat.bank_until_ms - now_ms < BANK_DAYS_MIN * DAY_MS:
        about = f"the stock lasts {duration(beat.bank_until_ms - now_ms)}; {BANK_DAYS_MIN} days are wanted"
        yield _point(codes.NO_BATCH_LEFT, about)
    if (release := beat.release) is None:
        return
    for about in release.unusable:
        yield _point(codes.FILE_UNUSABLE, about)
    if release.policy_waits:
        yield _point(codes.POLICY_WAITS, f"{release.policy_waits[:12]} takes effect at the next start")
    if release.lacking:
        about = f"{release.lacking} of the {release.files} files of release {release.sequence}"
        yield _point(codes.FILES_LACKING, about, is_urgent=False)


def _of_store(now_ms: int, beat: Heartbeat | None, store: StoreFacts) -> Iterator[Point]:
    """What is late although there is something to do, and refusals of weights that no wait mends."""
    size, anchored = (point.size if point else 0 for point in (store.checkpoint, store.anchor))
    if beat is not None:
        signed_ms, anchored_ms = (
            max(point.signed_ms if point else 0, beat.started_ms) for point in (store.checkpoint, store.anchor)
        )
        if store.records > size and now_ms - signed_ms > 1_000 * CHECKPOINT_LATE * CHECKPOINT_EVERY_S:
            yield _point("V2117", f"records after {size} are not signed")
        if size > anchored and now_ms - anchored_ms > 1_000 * ANCHOR_LATE * ANCHOR_EVERY_S:
            yield _point("V2117", f"records after {anchored} are not anchored on chain")
    race = store.race
    if race is not None and race.deadline is not None and now_ms - race.deadline.at_ms > OVERDUE_MS:
        hours = (now_ms - race.deadline.at_ms) // 3_600_000
        yield _point("V2117", f"{race.race_id} is {race.stage}; {race.deadline.what} {hours} h ago")
    if not store.weights or store.weights[0].status == "ok":
        return
    latest = store.weights[0]
    refused = next((n for n, row in enumerate(store.weights) if row.status == "ok"), len(store.weights))
    about, waited = f"weights of {latest.race_id}: ", latest.block - store.weights[refused - 1].block
    if latest.status != "rate_limited":
        code = "U3035" if latest.status == "not_registered" else "U3031"
        yield _point(code, f"{about}{latest.detail or latest.status} ({refused} tries)")
        return
    about = f"Weights of {latest.race_id} wait for the chain's rate limit: {latest.detail}"
    if waited > LIMIT_LONG_BLOCKS:
        yield _point("U3031", f"{about}; tried for {waited} blocks, longer than a limit lasts")
    else:
        yield Point(code="U3031", about=about, fix="nothing to do, it is retried by itself", is_urgent=False)


_SHORT = 12  # digits of a hash


def page(status: Status) -> str:
    """The page. Times are UTC."""
    beat, store, now_ms = status.node.beat, status.store, status.now_ms
    hotkey = beat.hotkey if beat else store.hotkey if store else "no hotkey known"
    verdict = "NEEDS A PERSON" if status.needs_person else "all is well"
    lines = [f"{verdict} · validator {hotkey}" + (f" on netuid {beat.netuid}" if beat else "")]
    rows = [("node", _life(now_ms, status.node, is_running=status.is_running))]
    if beat is not None:
        guest = beat.guest_sha256[:_SHORT] or "none"
        rules = f"policy {beat.policy} {beat.policy_sha256[:_SHORT]}, guest {guest}, jail {beat.sandbox}"
        rows += [("rules", rules), ("chain", _chain(beat, now_ms))]
    if store is not None:
        race = store.race
        text = f"{race.race_id} {race.stage}" if race else "none opened yet"
        text += f": {race.reason}" if race and race.reason else ""
        if race and race.deadline:
            text += f"; {race.deadline.what} {moment(race.deadline.at_ms)}"
        work = f"{race.open_items if race else 0} of the race open, {store.open_qualifying} of qualifying open"
        work += f", {counted(beat.owed_verdicts, 'verdict')} owed" if beat else ""
        rows += [("log", _log(store, now_ms)), ("race", text), ("work", work), ("weights", _weights(store, beat))]
        rows += [("money", _money(store, beat))] if store.money else []
    if beat is not None:
        peers = f"{len(beat.peers)} heard, {len(skewed(beat))} under other rules"
        bank = "made here when it is empty, or not measured"
        if beat.bank_until_ms is not None:
            bank = f"{duration(beat.bank_until_ms - now_ms)} left, {BANK_DAYS_MIN} d wanted"
        rows += [("peers", peers if beat.peers else "none heard of"), ("bank", bank)]
        rows += [("release", _release(beat.release))] if beat.release else []
    rows.append(("disk", _disk(status.disk_free_bytes, store.size if store else None)))
    lines += [f"  {name:<8}{text}" for name, text in rows]
    for heading, is_urgent in (("needs a person", True), ("mends itself", False)):
        points = [point for point in status.points if point.is_urgent is is_urgent]
        lines += ["", heading] if points else []
        for point in points:
            lines += [f"  {point.code}  {point.about}", f"         fix: {point.fix}"]
    return "\n".join(lines)


def moment(at_ms: int) -> str:
    """`Sun 22 Nov 2026 03:00 UTC`."""
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%a %d %b %Y %H:%M} UTC"


def duration(milliseconds: int) -> str:
    """How long, in its two largest units: `12 s`, `1 min 25 s`, `3 h 5 min`, `5 d 2 h`."""
    seconds = max(0, milliseconds) // 1_000
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def dollars(micro_usd: int | None) -> str:
    """`$0.0123`, or that a price is not known."""
    return "$? (no price)" if micro_usd is None else f"${micro_usd / 1_000_000:,.4f}"


def _money(store: StoreFacts, beat: Heartbeat | None) -> str:
    caps = (beat.day_usd, beat.race_usd) if beat else (0, 0)
    parts = zip(("today", store.race.race_id if store.race else ""), store.money, caps, strict=True)
    return "; ".join(
        f"{name} {dollars(inference.plus(judging).micro_usd)}{f' of ${cap:,.2f}' if cap else ''}"
        f" (judges {dollars(judging.micro_usd)})"
        for name, (inference, judging), cap in parts
        if name
    )


def _life(now_ms: int, node: NodeFile, *, is_running: bool) -> str:
    beat, ending = node.beat, node.ending
    if ending is not None:
        how = f"ended with {ending.failure.code}" if ending.failure else "stopped"
        if ending.failure and ending.since_ms and now_ms - ending.at_ms <= SILENT_MS:
            how = f"not running yet, has waited {duration(now_ms - ending.since_ms)}; last tried"
        return f"{how} {duration(now_ms - ending.at_ms)} ago, {moment(ending.at_ms)}"
    if beat is None:
        return "never ran with this state folder"
    age_ms = now_ms - beat.beat_ms
    age = f"{duration(abs(age_ms))} {'ago' if age_ms >= 0 else 'ahead of this clock'}"
    if not is_running:
        return f"SILENT (pid {beat.process_id}), last heartbeat {age}"
    return f"running (pid {beat.process_id}), up {duration(now_ms - beat.started_ms)}, heartbeat {age}"


def _chain(beat: Heartbeat, now_ms: int) -> str:
    chain = beat.chain
    if not chain.seen_ms:
        return "not seen yet"
    place = "not registered" if chain.uid is None else f"uid {chain.uid}, {'' if chain.has_permit else 'NO '}permit"
    behind = chain.block - chain.finalized_block
    return f"{place}; block {chain.block} ({duration(now_ms - chain.grew_ms)} old, {behind} not final)"


def _disk(free_bytes: int, size: StoreSize | None) -> str:
    text = f"{free_bytes / (1 << 30):.1f} GiB free"
    if size is None:
        return text
    text += f"; database {size.bytes / (1 << 30):.2f} GiB"
    if not size.day_bytes:
        return text
    days = free_bytes // size.day_bytes
    return f"{text}, {size.day_bytes / (1 << 20):.1f} MiB more a day: {min(days, DAYS_FORESEEN)} days of that fit here"


def _release(release: OperatorFacts) -> str:
    if not release.sequence:
        return f"none seen of operator {release.operator}"
    text = f"{release.sequence} ({release.release_sha256[:_SHORT]}) of operator {release.operator[:8]}…"
    return f"{text}: {release.files - release.lacking} of {release.files} files here"


def _log(store: StoreFacts, now_ms: int) -> str:
    signed, anchored = "none signed", "none anchored"
    if point := store.checkpoint:
        signed = f"{point.size} signed {duration(now_ms - point.signed_ms)} ago"
    if point := store.anchor:
        anchored = f"{point.size} anchored in block {point.anchor_block}, {duration(now_ms - point.signed_ms)} old"
    return f"{counted(store.records, 'record')}; {signed}; {anchored}"


def _weights(store: StoreFacts, beat: Heartbeat | None) -> str:
    if not store.weights:
        return "never tried"
    latest, last_ok = store.weights[0], next((row for row in store.weights if row.status == "ok"), None)
    age = f", {beat.chain.block - latest.block} blocks ago" if beat and beat.chain.block >= latest.block else ""
    where = f"for {latest.race_id} in block {latest.block}{age}"
    if last_ok is latest:
        return f"set {where}"
    text = f"{latest.status.replace('_', ' ')} {where}"
    if last_ok is None:
        return f"{text}; last set before the latest tries"
    return f"set for {last_ok.race_id} in block {last_ok.block}; {text}"
