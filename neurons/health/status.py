"""What an operator has to know of a node, which of it needs a person, and the page that says so.

Pure. `assess` says the same of the same facts at the same moment; every point carries a code of the registry,
so that `arena explain` has more. Points that need a person are kept apart from those that mend themselves; only the
former set `Status.needs_person`. Ages are compared with the node's own schedules and policy.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import msgspec

from arena.records.port import WeightsResult
from foundation.codes import lookup
from foundation.codes.names import (
    FILE_UNUSABLE,
    FILES_LACKING,
    JOB_QUARANTINED,
    JUDGE_FAILED,
    MODEL_FAILED,
    NO_BATCH_LEFT,
    POLICY_WAITS,
    SLOT_RESTS,
)
from foundation.errors import Failure
from neurons.health.node_file import (
    ANCHOR_EVERY_S,
    BANK_DAYS_MIN,
    CHECKPOINT_EVERY_S,
    Heartbeat,
    NodeFile,
    OperatorFacts,
    Wait,
    skewed,
)

SILENT_MS = 180_000  # six heartbeats
OVERDUE_MS = 3_600_000
WAITING_LONG_MS = 1_800_000
STARTING_MS = 60_000
CHECKPOINT_LATE, ANCHOR_LATE = 3, 4  # times their schedule
DISK_LEAST_BYTES = 2 << 30
LIMIT_LONG_BLOCKS = 720  # two tempos: no subnet's rate limit on weights is as long
DAY_MS = 86_400_000
# What the silence of an endpoint costs, by the code of whoever waits for it, and where its address is set.
_ENDPOINTS = {
    MODEL_FAILED: ("no agent's run ends before it answers, and none loses by it", "openai_base_url or [[upstreams]]"),
    JUDGE_FAILED: ("traces are kept, and their verdicts owed until it answers", "judge_base_url"),
}


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """What happens next in a race, at the latest when (unix milliseconds)."""

    what: str
    at_ms: int


class RaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The current race. `stage` is that of `arena.race.machine`."""

    race_id: str
    stage: str
    timezone: str = "America/Los_Angeles"
    deadline: Deadline | None = None
    open_items: int = 0


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says. Sizes are numbers of records; times unix milliseconds, 0 where there is nothing."""

    hotkey: str
    records: int
    checkpoint_size: int = 0
    checkpoint_ms: int = 0
    anchor_size: int = 0
    anchor_ms: int = 0
    anchor_block: int = 0
    race: RaceFacts | None = None
    open_qualifying: int = 0
    weights: tuple[WeightsResult, ...] = ()  # newest first


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
    points = _of_life(now_ms, node, is_running)
    if disk_free_bytes < DISK_LEAST_BYTES:
        points.append(_point("V2115", f"{disk_free_bytes / (1 << 30):.1f} GiB free"))
    if store_failure is not None:
        points.append(_point(store_failure.code, store_failure.detail))
    if node.beat is not None:
        points += _of_beat(now_ms, node.beat, is_running)
    if store is not None:
        points += _of_store(now_ms, node, store)
    return Status(
        now_ms=now_ms,
        needs_person=any(point.is_urgent for point in points),
        is_running=is_running,
        points=tuple(sorted(points, key=lambda point: not point.is_urgent)),
        node=node,
        store=store,
        disk_free_bytes=disk_free_bytes,
    )


def _point(code: str, about: str, *, is_urgent: bool = True) -> Point:
    entry = lookup(code)
    return Point(
        code=code, about=f"{entry.title}: {about}" if about else entry.title, fix=entry.remedy, is_urgent=is_urgent
    )


def _of_life(now_ms: int, node: NodeFile, is_running: bool) -> list[Point]:
    if is_running:
        return []
    if node.ending is not None:
        failure = node.ending.failure
        if failure is None:
            return [_point("V2116", "it was stopped and has not been started again")]
        return [_point(failure.code, failure.detail), _point("V2116", f"it ended with {failure.code}")]
    if node.beat is None:
        return [_point("V2116", "it never ran with this state folder")]
    minutes = (now_ms - node.beat.beat_ms) // 60_000
    age = f"{minutes} minutes old" if minutes >= 0 else f"{-minutes} minutes ahead of this host's clock"
    return [_point("V2116", f"its last heartbeat is {age}")]


def _of_beat(now_ms: int, beat: Heartbeat, is_running: bool) -> list[Point]:
    """What the node's last heartbeat says; of chain and waits only while it runs."""
    points: list[Point] = []
    if is_running and beat.chain.is_stale:
        points.append(_point("U3034", f"block {beat.chain.block}"))
    if is_running and beat.chain.placed_block and not beat.chain.has_permit:
        where = f"uid {beat.chain.uid} without a permit" if beat.chain.uid is not None else "not registered"
        points.append(_point("U3035", f"{where} at block {beat.chain.placed_block}"))
    points += [_of_wait(now_ms, beat, wait) for wait in beat.waits if is_running]
    for slot in beat.resting if is_running else ():
        about = f"slot {slot.slot}, {slot.tries} tries: {slot.failure.code} {slot.failure.detail}".rstrip()
        points.append(_point(SLOT_RESTS, about, is_urgent=now_ms - slot.since_ms > WAITING_LONG_MS))
    for trace in beat.unjudged:
        where = f"record {trace.seq} of {trace.race_id or 'qualifying'}, body {trace.body_sha256}"
        about = f"{where} is not judged; see `arena judge explain {trace.seq}`"
        points.append(_point(JOB_QUARANTINED, about, is_urgent=False))
    if others := skewed(beat):  # urgent when it is most of them, since then it is us
        about = f"{len(others)} of {len(beat.peers)} others"
        points.append(_point("U3036", about, is_urgent=2 * len(others) > len(beat.peers)))
    if beat.bank_until_ms is not None and beat.bank_until_ms - now_ms < BANK_DAYS_MIN * DAY_MS:
        days = max(0, beat.bank_until_ms - now_ms) // DAY_MS
        about = f"the bank's stock lasts {days} days; {BANK_DAYS_MIN} are wanted"
        points.append(Point(code=NO_BATCH_LEFT, about=about, fix=lookup(NO_BATCH_LEFT).remedy))
    return points + (_of_release(beat.release) if beat.release else [])


