"""The status as a page: one line per subject, then what needs a person, then what mends itself.

Pure text from values. Every moment is given in local time and in the time of the races' own calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from neurons.health.node_file import Heartbeat, OperatorFacts, skewed
from neurons.health.status import DAY_MS, Status, StoreFacts

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
            bank = f"{days} days left, {beat.bank_days_min} wanted"
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
    reorgs = f", {chain.reorgs} reorgs seen" if chain.reorgs else ""
    return f"{place}; block {chain.block} ({duration(now_ms - chain.grew_ms)} old, {behind} not final){reorgs}"


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