def _of_wait(now_ms: int, beat: Heartbeat, wait: Wait) -> Point:
    """It mends itself, unless it has gone on for long; an endpoint that was silent from the start may have another
    address."""
    minutes, is_long = (now_ms - wait.since_ms) // 60_000, now_ms - wait.since_ms > WAITING_LONG_MS
    if (endpoint := _ENDPOINTS.get(wait.code)) is None:
        return _point(wait.code, f"{wait.loop} waits for {minutes} min ({wait.detail})", is_urgent=is_long)
    cost, setting = endpoint
    about = f"{wait.detail}; silent for {minutes} min. It is no agent's fault: {cost}. The node goes on with all else"
    fix = f"start the endpoint, and the node finds it by itself; or set {setting} to where it is and restart the node"
    is_first = wait.since_ms - beat.started_ms < STARTING_MS
    return Point(code=wait.code, about=about, fix=fix, is_urgent=is_long or is_first)


def _of_release(release: OperatorFacts) -> list[Point]:
    """What waits of the operator's files; a restart and a fault of the operator's wait for a person."""
    points = [_point(FILE_UNUSABLE, about) for about in release.unusable]
    if release.policy_waits:
        points.append(_point(POLICY_WAITS, f"{release.policy_waits[:12]} takes effect at the next start"))
    if release.lacking:
        about = f"{release.lacking} of the {release.files} files of release {release.sequence}"
        points.append(_point(FILES_LACKING, about, is_urgent=False))
    return points


def _of_store(now_ms: int, node: NodeFile, store: StoreFacts) -> list[Point]:
    """What is late although there is something to do, and refusals of weights that no wait mends."""
    beat, points = node.beat, []
    if beat is not None and node.ending is None:
        signed_ms, anchored_ms = max(store.checkpoint_ms, beat.started_ms), max(store.anchor_ms, beat.started_ms)
        signing_s, anchoring_s = CHECKPOINT_LATE * CHECKPOINT_EVERY_S, ANCHOR_LATE * ANCHOR_EVERY_S
        if store.records > store.checkpoint_size and now_ms - signed_ms > 1_000 * signing_s:
            points.append(_point("V2117", f"records after {store.checkpoint_size} are not signed"))
        if store.checkpoint_size > store.anchor_size and now_ms - anchored_ms > 1_000 * anchoring_s:
            points.append(_point("V2117", f"records after {store.anchor_size} are not anchored on chain"))
    race = store.race
    if race is not None and race.deadline is not None and now_ms - race.deadline.at_ms > OVERDUE_MS:
        hours = (now_ms - race.deadline.at_ms) // 3_600_000
        points.append(_point("V2117", f"{race.race_id} is {race.stage}; {race.deadline.what} {hours} h ago"))
    if store.weights and store.weights[0].status != "ok":
        latest = store.weights[0]
        refused = next((n for n, row in enumerate(store.weights) if row.status == "ok"), len(store.weights))
        about = f"weights of {latest.race_id}: {latest.detail or latest.status} ({refused} tries)"
        if latest.status == "not_registered":
            points.append(_point("U3035", about))
        elif latest.status == "failed":
            points.append(_point("U3031", about))
        else:
            waited = latest.block - store.weights[refused - 1].block
            about = f"Weights of {latest.race_id} wait for the chain's rate limit: {latest.detail}"
            fix = "nothing to do, it is retried by itself"
            if waited > LIMIT_LONG_BLOCKS:
                points.append(_point("U3031", f"{about}; tried for {waited} blocks, longer than a limit lasts"))
            else:
                points.append(Point(code="U3031", about=about, fix=fix, is_urgent=False))
    return points


_SHORT = 12  # digits of a hash
_PACIFIC = "America/Los_Angeles"


def page(status: Status, local: tzinfo | None = None) -> str:
    """The page. `local` is the reader's time zone; None: this host's."""
    beat, store = status.node.beat, status.store
    hotkey = beat.hotkey if beat else store.hotkey if store else "no hotkey known"
    verdict = "NEEDS A PERSON" if status.needs_person else "all is well"
    lines = [f"{verdict} · validator {hotkey}" + (f" on netuid {beat.netuid}" if beat else "")]
    rows = [("node", _life(status, local))]
    if beat is not None:
        guest = beat.guest_sha256[:_SHORT] or "none"
        rules = f"policy {beat.policy} {beat.policy_sha256[:_SHORT]}, guest {guest}, jail {beat.sandbox}"
        rows += [("rules", rules), ("chain", _chain(beat, status.now_ms))]
    if store is not None:
        race = store.race
        text = f"{race.race_id} {race.stage}" if race else "none opened yet"
        if race and race.deadline:
            text += f"; {race.deadline.what} {moment(race.deadline.at_ms, race.timezone, local)}"
        rows += [("log", _log(store, status.now_ms)), ("race", text)]
        work = f"{race.open_items if race else 0} of the race open, {store.open_qualifying} of qualifying open"
        rows += [("work", work + (f", {beat.owed_verdicts} verdicts owed" if beat else ""))]
        rows += [("weights", _weights(store, beat))]
    if beat is not None:
        bank = "made here when it is empty, or not measured"
        if beat.bank_until_ms is not None:
            days = max(0, beat.bank_until_ms - status.now_ms) // DAY_MS
            bank = f"{days} days left, {BANK_DAYS_MIN} wanted"
        others = skewed(beat)
        named = ", ".join(f"{peer.hotkey[:8]}… {peer.policy_sha256[:_SHORT]}" for peer in others[:4])
        peers = f"{len(beat.peers)} heard, {len(others)} under other rules" + (f": {named}" if others else "")
        rows += [("peers", peers if beat.peers else "none heard of"), ("bank", bank)]
        if beat.release is not None:
            rows.append(("release", _release(beat.release)))
    rows.append(("disk", f"{status.disk_free_bytes / (1 << 30):.1f} GiB free"))
    lines += [f"  {name:<8}{text}" for name, text in rows]
    for heading, is_urgent in (("needs a person", True), ("mends itself", False)):
        points = [point for point in status.points if point.is_urgent is is_urgent]
        if points:
            lines += ["", heading]
            lines += [
                line for point in points for line in (f"  {point.code}  {point.about}", f"         fix: {point.fix}")
            ]
    return "\n".join(lines)


def moment(at_ms: int, zone_name: str, local: tzinfo | None) -> str:
    """A moment in local time and in the races' time: `Sun 22 Nov 2026 04:00 CET (Sat 19:00 PST)`."""
    here = datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(local)
    there = here.astimezone(ZoneInfo(zone_name))
    return f"{here:%a %d %b %Y %H:%M %Z} ({there:%a %d %b %H:%M %Z})"


def duration(milliseconds: int) -> str:
    """How long, in its two largest units: `12 s`, `1 min 25 s`, `3 h 5 min`, `5 d 2 h`."""
    seconds = max(0, milliseconds) // 1_000
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def _life(status: Status, local: tzinfo | None) -> str:
    beat, ending = status.node.beat, status.node.ending
    if ending is not None:
        how = f"ended with {ending.failure.code}" if ending.failure else "stopped"
        return f"{how} {duration(status.now_ms - ending.at_ms)} ago, {moment(ending.at_ms, _PACIFIC, local)}"
    if beat is None:
        return "never ran with this state folder"
    age, up = duration(status.now_ms - beat.beat_ms), duration(status.now_ms - beat.started_ms)
    if not status.is_running:
        return f"SILENT (pid {beat.process_id}), last heartbeat {age} ago"
    return f"running (pid {beat.process_id}), up {up}, heartbeat {age} ago"


def _chain(beat: Heartbeat, now_ms: int) -> str:
    chain = beat.chain
    if not chain.seen_ms:
        return "not seen yet"
    place = "not registered" if chain.uid is None else f"uid {chain.uid}, {'' if chain.has_permit else 'NO '}permit"
    behind = chain.block - chain.finalized_block
    return f"{place}; block {chain.block} ({duration(now_ms - chain.grew_ms)} old, {behind} not final)"


def _release(release: OperatorFacts) -> str:
    if not release.sequence:
        return f"none seen of operator {release.operator}"
    text = f"{release.sequence} ({release.release_sha256[:_SHORT]}) of operator {release.operator[:8]}…: "
    text += f"{release.files - release.lacking} of {release.files} files here"
    if release.lacking and release.whole_sequence:
        text += f"; {release.whole_sequence} is whole"
    waits = f"; its policy {release.policy_waits[:_SHORT]} takes effect at the next start"
    return text + (waits if release.policy_waits else "")


def _log(store: StoreFacts, now_ms: int) -> str:
    signed = f"{store.checkpoint_size} signed {duration(now_ms - store.checkpoint_ms)} ago"
    anchored = f"{store.anchor_size} anchored in block {store.anchor_block}, {duration(now_ms - store.anchor_ms)} old"
    return "; ".join(
        [
            f"{store.records} records",
            signed if store.checkpoint_size else "none signed",
            anchored if store.anchor_size else "none anchored",
        ]
    )


def _weights(store: StoreFacts, beat: Heartbeat | None) -> str:
    if not store.weights:
        return "never tried"
    latest = store.weights[0]
    age = f", {beat.chain.block - latest.block} blocks ago" if beat and beat.chain.block >= latest.block else ""
    if latest.status == "ok":
        return f"set for {latest.race_id} in block {latest.block}{age}"
    text = f"{latest.status.replace('_', ' ')} for {latest.race_id} in block {latest.block}{age}"
    last_ok = next((row for row in store.weights if row.status == "ok"), None)
    if last_ok is None:
        return f"{text}; last set before the latest tries"
    return f"set for {last_ok.race_id} in block {last_ok.block}; {text}"
